"""Images and documents one by one: mended where that loses nothing, else replaced by a text (WIRE.md §4, strip).

Mended: a ``data:`` prefix or white space in the base64, a media type that isn't that of the bytes, stray fields,
a text document under another media type. The rules over all media of a request are in
:mod:`turnstream.operators.normalize.strip`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, Final

from turnstream.operators.normalize.fields import INNER, only
from turnstream.operators.normalize.limits import MediaLimits
from turnstream.operators.normalize.media import probe_image, probe_pdf
from turnstream.operators.normalize.texts import inner_text, is_blank, stand_in, text_block

__all__ = ["clean_document", "clean_image", "clean_search_result"]

Block = dict[str, Any]
Say = Callable[[str, str], None]

_BASE64: Final = frozenset({"type", "media_type", "data"})
_NO_SOURCE: Final = "it has no source that the API takes"
PDF: Final = "application/pdf"


def clean_image(block: Block, limits: MediaLimits, say: Say) -> Block:
    """The image, mended if need be, or the text that stands in for it (FAULTS.md 70, 71)."""
    source: Any = block.get("source")
    kind = source.get("type") if isinstance(source, dict) else None
    if kind == "base64":
        mended, why = _image_source(source, limits)
        if mended is None:
            return _left_out("image", why, say)
        if mended is not source:
            say("mended the image's source", why)
            return {**block, "source": mended}
        return block
    return _by_reference(block, source, kind, "image", say)


def _image_source(source: Block, limits: MediaLimits) -> tuple[Block | None, str]:
    data = source.get("data")
    if not isinstance(data, str) or not data:
        return None, "it has no data"
    plain = _plain_base64(data)
    image = probe_image(plain)
    if image is None:
        return None, "its data is no JPEG, PNG, GIF or WebP image"
    if image.media_type not in limits.image_types:
        return None, f"{image.media_type} isn't taken"
    if len(plain) > limits.image_base64_chars:
        return None, f"it is larger than {limits.image_base64_chars} bytes of base64"
    if max(image.width, image.height) > limits.image_pixels:
        return None, f"it is wider or taller than {limits.image_pixels} pixels"
    if plain is data and source.get("media_type") == image.media_type and source.keys() == _BASE64:
        return source, ""
    why = "base64 must be plain, and the media type that of the bytes"
    return {"type": "base64", "media_type": image.media_type, "data": plain}, why


def _plain_base64(data: str) -> str:
    """The base64 without a data URL's prefix and without white space; the same string if it had neither."""
    if data.startswith("data:"):
        data = data.partition(",")[2]
    parts = data.split()
    return data if len(parts) == 1 and len(parts[0]) == len(data) else "".join(parts)


def _by_reference(block: Block, source: Any, kind: Any, what: str, say: Say) -> Block:
    """A block whose bytes are elsewhere: under a URL or an uploaded file's id."""
    key = {"url": "url", "file": "file_id"}.get(kind) if isinstance(kind, str) else None
    if key is None:
        return _left_out(what, _NO_SOURCE, say, block.get("title"))
    where = source.get(key)
    if not isinstance(where, str) or is_blank(where):
        return _left_out(what, f"its source has no {key}", say, block.get("title"))
    mended = only(source, frozenset({"type", key}))
    if mended is source:
        return block
    say(f"dropped stray fields of the {what}'s source", "the API refuses unknown fields")
    return {**block, "source": mended}


def clean_document(block: Block, limits: MediaLimits, say: Say) -> Block:
    """The document, mended if need be, or the text that stands in for it (FAULTS.md 72)."""
    source: Any = block.get("source")
    kind = source.get("type") if isinstance(source, dict) else None
    if kind == "base64":
        mended, why = _document_bytes(source)
    elif kind == "text":
        mended, why = _document_text(source)
    elif kind == "content":
        mended, why = _document_content(source, limits, say)
    else:
        return _named(_by_reference(block, source, kind, "document", say), say)
    if mended is None:
        return _left_out("document", why, say, block.get("title"))
    if mended is not source:
        say("mended the document's source", why)
        block = {**block, "source": mended}
    return _named(block, say)


