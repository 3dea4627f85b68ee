"""What the parts of the display look at: an item's one block, and the tool that it belongs to (WIRE.md §5)."""

from __future__ import annotations

from typing import Any, Final, Literal

from turnstream.messages.events import EVENT_CLASSES, StreamEvent
from turnstream.messages.types import (
    AssistantMessage,
    AttachmentMessage,
    Message,
    ProgressMessage,
    Resync,
    StreamEventMessage,
    StreamNote,
    ToolUseSummary,
    UserMessage,
)

__all__ = [
    "PASSING",
    "Item",
    "Role",
    "answer_of",
    "block_of",
    "is_thinking",
    "result_id",
    "role_of",
    "tool_ids",
    "tool_use",
]

Item = Message | StreamEvent
"""What goes through a display's stages: messages, and whatever else a query produces."""

Role = Literal["use", "pre", "result", "post"]
"""What an item is to a tool's group."""

PASSING: Final = frozenset({*EVENT_CLASSES, StreamEventMessage, StreamNote, Resync, ToolUseSummary})
"""What drives a display and never stands in its list: where a run is held, it goes on at once."""

# A hook's event → where its items belong; a failed tool has an event of its own. Others aren't a tool's.
_HOOKS: Final[dict[str, Role]] = {"PreToolUse": "pre", "PostToolUse": "post", "PostToolUseFailure": "post"}

_THINKING: Final = frozenset({"thinking", "redacted_thinking"})


def block_of(message: UserMessage | AssistantMessage) -> dict[str, Any] | None:
    """The message's only content block, None if it has none, several, or one that is no object."""
    content: Any = message.message.get("content")
    if content.__class__ is not list or len(content) != 1:
        return None
    block: Any = content[0]
    return block if block.__class__ is dict else None


def tool_use(item: Item) -> dict[str, Any] | None:
    """The ``tool_use`` block of a message that is nothing else and has an id, else None.

    Server tools answer inside their own answer, so nothing of theirs ever moves or is grouped.
    """
    if not isinstance(item, AssistantMessage):
        return None
    block = block_of(item)
    return block if block is not None and block.get("type") == "tool_use" and _id(block.get("id")) else None


def result_id(item: Item) -> str | None:
    """The ``tool_use_id`` of a message that is one tool result and nothing else, else None."""
    if not isinstance(item, UserMessage):
        return None
    block = block_of(item)
    return _id(block.get("tool_use_id")) if block is not None and block.get("type") == "tool_result" else None


def answer_of(item: Item) -> str | None:
    """The API message's id of an assistant message, None where it has none."""
    return _id(item.message.get("id")) if isinstance(item, AssistantMessage) else None


def role_of(item: Item) -> tuple[Role, str] | None:
    """What ``item`` is to which tool use's group; None if it is none's."""
    if isinstance(item, AssistantMessage):
        block = tool_use(item)
        return None if block is None else ("use", block["id"])
    if isinstance(item, UserMessage):
        result = result_id(item)
        return None if result is None else ("result", result)
    if isinstance(item, AttachmentMessage):
        data: Any = item.attachment
        kind = data.get("type")
        if not isinstance(kind, str) or not kind.startswith("hook_"):
            return None
        tool = _id(data.get("toolUseID"))
    elif isinstance(item, ProgressMessage):
        data = item.data
        if not isinstance(data, dict) or data.get("type") != "hook_progress":
            return None
        tool = _id(item.tool_use_id) or _id(item.parent_tool_use_id)
    else:
        return None
    event = data.get("hookEvent")
    role = _HOOKS.get(event) if isinstance(event, str) else None
    return None if tool is None or role is None else (role, tool)


def tool_ids(item: Item) -> tuple[str | None, ...]:
    """The tool uses that a result, a hook's output or progress may belong to."""
    if isinstance(item, UserMessage):
        return (result_id(item),)
    if isinstance(item, ProgressMessage):
        return (_id(item.tool_use_id), _id(item.parent_tool_use_id))
    if isinstance(item, AttachmentMessage):
        return (_id(item.attachment.get("toolUseID")),)
    return ()


def is_thinking(item: Item) -> bool:
    """Whether the message is one block of thinking."""
    if not isinstance(item, AssistantMessage):
        return False
    block = block_of(item)
    kind = None if block is None else block.get("type")
    return kind.__class__ is str and kind in _THINKING


def _id(value: Any) -> str | None:
    return value if value.__class__ is str and value else None
