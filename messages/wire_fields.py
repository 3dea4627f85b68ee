"""Which class has which type on the wire, and what its fields take: the tables behind the codec (WIRE.md §2)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from turnstream.messages import types as t
from turnstream.messages.names import to_wire_name

__all__ = [
    "ACCEPTS",
    "CLASSES",
    "DEFAULTS",
    "ENVELOPE_KEYS",
    "GROUPS",
    "IDENTIFIED",
    "IDENTITY",
    "INTERNAL",
    "NESTED",
    "NULLABLE",
    "REQUIRED",
    "TYPE_OF",
    "WIRE_TYPES",
]

CLASSES: Final[dict[str, type[msgspec.Struct]]] = {
    "user": t.UserMessage,
    "assistant": t.AssistantMessage,
    "system": t.SystemMessage,
    "attachment": t.AttachmentMessage,
    "progress": t.ProgressMessage,
    "stream_event": t.StreamEventMessage,
    "stream_request_start": t.RequestStart,
    "tombstone": t.Tombstone,
    "response_failed": t.ResponseFailed,
    "stream_note": t.StreamNote,
    "resync": t.Resync,
    "tool_use_summary": t.ToolUseSummary,
    "grouped_tool_use": t.GroupedToolUse,
    "collapsed_read_search": t.CollapsedReadSearch,
}
WIRE_TYPES: Final = frozenset(CLASSES)
"""The types we model; others are kept as they are."""
TYPE_OF: Final = {cls: name for name, cls in CLASSES.items()}

# Fields that are UNSET when absent, so that None is a value: a tool's own output may be null.
NULLABLE: Final = frozenset({"content", "tool_use_result", "mcp_meta", "origin", "error"})
# Defaults that are neither None nor UNSET. An empty uuid or timestamp means that there was none.
IDENTITY: Final = frozenset({"uuid", "timestamp"})
DEFAULTS: Final[dict[str, Any]] = {
    "uuid": "",
    "timestamp": "",
    "attempt": 1,
    "kept": [],
    "outcome": "incomplete(0)",
    "preceding_tool_use_ids": [],
}
# Fields that never go to the wire as they are.
INTERNAL: Final = frozenset({"extra", "index", "committed", "fields"})

REQUIRED: Final[dict[type, tuple[tuple[str, str, type], ...]]] = {
    t.UserMessage: (("message", "message", dict),),
    t.AssistantMessage: (("message", "message", dict),),
    t.SystemMessage: (),
    t.AttachmentMessage: (("attachment", "attachment", dict),),
    t.ProgressMessage: (),
    t.StreamEventMessage: (("event", "event", dict),),
    t.RequestStart: (),
    t.Tombstone: (),
    t.ResponseFailed: (("error", "error", dict),),
    t.StreamNote: (("kind", "kind", str), ("message", "message", str)),
    t.Resync: (),
    t.ToolUseSummary: (("summary", "summary", str),),
    t.GroupedToolUse: (("tool_name", "toolName", str), ("messages", "messages", list), ("results", "results", list)),
    t.CollapsedReadSearch: (
        ("read_count", "readCount", int),
        ("search_count", "searchCount", int),
        ("files", "files", list),
        ("messages", "messages", list),
    ),
}
# Fields that hold whole messages: written and read in their own wire form.
NESTED: Final = frozenset({"messages", "results"})
# A field not named here takes any value.
ACCEPTS: Final[dict[str, tuple[type, ...]]] = {
    "uuid": (str,),
    "timestamp": (str,),
    "request_id": (str,),
    "api_error": (str,),
    "api_error_status": (int,),
    "error_details": (str,),
    "level": (str,),
    "permission_mode": (str,),
    "source_tool_assistant_uuid": (str,),
    "source_tool_use_id": (str,),
    "tool_use_id": (str,),
    "parent_tool_use_id": (str,),
    "outcome": (str,),
    "kind": (str,),
    "summary": (str,),
    "subtype": (str,),
    "is_meta": (bool,),
    "is_visible_in_transcript_only": (bool,),
    "is_virtual": (bool,),
    "is_compact_summary": (bool,),
    "is_api_error_message": (bool,),
    "is_aborted_mid_stream": (bool,),
    "invalid_tool_input": (bool,),
    "synthesized_envelope": (bool,),
    "synthesized_block": (bool,),
    "block_index": (int,),
    "attempt": (int,),
    "event_number": (int,),
    "byte_offset": (int,),
    "ttft_ms": (int, float),
    "kept": (list,),
    "image_paste_ids": (list,),
    "unapplied_deltas": (list,),
    "unfinished_tool_inputs": (list,),
    "preceding_tool_use_ids": (list,),
}

GROUPS: Final = frozenset({t.GroupedToolUse, t.CollapsedReadSearch})
IDENTIFIED: Final = GROUPS | {
    t.UserMessage,
    t.AssistantMessage,
    t.SystemMessage,
    t.AttachmentMessage,
    t.ProgressMessage,
    t.ToolUseSummary,
}
ENVELOPE_KEYS: Final = frozenset(
    to_wire_name(name)
    for name in (
        "parent_uuid",
        "logical_parent_uuid",
        "is_sidechain",
        "user_type",
        "cwd",
        "session_id",
        "version",
        "git_branch",
        "agent_id",
        "team_name",
        "slug",
        "entrypoint",
        "prompt_id",
        "message",
        "workspace",
        "agent",
    )
)
"""Keys of a transcript line's envelope; on a system message everything else belongs to its subtype."""
