"""reactivex's own timed operators on a LoopScheduler: the loop's time, and every emission on its thread (FAULTS 107)."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import reactivex as rx
from reactivex import operators as ops
from reactivex.subject import Subject

from turnstream.scheduler import LoopScheduler
from turnstream.testing import VirtualLoop, virtual_time

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now() -> float:
    return asyncio.get_running_loop().time()


class Seen:
    """What an observable does, with the loop's time and the thread of each call."""

    def __init__(self, source: rx.Observable[Any], scheduler: LoopScheduler | None = None) -> None:
        self.events: list[tuple[str, Any, float]] = []
        self.threads: set[str] = set()
        self.subscription = source.subscribe(
            lambda value: self.note("next", value),
            lambda error: self.note("error", str(error)),
            lambda: self.note("completed", None),
            scheduler=scheduler,
        )

    def note(self, kind: str, value: Any) -> None:
        self.threads.add(threading.current_thread().name)
        self.events.append((kind, value, now()))


@virtual_time
async def test_timer_and_interval() -> None:
    scheduler = LoopScheduler()
    once = Seen(rx.timer(90, scheduler=scheduler))
    uneven = Seen(rx.timer(1, 10, scheduler=scheduler))
    dated = Seen(rx.timer(scheduler.now + timedelta(seconds=4), scheduler=scheduler))
    even = Seen(rx.interval(30, scheduler=scheduler))
    await asyncio.sleep(95)
    for seen in (uneven, even):
        seen.subscription.dispose()
    await asyncio.sleep(1000)
    assert once.events == [("next", 0, 90.0), ("completed", None, 90.0)]
    assert dated.events == [("next", 0, 4.0), ("completed", None, 4.0)]
    assert uneven.events == [("next", n, 1.0 + 10 * n) for n in range(10)]
    assert even.events == [("next", 0, 30.0), ("next", 1, 60.0), ("next", 2, 90.0)]
    assert once.threads | uneven.threads | even.threads | dated.threads == {threading.current_thread().name}


@virtual_time
async def test_debounce() -> None:
    source: Subject[str] = Subject()
    seen = Seen(source.pipe(ops.debounce(0.5)), LoopScheduler())
    for wait, value in [(0.0, "a"), (0.25, "b"), (0.25, "c"), (10.0, "d")]:
        await asyncio.sleep(wait)
        source.on_next(value)
    await asyncio.sleep(0.25)
    source.on_completed()
    assert seen.events == [("next", "c", 1.0), ("next", "d", 10.75), ("completed", None, 10.75)]
    assert seen.threads == {threading.current_thread().name}


@virtual_time
async def test_delay() -> None:
    source: Subject[str] = Subject()
    seen = Seen(source.pipe(ops.delay(100)), LoopScheduler())
    source.on_next("a")
    await asyncio.sleep(1)
    source.on_next("b")
    await asyncio.sleep(200)
    assert seen.events == [("next", "a", 100.0), ("next", "b", 101.0)]
    assert seen.threads == {threading.current_thread().name}
    seen.subscription.dispose()


@virtual_time
async def test_timeout() -> None:
    source: Subject[str] = Subject()
    seen = Seen(source.pipe(ops.timeout(90)), LoopScheduler())
    await asyncio.sleep(60)
    source.on_next("a")
    await asyncio.sleep(89)
    source.on_next("b")
    await asyncio.sleep(500)
    assert seen.events == [("next", "a", 60.0), ("next", "b", 149.0), ("error", "Timeout", 239.0)]
    assert seen.threads == {threading.current_thread().name}


@virtual_time
async def test_timestamps_and_buffers_are_on_the_same_clock() -> None:
    scheduler = LoopScheduler()
    stamped = Seen(rx.timer(3, scheduler=scheduler).pipe(ops.timestamp(scheduler), ops.map(lambda t: t.timestamp)))
    source: Subject[str] = Subject()
    buffers = Seen(source.pipe(ops.buffer_with_time(5, scheduler=scheduler)))
    source.on_next("a")
    await asyncio.sleep(4)
    source.on_next("b")
    await asyncio.sleep(2)
    source.on_next("c")
    source.on_completed()
    assert stamped.events[0] == ("next", EPOCH + timedelta(seconds=3), 3.0)
    assert buffers.events == [("next", ["a", "b"], 5.0), ("next", ["c"], 6.0), ("completed", None, 6.0)]


@virtual_time
async def test_a_disposed_subscription_leaves_no_timer() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    scheduler = LoopScheduler()
    source: Subject[str] = Subject()
    pipe = source.pipe(ops.debounce(1, scheduler), ops.delay(2, scheduler), ops.timeout(30, scheduler=scheduler))
    seen = Seen(pipe)
    ticking = Seen(rx.interval(7, scheduler=scheduler))
    source.on_next("a")
    await asyncio.sleep(2)
    assert loop.pending_timers()
    seen.subscription.dispose()
    ticking.subscription.dispose()
    assert loop.pending_timers() == []
    assert seen.events == []
