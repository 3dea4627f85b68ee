"""VirtualLoop: its clock stands still while a thread or a subprocess works in real time."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import threading

import pytest

from turnstream.testing import VirtualLoop, run_virtual, virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


@virtual_time
async def test_the_clock_stands_still_while_an_executor_job_is_out() -> None:
    loop = asyncio.get_running_loop()
    go = threading.Event()
    fired: list[str] = []
    loop.call_later(1, fired.append, "timer")

    def job() -> str:
        # Let the loop idle several times, each time from here, before the job ends.
        for _ in range(20):
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()
        go.wait()
        return threading.current_thread().name

    waiting = asyncio.ensure_future(asyncio.to_thread(job))
    for _ in range(200):
        await asyncio.sleep(0)
    loop.call_soon(go.set)
    name = await waiting
    assert name != threading.current_thread().name
    assert (fired, now()) == ([], 0.0)
    await asyncio.sleep(2)
    assert (fired, now()) == (["timer"], 2.0)


@virtual_time
async def test_jobs_of_an_executor_of_ones_own_count_and_so_do_abandoned_ones() -> None:
    loop = asyncio.get_running_loop()
    go, begun = threading.Event(), threading.Event()
    ended: list[float] = []

    def job() -> None:
        begun.set()
        go.wait()
        ended.append(loop.time())

    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        running = loop.run_in_executor(executor, job)
        queued = loop.run_in_executor(executor, ended.append, -1.0)
        await asyncio.to_thread(begun.wait)
        running.cancel()
        queued.cancel()
        # Nothing but the abandoned job stands between the clock and this timer.
        loop.call_soon(go.set)
        await asyncio.sleep(5)
    assert ended == [0.0]
    assert now() == 5.0


@virtual_time
async def test_a_job_that_raises_gives_its_exception_and_the_clock_back() -> None:
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(lambda: 1 // 0)
    await asyncio.sleep(1)
    assert now() == 1.0


def test_many_short_jobs_never_let_a_timeout_fire() -> None:
    async def main() -> int:
        done = 0
        async with asyncio.timeout(0.001):
            for _ in range(200):
                done += await asyncio.to_thread(int, "1")
        return done

    assert run_virtual(main()) == 200


@virtual_time
async def test_hold_waits_for_a_thread_that_the_loop_did_not_start() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    done = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(done.set))
    with loop.hold("a thread"):
        async with asyncio.timeout(1):
            thread.start()
            await done.wait()
    thread.join()
    assert now() == 0.0


def test_a_job_may_outlive_its_loop(caplog: pytest.LogCaptureFixture) -> None:
    go = threading.Event()
    loop = VirtualLoop()
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        loop.run_in_executor(executor, go.wait)
        loop.close()
        go.set()
    assert caplog.records == []


@virtual_time
async def test_no_job_is_taken_after_the_default_executor_was_shut_down() -> None:
    loop = asyncio.get_running_loop()
    await asyncio.to_thread(int, "1")
    await loop.shutdown_default_executor()
    with pytest.raises(RuntimeError, match="shutdown"):
        await asyncio.to_thread(int, "1")


@virtual_time
async def test_a_default_executor_of_ones_own_counts() -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(1, "mine"))
    async with asyncio.timeout(0.001):
        assert (await asyncio.to_thread(lambda: threading.current_thread().name)).startswith("mine")


@virtual_time
async def test_hold_waits_for_a_subprocess() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    with loop.hold("a subprocess"):
        async with asyncio.timeout(0.001):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", "-c", "print('hello')", stdout=asyncio.subprocess.PIPE
            )
            out, _ = await process.communicate()
    assert (out, process.returncode, now()) == (b"hello\n", 0, 0.0)
