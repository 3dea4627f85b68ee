"""Stage 1, filter (WIRE.md §4.1; FAULTS.md 18 to 26 on replay, 68, 74, 75)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from normalizing import (
    MODEL,
    answered,
    attached,
    call,
    contents,
    frozen,
    notice,
    progress,
    result,
    said,
    text,
    thought,
    user,
    uuids,
)

from turnstream.messages import (
    SYNTHETIC_TEXTS,
    AssistantMessage,
    CollapsedReadSearch,
    GroupedToolUse,
    MessageFactory,
    MessageStop,
    OpaqueRecord,
    Ping,
    RequestStart,
    ResponseFailed,
    Resync,
    StreamNote,
    SystemMessage,
    Tombstone,
    ToolUseSummary,
    decode_line,
    seeded_ids,
)
from turnstream.operators import accumulate, run_batches, run_stages
from turnstream.operators.normalize import Repair, filter_for_api, tombstoned_uuids


def passed(*messages: Any, **options: Any) -> list[Any]:
    return run_stages(messages, filter_for_api(**options))


HUMAN = user("u1", "hello")
SAID = said("a1", "m1", text("yes"))


def test_a_plain_conversation_passes_as_it_is() -> None:
    messages = [HUMAN, SAID, user("u2", "and?"), said("a2", "m2", text("so"))]
    out = passed(*messages)
    assert len(out) == 4
    assert all(new is old for new, old in zip(out, messages, strict=True))


@pytest.mark.parametrize(
    "item",
    [
        progress("p1"),
        ToolUseSummary(summary="read two files", uuid="s1", timestamp="t"),
        RequestStart(attempt=2),
        Ping(),
        MessageStop(),
        StreamNote(kind="odd", message="odd"),
        ResponseFailed(error={"type": "overloaded_error"}),
        Resync(),
        GroupedToolUse(tool_name="Read", messages=[SAID], results=[], uuid="g1"),
        CollapsedReadSearch(read_count=1, search_count=0, files=["f"], messages=[SAID], uuid="c1"),
        OpaqueRecord(type="file-history-snapshot", data={"type": "file-history-snapshot"}),
    ],
    ids=lambda item: type(item).__name__,
)
def test_process_and_display_items_go(item: Any) -> None:
    assert uuids(passed(HUMAN, item, SAID, item)) == ["u1", "a1"]


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"mode","mode":"plan"}',
        b'{"type":"atis-latch","uuid":"x1","message":{"role":"user","content":"not a message"}}',
        b'{"type":"ai-title","aiTitle":"t"}',
        b'{"type":"tool_progress","toolUseResult":[[1]]}',
        b"no json at all",
        b"[1,2]",
    ],
)
def test_fault_56_records_of_unknown_types_stay_out_of_the_request(line: bytes) -> None:
    log: list[Repair] = []
    assert uuids(passed(HUMAN, decode_line(line), SAID, explain=log.append)) == ["u1", "a1"]
    assert [repair.stage for repair in log] == ["filter"]


def test_virtual_messages_go() -> None:
    assert passed(user("u1", "shown", is_virtual=True), said("a1", "m1", text("shown"), is_virtual=True)) == []


def test_meta_and_transcript_only_users_stay() -> None:
    messages = [
        user("u1", "go on", is_meta=True),
        user("u2", "full history only", is_visible_in_transcript_only=True),
        user("u3", "summary", is_compact_summary=True, is_meta=True, is_visible_in_transcript_only=True),
    ]
    assert passed(*messages) == messages


@pytest.mark.parametrize("words", sorted(SYNTHETIC_TEXTS))
@pytest.mark.parametrize("shape", ["string", "block", "item", "beside blanks"])
def test_fault_74_synthetic_texts_are_never_sent(words: str, shape: str) -> None:
    content: Any = {
        "string": words,
        "block": [text(words)],
        "item": [words],
        "beside blanks": [text(" \n"), None, text(words)],
    }[shape]
    message = said("a2", "m2")
    message.message["content"] = content
    assert uuids(passed(HUMAN, SAID, message, user("u2", content), user("u3", "go on"))) == ["u1", "a1", "u3"]


def test_fault_74_a_synthetic_text_beside_words_stays() -> None:
    content = [text("[Request interrupted by user]"), text("do this instead")]
    assert contents(passed(user("u1", content))) == [content]


def test_fault_74_api_errors_and_answers_without_a_model_are_never_sent() -> None:
    """A transcript with seven of them (the row's reproduction)."""
    factory = MessageFactory(seeded_ids(1))
    synthetic = [
        factory.api_error("API Error: 529 overloaded"),
        factory.api_error("Prompt is too long", api_error="prompt_too_long"),
        factory.assistant("made here"),
        said("a3", "m3", text("API Error"), is_api_error_message=True),
        said("a4", "m4", text("no model"), model=None),
        said("a5", "m5", text("empty model"), model=""),
        said("a6", "m6", text("synthetic"), model="<synthetic>"),
    ]
    log: list[Repair] = []
    out = passed(HUMAN, SAID, *synthetic, user("u2", "again"), explain=log.append)
    assert uuids(out) == ["u1", "a1", "u2"]
    assert [repair.uuid for repair in log] == uuids(synthetic)
    assert all(repair.stage == "filter" and repair.what and repair.why for repair in log)


def test_fault_72_the_synthetic_error_message_itself_is_not_sent() -> None:
    factory = MessageFactory(seeded_ids(1))
    error = factory.api_error("The PDF specified was not valid", error="invalid_request")
    assert uuids(passed(HUMAN, error, user("u2", "go on"))) == ["u1", "u2"]


@pytest.mark.parametrize(
    "subtype",
    ["informational", "api_error", "compact_boundary", "turn_duration", "stop_hook_summary", "brand_new", None],
)
def test_fault_75_system_subtypes_other_than_local_command_stay_out(subtype: Any) -> None:
    system = SystemMessage(subtype=subtype, content="notice", uuid="s1", timestamp="t")
    assert uuids(passed(HUMAN, system, SAID)) == ["u1", "a1"]


def test_local_commands_and_attachments_pass() -> None:
    messages = [notice("n1"), attached("x1"), HUMAN]
    assert passed(*messages) == messages


def test_a_tools_own_output_never_goes_out() -> None:
    message = result("r1", "t1", tool_use_result={"stdout": "secret"})
    before = frozen([message])
    out = passed(message)
    assert out[0].tool_use_result is msgspec.UNSET
    assert contents(out) == [[answered("t1")]]
    assert [message] == before


# -- tombstones -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", [1, 2, 99])
def test_tombstoned_messages_go(split: int) -> None:
    """Fault 16: a superseded attempt's blocks are taken back one by one, then the next attempt begins."""
    one, two = said("a1", "m1", thought("hm")), said("a2", "m1", call("t1"))
    items = [HUMAN, one, two, Tombstone(message=one), Tombstone(message=two), said("b1", "m2", text("yes"))]
    batches = [items[at : at + split] for at in range(0, len(items), split)]
    out = [item for batch in run_batches(batches, filter_for_api()) for item in batch]
    assert uuids(out) == ["u1", "b1"]


@pytest.mark.parametrize("form", ["message", "object", "copy", "read"])
def test_a_tombstone_names_its_message_by_uuid(form: str) -> None:
    read = OpaqueRecord(type=None, data={"uuid": "a1"})  # an object that is no message, in a line
    target: Any = {"message": SAID, "object": {"uuid": "a1"}, "copy": said("a1", None), "read": read}[form]
    assert uuids(passed(HUMAN, SAID, result("r1", "t1"), Tombstone(message=target))) == ["u1", "r1"]


def test_a_tombstone_takes_back_a_user_message_too() -> None:
    late = result("r1", "t1")
    assert uuids(passed(HUMAN, SAID, late, Tombstone(message=late))) == ["u1", "a1"]


def test_a_message_without_uuid_is_taken_back_by_identity() -> None:
    one, other = said("", "m1", text("one")), said("", "m1", text("other"))
    assert contents(passed(one, other, Tombstone(message=one))) == [[text("other")]]


def test_an_api_error_between_an_attempt_and_its_tombstones_changes_nothing() -> None:
    error = MessageFactory(seeded_ids(1)).api_error("API Error: 529")
    assert uuids(passed(HUMAN, SAID, error, Tombstone(message=SAID), said("b1", "m2", text("so")))) == ["u1", "b1"]


def test_a_tombstone_for_another_turn_harms_nobody() -> None:
    stray = Tombstone(message={"uuid": "elsewhere"})
    assert uuids(passed(HUMAN, stray, SAID, stray, Tombstone(message=None), Tombstone(message={}))) == ["u1", "a1"]


def test_a_whole_lists_tombstones_can_be_known_beforehand() -> None:
    messages = [HUMAN, SAID, user("u2", "no"), said("b1", "m2", text("so")), Tombstone(message=SAID)]
    assert tombstoned_uuids(messages) == {"a1"}
    assert uuids(passed(*messages, tombstoned=tombstoned_uuids(messages))) == ["u1", "u2", "b1"]


def test_the_log_names_what_a_tombstone_took_back() -> None:
    log: list[Repair] = []
    passed(SAID, Tombstone(message=SAID), explain=log.append)
    assert [(repair.uuid, repair.why) for repair in log] == [("a1", "taken back by a tombstone")]


# -- damaged blocks on replay -----------------------------------------------------------------------------


def test_faults_17_and_24_a_block_with_unapplied_deltas_is_not_sent_back() -> None:
    """Also where the delta came after the block was emitted: the message is marked in place (WIRE.md §1)."""
    block = said("a1", "m1", call("t1"), index=0)
    stage = filter_for_api().chain()
    out = [*stage.feed([HUMAN, block])]
    block.unapplied_deltas = [{"type": "text_delta", "text": "stray"}]
    out += stage.feed([said("a2", "m1", text("fine"), index=1)])
    out += stage.flush()
    assert uuids(out) == ["u1", "a2"]


def test_faults_17_and_24_as_accumulate_gives_it() -> None:
    wire: list[dict[str, Any]] = [
        {
            "type": "message_start",
            "message": {"id": "m1", "model": MODEL, "role": "assistant", "content": [], "usage": {}},
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "fine"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": call("t1")},
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "stray"}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}},
        {"type": "message_stop"},
    ]
    from turnstream.messages import event_from_wire

    out = run_stages([event_from_wire(event) for event in wire], accumulate(), filter_for_api())
    assert contents(out) == [[text("fine")]]


