"""What the API takes of images and documents: one table, replaceable (WIRE.md §4, strip)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from turnstream.operators.normalize.models import has_long_context

__all__ = ["Dialect", "MediaLimits", "limits_for"]

Dialect = Literal["anthropic", "bedrock"]
"""Whose rules a request must meet: the Messages API's own, or Bedrock's Converse."""

_IMAGE_TYPES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})


@dataclass(frozen=True)
class MediaLimits:
    """The caps on media in one request; ``dataclasses.replace`` makes a table of your own.

    Attributes:
        image_types: media types of images. API error text: "media_type: Input should be 'image/jpeg', 'image/png',
            'image/gif' or 'image/webp'".
        image_pixels: the longest side of an image. Vision guide, "Before you upload": 8000 x 8000 px; error text
            "At least one of the image dimensions exceed max allowed size: 8000 pixels" (anthropics/claude-code#4778).
        many_images: a request with more images than this is a many-image request. Vision guide: more than 20.
        many_image_pixels: the longest side of an image in such a request. Vision guide and error text "… for
            many-image requests: 2000 pixels" (anthropics/claude-code#14412, #52220).
        images: images a request may hold. Vision guide: 100 with a 200k-token context window, 600 otherwise.
        image_base64_chars: length of an image's base64. Error text "image exceeds 5 MB maximum: 5327908 bytes >
            5242880 bytes" (gptme/gptme#185); whether raw or base64 is measured isn't documented, so the longer.
        pdf_pages: pages of all PDFs in a request. Error text "A maximum of 100 PDF pages may be provided."
            (anthropics/claude-code#16136); 600 with a longer context window.
        request_bytes: size of the request's JSON. API overview, request size limits: 32 MB for the Messages API (413
            request_too_large); taken as 32 x 10^6.
        reserved_bytes: what ``system``, ``tools`` and the rest of the body may take of that; ours.
    """

    image_types: frozenset[str] = _IMAGE_TYPES
    image_pixels: int = 8000
    many_images: int = 20
    many_image_pixels: int = 2000
    images: int = 100
    image_base64_chars: int = 5 * 1024 * 1024
    pdf_pages: int = 100
    request_bytes: int = 32_000_000
    reserved_bytes: int = 1_000_000


_STANDARD: Final = MediaLimits()
_LONG: Final = MediaLimits(images=600, pdf_pages=600)
# Amazon Bedrock user guide, "Anthropic Claude Messages API: request and response": 20 MB of payload;
# "API restrictions": 100 pages of PDF.
_BEDROCK: Final = MediaLimits(request_bytes=20_000_000)


def limits_for(model: str | None = None, dialect: Dialect = "anthropic") -> MediaLimits:
    """The table for a model and a dialect; of an unknown model the stricter figures."""
    if dialect == "bedrock":
        return _BEDROCK
    return _LONG if has_long_context(model) else _STANDARD
