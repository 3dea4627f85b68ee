"""``accumulate``: what it emits, what is shared and updated in place, what never changes (WIRE.md §1, accumulation).

Rows of FAULTS.md are named in the tests that hold them.
"""

from __future__ import annotations

import copy
import json
import uuid
from typing import Any

import frames as f
import pytest
from accumulating import THREE_BLOCKS, events, messages, names, of, run, stage
from hypothesis import given
from hypothesis import strategies as st

from turnstream.messages import (
    AssistantMessage,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    MessageFactory,
    ResponseFailed,
    StreamNote,
    UserMessage,
    encode,
    seeded_clock,
    seeded_ids,
    stable_ids,
    to_wire,
)
from turnstream.operators import accumulate, run_stages

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
