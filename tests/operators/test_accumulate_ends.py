"""``accumulate``: attempts, ends, abort, strict mode, places (WIRE.md §1, attempts and ends; §7).

Rows of FAULTS.md are named in the tests that hold them.
"""

from __future__ import annotations

from typing import Any

import frames as f
import pytest
from accumulating import THREE_BLOCKS, events, kinds, messages, names, of, run, stage

from turnstream.messages import (
    AbortedError,
    APIError,
    AssistantMessage,
    IncompleteStreamError,
    MessageFactory,
    MessageStart,
    ProtocolError,
    RequestStart,
    ResponseFailed,
    SourceError,
    StreamNote,
    Tombstone,
    TurnstreamError,
    UserMessage,
    seeded_clock,
    seeded_ids,
)
from turnstream.messages.texts import INTERRUPTED, MISSING_RESULT
from turnstream.operators import accumulate, decode_sse, parse_events, run_batches
from turnstream.operators.stage import Fault

# -- attempts and ends ---------------------------------------------------------------------------------


def test_fault_16_a_new_start_is_a_new_attempt_and_nothing_is_merged() -> None:
    items = run(
        f.start("a"), f.says("old"), f.opens_text(1), f.text(1, "half"), f.start("b"), f.says("new"), f.turn(), f.STOP
    )
    old, new = messages(items)
    (tombstone,) = of(items, Tombstone)
    assert tombstone.message is old
    at = items.index(tombstone)
    assert isinstance(items[at + 1], MessageStart), "tombstones come right before the new start"
    assert new.message["content"] == [f.text_block("new")]
    assert new.message["usage"] is not old.message["usage"]
    assert old.message["stop_reason"] is None


def test_tombstones_come_in_the_order_of_the_messages() -> None:
    items = run(
        f.start("a"), f.says("1", 0), f.says("2", 1), f.says("3", 2), f.start("b"), f.says("x"), f.turn(), f.STOP
    )
    assert [t.message for t in of(items, Tombstone)] == messages(items)[:3]


def test_blocks_without_a_start_that_came_to_their_end_are_an_answer_of_their_own() -> None:
    items = run(f.says("a"), f.turn(), f.start("b"), f.says("b"), f.turn(), f.STOP)
    assert not of(items, Tombstone)
    assert [r.outcome for r in of(items, ResponseFailed)] == ["incomplete(1)"]


def test_a_new_request_closes_an_open_answer_before_it_goes_out() -> None:
    request = RequestStart(attempt=2)
    items = run(
        f.start("a"),
        f.says("x"),
        f.opens_text(1),
        f.text(1, "half"),
        request,
        f.start("b"),
        f.says("y"),
        f.turn(),
        f.STOP,
    )
    at = items.index(request)
    assert names(items[at - 2 : at]) == ["AssistantMessage", "ResponseFailed"]
    assert items[at - 2].is_aborted_mid_stream
    assert items[at - 1].outcome == "incomplete(1)"
    assert items[at - 1].kept == [f.text_block("x"), f.text_block("half")]
    assert not of(items, Tombstone)
    assert not of(items[at:], ResponseFailed)


def test_a_new_request_after_a_whole_answer_changes_nothing() -> None:
    request = RequestStart()
    items = run(f.start("a"), f.says("x"), f.turn(), f.STOP, request, f.start("a"), f.says("y"), f.turn(), f.STOP)
    assert not of(items, ResponseFailed, StreamNote, Tombstone)


def test_a_new_request_after_an_answer_without_message_stop_notes_that() -> None:
    items = run(f.start("a"), f.says("x"), f.turn(), RequestStart(), f.start("b"), f.says("y"), f.turn(), f.STOP)
    assert kinds(items) == ["no_message_stop"]
    assert not of(items, ResponseFailed)


def test_a_request_that_nothing_answers_failed() -> None:
    items = run(f.start("a"), f.says("x"), f.turn(), f.STOP, RequestStart())
    assert [r.outcome for r in of(items, ResponseFailed)] == ["empty"]
    user = MessageFactory(seeded_ids(), seeded_clock()).user("hi")
    assert [r.outcome for r in of(run(user, RequestStart()), ResponseFailed)] == ["empty"]


