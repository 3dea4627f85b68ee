"""``decode_sse``: bytes to server-sent events (WIRE.md §1, lines and events).

Framing never depends on chunking. The decoder keeps nothing but the raw bytes since the last blank line
and reads a block of lines when the blank line that ends it has come, so there is no half-parsed state. Runs
of plain blocks aren't even read: they leave as lazy :class:`Frames`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from turnstream.messages.errors import SSEError
from turnstream.messages.jsonvalue import JSONValueError, loads
from turnstream.messages.types import StreamNote
from turnstream.operators.frames import (
    Frames,
    ServerSentEvent,
    crlf_payloads,
    lf_payloads,
    lf_payloads_and_comments,
)
from turnstream.operators.lines import (
    RECORDED_AT,
    Block,
    find_border,
    read_block,
    recorded_comment,
    skip_blank_lines,
    valid_utf8,
)
from turnstream.operators.stage import Fault, Operator, lift

__all__ = [
    "MAX_EVENT_BYTES",
    "RECORDED_AT",
    "Frames",
    "SSEDecoder",
    "ServerSentEvent",
    "decode_sse",
    "recorded_comment",
    "valid_utf8",
]

MAX_EVENT_BYTES: Final = 64 * 1024 * 1024

_Item = ServerSentEvent | StreamNote | Fault

_NOTHING: Final[tuple[Any, ...]] = ()
_BOM: Final = b"\xef\xbb\xbf"
_CR: Final = 13
_LINE_ENDS: Final = (b"\n", b"\r")

# From this many bytes on a block that isn't finished is grown in place instead of joined to each chunk.
_LONG: Final = 4096
_BRIEF: Final = 2048  # bytes of a chunk that likely is one event or two


def decode_sse(
    *,
    final: Literal["discard", "if_json"] = "if_json",
    max_event_bytes: int = MAX_EVENT_BYTES,
    strict: bool = False,
) -> Operator[bytes, ServerSentEvent | StreamNote]:
    """Decode a stream of bytes (``bytes``, ``bytearray`` or ``memoryview`` chunks) as server-sent events.

    Always UTF-8, whatever a header says. The size of an event is what its block of lines takes in the
    stream: from the first byte after the blank line before, comments included, up to the blank line that
    ends it, excluding it; a BOM doesn't count.

    Notes that it emits: ``event_too_large`` (dropped, see ``max_event_bytes``), ``unterminated_event`` (the
    stream ended inside an event with data, which was dropped), ``not_sse`` (the stream had lines that are
    no field of an event stream, and no event).

    Args:
        final: what to do with a last event that no blank line ends. ``discard`` drops it, as the WHATWG
            does; ``if_json`` dispatches it if its data is a JSON value (several recorded streams end so).
        max_event_bytes: an event larger than this is dropped, decoding goes on after it. It takes a number
            of its own, its ``id`` and ``retry`` don't count. At most about this much is kept in memory.
        strict: an event that is too large, or (with ``if_json``) that the stream's end cuts off, is a
            fault (:class:`SSEError`) instead of a note.

    Returns:
        An operator; for runs of plain blocks its batches are :class:`Frames`.

    Raises:
        ValueError: an argument is out of range.
    """
    SSEDecoder(final=final, max_event_bytes=max_event_bytes, strict=strict)
    if final == "if_json" and max_event_bytes == MAX_EVENT_BYTES and not strict:
        return lift(SSEDecoder, "decode_sse")  # a fresh one an answer: passing on the defaults costs as much
    return lift(lambda: SSEDecoder(final=final, max_event_bytes=max_event_bytes, strict=strict), "decode_sse")


class SSEDecoder:
    """The stage of :func:`decode_sse`, which says what the arguments mean."""

    def __init__(
        self,
        *,
        final: Literal["discard", "if_json"] = "if_json",
        max_event_bytes: int = MAX_EVENT_BYTES,
        strict: bool = False,
    ) -> None:
        if final not in ("discard", "if_json"):
            raise ValueError(f'final is "discard" or "if_json", not {final!r}')
        if max_event_bytes < len(_BOM):
            raise ValueError(f"max_event_bytes must be at least {len(_BOM)}, not {max_event_bytes}")
        self._final = final
        self._limit = max_event_bytes
        self._short = min(_LONG, max_event_bytes)
        self.brief = min(_BRIEF, max_event_bytes)
        self._strict = strict
        self.number = 0  # of the last event, dispatched or dropped as too large
        self._dropped = 0
        self.last_number = self.last_offset = 0  # of the last event that took the short cut
        self.offset = 0  # in the stream, of the first byte kept (or already dropped) of the open block
        # The open block is in exactly one of these: short, long, or too large to keep (then only its last
        # byte is in _rest, if that ends a line).
        self.rest = b""
        self._long: bytearray | None = None
        self._gone = 0
        # What lines said that stands until the next event, or for good.
        self.last_id = ""
        self._retry: int | None = None
        self._recorded_at: float | None = None
        self._unknown = 0
        self._first_unknown = b""
        # Whether anything of the above keeps the next chunk from the fast path.
        self.odd = False

    def feed(self, batch: Sequence[bytes], /) -> Sequence[_Item]:
        """Take chunks of the stream, return the events that end in them."""
        chunk = batch[0] if len(batch) == 1 else b"".join(batch)
        if chunk.__class__ is not bytes:
            # memoryview refuses str and int, which bytes() would take.
            chunk = memoryview(chunk).tobytes()
        rest = self.rest
        size = len(chunk)
        # First what a live stream sends, a chunk for each event or two: no cutting, a third less time. (A
        # chunk that doesn't end with its event is searched twice, so long ones aren't tried.)
        if 0 < size <= self.brief and not rest and not self.odd and _CR not in chunk:
            payloads = lf_payloads(chunk)
            if payloads[-1]:
                number = self.number
                offset = self.offset
                self.number = number + len(payloads)
                self.offset = offset + size
                return Frames(payloads, chunk, number + 1, offset, self.last_id)
        if self.odd:
            return self._feed_odd(chunk)
        if rest:
            chunk = rest + chunk
            size = len(chunk)
        if _CR in chunk:
            return self._feed_crlf(chunk)
        end = chunk.rfind(b"\n\n") + 2
        if end < 2 and size <= self._short:
            self.rest = chunk
            return _NOTHING
        if end < 2 or size > self._limit:
            return self._exactly(chunk)
        head = chunk if end == size else chunk[:end]
        payloads = lf_payloads(head)
        if not payloads[-1]:
            payloads = lf_payloads_and_comments(head)
            if not payloads[-1]:
                return self._exactly(chunk)
        number = self.number
        offset = self.offset
        self.number = number + len(payloads)
        self.offset = offset + end
        if rest or end != size:
            self.rest = chunk[end:]
        return Frames(payloads, head, number + 1, offset, self.last_id)

    def last_place(self) -> tuple[int | None, int | None]:
        """Number and offset of the last event that took the short cut."""
        return self.last_number, self.last_offset

    def _feed_crlf(self, chunk: bytes) -> Sequence[_Item]:
        end = chunk.rfind(b"\r\n\r\n") + 4
        if end < 4 or len(chunk) > self._limit:
            return self._exactly(chunk)
        head = chunk[:end]
        rest = chunk[end:]
        payloads = crlf_payloads(head)
        # A lone CR or LF in the rest may end a block, too.
        if not payloads[-1] or head.count(b"\n") != head.count(b"\r") or find_border(rest, 0, True):
            return self._exactly(chunk)
        number = self.number
        offset = self.offset
        self.number = number + len(payloads)
        self.offset = offset + end
        self.rest = rest
        return Frames(payloads, head, number + 1, offset, self.last_id)

    def flush(self) -> Sequence[_Item]:
        """The stream ended: dispatch or drop an event that no blank line ends."""
        if not self.rest and not self.odd and self.number > self._dropped:
            return _NOTHING  # it ended behind a blank line, as it should
        out: list[_Item] = []
        if self._gone:
            self._too_large(self._gone, self.offset, out)
        else:
            if self._long is None:
                out += self._exactly(self.rest)  # no event, but a BOM and blank lines go
            rest = self.rest or bytes(self._long or b"")
            if rest:
                self._end_inside(read_block(rest), out)
        self.rest, self._long, self._gone, self.odd = b"", None, 0, False
        if out and out[-1].__class__ is Fault:
            return out
        if self.number == self._dropped and self._unknown:
            line = self._first_unknown[:60].decode("utf-8", "replace")
            message = f"no server-sent event came, but other lines ({self._unknown}), the first: {line!r}"
            out.append(StreamNote(kind="not_sse", message=message, byte_offset=0))
            self._unknown = 0
        return out

    def fail(self, error: Exception, /) -> Sequence[_Item]:
        """The stream broke, which is no reason to treat a last event in another way than :meth:`flush`."""
        return self.flush()

    def _end_inside(self, block: Block, out: list[_Item]) -> None:
        self._note_lines(block)
        if block.data is None:
            return
        if self._final == "if_json":
            try:
                loads(block.data)
            except JSONValueError:
                pass
            else:
                self._dispatch(block, self.offset, out)
                return
        if block.data and block.data != b"[DONE]":
            message = f"the stream ended inside an event, which was dropped with {len(block.data)} bytes of data"
            number, offset = self.number + 1, self.offset
            if self._strict and self._final == "if_json":
                out.append(Fault(SSEError(message, event_number=number, byte_offset=offset)))
            else:
                out.append(
                    StreamNote(kind="unterminated_event", message=message, event_number=number, byte_offset=offset)
                )

    def _feed_odd(self, chunk: bytes) -> Sequence[_Item]:
        if not chunk:
            return _NOTHING
        if self._long is not None:
            return self._feed_long(self._long, chunk)
        if self._gone:
            return self._feed_gone(chunk)
        return self._exactly(self.rest + chunk)

    def _feed_long(self, long: bytearray, chunk: bytes) -> Sequence[_Item]:
        """Only the new bytes are searched, so that a block that drips in costs its length and no more."""
        window = bytes(long[-1:]) + chunk
        long += chunk
        if find_border(window, 0, _CR in window) is None:
            if len(long) <= self._limit:
                return _NOTHING
            return self._give_up(len(long), long[-1:])
        whole = bytes(long)
        long.clear()
        self._long = None
        self.odd = self._is_odd()
        return self.feed((whole,))

    def _feed_gone(self, chunk: bytes) -> Sequence[_Item]:
        window = self.rest + chunk
        before = self._gone - len(self.rest)
        border = find_border(window, 0, _CR in window)
        if border is None:
            return self._give_up(before + len(window), window[-1:])
        size = before + border[0]
        out: list[_Item] = []
        self._too_large(size, self.offset, out)
        self.offset += before + border[1]
        self.rest, self._gone, self.odd = b"", 0, False
        out += self.feed((window[border[1] :],))
        return out

    def _give_up(self, size: int, last: bytes | bytearray) -> Sequence[_Item]:
        """The open block is too large to keep; ``size`` of it has come, the byte ``last`` at the end."""
        if self._strict:
            return [self._fault(self.offset)]
        self._gone = size
        self.rest = bytes(last) if last in (b"\r", b"\n") else b""
        self._long = None
        self.odd = True
        return _NOTHING

    def _exactly(self, data: bytes) -> Sequence[_Item]:
        """Read the blocks of ``data``, which starts at a block's start, and keep what is left."""
        out: list[_Item] = []
        has_cr = _CR in data
        start = self.offset
        at = len(_BOM) if start == 0 and data.startswith(_BOM) else 0
        at = skip_blank_lines(data, at)
        while (border := find_border(data, at, has_cr)) is not None:
            size = border[0] - at
            if size <= self._limit:
                block = read_block(data[at : border[0]])
                self._note_lines(block)
                if block.data is not None:
                    self._dispatch(block, start + at, out)
            elif self._strict:
                out.append(self._fault(start + at))
                return out
            else:
                self._too_large(size, start + at, out)
            at = border[1]
            if data.startswith(_LINE_ENDS, at):
                at = skip_blank_lines(data, at)
        self.offset = start + at
        rest = data[at:]
        if len(rest) > self._limit:
            out += self._give_up(len(rest), rest[-1:])
            return out
        if len(rest) > _LONG:
            self.rest = b""
            self._long = bytearray(rest)
        else:
            self.rest = rest
        self.odd = self._is_odd()
        return out

    def _is_odd(self) -> bool:
        return self._long is not None or self._retry is not None or self._recorded_at is not None

    def _note_lines(self, block: Block) -> None:
        if block.id is not None:
            self.last_id = block.id.decode("utf-8", "replace")
        if block.retry is not None:
            self._retry = block.retry
        if block.recorded_at is not None:
            self._recorded_at = block.recorded_at
        if block.unknown:
            self._unknown += block.unknown
            self._first_unknown = self._first_unknown or block.first_unknown

    def _dispatch(self, block: Block, offset: int, out: list[_Item]) -> None:
        assert block.data is not None
        self.number += 1
        data, replaced = valid_utf8(block.data)
        event = block.event.decode("utf-8", "replace")
        out.append(
            ServerSentEvent(data, event, self.last_id, self._retry, self._recorded_at, self.number, offset, replaced)
        )
        self._retry = self._recorded_at = None

    def _too_large(self, size: int, offset: int, out: list[_Item]) -> None:
        self.number += 1
        self._dropped += 1
        self._retry = self._recorded_at = None
        message = f"an event of {size} bytes was dropped: the limit is {self._limit} bytes"
        out.append(StreamNote(kind="event_too_large", message=message, event_number=self.number, byte_offset=offset))

    def _fault(self, offset: int) -> Fault:
        # Raised as soon as the limit is passed, so the full size isn't known, and naming what has come
        # would depend on the chunks.
        message = f"an event is larger than the limit of {self._limit} bytes"
        hint = "raise max_event_bytes, or decode without strict to drop such events"
        return Fault(SSEError(message, event_number=self.number + 1, byte_offset=offset, hint=hint))
