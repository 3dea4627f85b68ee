"""The wire form as a JSON Schema (draft 2020-12): every type and subtype with its keys (WIRE.md §2, §3).

It says what a line must be so that ``from_wire`` gives a typed message: unknown keys, unknown types and unknown
subtypes are fine. ``uuid`` and ``timestamp`` aren't required, because old files lack them; all we write has them.
"""

from __future__ import annotations

from typing import Any, Final

from turnstream.messages.schema_parts import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    ENVELOPE,
    INTEGER,
    NUMBER,
    OBJECT,
    STRING,
    booleans,
    items_of,
    record,
    ref,
)

__all__ = ["json_schema"]

_USER: Final = record(
    "What the model is told: a human's words, tool results, reminders.",
    {
        "message": ref("user_payload"),
        **booleans("isMeta", "isVisibleInTranscriptOnly", "isVirtual", "isCompactSummary"),
        "toolUseResult": {"description": "The tool's own output, of its own type; never sent."},
        "mcpMeta": ANYTHING,
        "imagePasteIds": items_of(ANYTHING),
        "sourceToolAssistantUUID": STRING,
        "sourceToolUseID": STRING,
        "permissionMode": STRING,
        "origin": {"description": "human, hook, slash_command …, or an object with kind."},
    },
    required=("message",),
)
_ASSISTANT: Final = record(
    "What the model said; lines of one answer share message.id.",
    {
        "message": ref("assistant_payload"),
        "requestId": STRING,
        "apiError": STRING,
        "apiErrorStatus": INTEGER,
        "error": ANYTHING,
        "errorDetails": STRING,
        **booleans("isApiErrorMessage", "isVirtual", "isAbortedMidStream", "invalidToolInput"),
        **booleans("synthesizedEnvelope", "synthesizedBlock"),
        "blockIndex": COUNT,
        "unappliedDeltas": items_of(ANYTHING),
        "unfinishedToolInputs": items_of(
            {
                "type": "object",
                "properties": {"index": COUNT, "id": ANYTHING, "name": ANYTHING, "raw": STRING},
            }
        ),
    },
    required=("message",),
)
_SYSTEM: Final = record(
    "A notice; subtype says which, and has fields of its own.",
    {"subtype": STRING, "content": ANYTHING, "level": STRING, "isMeta": BOOLEAN},
)
_TYPES: Final[dict[str, dict[str, Any]]] = {
    "user": _USER,
    "assistant": _ASSISTANT,
    "system": _SYSTEM,
    "attachment": record(
        "Context beside the conversation; attachment.type says which.", {"attachment": OBJECT}, required=("attachment",)
    ),
    "progress": record(
        "A tool's progress: shown, never recorded by us.",
        {"toolUseID": STRING, "parentToolUseID": STRING, "data": ANYTHING},
    ),
    "stream_event": record(
        "One event of the API's stream.",
        {"event": OBJECT, "ttftMs": NUMBER, "parentToolUseID": STRING},
        required=("event",),
    ),
    "stream_request_start": record("A request goes out.", {"attempt": INTEGER}),
    "tombstone": record("Take back a message.", {"message": ANYTHING}),
    "response_failed": record(
        "How an answer ended other than well.",
        {
            "error": {
                "type": "object",
                "properties": {
                    "type": STRING,
                    "message": STRING,
                    "status": {"type": ["integer", "null"]},
                    "requestId": {"type": ["string", "null"]},
                    "retryable": {"type": ["boolean", "null"]},
                },
            },
            "kept": items_of(ANYTHING),
            "outcome": STRING,
            "eventNumber": INTEGER,
            "byteOffset": INTEGER,
        },
        required=("error",),
    ),
    "stream_note": record(
        "One lenient step, dropped event or detached sink.",
        {"kind": STRING, "message": STRING, "eventNumber": INTEGER, "byteOffset": INTEGER},
        required=("kind", "message"),
    ),
    "resync": record("A conflating queue overflowed: take a snapshot.", {}),
    "tool_use_summary": record(
        "One line about a batch of tools.",
        {"summary": STRING, "precedingToolUseIds": items_of(STRING), "toolUseIds": items_of(STRING)},
        required=("summary",),
    ),
    "grouped_tool_use": record(
        "Display only: uses of one tool in one answer.",
        {"toolName": STRING, "messages": items_of(ref("line")), "results": items_of(ref("line"))},
        required=("toolName", "messages", "results"),
    ),
    "collapsed_read_search": record(
        "Display only: a run of reading and searching tools.",
        {
            "readCount": INTEGER,
            "searchCount": INTEGER,
            "files": items_of(STRING),
            "messages": items_of(ref("line")),
        },
        required=("readCount", "searchCount", "files", "messages"),
    ),
}

