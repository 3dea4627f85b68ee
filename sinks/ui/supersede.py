"""Which streamed blocks a finished message stands for: identity, never text (WIRE.md §5, FAULTS 25 and 82)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnstream.messages.types import AssistantMessage
from turnstream.sinks.ui.views import OpenBlock

__all__ = ["content_of", "pair"]


def content_of(message: AssistantMessage) -> list[Any]:
    """The message's content blocks; none where content isn't a list."""
    content = message.message.get("content")
    return content if isinstance(content, list) else []


def pair(message: AssistantMessage, blocks: Sequence[OpenBlock]) -> tuple[tuple[int, ...], list[OpenBlock]]:
    """Pair a message without index with the streamed blocks it supersedes.

    It is what was kept of an answer that broke off (``accumulate`` puts the open blocks in index order),
    a carrier of unfinished tools, or comes from another maker: then type and order decide.

    Args:
        message: it has the open answer's message id.
        blocks: the open blocks in index order.

    Returns:
        For each content block the serial of the streamed block it replaces (0: none), and all the
        blocks that are shown no more.
    """
    content = content_of(message)
    gone: list[OpenBlock] = []
    streams: list[int] = []
    for value in content:
        kind = value.get("type") if isinstance(value, dict) else None
        found = next((b for b in blocks if b.type == kind and b not in gone and _may_be(b, value)), None)
        streams.append(found.serial if found is not None else 0)
        if found is not None:
            gone.append(found)
    unfinished = {entry.get("index") for entry in message.unfinished_tool_inputs or ()}
    if message.is_aborted_mid_stream or len(content) > 1:
        gone = list(blocks)
    elif unfinished:
        gone += [block for block in blocks if block.index in unfinished and block not in gone]
    return tuple(streams), gone


def _may_be(block: OpenBlock, value: dict[str, Any]) -> bool:
    """Tool calls have ids; two with different ones aren't the same. An empty text never becomes a message."""
    if block.is_tool:
        return bool(block.block.get("id") == value.get("id"))
    return block.takes is None or any(block.parts)
