"""A thread for file work that may hang."""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["DaemonThread"]

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThread(concurrent.futures.Executor):
    """One thread, started by the first job. A daemon: a device that hangs must not keep the process.

    Args:
        name: the thread's.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> concurrent.futures.Future[T]:
        """Have ``fn`` called, behind the jobs before it."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def job() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    result = fn(*args, **kwargs)
                except BaseException as error:  # noqa: BLE001 - it is the caller's
                    future.set_exception(error)
                else:
                    future.set_result(result)

        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(job)
        return future

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    async def aclose(self, patience: float = 1.0) -> None:
        """End the thread when its jobs are done; what takes longer than ``patience`` seconds is left to itself."""
        if self._thread is None:
            return
        idle = asyncio.get_running_loop().run_in_executor(self, _nothing)
        try:
            await asyncio.wait([idle], timeout=patience)
        finally:
            self.shutdown(wait=idle.done())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the thread behind its jobs.

        Args:
            wait: join it: for as long as its jobs take.
            cancel_futures: not heeded.
        """
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            if wait:
                thread.join()


def _nothing() -> None: ...
