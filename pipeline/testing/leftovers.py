"""What is left running or open: tasks, threads, timers and file descriptors."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

__all__ = ["Leftovers"]


class Leftovers:
    """A look at what runs now; :meth:`since` says what has come since.

    Not counted: the current task, and threads of the loop's default executor (named ``asyncio_*``): they
    are the loop's, and end with it. Timers are seen on asyncio's own loops only, descriptors only where
    the system lists them.
    """

    def __init__(self) -> None:
        self._tasks = asyncio.all_tasks()
        self._threads = set(threading.enumerate())
        self._timers = set(map(id, timers := _timers()))
        # Kept, so that no new timer can get the id of an old one.
        self._kept = timers
        self._descriptors = _descriptors()

    def since(self) -> list[str]:
        """What runs or is open now and wasn't then, one line each; empty if nothing."""
        found = [f"task {task.get_name()!r}" for task in asyncio.all_tasks() - self._tasks if not task.done()]
        found += [
            f"thread {thread.name!r}"
            for thread in set(threading.enumerate()) - self._threads
            if not thread.name.startswith("asyncio_")
        ]
        found += [f"timer {timer!r}" for timer in _timers() if id(timer) not in self._timers]
        now = _descriptors()
        if now is not None and self._descriptors is not None and now > self._descriptors:
            found.append(f"{now - self._descriptors} open file descriptor(s)")
        return sorted(found)


def _timers() -> list[asyncio.TimerHandle]:
    # A private list of asyncio; other loops (uvloop) have none, and then timers aren't looked at.
    scheduled: list[Any] = getattr(asyncio.get_running_loop(), "_scheduled", [])
    return [handle for handle in scheduled if not handle.cancelled()]


def _descriptors() -> int | None:
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        return None
