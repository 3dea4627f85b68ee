"""``accumulate`` as a stage: what a corpus of finished streams can't see (WIRE.md §1, accumulation and ends).

In-place updates, what is shared and what never changes, callbacks, ids, strict mode, abort, two streams at once.
Rows of FAULTS.md are named in the tests that hold them.
"""

from __future__ import annotations

import copy
import gc
import json
import sys
import uuid
import weakref
from collections.abc import Sequence
from typing import Any

import frames as f
import msgspec
import pytest
import reactivex
from hypothesis import given
from hypothesis import strategies as st
from reactivex.subject import Subject

from turnstream.messages import (
    AbortedError,
    APIError,
    AssistantMessage,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
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
    encode,
    event_from_wire,
    seeded_clock,
    seeded_ids,
    stable_ids,
    to_wire,
)
from turnstream.messages.texts import INTERRUPTED, MISSING_RESULT
from turnstream.operators import accumulate, decode_sse, parse_events, run_batches, run_stages
from turnstream.operators.accumulate import Accumulator
from turnstream.operators.events import EventParser
from turnstream.operators.sse import SSEDecoder
from turnstream.operators.stage import Fault
from turnstream.testing import record_observable


def events(*parts: Any) -> list[Any]:
    """Payloads as typed events; what isn't a dict passes as it is. Every call makes fresh objects."""
    flat: list[Any] = []
    for part in parts:
        flat.extend(events(*part) if isinstance(part, list) else [part])
    return [event_from_wire(json.loads(json.dumps(p))) if isinstance(p, dict) else p for p in flat]


def stage(**options: Any) -> Accumulator:
    return Accumulator(**{"ids": seeded_ids(1), "clock": seeded_clock(), **options})


def run(*parts: Any, error: Exception | None = None, sizes: Sequence[int] = (), **options: Any) -> list[Any]:
    items = events(*parts)
    batches, at = [], 0
    for size in (*sizes, len(items)):
        if items[at : at + size]:
            batches.append(items[at : at + size])
        at += size
    operator = accumulate(**{"ids": seeded_ids(1), "clock": seeded_clock(), **options})
    out: list[Any] = []
    for batch in run_batches(batches, operator, error=error):
        out.extend(batch)
    return out


def of(items: Sequence[Any], *classes: type) -> list[Any]:
    return [item for item in items if isinstance(item, classes)]


def messages(items: Sequence[Any]) -> list[AssistantMessage]:
    return of(items, AssistantMessage)


def kinds(items: Sequence[Any]) -> list[str]:
    return [item.kind for item in of(items, StreamNote)]


def names(items: Sequence[Any]) -> list[str]:
    return [type(item).__name__ for item in items]


THREE_BLOCKS = [
    f.start(usage={"input_tokens": 7, "output_tokens": 1}),
    f.opens_thinking(0),
    f.thinks(0, "hm"),
    f.signs(0, "sig"),
    f.closes(0),
    f.says("Hello", 1),
    f.calls(2, '{"a":', "1}"),
    f.turn("tool_use", {"output_tokens": 310}),
    f.STOP,
]


# -- order -------------------------------------------------------------------------------------------


def test_each_event_comes_after_what_it_caused() -> None:
    assert names(run(*THREE_BLOCKS)) == [
        "MessageStart",
        "ContentBlockStart",
        "ContentBlockDelta",
        "ContentBlockDelta",
        "AssistantMessage",
        "ContentBlockStop",
        "ContentBlockStart",
        "ContentBlockDelta",
        "AssistantMessage",
        "ContentBlockStop",
        "ContentBlockStart",
        "ContentBlockDelta",
        "ContentBlockDelta",
        "AssistantMessage",
        "ContentBlockStop",
        "MessageDelta",
        "MessageStop",
    ]


def test_a_block_is_emitted_in_the_batch_that_stops_it() -> None:
    # A UI can show thinking before the text comes; a tool can start while the model still writes.
    flat = events(*THREE_BLOCKS)
    accumulator = stage()
    emitted = [len(messages(accumulator.feed([event]))) for event in flat]
    stops = [int(isinstance(event, ContentBlockStop)) for event in flat]
    assert emitted == stops


