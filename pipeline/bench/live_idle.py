"""What an open stream holds while nothing comes: measured in a process of its own, so that nothing else is in it."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import tracemalloc
from collections.abc import Callable

from turnstream.bench.live_clients import CLIENTS, Delays, close_streams, open_streams
from turnstream.bench.live_server import Asked, many_files

__all__ = ["idle_bytes", "main"]

_FIRST = 5
"""Streams before the others: what is made once isn't theirs."""
_WITHIN = 60.0


def _resident() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def _allocated() -> int:
    return tracemalloc.get_traced_memory()[0]


async def idle_bytes(client: str, url: str, streams: int) -> tuple[int | None, int]:
    """Bytes for each of so many idle streams.

    Args:
        client: which, of ``CLIENTS``.
        url: of the server.
        streams: how many.

    Returns:
        Of resident memory (None where the system doesn't say), and of Python's allocator.
    """
    async with CLIENTS[client].opened(url) as run:

        async def each(count: int, look: Callable[[], int]) -> int:
            delays = Delays()
            gc.collect()
            before = look()
            tasks = await open_streams(run, count, Asked("idle"), delays, within=_WITHIN)
            if delays.up < count:
                raise RuntimeError(f"{delays.up} of {count} idle streams began")
            gc.collect()
            after = look()
            await close_streams(tasks)
            return round((after - before) / count)

        await each(_FIRST, lambda: 0)
        resident = await each(streams, _resident) if sys.platform == "linux" else None
        # Only now: tracing takes memory of its own.
        tracemalloc.start()
        return resident, await each(streams, _allocated)


def main() -> None:
    """Print both as JSON; the arguments are the client, the URL, and how many streams."""
    many_files()
    print(json.dumps(asyncio.run(idle_bytes(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
