"""How long a full sink may hold the source (DESIGN.md §4): as long as it makes progress."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from turnstream.messages.errors import SinkError
from turnstream.sinks.base import Sink

__all__ = ["STALL_TIMEOUT", "wait_for_room"]

STALL_TIMEOUT: Final = 30.0
"""Seconds that a sink may go without progress while something waits for it."""

# How often a sink is looked at in that time.
_LOOKS: Final = 4
# room() may come back too early, for what was emitted meanwhile; a sink that does so for ever is broken.
_EMPTY_PROMISES: Final = 100


async def wait_for_room(sink: Sink, stall_timeout: float | None = STALL_TIMEOUT) -> None:
    """Return once the sink isn't full.

    Progress is any change of its ``statistics()``. A sink that reports a ``device_error`` is trusted to have a
    patience of its own (the transcript keeps its lines and tries again), so its time doesn't run.

    Args:
        sink: it; its attribute ``stall_timeout``, if it has one, goes before the argument.
        stall_timeout: seconds without progress; None: for ever.

    Raises:
        SinkError: it stalled, or its ``room()`` returns although it is full.
        Exception: what its ``room()`` raises.
    """
    limit: float | None = getattr(sink, "stall_timeout", stall_timeout)
    now = asyncio.get_running_loop().time
    seen: dict[str, Any] = dict(sink.statistics())
    since = now()
    promises = 0
    while sink.full():
        look = None if limit is None else asyncio.timeout(limit / _LOOKS)
        try:
            if look is None:
                await sink.room()
            else:
                async with look:
                    await sink.room()
        except TimeoutError:
            if look is None or not look.expired():
                raise  # the sink's own
        if look is None or not look.expired():
            promises += 1
            if promises > _EMPTY_PROMISES:
                if _changed(found := dict(sink.statistics()), seen):
                    seen, since, promises = found, now(), 0
                    continue
                raise SinkError(f"room() of sink {sink.name!r} returns although it is full", sink=sink.name)
            await asyncio.sleep(0)
            continue
        promises = 0
        found = dict(sink.statistics())
        if _changed(found, seen) or found.get("device_error") is not None:
            seen, since = found, now()
        elif limit is not None and now() - since >= limit:
            raise SinkError(
                f"sink {sink.name!r} made no progress for {limit:g} s",
                sink=sink.name,
                hint="it held the source; see why it hangs, or give it a longer stall_timeout",
            )


def _changed(found: dict[str, Any], seen: dict[str, Any]) -> bool:
    # A lag grows by itself.
    return {**found, "lag": None} != {**seen, "lag": None}