def test_a_batch_that_needs_no_change_is_passed_on_as_it_is() -> None:
    accumulator = stage()
    accumulator.feed(events(f.start(), f.opens_text(0)))
    batch = events(f.text(0, "a"), f.text(0, "b"), f.PING)
    out = accumulator.feed(batch)
    assert list(out) == batch
    assert all(one is other for one, other in zip(out, batch, strict=True))


@given(st.lists(st.integers(1, 6), max_size=12))
def test_the_result_does_not_depend_on_the_batches(sizes: list[int]) -> None:
    assert run(*THREE_BLOCKS, sizes=sizes) == run(*THREE_BLOCKS)


def test_other_items_pass_in_their_place() -> None:
    user = MessageFactory(seeded_ids(), seeded_clock()).user("hi")
    note = StreamNote(kind="x", message="m")
    items = run(user, f.start(), note, f.says("a"), user, f.turn(), f.STOP)
    assert items[0] is user
    assert items[2] is note
    assert [type(i) for i in items[3:8]] == [
        ContentBlockStart,
        ContentBlockDelta,
        AssistantMessage,
        ContentBlockStop,
        UserMessage,
    ]


def test_a_conversation_without_a_stream_is_no_failed_answer() -> None:
    user = MessageFactory(seeded_ids(), seeded_clock()).user("hi")
    assert run(user) == [user]


# -- what is shared, what is updated in place, what never changes ---------------------------------------


def test_all_messages_of_an_answer_share_one_usage_dict() -> None:
    made = messages(run(*THREE_BLOCKS))
    assert len(made) == 3
    assert len({id(m.message["usage"]) for m in made}) == 1
    assert len({id(m.message) for m in made}) == 3


def test_fault_27_every_line_serialized_after_the_end_has_final_usage_and_stop_reason() -> None:
    for message in messages(run(*THREE_BLOCKS)):
        api = json.loads(encode(message))["message"]
        assert api["usage"] == {"input_tokens": 7, "output_tokens": 310}
        assert api["stop_reason"] == "tool_use"


def test_a_holder_sees_the_update_that_comes_later() -> None:
    accumulator = stage()
    (message,) = messages(accumulator.feed(events(f.start(), f.says("a"))))
    assert message.message["stop_reason"] is None
    assert message.message["usage"] == {"input_tokens": 7, "output_tokens": 1}
    accumulator.feed(events(f.turn("end_turn", {"output_tokens": 9}, container={"id": "c"})))
    assert message.message["stop_reason"] == "end_turn"
    assert message.message["usage"] == {"input_tokens": 7, "output_tokens": 9}
    assert message.message["container"] == {"id": "c"}


def test_two_answers_share_nothing() -> None:
    first, second = messages(
        run(f.start("a"), f.says("x"), f.turn(), f.STOP, f.start("b"), f.says("y"), f.turn("max_tokens"), f.STOP)
    )
    assert first.message["usage"] is not second.message["usage"]
    assert (first.message["stop_reason"], second.message["stop_reason"]) == ("end_turn", "max_tokens")


EVERYTHING = [
    f.start(
        usage={"input_tokens": 7, "output_tokens": 1, "cache_creation": {"ephemeral_5m_input_tokens": 3}},
        container={"id": "c"},
    ),
    f.opens(0, "text", text="seed", citations=[{"n": 0}]),
    f.cites(0, {"n": 1}),
    f.text(0, "more"),
    f.closes(0),
    f.opens(1, "tool_use", id="t", name="n", input={"whole": [1]}),
    f.closes(1),
    f.opens(2, "compaction", content="old"),
    f.delta(2, "compaction_delta", content="new"),
    f.closes(2),
    f.opens(None, "text", text=""),
    f.text(None, "x"),
    f.text(1, "late"),
    f.opens(0, "text", text="again"),
    f.text(0, "!"),
    f.delta(0, "vendor_delta", a=[1]),
    f.turn("end_turn", {"output_tokens": 9, "server_tool_use": {"web_search_requests": 1}}, container={"id": "d"}),
    f.STOP,
    f.start("msg_b", content=[{"type": "text", "text": "whole", "citations": [{"n": 2}]}], stop_reason="end_turn"),
    f.turn("end_turn", {"output_tokens": 10}),
    f.STOP,
]


