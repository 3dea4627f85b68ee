"""The message model: plain data told apart by ``type`` (and ``subtype``), WIRE.md §2.

Two families. **Result** messages are kept, sent and shown: user, assistant, system, attachment.
**Process** items drive a display and are gone: stream events, request start, progress, tombstone,
summaries, failures, notes. API payloads (``message``, content blocks, events) stay the JSON they
arrived as.

A message that was read from a line keeps that line in ``raw`` (in the instance's ``__dict__``: outside
``==`` and copies) and is written as those bytes. Change what was read through
:func:`turnstream.messages.replace` only. Messages made by ``accumulate`` have no line; it updates them
in place until their answer's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from turnstream.messages.events import StreamEvent

__all__ = [
    "RESULT_TYPES",
    "AssistantMessage",
    "AttachmentMessage",
    "CollapsedReadSearch",
    "GroupedToolUse",
    "Message",
    "ModelItem",
    "OpaqueRecord",
    "ProgressMessage",
    "QueryItem",
    "RequestStart",
    "ResponseFailed",
    "Resync",
    "StreamEventMessage",
    "StreamNote",
    "SystemMessage",
    "Tombstone",
    "ToolUseSummary",
    "UserMessage",
    "raw_of",
]

JSONObject = dict[str, Any]


class UserMessage(msgspec.Struct, kw_only=True, dict=True):
    """What the model is told: a human's words, tool results, reminders.

    ``message`` is ``{"role": "user", "content": str | list of blocks}``. ``extra`` holds envelope keys
    beside the model's, by their wire names (``parentUuid``, ``cwd`` … of a transcript line).
    """

    message: JSONObject
    uuid: str
    timestamp: str
    is_meta: bool | None = None
    is_visible_in_transcript_only: bool | None = None
    is_virtual: bool | None = None
    is_compact_summary: bool | None = None
    tool_use_result: Any = msgspec.UNSET
    mcp_meta: Any = msgspec.UNSET
    image_paste_ids: list[Any] | None = None
    source_tool_assistant_uuid: str | None = None
    source_tool_use_id: str | None = None
    permission_mode: str | None = None
    origin: Any = msgspec.UNSET
    extra: JSONObject | None = None


class AssistantMessage(msgspec.Struct, kw_only=True, dict=True):
    """What the model said: while streaming one content block a message, joined by ``message["id"]``.

    ``index`` is the block's index in its answer and never goes to the wire; ``block_index`` does, where
    blocks stopped in another order. ``unfinished_tool_inputs`` is ``[{index, id, name, raw}]``.
    """

    message: JSONObject
    uuid: str
    timestamp: str
    request_id: str | None = None
    api_error: str | None = None
    api_error_status: int | None = None
    error: Any = msgspec.UNSET
    error_details: str | None = None
    is_api_error_message: bool | None = None
    is_virtual: bool | None = None
    is_aborted_mid_stream: bool | None = None
    block_index: int | None = None
    invalid_tool_input: bool | None = None
    unapplied_deltas: list[Any] | None = None
    unfinished_tool_inputs: list[JSONObject] | None = None
    synthesized_envelope: bool | None = None
    synthesized_block: bool | None = None
    extra: JSONObject | None = None
    index: int | None = None


class SystemMessage(msgspec.Struct, kw_only=True, dict=True):
    """A notice of the system, told apart by ``subtype``; the subtype's own fields are in ``fields``.

    ``fields`` has the wire's spelling (``compactMetadata``, ``durationMs`` …), as ``extra`` has.
    """

    subtype: str | None
    uuid: str
    timestamp: str
    content: Any = msgspec.UNSET
    level: str | None = None
    is_meta: bool | None = None
    fields: JSONObject = msgspec.field(default_factory=dict)
    extra: JSONObject | None = None


class AttachmentMessage(msgspec.Struct, kw_only=True, dict=True):
    """Context beside the conversation: ``attachment["type"]`` says which."""

    attachment: JSONObject
    uuid: str
    timestamp: str
    extra: JSONObject | None = None


class ProgressMessage(msgspec.Struct, kw_only=True, dict=True):
    """A tool's progress: shown, never recorded."""

    data: Any
    uuid: str
    timestamp: str
    tool_use_id: str | None = None
    parent_tool_use_id: str | None = None
    extra: JSONObject | None = None


class StreamEventMessage(msgspec.Struct, kw_only=True, dict=True):
    """The ``stream_event`` envelope, made on output only; inside, bare events flow."""

    event: Any
    ttft_ms: float | None = None
    parent_tool_use_id: str | None = None
    extra: JSONObject | None = None


