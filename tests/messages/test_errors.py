"""The error tree: typed, with place and advice, catchable as one (DESIGN.md §4)."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

from turnstream.messages import errors
from turnstream.messages.errors import (
    AbortedError,
    APIError,
    EmptyStreamError,
    EventError,
    IncompleteStreamError,
    NotAStreamError,
    ProtocolError,
    SinkError,
    SourceError,
    SSEError,
    StreamIdleTimeout,
    TrainingDataError,
    TranscriptError,
    TransportError,
    TurnstreamError,
)

SAMPLES = [
    TurnstreamError("broken", file="a.sse", event_number=3, byte_offset=90, kept=[{"type": "text"}], hint="try again"),
    SSEError("too large", event_number=1),
    EventError("no JSON"),
    ProtocolError("contradiction", kind="delta_after_stop", retryable=True, byte_offset=4),
    IncompleteStreamError("cut off"),
    EmptyStreamError("nothing"),
    NotAStreamError("HTML"),
    StreamIdleTimeout("silent"),
    APIError("busy", error_type="overloaded_error", status=529, request_id="req_1", retryable=True),
    AbortedError("user"),
    SourceError("gone", file="x"),
    TransportError("reset", retryable=False),
    TranscriptError("full"),
    TrainingDataError("made up", index=2, path="$.message", uuid="u"),
    SinkError("raised", sink="ui"),
]


def test_every_class_has_a_sample_and_is_exported() -> None:
    classes = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    assert classes == set(errors.__all__) == {type(error).__name__ for error in SAMPLES}


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    drawn: dict[str, str] = {}
    stack: list[tuple[int, str]] = []
    assert errors.__doc__
    for line in errors.__doc__.splitlines():
        match = re.match(r"    ([│ ]*)(?:├── |└── )?([A-Z]\w+)", line)
        if not match:
            continue
        depth = match.start(2)
        while stack and stack[-1][0] >= depth:
            stack.pop()
        drawn[match.group(2)] = stack[-1][1] if stack else "Exception"
        stack.append((depth, match.group(2)))
    assert drawn == {name: getattr(errors, name).__base__.__name__ for name in errors.__all__}


@pytest.mark.parametrize("error", SAMPLES, ids=lambda e: type(e).__name__)
def test_all_are_caught_as_one(error: TurnstreamError) -> None:
    with pytest.raises(TurnstreamError):
        raise error


@pytest.mark.parametrize("error", SAMPLES, ids=lambda e: type(e).__name__)
def test_errors_survive_pickling_and_copying(error: TurnstreamError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)
        assert twin.args == error.args


def test_a_message_says_what_where_and_what_to_do() -> None:
    assert str(SAMPLES[0]) == "broken (a.sse, event 3, byte 90); try again"
    assert SAMPLES[0].where() == "a.sse, event 3, byte 90"
    assert str(EventError("no JSON")) == "no JSON"
    assert EventError("no JSON").where() == ""
    assert EventError("x", byte_offset=0).where() == "byte 0"


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (IncompleteStreamError("x"), True),
        (EmptyStreamError("x"), True),
        (NotAStreamError("x"), False),
        (StreamIdleTimeout("x"), True),
        (ProtocolError("x", kind="k"), False),
        (ProtocolError("x", kind="k", retryable=True), True),
        (APIError("x", error_type="t"), False),
        (APIError("x", error_type="t", retryable=True), True),
        (AbortedError(), False),
        (SourceError("x"), False),
        (TransportError("x"), True),
        (TransportError("x", retryable=False), False),
    ],
)
def test_what_may_be_retried(error: TurnstreamError, retryable: bool) -> None:
    assert error.retryable is retryable


def test_own_fields() -> None:
    error = APIError("busy", error_type="overloaded_error", status=529, request_id="req_1", event_number=2)
    assert (error.error_type, error.status, error.request_id, error.event_number) == (
        "overloaded_error",
        529,
        "req_1",
        2,
    )
    assert ProtocolError("x", kind="k").kind == "k"
    assert SinkError("x", sink="s").sink == "s"
    assert AbortedError("budget").reason == "budget"
    assert str(AbortedError("budget")) == "aborted: budget"
    assert AbortedError().reason == "aborted"
