"""Ways to run a coroutine, or a test, on a :class:`VirtualLoop`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, overload

from turnstream.testing.virtual_loop import VirtualLoop

__all__ = ["run_virtual", "virtual_time"]

P = ParamSpec("P")
T = TypeVar("T")


def run_virtual(coro: Coroutine[Any, Any, T], *, debug: bool = True, start: float = 0.0, **options: Any) -> T:
    """Run ``coro`` on a new :class:`VirtualLoop` and close the loop.

    Args:
        coro: what to run.
        debug: asyncio's debug mode.
        start: the loop's first time, seconds.
        options: further arguments of :class:`VirtualLoop`.

    Returns:
        What ``coro`` returns.

    Raises:
        DeadlockError: it can never return; see there.
        RuntimeError: a loop is running in this thread; ``coro`` is closed.
    """
    if asyncio._get_running_loop() is not None:
        coro.close()
        raise RuntimeError("run_virtual() cannot be called from a running event loop; await the coroutine instead")
    with asyncio.Runner(debug=debug, loop_factory=lambda: VirtualLoop(start=start, **options)) as runner:
        return runner.run(coro)


@overload
def virtual_time(test: Callable[P, Coroutine[Any, Any, T]], /) -> Callable[P, T]: ...
@overload
def virtual_time(
    *, debug: bool = True, start: float = 0.0, **options: Any
) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, T]]: ...
def virtual_time(test: Any = None, /, **options: Any) -> Any:
    """Make an ``async def`` test a plain one that runs on a :class:`VirtualLoop`; no plugin is needed.

    Fixtures and parameters work as usual::

        @virtual_time
        async def test_retries(tmp_path): ...
    """

    def decorate(function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            return run_virtual(function(*args, **kwargs), **options)

        return run

    return decorate if test is None else decorate(test)