def test_fault_68_unfinished_thinking_is_not_sent_back_and_the_partial_text_is() -> None:
    """Signed or not: a signature in the block's start says nothing of an end that never came."""
    partial = said("a1", "m1", thought("half", ""), text("half a te"), is_aborted_mid_stream=True)
    log: list[Repair] = []
    before = frozen([partial])
    out = passed(HUMAN, partial, explain=log.append)
    assert contents(out)[1] == [text("half a te")]
    assert [partial] == before
    assert [repair.what for repair in log] == ["dropped thinking"]
    signed = said("a1", "m1", thought("half"), is_aborted_mid_stream=True)
    assert uuids(passed(HUMAN, signed)) == ["u1"]


def test_fault_66_a_partial_keeps_its_text_whatever_else_was_left_over() -> None:
    partial = said("a1", "m1", text("half"), is_aborted_mid_stream=True, unapplied_deltas=[{"type": "odd_delta"}])
    assert contents(passed(partial)) == [[text("half")]]


def test_faults_23_and_24_finished_thinking_passes_untouched() -> None:
    blocks: list[dict[str, Any]] = [
        thought("one"),
        {"type": "redacted_thinking", "data": "x"},
        text("words"),
        thought("", "only a signature"),
    ]
    messages = [said(f"a{n}", "m1", block, index=n) for n, block in enumerate(blocks)]
    out = passed(*messages)
    assert all(new is old for new, old in zip(out, messages, strict=True))


