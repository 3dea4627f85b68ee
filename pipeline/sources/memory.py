"""Sources of bytes and items that are already there, or come from an async iterable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any, TypeVar, cast

from turnstream.operators.batch import Batch, StreamKey
from turnstream.sources.base import CHUNK_SIZE, Source, cut

__all__ = ["from_async_iterable", "from_bytes", "from_items"]

T = TypeVar("T")


class _BytesSource(Source[bytes]):
    def __init__(self, chunks: Iterable[bytes], name: str, size: int) -> None:
        self._chunks = chunks
        self._size = size
        self.name = name

    def batches(self) -> Iterator[Batch[bytes]]:
        size = self._size
        for chunk in self._chunks:
            length = len(chunk)
            if length <= size:
                if length:
                    yield Batch((chunk,), None, None, length)
            else:
                for piece in cut(bytes(chunk), size):
                    yield Batch((piece,), None, None, len(piece))


def from_bytes(data: bytes | Iterable[bytes], *, name: str = "bytes", chunk_size: int = CHUNK_SIZE) -> Source[bytes]:
    """A source of bytes in memory, unpaced (no arrival times).

    Args:
        data: the bytes, or an iterable of chunks (iterated once per run).
        name: what reports call it.
        chunk_size: longer pieces are cut; bytes.

    Raises:
        ValueError: a chunk size below 1.
    """
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, not {chunk_size}")
    if isinstance(data, (bytes, bytearray, memoryview)):
        return _BytesSource((bytes(data),), name, chunk_size)
    return _BytesSource(data, name, chunk_size)


class _ItemsSource(Source[T]):
    def __init__(self, items: Iterable[T], name: str, size: int, key: StreamKey | None) -> None:
        self._items = items
        self._size = size
        self._key = key
        self.name = name

    def batches(self) -> Iterator[Batch[T]]:
        collected: list[T] = []
        for item in self._items:
            collected.append(item)
            if len(collected) >= self._size:
                yield Batch(tuple(collected), None, self._key)
                collected = []
        if collected:
            yield Batch(tuple(collected), None, self._key)


def from_items(
    items: Iterable[T], *, name: str = "items", batch_size: int = 100, key: StreamKey | None = None
) -> Source[T]:
    """A source of items (messages, events …), ``batch_size`` of them a batch, unpaced."""
    return _ItemsSource(items, name, batch_size, key)


class _AsyncSource(Source[T]):
    def __init__(self, iterable: AsyncIterable[T], name: str, key: StreamKey | None, size: int) -> None:
        self._iterable = iterable
        self._key = key
        self._size = size
        self.name = name

    async def batches(self) -> AsyncIterator[Batch[T]]:
        now = asyncio.get_running_loop().time
        key = self._key
        iterator = self._iterable.__aiter__()
        try:
            async for item in iterator:
                at = now()
                if isinstance(item, (bytes, bytearray, memoryview)):
                    for piece in cut(bytes(item), self._size):
                        yield Batch((cast("Any", piece),), at, key, len(piece))
                else:
                    yield Batch((item,), at, key)
        finally:
            # However the run ends, the producer's own cleanup (its response …) happens now, not at
            # garbage collection.
            close = getattr(iterator, "aclose", None)
            if close is not None:
                await close()


def from_async_iterable(
    iterable: AsyncIterable[T],
    *,
    name: str = "async iterable",
    key: StreamKey | None = None,
    chunk_size: int = CHUNK_SIZE,
) -> Source[T]:
    """A live source: each item is a batch stamped with its arrival time on the loop's clock.

    Chunks of bytes are cut to ``chunk_size``. The iterable's ``aclose`` is called when the run ends.
    """
    return _AsyncSource(iterable, name, key, chunk_size)
