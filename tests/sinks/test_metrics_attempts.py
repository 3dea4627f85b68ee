"""Attempts, ends and outcomes as metrics count them (WIRE.md §1, §7, §9)."""

from __future__ import annotations

from typing import Any

import pytest
from frames import (
    PING,
    STOP,
    args,
    calls,
    closes,
    delta,
    fails,
    opens,
    opens_text,
    opens_tool,
    says,
    signs,
    start,
    text,
    turn,
)
from metering import emitted, meter, read

from turnstream.messages import (
    ContentBlockDelta,
    MessageFactory,
    MessageStart,
    MessageStop,
    RequestStart,
    StreamEventMessage,
    StreamNote,
    SystemMessage,
    Tombstone,
    UnknownEvent,
    seeded_clock,
    seeded_ids,
)

MAKE = MessageFactory(seeded_ids(9), seeded_clock())
GOOD = [*says("hi"), turn("end_turn", {"output_tokens": 20}), STOP]


def usage(tokens: int) -> dict[str, Any]:
    return {"input_tokens": tokens, "output_tokens": 1}


def api_error(**fields: Any) -> SystemMessage:
    return MAKE.system("api_error", "busy", level="error", retryInMs=500.5, retryAttempt=1, maxRetries=10, **fields)


def test_superseded_attempts_are_counted_apart() -> None:
    report = meter(emitted(start("a", usage=usage(100)), says("lost"), start("b", usage=usage(30)), GOOD))
    totals = report["totals"]
    assert (totals["answers"], totals["input_tokens"], totals["output_tokens"]) == (1, 30, 20)
    assert (totals["superseded_answers"], totals["superseded_input_tokens"], totals["superseded_output_tokens"]) == (
        1,
        100,
        1,
    )
    assert (totals["tombstones"], totals["superseded_blocks"], totals["blocks"]) == (1, 1, {"text": 1})
    assert totals["outcomes"] == {"complete": 1}
    assert report["incomplete"] is False
    assert [(r["message_id"], r["superseded"], r["outcome"]) for r in report["answers"]] == [
        ("a", True, None),
        ("b", False, "complete"),
    ]


def test_an_attempt_without_any_finished_block_is_superseded_too() -> None:
    totals = meter(emitted(start("a", usage=usage(100)), opens_text(), start("b", usage=usage(30)), GOOD))["totals"]
    assert (totals["superseded_answers"], totals["superseded_input_tokens"], totals["tombstones"]) == (1, 100, 0)
    assert totals["input_tokens"] == 30


def test_the_same_id_after_a_block_is_another_attempt() -> None:
    totals = meter(emitted(start("a", usage=usage(100)), says("x"), start("a", usage=usage(30)), GOOD))["totals"]
    assert (totals["superseded_answers"], totals["superseded_input_tokens"], totals["input_tokens"]) == (1, 100, 30)
    assert totals["blocks"] == {"text": 1}


def test_a_whole_start_supersedes() -> None:
    whole = start("b", content=[{"type": "text", "text": "x"}], stop_reason="end_turn", usage=usage(30))
    report = meter(emitted(start("a", usage=usage(100)), says("lost"), says("more", 1), whole, STOP))
    assert [(r["message_id"], r["superseded"], r["blocks"]) for r in report["answers"]] == [
        ("a", True, {"text": 2}),
        ("b", False, {"text": 1}),
    ]
    assert report["totals"]["tombstones"] == 2


def test_a_whole_start_with_the_same_id_supersedes() -> None:
    whole = start("a", content=[{"type": "text", "text": "x"}], stop_reason="end_turn", usage=usage(30))
    report = meter(emitted(start("a", usage=usage(100)), says("lost"), says("more", 1), whole, STOP))
    assert [(r["superseded"], r["blocks"], r["outcome"]) for r in report["answers"]] == [
        (True, {"text": 2}, None),
        (False, {"text": 1}, "complete"),
    ]


def test_a_start_without_id_after_a_block_nobody_opened_is_another_attempt() -> None:
    report = meter(emitted(start("a", usage=usage(100)), text(0, "x"), start(None, usage=usage(30)), GOOD))
    assert [(r["message_id"], r["superseded"], r["blocks"]) for r in report["answers"]] == [
        ("a", True, {}),
        (None, False, {"text": 1}),
    ]
    assert (report["totals"]["input_tokens"], report["totals"]["superseded_input_tokens"]) == (30, 100)


