"""One intake, patience with sinks, ends and deadlines of a run (DESIGN.md §4; FAULTS.md group I)."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from flowing import Taker, answer, batch, live, open_text, stages, start, text

import turnstream as ts
from turnstream.flow import buffered, wait_for_room
from turnstream.messages import (
    MessageStop,
    ResponseFailed,
    SinkError,
    StreamNote,
    ToolUseSummary,
)
from turnstream.operators import each
from turnstream.sinks.base import SinkBase
from turnstream.sinks.transcript import files
from turnstream.sinks.ui import UIState
from turnstream.sources.memory import from_items
from turnstream.testing import RecordingSink, virtual_time
from turnstream.testing.leftovers import Leftovers


def summary(number: int) -> ToolUseSummary:
    return ToolUseSummary(summary=str(number), uuid="u", timestamp="t")


def alone() -> list[Any]:
    return ts.run_stages(answer(), stages())


# -- one intake ----------------------------------------------------------------------------------------


class Emitting(RecordingSink):
    """Emits ``items`` when it sees the first MessageStop."""

    def __init__(self, name: str, *items: Any) -> None:
        super().__init__(name)
        self.run: ts.Run | None = None
        self._emits = list(items)

    def on_next(self, batch: Sequence[Any], /) -> None:
        super().on_next(batch)
        if self._emits and any(isinstance(i, MessageStop) for i in batch):
            items, self._emits = self._emits, []
            assert self.run is not None
            for item in items:
                self.run.emit(item)


@virtual_time
async def test_what_sinks_a_timer_and_tasks_emit_reaches_all_in_one_order() -> None:
    first, middle, last = (
        Emitting("first", summary(1), summary(2)),
        RecordingSink("middle"),
        Emitting("last", summary(3)),
    )
    gap = live([*answer(1), *answer(2)], 1.0)
    async with ts.Pipeline(ts.from_async_iterable(gap)).through(stages()).to(first, middle, last) as run:
        first.run = last.run = run
        asyncio.get_running_loop().call_later(2.5, run.emit, summary(4))

        async def tool() -> None:
            await asyncio.sleep(3.5)
            run.emit(summary(5))

        await asyncio.gather(run, asyncio.create_task(tool()))
    assert first.items == middle.items == last.items
    emitted = [i for i in middle.items if isinstance(i, ToolUseSummary)]
    assert emitted == [summary(4), summary(5), summary(1), summary(2), summary(3)]
    stop = middle.items.index(MessageStop())
    assert middle.items[stop + 1 : stop + 4] == [summary(1), summary(2), summary(3)], "after the batch that caused them"
    times = [b.at for b in middle.batches if isinstance(b[0], ToolUseSummary)]
    assert times[:2] == [2.5, 3.5]


@virtual_time
async def test_fault_106_a_thread_emits_through_the_loop_and_an_idle_loop_wakes_up() -> None:
    loop = asyncio.get_running_loop()
    sink = RecordingSink()
    threads: set[str] = set()
    come = asyncio.Event()

    class Watching(RecordingSink):
        def on_next(self, batch: Sequence[Any], /) -> None:
            super().on_next(batch)
            threads.add(threading.current_thread().name)
            come.set()

    async def silent() -> AsyncIterator[bytes]:
        await come.wait()
        yield b"x"

    refused: list[str] = []
    async with ts.Pipeline(ts.from_async_iterable(silent())).to(sink, Watching("watching")) as run:

        def work() -> None:
            for call in (lambda: run.emit(summary(1)), lambda: run.abort("no"), run.dispose):
                try:
                    call()
                except RuntimeError as error:
                    refused.append(str(error))
            run.emit_threadsafe(summary(2)).result()

        await loop.run_in_executor(None, work)
        outcome = await run
    assert [str(summary(2)), "b'x'"] == [str(i) for i in sink.items]
    assert len(refused) == 3
    assert all("thread" in text for text in refused)
    assert threads == {threading.current_thread().name}
    assert outcome.ok


@virtual_time
async def test_nothing_can_be_emitted_before_and_after() -> None:
    unstarted = ts.Run(from_items([1]), (), ())
    with pytest.raises(RuntimeError, match="not begun"):
        unstarted.emit(1)
    with pytest.raises(RuntimeError, match="not begun"):
        unstarted.emit_threadsafe(1)
    async with ts.Pipeline(from_items([1])).to(RecordingSink()) as run:
        await run
        with pytest.raises(RuntimeError, match="ended"):
            run.emit(2)
        late = run.emit_threadsafe(2)
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="ended"):
            late.result(0)


@virtual_time
async def test_a_sink_that_disposes_or_aborts_from_inside() -> None:
    for how in ("dispose", "abort"):
        runs: list[ts.Run] = []

        class Stopping(RecordingSink):
            def on_next(self, batch: Sequence[Any], /) -> None:
                super().on_next(batch)
                getattr(runs[0], how)()  # noqa: B023

        stopping, beside = Stopping("stopping"), RecordingSink()
        closed: list[bool] = []

        async def source() -> AsyncIterator[bytes]:
            try:
                for frame in answer():
                    await asyncio.sleep(1)
                    yield frame
            finally:
                await asyncio.sleep(0)
                closed.append(True)  # noqa: B023

        async with ts.Pipeline(ts.from_async_iterable(source())).through(stages()).to(stopping, beside) as run:
            runs.append(run)
            outcome = await run
        assert outcome.status == {"dispose": "disposed", "abort": "aborted"}[how]
        assert closed == [True]
        assert beside.items[0] == stopping.items[0]
        assert stopping.items == beside.items
        assert beside.completed is (how == "abort")


# -- patience ------------------------------------------------------------------------------------------


@virtual_time
async def test_a_sink_of_any_make_cannot_hold_the_source_for_ever() -> None:
    stuck, beside = RecordingSink("stuck", "block", slow=1.0, capacity=1, hang="work"), RecordingSink()
    pipeline = (
        ts.Pipeline(ts.from_bytes(answer())).through(stages()).to(stuck, beside, drain_timeout=5, stall_timeout=20)
    )
    outcome = await pipeline.run()
    assert [i for i in beside.items if not isinstance(i, StreamNote)] == alone()
    assert [i.kind for i in beside.items if isinstance(i, StreamNote)] == ["sink_detached"]
    assert "made no progress for 20 s" in str(outcome.sink_errors["stuck"])
    assert asyncio.get_running_loop().time() == 20 + 5 + 1, "then it couldn't be drained, nor closed with a grace"


@virtual_time
async def test_progress_is_whatever_changes_the_statistics() -> None:
    slow = RecordingSink("slow", "block", slow=25.0, capacity=1)
    outcome = await ts.Pipeline(ts.from_bytes(answer())).through(stages()).to(slow, stall_timeout=30).run()
    assert outcome.sink_errors == {}
    assert slow.items == alone()


class Full(SinkBase):
    name = "full"
    policy = "block"

    def on_next(self, batch: Sequence[Any], /) -> None: ...

    def full(self) -> bool:
        return True


@virtual_time
async def test_a_sink_whose_room_returns_although_it_is_full_is_detached() -> None:
    beside = RecordingSink()
    outcome = await ts.Pipeline(ts.from_bytes(answer())).through(stages()).to(Full(), beside).run()
    assert [i for i in beside.items if not isinstance(i, StreamNote)] == alone()
    assert "although it is full" in str(outcome.sink_errors["full"])


@virtual_time
async def test_a_sink_whose_room_lets_out_a_cancellation_is_detached() -> None:
    class Leaking(Full):
        name = "leaking"

        async def room(self) -> None:
            raise asyncio.CancelledError

    beside = RecordingSink()
    outcome = await ts.Pipeline(ts.from_bytes(answer())).through(stages()).to(Leaking(), beside).run()
    assert [i for i in beside.items if not isinstance(i, StreamNote)] == alone()
    assert outcome.status == "failed"
    assert "CancelledError" in str(outcome.sink_errors["leaking"])


@virtual_time
async def test_a_sink_that_raises_a_cancellation_does_not_cancel_the_run() -> None:
    class Raising(RecordingSink):
        def on_next(self, batch: Sequence[Any], /) -> None:
            raise asyncio.CancelledError

        def on_completed(self) -> None:
            raise AssertionError("it was detached")

    beside = RecordingSink()
    outcome = await ts.Pipeline(ts.from_bytes(answer())).through(stages()).to(Raising("bad"), beside).run()
    assert [i for i in beside.items if not isinstance(i, StreamNote)] == alone()
    assert (outcome.status, list(outcome.sink_errors)) == ("failed", ["bad"])


@virtual_time
async def test_a_sinks_own_word_on_patience_goes_first() -> None:
    loop = asyncio.get_running_loop()

    class Patient(RecordingSink):
        stall_timeout: float | None = 3.0

    with pytest.raises(SinkError, match="for 3 s"):
        await wait_for_room(full_one(Patient("patient", "block", slow=1.0, capacity=1, hang="work")))
    assert loop.time() == 3.0
    endless = Patient("endless", "block", slow=1.0, capacity=1, hang="work")
    endless.stall_timeout = None
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(86_400):
            await wait_for_room(full_one(endless))


def full_one(sink: RecordingSink) -> RecordingSink:
    sink.on_next([1])
    assert sink.full()
    return sink


@virtual_time
async def test_a_transcript_whose_device_fails_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a patience of its own: it says device_error, keeps its lines and tries again."""
    loop = asyncio.get_running_loop()

    def write(fd: int, data: Any) -> int:
        if loop.time() < 200:
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.write(fd, data)

    monkeypatch.setattr(files, "_write", write)
    path = tmp_path / "s.jsonl"
    frames = [f for n in range(20) for f in answer(n, ["x" * 1_000])]
    transcript = ts.TranscriptSink(path, high_water=2_000, low_water=500)
    outcome = (
        await ts.Pipeline(ts.from_async_iterable(live(frames, 0.1)))
        .through(stages())
        .to(transcript, stall_timeout=10)
        .run()
    )
    assert outcome.sink_errors == {}
    assert loop.time() > 200
    assert path.read_bytes().count(b'"type":"assistant"') == 20


