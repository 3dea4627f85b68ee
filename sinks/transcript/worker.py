"""One thread for one transcript's writes, reached through one door."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

__all__ = ["Worker"]

T = TypeVar("T")

_numbers: Final = itertools.count(1)


class Worker:
    """The thread: started by the first job, ended and joined by :meth:`shutdown`.

    Jobs run one after another in the order they were given; a job's result comes back on the loop. An
    interpreter that exits lets a forgotten worker finish its jobs.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    def run(self, loop: asyncio.AbstractEventLoop, job: Callable[[], T]) -> asyncio.Future[T]:
        """Have ``job`` done; the future belongs to ``loop``."""
        if self._pool is None:
            name = f"turnstream-transcript-{next(_numbers)}"
            self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        return loop.run_in_executor(self._pool, job)

    def shutdown(self, last: Callable[[], None], *, join: bool) -> None:
        """Run ``last`` behind all other jobs, then end the thread.

        Args:
            last: the last job; it runs here if there is no thread.
            join: wait for the end. Right if nothing is in flight, else it blocks for as long as the device does.
        """
        pool, self._pool = self._pool, None
        if pool is None:
            last()
            return
        pool.submit(last)
        pool.shutdown(wait=join)