class RequestStart(msgspec.Struct, kw_only=True, dict=True):
    """A request goes out (``stream_request_start``).

    ``attempt`` is its number. ``committed`` is in memory only: the tool executor sets it when a tool
    starts, from then on the attempt can't be retried (WIRE.md §7).
    """

    attempt: int = 1
    committed: bool = False
    extra: JSONObject | None = None


class Tombstone(msgspec.Struct, kw_only=True, dict=True):
    """Take back ``message`` (an assistant or user message, or an object with its uuid)."""

    message: Any
    extra: JSONObject | None = None


class ResponseFailed(msgspec.Struct, kw_only=True, dict=True):
    """How an answer ended other than well: an item, not the end of the stream.

    ``error`` is ``{"type", "message", "status", "requestId", "retryable"}``; ``kept`` the content blocks
    that were kept; ``outcome`` the word of WIRE.md §1: incomplete(n), api_error(type),
    protocol_error(kind), not_a_stream, empty. ``event_number`` and ``byte_offset`` say where.
    """

    error: JSONObject
    kept: list[Any] = msgspec.field(default_factory=list)
    outcome: str = "incomplete(0)"
    event_number: int | None = None
    byte_offset: int | None = None
    extra: JSONObject | None = None


class StreamNote(msgspec.Struct, kw_only=True, dict=True):
    """One lenient step, dropped event or detached sink; ``kind`` is a stable word."""

    kind: str
    message: str
    event_number: int | None = None
    byte_offset: int | None = None
    extra: JSONObject | None = None


class Resync(msgspec.Struct, kw_only=True, dict=True):
    """A conflating queue overflowed: take a snapshot."""

    extra: JSONObject | None = None


class ToolUseSummary(msgspec.Struct, kw_only=True, dict=True):
    """One line about a batch of tools."""

    summary: str
    uuid: str
    timestamp: str
    preceding_tool_use_ids: list[str] = msgspec.field(default_factory=list)
    extra: JSONObject | None = None


class GroupedToolUse(msgspec.Struct, kw_only=True, dict=True):
    """Display only (WIRE.md §5): consecutive uses of one tool in one answer, shown as one.

    ``messages`` are the assistant messages that asked, ``results`` the user messages that answered, both as
    they were, so that the group can be taken apart again. ``uuid`` is derived from the first of them.
    """

    tool_name: str
    messages: Sequence[Any]
    results: Sequence[Any]
    uuid: str
    timestamp: str = ""
    extra: JSONObject | None = None


class CollapsedReadSearch(msgspec.Struct, kw_only=True, dict=True):
    """Display only (WIRE.md §5): a run of reading and searching tools between texts, shown as counts.

    ``messages`` is the run as it was, in order; ``files`` the paths that were read, each once.
    """

    read_count: int
    search_count: int
    files: Sequence[str]
    messages: Sequence[Any]
    uuid: str
    timestamp: str = ""
    extra: JSONObject | None = None


class OpaqueRecord(msgspec.Struct, kw_only=True, dict=True):
    """A record of a type we don't model, or a line that is no JSON object: kept as it is.

    ``data`` is the decoded value, None where the line isn't JSON (``problem`` says why).
    """

    type: str | None
    data: Any = None
    problem: str | None = None


Message = (
    UserMessage
    | AssistantMessage
    | SystemMessage
    | AttachmentMessage
    | ProgressMessage
    | StreamEventMessage
    | RequestStart
    | Tombstone
    | ResponseFailed
    | StreamNote
    | Resync
    | ToolUseSummary
    | GroupedToolUse
    | CollapsedReadSearch
    | OpaqueRecord
)
"""Everything that has an envelope of ours (``type`` on the wire)."""

ModelItem = StreamEvent | AssistantMessage | SystemMessage | Tombstone | ResponseFailed | StreamNote
"""What the model's side of a pipeline produces (the system message is an api_error: waiting to retry)."""

QueryItem = (
    ModelItem
    | UserMessage
    | ProgressMessage
    | AttachmentMessage
    | ToolUseSummary
    | RequestStart
    | Resync
    | OpaqueRecord
    | StreamEventMessage
)
"""What a whole query produces."""

RESULT_TYPES: Final = (UserMessage, AssistantMessage, SystemMessage, AttachmentMessage)


def raw_of(message: Message) -> bytes | None:
    """The line a message was read from (without its line end), None if it was made here or replaced."""
    raw = message.__dict__.get("raw")
    return raw if isinstance(raw, bytes) else None
