"""The list's cache: what each file held, as long as the file is the same (size, time of change, inode).

A cache only: whatever is wrong with it costs time, never a session. A row that can't be read is left out, and a file
of another version or root is started anew.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path
from typing import Final

import msgspec

from turnstream.sinks.transcript.sessions.info import Digest

__all__ = ["Cache", "Stamp", "make_folders"]

VERSION: Final = 1
"""Goes up when a digest means something else than before."""

_KIND: Final = "turnstream-sessions"
_READ: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """By what a file is known again."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, there: os.stat_result) -> Stamp:
        """Of a file's status."""
        return cls(there.st_size, there.st_mtime_ns, there.st_ino)


class _Head(msgspec.Struct):
    kind: str
    version: int
    root: str


class _Row(msgspec.Struct):
    path: str
    stamp: Stamp
    digest: Digest | None  # None: the file is no session


_read_head: Final = msgspec.json.Decoder(_Head).decode
_read_row: Final = msgspec.json.Decoder(_Row).decode
_write: Final = msgspec.json.Encoder().encode


class Cache:
    """What is known of the files below a root, by their path relative to it.

    Args:
        path: of the cache's file; None keeps nothing.
        root: what it is of.
    """

    def __init__(self, path: Path | None, root: Path) -> None:
        self._path = path
        self._root = os.path.realpath(root)
        self._rows: dict[str, _Row] = {}
        self._changed = False
        if path is not None:
            self._load(path)

    def _load(self, path: Path) -> None:
        try:
            fd = os.open(path, _READ)
        except OSError:
            return
        with open(fd, "rb") as file:
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    return
                lines = file.read().split(b"\n")
            except OSError:
                return
        try:
            head = _read_head(lines[0])
        except (msgspec.MsgspecError, UnicodeError):
            return
        if (head.kind, head.version, head.root) != (_KIND, VERSION, _text(self._root)):
            return
        for line in lines[1:]:
            try:
                row = _read_row(line)
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                continue
            self._rows[row.path] = row

    def get(self, path: str, stamp: Stamp) -> tuple[bool, Digest | None]:
        """Whether the file is known as it is now, and what it holds."""
        row = self._rows.get(path)
        if row is None or row.stamp != stamp:
            return False, None
        return True, row.digest

    def put(self, path: str, stamp: Stamp, found: Digest | None) -> None:
        """Remember what a file holds."""
        self._rows[path] = _Row(path, stamp, found)
        self._changed = True

    def forget(self, path: str) -> None:
        """Forget a file."""
        if self._rows.pop(path, None) is not None:
            self._changed = True

    def keep_only(self, folder: str, paths: set[str]) -> None:
        """Forget the files directly in ``folder`` (``""``: in all folders) that aren't among ``paths``."""
        for path in [p for p in self._rows if p not in paths and (not folder or p.startswith(f"{folder}/"))]:
            self.forget(path)

    def save(self) -> None:
        """Write it if anything changed: temporary file, then rename. Whatever fails, the cache stays as it was."""
        if not self._changed or self._path is None:
            return
        lines = [_write(_Head(_KIND, VERSION, _text(self._root)))]
        for row in self._rows.values():
            with contextlib.suppress(UnicodeError, msgspec.MsgspecError):
                lines.append(_write(row))
        temporary = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}.tmp")
        with contextlib.suppress(OSError):
            make_folders(self._path.parent)
            try:
                with open(os.open(temporary, _WRITE, 0o600), "wb") as file:
                    file.write(b"\n".join(lines) + b"\n")
                os.replace(temporary, self._path)
                self._changed = False
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)


def make_folders(folder: Path) -> None:
    """Make a folder and those above it, for the user alone.

    Raises:
        OSError: one can't be made.
    """
    if not folder.is_dir():
        make_folders(folder.parent)
        folder.mkdir(0o700, exist_ok=True)


def _text(path: str) -> str:
    """A path that any JSON can hold."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
