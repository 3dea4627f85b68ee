"""The fourteen system subtypes and their makers (WIRE.md §2, second table)."""

from __future__ import annotations

import json
from typing import Any

import pytest
import recordings

from turnstream.messages import (
    SUBTYPE_FIELDS,
    SYSTEM_SUBTYPES,
    MessageFactory,
    SystemMessage,
    decode_line,
    encode,
    seeded_clock,
    seeded_ids,
    to_wire,
)

MAKE = MessageFactory(seeded_ids(1), seeded_clock())

# One of each, made; the expected values are WIRE.md §2's (constants, levels) and the shapes in recordings.
MADE: list[tuple[SystemMessage, dict[str, Any]]] = [
    (
        MAKE.informational("switched to another model"),
        {"subtype": "informational", "content": "switched to another model", "level": "info", "isMeta": False},
    ),
    (
        MAKE.api_retry({"type": "overloaded_error"}, retry_in_ms=500, retry_attempt=1, max_retries=10),
        {
            "subtype": "api_error",
            "level": "error",
            "isMeta": False,
            "error": {"type": "overloaded_error"},
            "retryInMs": 500.0,
            "retryAttempt": 1,
            "maxRetries": 10,
        },
    ),
    (
        MAKE.compact_boundary(
            trigger="manual",
            pre_tokens=174247,
            user_context="the parser",
            messages_summarized=12,
            preserved_segment={"head_uuid": "h", "anchor_uuid": "a", "tail_uuid": "t"},
            logical_parent_uuid="p",
        ),
        {
            "subtype": "compact_boundary",
            "content": "Conversation compacted",
            "level": "info",
            "isMeta": False,
            "compactMetadata": {
                "trigger": "manual",
                "preTokens": 174247,
                "userContext": "the parser",
                "messagesSummarized": 12,
                "preservedSegment": {"headUuid": "h", "anchorUuid": "a", "tailUuid": "t"},
            },
            "logicalParentUuid": "p",
        },
    ),
    (
        MAKE.microcompact_boundary(
            pre_tokens=60888, tokens_saved=21091, compacted_tool_ids=["toolu_1"], cleared_attachment_uuids=["u"]
        ),
        {
            "subtype": "microcompact_boundary",
            "content": "Context microcompacted",
            "level": "info",
            "isMeta": False,
            "microcompactMetadata": {
                "trigger": "auto",
                "preTokens": 60888,
                "tokensSaved": 21091,
                "compactedToolIds": ["toolu_1"],
                "clearedAttachmentUUIDs": ["u"],
            },
        },
    ),
    (
        MAKE.local_command("<local-command-stdout>hi</local-command-stdout>"),
        {
            "subtype": "local_command",
            "content": "<local-command-stdout>hi</local-command-stdout>",
            "level": "info",
            "isMeta": False,
        },
    ),
    (
        MAKE.permission_retry(["npm test"]),
        {"subtype": "permission_retry", "level": "info", "isMeta": False, "commands": ["npm test"]},
    ),
    (
        MAKE.bridge_status("remote control is active", url="https://example.test/1"),
        {
            "subtype": "bridge_status",
            "content": "remote control is active",
            "isMeta": False,
            "url": "https://example.test/1",
        },
    ),
    (
        MAKE.memory_saved(["notes.md"]),
        {"subtype": "memory_saved", "level": "info", "isMeta": False, "writtenPaths": ["notes.md"]},
    ),
    (
        MAKE.stop_hook_summary([{"command": "lint", "duration_ms": 102}], has_output=True, tool_use_id="hook-1"),
        {
            "subtype": "stop_hook_summary",
            "level": "suggestion",
            "hookCount": 1,
            "hookInfos": [{"command": "lint", "durationMs": 102}],
            "hookErrors": [],
            "preventedContinuation": False,
            "stopReason": "",
            "hasOutput": True,
            "toolUseID": "hook-1",
        },
    ),
    (
        MAKE.turn_duration(15086, 21),
        {"subtype": "turn_duration", "isMeta": False, "durationMs": 15086, "messageCount": 21},
    ),
    (
        MAKE.api_metrics(ttft_ms=812.5, tokens_per_s=71.2, input_tokens=10, output_tokens=20, message_count=3),
        {
            "subtype": "api_metrics",
            "isMeta": False,
            "ttftMs": 812.5,
            "tokensPerS": 71.2,
            "inputTokens": 10,
            "outputTokens": 20,
            "messageCount": 3,
        },
    ),
    (
        MAKE.away_summary("two tests were fixed"),
        {"subtype": "away_summary", "content": "two tests were fixed", "isMeta": False},
    ),
    (
        MAKE.agents_killed("2 agents"),
        {"subtype": "agents_killed", "content": "2 agents", "level": "info", "isMeta": False},
    ),
    (
        MAKE.scheduled_task_fire("nightly"),
        {"subtype": "scheduled_task_fire", "content": "nightly", "level": "info", "isMeta": False},
    ),
]


