"""The shapes that a message's ``content`` may come in, as one list of blocks (WIRE.md §4)."""

from __future__ import annotations

from typing import Any, Final

from turnstream.messages import SYNTHETIC_TEXTS

__all__ = ["blocks_of", "lost_items", "only_synthetic"]

Block = dict[str, Any]

_THINKING: Final = ("thinking", "redacted_thinking")


def blocks_of(content: Any) -> list[Block]:
    """The content's blocks; ``content`` itself where it is a list of nothing but blocks.

    A string is one text block, in a list too; the empty string, None and what is no block are nothing.
    """
    if content.__class__ is list:
        for item in content:
            if item.__class__ is not dict:
                break
        else:
            return content
        return [block for item in content for block in _blocks_of_item(item)]
    if isinstance(content, (list, tuple)):
        return [block for item in content for block in _blocks_of_item(item)]
    return _blocks_of_item(content)


def lost_items(content: Any) -> int:
    """How many items of ``content`` :func:`blocks_of` leaves out for being no block (empty ones don't count)."""
    items = content if isinstance(content, (list, tuple)) else (content,)
    return sum(1 for item in items if item and not isinstance(item, (str, dict)))


def only_synthetic(content: Any) -> bool:
    """Whether all that ``content`` says are texts that stand in for speech; blank texts and thinking say nothing."""
    found = False
    for item in content if content.__class__ is list else (content,):
        text = item
        if item.__class__ is dict:
            kind = item.get("type")
            if kind in _THINKING:
                continue
            if kind != "text":
                return False
            text = item.get("text")
        if isinstance(text, str):
            if text in SYNTHETIC_TEXTS:
                found = True
            elif text and not text.isspace():
                return False
    return found


def _blocks_of_item(item: Any) -> list[Block]:
    if isinstance(item, dict):
        return [item]
    if isinstance(item, str) and item:
        return [{"type": "text", "text": item}]
    return []
