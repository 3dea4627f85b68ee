"""Makers of messages and the synthetic texts (WIRE.md §2, factories and synthetic texts)."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
import recordings

from turnstream.messages import (
    SYNTHETIC_MODEL,
    SYNTHETIC_TEXTS,
    AssistantMessage,
    MessageFactory,
    UserMessage,
    encode,
    is_synthetic,
    seeded_clock,
    seeded_ids,
    texts,
    to_wire,
    zero_usage,
)

# WIRE.md §2, literally.
ZERO_USAGE = {
    "input_tokens": 0,
    "output_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
    "service_tier": None,
    "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
    "inference_geo": None,
    "iterations": None,
    "speed": None,
}
FIRST = "2025-06-15T15:06:40.000Z"


@pytest.fixture
def make() -> MessageFactory:
    return MessageFactory(seeded_ids(1), seeded_clock())


def test_zero_usage_is_the_specified_one_and_fresh_each_time() -> None:
    assert zero_usage() == ZERO_USAGE
    first = zero_usage()
    first["server_tool_use"]["web_search_requests"] = 5
    assert zero_usage() == ZERO_USAGE


def test_a_user_message(make: MessageFactory) -> None:
    message = make.user("hello", is_meta=True)
    assert message.message == {"role": "user", "content": "hello"}
    assert message.timestamp == FIRST
    assert str(uuid.UUID(message.uuid)) == message.uuid
    assert message.is_meta is True
    assert make.user("again").uuid != message.uuid


@pytest.mark.parametrize("empty", ["", []])
def test_an_empty_user_message_gets_the_no_content_text(make: MessageFactory, empty: Any) -> None:
    assert make.user(empty).message["content"] == "(no content)"


def test_uuid_and_time_may_be_given(make: MessageFactory) -> None:
    for message in (
        make.user("a", uuid="u", timestamp="t"),
        make.assistant("a", uuid="u", timestamp="t"),
        make.system("informational", uuid="u", timestamp="t"),
    ):
        assert (message.uuid, message.timestamp) == ("u", "t")


def test_an_assistant_message_is_synthetic(make: MessageFactory) -> None:
    message = make.assistant("hello")
    wire = to_wire(message)
    api = dict(wire["message"])
    assert isinstance(api.pop("id"), str)
    assert api == {
        "type": "message",
        "role": "assistant",
        "model": "<synthetic>",
        "content": [{"type": "text", "text": "hello"}],
        "stop_reason": "stop_sequence",
        "stop_sequence": "",
        "usage": ZERO_USAGE,
        "container": None,
        "context_management": None,
    }
    assert wire["isApiErrorMessage"] is False
    assert "requestId" not in wire
    assert SYNTHETIC_MODEL == "<synthetic>"


def test_each_assistant_message_has_a_message_id_of_its_own(make: MessageFactory) -> None:
    messages = [make.assistant("a") for _ in range(3)]
    assert len({m.message["id"] for m in messages} | {m.uuid for m in messages}) == 6


@pytest.mark.parametrize("empty", ["", []])
def test_an_empty_assistant_message_gets_the_no_content_text(make: MessageFactory, empty: Any) -> None:
    assert make.assistant(empty).message["content"] == [{"type": "text", "text": "(no content)"}]


def test_blocks_are_taken_as_they_are(make: MessageFactory) -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "tool_use", "id": "t", "name": "n", "input": {}}]
    assert make.assistant(blocks).message["content"] is blocks
    assert make.user(blocks).message["content"] is blocks


def test_a_synthetic_api_error(make: MessageFactory) -> None:
    message = make.api_error("too long", api_error="prompt_too_long", error="invalid_request")
    wire = to_wire(message)
    assert wire["isApiErrorMessage"] is True
    assert wire["message"]["model"] == "<synthetic>"
    assert wire["apiError"] == "prompt_too_long"
    assert wire["error"] == "invalid_request"


def test_a_system_message_has_its_subtypes_fields(make: MessageFactory) -> None:
    message = make.system("turn_duration", durationMs=12, messageCount=3, is_meta=None, level=None)
    assert to_wire(message) == {
        "type": "system",
        "subtype": "turn_duration",
        "uuid": message.uuid,
        "timestamp": FIRST,
        "durationMs": 12,
        "messageCount": 3,
    }
    boundary = to_wire(make.system("compact_boundary", texts.COMPACT_BOUNDARY))
    assert (boundary["content"], boundary["level"], boundary["isMeta"]) == ("Conversation compacted", "info", False)
    assert texts.MICROCOMPACT_BOUNDARY == "Context microcompacted"


def test_progress_and_attachment(make: MessageFactory) -> None:
    progress = to_wire(make.progress("toolu_1", "toolu_0", {"type": "bash_progress"}))
    assert (progress["toolUseID"], progress["parentToolUseID"]) == ("toolu_1", "toolu_0")
    assert progress["data"] == {"type": "bash_progress"}
    assert "parentToolUseID" not in to_wire(make.progress("toolu_1", None, {}))
    assert to_wire(make.attachment({"type": "memory"}))["attachment"] == {"type": "memory"}


def test_a_tool_result_is_linked_to_who_asked(make: MessageFactory) -> None:
    asked = make.assistant([{"type": "tool_use", "id": "toolu_1", "name": "n", "input": {}}])
    wire = to_wire(make.tool_result("toolu_1", "out", tool_use_result={"stdout": "out"}, source=asked))
    assert wire["message"] == {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "out"}],
    }
    assert wire["toolUseResult"] == {"stdout": "out"}
    assert wire["sourceToolAssistantUUID"] == asked.uuid
    failed = make.tool_result("toolu_1", "no", is_error=True)
    assert failed.message["content"][0]["is_error"] is True
    assert "toolUseResult" not in to_wire(failed)


def test_a_tools_own_output_may_be_null(make: MessageFactory) -> None:
    assert json.loads(encode(make.tool_result("toolu_1", "out", tool_use_result=None)))["toolUseResult"] is None


def tool(ident: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": ident, "name": "n", "input": {}}


def test_each_open_tool_use_gets_one_missing_result_in_order(make: MessageFactory) -> None:
    first = make.assistant([{"type": "text", "text": "x"}, tool("a"), tool("b")])
    second = make.assistant([tool("c"), tool("a"), {"type": "server_tool_use", "id": "s"}, tool(None), "odd"])  # type: ignore[list-item]
    results = make.missing_results([first, second], answered=["b"])
    assert [r.message["content"][0]["tool_use_id"] for r in results] == ["a", "c"]
    assert [r.source_tool_assistant_uuid for r in results] == [first.uuid, second.uuid]
    for result in results:
        block = result.message["content"][0]
        assert block["is_error"] is True
        assert block["content"] == result.tool_use_result == texts.MISSING_RESULT
    assert make.missing_results([make.assistant("plain")]) == []
    assert make.missing_results([first], "because")[0].message["content"][0]["content"] == "because"


def test_interruptions_and_summaries(make: MessageFactory) -> None:
    assert make.interruption().message["content"] == [{"type": "text", "text": "[Request interrupted by user]"}]
    assert make.interruption(tool_use=True).message["content"] == [
        {"type": "text", "text": "[Request interrupted by user for tool use]"}
    ]
    summary = make.compact_summary("so far")
    assert (summary.is_compact_summary, summary.is_meta, summary.is_visible_in_transcript_only) == (True, True, True)


def test_a_tombstone_names_its_message(make: MessageFactory) -> None:
    message = make.assistant("a")
    wire = to_wire(make.tombstone(message))
    assert wire == {"type": "tombstone", "message": to_wire(message)}


def test_a_factory_with_its_defaults_uses_random_ids_and_the_wall_clock() -> None:
    one, two = MessageFactory().user("a"), MessageFactory().user("a")
    assert one.uuid != two.uuid
    assert one.timestamp > "2024"


# -- synthetic texts ---------------------------------------------------------------------------------


def user(content: Any) -> UserMessage:
    return UserMessage(message={"role": "user", "content": content}, uuid="u", timestamp="t")


@pytest.mark.parametrize("text", sorted(SYNTHETIC_TEXTS))
def test_a_message_whose_only_block_is_a_synthetic_text(text: str) -> None:
    block = {"type": "text", "text": text}
    assert is_synthetic(user(text))
    assert is_synthetic(user([block]))
    assert is_synthetic(AssistantMessage(message={"content": [block]}, uuid="u", timestamp="t"))
    assert not is_synthetic(user([block, block]))
    assert not is_synthetic(user(text + "!"))
    assert not is_synthetic(user([{"type": "tool_result", "text": text}]))


@pytest.mark.parametrize("content", [None, [], {}, 5, [None], ["[Request interrupted by user]"], [{"type": "text"}]])
def test_odd_content_is_not_synthetic(content: Any) -> None:
    assert not is_synthetic(user(content))
    assert not is_synthetic(UserMessage(message={}, uuid="u", timestamp="t"))


def test_the_factorys_interruptions_are_synthetic(make: MessageFactory) -> None:
    assert is_synthetic(make.interruption())
    assert is_synthetic(make.interruption(tool_use=True))
    assert not is_synthetic(make.user("do it"))


def test_our_wordings_are_our_own_and_distinct() -> None:
    ours = [texts.INTERRUPTED, texts.INTERRUPTED_FOR_TOOL_USE, texts.CANCELLED, texts.REJECTED, texts.MISSING_RESULT]
    assert len(set(ours)) == len(ours)
    assert texts.MISSING_RESULT != "[Tool result missing due to internal error]"


def test_foreign_spellings_in_recorded_transcripts_are_recognized() -> None:
    folder = recordings.need("synthetic texts") / "transcripts"
    found = set()
    for path in folder.rglob("*.jsonl"):
        for text in SYNTHETIC_TEXTS:
            if json.dumps(text).encode() in path.read_bytes():
                found.add(text)
    foreign = SYNTHETIC_TEXTS - {texts.CANCELLED, texts.REJECTED}
    assert found == foreign