def test_the_kept_partial_is_the_last_message_and_shares_the_usage() -> None:
    items = run(
        f.start(),
        f.says("whole", 0),
        f.opens_thinking(1),
        f.thinks(1, "hm"),
        f.opens_text(2),
        f.text(2, "half"),
        f.opens_tool(3),
        f.args(3, '{"a'),
    )
    whole, partial = messages(items)
    assert partial.message["usage"] is whole.message["usage"]
    assert partial.message["id"] == whole.message["id"]
    assert partial.message["content"] == [f.thinking_block("hm"), f.text_block("half")]
    assert partial.message["stop_reason"] is None
    assert partial.is_aborted_mid_stream
    assert partial.unfinished_tool_inputs == [{"index": 3, "id": "toolu_a", "name": "look", "raw": '{"a'}]
    (failed,) = of(items, ResponseFailed)
    assert items[-2:] == [partial, failed]
    assert failed.kept == [f.text_block("whole"), f.thinking_block("hm"), f.text_block("half")]


def test_fault_19_no_input_is_made_up_for_a_tool_that_never_stopped() -> None:
    items = run(f.start(), f.opens_tool(0))
    assert not [b for m in messages(items) for b in m.message["content"]]
    assert messages(items)[0].unfinished_tool_inputs == [{"index": 0, "id": "toolu_a", "name": "look", "raw": ""}]


def test_an_error_event_comes_first_then_the_partial_then_the_failure() -> None:
    items = run(f.start(), f.opens_text(0), f.text(0, "half"), {**f.fails(), "request_id": "req_9"}, f.PING)
    assert names(items[-4:]) == ["ErrorEvent", "AssistantMessage", "ResponseFailed", "Ping"]
    failed = items[-2]
    assert failed.error == {
        "type": "overloaded_error",
        "message": "too busy",
        "retryable": True,
        "requestId": "req_9",
    }
    assert failed.outcome == "api_error(overloaded_error)"
    assert failed.kept == [f.text_block("half")]


def test_a_stop_that_ends_an_answer_badly_comes_before_the_failure() -> None:
    items = run(f.start(), f.says("a"), f.turn("tool_use"), f.STOP)
    assert names(items[-2:]) == ["MessageStop", "ResponseFailed"]
    assert items[-1].outcome == "protocol_error(tool_use_without_block)"
    assert items[-1].error["retryable"] is True
    assert items[-1].kept == [f.text_block("a")]


def test_after_the_end_nothing_more_is_reported() -> None:
    accumulator = stage()
    accumulator.feed(events(f.start(), f.says("a"), f.turn(), f.STOP))
    assert list(accumulator.flush()) == []
    accumulator = stage()
    accumulator.feed(events(f.start(), f.fails()))
    assert list(accumulator.fail(RuntimeError("later"))) == []


def test_fault_32_no_usage_no_events_still_a_typed_end() -> None:
    (failed,) = run()
    assert (failed.outcome, failed.error["type"], failed.error["retryable"]) == ("empty", "empty_stream", True)
    (failed,) = of(run(f.opens_text(0), f.text(0, "a")), ResponseFailed)
    assert failed.outcome == "incomplete(0)"


# -- the source breaks, abort ----------------------------------------------------------------------------


def test_a_broken_source_is_the_failure_of_the_open_answer() -> None:
    error = SourceError("connection lost", file="somewhere")
    items = run(f.start(), f.says("a"), f.opens_text(1), f.text(1, "half"), error=error)
    failed = items[-1]
    assert isinstance(failed, ResponseFailed)
    assert failed.error == {"type": "source_error", "message": str(error), "retryable": False}
    assert failed.outcome == "incomplete(1)"
    assert messages(items)[-1].is_aborted_mid_stream


def test_an_api_error_of_the_transport_has_its_own_word() -> None:
    error = APIError("busy", error_type="overloaded_error", status=529, request_id="req_1", retryable=True)
    for parts in ([], [f.start(), f.says("a")]):
        failed = run(*parts, error=error)[-1]
        assert failed.outcome == "api_error(overloaded_error)"
        assert failed.error == {
            "type": "overloaded_error",
            "message": "busy",
            "retryable": True,
            "status": 529,
            "requestId": "req_1",
        }


