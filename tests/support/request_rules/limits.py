"""The figures, replaceable. Where sources differ, the smaller one."""

from __future__ import annotations

from dataclasses import dataclass

from request_rules.models import Model


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes, dimensions in pixels.

    Sources: the vendor's vision page (8000 px; 2000 px with more than 20 images; 100 images, 600 on
    million-token models), its PDF page (100 or 600 pages), the API overview (32 MB a request; 20 MB on
    Bedrock), the API's error text (5 MB an image, ``> 5242880 bytes``; base64 length is the stricter reading).
    """

    request_bytes: int = 32_000_000
    image_base64_bytes: int = 5 * 1024 * 1024
    image_pixels: int = 8000
    many_images: int = 20
    many_image_pixels: int = 2000
    images: int = 100
    pdf_pages: int = 100
    cache_marks: int = 4
    strict_tools: int = 20


def limits_for(model: Model, dialect: str = "anthropic") -> Limits:
    """The limits of a model on a back end; an unknown model gets the smaller figures."""
    many = 600 if model.long_context else 100
    return Limits(images=many, pdf_pages=many, request_bytes=20_000_000 if dialect == "bedrock" else 32_000_000)
