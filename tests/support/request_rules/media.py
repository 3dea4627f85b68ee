"""What images and PDFs are, from their bytes: type, dimensions, pages. Results are cached by the data string."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from functools import lru_cache
from typing import NamedTuple

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})

_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_XREF = re.compile(rb"startxref\s+\d+\s+%%EOF")
_NO_SIZE = frozenset({0xC4, 0xC8, 0xCC})


class Image(NamedTuple):
    """``problem`` is a word, or None for an image of ``width`` by ``height`` pixels."""

    problem: str | None
    media_type: str | None = None
    width: int = 0
    height: int = 0


class Pdf(NamedTuple):
    """``problem`` is a word, or None; ``pages`` is 0 where they can't be seen (compressed objects)."""

    problem: str | None
    pages: int = 0


def _decode(data: str) -> bytes | None:
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw or None


@lru_cache(maxsize=256)
def probe_image(data: str) -> Image:
    """Look at a base64 image."""
    raw = _decode(data)
    if raw is None:
        return Image("base64")
    kind, size = _size(raw)
    if size is None or 0 in size:
        return Image("broken", kind)
    return Image(None, kind, *size)


def _size(raw: bytes) -> tuple[str | None, tuple[int, int] | None]:
    if raw[:8] == b"\x89PNG\r\n\x1a\n":
        return "image/png", struct.unpack(">II", raw[16:24]) if raw[12:16] == b"IHDR" and len(raw) > 32 else None
    if raw[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif", struct.unpack("<HH", raw[6:10]) if len(raw) > 12 else None
    if raw[:3] == b"\xff\xd8\xff":
        return "image/jpeg", _jpeg_size(raw)
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return "image/webp", _webp_size(raw)
    return None, None


def _jpeg_size(raw: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 < len(raw) and raw[at] == 0xFF:
        marker = raw[at + 1]
        if marker == 0xFF:
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in _NO_SIZE:
            height, width = struct.unpack(">HH", raw[at + 5 : at + 9])
            return width, height
        else:
            at += 2 + int.from_bytes(raw[at + 2 : at + 4])
    return None


def _webp_size(raw: bytes) -> tuple[int, int] | None:
    form = raw[12:16]
    if len(raw) < 30:
        return None
    if form == b"VP8X":
        return int.from_bytes(raw[24:27], "little") + 1, int.from_bytes(raw[27:30], "little") + 1
    if form == b"VP8 ":
        width, height = struct.unpack("<HH", raw[26:30])
        return width & 0x3FFF, height & 0x3FFF
    if form == b"VP8L":
        bits = int.from_bytes(raw[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return None


@lru_cache(maxsize=64)
def probe_pdf(data: str) -> Pdf:
    """Look at a base64 PDF: its header, its end, its page objects."""
    raw = _decode(data)
    if raw is None:
        return Pdf("base64")
    if raw[:5] != b"%PDF-" or not _XREF.search(raw, max(0, len(raw) - 4096)):
        return Pdf("broken")
    return Pdf(None, len(_PAGE.findall(raw)))