def test_a_source_that_breaks_behind_the_stop_reason_leaves_a_complete_answer() -> None:
    items = run(f.start(), f.says("a"), f.turn(), error=OSError("reset"))
    assert kinds(items) == ["no_message_stop"]
    assert not of(items, ResponseFailed)


def test_an_abort_repairs_every_tool_use_then_says_interrupted() -> None:
    items = run(
        f.start(),
        f.calls(0, "{}", ident="toolu_1"),
        f.calls(1, "{}", ident="toolu_2"),
        f.opens_text(2),
        f.text(2, "half"),
        f.opens_tool(3, "toolu_3"),
        f.args(3, '{"a'),
        error=AbortedError("user"),
    )
    tail = items[-5:]
    assert names(tail) == ["AssistantMessage", "ResponseFailed", "UserMessage", "UserMessage", "UserMessage"]
    partial, failed, first, second, interruption = tail
    assert partial.is_aborted_mid_stream
    assert [u["id"] for u in partial.unfinished_tool_inputs] == ["toolu_3"]
    assert failed.error["type"] == "aborted"
    asked = messages(items)
    for result, ident, source in ((first, "toolu_1", asked[0]), (second, "toolu_2", asked[1])):
        (block,) = result.message["content"]
        assert (block["tool_use_id"], block["is_error"], block["content"]) == (ident, True, MISSING_RESULT)
        assert result.source_tool_assistant_uuid == source.uuid
    assert interruption.message["content"] == [{"type": "text", "text": INTERRUPTED}]


def test_an_abort_between_the_stop_reason_and_message_stop_repairs_too() -> None:
    items = run(f.start(), f.calls(0, "{}", ident="toolu_1"), f.turn("tool_use"), error=AbortedError("user"))
    assert kinds(items) == ["no_message_stop"]
    results = of(items, UserMessage)
    assert [r.message["content"][0]["type"] for r in results] == ["tool_result", "text"]


def test_an_abort_after_the_end_or_before_anything_adds_nothing() -> None:
    whole = [f.start(), f.says("a"), f.turn(), f.STOP]
    assert run(*whole, error=AbortedError("user")) == run(*whole)
    assert run(error=AbortedError("user")) == []


# -- strict ----------------------------------------------------------------------------------------------

LENIENT: list[tuple[list[Any], str]] = [
    ([f.says("a")], "no_message_start"),
    ([f.start(), f.opens_text(None)], "index_missing"),
    ([f.start(), f.opens_text(0), f.text(None, "a")], "index_missing"),
    ([f.start(), f.opens_text(0), {"type": "content_block_stop"}], "index_missing"),
    ([f.start(), f.says("a", 0), f.opens_text(0)], "index_reused"),
    ([f.start(), f.text(5, "a")], "index_unknown"),
    ([f.start(), f.says("a"), f.text(0, "b")], "delta_after_stop"),
    ([f.start(), f.opens_tool(0), f.text(0, "a")], "delta_mismatch"),
    ([f.start(), f.closes(4)], "stop_without_block"),
    ([f.start(), f.says("a"), f.closes(0)], "stop_without_block"),
    ([f.start(), f.opens_text(0), f.text(0, "a"), f.turn(), f.STOP], "finished_by_message_stop"),
    ([f.start("a"), f.start("a")], "duplicate_message_start"),
    ([f.start(), f.says("a"), f.turn(), f.STOP, f.text(0, "x")], "event_after_end"),
    ([f.start(), f.says("a"), f.turn(), f.STOP, f.STOP], "event_after_end"),
    ([f.start(), f.says("a"), f.turn(), RequestStart()], "no_message_stop"),
]


@pytest.mark.parametrize(("parts", "kind"), LENIENT, ids=[f"{kind}-{n}" for n, (_, kind) in enumerate(LENIENT)])
def test_each_lenient_step_is_a_note_or_in_strict_mode_a_typed_error(parts: list[Any], kind: str) -> None:
    assert kind in kinds(stage().feed(events(*parts)))
    out = stage(strict=True).feed(events(*parts))
    assert isinstance(out[-1], Fault)
    error = out[-1].error
    assert isinstance(error, ProtocolError)
    assert error.kind == kind
    assert error.event_number is not None
    assert not of(out, StreamNote)


