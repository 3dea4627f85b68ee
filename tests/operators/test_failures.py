"""Failures as items and as exceptions (WIRE.md §1 and §7)."""

from __future__ import annotations

from typing import Any

import pytest

from turnstream.messages import (
    AbortedError,
    APIError,
    EmptyStreamError,
    ErrorEvent,
    IncompleteStreamError,
    NotAStreamError,
    ProtocolError,
    ResponseFailed,
    SourceError,
    SSEError,
    StreamIdleTimeout,
    TransportError,
    TurnstreamError,
)
from turnstream.operators import as_exception, is_retryable
from turnstream.operators.failures import api_failure, error_object, outcome_of


@pytest.mark.parametrize(
    ("kind", "retryable"),
    [
        ("overloaded_error", True),
        ("rate_limit_error", True),
        ("api_error", True),
        ("timeout_error", True),
        ("invalid_request_error", False),
        ("authentication_error", False),
        ("permission_error", False),
        ("not_found_error", False),
        ("request_too_large", False),
        ("billing_error", False),
        ("unknown", False),
        ("", False),
    ],
)
def test_which_api_errors_may_pass_later(kind: str, retryable: bool) -> None:
    assert is_retryable(kind) is retryable
    failed = api_failure(ErrorEvent(error={"type": kind, "message": "m"}), [], None, None)
    assert failed.error["retryable"] is retryable


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "x", "message": "m"}, "x"),
        ({"message": "m"}, "unknown"),
        ({"type": "", "message": "m"}, "unknown"),
        ({"type": 429, "message": "m"}, "unknown"),
        ({"type": None}, "unknown"),
        ({}, "unknown"),
        (None, "unknown"),
        ("a sentence", "unknown"),
        ([1], "unknown"),
    ],
)
def test_an_error_without_a_type_is_unknown(error: Any, kind: str) -> None:
    failed = api_failure(ErrorEvent(error=error), ["kept"], 3, 9)
    assert failed.outcome == f"api_error({kind})"
    assert failed.error["type"] == kind
    assert isinstance(failed.error["message"], str)
    assert failed.error["message"]
    assert (failed.kept, failed.event_number, failed.byte_offset) == (["kept"], 3, 9)


def test_what_the_api_said_is_told() -> None:
    assert api_failure(ErrorEvent(error="a sentence"), [], None, None).error["message"] == "a sentence"
    event = ErrorEvent(error={"type": "x", "message": "m"}, extra={"request_id": "req_1"})
    assert api_failure(event, [], None, None).error == {
        "type": "x",
        "message": "m",
        "retryable": False,
        "requestId": "req_1",
    }


class ClientPayloadError(Exception):
    """Called like a transport's."""


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        (StreamIdleTimeout("silent"), "stream_idle_timeout", True),
        (SSEError("too large"), "sse_error", False),
        (SourceError("gone"), "source_error", False),
        (IncompleteStreamError("cut"), "incomplete_stream_error", True),
        (AbortedError("user"), "aborted", False),
        (APIError("busy", error_type="overloaded_error", retryable=True), "overloaded_error", True),
        (ConnectionResetError("reset"), "connection_reset_error", True),
        (TimeoutError(), "timeout_error", True),
        (OSError(5, "io"), "os_error", True),
        (ValueError("x"), "value_error", False),
        (ClientPayloadError("x"), "client_payload_error", False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_exception_as_an_error_object(error: Exception, kind: str, retryable: bool) -> None:
    told = error_object(error)
    assert (told["type"], told["retryable"]) == (kind, retryable)
    assert told["message"]


def test_status_and_request_id_are_told_where_known() -> None:
    told = error_object(APIError("busy", error_type="x", status=529, request_id="req_1"))
    assert (told["status"], told["requestId"]) == (529, "req_1")
    assert set(error_object(ValueError("x"))) == {"type", "message", "retryable"}


def test_the_word_of_an_answer_that_an_exception_ended() -> None:
    assert outcome_of(OSError("x"), 2) == "incomplete(2)"
    assert outcome_of(APIError("x", error_type="overloaded_error"), 2) == "api_error(overloaded_error)"


def failed(outcome: str, **error: Any) -> ResponseFailed:
    return ResponseFailed(
        error={"type": "t", "message": "m", **error}, outcome=outcome, kept=[1], event_number=4, byte_offset=7
    )


@pytest.mark.parametrize(
    ("item", "cls", "retryable"),
    [
        (failed("incomplete(2)", retryable=True), IncompleteStreamError, True),
        (failed("empty", retryable=True), EmptyStreamError, True),
        (failed("not_a_stream"), NotAStreamError, False),
        (failed("protocol_error(t)", retryable=True), ProtocolError, True),
        (failed("protocol_error(t)"), ProtocolError, False),
        (failed("api_error(t)", retryable=True), APIError, True),
        (failed("api_error(t)", retryable=False), APIError, False),
    ],
)
def test_a_failure_as_an_exception(item: ResponseFailed, cls: type[TurnstreamError], retryable: bool) -> None:
    error = as_exception(item, file="a.sse")
    assert type(error) is cls
    assert error.retryable is retryable
    assert (error.file, error.event_number, error.byte_offset, error.kept) == ("a.sse", 4, 7, [1])
    assert "m" in str(error)


def test_an_api_failure_keeps_its_fields_as_an_exception() -> None:
    error = as_exception(failed("api_error(t)", status=529, requestId="req_1"))
    assert isinstance(error, APIError)
    assert (error.error_type, error.status, error.request_id) == ("t", 529, "req_1")
    protocol = as_exception(failed("protocol_error(t)"))
    assert isinstance(protocol, ProtocolError)
    assert protocol.kind == "t"


def test_silence_keeps_its_class() -> None:
    told = error_object(StreamIdleTimeout("silent for 90 s"))
    error = as_exception(ResponseFailed(error=told, outcome=outcome_of(StreamIdleTimeout("x"), 1)))
    assert type(error) is StreamIdleTimeout
    assert error.retryable


@pytest.mark.parametrize("retryable", [True, False])
def test_a_broken_connection_keeps_its_class_and_whether_it_may_be_retried(retryable: bool) -> None:
    told = error_object(TransportError("reset", retryable=retryable))
    assert told == {"type": "transport_error", "message": "reset", "retryable": retryable}
    error = as_exception(ResponseFailed(error=told, outcome=outcome_of(TransportError("reset"), 2)), file="f")
    assert type(error) is TransportError
    assert (error.retryable, str(error)) == (retryable, "reset (f)")