_METADATA: Final = {"trigger": {"type": "string", "description": "auto or manual."}, "preTokens": COUNT}
_SEGMENT: Final = {
    "type": "object",
    "properties": {"headUuid": STRING, "anchorUuid": STRING, "tailUuid": STRING},
}
_HOOK: Final = {"type": "object", "properties": {"command": STRING, "durationMs": NUMBER}}
_SUBTYPES: Final[dict[str, dict[str, Any]]] = {
    "informational": {},
    "api_error": {"error": ANYTHING, "retryInMs": NUMBER, "retryAttempt": INTEGER, "maxRetries": INTEGER},
    "compact_boundary": {
        "compactMetadata": {
            "type": "object",
            "properties": {
                **_METADATA,
                "userContext": STRING,
                "messagesSummarized": COUNT,
                "preservedSegment": _SEGMENT,
            },
        },
        "logicalParentUuid": {"type": ["string", "null"]},
    },
    "microcompact_boundary": {
        "microcompactMetadata": {
            "type": "object",
            "properties": {
                **_METADATA,
                "tokensSaved": INTEGER,
                "compactedToolIds": items_of(STRING),
                "clearedAttachmentUUIDs": items_of(STRING),
            },
        }
    },
    "local_command": {},
    "permission_retry": {"commands": items_of(STRING)},
    "bridge_status": {"url": STRING},
    "memory_saved": {"writtenPaths": items_of(STRING)},
    "stop_hook_summary": {
        "hookCount": COUNT,
        "hookInfos": items_of(_HOOK),
        "hookErrors": items_of(ANYTHING),
        **booleans("preventedContinuation", "hasOutput"),
        "stopReason": STRING,
        "toolUseID": STRING,
    },
    "turn_duration": {"durationMs": NUMBER, "messageCount": COUNT},
    "api_metrics": {
        "ttftMs": NUMBER,
        "tokensPerS": NUMBER,
        "inputTokens": COUNT,
        "outputTokens": COUNT,
        "messageCount": COUNT,
    },
    "away_summary": {},
    "agents_killed": {},
    "scheduled_task_fire": {},
}

_CONTENT: Final = {
    "description": "A string, or content blocks as the API has them.",
    "anyOf": [STRING, items_of(ref("block"))],
}
_PAYLOADS: Final[dict[str, dict[str, Any]]] = {
    "block": {"type": "object", "properties": {"type": STRING}, "required": ["type"]},
    "user_payload": {"type": "object", "properties": {"role": STRING, "content": _CONTENT}},
    "assistant_payload": {
        "type": "object",
        "properties": {
            "id": {"type": ["string", "null"]},
            "type": STRING,
            "role": STRING,
            "model": {"type": ["string", "null"]},
            "content": _CONTENT,
            "stop_reason": {"type": ["string", "null"]},
            "stop_sequence": {"type": ["string", "null"]},
            "usage": {"type": ["object", "null"]},
            "container": ANYTHING,
            "context_management": ANYTHING,
        },
    },
}


def json_schema() -> dict[str, Any]:
    """The schema of one line in inner wire form: a transcript's, or one of ``replay --output items``.

    Returns:
        A new object each time, self-contained, of draft 2020-12. Definitions are named by type
        (``user`` …) and subtype (``system.turn_duration`` …).
    """
    definitions: dict[str, Any] = {"envelope": {"type": "object", "properties": dict(ENVELOPE)}, **_PAYLOADS}
    definitions.update(_TYPES)
    for subtype, fields in _SUBTYPES.items():
        definitions[f"system.{subtype}"] = {"type": "object", "properties": fields}
    definitions["line"] = {
        "type": "object",
        "required": ["type"],
        "properties": {"type": STRING},
        "allOf": [_when({"type": name}, name) for name in _TYPES]
        + [_when({"type": "system", "subtype": subtype}, f"system.{subtype}") for subtype in _SUBTYPES],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:turnstream:wire",
        "title": "A message or stream item of turnstream, in wire form",
        "$ref": "#/$defs/line",
        "$defs": _copy(definitions),
    }


def _when(constants: dict[str, str], definition: str) -> dict[str, Any]:
    condition = {"properties": {key: {"const": value} for key, value in constants.items()}, "required": [*constants]}
    return {"if": condition, "then": ref(definition)}


def _copy(value: Any) -> Any:
    """A deep copy, so that a caller may change what he gets; parts are shared among the constants."""
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value
