"""One writer a session: a lock on a file of its own beside the transcript (WIRE.md §3, *Append*)."""

from __future__ import annotations

import contextlib
import os
import weakref
from pathlib import Path
from typing import Any, Final

from turnstream.messages.errors import TranscriptError

fcntl: Any
try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None

__all__ = ["SessionLock"]

_FLAGS: Final = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


_held: weakref.WeakSet[SessionLock] = weakref.WeakSet()


class SessionLock:
    """``flock`` on ``.<name>.lock``. The transcript itself can't carry it: it may be replaced by a rename,
    and ``lockf`` is lost when any descriptor of the file closes. The system gives it back when the process
    ends, however that ends: a lock file that is left over locks nobody out.

    The lock file is removed on release, so whoever gets the lock makes sure that the file he locked is
    still the one at the path. Where there is no ``flock`` (Windows) nothing is locked.

    Args:
        path: of the transcript.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(f".{path.name}.lock")
        self._transcript = path
        self._fd: int | None = None
        self._pid = 0

    @property
    def held(self) -> bool:
        """Whether this process has it (or there are no locks on this system)."""
        return fcntl is None or (self._fd is not None and self._pid == os.getpid())

    def acquire(self) -> None:
        """Take it, at once or not at all.

        Raises:
            TranscriptError: another writer has it, or the lock file can't be made.
        """
        if self._fd is not None or fcntl is None:
            return
        while True:
            fd = self._open()
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                owner = _owner(fd)
                os.close(fd)
                if not isinstance(error, BlockingIOError):
                    raise TranscriptError(
                        f"the transcript can't be locked: {error.strerror}", file=str(self._transcript)
                    ) from error
                raise TranscriptError(
                    f"the transcript is being written by another writer{owner}",
                    file=str(self._transcript),
                    hint="end that one, or write to a new file (a fork)",
                ) from None
            if self._is_at_path(fd):
                break
            os.close(fd)  # it was removed between our open and our lock
        self._fd = fd
        self._pid = os.getpid()
        _held.add(self)
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{self._pid}\n".encode(), 0)

    def _open(self) -> int:
        try:
            return os.open(self.path, _FLAGS, 0o600)
        except OSError as error:
            raise TranscriptError(
                f"the lock file {self.path} can't be made: {error.strerror}", file=str(self._transcript)
            ) from error

    def _is_at_path(self, fd: int) -> bool:
        try:
            there = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False
        ours = os.fstat(fd)
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    def release(self) -> None:
        """Give it back. Idempotent."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        _held.discard(self)
        # A forked child shares the lock: it must not give its parent's back.
        if self._pid == os.getpid():
            with contextlib.suppress(OSError):
                os.unlink(self.path)
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)
        with contextlib.suppress(OSError):
            os.close(fd)

    def __del__(self) -> None:
        # A writer that nobody closed must not lock the session for as long as the process lives.
        if self._fd is not None:
            self.release()


def _let_go() -> None:
    """A forked child drops its copies: a lock must not outlive its owner because a child of his lives on."""
    for lock in list(_held):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


def _owner(fd: int) -> str:
    try:
        text = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
    except OSError:
        return ""
    return f" (process {text})" if text.isdigit() else ""
