"""The bars that the project has set itself, and whether a run's figures meet them.

The floor and turnstream are measured in the same rounds, so the ratios carry over to other machines;
the microseconds don't.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from turnstream.bench.contenders import COUNTING, ORJSON, THREE_SINKS
from turnstream.bench.growth import PLAIN
from turnstream.bench.node import NODE_RXJS
from turnstream.bench.peers import SDK_RAW, SDK_STREAM
from turnstream.bench.rows import Decades, Growth, Live, Row, Transcripts
from turnstream.bench.transcripts import PLAIN as PLAIN_FILE

__all__ = ["Check", "check"]

FLOOR_LIMIT: Final = 3.3
"""The floor may cost so many times what orjson alone costs; a slower floor would flatter everybody."""

DOUBLING_LIMIT: Final = 2.3

DECADE_LIMIT: Final = 1.3
"""A message may cost so many times what it costs in a conversation a tenth as long."""

TRANSCRIPT_SPEED: Final = 0.5
"""Appending and resuming must be so fast beside a bare loop that does the least of it (the share of its speed)."""

FILE_LIMIT: Final = 1.3
"""A byte of a transcript may cost so many times what it costs in one a tenth as large."""

TOMBSTONE_BYTES: Final = 1_000_000
"""Read and written for one tombstone, however large the file."""

SECOND_LIST_BYTES: Final = 100_000
"""Read by a second listing beside its own cache: no transcript, whatever their number."""

LIVE_LIMIT: Final = 1.3
"""An event that comes alone may cost so many times the CPU that a bare loop of aiohttp takes for it."""

_RATIOS: Final = (
    (THREE_SINKS, "A", "16 KiB", 1.1, 0.7),
    (THREE_SINKS, "B", "16 KiB", 1.1, 0.7),
    (THREE_SINKS, "C", "16 KiB", 3.0, 1.5),
    (THREE_SINKS, "A", "1 event", 2.8, 1.5),
    (THREE_SINKS, "C", "1 event", 4.0, 1.5),
    (COUNTING, "A", "16 KiB", 0.9, None),
)
_CHUNKS: Final = {"16 KiB": "16 KiB chunks", "1 event": "one event a chunk"}

_PEERS: Final = ((SDK_STREAM, 80.0), (SDK_RAW, 12.0), (NODE_RXJS, 1.0))
"""On A, 16 KiB chunks: how many times our time they must take."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A figure with a bar.

    Attributes:
        what: the figure, in words.
        value: as measured.
        at_most: the bar, if less is better.
        at_least: the bar, if more is better.
        aim: what is aimed at beyond the bar.
        met: whether the figure meets the bar.
    """

    what: str
    value: float
    met: bool
    at_most: float | None = None
    at_least: float | None = None
    aim: float | None = None


def _at_most(what: str, value: float, bar: float, aim: float | None = None) -> Check:
    return Check(what=what, value=round(value, 3), met=value <= bar, at_most=bar, aim=aim)


def _at_least(what: str, value: float, bar: float) -> Check:
    return Check(what=what, value=round(value, 3), met=value >= bar, at_least=bar)


def check(
    rows: Sequence[Row],
    growth: Sequence[Growth] = (),
    decades: Sequence[Decades] = (),
    transcripts: Transcripts | None = None,
    live: Live | None = None,
) -> list[Check]:
    """The figures that have a bar, as far as they were measured."""
    by_place = {(row.contender, row.workload, row.chunking): row for row in rows}
    checks: list[Check] = []
    alone = by_place.get((ORJSON, "A", "16 KiB"))
    if alone is not None:
        checks.append(_at_most("the floor itself, × orjson alone, A", 1 / alone.ratio, FLOOR_LIMIT))
    for name, workload, chunking, bar, aim in _RATIOS:
        row = by_place.get((name, workload, chunking))
        if row is not None:
            checks.append(_at_most(f"{name}, × floor, {workload}, {_CHUNKS[chunking]}", row.ratio, bar, aim))
    checks += [
        _at_most("B, the largest doubling", max(each.doublings), DOUBLING_LIMIT)
        for each in growth
        if each.contender == THREE_SINKS and each.doublings
    ]
    checks += [
        _at_least(f"{name}, × bytes to three sinks, {row.workload}", row.to_ours, bar)
        for name, bar in _PEERS
        for row in rows
        if row.contender == name and row.workload == "A" and row.chunking == "16 KiB" and row.to_ours
    ]
    checks += [
        _at_most(f"{each.operation}, a message in ten times as many", max(each.ratios), DECADE_LIMIT)
        for each in decades
        if each.ratios and each.operation != PLAIN[0]
    ]
    if transcripts is not None:
        checks += _of_transcripts(transcripts)
    if live is not None:
        checks += [
            _at_most(f"live, CPU of {THREE_SINKS}, × bare aiohttp loop, {each.loop}", each.ratio, LIVE_LIMIT)
            for each in live.costs
            if each.client == THREE_SINKS
        ]
    return checks


def _of_transcripts(found: Transcripts) -> list[Check]:
    checks = [
        _at_least(f"{each.operation}: share of its speed", each.speed, TRANSCRIPT_SPEED) for each in found.against
    ]
    checks += [
        _at_most(f"{each.operation}, a byte of a file ten times as large", max(each.ratios), FILE_LIMIT)
        for each in found.growth
        if each.ratios and each.operation != PLAIN_FILE
    ]
    checks += [
        _at_most(f"{each.operation}, bytes touched", each.read + each.written, TOMBSTONE_BYTES)
        for each in found.touched
    ]
    again = found.listing.second_read
    if again is not None:
        read = max(0, again - found.listing.index_bytes)
        checks.append(
            _at_most(f"a second list of {found.listing.sessions:,}, bytes beside its cache", read, SECOND_LIST_BYTES)
        )
    return checks