@pytest.mark.parametrize("normalize", [None, lambda block: block], ids=["plain", "normalized"])
def test_the_raw_events_are_never_changed(normalize: Any) -> None:
    flat = events(*EVERYTHING)
    before = copy.deepcopy(flat)
    run_stages(flat, accumulate(normalize_block=normalize))
    assert flat == before


def test_a_normalizer_that_writes_into_its_block_changes_no_event() -> None:
    def vandal(block: dict[str, Any]) -> dict[str, Any]:
        if isinstance(block.get("input"), dict):
            block["input"]["whole"] = "changed"
        for citation in block.get("citations") or ():
            citation["n"] = "changed"
        block["type"] = "changed"
        return block

    flat = events(*EVERYTHING)
    before = copy.deepcopy(flat)
    out = run_stages(flat, accumulate(normalize_block=vandal))
    assert flat == before
    assert {m.message["content"][0]["type"] for m in messages(out) if m.message["content"]} == {"changed"}


def test_an_index_is_filled_in_on_a_copy_of_the_event() -> None:
    flat = events(f.start(), f.opens_text(None), f.text(None, "a"), {"type": "content_block_stop"}, f.turn(), f.STOP)
    out = run_stages(flat, accumulate())
    assert [e.index for e in of(out, ContentBlockStart, ContentBlockDelta, ContentBlockStop)] == [0, 0, 0]
    assert [e.index for e in of(flat, ContentBlockStart, ContentBlockDelta, ContentBlockStop)] == [None, None, None]


def test_an_event_whose_index_was_used_before_leaves_with_the_free_one() -> None:
    out = run(f.start(), f.says("a", 0), f.says("b", 0), f.turn(), f.STOP)
    assert [e.index for e in of(out, ContentBlockStart, ContentBlockDelta, ContentBlockStop)] == [0, 0, 0, 1, 1, 1]
    assert [m.index for m in messages(out)] == [0, 1]


# -- usage -------------------------------------------------------------------------------------------


def usage_of(*parts: Any) -> Any:
    return messages(run(*parts))[-1].message["usage"]


def test_fault_30_usage_is_cumulative_and_never_added_up() -> None:
    start = f.start(usage={"input_tokens": 26, "output_tokens": 3})
    last = {"input_tokens": 26, "output_tokens": 1956}
    assert usage_of(start, f.says("a"), f.turn(None, {"output_tokens": 900}), f.turn("end_turn", last), f.STOP) == last


def test_fault_26_a_sparse_later_message_delta_takes_nothing_away() -> None:
    first = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": "x", "container": {"id": "c"}, "stop_details": {"a": 1}},
        "usage": {"output_tokens": 5, "vendor": 1},
        "context_management": {"applied_edits": []},
    }
    sparse = {"type": "message_delta", "delta": {"stop_reason": None, "container": None}, "context_management": None}
    (message,) = messages(run(f.start(), f.says("a"), first, sparse, {"type": "message_delta"}, f.STOP))
    api = message.message
    assert (api["stop_reason"], api["stop_sequence"], api["container"]) == ("end_turn", "x", {"id": "c"})
    assert (api["stop_details"], api["context_management"]) == ({"a": 1}, {"applied_edits": []})
    assert api["usage"] == {"input_tokens": 7, "output_tokens": 5, "vendor": 1}


def test_zero_overwrites_null_does_not_unknown_keys_stay() -> None:
    start = f.start(usage={"input_tokens": 5, "cache_read_input_tokens": 3, "vendor": {"a": 1}})
    usage = {"input_tokens": 0, "cache_read_input_tokens": None, "new": None, "output_tokens_details": {"thinking": 2}}
    assert usage_of(start, f.says("a"), f.turn("end_turn", usage), f.STOP) == {
        "input_tokens": 0,
        "cache_read_input_tokens": 3,
        "vendor": {"a": 1},
        "new": None,
        "output_tokens_details": {"thinking": 2},
    }


