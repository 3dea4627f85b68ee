"""Whether somebody writes a session, and keeping writers out while one is removed or rewritten."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from turnstream.messages.errors import TranscriptError
from turnstream.sinks.transcript.lockfile import SessionLock

fcntl: Any
try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None

__all__ = ["hold", "is_open", "session_files"]

_READ: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def is_open(transcript: Path) -> bool:
    """Whether a writer holds the lock of this file; makes nothing. Writers of other programs have no lock."""
    try:
        fd = os.open(SessionLock(transcript).path, _READ)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # it can't be known
    try:
        if fcntl is None:  # pragma: no cover - Windows
            return False
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


@contextlib.contextmanager
def hold(transcript: Path) -> Iterator[None]:
    """Keep writers out of a session and of its sub-agents.

    Raises:
        TranscriptError: there is one already, or the lock can't be made.
    """
    lock = SessionLock(transcript)
    lock.acquire()
    try:
        for path in session_files(transcript):
            if is_open(path):
                raise TranscriptError("the transcript is being written by another writer", file=str(path))
        yield
    finally:
        lock.release()


def session_files(transcript: Path) -> list[Path]:
    """The transcripts of the session's sub-agents; symlinks aren't followed."""
    folder = transcript.with_suffix("") / "subagents"
    try:
        if folder.is_symlink() or folder.parent.is_symlink():
            return []
        with os.scandir(folder) as entries:
            return sorted(
                folder / entry.name
                for entry in entries
                if entry.name.startswith("agent-")
                and entry.name.endswith(".jsonl")
                and entry.is_file(follow_symlinks=False)
            )
    except OSError:
        return []
