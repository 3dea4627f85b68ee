"""An asyncio loop with its own clock: hours of waiting in milliseconds (DESIGN.md §7).

When nothing is ready, the loop moves its clock to the next timer instead of waiting for it. One clock
drives asyncio, Rx timers (:class:`turnstream.scheduler.LoopScheduler`), executor jobs and real sockets:

- **Executor jobs** take real time. While one is out, the clock stands still; a job whose future was
  cancelled counts until its thread is done with it.
- **Sockets** are real. Before the clock moves, the kernel gets ``io_grace`` seconds to deliver. That is
  enough for a server and a client in the same loop; a peer elsewhere needs :meth:`VirtualLoop.hold`.
- **A deadlock** (nothing ready, no timer, no job, no I/O) raises :class:`DeadlockError` out of the loop
  instead of hanging. So does what hangs in real time (a job, a hold) after ``patience`` seconds, and a
  timer that is set again and again while nobody ends, after ``max_moves`` moves of the clock.

Only ``loop.time()`` is virtual. ``time.time()``, ``time.monotonic()`` and ``time.sleep()`` are not
touched: code under test takes its time from the loop, or from a clock that it is given.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import heapq
import math
import selectors
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

__all__ = ["DeadlockError", "VirtualLoop"]

P = ParamSpec("P")
T = TypeVar("T")

# The loop's own wake-up socket is always registered.
_OWN_FDS: Final = 1


class DeadlockError(RuntimeError):
    """The loop can never go on.

    Raised out of the loop (``run_until_complete``, ``Runner.run``, :func:`run_virtual`), not into a task.

    Attributes:
        now: virtual seconds when it was found.
        waiting: one line for each task that isn't done: its name and its chain of awaits.
    """

    def __init__(self, why: str, now: float, waiting: tuple[str, ...]) -> None:
        tasks = "".join(f"\n  {line}" for line in waiting) or "\n  no task is pending"
        super().__init__(f"deadlock at {now:g} s: {why}; waiting:{tasks}")
        self.now = now
        self.waiting = waiting


class _Selector(selectors.BaseSelector):
    """The real selector, but a wait moves the loop's clock instead."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.idle: Callable[[float | None], list[tuple[selectors.SelectorKey, int]]] | None = None

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.get_key(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self.idle = None
        self._real.close()

    def wait(self, seconds: float) -> list[tuple[selectors.SelectorKey, int]]:
        """Real I/O within ``seconds`` of real time."""
        return self._real.select(seconds)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if ready or self.idle is None or (timeout is not None and timeout <= 0):
            return ready
        return self.idle(timeout)


class _Door(concurrent.futures.Executor):
    """Hands one job to ``executor`` and remembers its future."""

    def __init__(self, executor: concurrent.futures.Executor) -> None:
        self._executor = executor
        self.job: concurrent.futures.Future[Any] | None = None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> concurrent.futures.Future[T]:
        job = self._executor.submit(fn, *args, **kwargs)
        self.job = job
        return job


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock moves only when nothing else can happen.

    Args:
        start: what :meth:`time` says first, seconds.
        io_grace: real seconds that the kernel gets to deliver before the clock moves, where sockets or
            pipes are registered. Paid once for each move of the clock.
        deadlock_grace: real seconds to wait for I/O, or for a word from another thread, before a deadlock
            is reported. Not waited for where neither exists.
        patience: real seconds that an executor job or a hold may take without a sign of life.
        max_moves: how often the clock may move before the loop counts as going round in circles.
    """

    def __init__(
        self,
        *,
        start: float = 0.0,
        io_grace: float = 0.001,
        deadlock_grace: float = 0.25,
        patience: float = 30.0,
        max_moves: int = 1_000_000,
    ) -> None:
        self._now = start
        self._io_grace = io_grace
        self._deadlock_grace = deadlock_grace
        self._patience = patience
        self._moves_left = self._max_moves = max_moves
        self._outside: dict[object, str] = {}
        self._pool: concurrent.futures.Executor | None = None
        self._pool_closed = False
        self._virtual = _Selector()
        super().__init__(self._virtual)
        self._virtual.idle = self._idle
        self._set_time(start)

    # -- the clock

    def time(self) -> float:
        """Virtual seconds since the loop was made (plus ``start``); never goes back."""
        return self._now

    def pending_timers(self) -> list[asyncio.TimerHandle]:
        """The timers that are set and not cancelled, in the order in which they fire."""
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return [h for h in heapq.nsmallest(len(scheduled), scheduled) if not h.cancelled()]

    @contextmanager
    def hold(self, what: str = "hold()") -> Iterator[None]:
        """Let the clock stand still and wait in real time: for a subprocess, a thread, a server elsewhere.

        Args:
            what: what is waited for; named if it never comes.
        """
        token = object()
        self._outside[token] = what
        try:
            yield
        finally:
            del self._outside[token]

    def _idle(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        wait = self._virtual.wait
        if self._outside:
            ready = wait(self._patience)
            if not ready:
                what = ", ".join(sorted(set(self._outside.values())))
                self._deadlock(f"no sign of life from {what} for {self._patience:g} real seconds")
            return ready
        has_io = len(self._virtual.get_map()) > _OWN_FDS
        if timeout is None:
            foreign = threading.active_count() > 1
            if has_io or foreign:
                ready = wait(self._deadlock_grace)
                if ready:
                    return ready
            self._deadlock("nothing is ready, no timer is set, and no job or I/O will wake the loop")
        if has_io:
            ready = wait(self._io_grace)
            if ready:
                return ready
        self._advance(timeout)
        return []

    def _advance(self, timeout: float) -> None:
        self._moves_left -= 1
        if self._moves_left < 0:
            self._moves_left = self._max_moves  # for the tasks that clean up
            self._deadlock(f"the clock has moved {self._max_moves:,} times; a timer is set again and again")
        # now + (when - now) can miss `when` by a rounding; the timer itself says it exactly. A wait of a
        # day or more is cut by asyncio: then the timeout is shorter than the timer.
        target = self._now + timeout
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        when = scheduled[0].when() if scheduled else target
        self._set_time(max(self._now, when if abs(when - target) <= 1e-6 else target))

    def _set_time(self, now: float) -> None:
        self._now = now
        # asyncio fires what is due before now + resolution; where a nanosecond is less than the last bit
        # of `now` (after three months), a timer that is due right now would never be.
        self._clock_resolution = max(1e-9, math.ulp(now))

    def _deadlock(self, why: str) -> NoReturn:
        raise DeadlockError(why, self._now, tuple(sorted(map(_describe, asyncio.all_tasks(self)))))

    # -- executor jobs

    def set_default_executor(self, executor: concurrent.futures.ThreadPoolExecutor) -> None:  # type: ignore[override]
        """As in asyncio; its jobs are counted."""
        super().set_default_executor(executor)
        self._pool = executor

    def run_in_executor(  # type: ignore[override]
        self, executor: concurrent.futures.Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """As in asyncio; the clock stands still until the job is over and its result is delivered."""
        if executor is None:
            executor = self._default_pool()
        door = _Door(executor)
        future = super().run_in_executor(door, func, *args)
        token = object()
        self._outside[token] = f"executor job {getattr(func, '__qualname__', func)!s}"

        def delivered(_: object = None) -> None:
            self._outside.pop(token, None)

        def over() -> None:
            # The result takes a way of its own into the loop, and may come later than this.
            if future.done():
                delivered()
            else:
                future.add_done_callback(delivered)

        def job_over(_: object) -> None:
            try:
                self.call_soon_threadsafe(over)
            except RuntimeError:
                pass  # the loop was closed while the thread went on

        if door.job is not None:
            door.job.add_done_callback(job_over)
        return future

    def _default_pool(self) -> concurrent.futures.Executor:
        if self._pool_closed:
            raise RuntimeError("Executor shutdown has been called")
        if self._pool is None:
            self.set_default_executor(concurrent.futures.ThreadPoolExecutor(thread_name_prefix="asyncio"))
            assert self._pool is not None
        return self._pool

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        """As in asyncio; joining its threads takes real time, whatever the timeout says."""
        self._pool_closed = True
        with self.hold("the end of the default executor"):
            await super().shutdown_default_executor(*args, **kwargs)


_FRAMES: Final = ("cr_frame", "ag_frame", "gi_frame")
_AWAITED: Final = ("cr_await", "ag_await", "gi_yieldfrom")


def _describe(task: asyncio.Task[Any]) -> str:
    """The task's name and its chain of awaits, outermost first: ``reader: main at app.py:7 > get at queues.py:158``."""
    awaited: Any = task.get_coro()
    places: list[str] = []
    while awaited is not None:
        frame = next((f for name in _FRAMES if (f := getattr(awaited, name, None))), None)
        if frame is not None:
            file = frame.f_code.co_filename.replace("\\", "/").rpartition("/")[2]
            places.append(f"{awaited.__qualname__} at {file}:{frame.f_lineno}")
        awaited = next((c for name in _AWAITED if (c := getattr(awaited, name, None))), None)
    return f"{task.get_name()}: {' > '.join(places) or repr(task.get_coro())}"
