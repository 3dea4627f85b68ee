"""One line on standard error: how the commands talk to people."""

from __future__ import annotations

import contextlib
import sys

from turnstream.sinks.ui.terminal import safe

__all__ = ["reason", "say"]


def say(text: str) -> None:
    """One line on standard error; nothing in it can steer a terminal, and if nobody can hear it that is all right."""
    with contextlib.suppress(OSError):
        print(f"turnstream: {safe(' '.join(text.splitlines()))}", file=sys.stderr, flush=True)


def reason(error: Exception) -> str:
    """Why, in words; of an OSError without the file's name, which the sentence around it says."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
