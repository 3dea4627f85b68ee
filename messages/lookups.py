"""What a display asks again and again about a conversation, kept up to date message by message (WIRE.md §2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from turnstream.messages.events import StreamEvent
from turnstream.messages.identity import uuid_of
from turnstream.messages.types import (
    AssistantMessage,
    AttachmentMessage,
    Message,
    ProgressMessage,
    SystemMessage,
    Tombstone,
    UserMessage,
)

__all__ = ["HOOK_ENDS", "MessageLookups"]

HOOK_ENDS: Final = frozenset(
    {
        "hook_success",
        "hook_cancelled",
        "hook_blocking_error",
        "hook_non_blocking_error",
        "hook_error_during_execution",
    }
)
"""Attachments that end a hook, one a run; others (``hook_system_message`` …) come beside them."""

_Counted = AssistantMessage | UserMessage | ProgressMessage | AttachmentMessage | SystemMessage
_STOP_EVENTS: Final = ("Stop", "SubagentStop")
_CALLS: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_NO_COUNTS: Final[Mapping[str, int]] = MappingProxyType({})


class MessageLookups:
    """Answers in O(1) after one pass in O(n); one more message is O(1) (in the number of its blocks).

    A tombstone takes its message out again. When ids repeat, the later use or result counts; a use of an id
    by another answer starts anew, without the result of the earlier one.

    Args:
        messages: a conversation, oldest first; items that say nothing here are skipped.
    """

    def __init__(self, messages: Iterable[Message | StreamEvent] = ()) -> None:
        self._siblings: dict[str, dict[str, None]] = {}
        self._answer_of: dict[str, str] = {}
        self._uses: dict[str, tuple[dict[str, Any], AssistantMessage]] = {}
        self._results: dict[str, tuple[dict[str, Any], UserMessage | AssistantMessage]] = {}
        self._errored: set[str] = set()
        self._progress: dict[str, list[ProgressMessage]] = {}
        self._started: dict[str, Counter[str]] = {}
        self._ended: dict[str, Counter[str]] = {}
        self._seen: dict[str, tuple[Message, int]] = {}
        self._count = 0
        for message in messages:
            self.add(message)

    # -- questions -----------------------------------------------------------------------------------

    def siblings(self, tool_use_id: str) -> tuple[str, ...]:
        """The ids of all tool uses of the same API message, itself included, in order; empty if unknown."""
        answer = self._answer_of.get(tool_use_id)
        return tuple(self._siblings[answer]) if answer is not None else ()

    def progress(self, tool_use_id: str) -> list[ProgressMessage]:
        """The progress of a tool use, oldest first (a copy): what names it as parent, or itself if it has none."""
        return list(self._progress.get(tool_use_id, ()))

    def latest_progress(self, tool_use_id: str) -> ProgressMessage | None:
        """The last progress of a tool use."""
        items = self._progress.get(tool_use_id)
        return items[-1] if items else None

    def running_hooks(self, tool_use_id: str) -> dict[str, int]:
        """Hook event → how many hooks of it still run for this tool use; events without any aren't listed.

        A hook runs from its ``hook_progress`` to its :data:`HOOK_ENDS` attachment. A result ends the
        PreToolUse hooks, a ``stop_hook_summary`` those of Stop.
        """
        ended = self._ended.get(tool_use_id, _NO_COUNTS)
        resolved = tool_use_id in self._results
        return {
            event: count - ended.get(event, 0)
            for event, count in self._started.get(tool_use_id, _NO_COUNTS).items()
            if count > ended.get(event, 0) and not (resolved and event == "PreToolUse")
        }

    def result(self, tool_use_id: str) -> UserMessage | AssistantMessage | None:
        """The message with the result of a tool use (a server tool's is in an assistant message)."""
        found = self._results.get(tool_use_id)
        return found[1] if found else None

    def result_block(self, tool_use_id: str) -> dict[str, Any] | None:
        """The result's block."""
        found = self._results.get(tool_use_id)
        return found[0] if found else None

    def tool_use(self, tool_use_id: str) -> dict[str, Any] | None:
        """The block of a tool use, a server tool's too."""
        found = self._uses.get(tool_use_id)
        return found[0] if found else None

    def asked_by(self, tool_use_id: str) -> AssistantMessage | None:
        """The assistant message with the tool use."""
        found = self._uses.get(tool_use_id)
        return found[1] if found else None

    def is_resolved(self, tool_use_id: str) -> bool:
        """Whether there is a result."""
        return tool_use_id in self._results

    def is_errored(self, tool_use_id: str) -> bool:
        """Whether there is a result that is an error."""
        return tool_use_id in self._errored

    def unresolved(self) -> Iterator[str]:
        """The tool uses without a result, oldest first; O(number of tool uses)."""
        return (tool_use_id for tool_use_id in self._uses if tool_use_id not in self._results)

    @property
    def normalized_count(self) -> int:
        """How many messages there are when each holds one block (WIRE.md §5, ``split_blocks``)."""
        return self._count

    # -- updates -------------------------------------------------------------------------------------

    def add(self, message: Message | StreamEvent) -> None:
        """Take in one more message."""
        if isinstance(message, AssistantMessage):
            self._count_in(message, _blocks_in(message.message))
            self._add_answer(message)
        elif isinstance(message, UserMessage):
            self._count_in(message, _blocks_in(message.message))
            for block in _blocks(message.message):
                if block.get("type") == "tool_result":
                    self._set_result(block, message, bool(block.get("is_error")))
        elif isinstance(message, ProgressMessage):
            if self._count_in(message, 1):
                self._add_progress(message)
        elif isinstance(message, AttachmentMessage):
            if self._count_in(message, 1):
                self._add_attachment(message.attachment)
        elif isinstance(message, SystemMessage):
            if self._count_in(message, 1) and message.subtype == "stop_hook_summary":
                self._end_stop_hooks(message.fields.get("toolUseID"))
        elif isinstance(message, Tombstone):
            self._remove(message.message)

    def _count_in(self, message: _Counted, blocks: int) -> bool:
        """Count a message; False if it was here before: the same uuid again is the same message again."""
        if not message.uuid:
            self._count += blocks
            return True
        before = self._seen.get(message.uuid)
        self._seen[message.uuid] = (message, blocks)
        self._count += blocks - (before[1] if before else 0)
        return before is None

    def _add_answer(self, message: AssistantMessage) -> None:
        answer = _answer_id(message)
        for block in _blocks(message.message):
            kind = block.get("type")
            if not isinstance(kind, str):
                continue
            if kind in _CALLS:
                tool_use_id = block.get("id")
                if not isinstance(tool_use_id, str):
                    continue
                before = self._answer_of.get(tool_use_id)
                if before is not None and before != answer:
                    self._start_anew(tool_use_id)
                self._answer_of[tool_use_id] = answer
                self._uses[tool_use_id] = (block, message)
                self._siblings.setdefault(answer, {})[tool_use_id] = None
            elif kind.endswith("_tool_result"):
                content = block.get("content")
                code = content.get("type") if isinstance(content, dict) else None
                failed = bool(block.get("is_error")) or (isinstance(code, str) and code.endswith("_error"))
                self._set_result(block, message, failed)

    def _set_result(self, block: dict[str, Any], message: UserMessage | AssistantMessage, failed: bool) -> None:
        tool_use_id = block.get("tool_use_id")
        if isinstance(tool_use_id, str):
            self._results[tool_use_id] = (block, message)
            (self._errored.add if failed else self._errored.discard)(tool_use_id)

    def _add_progress(self, message: ProgressMessage) -> None:
        tool_use_id = message.parent_tool_use_id or message.tool_use_id
        if not tool_use_id:
            return
        self._progress.setdefault(tool_use_id, []).append(message)
        data = message.data
        if isinstance(data, dict) and data.get("type") == "hook_progress" and isinstance(data.get("hookEvent"), str):
            self._started.setdefault(tool_use_id, Counter())[data["hookEvent"]] += 1

    def _add_attachment(self, attachment: dict[str, Any]) -> None:
        kind = attachment.get("type")
        if isinstance(kind, str) and kind in HOOK_ENDS:
            tool_use_id, event = attachment.get("toolUseID"), attachment.get("hookEvent")
            if isinstance(tool_use_id, str) and isinstance(event, str):
                self._ended.setdefault(tool_use_id, Counter())[event] += 1

    def _end_stop_hooks(self, tool_use_id: Any) -> None:
        started = self._started.get(tool_use_id) if isinstance(tool_use_id, str) else None
        for event in _STOP_EVENTS:
            if started and event in started:
                ended = self._ended.setdefault(tool_use_id, Counter())
                ended[event] = max(ended[event], started[event])

    def _remove(self, gone: Any) -> None:
        """Take a message out, given as it is or as any object with its uuid."""
        uuid = uuid_of(gone)
        message, blocks = self._seen.pop(uuid, (None, 0))
        self._count -= blocks
        if not isinstance(message, AssistantMessage | UserMessage):
            return
        for block in _blocks(message.message):
            kind = block.get("type")
            tool_use_id = block.get("id" if isinstance(kind, str) and kind in _CALLS else "tool_use_id")
            if not isinstance(tool_use_id, str):
                continue
            use, result = self._uses.get(tool_use_id), self._results.get(tool_use_id)
            if use is not None and use[1].uuid == uuid:
                self._forget_use(tool_use_id)
            if result is not None and result[1].uuid == uuid:
                self._forget_result(tool_use_id)

    def _forget_use(self, tool_use_id: str) -> None:
        self._uses.pop(tool_use_id, None)
        answer = self._answer_of.pop(tool_use_id, None)
        if answer is not None:
            ids = self._siblings[answer]
            ids.pop(tool_use_id, None)
            if not ids:
                del self._siblings[answer]

    def _start_anew(self, tool_use_id: str) -> None:
        self._forget_use(tool_use_id)
        self._forget_result(tool_use_id)
        for table in (self._progress, self._started, self._ended):
            table.pop(tool_use_id, None)

    def _forget_result(self, tool_use_id: str) -> None:
        self._results.pop(tool_use_id, None)
        self._errored.discard(tool_use_id)


def _answer_id(message: AssistantMessage) -> str:
    """What joins the messages of one answer: the API message's id, else the message's own."""
    ident = message.message.get("id")
    return ident if isinstance(ident, str) and ident else f"\0{message.uuid or id(message)}"


def _blocks(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    content = message.get("content")
    return (block for block in (content if isinstance(content, list) else ()) if isinstance(block, dict))


def _blocks_in(message: dict[str, Any]) -> int:
    """Into how many messages one splits: a string is one block, and what has none stays one message."""
    content = message.get("content")
    return len(content) if isinstance(content, list) and content else 1
