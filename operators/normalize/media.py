"""What an image or a PDF is, by its bytes (WIRE.md §4, strip): no decoding of pixels, no dependency.

Verdicts are kept by the text's hash and length (Python keeps a string's hash with it), because the same history is
normalized before every request.
"""

from __future__ import annotations

import binascii
import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

__all__ = ["Image", "Pdf", "probe_image", "probe_pdf"]


@dataclass(frozen=True)
class Image:
    """What an image is.

    Attributes:
        media_type: ``image/png``, ``image/jpeg``, ``image/gif`` or ``image/webp``.
        width: in pixels.
        height: in pixels.
    """

    media_type: str
    width: int
    height: int


@dataclass(frozen=True)
class Pdf:
    """What a PDF is.

    Attributes:
        pages: how many pages it has, 0 where its bytes don't say.
    """

    pages: int


_Verdict = TypeVar("_Verdict", Image, Pdf)
_KEPT: Final = 1024
_images: dict[tuple[int, int], Image | None] = {}
_pdfs: dict[tuple[int, int], Pdf | None] = {}


def probe_image(data: str) -> Image | None:
    """Read type and dimensions of a base64 image; None if it isn't base64, or no image of the four types."""
    return _remembered(_images, data, _image)


def probe_pdf(data: str) -> Pdf | None:
    """Look at a base64 PDF; None if it isn't base64, doesn't start as a PDF or doesn't end as one."""
    return _remembered(_pdfs, data, _pdf)


def _remembered(
    known: dict[tuple[int, int], _Verdict | None], data: str, probe: Callable[[bytes], _Verdict | None]
) -> _Verdict | None:
    key = (hash(data), len(data))
    try:
        return known[key]
    except KeyError:
        pass
    try:
        # Strict: white space, a data: prefix and broken padding are refused, as the API does.
        raw = binascii.a2b_base64(data, strict_mode=True)
    except (binascii.Error, ValueError):
        verdict = None
    else:
        verdict = probe(raw) if raw else None
    if len(known) >= _KEPT:
        known.clear()
    known[key] = verdict
    return verdict


def _image(raw: bytes) -> Image | None:
    kind, size = "", None
    if raw.startswith(b"\x89PNG\r\n\x1a\n"):
        kind, size = "image/png", _png(raw)
    elif raw.startswith(b"\xff\xd8\xff"):
        kind, size = "image/jpeg", _jpeg(raw)
    elif raw.startswith((b"GIF87a", b"GIF89a")):
        kind, size = "image/gif", struct.unpack_from("<HH", raw, 6) if len(raw) > 13 else None
    elif raw.startswith(b"RIFF") and raw[8:12] == b"WEBP":
        kind, size = "image/webp", _webp(raw)
    if size is None or not size[0] or not size[1]:
        return None
    return Image(kind, size[0], size[1])


def _png(raw: bytes) -> tuple[int, int] | None:
    # Signature, then the IHDR chunk whole: length, name, 13 bytes, checksum.
    if len(raw) <= 33 or raw[12:16] != b"IHDR":
        return None
    width, height = struct.unpack_from(">II", raw, 16)
    return width, height


def _jpeg(raw: bytes) -> tuple[int, int] | None:
    at, end = 2, len(raw)
    while at + 9 < end and raw[at] == 0xFF:
        marker = raw[at + 1]
        if marker == 0xFF:  # filler
            at += 1
            continue
        # SOF0-15 but not DHT, JPG and DAC, which share the range.
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", raw, at + 5)
            return width, height
        length = int.from_bytes(raw[at + 2 : at + 4])
        if length < 2:
            return None
        at += 2 + length
    return None


def _webp(raw: bytes) -> tuple[int, int] | None:
    if len(raw) < 30:
        return None
    form = raw[12:16]
    if form == b"VP8X":
        return int.from_bytes(raw[24:27], "little") + 1, int.from_bytes(raw[27:30], "little") + 1
    if form == b"VP8L":
        bits = int.from_bytes(raw[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if form == b"VP8 ":
        width, height = struct.unpack_from("<HH", raw, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


_PAGE: Final = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
# Digits up to a number that no document comes to: int() refuses more than 4,300 of them.
_COUNT: Final = re.compile(
    rb"/Type\s*/Pages\b[^>]{0,400}?/Count\s+(\d{1,9})|/Count\s+(\d{1,9})\d*[^>]{0,400}?/Type\s*/Pages\b"
)
_OBJECT_STREAM: Final = re.compile(rb"/Type\s*/ObjStm\b.{0,400}?stream\r?\n", re.DOTALL)
_TAIL: Final = re.compile(rb"startxref\s+\d+\s+%%EOF")
_TAIL_BYTES: Final = 4096
_UNPACKED: Final = 4 * 1024 * 1024
_PACKED: Final = 1024 * 1024
"""Of each object stream so much is looked at: zlib copies what follows a stream's end."""


def _pdf(raw: bytes) -> Pdf | None:
    if not raw.startswith(b"%PDF-") or _TAIL.search(raw, max(0, len(raw) - _TAIL_BYTES)) is None:
        return None
    pages = _pages(raw)
    if not pages:
        # Newer files keep their page objects in compressed streams.
        for found in _OBJECT_STREAM.finditer(raw):
            try:
                packed = raw[found.end() : found.end() + _PACKED]
                pages += _pages(zlib.decompressobj().decompress(packed, _UNPACKED))
            except zlib.error:
                continue
    return Pdf(pages)


def _pages(raw: bytes) -> int:
    counted = max((int(found[1] or found[2]) for found in _COUNT.finditer(raw)), default=0)
    return max(counted, len(_PAGE.findall(raw)))
