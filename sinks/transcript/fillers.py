"""Fillers: what stands where a line was taken out of the middle of the file (WIRE.md §3, *Tombstone*).

A filler has exactly the bytes of the line it replaces, so nothing behind it moves. Readers skip it: its
type is none they know. Fillers vanish when the file is written anew without them.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from turnstream.messages.jsonvalue import dumps

__all__ = ["FILLER_TYPE", "MAX_COMPACTED", "drop_fillers", "filler", "is_filler", "temporary_of"]

FILLER_TYPE: Final = "tombstone-filler"
"""The ``type`` of a filler."""

MAX_COMPACTED: Final = 64 * 1024 * 1024
"""Bytes; fillers of a larger file stay until it is pruned (WIRE.md §3)."""

_HEAD: Final = b'{"type":"tombstone-filler"'
_TAIL: Final = b'"}\n'
_SAFE: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_BLOCK: Final = 1 << 18

# The one place where these are called; tests put a faulty device here.
_write = os.write
_fsync = os.fsync
_replace = os.replace


def filler(uuid: str, length: int) -> bytes:
    """The line that stands for the record ``uuid``.

    Args:
        uuid: of the record that was taken back.
        length: bytes of its line, the line end included.

    Returns:
        ``{"type":"tombstone-filler","targetUuid":…,"pad":"   "}`` and LF, ``length`` bytes in all; spaces
        and LF where that doesn't fit.
    """
    head = _HEAD + b',"targetUuid":' + dumps(uuid) + b',"pad":"'
    room = length - len(head) - len(_TAIL)
    if room < 0:
        return b" " * (length - 1) + b"\n"
    return head + b" " * room + _TAIL


def is_filler(line: bytes) -> bool:
    """Whether a line is a filler, or what a kill in the middle of its write left of one.

    A filler's first bytes tell: where they stand, the record was on its way out.
    """
    return line.startswith(_HEAD) or (line[:1] == b" " and not line.strip(b" \n"))


def temporary_of(path: Path) -> Path:
    """Where the new file is written before it takes the old one's place; found after a crash it is litter."""
    return path.with_name(f".{path.name}.tmp")


def drop_fillers(path: Path, *, keep_times: bool = False) -> int:
    """Write the file anew without its fillers: temporary file, fsync, rename, fsync of the folder.

    The caller holds the session's lock and has no descriptor of the file open. At each moment the whole
    old or the whole new file is at the path. Every other byte is kept.

    Args:
        path: of the transcript.
        keep_times: keep the time of the last change, by which sessions are listed.

    Returns:
        How many bytes became free; 0 leaves the file untouched.

    Raises:
        OSError: it can't be read, or there is no room for a copy; the old file is untouched.
    """
    temporary = temporary_of(path)
    with open(os.open(path, os.O_RDONLY | _SAFE), "rb", buffering=_BLOCK) as file:
        there = os.fstat(file.fileno())
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o600)
        try:
            freed = 0
            data = bytearray()
            for line in file:
                if is_filler(line):
                    freed += len(line)
                else:
                    data += line
                    if len(data) >= _BLOCK:
                        _write_all(fd, data)
                        data.clear()
            _write_all(fd, data)
            if not freed:
                return 0
            if hasattr(os, "fchmod"):
                os.fchmod(fd, there.st_mode & 0o7777)
            _fsync(fd)
            # Somebody who doesn't heed the lock may have appended meanwhile.
            while late := file.read():
                _write_all(fd, late)
                _fsync(fd)
            if keep_times:
                os.utime(temporary, ns=(there.st_atime_ns, there.st_mtime_ns))
            os.close(fd)
            fd = -1
            _replace(temporary, path)
        finally:
            if fd >= 0:
                os.close(fd)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
    sync_folder(path.parent)
    return freed


def sync_folder(folder: Path) -> None:
    """Make names in ``folder`` survive a crash of the machine, where the system can."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            _fsync(fd)
        finally:
            os.close(fd)


def _write_all(fd: int, data: bytes | bytearray) -> None:
    done = 0
    while done < len(data):
        done += _write(fd, memoryview(data)[done:])
