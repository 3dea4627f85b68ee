"""``buffered``: the life of its task, and what a faulty sink does to a run (nothing to anybody else)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from flowing import Taker, answer, batch, live, stages, text

import turnstream as ts
from turnstream.flow import buffered
from turnstream.messages import SinkError, StreamNote
from turnstream.testing import RecordingSink, VirtualLoop, virtual_time
from turnstream.testing.leftovers import Leftovers


def notes(items: Sequence[Any]) -> list[str]:
    return [i.kind for i in items if isinstance(i, StreamNote)]


def without_notes(items: Sequence[Any]) -> list[Any]:
    return [i for i in items if not isinstance(i, StreamNote)]


def alone() -> list[Any]:
    """What a sink gets that is the only one: the stages' output, without any run."""
    return ts.run_stages(answer(), stages())


# -- the task ------------------------------------------------------------------------------------------


@virtual_time
async def test_it_has_one_named_task_from_the_first_batch_to_aclose() -> None:
    before = Leftovers()
    sink = buffered(Taker("remote", delay=1.0))
    assert before.since() == []
    for _ in range(3):
        sink.on_next(batch(text("x")))
    assert [t.get_name() for t in asyncio.all_tasks() if t is not asyncio.current_task()] == ["turnstream-sink remote"]
    await sink.aclose()
    assert before.since() == []


@virtual_time
async def test_aclose_drains_is_idempotent_and_takes_nothing_afterwards() -> None:
    taker = Taker(delay=1.0)
    sink = buffered(taker)
    sink.on_next(batch(text("x")))
    await asyncio.gather(sink.aclose(), sink.aclose())
    await sink.aclose()
    sink.on_next(batch(text("y")))
    sink.on_completed()
    await asyncio.sleep(60)
    assert (len(taker.items), taker.closed, taker.ends) == (1, 1, [])


@virtual_time
async def test_a_cancelled_aclose_ends_the_task_and_closes_the_sink_all_the_same() -> None:
    before = Leftovers()
    taker = Taker(hang_at=1)
    sink = buffered(taker, stall_timeout=None)
    sink.on_next(batch(text("x")))
    closing = asyncio.create_task(sink.aclose())
    await asyncio.sleep(5)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert (taker.cancelled, taker.closed) == (1, 1)
    assert before.since() == []


@virtual_time
async def test_a_take_that_swallows_its_cancellation_does_not_hang_the_close(caplog: pytest.LogCaptureFixture) -> None:
    release = asyncio.Event()

    class Stubborn(Taker):
        async def take(self, batch: Any, /) -> None:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    self.cancelled += 1

    taker = Stubborn("stubborn")
    sink = buffered(taker, stall_timeout=5)
    sink.on_next(batch(text("x")))
    with pytest.raises(SinkError, match="no progress for 5 s"):
        await sink.aclose()
    assert taker.closed == 1
    assert "left to itself" in caplog.text
    release.set()
    await asyncio.sleep(0.1)


@virtual_time
async def test_the_end_is_told_behind_all_that_waits_and_once() -> None:
    order: list[str] = []

    class Ordered(Taker):
        async def take(self, batch: Any, /) -> None:
            await asyncio.sleep(1)
            order.append("take")

        async def ended(self, error: Exception | None) -> None:
            await asyncio.sleep(1)
            order.append(f"ended {error}")

    sink = buffered(Ordered())
    sink.on_next(batch(text("x")))
    sink.on_next(batch(text("y")))
    sink.on_error(ValueError("why"))
    sink.on_completed()
    await sink.drain()
    assert order == ["take", "take", "ended why"]
    await sink.aclose()


@virtual_time
async def test_it_needs_a_loop_only_when_a_batch_comes() -> None:
    made: list[Any] = []
    thread = threading.Thread(target=lambda: made.append(buffered(Taker())))
    thread.start()
    thread.join()
    made[0].on_next(batch(text("x")))
    await made[0].aclose()
    assert len(made[0]._sink.items) == 1


async def called(sink: Any, name: str) -> None:
    if name == "on_next":
        sink.on_next(batch(text("d")))
    else:
        await getattr(sink, name)()


# -- a take that raises --------------------------------------------------------------------------------


@virtual_time
async def test_a_take_that_raises_comes_out_of_the_next_call() -> None:
    for call in ("on_next", "room", "drain", "aclose"):
        taker = Taker(raise_at=2)
        sink = buffered(taker)
        for value in "abc":
            sink.on_next(batch(text(value)))
        await asyncio.sleep(1)
        with pytest.raises(ValueError, match="boom"):
            await called(sink, call)
        said = sink.statistics()
        assert (said["lost_batches"], said["lost_items"], said["queued"]) == (2, 2, 0)
        await sink.aclose()  # who was told isn't told again
        assert taker.closed == 1


@virtual_time
async def test_fault_83_a_raising_take_is_detached_and_changes_nothing_for_the_others() -> None:
    recorder, taker = RecordingSink(), Taker("bad", raise_at=2)
    outcome = (
        await ts.Pipeline(ts.from_async_iterable(live(answer(), 1.0)))
        .through(stages())
        .to(buffered(taker), recorder)
        .run()
    )
    assert without_notes(recorder.items) == without_notes(alone())
    assert notes(recorder.items) == ["sink_detached"]
    assert outcome.status == "failed"
    assert str(outcome.sink_errors["bad"]) == "sink 'bad' raised ValueError: boom"
    assert taker.closed == 1
    assert recorder.completed


