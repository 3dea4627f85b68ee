"""A tool call's own fields: name, input, caller; and calls and results as texts (WIRE.md §4, repair)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from turnstream.operators.normalize.texts import NO_CONTENT, as_text, is_blank, text_block

__all__ = ["answered_as_text", "called_as_text", "clean_call"]

Block = dict[str, Any]
Say = Callable[[str, str], None]

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]+").fullmatch
_NOT_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]+")
_LONGEST: Final = 128
_LONGEST_CONVERSE: Final = 64
_UNNAMED: Final = "unnamed_tool"
INVALID_INPUT: Final = "invalid_input"


def clean_call(block: Block, say: Say, converse: bool = False) -> Block | None:
    """A call with an object for its input and a name that the API takes; ids are pairing's business.

    Args:
        block: a tool_use, server_tool_use or mcp_tool_use.
        say: takes what was done and why.
        converse: whether names may have 64 characters only.

    Returns:
        The block, itself if nothing was wrong; None for an MCP call that doesn't name its server.
    """
    changes: Block = {}
    name = block.get("name")
    longest = _LONGEST_CONVERSE if converse else _LONGEST
    if not isinstance(name, str) or len(name) > longest or _NAME(name) is None:
        changes["name"] = (_NOT_NAME.sub("_", name)[:longest] if isinstance(name, str) else "") or _UNNAMED
        say(f"renamed the tool {name!r} in a call", "a name has letters, digits, _ and - only")
    given = block.get("input")
    if given.__class__ is not dict:
        # What the model wrote was never executed and isn't repaired: it goes back as it was, in an object.
        changes["input"] = {} if given is None else {INVALID_INPUT: given}
        say("wrapped a tool call's input", "it must be an object")
    if block.get("type") == "mcp_tool_use" and (
        not isinstance(block.get("server_name"), str) or is_blank(block["server_name"])
    ):
        say("dropped an MCP call", "it names no server")
        return None
    if "caller" in block and not _is_caller(block["caller"]):
        say("dropped a call's caller", "it has no type")
        block = {key: value for key, value in block.items() if key != "caller"}
    return {**block, **changes} if changes else block


def _is_caller(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def called_as_text(block: Block) -> Block:
    """A call as a text, for a request that can't hold it."""
    return text_block(f"[called {block.get('name')} with {as_text(block.get('input'))}]")


def answered_as_text(block: Block) -> list[Block]:
    """A result as texts (and its media), for a request that can't hold it."""
    content = block.get("content", NO_CONTENT)
    head = "[the call failed]" if block.get("is_error") else "[result of the call]"
    if isinstance(content, str):
        return [text_block(f"{head}\n{content}")]
    kept = [item for item in content if item.get("type") in ("text", "image", "document", "search_result")]
    return [text_block(head), *kept]