# -- ends ----------------------------------------------------------------------------------------------


@virtual_time
async def test_the_drain_deadline_is_for_each_sink_and_none_waits_for_one_that_hangs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.get_running_loop()
    before = Leftovers()
    hangs = [RecordingSink(f"hang {where}", hang=where) for where in ("drain", "aclose")]  # type: ignore[arg-type]
    taker = Taker("lossy", hang_at=1)
    lossy = buffered(taker, "conflate", stall_timeout=None)
    fine = RecordingSink("fine", slow=1.0)
    pipeline = ts.Pipeline(ts.from_bytes(answer())).through(stages()).to(*hangs, lossy, fine, drain_timeout=9)
    outcome = await pipeline.run()
    assert (fine.items, fine.completed, fine.closed) == (alone(), True, True)
    assert sorted(outcome.sink_errors) == ["hang aclose", "hang drain", "lossy"]
    for error in outcome.sink_errors.values():
        assert "wasn't drained within 9 s" in str(error)
    assert "(1 queued)" in str(outcome.sink_errors["lossy"])
    assert taker.closed == 1, "a sink that couldn't be drained is closed"
    assert loop.time() == 9.0 + 1.0, "a grace for those that ended by the cancellation"
    assert before.since() == []


@virtual_time
async def test_an_abort_before_the_first_step_ends_like_any_other() -> None:
    sink = RecordingSink()
    async with ts.Pipeline(ts.from_bytes(answer())).through(stages()).to(sink) as run:
        run.abort("at once")
        outcome = await run
    assert (outcome.status, outcome.reason, sink.completed, sink.items) == ("aborted", "at once", True, [])


