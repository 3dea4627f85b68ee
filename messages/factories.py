"""Makers of messages, with ids and clock as parameters (WIRE.md §2, factories)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from turnstream.messages import texts
from turnstream.messages.ids import Clock, IdSource, format_timestamp, random_ids, system_clock
from turnstream.messages.types import (
    AssistantMessage,
    AttachmentMessage,
    ProgressMessage,
    SystemMessage,
    Tombstone,
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


class MessageFactory:
    """Makes messages with one source of ids and one clock.

    Args:
        ids: makes uuids; default random.
        clock: wall-clock seconds since the epoch; default the system's.
    """

    def __init__(self, ids: IdSource | None = None, clock: Clock = system_clock) -> None:
        self.ids: IdSource = ids if ids is not None else random_ids()
        self.clock = clock

    def timestamp(self) -> str:
        """Now, as it is written in messages."""
        return format_timestamp(self.clock())

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

    def system(
        self,
        subtype: str,
        content: Any = msgspec.UNSET,
        *,
        level: str | None = "info",
        is_meta: bool | None = False,
        uuid: str | None = None,
        timestamp: str | None = None,
        **fields: Any,
    ) -> SystemMessage:
        """A system message; ``fields`` are the subtype's own, in the wire's spelling."""
        return SystemMessage(
            subtype=subtype,
            content=content,
            level=level,
            is_meta=is_meta,
            uuid=uuid or self.ids("system", subtype),
            timestamp=timestamp or self.timestamp(),
            fields=fields,
        )

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
