"""Lines of an event stream: where a block of them ends and what it says (WIRE.md §1, lines and events).

A *block* is what stands between two blank lines. :func:`find_border` finds its end, :func:`read_block` reads its
lines as the WHATWG says (HTML, "Interpreting an event stream"), all at byte level.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

__all__ = ["RECORDED_AT", "Block", "find_border", "read_block", "recorded_comment", "skip_blank_lines", "valid_utf8"]

RECORDED_AT: Final = re.compile(rb"^: turnstream at=([0-9]{1,12}(?:\.[0-9]{1,9})?)\r?$", re.MULTILINE)
"""The comment line of our recordings that says when the next event came: seconds since the request."""

_LINE_END_AND_BLANK: Final = re.compile(rb"(?:\r\n|\r(?!\n)|\n)(\r\n|\r|\n)")
_CR: Final = 13
_BLANK_LINES: Final = re.compile(rb"[\r\n]*+")
# CPython refuses to read longer numbers when its own limit is set as low as it goes (sys.set_int_max_str_digits).
_MAX_RETRY_DIGITS: Final = 640


class Block(msgspec.Struct, frozen=True, gc=False):
    """The fields of one block of lines; None for what it didn't set.

    ``unknown`` counts its lines that are no field of an event stream, ``first_unknown`` is the first of them.
    """

    data: bytes | None
    event: bytes
    id: bytes | None
    retry: int | None
    recorded_at: float | None
    unknown: int
    first_unknown: bytes


def valid_utf8(payload: bytes) -> tuple[bytes, int]:
    """The payload with each invalid UTF-8 sequence replaced by U+FFFD, and how many were replaced.

    What one sequence is follows the WHATWG's decoder and Python's ``errors="replace"``, which agree. A
    valid payload comes back as it is.
    """
    if payload.isascii():
        return payload, 0
    try:
        payload.decode()
    except UnicodeDecodeError:
        text = payload.decode("utf-8", "replace")
        # EF can't continue a sequence, so a U+FFFD that was sent is never part of an invalid one.
        return text.encode(), text.count("\ufffd") - payload.count(b"\xef\xbf\xbd")
    return payload, 0


def recorded_comment(seconds: float) -> bytes:
    """The comment line, LF included, that a recording puts before an event (see :data:`RECORDED_AT`)."""
    return b": turnstream at=%.6f\n" % seconds


def find_border(data: bytes, start: int, has_cr: bool) -> tuple[int, int] | None:
    """Find the blank line that ends the block around ``start``.

    Any line end followed by any line end is one; a CR at the end of ``data`` counts, as the LF that may
    follow it only makes another blank line at the start of the next block.

    Args:
        data: bytes of which ``start`` is inside a block, at or after the last known byte that ends a line.
        start: where to begin.
        has_cr: whether ``data`` has a CR at all; without one the search is much faster.

    Returns:
        Where the blank line starts (after the end of the block's last line) and where it ends, or None.
    """
    if has_cr:
        match = _LINE_END_AND_BLANK.search(data, start)
        return (match.start(1), match.end()) if match else None
    at = data.find(b"\n\n", start)
    return (at + 1, at + 2) if at >= 0 else None


def skip_blank_lines(data: bytes, start: int) -> int:
    """The position of the first byte from ``start`` on that ends no line: there a block starts."""
    match = _BLANK_LINES.match(data, start)
    return match.end() if match else start


def read_block(block: bytes) -> Block:
    """Read the lines of one block (with or without its last line end) by the WHATWG's rules.

    ``retry`` counts only if it is all ASCII digits (at most 640 of them), ``id`` only without NUL.
    """
    if _CR in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    data: list[bytes] = []
    event = first_unknown = b""
    identifier: bytes | None = None
    retry: int | None = None
    recorded_at: float | None = None
    unknown = 0
    for line in block.split(b"\n"):
        # Slices and == instead of startswith: half the time.
        if line[:5] == b"data:":
            data.append(line[6:] if line[5:6] == b" " else line[5:])
            continue
        if line[:6] == b"event:":
            event = line[7:] if line[6:7] == b" " else line[6:]
            continue
        name, colon, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if not name:
            # A comment; or nothing at all, after the block's last line end.
            match = RECORDED_AT.match(line) if colon else None
            if match:
                recorded_at = float(match[1])
        elif name == b"id":
            if 0 not in value:
                identifier = value
        elif name == b"data":
            data.append(b"")
        elif name == b"event":
            event = b""
        elif name == b"retry":
            if value.isdigit() and len(value) <= _MAX_RETRY_DIGITS:
                retry = int(value)
        else:
            unknown += 1
            first_unknown = first_unknown or line
    payload = data[0] if len(data) == 1 else b"\n".join(data) if data else None
    return Block(payload, event, identifier, retry, recorded_at, unknown, first_unknown)