def test_whole_answers_with_a_constant_id_keep_their_blocks_apart() -> None:
    whole = start("w", content=[{"type": "text", "text": "x"}], stop_reason="end_turn", usage=usage(30))
    report = meter(emitted(whole, STOP, start("a"), GOOD, whole, STOP))
    assert [(r["message_id"], r["blocks"], r["outcome"]) for r in report["answers"]] == [
        ("w", {"text": 1}, "complete"),
        ("a", {"text": 1}, "complete"),
        ("w", {"text": 1}, "complete"),
    ]


def test_a_whole_answer_with_the_id_of_a_superseded_attempt() -> None:
    whole = start("w", content=[{"type": "text", "text": "x"}], stop_reason="end_turn", usage=usage(30))
    report = meter(emitted(whole, opens_text(), start("a"), opens_text(), whole, STOP))
    assert [(r["message_id"], r["superseded"], r["blocks"]) for r in report["answers"]] == [
        ("w", True, {"text": 1}),
        ("a", True, {}),
        ("w", False, {"text": 1}),
    ]
    assert (report["totals"]["superseded_blocks"], report["totals"]["blocks"]) == (1, {"text": 1})


def test_a_line_of_a_file_belongs_to_the_streamed_answer_with_its_id() -> None:
    line = read({"id": "a", "content": [{"type": "text", "text": "y"}], "usage": usage(30)}, uuid="of another writer")
    report = meter([*emitted(start("a", usage=usage(30)), GOOD), line])
    assert (report["totals"]["answers"], report["totals"]["input_tokens"]) == (1, 30)


def test_a_start_after_all_blocks_and_a_stop_reason_is_the_next_answer() -> None:
    report = meter(emitted(start("a"), says("x"), turn(), start("b"), GOOD))
    assert report["totals"]["outcomes"] == {"complete": 2}
    assert report["totals"]["notes"] == {"no_message_stop": 1}


@pytest.mark.parametrize(
    ("stream", "word"),
    [
        ([start(), GOOD], "complete"),
        ([start(), says("x"), turn("error"), STOP], "complete"),
        ([start(), says("x"), turn()], "complete"),
        ([start(), says("x"), STOP], "complete"),
        ([start(), STOP], "incomplete(0)"),
        ([start(), says("x")], "incomplete(1)"),
        ([start(), says("x"), opens_tool(1), args(1, '{"a')], "incomplete(1)"),
        ([says("x"), turn(), STOP], "incomplete(1)"),
        ([PING, {"type": "pong"}], "incomplete(0)"),
        ([start(), says("x"), turn("tool_use"), STOP], "protocol_error(tool_use_without_block)"),
        ([start(), says("x"), turn("tool_use")], "protocol_error(tool_use_without_block)"),
        ([fails("overloaded_error")], "api_error(overloaded_error)"),
        ([{"type": "error", "error": {}}], "api_error(unknown)"),
        ([{"type": "pong"}], "not_a_stream"),
        ([], "empty"),
    ],
)
def test_one_word_per_answer(stream: list[Any], word: str) -> None:
    report = meter(emitted(*stream))
    assert [r["outcome"] for r in report["answers"]] == [word]
    assert report["totals"]["outcomes"] == {word: 1}
    assert report["incomplete"] is (word != "complete")
    assert report["totals"]["incomplete_answers"] == (word != "complete")
    assert sum(report["totals"]["errors"].values()) == (word != "complete")


def test_a_failure_behind_a_good_answer_is_its_own() -> None:
    # Two streams through one sink; the second one breaks before its first event.
    report = meter([*emitted(start(), GOOD), *emitted()])
    assert report["totals"]["outcomes"] == {"complete": 1, "empty": 1}


def test_a_stream_of_pings_behind_a_good_answer() -> None:
    report = meter([*emitted(start(), GOOD), *emitted(PING)])
    assert report["totals"]["outcomes"] == {"complete": 1, "incomplete(0)": 1}


def test_an_answer_still_open_is_incomplete() -> None:
    items = emitted(start(), says("x"), turn(), STOP)
    report = meter(items[:-2])
    answer = report["answers"][0]
    assert (answer["outcome"], answer["incomplete"], report["incomplete"]) == (None, True, True)
    assert report["totals"]["unknown_outcomes"] == 1


