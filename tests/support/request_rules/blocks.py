"""One block: its fields, its type's own rules, what is nested in it."""

from __future__ import annotations

import re
from typing import Any

from request_rules.cache_marks import note_mark
from request_rules.facts import Facts
from request_rules.shapes import BLOCKS, CITATIONS, RESULT_BLOCKS, SERVER_RESULTS, Shape
from request_rules.sources import note_document, note_image

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_SERVER_ID = re.compile(r"srvtoolu_[a-zA-Z0-9_]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,200}")


class Ways:
    """What the look at a block depends on besides the block."""

    __slots__ = ("bedrock", "image_bytes", "image_pixels", "key", "media_types", "pdf_pages")

    def __init__(self, *, bedrock: bool, media_types: bool, image_bytes: int, image_pixels: int, pdf_pages: int):
        self.bedrock = bedrock
        self.media_types = media_types
        self.image_bytes = image_bytes
        self.image_pixels = image_pixels
        self.pdf_pages = pdf_pages
        self.key = (bedrock, media_types, image_bytes, image_pixels, pdf_pages)


def look(block: Any, role: str, ways: Ways) -> Facts:
    """The facts of a block that stands in a message of this role."""
    facts = Facts(block)
    facts.measure()
    if not isinstance(block, dict):
        facts.add("block-shape", "", "Input should be an object")
    elif facts.type is None:
        facts.add("block-shape", "type", "Field required")
    elif (shape := BLOCKS.get(facts.type)) is None:
        facts.add("block-unknown", "type", f"Input tag {facts.type!r} does not match any of the expected tags")
    else:
        if role not in shape.roles:
            facts.add("block-role", "", f"`{facts.type}` blocks are not permitted in `{role}` messages")
        _fields(facts, block, shape, "")
        note_mark(facts, block, "")
        own = _OWN.get(facts.type)
        if own is not None:
            own(facts, block, "", ways)
    return facts


def look_at_text(text: str, ways: Ways) -> Facts:
    """A message's string content, as the text block it stands for."""
    facts = Facts({"type": "text", "text": text})
    facts.measure()
    _text(facts, facts.block, "", ways)
    return facts


def _fields(facts: Facts, block: dict[str, Any], shape: Shape, path: str) -> None:
    names = block.keys() - {"type"}
    for name in sorted(map(str, names - shape.required - shape.optional)):
        rule = "block-field-unknown"
        if name == "cache_control" and block.get("type") in ("thinking", "redacted_thinking"):
            rule = "cache-on-thinking"
        facts.add(rule, f"{path}{name}", "Extra inputs are not permitted")
    for name in sorted(shape.required - names):
        kind = block.get("type")
        rule = {"thinking.signature": "thinking-signature", "thinking.thinking": "thinking-content"}.get(
            f"{kind}.{name}", "block-field-missing"
        )
        facts.add(rule, f"{path}{name}", "Field required")


def _string(facts: Facts, block: dict[str, Any], name: str, path: str, *, empty: bool = True) -> str | None:
    """A field that must be a string if it is there."""
    if name not in block:
        return None
    value: object = block[name]
    if not isinstance(value, str):
        facts.add("block-field-type", f"{path}{name}", "Input should be a valid string")
        return None
    if not value and not empty:
        facts.add("block-field-type", f"{path}{name}", "String should have at least 1 character")
    return value


def _text(facts: Facts, block: dict[str, Any], path: str, ways: Ways) -> None:
    text = _string(facts, block, "text", path)
    if text is not None:
        if not path:
            facts.text = text
        if not text:
            facts.add("text-empty", f"{path}text", "text content blocks must be non-empty")
            if block.get("cache_control") is not None:
                facts.add("cache-on-empty-text", f"{path}cache_control", "cannot be set for empty text blocks")
        elif path and text.isspace():
            facts.add("text-whitespace", f"{path}text", "text content blocks must contain non-whitespace text")
    citations = block.get("citations")
    if citations is None:
        return
    if not isinstance(citations, list):
        facts.add("citation-shape", f"{path}citations", "Input should be a valid list")
        return
    for index, citation in enumerate(citations):
        kind = citation.get("type") if isinstance(citation, dict) else None
        needed = CITATIONS.get(kind) if isinstance(kind, str) else None
        if needed is None or not needed <= citation.keys():
            facts.add("citation-shape", f"{path}citations.{index}", "not a citation")