def _document_bytes(source: Block) -> tuple[Block | None, str]:
    data = source.get("data")
    if not isinstance(data, str) or not data:
        return None, "it has no data"
    plain = _plain_base64(data)
    declared = source.get("media_type")
    if probe_pdf(plain) is not None:
        if plain is data and declared == PDF and source.keys() == _BASE64:
            return source, ""
        return {"type": "base64", "media_type": PDF, "data": plain}, "base64 must be plain and of the type it says"
    if isinstance(declared, str) and declared.startswith("text/"):
        try:
            text = base64.b64decode(plain, validate=True).decode()
        except (binascii.Error, ValueError):
            return None, "its data is no text"
        return _document_text({"type": "text", "data": text})
    return None, "its data is no PDF"


def _document_text(source: Block) -> tuple[Block | None, str]:
    text = source.get("data")
    if not isinstance(text, str) or is_blank(text):
        return None, "it has no text"
    if source.get("media_type") == "text/plain" and source.keys() == _BASE64:
        return source, ""
    return {"type": "text", "media_type": "text/plain", "data": text}, "a text's media type is text/plain"


def _document_content(source: Block, limits: MediaLimits, say: Say) -> tuple[Block | None, str]:
    content = source.get("content")
    if isinstance(content, str):
        if is_blank(content):
            return None, "it is empty"
        inner: Any = content
    elif isinstance(content, list):
        inner = [clean for item in content if (clean := _text_or_image(item, limits, say)) is not None]
        if not inner:
            return None, "it is empty"
        if len(inner) == len(content) and all(a is b for a, b in zip(inner, content, strict=True)):
            inner = content
    else:
        return None, _NO_SOURCE
    if inner is content and source.keys() == {"type", "content"}:
        return source, ""
    return {"type": "content", "content": inner}, "a document's content is texts and images"


def _text_or_image(item: Any, limits: MediaLimits, say: Say) -> Block | None:
    kind = item.get("type") if isinstance(item, dict) else None
    if kind == "image":
        return clean_image(only(item, INNER["image"].fields), limits, say)
    text = item.get("text") if kind == "text" else inner_text(item)
    if not isinstance(text, str) or is_blank(text):
        return None
    return only(item, frozenset({"type", "text"})) if kind == "text" else text_block(text)


def _named(block: Block, say: Say) -> Block:
    """The document without a title or context that is blank or no string, and with a proper citations switch."""
    drop: list[str] = [key for key in ("title", "context") if key in block and not _is_name(block[key])]
    citations = block.get("citations")
    if "citations" in block and not _is_switch(citations):
        drop.append("citations")
    if not drop:
        return block
    say(f"dropped the {block.get('type')}'s {', '.join(drop)}", "the value isn't one that the API takes")
    return {key: value for key, value in block.items() if key not in drop}


def _is_name(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not is_blank(value))


def _is_switch(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, dict) and value.keys() <= {"enabled"} and isinstance(value.get("enabled", False), bool)


def clean_search_result(block: Block, say: Say) -> Block | None:
    """The search result, or what it says as a text, or None if it says nothing."""
    content = block.get("content")
    items = content if isinstance(content, list) else [content]
    texts: list[Block] = []
    for item in items:
        if isinstance(item, dict) and item.get("type") == "text":
            if isinstance(item.get("text"), str) and not is_blank(item["text"]):
                texts.append(only(item, frozenset({"type", "text"})))
        elif said := inner_text(item):
            texts.append(text_block(said))
    source, title = block.get("source"), block.get("title")
    named = isinstance(source, str) and not is_blank(source) and isinstance(title, str) and not is_blank(title)
    if not texts or not named:
        said = "\n".join(
            [part for part in (title, source) if isinstance(part, str) and not is_blank(part)]
            + [text["text"] for text in texts]
        )
        say("made the search result a text", "it needs a source, a title and texts")
        return text_block(said) if said else None
    block = _named_switch(block, say)
    if len(texts) == len(items) and all(a is b for a, b in zip(texts, items, strict=True)):
        return block
    say("mended the search result's content", "it is texts that aren't blank")
    return {**block, "content": texts}


def _named_switch(block: Block, say: Say) -> Block:
    if "citations" not in block or (block["citations"] is not None and _is_switch(block["citations"])):
        return block
    say("dropped the search result's citations", "the value isn't one that the API takes")
    return {key: value for key, value in block.items() if key != "citations"}


def _left_out(what: str, why: str, say: Say, title: Any = None) -> Block:
    say(f"replaced the {what} by a text", why)
    return text_block(stand_in(what, why, title))
