"""The outer form, both ways, and its privacy gate (WIRE.md §2, SDK mapping)."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
import recordings
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstream.messages import (
    CollapsedReadSearch,
    GroupedToolUse,
    Message,
    MessageFactory,
    MessageStop,
    OpaqueRecord,
    StreamNote,
    SystemMessage,
    UserMessage,
    decode_line,
    from_sdk,
    from_wire,
    seeded_clock,
    seeded_ids,
    to_sdk,
    to_wire,
)

MAKE = MessageFactory(seeded_ids(3), seeded_clock())

# What `--output-format stream-json` writes, shaped after the public SDK's types.
OUTER: list[dict[str, Any]] = [
    {
        "type": "system",
        "subtype": "init",
        "uuid": "u0",
        "session_id": "s",
        "cwd": "/work",
        "apiKeySource": "none",
        "claude_code_version": "2.1.0",
        "tools": ["Bash"],
        "mcp_servers": [{"name": "x", "status": "connected"}],
        "model": "m",
        "permissionMode": "default",
        "slash_commands": [],
        "output_style": "default",
    },
    {
        "type": "assistant",
        "message": {"id": "msg_1", "role": "assistant", "model": "m", "content": [], "stop_reason": None, "aKey": 1},
        "parent_tool_use_id": None,
        "session_id": "s",
        "uuid": "u1",
    },
    {
        "type": "user",
        "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]},
        "parent_tool_use_id": "toolu_1",
        "session_id": "s",
        "uuid": "u2",
        "tool_use_result": {"filePath": "a", "old_string": "b"},
        "isReplay": True,
        "isSynthetic": False,
    },
    {
        "type": "stream_event",
        "event": {"type": "message_stop"},
        "session_id": "s",
        "parent_tool_use_id": None,
        "uuid": "u3",
    },
    {
        "type": "system",
        "subtype": "compact_boundary",
        "session_id": "s",
        "uuid": "u4",
        "compact_metadata": {
            "trigger": "auto",
            "pre_tokens": 9,
            "preserved_segment": {"head_uuid": "h", "anchor_uuid": "a", "tail_uuid": "t"},
        },
    },
    {"type": "tool_use_summary", "summary": "x", "preceding_tool_use_ids": ["t"], "uuid": "u5", "session_id": "s"},
    {
        "type": "result",
        "subtype": "success",
        "duration_ms": 5,
        "is_error": False,
        "num_turns": 1,
        "result": "done",
        "session_id": "s",
        "modelUsage": {"m": {"inputTokens": 3}},
        "uuid": "u6",
    },
    {"type": "brand_new", "some_key": 1, "someKey": 2},
    {"no": "type"},
]


def test_the_outer_form_comes_back_as_it_was() -> None:
    before = json.dumps(OUTER)
    messages = from_sdk(OUTER)
    assert to_sdk(messages) == OUTER
    assert json.dumps(OUTER) == before


def test_lines_are_read_too() -> None:
    lines: list[Any] = [json.dumps(value) for value in OUTER[:4]] + [json.dumps(value).encode() for value in OUTER[4:]]
    assert to_sdk(from_sdk(lines)) == OUTER


def test_inside_they_are_messages_of_ours() -> None:
    init, assistant, user, event, boundary, summary, result, unknown, nothing = from_sdk(OUTER)
    assert isinstance(init, SystemMessage)
    assert init.subtype == "init"
    assert init.fields["apiKeySource"] == "none"
    assert init.extra == {"sessionId": "s", "cwd": "/work"}
    assert to_wire(assistant)["sessionId"] == "s"
    assert "parentToolUseID" not in to_wire(assistant)
    assert isinstance(user, UserMessage)
    assert user.tool_use_result == {"filePath": "a", "old_string": "b"}
    assert to_wire(user)["parentToolUseID"] == "toolu_1"
    assert to_wire(event)["event"] == {"type": "message_stop"}
    assert to_wire(boundary)["compactMetadata"] == {
        "trigger": "auto",
        "preTokens": 9,
        "preservedSegment": {"headUuid": "h", "anchorUuid": "a", "tailUuid": "t"},
    }
    assert to_wire(summary)["precedingToolUseIds"] == ["t"]
    assert [type(record) for record in (result, unknown, nothing)] == [OpaqueRecord] * 3


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        ("toolUseID", "tool_use_id"),
        ("parentToolUseID", "parent_tool_use_id"),
        ("sourceToolAssistantUUID", "source_tool_assistant_uuid"),
        ("parentUuid", "parent_uuid"),
        ("requestId", "request_id"),
        ("isApiErrorMessage", "is_api_error_message"),
        ("somethingNew", "something_new"),
        ("isReplay", "isReplay"),
        ("Odd", "Odd"),
    ],
)
def test_keys(inner: str, outer: str) -> None:
    message = from_wire({"type": "assistant", "message": {"aB": 1, "c_d": 2}, "uuid": "u", inner: "x"})
    (value,) = to_sdk([message])
    assert value[outer] == "x"
    assert value["message"] == {"aB": 1, "c_d": 2}
    assert to_wire(from_sdk([value])[0])[inner] == "x"


def test_payload_keys_are_untouched() -> None:
    odd = {"aB": {"c_d": 1}}
    items = [
        MAKE.progress("t", "p", dict(odd)),
        MAKE.attachment({"type": "memory", **odd}),
        MAKE.tool_result("t", "x", tool_use_result=odd),
        MAKE.assistant([{"type": "tool_use", "id": "t", "name": "n", "input": odd}]),
    ]
    progress, attachment, result, asked = to_sdk(items)
    assert progress["data"] == odd
    assert (progress["tool_use_id"], progress["parent_tool_use_id"]) == ("t", "p")
    assert attachment["attachment"] == {"type": "memory", **odd}
    assert result["tool_use_result"] == odd
    assert asked["message"]["content"][0]["input"] == odd
    assert from_sdk([progress, attachment, result, asked]) == items


def test_what_we_make_comes_back_but_for_local_commands() -> None:
    asked = MAKE.assistant([{"type": "tool_use", "id": "t", "name": "n", "input": {}}])
    items: list[Message] = [
        MAKE.user("hello", is_meta=True, permission_mode="plan", origin={"kind": "human"}),
        asked,
        *MAKE.missing_results([asked]),
        MAKE.compact_boundary(pre_tokens=3, preserved_segment={"head_uuid": "h"}, logical_parent_uuid="p"),
        MAKE.microcompact_boundary(tokens_saved=3, cleared_attachment_uuids=["u"]),
        MAKE.stop_hook_summary([{"command": "x", "duration_ms": 3}]),
        MAKE.turn_duration(3, 4),
        MAKE.api_retry({"type": "x"}, retry_in_ms=3, retry_attempt=1, max_retries=2),
        MAKE.request_start(2),
        MAKE.response_failed("overloaded_error", "busy", request_id="r"),
        MAKE.note("event_error", "x", byte_offset=3),
        MAKE.resync(),
        MAKE.tombstone(asked),
        GroupedToolUse(tool_name="n", messages=[asked], results=MAKE.missing_results([asked]), uuid="g"),
        CollapsedReadSearch(read_count=1, search_count=0, files=["a"], messages=[asked], uuid="c"),
    ]
    assert from_sdk(to_sdk(items)) == items


def test_a_bare_stream_event_gets_its_envelope() -> None:
    (value,) = to_sdk([MessageStop()], session_id="s", ids=seeded_ids(9))
    assert value == {
        "type": "stream_event",
        "event": {"type": "message_stop"},
        "session_id": "s",
        "parent_tool_use_id": None,
        "uuid": seeded_ids(9)("x"),
    }


def test_a_session_id_of_its_own_stays() -> None:
    values = to_sdk(from_sdk(OUTER[1:2]), session_id="other")
    assert values == OUTER[1:2]
    assert to_sdk([MAKE.user("x")], session_id="other")[0]["session_id"] == "other"
    assert "session_id" not in to_sdk([MAKE.user("x")])[0]


# -- the gate ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "passes"),
    [
        ("<local-command-stdout>Set model</local-command-stdout>", "Set model"),
        ("<local-command-stdout>a</local-command-stdout><local-command-stderr>b</local-command-stderr>", "a\nb"),
        ("<bash-stdout>a</bash-stdout><bash-stderr></bash-stderr>", "a"),
        ("<local-command-stdout></local-command-stdout>", ""),
        ("<bash-input>SECRET</bash-input><bash-stdout>a\nb</bash-stdout>", "a\nb"),
        ("SECRET <local-command-stdout>a</local-command-stdout> SECRET", "a"),
        ([{"type": "text", "text": "<local-command-stdout>a</local-command-stdout>"}], "a"),
        ("<command-name>/SECRET</command-name>", None),
        ("<bash-input>SECRET</bash-input>", None),
        ("<bash-input>echo <local-command-stdout>SECRET</local-command-stdout></bash-input>", None),
        ("<local-command-stdout>SECRET", None),
        ("SECRET", None),
        ({"SECRET": 1}, None),
        (None, None),
    ],
)
def test_of_a_local_command_only_its_output_passes(content: Any, passes: str | None) -> None:
    message = MAKE.system("local_command", content, SECRET=1, command="SECRET")
    message.extra = {"sessionId": "s", "odd": "SECRET", "promptId": "SECRET"}
    grouped = CollapsedReadSearch(read_count=0, search_count=0, files=[], messages=[message], uuid="c")
    for values in (to_sdk([message]), to_sdk([MAKE.tombstone(message)]), to_sdk([grouped])):  # type: ignore[arg-type]
        assert "SECRET" not in json.dumps(values)
    values = to_sdk([message])
    if passes is None:
        assert values == []
    else:
        (value,) = values
        assert value.pop("uuid") == message.uuid
        assert value.pop("timestamp") == message.timestamp
        assert value == {
            "type": "system",
            "subtype": "local_command",
            "content": passes,
            "level": "info",
            "is_meta": False,
            "session_id": "s",
        }


def test_recorded_local_commands_pass_without_their_input() -> None:
    folder = recordings.need("the privacy gate") / "transcripts"
    commands = [
        message
        for path in folder.rglob("*.jsonl")
        for line in path.read_bytes().split(b"\n")
        if isinstance(message := decode_line(line), SystemMessage) and message.subtype == "local_command"
    ]
    assert len(commands) == 4
    for message in commands:
        for value in to_sdk([message]):
            assert "<" not in value["content"]
            assert value["content"] in message.content


# -- bad lines, unknown keys -------------------------------------------------------------------------


def test_one_bad_line_is_reported_and_skipped() -> None:
    notes: list[StreamNote] = []
    good = json.dumps(OUTER[1])
    messages = from_sdk([good, "{", b"[1]", "", b"  \n", "3", good], report=notes.append)
    assert len(messages) == 2
    assert [note.kind for note in notes] == ["sdk_line_skipped"] * 3
    assert [note.message.split(":")[0] for note in notes] == ["item 1", "item 2", "item 5"]
    assert len(from_sdk(["{", good])) == 1


def test_a_bad_line_of_a_transcript_is_reported_and_skipped() -> None:
    notes: list[StreamNote] = []
    items = [MAKE.user("x"), decode_line(b"{bad"), decode_line(b"3"), MAKE.user("y")]
    assert len(to_sdk(items, report=notes.append)) == 2
    assert [note.message.split(":")[0] for note in notes] == ["item 1", "item 2"]


def test_a_known_type_that_is_none_is_kept_as_it_is() -> None:
    odd = {"type": "assistant", "session_id": "s", "message": 3}
    (record,) = from_sdk([odd])
    assert isinstance(record, OpaqueRecord)
    assert to_sdk([record]) == [odd]


@pytest.mark.parametrize("odd", [["user"], {"a": 1}, None, 5, ["x", {}]])
def test_a_type_or_subtype_that_is_no_string_comes_back_too(odd: Any) -> None:
    lines = [{"type": odd, "uuid": "u"}, {"type": "system", "subtype": odd, "uuid": "s"}]
    assert to_sdk(from_sdk(lines)) == lines


KEYS = st.one_of(
    st.sampled_from(["session_id", "sessionId", "toolUseID", "tool_use_id", "isMeta", "is_meta", "compact_metadata"]),
    st.from_regex(r"[a-z][a-zA-Z0-9_]{0,8}", fullmatch=True),
    st.text(max_size=4),
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5))
VALUES = st.one_of(SCALARS, st.dictionaries(KEYS, SCALARS, max_size=3))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["user", "system", "result", "progress"]), st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_keys_come_back(kind: str, keys: dict[str, Any]) -> None:
    value = {**keys, "type": kind, "uuid": "u"}
    value.pop("subtype", None)
    value.pop("timestamp", None)
    if kind == "user":
        value |= {"message": {"role": "user", "content": "x"}, "parent_tool_use_id": None}
    if kind == "system":
        value["subtype"] = "turn_duration"
    assert to_sdk(from_sdk([value])) == [value]


# -- against recordings and the public SDK -----------------------------------------------------------


def test_recorded_transcripts_come_back() -> None:
    folder = recordings.need("the SDK mapping") / "transcripts"
    seen = 0
    for path in sorted(folder.rglob("*.jsonl")):
        for line in path.read_bytes().split(b"\n"):
            message = decode_line(line)
            if isinstance(message, OpaqueRecord) or getattr(message, "subtype", None) == "local_command":
                continue
            (value,) = to_sdk([message])
            (again,) = from_sdk([value])
            assert to_wire(again) == to_wire(message)
            seen += 1
    assert seen > 3000


def test_the_public_sdk_reads_what_we_write() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parser = pytest.importorskip("claude_agent_sdk._internal.message_parser")
    folder = recordings.need("the public SDK as a reader") / "transcripts"
    read = 0
    for path in sorted(folder.rglob("*.jsonl")):
        messages = [decode_line(line) for line in path.read_bytes().split(b"\n")]
        messages = [message for message in messages if not isinstance(message, OpaqueRecord)]
        for value in to_sdk(messages, session_id="s"):
            if value["type"] not in ("user", "assistant") or not isinstance(value["message"].get("content"), list):
                continue
            if not all(isinstance(block, dict) for block in value["message"]["content"]):
                continue
            if value["type"] == "assistant" and "model" not in value["message"]:
                continue  # written by hand
            theirs = parser.parse_message(value)
            assert theirs.uuid == value.get("uuid")
            assert len(theirs.content) <= len(value["message"]["content"])
            if value["type"] == "user":
                assert theirs.tool_use_result == value.get("tool_use_result")
            else:
                assert theirs.message_id == value["message"].get("id")
            read += 1
    assert read > 2000
    event = parser.parse_message(to_sdk([MessageStop()], session_id="s")[0])
    assert (event.event, event.session_id, event.parent_tool_use_id) == ({"type": "message_stop"}, "s", None)


def test_fault_115_an_unknown_type_between_two_valid_lines_is_kept_never_an_error() -> None:
    values = [OUTER[1], {"type": "rate_limit_event", "rate_limit_info": {"resetsAt": 1}, "session_id": "s"}, OUTER[2]]
    messages = from_sdk([json.dumps(value) for value in values])
    assert [type(message).__name__ for message in messages] == ["AssistantMessage", "OpaqueRecord", "UserMessage"]
    assert to_sdk(messages) == values


def test_fault_116_a_line_of_two_mebibytes_then_a_good_one() -> None:
    large = {**OUTER[1], "message": {**OUTER[1]["message"], "content": [{"type": "text", "text": "x" * (2 << 20)}]}}
    assert to_sdk(from_sdk([json.dumps(large), json.dumps(OUTER[2])])) == [large, OUTER[2]]
