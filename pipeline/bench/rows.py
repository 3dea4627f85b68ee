"""The figures of a benchmark run, as data."""

from __future__ import annotations

import msgspec

__all__ = ["Growth", "Row"]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One contender on one workload.

    Attributes:
        workload: its name.
        chunking: ``16 KiB`` or ``1 event``.
        contender: its name.
        events: how many events it went through.
        us_per_event: microseconds an event, median.
        ratio: to the floor, the median of the ratios of each round (both measured in that round).
        ratio_min: the smallest of them.
        ratio_max: the largest of them.
        to_ours: to "bytes to three sinks", the median likewise; None where that wasn't measured.
        rounds: how many rounds.
    """

    workload: str
    chunking: str
    contender: str
    events: int
    us_per_event: float
    ratio: float
    ratio_min: float
    ratio_max: float
    to_ours: float | None
    rounds: int


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """How one contender's time grows while the workload doubles.

    Attributes:
        contender: its name.
        workloads: their names, each twice as large as the one before.
        milliseconds: medians.
        doublings: the time of each workload but the first over that of the one before; the median of each
            round's ratio. 2 is linear, 4 quadratic.
    """

    contender: str
    workloads: list[str]
    milliseconds: list[float]
    doublings: list[float]
