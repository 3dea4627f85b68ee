"""Server-sent events as values, one block of lines at a time (WIRE.md §1, lines and events).

A *block* is what stands between two blank lines. :func:`find_border` finds its end, :func:`read_block`
reads its lines as the WHATWG says (HTML, "Interpreting an event stream"), and :class:`Frames` is a run of
blocks that nobody has had to read yet.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, overload

import msgspec

__all__ = [
    "RECORDED_AT",
    "Block",
    "Frames",
    "ServerSentEvent",
    "find_border",
    "read_block",
    "recorded_comment",
    "skip_blank_lines",
    "valid_utf8",
]

RECORDED_AT: Final = re.compile(rb"^: turnstream at=([0-9]{1,12}(?:\.[0-9]{1,9})?)\r?$", re.MULTILINE)
"""The comment line of our recordings that says when the next event came: seconds since the request."""

_LINE_END_AND_BLANK: Final = re.compile(rb"(?:\r\n|\r(?!\n)|\n)(\r\n|\r|\n)")
_CR: Final = 13
_BLANK_LINES: Final = re.compile(rb"[\r\n]*+")
# CPython refuses to read longer numbers when its own limit is set as low as it goes (sys.set_int_max_str_digits).
_MAX_RETRY_DIGITS: Final = 640


class ServerSentEvent(msgspec.Struct, frozen=True, gc=False):
    """One dispatched event.

    Attributes:
        data: the payload, always valid UTF-8; several ``data`` lines are joined by LF.
        event: the event's name, "" if it has none.
        id: the last event id at that point of the stream, "" if there was none yet.
        retry: milliseconds of the last valid ``retry`` line since the event before, None without one.
        recorded_at: seconds since the request, from the last :data:`RECORDED_AT` comment since the event
            before; None without one.
        number: 1-based ordinal of the event in its stream.
        offset: offset in bytes of the first byte of the event's block (which may be a comment).
        replaced: how many invalid UTF-8 sequences of the payload became U+FFFD.
    """

    data: bytes
    event: str = ""
    id: str = ""
    retry: int | None = None
    recorded_at: float | None = None
    number: int = 0
    offset: int = 0
    replaced: int = 0

    @property
    def text(self) -> str:
        """The payload as text."""
        return self.data.decode("utf-8", "replace")


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


if TYPE_CHECKING:
    _Run = Sequence[ServerSentEvent]
else:
    # A Struct because a live stream makes one per event: 35 ns against 100 for a class with slots (see Batch).
    class _Run(msgspec.Struct, gc=False, eq=False):
        """What Frames is made of at run time."""


class Frames(_Run):
    """A lazy run of plain events: all LF or all CRLF, no ``id``, no ``retry``, one data line each.

    A consumer that needs only payloads takes ``payloads``; indexing and iterating make the
    ServerSentEvents, all of them the first time.

    Attributes:
        payloads: each event's data as it came (maybe not valid UTF-8, see :func:`valid_utf8`).
        head: the raw bytes of the run.
        first_number: the first event's number.
        first_offset: the offset in the stream of the first byte of ``head``.
        last_id: the last event id, the same for all of the run.
    """

    payloads: list[bytes]
    head: bytes
    first_number: int
    first_offset: int
    last_id: str
    _made: list[ServerSentEvent] | None = None

    if TYPE_CHECKING:

        def __init__(
            self, payloads: list[bytes], head: bytes, first_number: int, first_offset: int, last_id: str
        ) -> None: ...

    def __len__(self) -> int:
        return len(self.payloads)

    def __iter__(self) -> Iterator[ServerSentEvent]:
        return iter(self.events())

    @overload
    def __getitem__(self, index: int) -> ServerSentEvent: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ServerSentEvent]: ...
    def __getitem__(self, index: int | slice) -> ServerSentEvent | Sequence[ServerSentEvent]:
        return self.events()[index]

    def __contains__(self, item: object) -> bool:
        return item in self.events()

    def __reversed__(self) -> Iterator[ServerSentEvent]:
        return reversed(self.events())

    def __repr__(self) -> str:
        return f"<Frames {self.first_number}..{self.first_number + len(self.payloads) - 1}>"

    def index(self, value: object, start: int = 0, stop: int = sys.maxsize) -> int:
        """The index of the first event equal to ``value``; ValueError without one."""
        return self.events().index(value, start, stop)  # type: ignore[arg-type]

    def count(self, value: object) -> int:
        """How many events are equal to ``value``."""
        return self.events().count(value)  # type: ignore[arg-type]

    def name(self, index: int) -> str:
        """The event's name, "" if it has none."""
        return self.events()[index].event

    def number(self, index: int) -> int:
        """The event's 1-based number in its stream."""
        return self.first_number + range(len(self.payloads))[index]

    def offset(self, index: int) -> int:
        """The offset in the stream of the first byte of the event's block."""
        return self.events()[index].offset

    def events(self) -> list[ServerSentEvent]:
        """The events themselves, read the first time somebody asks; not to be changed."""
        if self._made is None:
            self._made = list(_events_of(self))
        return self._made


if not TYPE_CHECKING:
    Sequence.register(Frames)


def _events_of(frames: Frames) -> Iterator[ServerSentEvent]:
    """Read a run exactly, block by block; a run holds nothing but whole blocks."""
    head = frames.head
    has_cr = _CR in head
    number = frames.first_number
    recorded_at: float | None = None
    at = skip_blank_lines(head, 0)
    while (border := find_border(head, at, has_cr)) is not None:
        block = read_block(head[at : border[0]])
        if block.recorded_at is not None:
            recorded_at = block.recorded_at
        if block.data is not None:
            data, replaced = valid_utf8(block.data)
            event = block.event.decode("utf-8", "replace")
            offset = frames.first_offset + at
            yield ServerSentEvent(data, event, frames.last_id, None, recorded_at, number, offset, replaced)
            number += 1
            recorded_at = None
        at = skip_blank_lines(head, border[1])
