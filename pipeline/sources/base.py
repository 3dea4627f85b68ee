"""What a source is: batches, synchronous or asynchronous, pulled by the run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Generic, TypeVar

from turnstream.operators.batch import Batch

__all__ = ["CHUNK_SIZE", "Source", "cut"]

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


def cut(data: bytes, size: int = CHUNK_SIZE) -> Iterator[bytes]:
    """Pieces of at most ``size`` bytes."""
    if len(data) <= size:
        if data:
            yield data
        return
    for start in range(0, len(data), size):
        yield data[start : start + size]
