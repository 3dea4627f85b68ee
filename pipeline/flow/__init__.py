"""Flow: sinks that need time, operators that wait, and what keeps both bounded (DESIGN.md §4).

- :func:`buffered`: an :class:`AsyncSink` behind a bounded queue, as a sink of a run.
- :func:`map_async`: a coroutine function on every item, a few calls at once.
- :class:`Clocks`: how long the phases of a live answer may take.
- :mod:`turnstream.flow.credits`: how an operator that waits holds the source.
"""

from turnstream.flow.async_sink import AsyncSink
from turnstream.flow.buffered import HIGH_WATER, BufferedSink, buffered
from turnstream.flow.clocks import Clocks
from turnstream.flow.credits import Credits, announce, collecting
from turnstream.flow.map_async import map_async
from turnstream.flow.patience import STALL_TIMEOUT, wait_for_room

__all__ = [
    "HIGH_WATER",
    "STALL_TIMEOUT",
    "AsyncSink",
    "BufferedSink",
    "Clocks",
    "Credits",
    "announce",
    "buffered",
    "collecting",
    "map_async",
    "wait_for_room",
]
