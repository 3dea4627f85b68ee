"""Makers of messages, with ids and clock as parameters (WIRE.md §2, factories)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from turnstream.messages import texts
from turnstream.messages.denials import DenialKind, denial_text
from turnstream.messages.subtypes import SystemFactory
from turnstream.messages.types import (
    AssistantMessage,
    AttachmentMessage,
    ProgressMessage,
    RequestStart,
    ResponseFailed,
    Resync,
    StreamNote,
    Tombstone,
    ToolUseSummary,
    UserMessage,
)

__all__ = ["MessageFactory", "zero_usage"]


def zero_usage() -> dict[str, Any]:
    """The usage of a message that cost nothing (WIRE.md §2)."""
    return {
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


class MessageFactory(SystemFactory):
    """Makes messages with one source of ids and one clock; the system subtypes in :class:`SystemFactory`.

    Args:
        ids: makes uuids; default random.
        clock: wall-clock seconds since the epoch; default the system's.
    """

    def user(
        self,
        content: str | list[dict[str, Any]],
        *,
        uuid: str | None = None,
        timestamp: str | None = None,
        **fields: Any,
    ) -> UserMessage:
        """A user message; empty content becomes the no-content text."""
        return UserMessage(
            message={"role": "user", "content": content or texts.NO_CONTENT},
            uuid=uuid or self.ids("user"),
            timestamp=timestamp or self.timestamp(),
            **fields,
        )

    def assistant(
        self,
        content: str | list[dict[str, Any]],
        *,
        uuid: str | None = None,
        timestamp: str | None = None,
        usage: dict[str, Any] | None = None,
        **fields: Any,
    ) -> AssistantMessage:
        """A synthetic assistant message: model ``<synthetic>``, zero usage, stop_reason ``stop_sequence``."""
        if isinstance(content, str):
            content = [{"type": "text", "text": content or texts.NO_CONTENT}]
        elif not content:
            content = [{"type": "text", "text": texts.NO_CONTENT}]
        fields.setdefault("is_api_error_message", False)
        return AssistantMessage(
            message={
                "id": self.ids("message"),
                "type": "message",
                "role": "assistant",
                "model": texts.SYNTHETIC_MODEL,
                "content": content,
                "stop_reason": "stop_sequence",
                "stop_sequence": "",
                "usage": usage if usage is not None else zero_usage(),
                "container": None,
                "context_management": None,
            },
            uuid=uuid or self.ids("assistant"),
            timestamp=timestamp or self.timestamp(),
            **fields,
        )

    def api_error(self, text: str, *, api_error: str | None = None, error: Any = msgspec.UNSET) -> AssistantMessage:
        """A synthetic API error: shown and recovered from, never sent."""
        return self.assistant(text, is_api_error_message=True, api_error=api_error, error=error)

    def progress(self, tool_use_id: str, parent_tool_use_id: str | None, data: Any) -> ProgressMessage:
        """A tool's progress."""
        return ProgressMessage(
            tool_use_id=tool_use_id,
            parent_tool_use_id=parent_tool_use_id,
            data=data,
            uuid=self.ids("progress", tool_use_id),
            timestamp=self.timestamp(),
        )

    def attachment(self, attachment: dict[str, Any]) -> AttachmentMessage:
        """Context beside the conversation."""
        return AttachmentMessage(attachment=attachment, uuid=self.ids("attachment"), timestamp=self.timestamp())

    def tool_result(
        self,
        tool_use_id: str,
        content: str | list[dict[str, Any]],
        *,
        is_error: bool = False,
        tool_use_result: Any = msgspec.UNSET,
        source: AssistantMessage | None = None,
        uuid: str | None = None,
    ) -> UserMessage:
        """One tool's result.

        Args:
            tool_use_id: the id of the ``tool_use`` block.
            content: what the model sees.
            is_error: whether the tool failed.
            tool_use_result: the tool's own output with its own type; never sent.
            source: the assistant message that asked.
            uuid: given, or made.
        """
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": tool_use_id, "content": content}
        if is_error:
            block["is_error"] = True
        return UserMessage(
            message={"role": "user", "content": [block]},
            uuid=uuid or self.ids("tool_result", tool_use_id),
            timestamp=self.timestamp(),
            tool_use_result=tool_use_result,
            source_tool_assistant_uuid=source.uuid if source is not None else None,
        )

    def missing_results(
        self, asked: Sequence[AssistantMessage], reason: str = texts.MISSING_RESULT, *, answered: Sequence[str] = ()
    ) -> list[UserMessage]:
        """One error result for each ``tool_use`` in ``asked`` that isn't in ``answered``, in order."""
        done = set(answered)
        results: list[UserMessage] = []
        for message in asked:
            content = message.message.get("content")
            for block in content if isinstance(content, list) else ():
                if isinstance(block, dict) and block.get("type") == "tool_use":
                    tool_use_id = block.get("id")
                    if isinstance(tool_use_id, str) and tool_use_id not in done:
                        done.add(tool_use_id)
                        results.append(
                            self.tool_result(tool_use_id, reason, is_error=True, tool_use_result=reason, source=message)
                        )
        return results

    def denial(
        self,
        tool_use_id: str,
        kind: DenialKind,
        *,
        reason: str | None = None,
        hint: str | None = None,
        source: AssistantMessage | None = None,
    ) -> UserMessage:
        """The error result of a tool call that wasn't allowed; see :func:`turnstream.messages.denial_text`."""
        text = denial_text(kind, reason=reason, hint=hint)
        return self.tool_result(tool_use_id, text, is_error=True, tool_use_result=text, source=source)

    def interruption(self, *, tool_use: bool = False) -> UserMessage:
        """The message that stands for the user's interruption."""
        text = texts.INTERRUPTED_FOR_TOOL_USE if tool_use else texts.INTERRUPTED
        return self.user([{"type": "text", "text": text}])

    def compact_summary(self, text: str) -> UserMessage:
        """The summary after compaction: for the model and the full-history view."""
        return self.user(text, is_compact_summary=True, is_meta=True, is_visible_in_transcript_only=True)

    def tombstone(self, message: AssistantMessage | UserMessage) -> Tombstone:
        """Take back ``message``."""
        return Tombstone(message=message)

    def request_start(self, attempt: int = 1) -> RequestStart:
        """A request goes out, for the ``attempt``-th time."""
        return RequestStart(attempt=attempt)

    def response_failed(
        self,
        error_type: str,
        message: str,
        *,
        status: int | None = None,
        request_id: str | None = None,
        retryable: bool = False,
        kept: Sequence[Any] = (),
        outcome: str = "incomplete(0)",
    ) -> ResponseFailed:
        """How an answer ended other than well; ``outcome`` is the word of WIRE.md §1."""
        error = {
            "type": error_type,
            "message": message,
            "status": status,
            "requestId": request_id,
            "retryable": retryable,
        }
        return ResponseFailed(error=error, kept=list(kept), outcome=outcome)

    def note(
        self, kind: str, message: str, *, event_number: int | None = None, byte_offset: int | None = None
    ) -> StreamNote:
        """One lenient step, dropped event or detached sink; ``kind`` is a stable word."""
        return StreamNote(kind=kind, message=message, event_number=event_number, byte_offset=byte_offset)

    def resync(self) -> Resync:
        """A conflating queue overflowed: take a snapshot."""
        return Resync()

    def tool_use_summary(self, summary: str, preceding_tool_use_ids: Sequence[str]) -> ToolUseSummary:
        """One line about a batch of tools (WIRE.md §8)."""
        return ToolUseSummary(
            summary=summary,
            preceding_tool_use_ids=list(preceding_tool_use_ids),
            uuid=self.ids("tool_use_summary", *preceding_tool_use_ids),
            timestamp=self.timestamp(),
        )