# -- when it lets go ---------------------------------------------------------------------------------------


def test_it_holds_the_last_answer_and_what_followed() -> None:
    stage = filter_for_api().chain()
    assert uuids(stage.feed([HUMAN, SAID, result("r1", "t1")])) == ["u1"]
    assert uuids(stage.feed([said("b1", "m2", text("so"))])) == ["a1", "r1"]
    assert uuids(stage.flush()) == ["b1"]


@pytest.mark.parametrize("api_id", ["always the same", None])
def test_a_gateway_without_ids_of_its_own_is_held_by_the_turn(api_id: Any) -> None:
    """Fault 29: no ids, or one for all; then words of a human begin a turn."""
    stage = filter_for_api().chain()
    stage.feed([HUMAN, said("a1", api_id, text("x")), user("u2", "more")])
    assert uuids(stage.feed([said("a2", api_id, text("y"))])) == ["a1", "u2"]


def test_odd_content_never_raises() -> None:
    odd: list[Any] = [None, 7, {}, [], [None], [[]], [{}], {"type": "text", "text": "words"}, [{"type": 5, "text": 6}]]
    for content in odd:
        message = AssistantMessage(message={"id": "m", "model": MODEL, "content": content}, uuid="a", timestamp="t")
        assert uuids(passed(user("u", content), message)) == ["u", "a"]
    assert uuids(passed(AssistantMessage(message={"id": "m", "model": MODEL}, uuid="a", timestamp="t"))) == ["a"]
