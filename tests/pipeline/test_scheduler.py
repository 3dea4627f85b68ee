"""LoopScheduler: Rx time is the loop's time, on the loop's thread (DESIGN.md §4; FAULTS 105-107)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from reactivex.disposable import Disposable
from reactivex.scheduler.periodicscheduler import PeriodicScheduler

from turnstream.scheduler import LoopScheduler
from turnstream.testing import VirtualLoop, virtual_time

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now() -> float:
    return asyncio.get_running_loop().time()


# -- the clock


@virtual_time(start=100.0)
async def test_now_is_the_loops_time_not_the_wall_clock() -> None:
    scheduler = LoopScheduler()
    assert scheduler.now == EPOCH + timedelta(seconds=100)
    await asyncio.sleep(2.5)
    assert scheduler.now == EPOCH + timedelta(seconds=102.5)
    assert scheduler.to_seconds(scheduler.now) == now() == 102.5


@virtual_time
async def test_schedule_runs_soon_and_in_order() -> None:
    scheduler = LoopScheduler()
    seen: list[Any] = []
    scheduler.schedule(lambda s, state: seen.append((s is scheduler, state)), "first")
    scheduler.schedule(lambda s, state: seen.append(state), "second")
    assert seen == []
    await asyncio.sleep(0)
    assert seen == [(True, "first"), "second"]


@pytest.mark.parametrize("duetime", [2.5, timedelta(seconds=2.5)])
@virtual_time
async def test_schedule_relative(duetime: Any) -> None:
    seen: list[float] = []
    LoopScheduler().schedule_relative(duetime, lambda *_: seen.append(now()))
    await asyncio.sleep(10)
    assert seen == [2.5]


@pytest.mark.parametrize("duetime", [0, -1.0, timedelta(0), timedelta(seconds=-3)])
@virtual_time
async def test_a_due_time_that_has_come_means_soon(duetime: Any) -> None:
    await asyncio.sleep(7)
    seen: list[float] = []
    LoopScheduler().schedule_relative(duetime, lambda *_: seen.append(now()))
    assert seen == []
    await asyncio.sleep(0)
    assert seen == [7.0]


@pytest.mark.parametrize("duetime", [42.0, EPOCH + timedelta(seconds=42), 3.0])
@virtual_time
async def test_schedule_absolute_is_loop_time(duetime: Any) -> None:
    await asyncio.sleep(5)
    seen: list[float] = []
    LoopScheduler().schedule_absolute(duetime, lambda *_: seen.append(now()))
    await asyncio.sleep(100)
    assert seen == [5.0 if duetime == 3.0 else 42.0]


@virtual_time
async def test_now_plus_a_timedelta_is_the_same_moment_as_a_relative_time() -> None:
    scheduler = LoopScheduler()
    await asyncio.sleep(1 / 3)
    seen: list[tuple[str, datetime]] = []
    scheduler.schedule_absolute(scheduler.now + timedelta(seconds=9), lambda s, _: seen.append(("absolute", s.now)))
    scheduler.schedule_relative(9, lambda s, _: seen.append(("relative", s.now)))
    await asyncio.sleep(10)
    assert {moment for _, moment in seen} == {EPOCH + timedelta(microseconds=9_333_333)}
    assert len(seen) == 2


@virtual_time
async def test_a_wall_clock_time_is_refused() -> None:
    with pytest.raises(ValueError, match="loop time here, not the wall clock"):
        LoopScheduler().schedule_absolute(datetime.now(UTC), lambda *_: None)


@virtual_time
async def test_schedule_periodic() -> None:
    scheduler = LoopScheduler()
    assert isinstance(scheduler, PeriodicScheduler)
    seen: list[tuple[Any, float]] = []

    def tick(state: int | None) -> int:
        seen.append((state, now()))
        return (state or 0) + 1

    periodic = scheduler.schedule_periodic(10, tick, 0)
    await asyncio.sleep(35)
    periodic.dispose()
    await asyncio.sleep(100)
    assert seen == [(0, 10.0), (1, 20.0), (2, 30.0)]


# -- disposing


@virtual_time
async def test_dispose_cancels_the_handle() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    scheduler = LoopScheduler()
    seen: list[str] = []
    timer = scheduler.schedule_relative(5, lambda *_: seen.append("timer"))
    soon = scheduler.schedule(lambda *_: seen.append("soon"))
    assert [handle.when() for handle in loop.pending_timers()] == [5.0]
    for work in (timer, soon, timer):
        work.dispose()
    assert loop.pending_timers() == []
    await asyncio.sleep(10)
    assert seen == []


@virtual_time
async def test_what_an_action_returns_is_disposed_with_its_work() -> None:
    scheduler = LoopScheduler()
    disposed: list[str] = []
    later = scheduler.schedule(lambda *_: Disposable(lambda: disposed.append("later")))
    await asyncio.sleep(0)
    assert disposed == []
    later.dispose()
    later.dispose()
    assert disposed == ["later"]


@virtual_time
async def test_an_action_that_disposes_its_own_work() -> None:
    scheduler = LoopScheduler()
    disposed: list[str] = []

    def action(*_: Any) -> Disposable:
        work.dispose()
        return Disposable(lambda: disposed.append("inner"))

    work = scheduler.schedule(action)
    await asyncio.sleep(0)
    assert disposed == ["inner"]


@virtual_time
async def test_an_action_that_raises_reaches_the_loops_exception_handler() -> None:
    caught: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: caught.append(context["exception"]))
    error = LookupError("mine")

    def action(*_: Any) -> None:
        raise error

    LoopScheduler().schedule(action)
    await asyncio.sleep(0)
    assert caught == [error]


# -- the thread


def test_a_running_loop_is_needed_if_none_is_given() -> None:
    with pytest.raises(RuntimeError, match="needs a running event loop"):
        LoopScheduler()


def test_what_is_no_loop_is_refused() -> None:
    with pytest.raises(TypeError, match="not str"):
        LoopScheduler("loop")  # type: ignore[arg-type]


def test_a_loop_that_is_given_may_run_later() -> None:
    loop = VirtualLoop()
    try:
        scheduler = LoopScheduler(loop)
        assert scheduler.loop is loop
        seen: list[float] = []
        scheduler.schedule_relative(3, lambda *_: seen.append(loop.time()))
        loop.run_until_complete(asyncio.sleep(5))
        assert seen == [3.0]
    finally:
        loop.close()


@virtual_time
async def test_other_threads_are_refused() -> None:
    scheduler = LoopScheduler()
    work = scheduler.schedule_relative(1, lambda *_: None)
    calls: list[Callable[[], Any]] = [
        lambda: scheduler.schedule(lambda *_: None),
        lambda: scheduler.schedule_relative(1, lambda *_: None),
        lambda: scheduler.schedule_absolute(50.0, lambda *_: None),
        lambda: scheduler.schedule_periodic(1, lambda _: None),
        work.dispose,
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match=r"thread '.*', which doesn't run its loop"):
            await asyncio.to_thread(call)
    work.dispose()


def test_a_thread_that_runs_another_loop_is_refused_too() -> None:
    async def main() -> LoopScheduler:
        return LoopScheduler()

    with asyncio.Runner(loop_factory=VirtualLoop) as first, asyncio.Runner(loop_factory=VirtualLoop) as second:
        scheduler = first.run(main())

        async def elsewhere() -> None:
            # The first loop doesn't run, so this is still its thread …
            scheduler.schedule(lambda *_: None).dispose()
            # … but one that runs somewhere else is not ours to touch.
            done = threading.Event()
            ready = asyncio.Event()
            loop = asyncio.get_running_loop()

            async def stay() -> None:
                loop.call_soon_threadsafe(ready.set)
                await asyncio.to_thread(done.wait)

            thread = threading.Thread(target=lambda: first.get_loop().run_until_complete(stay()))
            assert isinstance(loop, VirtualLoop)
            with loop.hold("the other loop"):
                thread.start()
                await ready.wait()
            try:
                with pytest.raises(RuntimeError, match="doesn't run its loop"):
                    scheduler.schedule(lambda *_: None)
            finally:
                done.set()
                thread.join()

        second.run(elsewhere())


def test_under_a_real_loop_nothing_comes_early() -> None:
    """Rounding `now` to microseconds may not fire an absolute time before its moment."""

    async def main() -> None:
        scheduler = LoopScheduler()
        loop = asyncio.get_running_loop()
        for _ in range(20):
            done: asyncio.Future[datetime] = loop.create_future()
            due = scheduler.now + timedelta(milliseconds=1)
            scheduler.schedule_absolute(due, lambda s, _, done=done: done.set_result(s.now))
            assert await done >= due

    asyncio.run(main())