def test_retry_supersedes_the_attempt_that_failed() -> None:
    items = [
        RequestStart(attempt=1),
        *emitted(start("a", usage=usage(100)), says("x"), fails("overloaded_error")),
        api_error(error={"type": "overloaded_error"}),
        RequestStart(attempt=2),
        *emitted(start("b", usage=usage(30)), GOOD),
    ]
    report = meter(items)
    totals = report["totals"]
    assert (totals["retries"], totals["retry_wait_ms"]) == (1, 500.5)
    assert totals["errors"] == {"overloaded_error": 1}
    assert totals["outcomes"] == {"complete": 1}
    assert (totals["input_tokens"], totals["superseded_input_tokens"]) == (30, 100)
    first = report["answers"][0]
    assert (first["superseded"], first["outcome"]) == (True, "api_error(overloaded_error)")


def test_retry_that_keeps_the_failure_to_itself() -> None:
    # Events, tombstones and the notice pass; the response_failed doesn't.
    broken = [i for i in emitted(start("a", usage=usage(100)), says("x")) if type(i).__name__ != "ResponseFailed"]
    shown = next(i for i in broken if type(i).__name__ == "AssistantMessage")
    items = [
        RequestStart(attempt=1),
        *broken,
        Tombstone(message=shown),
        api_error(error={"type": "connection_error"}),
        RequestStart(attempt=2),
        *emitted(start("b", usage=usage(30)), GOOD),
    ]
    report = meter(items)
    totals = report["totals"]
    assert totals["errors"] == {"connection_error": 1}
    assert (totals["superseded_answers"], totals["superseded_input_tokens"], totals["input_tokens"]) == (1, 100, 30)
    assert (totals["outcomes"], report["incomplete"]) == ({"complete": 1}, False)


def test_retry_before_anything_came_leaves_the_last_turn_alone() -> None:
    items = [
        RequestStart(attempt=1),
        *emitted(start("a"), says("x"), fails("api_error")),
        MAKE.user("go on"),
        RequestStart(attempt=1),
        api_error(error={"type": "connection_error"}),
        RequestStart(attempt=2),
        *emitted(start("b"), GOOD),
    ]
    totals = meter(items)["totals"]
    assert totals["superseded_answers"] == 0
    assert totals["outcomes"] == {"api_error(api_error)": 1, "complete": 1}
    assert totals["errors"] == {"api_error": 1, "connection_error": 1}


def test_a_notice_behind_a_users_word_is_about_the_next_request() -> None:
    items = [
        *emitted(start("a"), says("x"), fails("api_error")),
        MAKE.user("go on"),
        api_error(),
        *emitted(start("b"), GOOD),
    ]
    totals = meter(items)["totals"]
    assert totals["superseded_answers"] == 0
    assert totals["errors"]["api_error"] == 1


def test_a_second_attempt_without_a_notice() -> None:
    failed = emitted(start("a", usage=usage(100)), says("x"), fails())
    good = emitted(start("b", usage=usage(30)), GOOD)
    totals = meter([RequestStart(attempt=1), *failed, RequestStart(attempt=2), *good])["totals"]
    assert (totals["superseded_input_tokens"], totals["input_tokens"]) == (100, 30)


def test_fallback_supersedes_and_is_counted() -> None:
    items = [
        *emitted(start("a", usage=usage(100)), says("x"), fails("overloaded_error")),
        MAKE.system("informational", "Switched to another model", fallback={"model": "m2"}),
        read({"id": "b", "content": [], "usage": usage(30), "stop_reason": "end_turn"}, uuid="u"),
    ]
    totals = meter(items)["totals"]
    assert (totals["fallbacks"], totals["superseded_answers"]) == (1, 1)
    assert (totals["input_tokens"], totals["superseded_input_tokens"]) == (30, 100)


def test_other_notices_are_no_fallback() -> None:
    items = [*emitted(start("a"), says("x"), fails()), MAKE.system("informational", "Anything")]
    totals = meter(items)["totals"]
    assert (totals["fallbacks"], totals["superseded_answers"]) == (0, 0)


def test_tombstones_behind_a_failure_supersede_it() -> None:
    failed = emitted(start("a", usage=usage(100)), says("x"))
    shown = next(i for i in failed if type(i).__name__ == "AssistantMessage")
    totals = meter([*failed, Tombstone(message=shown)])["totals"]
    assert (totals["superseded_answers"], totals["answers"], totals["tombstones"]) == (1, 0, 1)


