"""Out of a run into an async iterable; the way in is :func:`turnstream.sources.from_async_iterable`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import Any, TypeVar

from turnstream.composition import Pipeline
from turnstream.sinks.base import Policy, SinkBase

__all__ = ["to_async_iterable"]

T = TypeVar("T")


class _QueueSink(SinkBase):
    """A bounded hand-off: full while the consumer is behind, so the source waits."""

    name = "async iterable"
    policy: Policy = "block"
    # The consumer may take all the time it wants.
    stall_timeout: float | None = None

    def __init__(self, maxsize: int) -> None:
        self._maxsize = maxsize
        self._items: deque[Any] = deque()
        self._came = asyncio.Event()
        self._went = asyncio.Event()
        self.ended = False
        self.error: Exception | None = None

    def on_next(self, batch: Sequence[Any], /) -> None:
        self._items.extend(batch)
        self._came.set()

    def on_error(self, error: Exception, /) -> None:
        self.error = error
        self.on_completed()

    def on_completed(self) -> None:
        self.ended = True
        self._came.set()

    def full(self) -> bool:
        return len(self._items) >= self._maxsize and not self.ended

    async def room(self) -> None:
        while self.full():
            self._went.clear()
            await self._went.wait()

    async def get(self) -> Any:
        """The next item; raises StopAsyncIteration at the end."""
        while not self._items:
            if self.ended:
                raise StopAsyncIteration
            self._came.clear()
            await self._came.wait()
        item = self._items.popleft()
        if len(self._items) < self._maxsize:
            self._went.set()
        return item


async def to_async_iterable(pipeline: Pipeline[T], maxsize: int = 1000) -> AsyncGenerator[T, None]:
    """Run a pipeline and iterate over its items.

    The source isn't read on while ``maxsize`` items wait (the batch that passes it still comes whole).
    Leaving the loop early disposes of the run: ``async with contextlib.aclosing(...)`` makes that prompt.

    Args:
        pipeline: with or without sinks of its own.
        maxsize: items that may wait.

    Raises:
        Exception: what broke the run, after all items that came before it.
    """
    sink = _QueueSink(maxsize)
    async with pipeline.to(sink) as run:
        try:
            while True:
                try:
                    item = await sink.get()
                except StopAsyncIteration:
                    break
                yield item
        finally:
            # A consumer that is gone must not hold the pump.
            sink.ended = True
            sink._went.set()
        await run
        if sink.error is not None:
            raise sink.error
