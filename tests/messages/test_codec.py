"""Messages to and from the wire: nothing that was read is lost or changed (WIRE.md §2, §3)."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import recordings
from hypothesis import given
from hypothesis import strategies as st

from turnstream.messages import (
    AssistantMessage,
    AttachmentMessage,
    ContentBlockDelta,
    MessageFactory,
    MessageStop,
    OpaqueRecord,
    Ping,
    ProgressMessage,
    RequestStart,
    ResponseFailed,
    Resync,
    StreamEventMessage,
    StreamNote,
    SystemMessage,
    TextDelta,
    Tombstone,
    ToolUseSummary,
    UnknownEvent,
    UserMessage,
    decode_line,
    encode,
    from_wire,
    raw_of,
    replace,
    seeded_clock,
    seeded_ids,
    split_lines,
    to_wire,
)


def transcripts() -> list[Any]:
    folder = recordings.folder()
    if folder is None:
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"no recordings: set {recordings.VARIABLE}"))]
    return [
        pytest.param(path, id=str(path.relative_to(folder / "transcripts")))
        for path in sorted((folder / "transcripts").rglob("*"))
        if path.is_file()
    ]


# -- recorded lines ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", transcripts())
def test_every_recorded_line_is_written_as_it_was(path: Path) -> None:
    data = path.read_bytes()
    lines = list(split_lines(data))
    assert b"\n".join(lines) == data
    for line in lines:
        message = decode_line(line)
        assert encode(message) == line
        assert raw_of(message) == line


@pytest.mark.parametrize("path", transcripts())
def test_what_is_modelled_of_a_recorded_line_is_all_of_it(path: Path) -> None:
    for line in split_lines(path.read_bytes()):
        try:
            value = json.loads(line)
        except ValueError:
            assert isinstance(decode_line(line), OpaqueRecord)
            continue
        assert to_wire(decode_line(line)) == value


@pytest.mark.parametrize("path", transcripts())
def test_a_changed_recorded_line_differs_in_the_change_only(path: Path) -> None:
    for line in split_lines(path.read_bytes()):
        message = decode_line(line)
        if not isinstance(message, (UserMessage, AssistantMessage, SystemMessage, AttachmentMessage)):
            continue
        changed = json.loads(encode(replace(message, uuid="new-uuid")), object_pairs_hook=list)
        expected = json.loads(line, object_pairs_hook=list)
        if message.uuid:
            expected = [["uuid", "new-uuid"] if key == "uuid" else [key, value] for key, value in expected]
        else:
            expected.append(["uuid", "new-uuid"])
        assert [list(pair) for pair in changed] == [list(pair) for pair in expected]


# -- lines that are hard -----------------------------------------------------------------------------

ODD_LINES = [
    b"",
    b" ",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"12",
    b"{}",
    b'{"type":null}',
    b'{"type":7,"uuid":1}',
    b'{"type":["user"]}',
    b'{"type":"user"}',
    b'{"type":"user","message":"text"}',
    b'{"type":"assistant","message":[]}',
    b'{"type":"attachment"}',
    b'{"type":"stream_event","event":{"type":"content_block_start"}}',
    b'{"type":"stream_event","event":"x"}',
    b'{"type":"tombstone"}',
    b'{"type":"tombstone","message":7}',
    b'{"type":"tombstone","message":{"uuid":"u"}}',
    b'{"type":"response_failed"}',
    b'{"type":"stream_note","kind":1,"message":"m"}',
    b'{"type":"tool_use_summary","summary":null}',
    b'{"type":"progress"}',
    b'{"type":"system"}',
    b'{"type":"from_the_future","a":{"b":[1.50,1e5]}}',
    b'{ "type" : "ping" }\r',
    b'\xef\xbb\xbf{"type":"user","message":{}}',
    b'{"type":"user","message":{"content":"\\ud83d"},"uuid":"u","timestamp":"t"}',
    b'{"type":"user","message":{"content":"\xff\xfe"},"uuid":"u","timestamp":"t"}',
    b'{"type":"user","message":{"content":"' + "ä😀\u2028".encode() + b'"}}',
    b'{"type":"user","message":{"n":123456789012345678901234567890,"f":1e-07,"g":-0.0}}',
    b'{"type":"user","message":{"n":1e400}}',
    b'{"type":"user","message":{"n":' + b"9" * 5000 + b"}}",
    b'{"type":"user","message":{},"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"type":"user","type":"assistant","message":{}}',
    b'{"type":"user","message":{}}{"type":"user","message":{}}',
    b"\x00\x00",
]


@pytest.mark.parametrize("line", ODD_LINES, ids=lambda line: line[:40])
def test_no_line_raises_and_none_loses_a_byte(line: bytes) -> None:
    message = decode_line(line)
    assert encode(message) == line
    to_wire(message)
    assert encode(Tombstone(message=message))


@given(st.binary(max_size=60))
def test_no_bytes_raise(line: bytes) -> None:
    assert encode(decode_line(line)) == line


@given(st.binary(max_size=40))
def test_split_lines_is_the_inverse_of_joining(data: bytes) -> None:
    assert list(split_lines(data)) == data.split(b"\n")


def test_a_line_that_is_no_json_object_says_why() -> None:
    assert decode_line(b"[1]") == OpaqueRecord(type=None, data=[1], problem="not a JSON object")
    broken = decode_line(b"{")
    assert isinstance(broken, OpaqueRecord)
    assert broken.problem
    assert decode_line(b'{"type":"x","a":1}') == OpaqueRecord(type="x", data={"type": "x", "a": 1})
    without = decode_line(b'{"type":"user"}')
    assert isinstance(without, OpaqueRecord)
    assert without.problem == "user without message"
    assert without.type == "user"


def test_a_tool_input_of_200_levels_is_read_back_as_the_message_it_was() -> None:
    # The value limit is 200; the record around it must not turn the line opaque.
    deep = json.loads("[" * 200 + "]" * 200)
    block = {"type": "tool_use", "id": "t", "name": "n", "input": deep}
    message = AssistantMessage(message={"role": "assistant", "content": [block]}, uuid="u", timestamp="t")
    for item in (message, Tombstone(message=message)):
        back = decode_line(encode(item))
        assert back == item


def test_equality_ignores_the_kept_line() -> None:
    line = b'{"type":"user","message":{"content":"a"},"uuid":"u","timestamp":"t"}'
    assert decode_line(line) == UserMessage(message={"content": "a"}, uuid="u", timestamp="t")


def test_a_copy_does_not_carry_the_line() -> None:
    # Else a changed copy would be written as the old bytes.
    message = decode_line(b'{"type":"user", "message":{"content":"a"}, "uuid":"u", "timestamp":"t"}')
    assert isinstance(message, UserMessage)
    for twin in (copy.copy(message), copy.deepcopy(message), msgspec.structs.replace(message)):
        twin.uuid = "changed"
        assert json.loads(encode(twin))["uuid"] == "changed"


# -- the model against the wire ----------------------------------------------------------------------

MESSAGES: list[Any] = [
    UserMessage(
        message={"role": "user", "content": "a"},
        uuid="u",
        timestamp="t",
        is_meta=True,
        is_visible_in_transcript_only=False,
        is_virtual=True,
        is_compact_summary=True,
        tool_use_result={"a": 1},
        mcp_meta={"b": 1},
        image_paste_ids=[1],
        source_tool_assistant_uuid="s",
        source_tool_use_id="toolu",
        permission_mode="plan",
        origin={"kind": "human"},
        extra={"parentUuid": None, "cwd": "/x", "todos": []},
    ),
    AssistantMessage(
        message={"role": "assistant", "content": []},
        uuid="u",
        timestamp="t",
        request_id="req",
        api_error="max_output_tokens",
        api_error_status=529,
        error="overloaded",
        error_details="d",
        is_api_error_message=False,
        is_virtual=True,
        is_aborted_mid_stream=True,
        block_index=3,
        invalid_tool_input=True,
        unapplied_deltas=[{"type": "x"}],
        unfinished_tool_inputs=[{"index": 1, "id": "t", "name": "n", "raw": "{"}],
        synthesized_envelope=True,
        synthesized_block=True,
        extra={"agentId": "a"},
    ),
    SystemMessage(
        subtype="compact_boundary",
        uuid="u",
        timestamp="t",
        content="Conversation compacted",
        level="info",
        is_meta=False,
        fields={"compactMetadata": {"trigger": "auto"}},
        extra={"parentUuid": None, "logicalParentUuid": "l"},
    ),
    SystemMessage(subtype=None, uuid="u", timestamp="t"),
    AttachmentMessage(attachment={"type": "memory"}, uuid="u", timestamp="t"),
    ProgressMessage(data={"type": "x"}, uuid="u", timestamp="t", tool_use_id="a", parent_tool_use_id="b"),
    StreamEventMessage(event=Ping(), ttft_ms=1.5, parent_tool_use_id="p"),
    StreamEventMessage(event=ContentBlockDelta(delta=TextDelta("a", extra={"x": 1}), index=0, extra={"y": 2})),
    StreamEventMessage(event=UnknownEvent("v", {"type": "v"})),
    RequestStart(attempt=2, extra={"x": 1}),
    Tombstone(message=UserMessage(message={}, uuid="u", timestamp="t")),
    ResponseFailed(
        error={"type": "overloaded_error", "message": "m", "retryable": True},
        kept=[{"type": "text"}],
        outcome="api_error(overloaded_error)",
        event_number=7,
        byte_offset=0,
    ),
    StreamNote(kind="event_error", message="m", event_number=1, byte_offset=2),
    Resync(),
    ToolUseSummary(summary="s", uuid="u", timestamp="t", preceding_tool_use_ids=["a"]),
    OpaqueRecord(type="summary", data={"type": "summary", "leafUuid": "l"}),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_round_trip(message: Any) -> None:
    assert from_wire(json.loads(json.dumps(to_wire(message)))) == message
    assert decode_line(encode(message)) == message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_the_wire_has_a_type_and_no_null_but_what_was_given(message: Any) -> None:
    wire = to_wire(message)
    assert isinstance(wire["type"], str)
    assert {k for k, v in wire.items() if v is None} <= {"parentUuid"}
    assert encode(message) == json.dumps(wire, separators=(",", ":"), ensure_ascii=False).encode()


def test_what_is_in_memory_only_is_not_written() -> None:
    assert to_wire(RequestStart(attempt=1, committed=True)) == {"type": "stream_request_start", "attempt": 1}
    message = AssistantMessage(message={}, uuid="u", timestamp="t", index=4)
    assert to_wire(message) == {"type": "assistant", "message": {}, "uuid": "u", "timestamp": "t"}


def test_foreign_keys_that_are_called_like_our_internals_are_kept() -> None:
    for kind in ("user", "assistant", "system", "progress"):
        value = {"type": kind, "message": {}, "uuid": "u", "timestamp": "t", "data": 1}
        value |= {"index": 1, "extra": 2, "fields": 3, "committed": 4}
        assert to_wire(from_wire(copy.deepcopy(value))) == value


def test_known_keys_with_foreign_values_are_kept() -> None:
    value = {
        "type": "assistant",
        "message": {},
        "uuid": 7,
        "timestamp": None,
        "requestId": None,
        "isApiErrorMessage": "yes",
        "apiErrorStatus": True,
        "blockIndex": "1",
        "unappliedDeltas": {},
    }
    message = from_wire(copy.deepcopy(value))
    assert isinstance(message, AssistantMessage)
    assert (message.uuid, message.request_id, message.api_error_status) == ("", None, None)
    assert to_wire(message) == value


def test_explicit_null_of_a_free_value_is_kept() -> None:
    value = {"type": "user", "message": {}, "uuid": "u", "timestamp": "t", "toolUseResult": None, "origin": None}
    message = from_wire(value)
    assert isinstance(message, UserMessage)
    assert message.tool_use_result is None
    assert message.mcp_meta is msgspec.UNSET
    assert to_wire(message) == value


def test_a_system_messages_own_fields_are_told_from_the_envelope() -> None:
    value = {
        "type": "system",
        "subtype": "turn_duration",
        "durationMs": 5,
        "newField": [1],
        "parentUuid": "p",
        "cwd": "/",
        "uuid": "u",
        "timestamp": "t",
    }
    message = from_wire(value)
    assert isinstance(message, SystemMessage)
    assert message.fields == {"durationMs": 5, "newField": [1]}
    assert message.extra == {"parentUuid": "p", "cwd": "/"}


def test_the_older_name_of_a_summarys_tools_is_accepted() -> None:
    value = {"type": "tool_use_summary", "summary": "s", "uuid": "u", "timestamp": "t", "toolUseIds": ["a"]}
    message = from_wire(value)
    assert isinstance(message, ToolUseSummary)
    assert message.preceding_tool_use_ids == ["a"]
    assert to_wire(message)["precedingToolUseIds"] == ["a"]
    both = from_wire({**value, "precedingToolUseIds": ["b"]})
    assert isinstance(both, ToolUseSummary)
    assert both.preceding_tool_use_ids == ["b"]


def test_from_wire_does_not_change_its_argument() -> None:
    for message in MESSAGES:
        wire = to_wire(message)
        before = copy.deepcopy(wire)
        from_wire(wire)
        assert wire == before


def test_a_bare_event_gets_its_envelope_on_output() -> None:
    event = ContentBlockDelta(delta=TextDelta("ä"), index=1)
    expected = {
        "type": "stream_event",
        "event": {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "ä"}, "index": 1},
    }
    assert to_wire(event) == expected
    assert encode(event) == json.dumps(expected, separators=(",", ":"), ensure_ascii=False).encode()
    assert encode(MessageStop()) == b'{"type":"stream_event","event":{"type":"message_stop"}}'
    assert to_wire(StreamEventMessage(event={"type": "ping"})) == {"type": "stream_event", "event": {"type": "ping"}}


def test_what_json_cannot_hold_is_written_all_the_same() -> None:
    message = MessageFactory(seeded_ids(), seeded_clock()).user("half \ud83d", mcp_meta={"n": 2**80})
    value = json.loads(encode(message))
    assert value["message"]["content"] == "half \ufffd"
    assert value["mcpMeta"] == {"n": 2**80}


# -- replace -----------------------------------------------------------------------------------------

LINE = (
    b'{"zzz":1, "uuid":"u","isMeta":true, "message":{"role":"user","content":"a"},'
    b'"parentUuid":null,"timestamp":"t","type":"user","aaa":[1.50]}'
)


def order(data: bytes) -> list[str]:
    return [key for key, _ in json.loads(data, object_pairs_hook=list)]


def test_replace_keeps_unknown_keys_and_key_order() -> None:
    message = decode_line(LINE)
    assert isinstance(message, UserMessage)
    changed = replace(message, message={"role": "user", "content": "b"})
    assert raw_of(changed) is None
    assert order(encode(changed)) == order(LINE)
    assert json.loads(encode(changed)) == {**json.loads(LINE), "message": {"role": "user", "content": "b"}}
    assert encode(message) == LINE, "the old message lost its line"
    assert message.message["content"] == "a"


def test_replace_adds_at_the_end_and_takes_away() -> None:
    message = decode_line(LINE)
    assert isinstance(message, UserMessage)
    changed = replace(message, is_meta=None, permission_mode="plan")
    keys = order(LINE)
    keys.remove("isMeta")
    assert order(encode(changed)) == [*keys, "permissionMode"]


def test_replace_of_a_replaced_message_still_has_the_template() -> None:
    message = decode_line(LINE)
    assert isinstance(message, UserMessage)
    twice = replace(replace(message, uuid="v"), timestamp="w")
    assert order(encode(twice)) == order(LINE)
    assert json.loads(encode(twice)) == {**json.loads(LINE), "uuid": "v", "timestamp": "w"}
    back = replace(twice, uuid="u", timestamp="t")
    assert json.loads(encode(back)) == json.loads(LINE)


def test_replace_may_change_the_unknown_keys_too() -> None:
    message = decode_line(LINE)
    assert isinstance(message, UserMessage)
    extra = dict(message.extra or {})
    del extra["zzz"]
    value = json.loads(encode(replace(message, extra={**extra, "aaa": 2, "new": 3})))
    assert "zzz" not in value
    assert (value["aaa"], value["new"]) == (2, 3)


@pytest.mark.parametrize(("old", "new"), [(b"1", True), (b"1", 1.0), (b"0", False), (b"true", 1), (b"[1]", [True])])
def test_replace_sees_the_difference_of_values_that_python_calls_equal(old: bytes, new: Any) -> None:
    line = b'{"type":"user","message":{},"uuid":"u","timestamp":"t","toolUseResult":' + old + b"}"
    message = decode_line(line)
    assert isinstance(message, UserMessage)
    written = json.loads(encode(replace(message, tool_use_result=new)))["toolUseResult"]
    assert json.dumps(written) == json.dumps(new)


def test_replace_sets_what_was_null_or_foreign_on_the_line() -> None:
    line = b'{"requestId":null,"type":"assistant","message":{},"uuid":7,"timestamp":"t"}'
    message = decode_line(line)
    assert isinstance(message, AssistantMessage)
    changed = replace(message, request_id="req", uuid="u")
    assert encode(changed) == b'{"requestId":"req","type":"assistant","message":{},"uuid":"u","timestamp":"t"}'


def test_replace_of_a_message_made_here_needs_no_template() -> None:
    message = MessageFactory(seeded_ids(), seeded_clock()).user("a")
    changed = replace(message, uuid="v")
    assert to_wire(changed) == {**to_wire(message), "uuid": "v"}


def test_replace_of_an_opaque_record_writes_the_new_data() -> None:
    message = decode_line(b'{"type":"summary", "summary":"a"}')
    assert isinstance(message, OpaqueRecord)
    assert encode(replace(message, data={"type": "summary", "summary": "b"})) == b'{"type":"summary","summary":"b"}'


def test_replace_of_a_line_with_half_a_surrogate_pair() -> None:
    line = b'{"type":"user","message":{"content":"\\ud83d"},"uuid":"u","timestamp":"t","x":"\\udc00"}'
    message = decode_line(line)
    assert isinstance(message, UserMessage)
    assert json.loads(encode(replace(message, uuid="v"))) == {
        "type": "user",
        "message": {"content": "\ufffd"},
        "uuid": "v",
        "timestamp": "t",
        "x": "\ufffd",
    }


def test_replace_of_a_system_messages_fields() -> None:
    line = b'{"a":1,"type":"system","subtype":"x","uuid":"u","timestamp":"t","parentUuid":"p"}'
    message = decode_line(line)
    assert isinstance(message, SystemMessage)
    value = json.loads(encode(replace(message, fields={"b": 2})))
    assert value == {"type": "system", "subtype": "x", "uuid": "u", "timestamp": "t", "parentUuid": "p", "b": 2}


# -- anything ----------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        "message",
        "uuid",
        "timestamp",
        "isMeta",
        "isVirtual",
        "toolUseResult",
        "origin",
        "requestId",
        "apiErrorStatus",
        "blockIndex",
        "subtype",
        "content",
        "level",
        "data",
        "toolUseID",
        "parentToolUseID",
        "attachment",
        "event",
        "ttftMs",
        "attempt",
        "error",
        "kept",
        "outcome",
        "kind",
        "summary",
        "precedingToolUseIds",
        "parentUuid",
        "cwd",
        "durationMs",
        "extra",
        "index",
        "fields",
        "committed",
        "eventNumber",
        "newKey",
    ]
)
KINDS = st.sampled_from(
    [
        "user",
        "assistant",
        "system",
        "attachment",
        "progress",
        "stream_event",
        "stream_request_start",
        "tombstone",
        "response_failed",
        "stream_note",
        "resync",
        "tool_use_summary",
        "summary",
        "future",
    ]
)


@given(KINDS, st.dictionaries(KEYS, JSON, max_size=8))
def test_any_object_is_kept_whole(kind: str, value: dict[str, Any]) -> None:
    value = {"type": kind, **value}
    line = json.dumps(value).encode()
    message = decode_line(line)
    assert encode(message) == line
    wire = to_wire(message)
    # What the model adds are its own defaults; what came is all there.
    defaults = {"attempt": 1, "kept": [], "outcome": "incomplete(0)", "precedingToolUseIds": []}
    for key, item in value.items():
        if key in ("uuid", "timestamp") and item == "":
            continue
        if key == "data" and item is None:
            continue
        if key == "message" and kind == "tombstone":
            continue
        if key == "event" and kind == "stream_event":
            continue
        assert wire[key] == item
    assert all(defaults.get(key) == wire[key] for key in wire.keys() - value.keys() - {"message", "event"})


@given(KINDS, st.dictionaries(KEYS, JSON, max_size=8), st.text(max_size=4))
def test_replace_of_anything_changes_what_it_says_only(kind: str, value: dict[str, Any], new: str) -> None:
    value = {"type": kind, **value}
    message = decode_line(json.dumps(value).encode())
    if not isinstance(message, (UserMessage, AssistantMessage, SystemMessage, AttachmentMessage, ProgressMessage)):
        return
    changed = json.loads(encode(replace(message, uuid="n" + new)))
    assert {k: v for k, v in changed.items() if k != "uuid"} == {k: v for k, v in value.items() if k != "uuid"}
    assert changed["uuid"] == "n" + new
