"""The Rx scheduler of one asyncio loop (DESIGN.md §4: single thread)."""

from __future__ import annotations

import asyncio
import threading
from datetime import datetime
from typing import Any, Final, TypeVar

from reactivex import abc, typing
from reactivex.scheduler.periodicscheduler import PeriodicScheduler

__all__ = ["LoopScheduler"]

S = TypeVar("S")

# No loop has run for ten years, but a wall-clock time is half a century ahead of any loop's.
_TOO_FAR: Final = 10 * 365 * 86_400.0


class LoopScheduler(PeriodicScheduler):
    """Schedules on one event loop, by that loop's clock, in that loop's thread.

    Every timed operator of a run takes it, so that all of a run is on one thread and one clock, the
    virtual one of ``turnstream.testing.VirtualLoop`` too. Reactivex's own ``AsyncIOScheduler`` says the
    wall clock as ``now`` while its timers use the loop's; here both are the loop's.

    Absolute times are loop time: seconds of ``loop.time()``, or :attr:`now` plus a ``timedelta``.
    Disposing what a method returned cancels its timer. What an action raises goes to the loop's
    exception handler.

    Args:
        loop: the loop; default the running one. A loop that isn't running yet may be scheduled on from
            the thread that made the scheduler.

    Raises:
        RuntimeError: no loop is given and none is running.
        TypeError: ``loop`` is no event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__()
        if loop is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                raise RuntimeError(
                    "LoopScheduler() needs a running event loop; make it inside a coroutine or pass the loop"
                ) from None
        elif not isinstance(loop, asyncio.AbstractEventLoop):
            raise TypeError(f"LoopScheduler takes an asyncio event loop, not {type(loop).__name__}")
        self._loop = loop
        self._maker = threading.get_ident()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that it schedules on."""
        return self._loop

    @property
    def now(self) -> datetime:
        """The loop's time as a datetime: ``loop.time()`` seconds after 1970-01-01 UTC, to the microsecond."""
        return self.to_datetime(self._loop.time())

    def schedule(self, action: typing.ScheduledAction[S], state: S | None = None) -> abc.DisposableBase:
        """Run ``action`` soon, after what is scheduled already.

        Raises:
            RuntimeError: called from another thread than the loop's, or the loop is closed.
        """
        self.check_thread()
        work = _Work(self, action, state)
        work.handle = self._loop.call_soon(work.run)
        return work

    def schedule_relative(
        self, duetime: typing.RelativeTime, action: typing.ScheduledAction[S], state: S | None = None
    ) -> abc.DisposableBase:
        """Run ``action`` after ``duetime`` (seconds or a timedelta); 0 and less mean soon.

        Raises:
            RuntimeError: called from another thread than the loop's, or the loop is closed.
        """
        seconds = self.to_seconds(duetime)
        if seconds <= 0:
            return self.schedule(action, state)
        return self._at(self._loop.time() + seconds, action, state)

    def schedule_absolute(
        self, duetime: typing.AbsoluteTime, action: typing.ScheduledAction[S], state: S | None = None
    ) -> abc.DisposableBase:
        """Run ``action`` at ``duetime``, loop time (seconds, or a datetime as :attr:`now` gives it); the past is soon.

        Raises:
            RuntimeError: called from another thread than the loop's, or the loop is closed.
            ValueError: ``duetime`` is years ahead, so most likely of the wall clock.
        """
        when = self.to_seconds(duetime)
        ahead = when - self._loop.time()
        if ahead <= 0:
            return self.schedule(action, state)
        if ahead > _TOO_FAR:
            raise ValueError(
                f"{duetime!r} is {ahead / 31_536_000:.0f} years ahead: absolute times are loop time here, "
                "not the wall clock; use scheduler.now + timedelta(...)"
            )
        return self._at(when, action, state)

    def check_thread(self) -> None:
        """Return if this is the loop's thread.

        Raises:
            RuntimeError: it is another one (Rx isn't marshalled: use ``loop.call_soon_threadsafe``).
        """
        if asyncio._get_running_loop() is self._loop:
            return
        if not self._loop.is_running() and threading.get_ident() == self._maker:
            return
        raise RuntimeError(
            f"LoopScheduler used from thread {threading.current_thread().name!r}, which doesn't run its loop; "
            "hand the work over with loop.call_soon_threadsafe"
        )

    def _at(self, when: float, action: typing.ScheduledAction[S], state: S | None) -> abc.DisposableBase:
        self.check_thread()
        work = _Work(self, action, state)
        work.handle = self._loop.call_at(when, work.run)
        return work


class _Work(abc.DisposableBase):
    """One scheduled action and what it returned. No lock: everything is on the loop's thread."""

    __slots__ = ("_action", "_disposed", "_inner", "_scheduler", "_state", "handle")

    def __init__(self, scheduler: LoopScheduler, action: typing.ScheduledAction[Any], state: Any) -> None:
        self._scheduler = scheduler
        self._action: typing.ScheduledAction[Any] | None = action
        self._state = state
        self._disposed = False
        self._inner: abc.DisposableBase | None = None
        self.handle: asyncio.Handle | None = None

    def run(self) -> None:
        """Run the action once; dispose what it returned if this was disposed meanwhile."""
        action, state = self._action, self._state
        self._action = self._state = self.handle = None
        if action is None:
            return
        inner = action(self._scheduler, state)
        if isinstance(inner, abc.DisposableBase):
            if self._disposed:
                inner.dispose()
            else:
                self._inner = inner

    def dispose(self) -> None:
        """Cancel the timer, or dispose what the action returned. Idempotent.

        Raises:
            RuntimeError: called from another thread than the loop's.
        """
        if self._disposed:
            return
        self._scheduler.check_thread()
        self._disposed = True
        self._action = self._state = None
        handle, self.handle = self.handle, None
        if handle is not None:
            handle.cancel()
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.dispose()
