"""How a failed answer is told: as an item, and as an exception for strict mode (WIRE.md §1, §7)."""

from __future__ import annotations

import re
from typing import Any, Final

from turnstream.messages.errors import (
    AbortedError,
    APIError,
    EmptyStreamError,
    IncompleteStreamError,
    NotAStreamError,
    ProtocolError,
    SourceError,
    StreamIdleTimeout,
    TransportError,
    TurnstreamError,
)
from turnstream.messages.events import ErrorEvent
from turnstream.messages.types import ResponseFailed

__all__ = ["api_failure", "as_exception", "error_object", "is_retryable", "outcome_of"]

# Same request, later: may succeed. Everything else the API names (invalid_request_error,
# authentication_error, permission_error, not_found_error, request_too_large, billing_error …) won't.
_RETRYABLE: Final = frozenset({"overloaded_error", "rate_limit_error", "api_error", "timeout_error"})


def is_retryable(error_type: str) -> bool:
    """Whether an API error of this type may pass when the same request is sent later (WIRE.md §7)."""
    return error_type in _RETRYABLE


def api_failure(
    event: ErrorEvent, kept: list[Any], event_number: int | None, byte_offset: int | None
) -> ResponseFailed:
    """The failure that an ``error`` event reports; an error without a type is ``unknown``."""
    error = event.error
    kind = "unknown"
    message = "the API reported an error without a message"
    if isinstance(error, dict):
        if isinstance(error.get("type"), str) and error["type"]:
            kind = error["type"]
        if isinstance(error.get("message"), str) and error["message"]:
            message = error["message"]
    elif isinstance(error, str) and error:
        message = error
    told: dict[str, Any] = {"type": kind, "message": message, "retryable": is_retryable(kind)}
    request_id = (event.extra or {}).get("request_id")
    if isinstance(request_id, str):
        told["requestId"] = request_id
    return ResponseFailed(
        error=told,
        kept=kept,
        outcome=f"api_error({kind})",
        event_number=event_number,
        byte_offset=byte_offset,
    )


def error_object(error: Exception) -> dict[str, Any]:
    """The ``error`` object of a failure that an exception caused (a broken transport, an abort …)."""
    if isinstance(error, APIError):
        kind = error.error_type
    elif isinstance(error, AbortedError):
        kind = "aborted"
    else:
        kind = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(error).__name__).lower()
    told: dict[str, Any] = {"type": kind, "message": str(error) or type(error).__name__}
    retryable = getattr(error, "retryable", None)
    told["retryable"] = retryable if isinstance(retryable, bool) else isinstance(error, OSError)
    for name, key in (("status", "status"), ("request_id", "requestId")):
        value = getattr(error, name, None)
        if value is not None:
            told[key] = value
    return told


def outcome_of(error: Exception, finished: int) -> str:
    """The outcome word of an answer that ``error`` ended after ``finished`` blocks."""
    return f"api_error({error.error_type})" if isinstance(error, APIError) else f"incomplete({finished})"


def as_exception(failed: ResponseFailed, *, file: str | None = None) -> TurnstreamError:
    """The typed error that says the same as a ``response_failed`` item."""
    error = failed.error
    kind = str(error.get("type"))
    message = str(error.get("message"))
    where: dict[str, Any] = {
        "event_number": failed.event_number,
        "byte_offset": failed.byte_offset,
        "file": file,
        "kept": failed.kept,
    }
    outcome = failed.outcome
    if outcome.startswith("api_error("):
        return APIError(
            f"{kind}: {message}",
            error_type=kind,
            status=error.get("status"),
            request_id=error.get("requestId"),
            retryable=bool(error.get("retryable")),
            **where,
        )
    if outcome.startswith("protocol_error("):
        return ProtocolError(message, kind=kind, retryable=bool(error.get("retryable")), **where)
    if outcome == "not_a_stream":
        return NotAStreamError(message, **where)
    if outcome == "empty":
        return EmptyStreamError(message, **where)
    if kind == "transport_error":
        return TransportError(message, retryable=bool(error.get("retryable")), **where)
    if kind == "stream_idle_timeout":
        return StreamIdleTimeout(message, **where)
    if kind == "source_error":
        return SourceError(message, **where)
    return IncompleteStreamError(message, **where)
