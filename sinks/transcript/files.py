"""The file itself: opened safely, appended to in whole lines, cut back where a write broke off."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from turnstream.messages.errors import TranscriptError
from turnstream.sinks.transcript.chain import Bridge
from turnstream.sinks.transcript.fillers import MAX_COMPACTED, drop_fillers, temporary_of
from turnstream.sinks.transcript.index import LineIndex
from turnstream.sinks.transcript.lazy import Entry
from turnstream.sinks.transcript.lockfile import SessionLock
from turnstream.sinks.transcript.scan import Existing, scan
from turnstream.sinks.transcript.sidefiles import SideFile, write_side_file
from turnstream.sinks.transcript.tombstones import Erased, erase

__all__ = ["Durability", "TranscriptFile", "Written"]

Durability = Literal["flush", "fsync"]
"""When a line counts as written: the system has it (survives the process), or the device has it."""

_log = logging.getLogger("turnstream.transcript")

# O_NONBLOCK: a pipe at the path must not hang the open; regular files don't mind.
_SAFE: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_WRITE: Final = os.O_WRONLY | os.O_APPEND | _SAFE
_GIVE_UP_AFTER: Final = 3

# The one place where bytes leave; tests put a faulty device here.
_write = os.write
_fsync = os.fsync
_ftruncate = os.ftruncate


class Written(NamedTuple):
    """What became of one write.

    Attributes:
        done: bytes of whole lines that are in the file.
        error: why not all are.
        short: how many writes were short.
    """

    done: int
    error: OSError | None
    short: int


class TranscriptFile:
    """A transcript that is appended to, by one writer.

    ``check`` and ``open`` are called on the loop, ``write``, ``erase`` and ``close`` in the worker thread.

    Args:
        path: the file.
        append: whether it may hold something already.
        durability: see :data:`Durability`.
        sidechain: whether it is a sub-agent's.
    """

    def __init__(self, path: Path, *, append: bool, durability: Durability, sidechain: bool) -> None:
        self.path = path
        self._append = append
        self._durable = durability == "fsync"
        self._sidechain = sidechain
        self._lock = SessionLock(path)
        self._fd: int | None = None
        self._unended = False
        self._end: int | None = 0  # where the file ends if only we wrote; None: look
        self._index = LineIndex()
        self._fillers = False
        self._cut_off = False

    def check(self) -> int:
        """The file's size, 0 if there is none; makes nothing.

        Raises:
            TranscriptError: a symlink, no regular file, or not empty and ``append`` wasn't asked for.
        """
        try:
            there = os.stat(self.path, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return 0
        except OSError as error:
            raise self._error(f"the transcript can't be looked at: {error.strerror}") from error
        if stat.S_ISLNK(there.st_mode):
            raise self._error("the transcript is a symlink, which is never followed")
        if not stat.S_ISREG(there.st_mode):
            raise self._error("the transcript is no regular file")
        if there.st_size and not self._append:
            raise self._error("the transcript exists and isn't empty", hint="append to it, or choose another file")
        return there.st_size

    def open(self) -> Existing | None:
        """Make the folders, take the lock, read what is there. The file itself is made at the first write.

        Returns:
            What it holds, None if that is nothing.

        Raises:
            TranscriptError: see :meth:`check`; another writer has it; it can't be read or locked.
        """
        self._make_folders()
        self._lock.acquire()
        try:
            with contextlib.suppress(OSError):
                os.unlink(temporary_of(self.path))  # a writer was killed while it compacted
            if not self.check():
                return None
            try:
                fd = os.open(self.path, os.O_RDONLY | _SAFE)
                with open(fd, "rb") as file:
                    existing = scan(file, sidechain=self._sidechain, note=self._index.add)
            except OSError as error:
                raise self._error(f"the transcript can't be read: {error.strerror}") from error
            self._unended = not existing.ended
            self._end = existing.size
            self._fillers = existing.fillers > 0
            return existing
        except BaseException:
            self._lock.release()
            raise

    def _make_folders(self) -> None:
        missing: list[Path] = []
        folder = self.path.parent
        while not folder.exists() and folder != folder.parent:
            missing.append(folder)
            folder = folder.parent
        for folder in reversed(missing):
            try:
                folder.mkdir(0o700, exist_ok=True)
            except OSError as error:
                raise self._error(f"the folder {folder} can't be made: {error.strerror}") from error

    def write(
        self,
        data: bytes | bytearray,
        entries: Sequence[Entry],
        sizes: Sequence[int],
        side_files: Sequence[SideFile] = (),
    ) -> Written:
        """Append whole lines. Never raises; in the file are whole lines only, whatever happens.

        Args:
            data: the lines.
            entries: what they were made of.
            sizes: bytes of each.
            side_files: are written first: the lines refer to them.
        """
        short = 0
        done = 0
        ending = b""
        start = 0
        try:
            for file in side_files:
                write_side_file(file, durable=self._durable)
            fd, start = self._opened()
            if self._unended:
                ending = b"\n"
                data = ending + data
            idle = 0
            while done < len(data):
                count = _write(fd, memoryview(data)[done:])
                if done + count == len(data):
                    done += count
                    break
                short += 1
                whole = max(done, data.rfind(b"\n", done, done + count) + 1)
                idle = 0 if whole > done else idle + 1
                if idle == _GIVE_UP_AFTER:
                    # What the device has to say (full, a quota, a limit) it says to a write behind that.
                    try:
                        count += _write(fd, memoryview(data)[done + count :])
                    except OSError:
                        self._cut(fd, start + whole)
                        raise
                    if done + count == len(data):
                        done = len(data)
                        break
                self._cut(fd, start + whole)
                done = whole
                if idle == _GIVE_UP_AFTER:
                    raise OSError(errno.EIO, f"the device takes only {count} bytes of a line")
            if self._durable:
                try:
                    _fsync(fd)
                except OSError:
                    # After a failed fsync the system may drop these pages and report the next one as good.
                    self._cut(fd, start)
                    done = 0
                    raise
        except OSError as error:
            self._end = None
            done = self._counted(done, ending)
            self._note(entries, sizes, start + len(ending), done)
            return Written(done, error, short)
        self._end = start + len(data)
        self._note(entries, sizes, start + len(ending), None)
        return Written(self._counted(done, ending), None, short)

    def _opened(self) -> tuple[int, int]:
        """The descriptor of what is at the path, and its size; what others did to the file meanwhile is noticed.

        Editors put a new file in the old one's place: what is written to that is in no file any more.
        """
        fd = self._fd
        if fd is not None:
            ours = os.fstat(fd)
            try:
                there = os.stat(self.path, follow_symlinks=False)
                same = (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
            except (FileNotFoundError, NotADirectoryError):
                same = False
            except OSError:
                same = True  # it can't be known
            if not same:
                _log.warning("%s was replaced or removed while it was open; going on with what is there", self.path)
                self._fd = None
                self._end = None
                os.close(fd)
        if self._fd is None:
            self._fd = self._make()
        size = os.fstat(self._fd).st_size
        # Of one that grew the last line may just be written by somebody who doesn't heed the lock.
        if self._end is None or size < self._end:
            self._unended = size > 0 and _last_byte(self.path) != b"\n"
        return self._fd, size

    def _note(self, entries: Sequence[Entry], sizes: Sequence[int], start: int, done: int | None) -> None:
        """Remember where the lines are, ``done`` bytes of which (None: all) are in the file."""
        if done is not None:
            whole = 0
            while whole < len(sizes) and done >= sizes[whole]:
                done -= sizes[whole]
                whole += 1
            entries, sizes = entries[:whole], sizes[:whole]
        self._index.extend([entry.uuid for entry in entries], sizes, start)

    def erase(self, uuids: Sequence[str], bridges: Sequence[Bridge]) -> Erased:
        """Take lines out of the file (:mod:`turnstream.sinks.transcript.tombstones`). Never raises."""
        erased = erase(self.path, self._index, uuids, bridges, durable=self._durable)
        self._fillers = self._fillers or erased.overwritten > 0
        self._cut_off = self._cut_off or erased.cut > 0
        self._end = None
        return erased

    def _counted(self, done: int, ending: bytes) -> int:
        if done and ending:
            self._unended = False
        return max(0, done - len(ending))

    def _make(self) -> int:
        new = not self.path.exists()
        fd = os.open(self.path, _WRITE | os.O_CREAT, 0o600)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "the transcript is no regular file")
        if new and self._durable:
            # The file's name must survive too.
            with contextlib.suppress(OSError):
                folder = os.open(self.path.parent, os.O_RDONLY)
                try:
                    _fsync(folder)
                finally:
                    os.close(folder)
        return fd

    def _cut(self, fd: int, size: int) -> None:
        try:
            _ftruncate(fd, size)
        except OSError:
            # It can't be cut: the torn line is ended by the next write, and readers skip it.
            self._unended = True

    def close(self) -> None:
        """Close the file, write a small one anew without its fillers, release the lock. Idempotent, never raises."""
        fd, self._fd = self._fd, None
        if fd is not None:
            with contextlib.suppress(OSError):
                os.close(fd)
        if (self._cut_off or self._fillers) and self._lock.held:
            try:
                size = os.stat(self.path, follow_symlinks=False).st_size
                if not size:
                    os.unlink(self.path)  # all was taken back: there is no session
                elif self._fillers and size < MAX_COMPACTED:
                    drop_fillers(self.path)
            except FileNotFoundError:
                pass
            except OSError as error:
                # They do no harm: readers skip them, and the next close or a prune takes them.
                _log.warning("the fillers of %s stay: %s", self.path, error)
        self._lock.release()

    def _error(self, message: str, *, hint: str | None = None) -> TranscriptError:
        return TranscriptError(message, file=str(self.path), hint=hint)


def _last_byte(path: Path) -> bytes:
    with open(os.open(path, os.O_RDONLY | _SAFE), "rb", buffering=0) as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)
