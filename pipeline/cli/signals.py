"""SIGINT and SIGTERM end a run, not the process: what is open is kept and marked, sinks drain."""

from __future__ import annotations

import asyncio
import os
import signal
from types import TracebackType
from typing import Any, Final, Self

from turnstream.run import Run

__all__ = ["Signals"]

# What takes over once the first has come. No KeyboardInterrupt: raised inside of the loop it tears a callback
# apart, and what waits for that callback waits for ever.
_LAST_RESORT: Final[dict[signal.Signals, Any]] = {
    signal.SIGINT: lambda number, frame: os._exit(128 + number),
    signal.SIGTERM: signal.SIG_DFL,
}


class Signals:
    """While it is entered, the first of the two signals aborts the run (before there is one: cancels the task).

    A second one ends the process: what doesn't drain, or an output that nobody reads, can't hold it.

    Attributes:
        caught: the signal that came, None if none did.
    """

    def __init__(self) -> None:
        self.caught: signal.Signals | None = None
        self._run: Run | None = None
        self._task: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        for number in _LAST_RESORT:
            before = signal.getsignal(number)
            if before is signal.SIG_IGN:
                continue  # whoever started us wants that (nohup, a shell's background job)
            try:
                # Not loop.add_signal_handler: that one hears nothing while a write to a pipe blocks.
                signal.signal(number, self._on_signal)
            except ValueError:
                return self  # not the main thread: signals do what they always do
            self._before[number] = before
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before = {}

    def watch(self, run: Run) -> None:
        """From now on it is ``run`` that a signal aborts."""
        self._run = run

    def _on_signal(self, number: int, frame: object) -> None:
        for each in self._before:
            signal.signal(each, _LAST_RESORT[each])
        self.caught = signal.Signals(number)
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if self._run is not None:
            assert self.caught is not None
            self._run.abort(self.caught.name)
        elif self._task is not None:
            self._task.cancel()
