"""``decode_ndjson``: JSON without SSE framing becomes the same server-sent events (WIRE.md §1).

One payload a line, the payload in a wrapper (``{"Type": …, "Data": "…"}``), or one whole JSON message as
a gateway answers that ignored ``stream: true``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from turnstream.messages.errors import SSEError
from turnstream.messages.jsonvalue import MAX_RECORD_DEPTH, JSONValueError, UnheldValueError, loads
from turnstream.messages.types import StreamNote
from turnstream.operators.frames import ServerSentEvent
from turnstream.operators.sse import MAX_EVENT_BYTES
from turnstream.operators.stage import Fault, Operator, lift

__all__ = ["NDJSONDecoder", "decode_ndjson"]

_WRAPPED: Final = re.compile(rb'"[Dd]ata"\s*:')
_WHOLE: Final = re.compile(rb'"type"\s*:\s*"message"')
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_Out = Sequence[ServerSentEvent | StreamNote | Fault]


class NDJSONDecoder:
    """The stage. Lines end at LF (a CR before it is dropped), blank lines are skipped.

    A first line that opens an object without closing it makes the whole input one JSON document.

    Args:
        max_event_bytes: a longer line is dropped with a note; bytes.
        strict: it is a fault instead.
    """

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES, strict: bool = False) -> None:
        self._limit = max_event_bytes
        self._strict = strict
        self._parts: list[bytes] = []  # the unfinished line
        self._size = 0  # its bytes so far, dropped ones too
        self._offset = 0  # where it began
        self._number = 0
        self._document = False
        self._first = True

    def skip(self, size: int) -> None:
        """Count ``size`` bytes that were dropped before the first line (a BOM)."""
        self._offset += size

    def feed(self, batch: Sequence[bytes], /) -> _Out:
        """Take chunks of bytes."""
        out: list[Any] = []
        for chunk in batch:
            start = 0
            data = bytes(chunk)
            while not self._document:
                end = data.find(b"\n", start)
                if end < 0:
                    break
                self._hold(data[start:end])
                start = end + 1
                self._line(out, b"\n")
                if out and out[-1].__class__ is Fault:
                    return out
            self._hold(data[start:])
        return out

    def flush(self) -> _Out:
        """The last line counts without its line end."""
        out: list[Any] = []
        if self._size:
            if self._document:
                self._whole(out, b"".join(self._parts))
            else:
                self._line(out, b"")
        return out

    def fail(self, error: Exception, /) -> _Out:
        """The source broke: what is whole counts, lines of what never became a document too."""
        if self._document or _is_json(b"".join(self._parts)):
            return self.flush()
        return ()

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._limit:
            self._parts.append(piece)
        elif self._parts:
            # Over the cap: what was held is let go, the rest of the line is only counted.
            self._parts = []

    def _line(self, out: list[Any], ending: bytes) -> None:
        size, offset = self._size, self._offset
        raw = b"".join(self._parts)
        line = raw.strip()
        self._parts = []
        self._size = 0
        self._offset = offset + size + len(ending)
        if size > self._limit:
            self._too_large(out, size, offset)
            return
        if not line:
            return
        if self._first:
            self._first = False
            if line[:1] == b"{" and ending and not _is_json(line):
                # A pretty-printed document: what looks like its first line isn't one payload.
                self._document = True
                self._parts = [raw, b"\n"]
                self._size = size + 1
                self._offset = offset
                return
        self._payload(out, line, offset)

    def _too_large(self, out: list[Any], size: int, offset: int) -> None:
        self._number += 1
        text = f"a line of {size} bytes is over the limit of {self._limit} bytes and was dropped"
        if self._strict:
            out.append(Fault(SSEError(text, event_number=self._number, byte_offset=offset)))
            return
        out.append(StreamNote(kind="event_too_large", message=text, event_number=self._number, byte_offset=offset))

    def _whole(self, out: list[Any], document: bytes) -> None:
        if self._size > self._limit:
            self._too_large(out, self._size, self._offset)
            return
        if _is_json(document):
            self._payload(out, document.strip(), self._offset)
            return
        lines = document.split(b"\n")
        if not any(line.lstrip()[:1] == b"{" and _is_json(line) for line in lines):
            # A document that was cut off: one payload that can't be read.
            self._payload(out, document.strip(), self._offset)
            return
        # No document after all, but a broken first line: each line for itself.
        offset = self._offset
        for line in lines:
            if line.strip():
                self._payload(out, line.strip(), offset)
            offset += len(line) + 1

    def _payload(self, out: list[Any], line: bytes, offset: int) -> None:
        name = ""
        if _WHOLE.search(line) is not None:
            value = _object(line)
            if value is not None and value.get("type") == "message" and "content" in value:
                # One JSON message: a start that holds its content, and its end.
                for kind, payload in (
                    ("message_start", b'{"type":"message_start","message":' + line + b"}"),
                    ("message_stop", b'{"type":"message_stop"}'),
                ):
                    self._event(out, payload, kind, offset)
                return
        if _WRAPPED.search(line) is not None:
            value = _object(line)
            unwrapped = _unwrap(value) if value is not None else None
            if unwrapped is not None:
                line, name = unwrapped
        self._event(out, line, name, offset)

    def _event(self, out: list[Any], payload: bytes, name: str, offset: int) -> None:
        self._number += 1
        out.append(ServerSentEvent(payload, event=name, number=self._number, offset=offset))


def _is_json(text: bytes) -> bool:
    try:
        loads(text, max_depth=MAX_RECORD_DEPTH)
    except UnheldValueError:
        return True
    except JSONValueError:
        return False
    return True


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = loads(line, keep_surrogates=True, max_depth=MAX_RECORD_DEPTH)
    except JSONValueError:
        return None
    return value if isinstance(value, dict) else None


def _unwrap(value: dict[str, Any]) -> tuple[bytes, str] | None:
    """The payload and the name in a wrapper object, None if it isn't one."""
    for data_key, name_key in (("Data", "Type"), ("data", "event"), ("data", "type")):
        data = value.get(data_key)
        name = value.get(name_key)
        if isinstance(data, str) and (name is None or isinstance(name, str)):
            if data_key == "Data" or data.lstrip()[:1] == "{":
                # Half a surrogate pair stands in a string of the payload: as an escape it is valid UTF-8.
                return _SURROGATE.sub(_escape, data).encode(), name or ""
        elif isinstance(data, dict) and isinstance(name, str) and isinstance(data.get("type"), str):
            # By the standard library in ASCII, which keeps big integers and half surrogate pairs.
            return json.dumps(data, separators=(",", ":")).encode(), name
    return None


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match.group()):04x}"


def decode_ndjson(
    *, max_event_bytes: int = MAX_EVENT_BYTES, strict: bool = False
) -> Operator[bytes, ServerSentEvent | StreamNote]:
    """NDJSON of payloads (also in wrappers), or one JSON message, as server-sent events.

    Args:
        max_event_bytes: a longer line is dropped with a ``stream_note``; bytes.
        strict: such a line ends the stream with an :class:`SSEError`.
    """
    return lift(lambda: NDJSONDecoder(max_event_bytes=max_event_bytes, strict=strict), "decode_ndjson")
