"""Error events: alone, midstream, odd ones (WIRE.md §1, attempts and ends, decided cases)."""

from __future__ import annotations

from typing import Any

from entry import Answer, Entry
from frames import (
    PING,
    STOP,
    args,
    fails,
    frame,
    opens_text,
    opens_tool,
    says,
    sse,
    start,
    text,
    text_block,
    turn,
)

EOF = (
    "§1: EOF before message_stop is incomplete; finished blocks are kept, unfinished text and thinking are kept as a last "
    "message with isAbortedMidStream and stop_reason null"
)
ONE = [text_block("a")]


def ended(stop_reason: str, *covers: str, rule: str = "§1: stop_reason is an open set") -> Entry:
    return Entry(
        name=f"stop-reason-{stop_reason}",
        data=sse(start(), says("a"), turn(stop_reason), STOP),
        answers=(Answer(content=ONE, stop_reason=stop_reason),),
        rule=rule,
        covers=covers,
    )


def failed(name: str, payload: bytes, kind: str, *covers: str, **framing: Any) -> Entry:
    """An error frame and nothing else."""
    return Entry(
        name=name,
        data=frame(payload, name=framing.get("event")),
        answers=(Answer(outcome=f"api_error({kind})", stop_reason=None),),
        rule=framing.get("rule", "§1: an `error` event: the StreamEvent, the kept partials, then `response_failed`"),
        covers=("error-only", "no-message_start", "no-message_stop", *covers),
        events=1,
    )


ENTRIES = (
    Entry(
        name="error-midstream",
        data=sse(
            start(),
            says("done"),
            opens_text(1),
            text(1, "par"),
            opens_tool(2),
            args(2, '{"p":'),
            fails("overloaded_error"),
        ),
        answers=(
            Answer(
                outcome="api_error(overloaded_error)",
                content=[text_block("done")],
                stop_reason=None,
                partial=[text_block("par")],
                unfinished=[{"index": 2, "id": "toolu_a", "name": "look", "raw": '{"p":'}],
            ),
        ),
        rule="§1: an `error` event: the StreamEvent, the kept partials, then `response_failed`",
        covers=(
            "error-midstream",
            "overlapping-blocks",
            "block-never-stopped",
            "tool-json-incomplete",
            "no-message_stop",
        ),
        events=9,
    ),
    Entry(
        name="error-after-the-stop-reason",
        data=sse(start(), says("a"), turn(), fails("api_error")),
        answers=(Answer(outcome="api_error(api_error)", content=ONE),),
        rule="§1: an error event fails the answer that isn't ended yet",
        covers=("error-midstream", "no-message_stop"),
    ),
    Entry(
        name="error-in-an-empty-block",
        data=sse(start(), opens_text(), PING, fails("error", "test")),
        answers=(Answer(outcome="api_error(error)", stop_reason=None, partial=None),),
        rule="§1: empty unfinished blocks make no message",
        covers=("error-midstream", "block-never-stopped", "no-message_stop"),
        events=4,
    ),
    failed(
        "error-only",
        b'{"type":"error","error":{"details":null,"type":"overloaded_error","message":"Overloaded"},"request_id":"r"}',
        "overloaded_error",
        event="error",
    ),
    failed(
        "error-with-more-keys",
        b'{"type":"error","error":{"type":"invalid_request","code":"policy","message":"no","param":null},'
        b'"sequence_number":3}',
        "invalid_request",
        "no-event-line",
    ),
    failed(
        "error-without-type",
        b'{"type":"error","error":{"message":"?"}}',
        "unknown",
        rule="§1 decided cases: an error without a type is api_error(unknown)",
    ),
    failed(
        "error-is-empty-its-type-beside-it",
        b'{"type":"error","error":{},"error_type":"overloaded_error"}',
        "unknown",
        "no-event-line",
        rule="§1 decided cases: an error without a type is api_error(unknown)",
    ),
    failed(
        "bare-error",
        b'{"error":{"type":"rate_limit_error","message":"slow down"}}',
        "rate_limit_error",
        "no-event-line",
        rule='§1: a bare `{"error": …}` is an error event',
    ),
    failed(
        "bare-error-with-its-name",
        b'{"error":{"type":"api_error","message":"x"}}',
        "api_error",
        event="error",
        rule='§1: a bare `{"error": …}` is an error event',
    ),
    failed(
        "error-that-is-a-word",
        b'{"type":"error","error":"boom"}',
        "unknown",
        rule="§1 decided cases: an error without a type is api_error(unknown)",
    ),
    Entry(
        name="error-unterminated",
        data=frame(fails("timeout_error"), name=None).rstrip(b"\n"),
        answers=(Answer(outcome="api_error(timeout_error)", stop_reason=None),),
        rule='§1: final="if_json"',
        covers=("error-only", "last-frame-unterminated", "no-event-line", "no-message_start", "no-message_stop"),
    ),
)
