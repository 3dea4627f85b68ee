"""Where a record's line is in the file: remembered for all, and found again if somebody moved it."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable
from itertools import accumulate
from typing import Final, NamedTuple

from turnstream.messages.jsonvalue import dumps
from turnstream.sinks.transcript.fillers import is_filler
from turnstream.sinks.transcript.scan import head_of

__all__ = ["Line", "LineIndex", "is_record", "read_line", "search_back"]

_FIRST: Final = 1 << 14
_BLOCK: Final = 1 << 16


def _read_at(fd: int, count: int, offset: int) -> bytes:
    os.lseek(fd, offset, os.SEEK_SET)
    return os.read(fd, count)


_pread: Final = getattr(os, "pread", _read_at)  # Windows has none


class Line(NamedTuple):
    """One line of a file.

    Attributes:
        offset: of its first byte.
        data: its bytes with the line end.
    """

    offset: int
    data: bytes

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + len(self.data)


class LineIndex:
    """The offset of each record's line, in 16 bytes a record: hashes of the uuids, searched at C's speed.

    It is a hint: whoever uses an offset looks whether the record is there.
    """

    def __init__(self) -> None:
        self._hashes = array("q")
        self._offsets = array("Q")

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, uuid: str, offset: int) -> None:
        """Note one line."""
        self._hashes.append(hash(uuid))
        self._offsets.append(offset)

    def extend(self, uuids: Iterable[str], sizes: Iterable[int], start: int) -> None:
        """Note lines that were written one behind the other; those without a uuid may be among them.

        Args:
            uuids: one a line.
            sizes: bytes of each line.
            start: offset of the first.
        """
        offsets = self._offsets
        offsets.extend(accumulate(sizes, initial=start))
        offsets.pop()
        self._hashes.extend(map(hash, uuids))

    def find(self, uuid: str) -> list[int]:
        """Offsets at which ``uuid`` may be, in order; a foreign file may hold a record twice."""
        wanted = hash(uuid)
        found = []
        at = -1
        try:
            while True:
                at = self._hashes.index(wanted, at + 1)
                found.append(self._offsets[at])
        except ValueError:
            return found

    def cut(self, size: int) -> None:
        """Forget the lines behind the first ``size`` bytes."""
        while self._offsets and self._offsets[-1] >= size:
            self._offsets.pop()
            self._hashes.pop()


def read_line(fd: int, offset: int) -> Line | None:
    """The line that begins at ``offset``; None if none begins there, or it has no line end.

    Raises:
        OSError: the file can't be read.
    """
    if offset:
        data = _pread(fd, _FIRST, offset - 1)
        if data[:1] != b"\n":
            return None
        data = data[1:]
    else:
        data = _pread(fd, _FIRST, 0)
    end = data.find(b"\n")
    if end < 0:
        parts = [data]
        at = offset + len(data)
        while end < 0:
            data = _pread(fd, _BLOCK, at)
            if not data:
                return None
            parts.append(data)
            at += len(data)
            end = data.find(b"\n")
        parts[-1] = data[: end + 1]
        return Line(offset, b"".join(parts))
    return Line(offset, data[: end + 1])


def is_record(line: Line, uuid: str) -> bool:
    """Whether the line is the record ``uuid`` (and not one that only names it)."""
    head = head_of(line.data)
    return head is not None and head.uuid == uuid and not is_filler(line.data)


def search_back(fd: int, uuid: str, size: int) -> Line | None:
    """The last line that is the record ``uuid``, searched from the file's end in blocks.

    Raises:
        OSError: the file can't be read.
    """
    needle = dumps(uuid)
    behind = b""
    start = size
    while start > 0:
        block = _pread(fd, min(_BLOCK, start), max(0, start - _BLOCK))
        start = max(0, start - _BLOCK)
        window = block + behind
        at = len(window)
        while (at := window.rfind(needle, 0, at)) >= 0:
            line = read_line(fd, _start_of_line(fd, start + at))
            if line is not None and is_record(line, uuid):
                return line
            at += len(needle) - 1
        behind = window[: len(needle) - 1]
    return None


def _start_of_line(fd: int, offset: int) -> int:
    while offset > 0:
        start = max(0, offset - _BLOCK)
        at = _pread(fd, offset - start, start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        offset = start
    return 0