@pytest.mark.parametrize("usage", [..., None, [], "x"])
def test_an_answer_without_usage_has_an_empty_one(usage: Any) -> None:
    start = f.start()
    del start["message"]["usage"]
    if usage is not ...:
        start["message"]["usage"] = usage
    (message,) = messages(run(start, f.says("a"), {"type": "message_delta", "delta": {"stop_reason": "x"}}, f.STOP))
    assert message.message["usage"] == {}


def test_a_message_delta_changes_neither_content_nor_what_the_message_is() -> None:
    late = {
        "type": "message_delta",
        "delta": {"content": [], "usage": {"a": 1}, "id": "x", "type": "y", "role": "user"},
    }
    (message,) = messages(run(f.start("msg_a"), f.says("a"), late, f.turn(), f.STOP))
    assert message.message["content"] == [f.text_block("a")]
    assert message.message["usage"] == {"input_tokens": 7, "output_tokens": 5}
    assert (message.message["id"], message.message["type"], message.message["role"]) == (
        "msg_a",
        "message",
        "assistant",
    )


# -- what a message is ---------------------------------------------------------------------------------


def test_a_message_has_the_envelope_of_its_answer() -> None:
    (message,) = messages(run(f.start("msg_a", vendor=1), f.says("a"), f.turn(), f.STOP, request_id="req_1"))
    assert to_wire(message) == {
        "type": "assistant",
        "message": {
            "id": "msg_a",
            "type": "message",
            "role": "assistant",
            "model": "claude-test-1",
            "content": [f.text_block("a")],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 7, "output_tokens": 5},
            "vendor": 1,
        },
        "uuid": message.uuid,
        "timestamp": message.timestamp,
        "requestId": "req_1",
    }
    assert str(uuid.UUID(message.uuid)) == message.uuid
    assert message.index == 0


def test_block_index_is_written_only_where_blocks_stop_in_another_order() -> None:
    in_order = messages(run(f.start(), f.says("a", 0), f.says("b", 1), f.turn(), f.STOP))
    assert [m.block_index for m in in_order] == [None, None]
    skipping = messages(run(f.start(), f.says("a", 2), f.says("b", 5), f.turn(), f.STOP))
    assert [(m.index, m.block_index) for m in skipping] == [(2, None), (5, None)]
    nested = [
        f.start(),
        f.opens_text(0),
        f.opens_text(1),
        f.text(0, "a"),
        f.text(1, "b"),
        f.closes(1),
        f.closes(0),
        f.turn(),
        f.STOP,
    ]
    assert [(m.index, m.block_index) for m in messages(run(*nested))] == [(1, 1), (0, 0)]
    backwards = messages(run(f.start(), f.says("b", 1), f.says("a", 0), f.turn(), f.STOP))
    assert [(m.index, m.block_index) for m in backwards] == [(1, None), (0, 0)]


def test_ids_are_asked_for_with_what_they_are_for() -> None:
    asked: list[tuple[object, ...]] = []

    def ids(*scope: object) -> str:
        asked.append(scope)
        return f"id-{len(asked)}"

    made = messages(
        run(f.start("a"), f.says("x", 0), f.says("y", 3), f.turn(), f.STOP, f.start("b"), f.turn(), f.STOP, ids=ids)
    )
    assert asked == [("assistant", 1, "a", 0), ("assistant", 1, "a", 3), ("assistant", 2, "b", "rest")]
    assert [m.uuid for m in made] == ["id-1", "id-2", "id-3"]


def test_stable_ids_make_two_runs_equal() -> None:
    one = run(*THREE_BLOCKS, ids=stable_ids("file"))
    assert one == run(*THREE_BLOCKS, ids=stable_ids("file"))
    assert len({m.uuid for m in messages(one)}) == 3


