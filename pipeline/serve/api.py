"""The small replies of the API that aren't answers of a model: errors, the list of models, a count of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from turnstream.messages.jsonvalue import JSONValueError, dumps, loads
from turnstream.serve.faults import ERROR_TYPES

__all__ = ["STATUS_OF", "Refusal", "count_tokens", "error_object", "listed", "model", "read_request"]

_MESSAGES: Final[dict[int, str]] = {
    429: "This request would exceed your rate limit",
    529: "Overloaded",
}
_BYTES_A_TOKEN: Final = 4
_CREATED: Final = "2025-01-01T00:00:00Z"
STATUS_OF: Final[dict[str, int]] = {
    **{error_type: status for status, error_type in reversed(ERROR_TYPES.items())},
    "billing_error": 402,
    "timeout_error": 504,
}
"""The status that goes with an error type."""


class Refusal(Exception):
    """A request that isn't answered.

    Args:
        status: the HTTP status.
        message: why.
        error_type: the API's word, default the usual one of the status.
    """

    def __init__(self, status: int, message: str, error_type: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.error = error_object(status, message, error_type)


def error_object(status: int, message: str | None = None, error_type: str | None = None) -> dict[str, Any]:
    """The ``error`` of an error reply, ``{"type", "message"}``, with what the API says to that status."""
    return {
        "type": error_type or ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error"),
        "message": message or _MESSAGES.get(status, f"turnstream serve: status {status} as asked for"),
    }


def read_request(body: bytes) -> dict[str, Any]:
    """The body of a request to the Messages API, looked at lightly.

    Raises:
        Refusal: it is no JSON object, or lacks a model or messages, or one of them is of the wrong type.
    """
    try:
        request = loads(body)
    except JSONValueError as error:
        raise Refusal(400, f"The request body is not valid JSON: {error}") from None
    if not isinstance(request, dict):
        raise Refusal(400, "The request body is not a JSON object")
    for field, kind, what in (("model", str, "string"), ("messages", list, "list")):
        if field not in request:
            raise Refusal(400, f"{field}: Field required")
        if not isinstance(request[field], kind):
            raise Refusal(400, f"{field}: Input should be a valid {what}")
    if not isinstance(request.get("stream", False), bool):
        raise Refusal(400, "stream: Input should be a valid boolean")
    return request


def count_tokens(request: dict[str, Any]) -> dict[str, Any]:
    """About how many tokens a request has: a quarter of its bytes as JSON, no tokenizer."""
    counted = {key: request[key] for key in ("system", "messages", "tools") if key in request}
    return {"input_tokens": max(1, len(dumps(counted)) // _BYTES_A_TOKEN)}


def model(name: str) -> dict[str, Any]:
    """One model as the API describes it."""
    return {"type": "model", "id": name, "display_name": name, "created_at": _CREATED}


def listed(names: Sequence[str]) -> dict[str, Any]:
    """The list of models, on one page."""
    first, last = (names[0], names[-1]) if names else (None, None)
    return {"data": [model(name) for name in names], "has_more": False, "first_id": first, "last_id": last}
