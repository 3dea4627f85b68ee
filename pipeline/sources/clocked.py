"""``with_clocks``: the clocks of a live answer around any source that waits (WIRE.md §7)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import Any, TypeVar

from turnstream.flow.beside import LISTENER
from turnstream.flow.clocks import Clocks, WaitClock, timed_out, warn_of_idle
from turnstream.operators.batch import Batch
from turnstream.sources.base import Hand, LiveBatches, Source

__all__ = ["with_clocks"]

T = TypeVar("T")

_log = logging.getLogger("turnstream.sources")


class _ClockedSource(Source[T]):
    def __init__(self, source: Source[T], clocks: Clocks) -> None:
        self._source = source
        self._clocks = clocks
        self.name = source.name

    def batches(self) -> Iterator[Batch[T]] | AsyncIterator[Batch[T]]:
        stream = self._source.batches()
        if not isinstance(stream, AsyncIterator):
            return stream  # it never waits
        return LiveBatches(lambda hand: self._watched(stream, hand))

    def interrupt(self, error: Exception) -> Sequence[T]:
        return self._source.interrupt(error)

    async def _watched(self, stream: Any, hand: Hand) -> AsyncGenerator[Batch[T], None]:
        clocks = self._clocks
        waiting: asyncio.Task[Any] | None = None
        received: int | None = None  # nothing, until the first batch is here
        taker = hand.taker

        def expire() -> None:
            if waiting is not None:
                waiting.cancel()

        def not_yet(seconds: float) -> None:
            """Before the first byte there is no warning."""

        first = WaitClock(Clocks(idle=clocks.first_byte, idle_warning=None, total=clocks.total), not_yet, expire)
        later = WaitClock(clocks, warn_of_idle(self.name, clocks, _log, LISTENER.get()), expire)
        clock = first

        def came(batch: Batch[T]) -> None:
            nonlocal clock, received
            if received is None:
                received = 0
                first.stop()
                later.waited = first.waited
                later.start()
                clock = later
            received += batch.weight

        def take(batch: Batch[T]) -> bool:
            clock.end()
            came(batch)
            more = taker is None or taker(batch)
            clock.begin()
            return more

        if taker is not None and isinstance(stream, LiveBatches):
            stream.hand_to(take, hand.context)
        first.start()
        try:
            while True:
                waiting = asyncio.current_task()
                cancels = 0 if waiting is None else waiting.cancelling()
                clock.begin()
                try:
                    batch: Batch[T] = await stream.__anext__()
                except StopAsyncIteration:
                    return
                except asyncio.CancelledError:
                    # A cancellation that came from elsewhere at the same time goes on.
                    if clock.expired is None or waiting is None or waiting.uncancel() > cancels:
                        raise
                    word: Any = "first_byte" if clock is first and clock.expired == "idle" else clock.expired
                    raise timed_out(word, getattr(clocks, word), received=received) from None
                finally:
                    clock.end()
                    waiting = None
                came(batch)
                yield batch
        finally:
            first.stop()
            later.stop()
            close: Any = getattr(stream, "aclose", None)
            if close is not None:
                await close()


def with_clocks(source: Source[T], clocks: Clocks | None = None) -> Source[T]:
    """A live source that is given up when nothing comes from it for too long; one that never waits stays as it is.

        with_clocks(from_stdin(), Clocks(idle=60))

    For pipes, and for the bytes of other HTTP clients (``from_async_iterable``); :func:`from_request` has clocks of its
    own. They run only while the source is waited for, so a slow consumer or a tool never lets one run out.

    Args:
        source: any; it is let go of when a clock runs out.
        clocks: ``first_byte``, ``idle``, ``idle_warning`` and ``total`` count here; default :class:`Clocks`.

    Raises:
        StreamIdleTimeout: a clock ran out (while iterating); retryable.
    """
    return _ClockedSource(source, clocks if clocks is not None else Clocks())