def _thinking(facts: Facts, block: dict[str, Any], path: str, ways: Ways) -> None:
    if "thinking" in block and not isinstance(block["thinking"], str):
        facts.add("thinking-content", "thinking", "each thinking block must contain thinking")
    signature = block.get("signature")
    if "signature" in block and not (isinstance(signature, str) and signature):
        facts.add("thinking-signature", "signature", "Invalid `signature` in `thinking` block")


def _redacted(facts: Facts, block: dict[str, Any], path: str, ways: Ways) -> None:
    data = block.get("data")
    if "data" in block and not (isinstance(data, str) and data):
        facts.add("thinking-content", "data", "Input should be a valid string")


def _call(facts: Facts, block: dict[str, Any], path: str, ways: Ways) -> None:
    value = block.get("id")
    if "id" in block:
        server = facts.type == "server_tool_use"
        pattern = _SERVER_ID if server else _ID
        if not (isinstance(value, str) and pattern.fullmatch(value)):
            rule = "server-tool-id" if server else "tool-id"
            facts.add(rule, "id", f"String should match pattern '^{pattern.pattern}$'")
        elif ways.bedrock and len(value) > 64:
            facts.add("bedrock-id-length", "id", "String should have at most 64 characters")
    name = block.get("name")
    if "name" in block:
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            facts.add("tool-use-name", "name", f"String should match pattern '^{_NAME.pattern}$'")
        elif facts.type == "server_tool_use" and name not in SERVER_RESULTS:
            facts.add("tool-use-name", "name", f"no server tool is called {name}")
    if "input" in block and not isinstance(block["input"], dict):
        facts.add("tool-input", "input", "Input should be a valid dictionary")
    if "server_name" in block:
        _string(facts, block, "server_name", "", empty=False)
    caller = block.get("caller")
    if caller is not None and not (isinstance(caller, dict) and isinstance(caller.get("type"), str)):
        facts.add("block-field-type", "caller", "Input should be an object with a type")


def _tool_result(facts: Facts, block: dict[str, Any], path: str, ways: Ways) -> None:
    _answers(facts, block)
    if "is_error" in block and not isinstance(block["is_error"], bool):
        facts.add("block-field-type", "is_error", "Input should be a valid boolean")
    if "content" not in block or isinstance(block["content"], str):
        return
    content = block["content"]
    if not isinstance(content, list):
        facts.add("tool-result-content", "content", "Input should be a valid list")
        return
    if not content:
        facts.add("tool-result-content", "content", "an empty list")
    for index, item in enumerate(content):
        below = f"content.{index}."
        kind = item.get("type") if isinstance(item, dict) else None
        shape = RESULT_BLOCKS.get(kind) if isinstance(kind, str) else None
        if shape is None:
            facts.add("block-unknown", below + "type", f"{kind!r} does not match any of the expected tags")
            continue
        if block.get("is_error") is True and kind != "text":
            facts.add("tool-result-error-content", below + "type", 'all content must be type "text"')
        nested(facts, item, shape, below, ways)
        if item.get("cache_control") is not None:
            facts.add("cache-nested", below + "cache_control", "place it directly on `tool_result`")


def nested(facts: Facts, item: dict[str, Any], shape: Shape, path: str, ways: Ways) -> None:
    """A block inside a block."""
    _fields(facts, item, shape, path)
    note_mark(facts, item, path)
    own = _OWN.get(item["type"])
    if own is not None:
        own(facts, item, path, ways)


