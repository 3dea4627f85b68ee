"""check_sink: a sink that keeps its promises passes; each broken promise is found and named."""

from __future__ import annotations

import asyncio
import concurrent.futures
import io
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from turnstream.messages import (
    Resync,
    encode,
)
from turnstream.sinks.base import SinkBase
from turnstream.testing import RecordingSink, VirtualLoop, check_sink, sample_items, virtual_time


class Good(SinkBase):
    """The least that works; the faulty ones below differ from it in one thing."""

    name = "good"

    def __init__(self) -> None:
        self.count = 0

    def on_next(self, batch: Sequence[Any], /) -> None:
        self.count += len(batch)

    def statistics(self) -> Mapping[str, Any]:
        return {"items": self.count}


class Lines(Good):
    """A lossless sink with a queue, a worker thread, a task and a file."""

    name = "lines"
    policy = "block"

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.file = path.open("wb")
        self.queue: list[bytes] = []
        self.executor = concurrent.futures.ThreadPoolExecutor(1, "lines")
        self.task: asyncio.Task[None] | None = None
        self.closing: asyncio.Future[None] | None = None

    def on_next(self, batch: Sequence[Any], /) -> None:
        if self.closing is not None:
            raise RuntimeError("closed")
        self.count += len(batch)
        self.queue.extend(encode(item) + b"\n" for item in batch)
        if self.queue and self.task is None:
            self.task = asyncio.create_task(self.work(), name="lines worker")

    async def work(self) -> None:
        while self.queue:
            lines, self.queue = self.queue, []
            await asyncio.get_running_loop().run_in_executor(self.executor, self.file.writelines, lines)
        self.task = None

    def full(self) -> bool:
        return len(self.queue) > 20

    async def room(self) -> None:
        while self.full() and self.task is not None:
            await asyncio.shield(self.task)

    async def drain(self) -> None:
        while self.task is not None:
            await asyncio.shield(self.task)

    async def aclose(self) -> None:
        if self.closing is None:
            self.closing = asyncio.ensure_future(self.close())
        await asyncio.shield(self.closing)

    async def close(self) -> None:
        await self.drain()
        await asyncio.to_thread(self.executor.shutdown)
        self.file.close()


def lines_factory(folder: Path) -> Callable[[], Lines]:
    numbers = itertools.count()
    return lambda: Lines(folder / f"{next(numbers)}.jsonl")


# -- what passes


@virtual_time
async def test_good_sinks_pass() -> None:
    await check_sink(Good)
    await check_sink(RecordingSink, output=lambda sink: sink.items)
    await check_sink(lambda: RecordingSink("slow", "block", slow=5.0, capacity=2), output=lambda sink: sink.items)


@virtual_time
async def test_a_sink_with_a_thread_a_task_and_a_file_passes(tmp_path: Path) -> None:
    await check_sink(lines_factory(tmp_path), output=lambda sink: sink.path.read_bytes())
    # Whole sessions were fed, more than once.
    whole = b"".join(encode(item) + b"\n" for item in sample_items())
    assert sum(path.read_bytes() == whole for path in tmp_path.iterdir()) >= 5


def test_it_runs_in_a_real_loop_too(tmp_path: Path) -> None:
    asyncio.run(check_sink(Good))
    asyncio.run(check_sink(lines_factory(tmp_path), output=lambda sink: sink.path.read_bytes()))


@virtual_time
async def test_the_factory_may_be_async_and_items_may_be_given() -> None:
    seen: list[Any] = []

    class Seeing(Good):
        def on_next(self, batch: Sequence[Any], /) -> None:
            seen.extend(item for item in batch if isinstance(item, str))
            super().on_next(batch)

    async def make() -> Seeing:
        await asyncio.sleep(1)
        return Seeing()

    await check_sink(make, items=(f"item {number}" for number in range(3)))
    assert set(seen) == {"item 0", "item 1", "item 2"}


@virtual_time
async def test_what_was_there_before_is_nobodys_leftover() -> None:
    task = asyncio.ensure_future(asyncio.sleep(10**9))
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    await asyncio.sleep(0)
    try:
        await check_sink(Good)
    finally:
        done.set()
        thread.join()
        task.cancel()


# -- what doesn't (more in the files beside this one)


class KnowsNoResync(Good):
    def on_next(self, batch: Sequence[Any], /) -> None:
        if any(isinstance(item, Resync) for item in batch):
            raise NotImplementedError


@virtual_time
async def test_the_same_sink_twice_is_named() -> None:
    sink = Good()
    with pytest.raises(AssertionError, match="factory must make a fresh sink"):
        await check_sink(lambda: sink)


@virtual_time
async def test_output_that_depends_on_chunking_is_named() -> None:
    class CountsBatches(Good):
        def on_next(self, batch: Sequence[Any], /) -> None:
            self.count += 1

    with pytest.raises(AssertionError, match="'all in one list' differs from 'one item a batch'"):
        await check_sink(CountsBatches, output=lambda sink: sink.count)


@virtual_time
async def test_output_after_aclose_is_named() -> None:
    class Buffered(Good):
        """Somebody else writes what it has, later."""

        def __init__(self) -> None:
            super().__init__()
            self.out = io.StringIO()

    outputs = itertools.count()
    with pytest.raises(AssertionError, match="changed after aclose"):
        await check_sink(Buffered, output=lambda sink: next(outputs))


@virtual_time
async def test_the_cause_is_kept() -> None:
    with pytest.raises(AssertionError) as caught:
        await check_sink(KnowsNoResync)
    assert isinstance(caught.value.__cause__, NotImplementedError)


@virtual_time
async def test_a_sink_that_fails_is_closed_all_the_same() -> None:
    closed: list[str] = []

    class FailsLate(KnowsNoResync):
        async def aclose(self) -> None:
            closed.append("yes")

    before = len(asyncio.all_tasks())
    with pytest.raises(AssertionError):
        await check_sink(FailsLate)
    # Opened twice for its shape, then idle lives that end with one, two and two closings, then the one that failed.
    assert len(closed) == 2 + (1 + 2 + 2) + 1
    assert len(asyncio.all_tasks()) == before
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    assert loop.pending_timers() == []


@virtual_time
async def test_ones_own_cancellation_goes_through() -> None:
    class Slow(Good):
        async def aclose(self) -> None:
            await asyncio.sleep(20)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await check_sink(Slow)
