"""``cancel_everywhere`` finds what a cancellation leaves behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from turnstream.testing import cancel_everywhere


def test_it_cancels_at_each_step_of_every_task_and_counts_them() -> None:
    cancelled: list[int] = []
    reached = 0

    async def inner() -> None:
        nonlocal reached
        for _ in range(3):
            await asyncio.sleep(1)
            reached += 1

    async def scenario() -> None:
        nonlocal reached
        reached = 0
        task = asyncio.create_task(inner())
        try:
            await task
        except asyncio.CancelledError:
            cancelled.append(reached)
            raise

    # Its own two steps, and four of the task it starts.
    assert cancel_everywhere(scenario) == 6
    # Cancelled at step 1 it goes on to its first wait; at the last one there is no wait any more.
    assert cancelled == [0, 0, 1, 2, 3]


def test_again_cancels_a_second_time() -> None:
    times: list[int] = []

    async def scenario() -> None:
        count = 0
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            count += 1
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                count += 1
            raise
        finally:
            times.append(count)

    cancel_everywhere(scenario, again=1)
    assert max(times) == 2


async def _forget_task() -> None:
    asyncio.create_task(asyncio.sleep(10), name="forgotten")  # noqa: RUF006
    await asyncio.sleep(1)


async def _forget_timer() -> None:
    timer = asyncio.get_running_loop().call_later(10, print)
    await asyncio.sleep(1)
    timer.cancel()


async def _forget_file() -> None:
    kept.append(open("/dev/null"))  # noqa: SIM115
    await asyncio.sleep(1)
    kept.pop().close()


async def _swallow() -> None:
    try:
        await asyncio.sleep(1)
    except asyncio.CancelledError:
        pass


async def _forget_error() -> None:
    async def fail() -> None:
        raise ValueError("never asked for")

    task = asyncio.create_task(fail())
    try:
        await asyncio.sleep(1)
    except asyncio.CancelledError:
        del task
        raise
    await asyncio.wait([task])
    task.exception()


kept: list[Any] = []


@pytest.mark.parametrize(
    ("scenario", "complaint"),
    [
        (_forget_task, "left task 'forgotten'"),
        (_forget_timer, "left timer"),
        (_forget_file, "left 1 open file descriptor"),
        (_swallow, "swallowed"),
        (_forget_error, "never retrieved"),
    ],
)
def test_it_says_what_is_left_and_where(scenario: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        cancel_everywhere(scenario)
    while kept:
        kept.pop().close()


def test_it_finds_a_thread_that_goes_on() -> None:
    release = threading.Event()

    async def scenario() -> None:
        thread = threading.Thread(target=release.wait, name="forgotten", daemon=True)
        thread.start()
        await asyncio.sleep(1)
        release.set()
        thread.join()
        release.clear()

    from turnstream.testing import cancelling

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cancelling, "_THREAD_PATIENCE", 0.05)
        with pytest.raises(AssertionError, match="cancelled at step 1: left thread 'forgotten'"):
            cancel_everywhere(scenario)
    release.set()


def test_what_the_scenario_raises_comes_out() -> None:
    async def scenario() -> None:
        await asyncio.sleep(1)
        raise LookupError("wrong")

    with pytest.raises(LookupError, match="wrong"):
        cancel_everywhere(scenario)


def test_one_that_never_ends_is_given_up() -> None:
    async def scenario() -> None:
        for _ in range(100):
            await asyncio.sleep(0)

    with pytest.raises(AssertionError, match="more than 50 steps"):
        cancel_everywhere(scenario, most=50)


def test_the_callers_own_check_is_run_after_each() -> None:
    steps: list[int] = []

    async def scenario() -> None:
        await asyncio.sleep(1)

    assert cancel_everywhere(scenario, check=steps.append) == 2
    assert steps == [0, 1, 2, 3]
