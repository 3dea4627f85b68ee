"""References to tools that the request doesn't declare (WIRE.md §4, repair).

Only references go: calls of a tool that vanished, and their results, stay history. Without a list of tools
(``names=None``) nothing is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["is_known", "keep_references", "names_known_tool"]

Block = dict[str, Any]
Say = Callable[[str, str], None]


def is_known(name: str, names: frozenset[str] | None) -> bool:
    """Whether the request declares the tool, as far as is known."""
    return names is None or name in names


def names_known_tool(block: Block, names: frozenset[str] | None) -> bool:
    """Whether a tool_addition or tool_removal names a tool that the request declares."""
    tool = block.get("tool")
    if not isinstance(tool, dict):
        return False
    name = tool.get("name", tool.get("tool_name"))
    return isinstance(name, str) and bool(name) and is_known(name, names)


def keep_references(block: Block, names: frozenset[str] | None, say: Say) -> Block:
    """A tool search's result with the references to declared tools alone; the block itself if that is all."""
    content = block.get("content")
    found = content.get("tool_references") if isinstance(content, dict) else None
    if not isinstance(found, list):
        return block
    kept = [item for item in found if _is_kept(item, names)]
    if len(kept) == len(found):
        return block
    say(f"dropped {len(found) - len(kept)} tool reference(s)", "the request doesn't declare the tool")
    return {**block, "content": {**content, "tool_references": kept}}  # type: ignore[dict-item]


def _is_kept(item: Any, names: frozenset[str] | None) -> bool:
    name = item.get("tool_name") if isinstance(item, dict) else None
    return isinstance(name, str) and bool(name) and is_known(name, names)