@virtual_time
async def test_a_source_that_swallows_its_cancellation_does_not_hang_the_end(caplog: pytest.LogCaptureFixture) -> None:
    release = asyncio.Event()

    async def stubborn() -> AsyncIterator[bytes]:
        yield answer()[0]
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                pass

    sink = RecordingSink()
    async with ts.Pipeline(ts.from_async_iterable(stubborn())).through(stages()).to(sink, drain_timeout=5) as run:
        await asyncio.sleep(1)
        run.abort("enough")
        closing = asyncio.create_task(run.aclose())
        await asyncio.sleep(60)
        assert closing.done()
    assert sink.completed
    assert sink.closed
    assert "left to itself" in caplog.text
    release.set()
    outcome = await run
    assert outcome.status == "aborted"


@virtual_time
async def test_aclose_is_idempotent_and_may_be_called_twice_at_once() -> None:
    before = Leftovers()
    sink = RecordingSink(slow=0.5)
    async with ts.Pipeline(ts.from_async_iterable(live(answer(), 1.0))).through(stages()).to(sink) as run:
        await asyncio.sleep(2.2)
        await asyncio.gather(run.aclose(), run.aclose())
        await run.aclose()
        outcome = await run
        assert outcome.status == "disposed"
    assert before.since() == []


@virtual_time
async def test_a_run_waits_for_operators_that_take_time() -> None:
    from datetime import timedelta

    from reactivex import operators as ops

    scheduler = ts.LoopScheduler()
    sink = RecordingSink()
    delay: Any = each(ops.delay(timedelta(seconds=5), scheduler=scheduler))
    outcome = await ts.Pipeline(from_items([1, 2, 3])).through(delay).to(sink).run()
    assert (sink.items, outcome.status) == ([1, 2, 3], "complete")
    assert asyncio.get_running_loop().time() == 5.0


@virtual_time
async def test_a_live_source_that_never_waits_yields_to_the_loop() -> None:
    most = 0
    last = 0
    given = 0

    async def tick() -> None:
        nonlocal most, last
        while True:
            most, last = max(most, given - last), given
            await asyncio.sleep(0)

    async def source() -> AsyncIterator[bytes]:
        nonlocal given
        for _ in range(1_000):
            given += 1_000
            yield b"x" * 1_000

    ticking = asyncio.create_task(tick())
    await ts.Pipeline(ts.from_async_iterable(source())).to(RecordingSink()).run()
    ticking.cancel()
    assert most <= 64 * 1024 + 1_000


