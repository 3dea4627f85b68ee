"""VirtualLoop: asyncio, threads and real sockets on one clock; a deadlock is reported, not waited for."""

from __future__ import annotations

import asyncio
import threading

import pytest

from turnstream.testing import DeadlockError, VirtualLoop, run_virtual, virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


# -- the clock


def test_ten_retries_over_531_seconds() -> None:
    """Waits of 0.5 s × 2ⁿ up to 32 s (WIRE.md §7), 159.5 s, between ten tries of 37.15 s each."""
    waits = [0.5, 1, 2, 4, 8, 16, 32, 32, 32, 32]
    tries = [37.15] * 10
    assert sum(waits) + sum(tries) == 531.0

    async def main() -> list[float]:
        times = []
        for wait, spent in zip(waits, tries, strict=True):
            await asyncio.sleep(spent)
            await asyncio.sleep(wait)
            times.append(now())
        return times

    times = run_virtual(main())
    assert times[-1] == pytest.approx(531.0, abs=1e-6)
    assert times == sorted(times)


@pytest.mark.parametrize("start", [0.0, 1000.0, 1_750_000_000.0])
def test_time_starts_where_it_is_told_and_hits_each_timer_exactly(start: float) -> None:
    async def main() -> None:
        assert now() == start
        loop = asyncio.get_running_loop()
        at = loop.create_future()
        when = start + 0.1 + 0.2
        loop.call_at(when, lambda: at.set_result(loop.time()))
        assert await at == when

    run_virtual(main(), start=start)


@virtual_time
async def test_timers_fire_in_order_of_time_and_a_cancelled_one_not_at_all() -> None:
    loop = asyncio.get_running_loop()
    seen: list[tuple[str, float]] = []
    loop.call_later(3, lambda: seen.append(("c", loop.time())))
    loop.call_later(1, lambda: seen.append(("a", loop.time())))
    loop.call_later(2, lambda: seen.append(("never", loop.time()))).cancel()
    loop.call_later(2.5, lambda: seen.append(("b", loop.time())))
    await asyncio.sleep(4)
    assert seen == [("a", 1.0), ("b", 2.5), ("c", 3.0)]


@virtual_time
async def test_a_sleep_of_ten_years_is_more_than_one_wait_of_asyncio() -> None:
    await asyncio.sleep(10 * 365 * 86_400)
    assert now() == 315_360_000.0


@virtual_time
async def test_asyncio_timeout() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(90):
            await asyncio.Event().wait()
    assert now() == 90.0
    async with asyncio.timeout(90):
        await asyncio.sleep(89)
    assert now() == 179.0


@virtual_time
async def test_work_that_is_ready_comes_before_the_clock_moves() -> None:
    async def spin() -> float:
        for _ in range(1000):
            await asyncio.sleep(0)
        return now()

    spun, _ = await asyncio.gather(spin(), asyncio.sleep(1))
    assert spun == 0.0


@virtual_time
async def test_pending_timers_lists_what_is_set() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    assert loop.pending_timers() == []
    second, first = loop.call_later(2, print), loop.call_later(1, print)
    gone = loop.call_later(1.5, print)
    gone.cancel()
    assert loop.pending_timers() == [first, second]
    first.cancel()
    second.cancel()
    assert loop.pending_timers() == []


# -- deadlocks


def test_a_deadlock_is_reported_with_the_tasks_that_wait() -> None:
    async def waits_for_ever() -> None:
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        await asyncio.sleep(12.5)
        async with asyncio.TaskGroup() as group:
            group.create_task(waits_for_ever(), name="reader")

    with pytest.raises(DeadlockError) as caught:
        run_virtual(main())
    error = caught.value
    assert error.now == 12.5
    assert len(error.waiting) == 2
    reader = next(line for line in error.waiting if line.startswith("reader: "))
    assert "waits_for_ever at test_virtual_loop.py:" in reader
    assert "deadlock at 12.5 s" in str(error)
    assert reader in str(error)


def test_tasks_clean_up_after_a_deadlock() -> None:
    cleaned: list[str] = []

    async def main() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            cleaned.append("yes")

    with pytest.raises(DeadlockError):
        run_virtual(main())
    assert cleaned == ["yes"]


def test_a_job_that_never_ends_is_reported_by_name() -> None:
    go = threading.Event()

    def stuck_job() -> None:
        go.wait()

    async def main() -> None:
        try:
            await asyncio.to_thread(stuck_job)
        finally:
            go.set()

    with pytest.raises(DeadlockError, match="stuck_job"):
        run_virtual(main(), patience=0.05)


def test_a_timer_without_end_is_reported() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        def tick() -> None:
            loop.call_later(1, tick)

        tick()
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError, match="100 times") as caught:
        run_virtual(main(), max_moves=100)
    assert caught.value.now == 100.0


def test_a_thread_can_still_wake_a_loop_that_looks_dead() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        idle = threading.Event()
        thread = threading.Thread(target=lambda: (idle.wait(), loop.call_soon_threadsafe(woken.set)))
        thread.start()
        loop.call_soon(idle.set)
        await woken.wait()
        thread.join()
        return loop.time()

    assert run_virtual(main(), deadlock_grace=30.0) == 0.0


# -- as a helper


def test_run_virtual_returns_raises_and_closes() -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def main(fail: bool) -> str:
        loops.append(asyncio.get_running_loop())
        if fail:
            raise LookupError("mine")
        return "result"

    assert run_virtual(main(False), debug=False) == "result"
    with pytest.raises(LookupError, match="mine"):
        run_virtual(main(True))
    assert [loop.is_closed() for loop in loops] == [True, True]
    assert [loop.get_debug() for loop in loops] == [False, True]


def test_run_virtual_refuses_to_run_inside_a_loop() -> None:
    async def inner() -> None: ...

    async def main() -> None:
        run_virtual(inner())

    with pytest.raises(RuntimeError, match="running event loop"):
        run_virtual(main())


@pytest.mark.parametrize("number", [1, 2])
@virtual_time(start=5.0)
async def test_virtual_time_works_with_fixtures_and_parameters(number: int, tmp_path: object) -> None:
    await asyncio.sleep(number)
    assert now() == 5.0 + number
    assert tmp_path


def test_the_loop_can_be_used_twice_and_its_clock_goes_on() -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(asyncio.sleep(3))
        runner.run(asyncio.sleep(4))
        assert runner.get_loop().time() == 7.0
