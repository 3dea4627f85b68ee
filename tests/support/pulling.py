"""Pulling a source dry, and seeing whether it let go."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

from turnstream.operators import (
    Batch,
    StreamKey,
)
from turnstream.sources import (
    Source,
)

KEY = StreamKey("s", "t")


async def collect(source: Source[Any]) -> list[Batch[Any]]:
    """All batches."""
    stream = source.batches()
    if isinstance(stream, AsyncIterator):
        return [batch async for batch in stream]
    return list(stream)


def pull(source: Source[Any]) -> list[Batch[Any]]:
    return asyncio.run(collect(source))


def joined(batches: list[Batch[bytes]]) -> bytes:
    return b"".join(bytes(chunk) for batch in batches for chunk in batch)


def items_of(batches: list[Batch[Any]]) -> list[Any]:
    return [item for batch in batches for item in batch]


def open_files() -> int:
    return len(os.listdir("/proc/self/fd" if sys.platform == "linux" else "/dev/fd"))


class Producer:
    """An async generator that says how it was closed."""

    def __init__(self, items: list[Any], gap: float = 1.0, error: Exception | None = None) -> None:
        self.items, self.gap, self.error = items, gap, error
        self.closed = 0

    async def stream(self) -> AsyncIterator[Any]:
        try:
            for item in self.items:
                await asyncio.sleep(self.gap)
                yield item
            if self.error is not None:
                raise self.error
        finally:
            await asyncio.sleep(0)
            self.closed += 1