def test_messages_are_stamped_when_their_block_stops() -> None:
    read = iter([100.0, 200.5])
    made = messages(run(f.start(), f.says("a", 0), f.says("b", 1), f.turn(), f.STOP, clock=lambda: next(read)))
    assert [m.timestamp for m in made] == ["1970-01-01T00:01:40.000Z", "1970-01-01T00:03:20.500Z"]


def test_a_made_up_message_id_is_one_for_the_whole_answer_and_marked() -> None:
    made = messages(run(f.says("a", 0), f.says("b", 1), f.turn(), f.STOP))
    assert len({m.message["id"] for m in made}) == 1
    assert all(m.synthesized_envelope for m in made)
    for ident in (None, ""):
        made = messages(run(f.start(ident), f.says("a"), f.turn(), f.STOP))
        assert made[0].message["id"]
        assert made[0].synthesized_envelope


def test_content_that_is_a_string_becomes_a_marked_text_block() -> None:
    items = run(f.start(content="all of it", stop_reason="end_turn"), f.STOP)
    (message,) = messages(items)
    assert message.message["content"] == [f.text_block("all of it")]
    assert message.synthesized_block
    assert not of(items, ResponseFailed)


# -- normalize_block -----------------------------------------------------------------------------------


def test_normalize_block_runs_once_a_finished_block_before_it_is_emitted() -> None:
    seen: list[Any] = []

    def normalize(block: dict[str, Any]) -> dict[str, Any]:
        seen.append(copy.deepcopy(block))
        return {**block, "normalized": len(seen)}

    items = run(*THREE_BLOCKS, f.start("b"), f.opens_text(0), f.text(0, "partial"), normalize_block=normalize)
    blocks = [m.message["content"][0] for m in messages(items) if not m.is_aborted_mid_stream]
    assert [b["normalized"] for b in blocks] == [1, 2, 3]
    assert seen == [f.thinking_block("hm", "sig"), f.text_block("Hello"), f.tool_block({"a": 1})]
    assert messages(items)[-1].message["content"] == [f.text_block("partial")], "a partial block isn't finished"


def test_a_normalizer_that_raises_ends_the_stream_after_what_came_before() -> None:
    def normalize(block: dict[str, Any]) -> dict[str, Any]:
        if block["text"] == "b":
            raise ValueError("cannot")
        return block

    accumulator = stage(normalize_block=normalize)
    out = accumulator.feed(events(f.start(), f.says("a", 0), f.says("b", 1), f.turn()))
    assert names(out) == [
        "MessageStart",
        "ContentBlockStart",
        "ContentBlockDelta",
        "AssistantMessage",
        "ContentBlockStop",
        "ContentBlockStart",
        "ContentBlockDelta",
        "Fault",
    ]
    assert isinstance(out[-1].error, ValueError)  # type: ignore[union-attr]


# -- deltas --------------------------------------------------------------------------------------------


def test_fault_11_a_tool_input_is_parsed_once_however_many_fragments(monkeypatch: pytest.MonkeyPatch) -> None:
    from turnstream.operators import blocks

    parsed: list[str] = []
    loads = blocks.loads

    def counting(text: Any, **options: Any) -> Any:
        parsed.append(text)
        return loads(text, **options)

    monkeypatch.setattr(blocks, "loads", counting)
    value = {"content": "x" * 3_000}
    text = json.dumps(value)
    (message,) = messages(run(f.start(), f.calls(0, *text), f.turn("tool_use"), f.STOP))
    assert message.message["content"][0]["input"] == value
    assert parsed == [text]


def test_fault_12_fragments_are_joined_before_they_are_read() -> None:
    for cut in range(1, 7):
        text = '{"a":1}'
        (message,) = messages(run(f.start(), f.calls(0, text[:cut], "", text[cut:]), f.turn("tool_use"), f.STOP))
        assert message.message["content"][0]["input"] == {"a": 1}


def test_nothing_is_parsed_before_the_stop() -> None:
    accumulator = stage()
    out = [*accumulator.feed(events(f.start(), f.opens_tool(0), f.args(0, '{"a":1}')))]
    assert messages(out) == []
    (failed_with,) = messages(accumulator.flush())
    assert failed_with.unfinished_tool_inputs == [{"index": 0, "id": "toolu_a", "name": "look", "raw": '{"a":1}'}]


