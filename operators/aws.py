"""``decode_aws``: AWS event-stream frames, as Bedrock streams them, become server-sent events.

Bedrock's ``InvokeModelWithResponseStream`` sends binary frames (``application/vnd.amazon.eventstream``), each with
checksums; a ``chunk`` frame holds ``{"bytes": "<base64 of one event's JSON>"}``. Framing and checksums are
botocore's (extra ``turnstream[bedrock]``).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from turnstream.messages.errors import SSEError, TurnstreamError
from turnstream.messages.jsonvalue import JSONValueError, dumps, loads
from turnstream.messages.types import StreamNote
from turnstream.operators.frames import ServerSentEvent
from turnstream.operators.lines import valid_utf8
from turnstream.operators.stage import Fault, Operator, lift

if TYPE_CHECKING:
    from botocore.eventstream import EventStreamBuffer

__all__ = ["CONTENT_TYPE", "AWSDecoder", "decode_aws", "looks_like_aws"]

CONTENT_TYPE: Final = "application/vnd.amazon.eventstream"

_OUTSIDE_PAYLOAD: Final = 16  # prelude (12) and the message's checksum (4)
_FIRST_LENGTHS: Final = 8  # where a frame says how long it and its headers are

# Bedrock's exceptions in the API's words, so that what may be retried is known (WIRE.md §7).
_ERROR_TYPES: Final = {
    "throttlingException": "rate_limit_error",
    "serviceUnavailableException": "overloaded_error",
    "modelTimeoutException": "timeout_error",
    "modelStreamErrorException": "api_error",
    "internalServerException": "api_error",
    "validationException": "invalid_request_error",
    "accessDeniedException": "permission_error",
    "resourceNotFoundException": "not_found_error",
}


class AWSDecoder:
    """The stage.

    Args:
        strict: a frame that can't be read is a fault.

    Raises:
        TurnstreamError: botocore isn't installed.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self._frames = _buffer()
        self._strict = strict
        self._number = 0
        self._offset = 0  # of the first byte that belongs to no finished frame
        self._size = 0  # bytes so far
        self._lost = False

    def feed(self, batch: Sequence[bytes], /) -> Sequence[ServerSentEvent | StreamNote | Fault]:
        """Take chunks of bytes, return the events whose frames end in them."""
        if self._lost:
            return ()
        out: list[ServerSentEvent | StreamNote | Fault] = []
        for chunk in batch:
            self._size += len(chunk)
            self._frames.add_data(bytes(chunk))
        while True:
            try:
                frame = next(self._frames, None)
            except Exception as error:  # noqa: BLE001 - whatever botocore makes of bytes that are no frame
                # Its length can't be trusted, so where the next one begins isn't known.
                self._lost = True
                message = f"an AWS event-stream frame can't be read, nor what follows it: {error}"
                out.append(self._bad(message, "bad_frame"))
                return out
            if frame is None or frame.prelude is None:
                return out
            self._number += 1
            out.append(self._event(frame.headers, frame.payload))
            self._offset += frame.prelude.total_length
            if out[-1].__class__ is Fault:
                self._lost = True
                return out

    def flush(self) -> Sequence[ServerSentEvent | StreamNote | Fault]:
        """The stream ended; inside of a frame, that one is dropped."""
        if self._lost or self._size == self._offset:
            return ()
        self._lost = True
        self._number += 1
        size = self._size - self._offset
        return [
            self._bad(f"the stream ended inside a frame, which was dropped with {size} bytes", "unterminated_event")
        ]

    def fail(self, error: Exception, /) -> Sequence[ServerSentEvent | StreamNote | Fault]:
        """The stream broke, which is no reason to treat a last frame in another way."""
        return self.flush()

    def _event(self, headers: dict[str, Any], payload: bytes) -> ServerSentEvent | StreamNote | Fault:
        kind = headers.get(":message-type", "event")
        if kind == "event":
            data = _inner(payload)
            if data is None:
                return self._bad("a frame of the AWS event stream holds no event", "bad_frame")
            return self._sse(data)
        # "exception" has a modelled type and a JSON payload, "error" a code and a message in its headers.
        name = str(headers.get(":exception-type") or headers.get(":error-code") or "unknown")
        message = headers.get(":error-message") or _message(payload) or name
        error = {"type": _ERROR_TYPES.get(name[:1].lower() + name[1:], name), "message": str(message)}
        return self._sse(dumps({"type": "error", "error": error}), "error")

    def _sse(self, data: bytes, event: str = "") -> ServerSentEvent:
        data, replaced = valid_utf8(data)
        return ServerSentEvent(data, event, "", None, None, self._number, self._offset, replaced)

    def _bad(self, message: str, kind: str) -> StreamNote | Fault:
        where: dict[str, Any] = {"event_number": max(self._number, 1), "byte_offset": self._offset}
        if self._strict:
            return Fault(SSEError(message, **where))
        return StreamNote(kind=kind, message=message, **where)


def _buffer() -> EventStreamBuffer:
    try:
        from botocore.eventstream import EventStreamBuffer
    except ImportError as error:
        raise TurnstreamError(
            "AWS event streams need botocore, which isn't installed", hint="pip install 'turnstream[bedrock]'"
        ) from error
    return EventStreamBuffer()


def _inner(payload: bytes) -> bytes | None:
    """The event's JSON in a chunk's payload."""
    try:
        value = loads(payload)
        encoded = value.get("bytes") if isinstance(value, dict) else None
        return base64.b64decode(encoded, validate=True) if isinstance(encoded, str) else None
    except (JSONValueError, binascii.Error):
        return None


def _message(payload: bytes) -> str | None:
    try:
        value = loads(payload)
    except JSONValueError:
        return payload.decode("utf-8", "replace") or None
    found = value.get("message", value.get("Message")) if isinstance(value, dict) else None
    return found if isinstance(found, str) else None


def looks_like_aws(head: bytes) -> bool | None:
    """Whether bytes begin an AWS event stream; None if there are too few to tell.

    A frame begins with its length, which below 16 MiB has a zero as its first byte: no text has.
    """
    if not head:
        return None
    if head[0] != 0:
        return False
    if len(head) < _FIRST_LENGTHS:
        return None
    total, headers = int.from_bytes(head[:4]), int.from_bytes(head[4:8])
    return total >= _OUTSIDE_PAYLOAD + headers


def decode_aws(*, strict: bool = False) -> Operator[bytes, ServerSentEvent | StreamNote]:
    """Decode the binary frames of AWS event streams (Bedrock) into the server-sent events of the API.

    An exception frame becomes an ``error`` event, in the API's words where there are some
    (``throttlingException`` is ``rate_limit_error``); others keep theirs. Notes: ``bad_frame`` (a checksum that is
    wrong, or a frame without an event), ``unterminated_event`` (the stream ended inside a frame).

    Args:
        strict: these are faults (:class:`SSEError`) instead of notes.

    Raises:
        TurnstreamError: botocore isn't installed (``pip install 'turnstream[bedrock]'``).
    """
    _buffer()
    return lift(lambda: AWSDecoder(strict=strict), "decode_aws")