def test_request_start_closes_an_open_answer() -> None:
    open_one = emitted(start("a"), says("x"), turn(), STOP)[:-2]
    report = meter([*open_one, RequestStart(), *emitted(start("b"), GOOD)])
    assert [r["outcome"] for r in report["answers"]] == ["incomplete(1)", "complete"]


def test_what_was_left_unfinished() -> None:
    report = meter(emitted(start(), says("x"), opens_text(1), text(1, "half"), opens_tool(2), args(2, '{"a')))
    totals = report["totals"]
    assert (totals["blocks"], totals["partial_blocks"], totals["unfinished_tool_inputs"]) == ({"text": 1}, 1, 1)
    assert totals["tool_uses"] == {}


def test_invalid_tool_input() -> None:
    totals = meter(emitted(start(), calls(0, '{"a": '), turn("tool_use"), STOP))["totals"]
    assert (totals["invalid_tool_inputs"], totals["tool_uses"]) == (1, {"look": 1})


def test_opaque_and_unapplied_by_type() -> None:
    stream = [
        start(),
        {"type": "pong"},
        {"type": "pong"},
        {"what": 1},
        opens(0, "reasoning"),
        delta(0, "reasoning_delta", text="x"),
        delta(0, None, text="x"),
        closes(0),
        opens_text(1),
        text(1, "hi"),
        args(1, "{}"),  # a text block takes no input
        delta(1, "text_delta", text=5),  # of a known type, but none that can be read
        closes(1),
        signs(1, "late"),
        turn(),
        STOP,
    ]
    totals = meter(emitted(*stream))["totals"]
    assert totals["opaque_events"] == {"pong": 2, "(none)": 1}
    assert totals["opaque_deltas"] == {"reasoning_delta": 1, "(none)": 1, "text_delta": 1}
    assert totals["opaque_blocks"] == {"reasoning": 1}
    assert totals["unapplied_deltas"] == {"input_json_delta": 1, "signature_delta": 1}
    assert totals["events"] == 16
    assert totals["blocks"] == {"reasoning": 1, "text": 1}


def test_unapplied_to_a_block_that_stays_empty() -> None:
    # The block makes no message that could carry the delta: the note alone tells.
    note = StreamNote(kind="delta_mismatch", message="input_json_delta to block 0, which is of type text")
    totals = meter([MessageStart(message={"id": "a"}), note, MessageStop()])["totals"]
    assert totals["unapplied_deltas"] == {"input_json_delta": 1}


def test_unapplied_told_twice_counts_once() -> None:
    totals = meter(emitted(start(), opens_text(0), args(0, "{}"), text(0, "x"), closes(0), turn(), STOP))["totals"]
    assert (totals["unapplied_deltas"], totals["notes"]) == ({"input_json_delta": 1}, {"delta_mismatch": 1})


def test_deltas_without_start_open_an_answer_at_once() -> None:
    delta_item = emitted(start(), says("x"))[2]
    assert isinstance(delta_item, ContentBlockDelta)
    for items in ([delta_item], [RequestStart(), delta_item], [*emitted(start(), GOOD), RequestStart(), delta_item]):
        answer = meter(items)["answers"][-1]
        assert (answer["message_id"], answer["outcome"], answer["incomplete"]) == (None, None, True)


def test_strays_after_the_end_change_no_answer() -> None:
    report = meter(
        emitted(start(), GOOD, text(0, "stray"), turn("max_tokens", {"output_tokens": 999}), opens_text(), STOP)
    )
    answer = report["answers"][0]
    assert (answer["outcome"], answer["output_tokens"], answer["stop_reason"]) == ("complete", 20, "end_turn")
    assert (report["totals"]["answers"], report["totals"]["events"]) == (1, 10)


def test_types_that_are_no_words() -> None:
    block: Any = {"type": ["text"], "text": "x"}
    items = [
        *emitted({"type": "content_block_start", "index": 0, "content_block": block}, closes(0)),
        UnknownEvent(None, "x"),
        StreamNote(kind="detached", message=""),
    ]
    totals = meter(items)["totals"]
    assert totals["blocks"] == {"['text']": 1}
    assert totals["notes"]["detached"] == 1


def test_enveloped_events_count_like_bare_ones() -> None:
    bare = emitted(start(), GOOD)
    wrapped = [
        StreamEventMessage(event=i) if "Block" in type(i).__name__ or type(i).__name__.startswith("Message") else i
        for i in bare
    ]
    assert meter(wrapped) == meter(bare)