def test_an_unfinished_tool_keeps_the_whole_input_its_start_brought() -> None:
    items = run(f.start(), f.opens_tool(0, input={"path": "/a"}))
    (message,) = messages(items)
    assert json.loads(message.unfinished_tool_inputs[0]["raw"]) == {"path": "/a"}  # type: ignore[index]
    items = run(f.start(), f.opens_tool(0, input={"old": 1}), f.args(0, '{"new'))
    assert messages(items)[0].unfinished_tool_inputs[0]["raw"] == '{"new'  # type: ignore[index]


@pytest.mark.parametrize("depth", [200, 201])
def test_an_input_nests_as_deep_from_a_start_as_from_deltas(depth: int) -> None:
    deep = "[" * depth + "]" * depth
    by_delta = messages(run(f.start(), f.calls(0, deep), f.turn("tool_use"), f.STOP))[0]
    by_start = messages(
        run(f.start(), f.opens_tool(0, input=json.loads(deep)), f.closes(0), f.turn("tool_use"), f.STOP)
    )[0]
    assert by_delta.message["content"] == by_start.message["content"]
    assert by_delta.invalid_tool_input == by_start.invalid_tool_input == (True if depth > 200 else None)
    assert by_delta.message["content"][0]["input"] == (deep if depth > 200 else json.loads(deep))


@pytest.mark.parametrize("depth", [255, 600])
def test_a_start_deeper_than_any_encoder_writes_does_not_stop_the_stream(depth: int) -> None:
    payload = b'{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"n","input":'
    payload += b"[" * depth + b"]" * depth + b"}}"
    data = f.sse(f.start(), f.frame(payload), f.closes(0), f.turn("tool_use"), f.STOP)
    items = run_stages([data], decode_sse(), parse_events(), accumulate())
    (message,) = messages(items)
    assert message.message["content"][0]["input"] == "[" * depth + "]" * depth
    assert message.invalid_tool_input
    for item in items:
        encode(item)


def test_fault_24_a_signature_without_text_survives_a_missing_stop() -> None:
    items = run(f.start(), f.opens_thinking(0), f.signs(0, "sig"), f.turn(), f.STOP)
    assert [m.message["content"] for m in messages(items)] == [[f.thinking_block("", "sig")]]
    items = run(f.start(), f.opens_thinking(0), f.signs(0, "sig"))
    assert [m.message["content"] for m in messages(items)] == [[f.thinking_block("", "sig")]]


def test_a_delta_after_the_stop_is_kept_on_the_message_that_is_out_already() -> None:
    accumulator = stage()
    (message,) = messages(accumulator.feed(events(f.start(), f.says("a"))))
    assert message.unapplied_deltas is None
    out = accumulator.feed(events(f.text(0, "late"), f.cites(0, {"n": 1})))
    assert message.unapplied_deltas == [f.text(0, "late")["delta"], f.cites(0, {"n": 1})["delta"]]
    assert message.message["content"] == [f.text_block("a")]
    assert kinds(out) == ["delta_after_stop", "delta_after_stop"]


def test_the_short_way_for_runs_of_deltas_ends_with_its_block() -> None:
    # The block that deltas go to is cached: stops, other kinds, other blocks and new answers must end that.
    items = run(
        f.start("a"),
        f.opens_text(0),
        f.text(0, "1"),
        f.text(0, "2"),
        f.opens_thinking(1),
        f.thinks(1, "x"),
        f.text(0, "3"),
        f.thinks(1, "y"),
        f.closes(0),
        f.thinks(1, "z"),
        f.text(0, "late"),
        f.closes(1),
        f.turn(),
        f.STOP,
        f.start("b"),
        f.opens_text(0),
        f.text(0, "new"),
        f.closes(0),
        f.turn(),
        f.STOP,
    )
    assert [m.message["content"][0] for m in messages(items)] == [
        f.text_block("123"),
        f.thinking_block("xyz"),
        f.text_block("new"),
    ]