@pytest.mark.parametrize(("parts", "kind"), LENIENT, ids=[f"{kind}-{n}" for n, (_, kind) in enumerate(LENIENT)])
def test_strict_delivers_what_came_before(parts: list[Any], kind: str) -> None:
    flat = events(*parts)
    out = stage(strict=True).feed(flat)
    passed = [item for item in out if not isinstance(item, (AssistantMessage, Fault))]
    assert passed == flat[: len(passed)]
    assert len(passed) == len(flat) - 1 or kind in ("no_message_start", "index_missing")


STRICT_ENDS: list[tuple[list[Any], type[TurnstreamError], str]] = [
    ([], IncompleteStreamError, "no event"),
    ([f.start()], IncompleteStreamError, "before message_stop"),
    ([f.start(), f.opens_text(0), f.text(0, "half")], IncompleteStreamError, "before message_stop"),
    ([f.start(), f.STOP], IncompleteStreamError, "holds nothing"),
    ([f.start(), f.says("a"), f.turn("tool_use"), f.STOP], ProtocolError, "tool"),
    ([f.start(), f.says("a"), f.turn()], ProtocolError, "message_stop is missing"),
    ([f.start(), f.says("a"), f.fails()], APIError, "too busy"),
]


@pytest.mark.parametrize(("parts", "cls", "words"), STRICT_ENDS, ids=range(len(STRICT_ENDS)))
def test_strict_raises_how_an_answer_failed(parts: list[Any], cls: type[TurnstreamError], words: str) -> None:
    with pytest.raises(cls, match=words):
        run(*parts, strict=True)


def test_strict_leaves_a_good_stream_alone() -> None:
    assert run(*THREE_BLOCKS, strict=True) == run(*THREE_BLOCKS)
    unknown = [
        f.start(),
        f.opens(0, "vendor", x=1),
        f.delta(0, "vendor_delta", y=2),
        f.closes(0),
        {"type": "vendor"},
        f.turn(),
        f.STOP,
    ]
    assert run(*unknown, strict=True) == run(*unknown)


def test_strict_error_event_comes_with_its_event_and_partial() -> None:
    out = stage(strict=True).feed(events(f.start(), f.opens_text(0), f.text(0, "half"), f.fails()))
    assert names(out[-4:]) == ["ErrorEvent", "AssistantMessage", "ResponseFailed", "Fault"]


def test_strict_does_not_replace_the_sources_own_error() -> None:
    accumulator = stage(strict=True)
    accumulator.feed(events(f.start(), f.says("a"), f.opens_text(1), f.text(1, "half")))
    assert names(accumulator.fail(SourceError("gone"))) == ["AssistantMessage", "ResponseFailed"]
    accumulator = stage(strict=True)
    accumulator.feed(events(f.start(), f.calls(0, "{}"), f.turn("tool_use")))
    assert names(accumulator.fail(AbortedError("user"))) == ["StreamNote", "UserMessage", "UserMessage"]


# -- places ------------------------------------------------------------------------------------------------


def test_notes_and_failures_say_event_number_and_byte_offset() -> None:
    parts = [f.start(), f.says("a"), f.closes(7), f.turn("tool_use"), f.STOP]
    flat = f.flat(tuple(parts))
    starts = [len(f.sse(*flat[:n])) for n in range(len(flat))]
    for size in (1, 50, 10_000):
        data = f.sse(*parts)
        chunks = [[data[at : at + size]] for at in range(0, len(data), size)]
        items: list[Any] = []
        for batch in run_batches(chunks, decode_sse() | parse_events() | accumulate()):
            items.extend(batch)
        (note,) = of(items, StreamNote)
        assert (note.event_number, note.byte_offset) == (5, starts[4])
        (failed,) = of(items, ResponseFailed)
        assert (failed.event_number, failed.byte_offset) == (7, starts[6])


def test_the_end_of_a_broken_off_stream_is_at_its_last_event() -> None:
    parts = [f.start(), f.opens_text(0), f.text(0, "half")]
    for chunks in ([[f.sse(*parts)]], [[f.frame(p)] for p in parts]):
        items: list[Any] = []
        for batch in run_batches(chunks, decode_sse() | parse_events() | accumulate()):
            items.extend(batch)
        (failed,) = of(items, ResponseFailed)
        assert (failed.event_number, failed.byte_offset) == (3, len(f.sse(*parts[:2])))
