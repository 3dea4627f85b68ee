"""Images and documents: where their bytes come from and whether they are what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from request_rules.facts import Facts
from request_rules.media import IMAGE_TYPES, probe_image, probe_pdf

if TYPE_CHECKING:
    from request_rules.blocks import Ways

_IMAGE_SOURCES = {"base64": {"media_type", "data"}, "url": {"url"}, "file": {"file_id"}}
_DOCUMENT_SOURCES = {
    "base64": {"media_type", "data"},
    "text": {"media_type", "data"},
    "content": {"content"},
    "url": {"url"},
    "file": {"file_id"},
}


def _source(facts: Facts, block: dict[str, Any], path: str, kinds: dict[str, set[str]]) -> dict[str, Any] | None:
    """The source if its shape is right."""
    if "source" not in block:
        return None
    source = block["source"]
    if not isinstance(source, dict):
        facts.add("source", f"{path}source", "Input should be an object")
        return None
    kind = source.get("type")
    fields = kinds.get(kind) if isinstance(kind, str) else None
    if fields is None:
        said = "Field required" if "type" not in source else f"{kind!r} does not match any of the expected tags"
        facts.add("source", f"{path}source.type", said)
        return None
    whole = True
    for name in sorted(fields):
        value = source.get(name)
        if not (isinstance(value, str) or (name == "content" and isinstance(value, list))):
            facts.add("source", f"{path}source.{name}", "Field required")
            whole = False
        elif not value and name in ("url", "file_id"):
            facts.add("source", f"{path}source.{name}", "String should have at least 1 character")
    for name in sorted(map(str, source.keys() - fields - {"type"})):
        facts.add("source", f"{path}source.{name}", "Extra inputs are not permitted")
    return source if whole else None


def note_image(facts: Facts, block: dict[str, Any], path: str, ways: Ways) -> None:
    """An image block."""
    width = height = 0
    source = _source(facts, block, path, _IMAGE_SOURCES)
    if source is not None and source["type"] == "base64":
        below = f"{path}source."
        declared = source["media_type"]
        if declared not in IMAGE_TYPES:
            facts.add("media-type", below + "media_type", f"{declared!r} is none of the four image types")
        data = source["data"]
        if len(data) > ways.image_bytes:
            facts.add("image-too-big", below + "data", f"{len(data)} bytes > {ways.image_bytes} bytes")
        found = probe_image(data)
        if found.problem == "base64":
            facts.add("media-base64", below + "data", "invalid base64 data")
        elif found.problem is not None:
            facts.add("image-broken", below + "data", "Could not process image")
        elif found.media_type != declared and declared in IMAGE_TYPES and ways.media_types:
            facts.add("media-type-mismatch", below + "media_type", f"appears to be a {found.media_type} image")
        width, height = found.width, found.height
        if max(width, height) > ways.image_pixels:
            facts.add("image-pixels", below + "data", f"{width}x{height} exceeds {ways.image_pixels} pixels")
    facts.images.append((path, width, height))


def note_document(facts: Facts, block: dict[str, Any], path: str, ways: Ways) -> None:
    """A document block."""
    for name in ("title", "context"):
        if block.get(name) is not None and not isinstance(block[name], str):
            facts.add("block-field-type", f"{path}{name}", "Input should be a valid string")
    citations = block.get("citations")
    if citations is not None and not isinstance(citations, dict):
        facts.add("block-field-type", f"{path}citations", "Input should be an object")
        citations = None
    facts.citing.append(bool(citations and citations.get("enabled")))
    source = _source(facts, block, path, _DOCUMENT_SOURCES)
    if source is None:
        return
    below = f"{path}source."
    kind = source["type"]
    if kind == "text" and source["media_type"] != "text/plain":
        facts.add("media-type", below + "media_type", "Input should be 'text/plain'")
    elif kind == "content" and isinstance(source["content"], list):
        _inside(facts, source["content"], below + "content.", ways)
    elif kind == "base64":
        if source["media_type"] != "application/pdf":
            facts.add("media-type", below + "media_type", "Input should be 'application/pdf'")
            return
        found = probe_pdf(source["data"])
        if found.problem == "base64":
            facts.add("media-base64", below + "data", "invalid base64 data")
        elif found.problem is not None:
            facts.add("pdf-broken", below + "data", "The PDF specified was not valid.")
        elif found.pages > ways.pdf_pages:
            facts.add("pdf-pages", below + "data", f"A maximum of {ways.pdf_pages} PDF pages may be provided.")


def _inside(facts: Facts, content: list[Any], path: str, ways: Ways) -> None:
    from request_rules.blocks import nested  # the two modules walk through each other
    from request_rules.shapes import BLOCKS

    for index, item in enumerate(content):
        kind = item.get("type") if isinstance(item, dict) else None
        if kind not in ("text", "image"):
            facts.add("block-unknown", f"{path}{index}", "Input should be a text or image block")
        else:
            nested(facts, item, BLOCKS[kind], f"{path}{index}.", ways)