def test_a_made_up_block_never_takes_the_place_of_one_that_got_its_index() -> None:
    # Index 0 was used twice, so the second block got 1; then a delta names 1, which the wire never opened.
    items = run(
        f.start(), f.says("a", 0), f.opens_text(0), f.text(0, "b"), f.closes(0), f.text(1, "c"), f.turn(), f.STOP
    )
    assert sorted((m.index, m.message["content"][0]["text"]) for m in messages(items)) == [(0, "a"), (1, "b"), (2, "c")]


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


# -- several streams ---------------------------------------------------------------------------------------


def test_fault_17_state_is_per_subscription() -> None:
    operator = accumulate(ids=seeded_ids(1), clock=seeded_clock())
    one: Subject[Any] = Subject()
    two: Subject[Any] = Subject()
    first, second = record_observable(operator(one)), record_observable(operator(two))
    left = events(f.start("a"), f.says("left"), f.turn(), f.STOP)
    right = events(f.start("b"), f.opens_thinking(0), f.thinks(0, "right"), f.closes(0), f.turn("max_tokens"), f.STOP)
    for number in range(max(len(left), len(right))):
        for subject, flat in ((one, left), (two, right)):
            if number < len(flat):
                subject.on_next([flat[number]])
    one.on_completed()
    two.on_completed()
    assert [m.message["content"] for m in messages(first.items)] == [[f.text_block("left")]]
    assert [m.message["content"] for m in messages(second.items)] == [[f.thinking_block("right")]]
    for seen in (first, second):
        assert not of(seen.items, ResponseFailed, StreamNote, Tombstone)
        assert seen.completed


def test_a_second_subscription_starts_afresh() -> None:
    source = reactivex.of(events(f.start(), f.opens_text(0), f.text(0, "half")))
    observable = accumulate(ids=seeded_ids(1), clock=seeded_clock())(source)
    for _ in range(2):
        items = record_observable(observable).items
        assert [m.message["content"] for m in messages(items)] == [[f.text_block("half")]]


def test_a_finished_stage_is_freed_at_once() -> None:
    # Two thousand short answers, each with a chain of its own: no reference cycle may keep them.
    accumulator: Accumulator | None = stage()
    assert accumulator is not None
    accumulator.feed(events(*THREE_BLOCKS))
    ref = weakref.ref(accumulator)
    gc.disable()
    try:
        accumulator = None
        assert ref() is None
    finally:
        gc.enable()


def test_an_ended_answer_is_let_go() -> None:
    parser, decoder, accumulator = EventParser(), SSEDecoder(), stage()
    out = accumulator.feed(parser.feed(decoder.feed([f.sse(*THREE_BLOCKS)])))
    message = messages(out)[0]
    assert sys.getrefcount(message) > 2
    del out
    assert sys.getrefcount(message) == 2, "only the variable here and the argument hold it"


# -- anything goes -----------------------------------------------------------------------------------------

INDEX = st.none() | st.integers(-1, 2) | st.just(0)
PAYLOADS = st.one_of(
    st.sampled_from(["a", "b", None, ""]).map(f.start),
    st.builds(lambda c: f.start("w", content=c), st.sampled_from(["", "text", None, 5, [5, {}], [f.text_block("x")]])),
    st.builds(f.opens_text, INDEX),
    st.builds(f.opens_thinking, INDEX),
    st.builds(f.opens_tool, INDEX),
    st.builds(lambda i: f.opens(i, "redacted_thinking", data="d"), INDEX),
    st.builds(lambda i: f.opens(i, "vendor"), INDEX),
    st.builds(f.text, INDEX, st.sampled_from(["", "a", "b"])),
    st.builds(f.thinks, INDEX, st.sampled_from(["", "c"])),
    st.builds(f.args, INDEX, st.sampled_from(["", '{"a":', "1}", "{}"])),
    st.builds(f.signs, INDEX, st.just("s")),
    st.builds(lambda i: f.cites(i, {"n": 1}), INDEX),
    st.builds(lambda i: f.delta(i, "compaction_delta", content="c"), INDEX),
    st.builds(lambda i: f.delta(i, "vendor_delta"), INDEX),
    st.builds(f.closes, INDEX),
    st.builds(f.turn, st.sampled_from([None, "end_turn", "tool_use"])),
    st.just(f.STOP),
    st.just(f.PING),
    st.just(f.fails()),
    st.just({"type": "vendor"}),
)


