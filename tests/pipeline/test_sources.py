"""Sources of what is in memory or comes from an async iterable (DESIGN.md §4)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulling import KEY, Producer, collect, joined, pull

from turnstream.operators import (
    Batch,
)
from turnstream.sources import (
    CHUNK_SIZE,
    from_async_iterable,
    from_bytes,
    from_items,
)
from turnstream.sources.base import cut
from turnstream.testing import virtual_time

# -- memory ------------------------------------------------------------------------------------------


def test_bytes_come_in_chunks_of_at_most_64_kib_unstamped_and_weighed() -> None:
    data = os.urandom(CHUNK_SIZE * 2 + 100)
    batches = pull(from_bytes(data))
    assert joined(batches) == data
    assert [batch.weight for batch in batches] == [CHUNK_SIZE, CHUNK_SIZE, 100]
    assert {(batch.at, batch.key, len(batch)) for batch in batches} == {(None, None, 1)}
    assert CHUNK_SIZE == 64 * 1024


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_bytes_may_be_any_buffer_and_are_read_again_in_each_run(make: Any) -> None:
    source = from_bytes(make(b"abc"), name="n", chunk_size=2)
    assert source.name == "n"
    assert [bytes(b[0]) for b in pull(source)] == [b"ab", b"c"]
    assert joined(pull(source)) == b"abc"


def test_chunks_are_kept_empty_ones_left_out_long_ones_cut() -> None:
    source = from_bytes([b"ab", b"", b"cdefg", memoryview(b"hij")], chunk_size=3)
    assert [(bytes(b[0]), b.weight) for b in pull(source)] == [(b"ab", 2), (b"cde", 3), (b"fg", 2), (b"hij", 3)]
    assert pull(from_bytes(b"")) == []


@pytest.mark.parametrize("size", [0, -1])
def test_a_chunk_size_below_one_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="chunk_size"):
        from_bytes(b"a", chunk_size=size)


@given(st.binary(max_size=50), st.integers(1, 20))
def test_cutting_loses_nothing(data: bytes, size: int) -> None:
    pieces = list(cut(data, size))
    assert b"".join(pieces) == data
    assert all(0 < len(piece) <= size for piece in pieces)


def test_items_come_in_batches_with_their_key() -> None:
    source = from_items(range(5), batch_size=2, key=KEY, name="numbers")
    assert source.name == "numbers"
    assert pull(source) == [Batch((0, 1), None, KEY), Batch((2, 3), None, KEY), Batch((4,), None, KEY)]
    assert pull(from_items([])) == []


def test_nothing_is_read_before_it_is_pulled() -> None:
    read: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(3):
            read.append(number)
            yield number

    stream = from_items(numbers(), batch_size=1).batches()
    assert read == []
    next(iter(stream))  # type: ignore[call-overload]
    assert read == [0]


# -- async iterables ---------------------------------------------------------------------------------


@virtual_time
async def test_each_item_is_a_batch_stamped_with_the_loops_time() -> None:
    producer = Producer([b"abcde", b"", {"an": "item"}])
    batches = await collect(from_async_iterable(producer.stream(), key=KEY, chunk_size=3))
    assert batches == [
        Batch((b"abc",), 1.0, KEY, 3),
        Batch((b"de",), 1.0, KEY, 2),
        Batch(({"an": "item"},), 3.0, KEY, 0),
    ]
    assert producer.closed == 1


@virtual_time
async def test_leaving_early_closes_the_producer_at_once() -> None:
    producer = Producer([1, 2, 3])
    stream: Any = from_async_iterable(producer.stream()).batches()
    assert (await anext(stream)).items == (1,)
    await stream.aclose()
    assert producer.closed == 1


@virtual_time
async def test_a_cancelled_pull_closes_the_producer_at_once() -> None:
    producer = Producer([1, 2], gap=100.0)
    task = asyncio.ensure_future(collect(from_async_iterable(producer.stream())))
    await asyncio.sleep(1.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert producer.closed == 1


@virtual_time
async def test_the_producers_error_comes_through_and_it_is_closed() -> None:
    error = ConnectionResetError("reset")
    producer = Producer([1], error=error)
    stream: Any = from_async_iterable(producer.stream()).batches()
    assert (await anext(stream)).items == (1,)
    with pytest.raises(ConnectionResetError) as caught:
        await anext(stream)
    assert (caught.value, producer.closed) == (error, 1)


@virtual_time
async def test_an_iterable_without_aclose_will_do() -> None:
    class Plain:
        def __init__(self) -> None:
            self.left = 2

        def __aiter__(self) -> Plain:
            return self

        async def __anext__(self) -> int:
            self.left -= 1
            if self.left < 0:
                raise StopAsyncIteration
            return self.left

    assert [b[0] for b in await collect(from_async_iterable(Plain(), name="plain"))] == [1, 0]
