"""A server runs until a signal: SIGINT or SIGTERM end it cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator

__all__ = ["until_signal"]


@contextlib.contextmanager
def until_signal(stop: asyncio.Event) -> Iterator[None]:
    """The first SIGINT or SIGTERM sets ``stop``; a second one ends the process."""
    loop = asyncio.get_running_loop()
    heard: list[signal.Signals] = []

    def on_signal(number: signal.Signals) -> None:
        if heard:
            os._exit(128 + number)
        heard.append(number)
        stop.set()

    numbers: list[signal.Signals] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            continue  # whoever started us wants that (nohup, a shell's background job)
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):  # not here: what it always does
            loop.add_signal_handler(number, on_signal, number)
            numbers.append(number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
