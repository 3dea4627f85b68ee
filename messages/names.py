"""Python names and wire names of envelope keys: an explicit table, because the wire is irregular.

``toolUseID`` but ``compactedToolIds``, ``parentUuid`` but ``sourceToolAssistantUUID`` (WIRE.md §2).
"""

from __future__ import annotations

from typing import Final

__all__ = ["METADATA_NAMES", "WIRE_NAMES", "from_wire_name", "to_wire_name"]

WIRE_NAMES: Final[dict[str, str]] = {
    # every record
    "type": "type",
    "subtype": "subtype",
    "uuid": "uuid",
    "timestamp": "timestamp",
    "message": "message",
    "content": "content",
    "parent_uuid": "parentUuid",
    "logical_parent_uuid": "logicalParentUuid",
    "is_sidechain": "isSidechain",
    "user_type": "userType",
    "cwd": "cwd",
    "session_id": "sessionId",
    "version": "version",
    "git_branch": "gitBranch",
    "agent_id": "agentId",
    "team_name": "teamName",
    "slug": "slug",
    "entrypoint": "entrypoint",
    "prompt_id": "promptId",
    # user
    "is_meta": "isMeta",
    "is_visible_in_transcript_only": "isVisibleInTranscriptOnly",
    "is_virtual": "isVirtual",
    "is_compact_summary": "isCompactSummary",
    "tool_use_result": "toolUseResult",
    "mcp_meta": "mcpMeta",
    "image_paste_ids": "imagePasteIds",
    "source_tool_assistant_uuid": "sourceToolAssistantUUID",
    "source_tool_use_id": "sourceToolUseID",
    "permission_mode": "permissionMode",
    "origin": "origin",
    "thinking_metadata": "thinkingMetadata",
    "todos": "todos",
    "plan_content": "planContent",
    # assistant
    "request_id": "requestId",
    "api_error": "apiError",
    "api_error_status": "apiErrorStatus",
    "error": "error",
    "error_details": "errorDetails",
    "is_api_error_message": "isApiErrorMessage",
    "is_aborted_mid_stream": "isAbortedMidStream",
    "block_index": "blockIndex",
    "invalid_tool_input": "invalidToolInput",
    "unapplied_deltas": "unappliedDeltas",
    "unfinished_tool_inputs": "unfinishedToolInputs",
    "synthesized_envelope": "synthesizedEnvelope",
    "synthesized_block": "synthesizedBlock",
    # system
    "level": "level",
    "compact_metadata": "compactMetadata",
    "microcompact_metadata": "microcompactMetadata",
    "trigger": "trigger",
    "pre_tokens": "preTokens",
    "user_context": "userContext",
    "messages_summarized": "messagesSummarized",
    "preserved_segment": "preservedSegment",
    "head_uuid": "headUuid",
    "anchor_uuid": "anchorUuid",
    "tail_uuid": "tailUuid",
    "tokens_saved": "tokensSaved",
    "compacted_tool_ids": "compactedToolIds",
    "cleared_attachment_uuids": "clearedAttachmentUUIDs",
    "retry_in_ms": "retryInMs",
    "retry_attempt": "retryAttempt",
    "max_retries": "maxRetries",
    "commands": "commands",
    "url": "url",
    "written_paths": "writtenPaths",
    "hook_count": "hookCount",
    "hook_infos": "hookInfos",
    "command": "command",
    "hook_errors": "hookErrors",
    "prevented_continuation": "preventedContinuation",
    "stop_reason": "stopReason",
    "has_output": "hasOutput",
    "tool_use_id": "toolUseID",
    "duration_ms": "durationMs",
    "message_count": "messageCount",
    "ttft_ms": "ttftMs",
    "tokens_per_s": "tokensPerS",
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "hook_event": "hookEvent",
    # process items
    "parent_tool_use_id": "parentToolUseID",
    "data": "data",
    "attachment": "attachment",
    "event": "event",
    "attempt": "attempt",
    "kept": "kept",
    "outcome": "outcome",
    "kind": "kind",
    "event_number": "eventNumber",
    "byte_offset": "byteOffset",
    "status": "status",
    "retryable": "retryable",
    "summary": "summary",
    "preceding_tool_use_ids": "precedingToolUseIds",
    "tool_use_ids": "toolUseIds",
    # display only
    "tool_name": "toolName",
    "messages": "messages",
    "results": "results",
    "read_count": "readCount",
    "search_count": "searchCount",
    "files": "files",
    # other records of a transcript
    "leaf_uuid": "leafUuid",
    "message_id": "messageId",
    "snapshot": "snapshot",
    "is_snapshot_update": "isSnapshotUpdate",
    "last_prompt": "lastPrompt",
    "operation": "operation",
    "pr_number": "prNumber",
    "pr_url": "prUrl",
    "pr_repository": "prRepository",
    "custom_title": "customTitle",
    "agent_name": "agentName",
    "workspace": "workspace",
    "agent": "agent",
}
"""Python name → wire name."""

METADATA_NAMES: Final = frozenset({"compact_metadata", "microcompact_metadata", "preserved_segment", "hook_infos"})
"""Objects whose own keys are envelope keys too; ``message``, ``data`` and ``attachment`` are payloads and aren't."""

_PYTHON_NAMES: Final[dict[str, str]] = {wire: python for python, wire in WIRE_NAMES.items()}


def to_wire_name(name: str) -> str:
    """The wire's spelling of a Python name; a name that isn't in the table stays as it is."""
    return WIRE_NAMES.get(name, name)


def from_wire_name(name: str) -> str:
    """The Python spelling of a wire name; a name that isn't in the table stays as it is."""
    return _PYTHON_NAMES.get(name, name)
