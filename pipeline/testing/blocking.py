"""Notices calls that wait, in code that must not: by name, and by time spent without computing."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

__all__ = ["Blocked", "call_watched"]

LIMIT: Final = 1.0
"""Real seconds that a call may spend off the processor; far more than a busy machine takes away."""

_NAMES: Final = {
    time: ("sleep",),
    os: ("fsync", "fdatasync", "sync", "wait", "waitpid", "wait3", "wait4", "system"),
    select: ("select",),
}
_WAITS: Final[dict[Any, str]] = {
    getattr(module, name): f"{module.__name__}.{name}"
    for module, names in _NAMES.items()
    for name in names
    if hasattr(module, name)
}


class Blocked(Exception):
    """The call waited; the text says where."""


def call_watched(function: Callable[[Any], Any], argument: Any) -> Any:
    """Call ``function(argument)`` and return its result.

    Raises:
        Blocked: it called something that waits (``time.sleep``, ``os.fsync`` …), or spent more than
            :data:`LIMIT` seconds waiting for whatever else. Both are said after the call has returned.
    """
    waits: list[str] = []

    def look(frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_call" and arg in _WAITS:
            waits.append(f"{_WAITS[arg]} at {frame.f_code.co_filename}:{frame.f_lineno}")

    # A profiler that somebody else runs stays; then only the time is looked at.
    watch = sys.getprofile() is None
    began, computed = time.monotonic(), time.thread_time()
    if watch:
        sys.setprofile(look)
    try:
        result = function(argument)
    finally:
        if watch:
            sys.setprofile(None)
    idle = (time.monotonic() - began) - (time.thread_time() - computed)
    if waits:
        raise Blocked(f"it calls {waits[0]}")
    if idle > LIMIT:
        raise Blocked(f"it waited {idle:.1f} s")
    return result
