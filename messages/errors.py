"""The errors of turnstream, typed, in one tree.

    TurnstreamError
    ├── SSEError               bytes that can't be framed (an event over the size cap)
    ├── EventError             one event's payload can't be read
    ├── ProtocolError          events that contradict each other (strict), or an answer that contradicts itself
    ├── IncompleteStreamError  the answer ended before its end
    │   ├── EmptyStreamError   no event came at all
    │   └── NotAStreamError    what came isn't an Anthropic stream
    ├── StreamIdleTimeout      the source was silent for too long
    ├── APIError               the API said so: type, status, request id, retryable
    ├── AbortedError           the run was aborted by its owner
    ├── SourceError            a source can't be opened or read
    │   └── TransportError     the connection to the API failed or broke off
    ├── TranscriptError        a transcript can't be written or read
    ├── TrainingDataError      a conversation with a made-up tool result isn't exported
    └── SinkError              a sink raised, hung or was refused

Each says what happened and, where it is known, where (file, event number, byte offset), what was
kept and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = [
    "APIError",
    "AbortedError",
    "EmptyStreamError",
    "EventError",
    "IncompleteStreamError",
    "NotAStreamError",
    "ProtocolError",
    "SSEError",
    "SinkError",
    "SourceError",
    "StreamIdleTimeout",
    "TrainingDataError",
    "TranscriptError",
    "TransportError",
    "TurnstreamError",
]


class TurnstreamError(Exception):
    """Base of all errors raised or delivered by turnstream.

    Args:
        message: what happened, one sentence.
        event_number: 1-based ordinal of the server-sent event concerned, if known.
        byte_offset: offset of that event's first byte in the decoded stream, if known.
        file: path or name of the input, if known.
        kept: what survived (content blocks or items), possibly empty.
        hint: what the reader can do about it.
    """

    retryable: bool = False

    def __init__(
        self,
        message: str,
        *,
        event_number: int | None = None,
        byte_offset: int | None = None,
        file: str | None = None,
        kept: Sequence[Any] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.event_number = event_number
        self.byte_offset = byte_offset
        self.file = file
        self.kept = kept
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls the class with `args`, which lack the keyword-only ones.
        return _rebuild, (type(self), self.args), self.__dict__

    def where(self) -> str:
        """The known part of the position, e.g. ``answer.sse, event 7, byte 812``; empty if unknown."""
        parts: list[str] = []
        if self.file is not None:
            parts.append(self.file)
        if self.event_number is not None:
            parts.append(f"event {self.event_number}")
        if self.byte_offset is not None:
            parts.append(f"byte {self.byte_offset}")
        return ", ".join(parts)

    def __str__(self) -> str:
        where = self.where()
        text = f"{self.message} ({where})" if where else self.message
        return f"{text}; {self.hint}" if self.hint else text


def _rebuild(cls: type[TurnstreamError], args: tuple[Any, ...]) -> TurnstreamError:
    """A copied or unpickled error before its attributes are set."""
    error = cls.__new__(cls, *args)
    error.args = args
    return error


class SSEError(TurnstreamError):
    """Bytes that can't be framed as server-sent events, e.g. an event over the size cap."""


class EventError(TurnstreamError):
    """One event's payload can't be read: broken JSON, not an object, a start without its block."""


class ProtocolError(TurnstreamError):
    """Events that contradict each other, or an answer that contradicts itself.

    ``kind`` is a stable word (``delta_after_stop``, ``index_missing``, ``tool_use_without_block`` …).
    """

    def __init__(self, message: str, *, kind: str, retryable: bool = False, **where: Any) -> None:
        super().__init__(message, **where)
        self.kind = kind
        self.retryable = retryable


class IncompleteStreamError(TurnstreamError):
    """The answer ended before its end (WIRE.md §1, attempts and ends). Retryable."""

    retryable = True


class EmptyStreamError(IncompleteStreamError):
    """No event came at all."""


class NotAStreamError(IncompleteStreamError):
    """What came isn't an Anthropic event stream (HTML, an OpenAI stream …)."""

    retryable = False


class StreamIdleTimeout(TurnstreamError):
    """The source was silent for longer than the idle limit. Retryable."""

    retryable = True


class APIError(TurnstreamError):
    """The API reported an error.

    Attributes:
        error_type: the API's word (``overloaded_error``, ``invalid_request_error`` …), ``unknown`` if it gave none.
        status: HTTP status, if known.
        request_id: the API's request id, if known.
        retryable: whether the same request may succeed later.
    """

    def __init__(
        self,
        message: str,
        *,
        error_type: str,
        status: int | None = None,
        request_id: str | None = None,
        retryable: bool = False,
        **where: Any,
    ) -> None:
        super().__init__(message, **where)
        self.error_type = error_type
        self.status = status
        self.request_id = request_id
        self.retryable = retryable


class AbortedError(TurnstreamError):
    """The run was aborted by its owner; ``reason`` is the owner's word for why."""

    def __init__(self, reason: str = "aborted", **where: Any) -> None:
        super().__init__(f"aborted: {reason}", **where)
        self.reason = reason


class SourceError(TurnstreamError):
    """A source can't be opened or read."""


class TransportError(SourceError):
    """The connection to the API couldn't be made, or broke while the answer came.

    Attributes:
        retryable: whether the same request may succeed later (not if the certificate is wrong).
    """

    retryable = True

    def __init__(self, message: str, *, retryable: bool = True, **where: Any) -> None:
        super().__init__(message, **where)
        self.retryable = retryable


class TranscriptError(TurnstreamError):
    """A transcript can't be written or read."""


class TrainingDataError(TurnstreamError):
    """A conversation holds a made-up tool result, so it isn't exported (WIRE.md §2).

    Attributes:
        index: which item, from 0.
        path: where in it, e.g. ``$.message.content[0].content``.
        uuid: its uuid, if it has one.
    """

    def __init__(self, message: str, *, index: int, path: str, uuid: str | None = None, **where: Any) -> None:
        super().__init__(message, **where)
        self.index = index
        self.path = path
        self.uuid = uuid


class SinkError(TurnstreamError):
    """A sink raised, hung or was refused; ``sink`` is its name."""

    def __init__(self, message: str, *, sink: str, **where: Any) -> None:
        super().__init__(message, **where)
        self.sink = sink