def test_there_are_fourteen_and_a_maker_of_each() -> None:
    assert len(SYSTEM_SUBTYPES) == 14
    assert [message.subtype for message, _ in MADE] == list(SYSTEM_SUBTYPES)


@pytest.mark.parametrize(("message", "expected"), MADE, ids=SYSTEM_SUBTYPES)
def test_its_wire_form(message: SystemMessage, expected: dict[str, Any]) -> None:
    wire = to_wire(message)
    assert wire == {"type": "system", "uuid": message.uuid, "timestamp": message.timestamp, **expected}
    assert decode_line(encode(message)) == message


@pytest.mark.parametrize(("message", "expected"), MADE, ids=SYSTEM_SUBTYPES)
def test_its_fields_are_those_of_the_table(message: SystemMessage, expected: dict[str, Any]) -> None:
    assert set(message.fields) == set(SUBTYPE_FIELDS[str(message.subtype)])


def test_what_is_not_given_is_not_written() -> None:
    assert MAKE.compact_boundary().fields == {"compactMetadata": {"trigger": "auto"}}
    assert MAKE.turn_duration(1.5).fields == {"durationMs": 1.5}
    assert MAKE.api_metrics().fields == {}
    assert MAKE.bridge_status("off").fields == {}


def test_recorded_subtypes_have_the_tables_fields() -> None:
    """Other fields of a modelled subtype in recordings would be ones the table misses."""
    folder = recordings.need("system subtypes") / "transcripts"
    seen: dict[str, set[str]] = {}
    for path in folder.rglob("*.jsonl"):
        for line in path.read_bytes().split(b"\n"):
            message = decode_line(line)
            if isinstance(message, SystemMessage) and message.subtype is not None:
                seen.setdefault(message.subtype, set()).update(message.fields)
    assert len(seen) == 8
    assert set(seen) <= set(SYSTEM_SUBTYPES)
    for subtype, fields in seen.items():
        assert fields <= set(SUBTYPE_FIELDS[subtype]), subtype


def test_process_items_have_makers() -> None:
    assert json.loads(encode(MAKE.request_start(2))) == {"type": "stream_request_start", "attempt": 2}
    failed = to_wire(MAKE.response_failed("overloaded_error", "busy", status=529, retryable=True, outcome="empty"))
    assert failed == {
        "type": "response_failed",
        "error": {
            "type": "overloaded_error",
            "message": "busy",
            "status": 529,
            "requestId": None,
            "retryable": True,
        },
        "kept": [],
        "outcome": "empty",
    }
    assert to_wire(MAKE.resync()) == {"type": "resync"}
    assert to_wire(MAKE.note("event_error", "no JSON", event_number=3)) == {
        "type": "stream_note",
        "kind": "event_error",
        "message": "no JSON",
        "eventNumber": 3,
    }
    summary = to_wire(MAKE.tool_use_summary("read two files", ["a", "b"]))
    assert (summary["summary"], summary["precedingToolUseIds"]) == ("read two files", ["a", "b"])
