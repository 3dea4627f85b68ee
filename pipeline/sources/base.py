"""What a source is: batches, synchronous or asynchronous, pulled by the run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextvars import Context
from typing import Any, Generic, TypeAlias, TypeVar

from turnstream.operators.batch import Batch

__all__ = ["CHUNK_SIZE", "Hand", "LiveBatches", "Source", "Taker", "cut"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

CHUNK_SIZE = 64 * 1024
"""Chunks hold at most this many bytes, so that no batch starves the loop or a sink (DESIGN.md §4)."""


class Source(Generic[T_co]):
    """Where a stream begins. Nothing is opened or requested before ``batches`` is iterated.

    The run pulls: it asks for the next batch only when every lossless sink has room.

    Attributes:
        name: what reports and errors call it (a path, a URL, ``stdin``).
    """

    name: str = "source"

    def batches(self) -> Iterator[Batch[T_co]] | AsyncIterator[Batch[T_co]]:
        """Open the source and give its batches, each stamped with its arrival time if it is live.

        Raises:
            SourceError: it can't be opened or read (while iterating).
        """
        raise NotImplementedError

    def interrupt(self, error: Exception) -> Sequence[T_co]:
        """The run breaks off: what the source itself still holds (a source with stages inside)."""
        return ()


Taker: TypeAlias = Callable[[Batch[Any]], bool]
"""Takes a batch the moment it arrives, and doesn't raise; returns whether it takes the next one like that, too."""


class Hand:
    """What a live source looks at while it waits: whether somebody takes its batches at once.

    Attributes:
        taker: who does, None if they are asked for one by one.
        context: what the taker is to be called in, where that isn't the task that asks.
    """

    __slots__ = ("context", "taker")

    def __init__(self) -> None:
        self.taker: Taker | None = None
        self.context: Context | None = None


class LiveBatches(AsyncIterator[Batch[T]]):
    """Batches of a live source: for who asks for each, or handed over the moment they arrive.

    Asking costs a turn of the event loop and a task's wake-up for each, which small events feel. Who
    sets a taker before the first is asked for gets most of them by it, in order, while ``__anext__`` waits; that
    gives him a batch only for a reason: an empty one without weight, right after the taker returned False, so that he
    can wait for room or stop (asked again, the source goes on with the taker); one that the source had no way to hand
    over; the end, or an error.

    Args:
        make: the batches; given the :class:`Hand` to look at.
    """

    __slots__ = ("_batches", "_hand")

    def __init__(self, make: Callable[[Hand], AsyncGenerator[Batch[T], None]]) -> None:
        # The generator knows the hand, not this object: let go of unfinished, it is closed at once, not by the collector.
        self._hand = Hand()
        self._batches = make(self._hand)

    def hand_to(self, taker: Taker, context: Context | None = None) -> None:
        """Hand batches over from now on.

        Args:
            taker: takes them.
            context: that of the task which asks, so that a context variable is the same whichever way a batch comes;
                a copy of it if none is given.
        """
        self._hand.taker = taker
        self._hand.context = context

    def __anext__(self) -> Any:
        """The next batch that isn't handed over."""
        return self._batches.__anext__()

    async def aclose(self) -> None:
        """Let go of what is held open, and of the taker."""
        try:
            await self._batches.aclose()
        finally:
            self._hand.taker = self._hand.context = None


def cut(data: bytes, size: int = CHUNK_SIZE) -> Iterator[bytes]:
    """Pieces of at most ``size`` bytes."""
    if len(data) <= size:
        if data:
            yield data
        return
    for start in range(0, len(data), size):
        yield data[start : start + size]
