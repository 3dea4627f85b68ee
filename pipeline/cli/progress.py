"""A progress bar for long files, on standard error when that is a terminal."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any, TextIO

from turnstream.operators.batch import Batch
from turnstream.sinks.base import SinkBase

__all__ = ["LONG", "ProgressBar"]

LONG = 4 * 1024 * 1024
"""Inputs of fewer bytes are over before a bar helps."""

_WIDTH = 30
_INTERVAL = 0.1


class ProgressBar(SinkBase):
    """Redraws one line at most ten times a second."""

    name = "progress"

    def __init__(self, stream: TextIO, total: int) -> None:
        self._stream = stream
        self._total = total
        self._done = 0
        self._due = 0.0
        self._shown = False

    def on_next(self, batch: Sequence[Any], /) -> None:
        """Count the bytes; draw now and then."""
        if isinstance(batch, Batch):
            self._done += batch.weight
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _INTERVAL
            share = min(self._done / self._total, 1.0)
            bar = "#" * round(share * _WIDTH)
            self._write(f"\r[{bar:<{_WIDTH}}] {share:4.0%} {self._done / 1e6:.1f}/{self._total / 1e6:.1f} MB")
            self._shown = True

    def on_error(self, error: Exception, /) -> None:
        """Take the line away."""
        self.on_completed()

    def on_completed(self) -> None:
        """Take the line away."""
        self.clear()

    def clear(self) -> None:
        """Take the line away until the next drawing: something else is to be said there."""
        if self._shown:
            self._write("\r\x1b[K")
            self._shown = False

    def _write(self, text: str) -> None:
        # A terminal that is gone is no reason to fail.
        with contextlib.suppress(OSError):
            self._stream.write(text)
            self._stream.flush()
