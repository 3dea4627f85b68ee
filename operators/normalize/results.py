"""What stands in a tool result: a string, or texts, images, documents, search results, references (WIRE.md §4).

Tools hand on all sorts of things, and the API refuses most: an object, an empty list, a blank text, a block of
another kind, an image in an error. What such content says is kept as text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnstream.operators.normalize.fields import INNER, only
from turnstream.operators.normalize.limits import MediaLimits
from turnstream.operators.normalize.references import is_known
from turnstream.operators.normalize.sources import clean_document, clean_image, clean_search_result
from turnstream.operators.normalize.texts import NO_CONTENT, as_text, inner_text, is_blank, text_block

__all__ = ["clean_result"]

Block = dict[str, Any]
Say = Callable[[str, str], None]


def clean_result(
    block: Block, limits: MediaLimits, names: frozenset[str] | None, say: Say, strip: Say
) -> tuple[Block, list[Block]]:
    """A tool result that the API takes, and what had to move out of it.

    Args:
        block: the tool_result.
        limits: what media the API takes.
        names: names of the declared tools, None if unknown.
        say: takes what was done and why.
        strip: the same, for what was done to media.

    Returns:
        The block (itself if nothing was wrong), and blocks to be put after the results: an error's images.
    """
    if "is_error" in block and block["is_error"].__class__ is not bool:
        say("dropped a tool result's is_error", "it isn't true or false")
        block = {key: value for key, value in block.items() if key != "is_error"}
    if "content" not in block:
        return block, []
    content = block["content"]
    if content.__class__ is str:
        if not is_blank(content):
            return block, []
        say("filled a tool result", "its content is blank")
        return {**block, "content": NO_CONTENT}, []
    if content is None:
        say("took the content off a tool result", "it is null")
        return {key: value for key, value in block.items() if key != "content"}, []
    if not isinstance(content, list):
        say("made a tool result's content a list", "it must be a string or a list of blocks")
        content = [content]
    moved: list[Block] = []
    inner: list[Block] = []
    mark = None
    for item in content:
        if mark is None and isinstance(item, dict):
            mark = item.get("cache_control")
        clean = _item(item, limits, names, say, strip)
        if clean is None:
            continue
        if block.get("is_error") and clean["type"] != "text":
            said = inner_text(clean)
            if clean["type"] in ("image", "document"):
                moved.append(clean)
                said = f"[{clean['type']} below]"
            say(f"moved the {clean['type']} out of an error", "an error's content is text")
            if said:
                inner.append(text_block(said))
        else:
            inner.append(clean)
    if not inner:
        say("filled a tool result", "its content is empty")
        inner.append(text_block(NO_CONTENT))
    if mark is not None and "cache_control" not in block:
        say("moved a cache mark to the tool result", "nothing inside it may have one")
        block = {**block, "cache_control": mark}
    if len(inner) == len(content) and all(a is b for a, b in zip(inner, content, strict=True)):
        return (block if content is block["content"] else {**block, "content": content}), moved
    return {**block, "content": inner}, moved


def _item(item: Any, limits: MediaLimits, names: frozenset[str] | None, say: Say, strip: Say) -> Block | None:
    kind = item.get("type") if isinstance(item, dict) else None
    known = INNER.get(kind) if isinstance(kind, str) else None
    if known is None:
        said = as_text(item) if kind is None and not _says(item) else inner_text(item)
        if is_blank(said):
            if item is not None and kind is not None:
                say(f"replaced a {kind} block in a tool result by a text", "the API doesn't take it there")
                return text_block(f"[{kind} left out]")
            say("dropped an item of a tool result", "it says nothing")
            return None
        say("made a block in a tool result a text", "the API doesn't take it there")
        return text_block(said)
    given: Block = item
    block = only(given, known.fields)
    if block is not given:
        say(f"dropped fields of a {kind} block in a tool result", "the API refuses them there")
    if kind == "text":
        text = block.get("text")
        if isinstance(text, str) and not is_blank(text):
            if "citations" not in block:
                return block
            say("dropped citations in a tool result", "they are the model's")
            return text_block(text)
        say("dropped a text in a tool result", "it is blank or no string")
        return None
    if kind == "image":
        return clean_image(block, limits, strip)
    if kind == "document":
        return clean_document(block, limits, strip)
    if kind == "search_result":
        return clean_search_result(block, strip)
    if kind == "tool_reference":
        name = block.get("tool_name")
        if isinstance(name, str) and not is_blank(name) and is_known(name, names):
            return block
        say(f"dropped a reference to the tool {name!r}", "the request doesn't declare it")
        return None
    return block


def _says(item: Any) -> bool:
    """Whether an item without a type is something with a text in it rather than a value of its own."""
    return isinstance(item, dict) and isinstance(item.get("text"), str)
