"""What stands in the result of a tool that runs on the server: the API wrote it and refuses any other shape (WIRE.md §4).

A gateway, an edit or a cut file leaves results that aren't of their type any more. What an MCP tool said is kept as
texts; of the other results, which hold what only the API can read, a malformed one goes, and its call with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from turnstream.operators.normalize.fields import only
from turnstream.operators.normalize.references import keep_references
from turnstream.operators.normalize.texts import as_text, inner_text, is_blank, text_block

__all__ = ["clean_server_result"]

Block = dict[str, Any]
Say = Callable[[str, str], None]

_TEXT: Final = frozenset({"type", "text"})
_FOUND: Final = ("title", "url", "encrypted_content")
"""What a web_search_result needs (anthropic 2.14, ``beta_web_search_result_block_param``)."""
_FOUND_FIELDS: Final = frozenset({"type", "page_age", *_FOUND})


def clean_server_result(block: Block, names: frozenset[str] | None, say: Say) -> Block | None:
    """The result as the API takes it back: itself if nothing was wrong, None if it can't be mended.

    Args:
        block: a result of a server tool or of an MCP tool.
        names: names of the declared tools, None if unknown.
        say: takes what was done and why.
    """
    kind = block["type"]
    if kind == "mcp_tool_result":
        return _mcp_result(block, say)
    content = block.get("content")
    if kind == "web_search_tool_result" and isinstance(content, list):
        return _search_result(block, content, say)
    if not (isinstance(content, dict) and isinstance(content.get("type"), str)):
        say(f"dropped a {kind}", "its content isn't what such a tool returns")
        return None
    return keep_references(block, names, say) if kind == "tool_search_tool_result" else block


def _mcp_result(block: Block, say: Say) -> Block:
    if "is_error" in block and block["is_error"].__class__ is not bool:
        say("dropped an MCP result's is_error", "it isn't true or false")
        block = {key: value for key, value in block.items() if key != "is_error"}
    if "content" not in block or block["content"].__class__ is str:
        return block
    content = block["content"]
    items = content if isinstance(content, list) else [] if content is None else [content]
    texts = [text for item in items if (text := _text(item)) is not None]
    if (
        isinstance(content, list)
        and len(texts) == len(items)
        and all(a is b for a, b in zip(texts, items, strict=True))
    ):
        return block
    say("mended an MCP result's content", "it is texts that aren't blank")
    return {**block, "content": texts}


def _text(item: Any) -> Block | None:
    if isinstance(item, dict) and item.get("type") == "text" and isinstance(item.get("text"), str):
        return None if is_blank(item["text"]) else only(item, _TEXT)
    said = inner_text(item) if isinstance(item, (str, list, dict)) else as_text(item) if item is not None else ""
    return text_block(said) if said else None


def _search_result(block: Block, content: list[Any], say: Say) -> Block:
    kept = [only(item, _FOUND_FIELDS) for item in content if _is_found(item)]
    if len(kept) == len(content) and all(a is b for a, b in zip(kept, content, strict=True)):
        return block
    say("mended a web search's results", "the API refuses what isn't one, and unknown fields")
    return {**block, "content": kept}


def _is_found(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and item.get("type") == "web_search_result"
        and all(isinstance(item.get(key), str) for key in _FOUND)
    )
