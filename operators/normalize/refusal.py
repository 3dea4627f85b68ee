"""What a refused request's error text says about the media in it (WIRE.md §4, strip; FAULTS.md 70-72)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["DOCUMENT", "IMAGE", "Refusal", "parse_refusal"]

IMAGE: Final = "image"
DOCUMENT: Final = "document"

# messages.58.content.2.image.source.base64: … · messages.168.content.0.tool_result.content.1.image.source.base64: …
_PLACE: Final = re.compile(
    r"messages\.(\d{1,9})\.content\.(\d{1,9})(?:(?:\.tool_result)?\.content\.(\d{1,9}))?((?:\.[A-Za-z_0-9]+)*)"
)
_TOO_LARGE: Final = re.compile(
    r"request_too_large|request (?:exceeds the maximum|is too large|too large|entity too large)|payload too large",
    re.IGNORECASE,
)
_IMAGE: Final = re.compile(
    r"image[^.]{0,120}?(?:exceed|dimension|cannot be empty|appears to be|does not match|unsupported|not supported"
    r"|too large|too many|invalid|corrupt|media type)|(?:could not|unable to|failed to) (?:process|download|resize"
    r"|decode)[^.]{0,40}image|too many images|image[^.]{0,40}(?:could not|couldn't|can't) be",
    re.IGNORECASE,
)
_PDF: Final = re.compile(
    r"\bPDFs?\b[^.]{0,120}?(?:not valid|invalid|password|encrypted|exceed|corrupt|too large|pages|could not|couldn't)"
    r"|(?:could not|unable to|failed to) (?:process|download|read)[^.]{0,40}\b(?:PDF|document)\b"
    r"|maximum of \d+ PDF pages|document (?:is|was) (?:empty|invalid|too large)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Refusal:
    """What the API wouldn't take.

    Attributes:
        kinds: ``image``, ``document``, or both.
        targets: the blocks that the error names, as (message, block, block inside a tool_result or None); numbers
            of the request that was sent, so of a normalized list.
    """

    kinds: frozenset[str]
    targets: tuple[tuple[int, int, int | None], ...] = ()


def parse_refusal(text: str) -> Refusal | None:
    """Read a 400's or 413's error text: plain, or inside JSON or another program's wording.

    Returns:
        What to strip: images for an image error, documents for a PDF error, both where the request was too large;
        None if the error isn't about media.
    """
    kinds: set[str] = set()
    targets: list[tuple[int, int, int | None]] = []
    for found in _PLACE.finditer(text):
        path = found[4].split(".")
        kind = IMAGE if "image" in path else DOCUMENT if "pdf" in path or "document" in path else None
        if kind is not None:
            kinds.add(kind)
        targets.append((int(found[1]), int(found[2]), None if found[3] is None else int(found[3])))
    if _IMAGE.search(text):
        kinds.add(IMAGE)
    if _PDF.search(text):
        kinds.add(DOCUMENT)
    if not kinds and _TOO_LARGE.search(text):
        kinds = {IMAGE, DOCUMENT}
    return Refusal(frozenset(kinds), tuple(targets)) if kinds else None
