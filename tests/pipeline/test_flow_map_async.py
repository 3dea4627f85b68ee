"""``map_async``: results in order, a few calls at once, the source held, nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from reactivex import operators as ops

import turnstream as ts
from turnstream.flow import Credits, announce, collecting, map_async
from turnstream.messages import StreamNote
from turnstream.operators import Batch, each, lift
from turnstream.operators.batch import StreamKey
from turnstream.sources.memory import from_items
from turnstream.testing import RecordingSink, record_observable, virtual_time
from turnstream.testing.leftovers import Leftovers


class Work:
    """A call that takes as many seconds as its item says."""

    def __init__(self) -> None:
        self.out = 0
        self.most = 0
        self.started: list[Any] = []
        self.cancelled: list[Any] = []

    async def __call__(self, item: float) -> str:
        self.out += 1
        self.most = max(self.most, self.out)
        self.started.append(item)
        try:
            await asyncio.sleep(item)
        except asyncio.CancelledError:
            self.cancelled.append(item)
            raise
        finally:
            self.out -= 1
        return f"{item:g}"


async def run(items: list[Any], operator: Any, *, batch_size: int = 1) -> tuple[RecordingSink, Any]:
    sink = RecordingSink()
    before = Leftovers()
    outcome = await ts.Pipeline(from_items(items, batch_size=batch_size)).through(operator).to(sink).run()
    assert before.since() == []
    return sink, outcome


@pytest.mark.parametrize("batch_size", [1, 3, 100])
@virtual_time
async def test_results_come_in_order_however_long_they_take(batch_size: int) -> None:
    work = Work()
    sink, outcome = await run([5, 1, 3, 2, 4], map_async(work, 3), batch_size=batch_size)
    assert sink.items == ["5", "1", "3", "2", "4"]
    assert (outcome.status, sink.completed, work.most) == ("complete", True, 3)


@virtual_time
async def test_unordered_results_come_as_they_are_done() -> None:
    sink, _ = await run([5, 1, 3], map_async(Work(), 3, ordered=False), batch_size=3)
    assert sink.items == ["1", "3", "5"]


@virtual_time
async def test_what_takes_the_same_time_takes_it_once() -> None:
    loop = asyncio.get_running_loop()
    await run([1.0] * 100, map_async(Work(), 10))
    assert loop.time() == 10.0


@virtual_time
async def test_the_source_is_not_read_on_while_all_calls_are_out() -> None:
    given = 0
    ahead: list[int] = []
    work = Work()

    async def source() -> AsyncIterator[float]:
        nonlocal given
        for _ in range(20):
            given += 1
            ahead.append(given - (len(work.started) - work.out))
            yield 1.0

    sink = RecordingSink()
    outcome = await ts.Pipeline(ts.from_async_iterable(source())).through(map_async(work, 3)).to(sink).run()
    assert outcome.ok
    assert len(sink.items) == 20
    assert max(ahead) == 3, "three calls are out; a fourth item is only asked for when one is done"


@virtual_time
async def test_a_plain_value_costs_no_task_and_keeps_its_place() -> None:
    work = Work()
    names: set[str] = set()

    def function(item: Any) -> Any:
        names.update(t.get_name() for t in asyncio.all_tasks())
        return work(item) if isinstance(item, float) else item

    sink, _ = await run(["a", 2.0, "b", 1.0, "c"], map_async(function, 2), batch_size=5)
    assert sink.items == ["a", "2", "b", "1", "c"]
    assert work.started == [2.0, 1.0]
    assert sum(name.startswith("turnstream-map-async-") for name in names) == 1


@virtual_time
async def test_time_key_and_bytes_of_batches_are_kept() -> None:
    sink = RecordingSink()
    key = StreamKey(None, "toolu_1")
    batches = [Batch((1, 2), 1.5, key, 100), Batch((), 2.0, key, 30), Batch((3,), 2.5, key, 7)]

    class Given(ts.Source[Any]):
        def batches(self) -> Any:
            return iter(batches)

    outcome = await ts.Pipeline(Given()).through(map_async(Work(), 2)).to(sink).run()
    assert [(b.at, b.key, list(b)) for b in sink.batches] == [
        (1.5, key, ["1"]),
        (1.5, key, ["2"]),
        (2.5, key, ["3"]),
    ]
    assert outcome.bytes == 137


@virtual_time
async def test_a_call_that_raises_ends_the_stream_behind_the_results_before_it() -> None:
    work = Work()

    async def function(item: float) -> str:
        if item == 1.0:
            raise ValueError("boom")
        return await work(item)

    sink, outcome = await run([3.0, 1.0, 4.0, 2.0], map_async(function, 2))
    assert sink.items == ["3"]
    assert outcome.status == "broken"
    assert isinstance(outcome.error, ValueError)
    assert work.started == [3.0], "nothing new was started once it had failed"


@virtual_time
async def test_calls_behind_a_failed_one_are_cancelled() -> None:
    work = Work()

    async def function(item: float) -> str:
        if item == 1.0:
            await asyncio.sleep(1)
            raise ValueError("boom")
        return await work(item)

    sink, outcome = await run([3.0, 1.0, 4.0, 2.0], map_async(function, 4), batch_size=4)
    assert (sink.items, outcome.status, sorted(work.cancelled)) == (["3"], "broken", [2.0, 4.0])


@virtual_time
async def test_a_failed_call_ends_a_run_whose_source_is_silent() -> None:
    closed: list[bool] = []

    async def source() -> AsyncIterator[float]:
        try:
            yield 1.0
            await asyncio.get_running_loop().create_future()
        finally:
            closed.append(True)

    async def function(item: float) -> str:
        await asyncio.sleep(item)
        raise ValueError("boom")

    sink = RecordingSink()
    outcome = await ts.Pipeline(ts.from_async_iterable(source())).through(map_async(function)).to(sink).run()
    assert (outcome.status, str(outcome.error), closed) == ("broken", "boom", [True])


@virtual_time
async def test_a_cancelled_call_is_a_failed_one() -> None:
    async def function(item: float) -> str:
        raise asyncio.CancelledError

    _, outcome = await run([1.0], map_async(function))
    assert outcome.status == "broken"
    assert "cancelled" in str(outcome.error)


@virtual_time
async def test_the_end_of_a_broken_source_comes_behind_the_results() -> None:
    async def source() -> AsyncIterator[float]:
        yield 2.0
        raise ConnectionResetError("peer reset")

    sink = RecordingSink()
    outcome = await ts.Pipeline(ts.from_async_iterable(source())).through(map_async(Work())).to(sink).run()
    assert sink.items == ["2"]
    assert isinstance(outcome.error, ConnectionResetError)


@virtual_time
async def test_abort_gives_calls_the_drain_deadline_and_no_more() -> None:
    loop = asyncio.get_running_loop()
    before = Leftovers()
    work = Work()
    sink = RecordingSink()
    pipeline = ts.Pipeline(from_items([1.0, 500.0])).through(map_async(work)).to(sink, drain_timeout=20)
    async with pipeline as run:
        await asyncio.sleep(0.5)
        run.abort("enough")
        outcome = await run
    assert (outcome.status, sink.items, sink.completed) == ("aborted", ["1"], True)
    assert work.cancelled == [500.0]
    assert loop.time() == 20.5
    assert before.since() == []


@virtual_time
async def test_fault_110_dispose_cancels_the_calls_and_says_nothing() -> None:
    before = Leftovers()
    work = Work()
    sink = RecordingSink()
    async with ts.Pipeline(from_items([100.0] * 10)).through(map_async(work, 3)).to(sink) as run:
        await asyncio.sleep(1)
        run.dispose()
        outcome = await run
    assert (outcome.status, sink.items, sink.error, sink.completed) == ("disposed", [], None, False)
    assert work.cancelled == [100.0] * 3
    assert before.since() == []


@virtual_time
async def test_it_composes_with_stages_rx_operators_and_itself() -> None:
    class Double:
        plain = False

        def feed(self, batch: Any, /) -> Any:
            return [item * 2 for item in batch]

        def flush(self) -> Any:
            return ()

        def fail(self, error: Exception, /) -> Any:
            return ()

    async def length(item: str) -> int:
        await asyncio.sleep(1)
        return len(item)

    operator = lift(Double) | map_async(Work(), 2) | each(ops.filter(lambda text: text != "4")) | map_async(length, 2)
    sink, outcome = await run([1.0, 2.0, 30.0], operator)
    assert (sink.items, outcome.status) == ([1, 2], "complete")


@virtual_time
async def test_outside_of_a_run_it_is_an_ordinary_operator() -> None:
    from reactivex import from_iterable

    recorded = record_observable(map_async(Work(), 2)(from_iterable([[2.0, 1.0], [0.5]])))
    await recorded.finished()
    assert (recorded.items, recorded.completed) == (["2", "1", "0.5"], True)


def test_it_says_what_it_needs() -> None:
    from reactivex import from_iterable

    with pytest.raises(ValueError, match="at least 1"):
        map_async(Work(), 0)
    recorded = record_observable(map_async(Work())(from_iterable([[1.0]])))
    assert isinstance(recorded.error, RuntimeError)
    assert "no running event loop" in str(recorded.error)


def test_credits_are_announced_to_who_collects_them() -> None:
    class Mine:
        def full(self) -> bool:
            return False

        async def room(self) -> None: ...

        async def aclose(self) -> None: ...

    mine: Credits = Mine()
    announce(mine)  # nobody listens
    with collecting() as collected:
        announce(mine)
    announce(mine)
    assert collected == [mine]


@virtual_time
async def test_emitted_items_do_not_pass_through_it() -> None:
    note = StreamNote(kind="emitted", message="…")
    sink = RecordingSink()
    async with ts.Pipeline(from_items([5.0])).through(map_async(Work())).to(sink) as run:
        await asyncio.sleep(1)
        run.emit(note)
        await run
    assert sink.items == [note, "5"]
