"""Server-sent events as values, and :class:`Frames`: a run of them that nobody has had to read yet."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, overload

import msgspec

from turnstream.operators.lines import find_border, read_block, skip_blank_lines, valid_utf8

__all__ = ["Frames", "ServerSentEvent", "crlf_payloads", "lf_payloads", "lf_payloads_and_comments"]

_CR: Final = 13

# These find the payloads of a run of plain blocks: comments and blank lines, an event line or none, one data
# line, a blank line. What doesn't fit is taken by the last branch to its very end, so the last payload is empty
# then; one that is really empty sends its run down the exact path, which costs time only.
lf_payloads: Final = re.compile(
    rb"(?:(?::[^\n]*+)?+\n)*+(?:event:[^\n]*+\n)?+data: ?+([^\n]*+)\n\n|[\s\S]+",
).findall
# The same where comments may follow the last event; one that says when the next event came must not, as
# the decoder has to read it.
lf_payloads_and_comments: Final = re.compile(
    rb"(?:(?::[^\n]*+)?+\n)*+(?:event:[^\n]*+\n)?+data: ?+([^\n]*+)\n\n"
    rb"(?:(?::(?! turnstream)[^\n]*+)?+\n)*+|[\s\S]+",
).findall
# The same with CRLF; a lone LF inside of a line has to be ruled out by counting.
crlf_payloads: Final = re.compile(
    rb"(?:(?::[^\r]*+)?+\r\n)*+(?:event:[^\r]*+\r\n)?+data: ?+([^\r]*+)\r\n\r\n"
    rb"(?:(?::(?! turnstream)[^\r]*+)?+\r\n)*+|[\s\S]+",
).findall


class ServerSentEvent(msgspec.Struct, frozen=True, gc=False):
    """One dispatched event.

    Attributes:
        data: the payload, always valid UTF-8; several ``data`` lines are joined by LF.
        event: the event's name, "" if it has none.
        id: the last event id at that point of the stream, "" if there was none yet.
        retry: milliseconds of the last valid ``retry`` line since the event before, None without one.
        recorded_at: seconds since the request, from the last ``RECORDED_AT`` comment since the event before;
            None without one.
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
        payloads: each event's data as it came (maybe not valid UTF-8, see ``valid_utf8``).
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
