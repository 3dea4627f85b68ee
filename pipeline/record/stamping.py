"""Arrival times as comments between the events of a recording, so that it can be replayed at its pace."""

from __future__ import annotations

import re
from typing import Final

from turnstream.operators.lines import find_border, recorded_comment, skip_blank_lines

__all__ = ["Stamper"]

_BOM: Final = b"\xef\xbb\xbf"
_LONGEST_BLOCK: Final = 1 << 20
_FOREIGN: Final = re.compile(rb"(?:\A|(?<=[\r\n])): ?turnstream at=[0-9]+(?:\.[0-9]+)?(?:\r\n|\r|\n)")
_FOREIGN_MARK: Final = b"turnstream at="


class Stamper:
    """Puts a stamp before each event that came later than the one before it.

    An event came when its last byte did. But for the stamps the bytes are the same; stamps that the stream
    itself holds (the upstream plays a recording) are left out, as they tell another stream's times.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._searched = 0  # no border ends before it
        self._begun = False  # whether a part of the open block, and its stamp, is out already
        self._first = True
        self._last: float | None = None

    def feed(self, seconds: float, data: bytes) -> bytes:
        """What can be written now that ``data`` came, so many seconds after the request."""
        data = self._rest + data
        out: list[bytes] = []
        start = 0
        if self._first:
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._rest = data
                return b""
            self._first = False
            if data.startswith(_BOM):
                out.append(_BOM)
                start = len(_BOM)
        has_cr = b"\r" in data
        search = max(start, self._searched)
        while True:
            if search == start and not self._begun:
                # More blank lines before an event: nothing that has a time.
                search = skip_blank_lines(data, start)
                out.append(data[start:search])
                start = search
            border = find_border(data, search, has_cr)
            if border is None:
                break
            self._put(out, seconds, data[start : border[1]])
            self._begun = False
            start = search = border[1]
        rest = data[start:]
        if len(rest) > (_LONGEST_BLOCK if not self._begun else 0) + 4:
            keep = 4  # bytes that may be a border's beginning
            self._put(out, seconds, rest[:-keep])
            self._begun = True
            rest = rest[-keep:]
        self._rest = rest
        self._searched = max(0, len(rest) - 4)
        return b"".join(out)

    def end(self, seconds: float) -> bytes:
        """What is left when the stream ends: a block that no blank line ended."""
        out: list[bytes] = []
        if self._rest:
            self._put(out, seconds, self._rest)
        self._rest = b""
        return b"".join(out)

    def _put(self, out: list[bytes], seconds: float, block: bytes) -> None:
        if _FOREIGN_MARK in block:
            block = _FOREIGN.sub(b"", block)
        if not self._begun and seconds != self._last:
            self._last = seconds
            out.append(recorded_comment(seconds))
        out.append(block)