@virtual_time
async def test_a_session_of_short_answers_yields_to_the_loop() -> None:
    most = 0
    last = 0
    given = 0
    frames = b"".join(answer())

    async def tick() -> None:
        nonlocal most, last
        while True:
            most, last = max(most, given - last), given
            await asyncio.sleep(0)

    def sources() -> Iterator[ts.Source[bytes]]:
        nonlocal given
        for _ in range(500):
            given += len(frames)
            yield ts.from_bytes(frames)

    ticking = asyncio.create_task(tick())
    outcome = await ts.Pipeline(ts.in_turn(sources(), lambda source: stages())).to(RecordingSink()).run()
    ticking.cancel()
    assert outcome.answers_complete == 500
    assert most <= 64 * 1024 + 2 * len(frames)


# -- FAULTS.md, group I --------------------------------------------------------------------------------


@virtual_time
async def test_fault_105_all_sinks_are_attached_before_a_synchronous_source_runs() -> None:
    one, two = RecordingSink("one"), RecordingSink("two")
    await ts.Pipeline(from_items([1, 2, 3], batch_size=1)).to(one, two).run()
    assert one.items == two.items == [1, 2, 3]


@virtual_time
async def test_fault_107_everything_is_delivered_on_the_loops_thread(tmp_path: Path) -> None:
    names: set[str] = set()

    class Watching(RecordingSink):
        def on_next(self, batch: Sequence[Any], /) -> None:
            names.add(threading.current_thread().name)
            super().on_next(batch)

        def on_completed(self) -> None:
            names.add(threading.current_thread().name)

    transcript = ts.TranscriptSink(tmp_path / "s.jsonl")
    await ts.Pipeline(ts.from_bytes(answer())).through(stages()).to(Watching("watching"), transcript).run()
    assert names == {threading.current_thread().name}


@virtual_time
async def test_fault_110_dispose_in_the_middle_of_an_await_tells_sinks_no_error() -> None:
    sink = RecordingSink()
    async with ts.Pipeline(ts.from_async_iterable(live(answer(), 10.0))).through(stages()).to(sink) as run:
        await asyncio.sleep(25)
        run.dispose()
        outcome = await run
    assert (sink.error, sink.completed, outcome.error, outcome.status) == (None, False, None, "disposed")


@virtual_time
async def test_fault_111_breaking_off_after_two_items_releases_the_connection() -> None:
    released: list[float] = []

    async def connection() -> AsyncIterator[bytes]:
        try:
            for frame in answer():
                await asyncio.sleep(1)
                yield frame
            await asyncio.get_running_loop().create_future()
        finally:
            released.append(asyncio.get_running_loop().time())

    taken = 0
    async with aclosing(
        ts.to_async_iterable(ts.Pipeline(ts.from_async_iterable(connection())).through(stages()))
    ) as items:
        async for _ in items:
            taken += 1
            if taken == 2:
                break
    assert released == [2.0]


@virtual_time
async def test_a_consumer_of_items_may_take_its_time() -> None:
    taken: list[Any] = []
    pipeline = ts.Pipeline(ts.from_bytes(answer(1, "a" * 50))).through(stages())
    async for item in ts.to_async_iterable(pipeline, maxsize=1):
        await asyncio.sleep(3_600)
        taken.append(item)
    assert taken == ts.run_stages(answer(1, "a" * 50), stages())


@virtual_time
async def test_fault_112_an_empty_stream_is_a_failure_with_a_type() -> None:
    sink = RecordingSink()
    outcome = await ts.Pipeline(ts.from_bytes(b"")).through(stages()).to(sink).run()
    (failed,) = sink.items
    assert isinstance(failed, ResponseFailed)
    assert (failed.outcome, outcome.status) == ("empty", "failed")
    assert failed.error["type"] == "empty_stream"


@virtual_time
async def test_fault_113_a_late_joiner_gets_a_snapshot_and_no_replay_of_deltas() -> None:
    count = 100_000
    early = UIState(keep=False)
    early.apply([start(), open_text()])
    for _ in range(count // 100):
        early.apply([text("x")] * 100)
    taker = Taker("late")
    joined = buffered(taker)
    late = UIState.restore(early.snapshot())
    for item in (text("y"), text("z")):
        early.apply([item])
        late.apply([item])
        joined.on_next(batch(item))
    await joined.aclose()
    assert late.snapshot().blocks == early.snapshot().blocks
    assert late.snapshot().blocks[0].text == "x" * count + "yz"
    assert len(taker.items) == 2


@virtual_time
async def test_an_async_sink_without_a_queue_is_refused_with_the_way_out() -> None:
    with pytest.raises(SinkError, match=r"buffered\(sink\)"):
        ts.Pipeline(ts.from_bytes(b"")).to(Taker())  # type: ignore[arg-type]