def _answers(facts: Facts, block: dict[str, Any]) -> None:
    if "tool_use_id" in block:
        value = block["tool_use_id"]
        if not (isinstance(value, str) and _ID.fullmatch(value)):
            facts.add("tool-id", "tool_use_id", f"String should match pattern '^{_ID.pattern}$'")


def _reference(facts: Facts, block: dict[str, Any], path: str, ways: Ways) -> None:
    name = _string(facts, block, "tool_name", path, empty=False)
    if name:
        facts.references.append((f"{path}tool_name", name))


def _search_result(facts: Facts, block: dict[str, Any], path: str, ways: Ways) -> None:
    _string(facts, block, "source", path, empty=False)
    _string(facts, block, "title", path, empty=False)
    content = block.get("content")
    if "content" not in block:
        return
    if not isinstance(content, list) or not content:
        facts.add("block-field-type", f"{path}content", "Input should be a non-empty list")
        return
    _texts(facts, content, f"{path}content.", ways)


def _texts(facts: Facts, content: list[Any], path: str, ways: Ways) -> None:
    for index, item in enumerate(content):
        if not (isinstance(item, dict) and item.get("type") == "text"):
            facts.add("block-unknown", f"{path}{index}", "Input should be a text block")
        else:
            nested(facts, item, BLOCKS["text"], f"{path}{index}.", ways)


_WEB_RESULT = frozenset({"type", "title", "url", "encrypted_content"})


def _server_answer(facts: Facts, block: dict[str, Any], path: str, ways: Ways) -> None:
    _answers(facts, block)
    content = block.get("content")
    kind = facts.type
    if "content" not in block:
        return
    if kind == "mcp_tool_result":
        if isinstance(content, list):
            _texts(facts, content, "content.", ways)
        elif not isinstance(content, str):
            facts.add("block-field-type", "content", "Input should be a string or a list")
        if "is_error" in block and not isinstance(block["is_error"], bool):
            facts.add("block-field-type", "is_error", "Input should be a valid boolean")
    elif kind == "web_search_tool_result" and isinstance(content, list):
        for index, item in enumerate(content):
            if not (isinstance(item, dict) and item.get("type") == "web_search_result" and item.keys() >= _WEB_RESULT):
                facts.add("block-field-type", f"content.{index}", "not a web_search_result")
    elif not (isinstance(content, dict) and isinstance(content.get("type"), str)):
        facts.add("block-field-type", "content", "Input should be an object with a type")
    elif kind == "tool_search_tool_result" and isinstance(content.get("tool_references"), list):
        for index, item in enumerate(content["tool_references"]):
            if isinstance(item, dict):
                _reference(facts, item, f"content.tool_references.{index}.", ways)


def _upload(facts: Facts, block: dict[str, Any], path: str, ways: Ways) -> None:
    _string(facts, block, "file_id", path, empty=False)


def _compaction(facts: Facts, block: dict[str, Any], path: str, ways: Ways) -> None:
    if block.get("content") is not None:
        _string(facts, block, "content", path)


def _tool_change(facts: Facts, block: dict[str, Any], path: str, ways: Ways) -> None:
    tool = block.get("tool")
    if "tool" not in block:
        return
    name = (tool.get("name") or tool.get("tool_name")) if isinstance(tool, dict) else None
    if not isinstance(name, str):
        facts.add("block-field-type", "tool", "Input should be a tool_reference")
    else:
        facts.references.append(("tool", name))


_OWN: dict[str, Any] = {
    "text": _text,
    "image": note_image,
    "document": note_document,
    "search_result": _search_result,
    "tool_result": _tool_result,
    "tool_reference": _reference,
    "thinking": _thinking,
    "redacted_thinking": _redacted,
    "tool_use": _call,
    "server_tool_use": _call,
    "mcp_tool_use": _call,
    "container_upload": _upload,
    "compaction": _compaction,
    "tool_addition": _tool_change,
    "tool_removal": _tool_change,
    "mcp_tool_result": _server_answer,
    **{kind: _server_answer for kinds in SERVER_RESULTS.values() for kind in kinds},
}
