"""Cancel a scenario at every step it takes, and look at what is left each time."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final

from turnstream.testing.leftovers import Leftovers
from turnstream.testing.virtual_loop import VirtualLoop

__all__ = ["cancel_everywhere"]

# Real seconds for a thread that ends by itself.
_THREAD_PATIENCE: Final = 5.0


def cancel_everywhere(
    make: Callable[[], Coroutine[Any, Any, Any]],
    *,
    again: int | None = None,
    check: Callable[[int], None] | None = None,
    most: int = 10_000,
) -> int:
    """Run a scenario whole, then again and again, its owner cancelled at step 1, 2, 3 … until it has no more steps.

    A step is one run of any task of the scenario from one wait to the next, so every state that a wait can
    be in is met, of its own task or of one that it started. Each time, on a fresh :class:`VirtualLoop` in debug
    mode: the scenario must end as cancelled, and leave no task, thread, timer or descriptor; nothing may
    reach the loop's exception handler (a task destroyed while pending, an exception that nobody asked for).

    Args:
        make: makes a fresh scenario (and fresh files).
        again: cancel a second time, that many steps after the first.
        check: looks at what else may be left (a half-written line …), after each run; gets the number of the
            step, 0 for the whole run; raises what it finds.
        most: steps at which the scenario counts as endless.

    Returns:
        The number of steps.

    Raises:
        AssertionError: something is left, or the cancellation was swallowed; it says at which step.
        BaseException: what the scenario raised, when it wasn't cancelled.
    """
    complaints: list[str] = []
    for step in range(most):
        came_to_it = _Scenario(make, step, again, complaints).run()
        if check is not None:
            check(step)
        if complaints:
            break
        if step and not came_to_it:
            gc.collect()  # lets tasks and coroutines that were forgotten complain
            if complaints:
                break
            return step - 1
    else:
        raise AssertionError(f"the scenario takes more than {most} steps")
    raise AssertionError("; ".join(complaints))


class _Scenario:
    def __init__(
        self, make: Callable[[], Coroutine[Any, Any, Any]], at: int, again: int | None, complaints: list[str]
    ) -> None:
        self._make = make
        self._at = {at} if again is None or not at else {at, at + again}
        self._first = at
        self._complaints = complaints
        self._steps = 0
        self._owner: asyncio.Task[Any] | None = None

    def run(self) -> bool:
        """Run it; whether it came to the step at which it was to be cancelled."""
        with asyncio.Runner(debug=True, loop_factory=VirtualLoop) as runner:
            runner.get_loop().set_exception_handler(self._on_trouble)
            runner.run(self._main())
        return self._first <= self._steps

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        threads = set(threading.enumerate())
        before = Leftovers()
        loop.set_task_factory(self._make_task)
        self._owner = owner = loop.create_task(self._make(), name="scenario")
        await asyncio.wait([owner])
        loop.set_task_factory(None)
        for _ in range(3):  # a transport closes in a later turn of the loop
            await asyncio.sleep(0)
        for thread in set(threading.enumerate()) - threads:
            if not thread.name.startswith("asyncio_"):
                thread.join(_THREAD_PATIENCE)
        if left := before.since():
            self._complain(f"left {', '.join(left)}")
        cancelled = 0 < self._first <= self._steps
        if not owner.cancelled():
            owner.result()
            if cancelled:
                self._complain("the cancellation was swallowed")
        elif not cancelled:
            self._complain("it ended as cancelled, but nobody had cancelled it")

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coro: Any, *, context: Any = None, **options: Any
    ) -> asyncio.Task[Any]:
        return asyncio.Task(_Counted(coro, self._step), loop=loop, context=context, **options)

    def _step(self) -> None:
        self._steps += 1
        if self._steps in self._at and self._owner is not None:
            self._owner.cancel()

    def _on_trouble(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._complain(f"{context['message']}{f': {error!r}' if error is not None else ''}")

    def _complain(self, what: str) -> None:
        self._complaints.append(f"cancelled at step {self._first}: {what}" if self._first else f"not cancelled: {what}")


class _Counted(Coroutine[Any, Any, Any]):
    """A coroutine that says when it is run on."""

    def __init__(self, coro: Coroutine[Any, Any, Any], step: Callable[[], None]) -> None:
        self._coro = coro
        self._on_step = step
        self.__name__ = getattr(coro, "__name__", "?")
        self.__qualname__ = getattr(coro, "__qualname__", "?")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coro, name)  # cr_frame and the like

    def send(self, value: Any, /) -> Any:
        self._on_step()
        return self._coro.send(value)

    def throw(self, *error: Any) -> Any:
        self._on_step()
        return self._coro.throw(*error)

    def close(self) -> None:
        self._coro.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coro.__await__()