def text_in(items: Sequence[Any]) -> str:
    """All text deltas' characters that some message, tombstoned or not, or an unapplied delta holds."""
    out = []
    for message in messages(items):
        for block in message.message["content"]:
            out.append(block.get("text") or "")
        for value in message.unapplied_deltas or ():
            out.append(value.get("text") or "")
    return "".join(sorted("".join(out)))


def test_a_refused_delta_of_a_moved_block_passes_once_behind_its_note() -> None:
    items = run(
        f.start(), f.says("a"), f.opens_text(0), f.thinks(0, "x"), f.closes(0), f.thinks(0, "y"), f.turn(), f.STOP
    )
    assert [type(i).__name__ for i in items if isinstance(i, (ContentBlockDelta, StreamNote))] == [
        "ContentBlockDelta",
        "StreamNote",
        "StreamNote",
        "ContentBlockDelta",
        "StreamNote",
        "ContentBlockDelta",
    ]
    assert [i.index for i in items if isinstance(i, ContentBlockDelta)] == [0, 1, 1]


# Streams that are past their beginning find more than those that have to begin by chance.
BEGUN = st.sampled_from(
    [[], [f.start()], [f.start(), f.says("a"), f.opens_text(0)], [f.start(), f.opens_tool(1), f.opens_thinking(0)]]
)
STREAMS = st.builds(lambda begun, rest: [*f.flat((begun,)), *rest], BEGUN, st.lists(PAYLOADS, max_size=20))


@given(STREAMS, st.lists(st.integers(1, 5), max_size=10))
def test_no_stream_whatever_makes_it_crash_and_all_events_pass(payloads: list[Any], sizes: list[int]) -> None:
    flat = events(*payloads)
    before = copy.deepcopy(flat)
    items = run_stages(flat, accumulate(ids=seeded_ids(1), clock=seeded_clock()))
    assert flat == before
    passed = [i for i in items if isinstance(i, msgspec.Struct) and type(i) in {type(e) for e in flat}]
    notes = of(items, StreamNote, ResponseFailed, Tombstone, AssistantMessage)
    assert len(items) == len(flat) + len(notes)
    assert [type(i) for i in passed if i not in notes] == [type(e) for e in flat]
    assert items == run(*payloads, sizes=sizes)
    for item in items:
        encode(item)
    uuids = [m.uuid for m in messages(items)]
    assert len(set(uuids)) == len(uuids)
    tombstoned = [t.message for t in of(items, Tombstone)]
    assert all(any(t is m for m in messages(items)) for t in tombstoned)
    for message in messages(items):
        for block in message.message["content"]:
            assert not (message.is_aborted_mid_stream and block.get("type") == "tool_use")


@given(STREAMS)
def test_strict_is_lenient_up_to_its_fault(payloads: list[Any]) -> None:
    lenient = stage().feed(events(*payloads))
    strict = stage(strict=True).feed(events(*payloads))
    if strict and isinstance(strict[-1], Fault):
        strict = strict[:-1]
    strict_events = [i for i in strict if not isinstance(i, (StreamNote, ResponseFailed))]
    lenient_events = [i for i in lenient if not isinstance(i, (StreamNote, ResponseFailed))]
    assert [type(i) for i in strict_events] == [type(i) for i in lenient_events[: len(strict_events)]]


@given(
    st.lists(st.builds(f.text, st.integers(0, 2) | st.none(), st.text("abc", max_size=3)), max_size=12), st.booleans()
)
def test_no_text_is_lost_whatever_its_index(deltas: list[Any], stopped: bool) -> None:
    items = run(f.start(), f.opens_text(0), *deltas, *([f.turn(), f.STOP] if stopped else []))
    assert text_in(items) == "".join(sorted("".join(d["delta"]["text"] for d in deltas)))
