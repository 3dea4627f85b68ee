"""The end of a run: every sink is drained and closed, whatever another does (DESIGN.md §4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

from turnstream.flow.credits import Credits
from turnstream.messages.errors import SinkError
from turnstream.sinks.base import Sink

__all__ = ["GRACE", "close_all", "statistics_of"]

_log = logging.getLogger("turnstream.run")

GRACE: Final = 1.0
"""Seconds for what was cancelled to end; what goes on after that is left to itself, with a warning."""


async def close_all(sinks: Sequence[Sink], operators: Iterable[Credits], within: float) -> dict[str, Exception]:
    """Drain and close all at once, so that none waits for one that hangs; after ``within`` seconds, by force.

    Args:
        sinks: each drained, then closed.
        operators: that hold something.
        within: seconds, for all of them together.

    Returns:
        Why sinks could not be drained or closed, by name.
    """
    loop = asyncio.get_running_loop()
    lost: dict[str, Exception] = {}
    tasks = [loop.create_task(_close(sink, within, lost), name=f"turnstream-close {sink.name}") for sink in sinks]
    tasks += [
        loop.create_task(credits.aclose(), name=f"turnstream-close operator {number}")
        for number, credits in enumerate(operators, 1)
    ]
    late: set[asyncio.Task[None]] = set(tasks)
    # The second cancel is for an aclose() that the first one came upon in drain().
    for patience in (within, GRACE, GRACE):
        if late:
            _, late = await asyncio.wait(late, timeout=patience)
        for task in late:
            task.cancel()
    for task in late:
        _log.warning("%s goes on although it was cancelled; it is left to itself", task.get_name())
    return lost


async def _close(sink: Sink, within: float, lost: dict[str, Exception]) -> None:
    for end in (sink.drain, sink.aclose):
        try:
            await end()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                what = f"wasn't drained within {within:g} s{_left(sink)}"
            else:
                what = "let the cancellation of a task of its own out"
            _lose(sink, SinkError(f"sink {sink.name!r} {what}", sink=sink.name), lost)
        except Exception as error:  # noqa: BLE001 - every sink is closed, whatever another does
            _lose(sink, error, lost)


def _lose(sink: Sink, error: Exception, lost: dict[str, Exception]) -> None:
    if sink.name not in lost:
        lost[sink.name] = error
        _log.warning("sink %s could not be closed: %s", sink.name, error)


def statistics_of(sink: Sink) -> dict[str, Any]:
    """A sink's counters; none if it can't tell (a report must not break the run it reports)."""
    try:
        return dict(sink.statistics())
    except Exception as error:  # noqa: BLE001 - a sink's fault is never another's
        _log.warning("sink %s can't tell its statistics: %r", sink.name, error)
        return {}


def _left(sink: Sink) -> str:
    """What a sink still holds, as far as it says so."""
    found = statistics_of(sink)
    left = [f"{count} {name.replace('_', ' ')}" for name in ("queued", "pending_lines") if (count := found.get(name))]
    return f" ({', '.join(left)})" if left else ""