@virtual_time
async def test_a_take_that_raises_at_the_very_end_is_in_the_outcome() -> None:
    taker = Taker("bad", raise_at=1)
    outcome = await ts.Pipeline(ts.from_bytes(answer())).through(stages()).to(buffered(taker)).run()
    assert outcome.status == "failed"
    assert isinstance(outcome.sink_errors["bad"], ValueError)


@virtual_time
async def test_a_take_that_lets_the_cancellation_of_its_own_task_out_is_a_fault_of_the_sink() -> None:
    class Leaking(Taker):
        async def take(self, batch: Any, /) -> None:
            inner = asyncio.create_task(asyncio.sleep(100))
            asyncio.get_running_loop().call_soon(inner.cancel)
            await inner

    recorder = RecordingSink()
    outcome = (
        await ts.Pipeline(ts.from_async_iterable(live(answer(), 1.0)))
        .through(stages())
        .to(buffered(Leaking("leaking")), recorder)
        .run()
    )
    assert without_notes(recorder.items) == without_notes(alone())
    assert "was cancelled" in str(outcome.sink_errors["leaking"])


@virtual_time
async def test_a_state_that_raises_is_a_fault_of_the_sink() -> None:
    class Resyncing(Taker):
        async def resync(self, snapshot: Any) -> None:
            raise AssertionError

    def state() -> Any:
        raise LookupError("no state")

    gate = asyncio.Event()
    sink = buffered(Resyncing(gate=gate), "conflate", limit=1, state=state)
    for value in range(3):
        sink.on_next(batch(text("x", value)))
    gate.set()
    with pytest.raises(LookupError, match="no state"):
        await sink.aclose()


# -- a take that hangs ---------------------------------------------------------------------------------


@virtual_time
async def test_a_hanging_block_sink_is_detached_after_stall_timeout_and_the_run_goes_on() -> None:
    loop = asyncio.get_running_loop()
    recorder, taker = RecordingSink(), Taker("stuck", hang_at=2)
    sink = buffered(taker, high_water=1, stall_timeout=30.0)
    outcome = await ts.Pipeline(ts.from_bytes(answer())).through(stages()).to(sink, recorder).run()
    assert without_notes(recorder.items) == without_notes(alone())
    assert loop.time() == 30.0
    assert "made no progress for 30 s" in str(outcome.sink_errors["stuck"])
    assert isinstance(outcome.sink_errors["stuck"], SinkError)
    assert outcome.status == "failed"
    assert (taker.cancelled, taker.closed) == (1, 1)


@virtual_time
async def test_a_hanging_block_sink_fails_the_run_where_that_is_asked_for() -> None:
    recorder, taker = RecordingSink(), Taker("stuck", hang_at=1)
    pipeline = ts.Pipeline(ts.from_bytes(answer())).through(stages())
    outcome = await pipeline.to(buffered(taker, high_water=1), recorder, on_sink_error="fail").run()
    assert outcome.status == "broken"
    assert isinstance(outcome.error, SinkError)
    assert isinstance(recorder.error, SinkError)


@virtual_time
async def test_a_slow_block_sink_that_moves_is_never_detached() -> None:
    taker = Taker(delay=29.0)
    sink = buffered(taker, high_water=1, stall_timeout=30.0)
    outcome = await ts.Pipeline(ts.from_bytes(answer())).to(sink).run()
    assert outcome.ok
    assert len(taker.batches) == len(answer())


@virtual_time
async def test_the_stall_clock_runs_only_while_something_waits() -> None:
    taker = Taker()
    sink = buffered(taker, high_water=1, stall_timeout=30.0)
    outcome = await ts.Pipeline(ts.from_async_iterable(live(answer(), 3600.0))).to(sink).run()
    assert outcome.ok
    assert b"".join(taker.items) == b"".join(answer())


@virtual_time
async def test_no_timer_is_left_where_nothing_waits() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    sink = buffered(Taker(), stall_timeout=30.0)
    for _ in range(100):
        sink.on_next(batch(text("x")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(loop.pending_timers()) <= 1, "one, re-armed lazily"
    await asyncio.sleep(31)
    assert loop.pending_timers() == []
    await sink.aclose()


@pytest.mark.parametrize("policy", ["conflate", "drop_oldest", "drop_newest"])
@virtual_time
async def test_a_hanging_lossy_sink_holds_nobody_and_is_given_up_when_it_is_drained(policy: Any) -> None:
    loop = asyncio.get_running_loop()
    recorder, taker = RecordingSink(), Taker("stuck", hang_at=1)
    sink = buffered(taker, policy, high_water=100, stall_timeout=7.0)
    async with ts.Pipeline(ts.from_async_iterable(live(answer(), 60.0))).through(stages()).to(sink, recorder) as run:
        outcome = await run
    assert recorder.items == alone(), "not even a note: the stall clock of a lossy sink runs only in drain()"
    assert loop.time() == 60.0 * len(answer()), "its time had long run out when it was drained"
    assert "made no progress for 7 s" in str(outcome.sink_errors["stuck"])
