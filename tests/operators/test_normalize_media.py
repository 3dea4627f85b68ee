"""What images and PDFs are by their bytes, what error texts say about them, what models' names say."""

from __future__ import annotations

import base64
import dataclasses
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from requesting import pdf, png

from turnstream.operators.normalize import MediaLimits, Refusal, limits_for, parse_refusal
from turnstream.operators.normalize.media import Image, probe_image, probe_pdf
from turnstream.operators.normalize.models import (
    has_long_context,
    is_adaptive,
    model_key,
    model_version,
    refuses_prefill,
    takes_system_role,
)


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def jpeg(width: int, height: int, before: bytes = b"") -> str:
    frame = b"\xff\xc0" + struct.pack(">HBHH", 11, 8, height, width) + b"\x01\x01\x11\x00"
    return b64(b"\xff\xd8\xff\xe0\x00\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0" + before + frame + b"\xff\xd9" + bytes(16))


def gif(width: int, height: int) -> str:
    return b64(b"GIF89a" + struct.pack("<HH", width, height) + bytes(8))


def webp(form: bytes, rest: bytes) -> str:
    body = b"WEBP" + form + struct.pack("<I", len(rest)) + rest
    return b64(b"RIFF" + struct.pack("<I", len(body)) + body)


LOSSY = b"\x30\x01\x00\x9d\x01\x2a" + struct.pack("<HH", 640, 480) + bytes(8)
LOSSLESS = b"\x2f" + struct.pack("<I", (640 - 1) | (480 - 1) << 14) + bytes(8)
EXTENDED = bytes(4) + (639).to_bytes(3, "little") + (479).to_bytes(3, "little") + bytes(4)


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (png(640, 480), "image/png"),
        (jpeg(640, 480), "image/jpeg"),
        (jpeg(640, 480, before=b"\xff\xdb\x00\x05abc\xff\xff\xc4\x00\x03x"), "image/jpeg"),
        (gif(640, 480), "image/gif"),
        (webp(b"VP8 ", LOSSY), "image/webp"),
        (webp(b"VP8L", LOSSLESS), "image/webp"),
        (webp(b"VP8X", EXTENDED), "image/webp"),
    ],
    ids=["png", "jpeg", "jpeg with tables and filler", "gif", "webp lossy", "webp lossless", "webp extended"],
)
def test_dimensions(data: str, media_type: str) -> None:
    assert probe_image(data) == Image(media_type, 640, 480)
    assert probe_image(data) == Image(media_type, 640, 480)  # remembered


@pytest.mark.parametrize(
    "data",
    [
        "",
        "not base64!!",
        "data:image/png;base64," + png(1, 1),
        png(1, 1)[:-1],
        png(1, 1)[:20] + "\n" + png(1, 1)[20:],
        b64(b"no image"),
        b64(b"\x89PNG\r\n\x1a\n"),
        b64(b"\xff\xd8\xff\xe0\x00\x01" + bytes(32)),
        b64(b"\xff\xd8\xff"),
        b64(b"RIFF\0\0\0\0WEBPVP8 "),
        b64(b"RIFF\0\0\0\0WEBPNONE" + bytes(32)),
        gif(0, 5),
        "\ud800",
        "é",
    ],
)
def test_what_is_no_image(data: str) -> None:
    assert probe_image(data) is None


def test_pages() -> None:
    assert [getattr(probe_pdf(pdf(pages)), "pages", None) for pages in (1, 3, 101)] == [1, 3, 101]


def test_pages_in_compressed_objects() -> None:
    packed = zlib.compress(b"1 0 2 30 <</Type/Pages/Kids[]/Count 7>><</Type/Page>>")
    raw = b"%PDF-1.5\n1 0 obj<</Type/ObjStm/N 2/Filter/FlateDecode>>stream\n" + packed + b"\nendstream endobj\n"
    found = probe_pdf(b64(raw + b"startxref\n9\n%%EOF\n"))
    assert found is not None
    assert found.pages == 7


@pytest.mark.parametrize("form", ["/Type/Pages/Count %s", "/Count %s/Type/Pages"])
def test_a_number_of_pages_with_more_digits_than_int_takes(form: str) -> None:
    raw = b"%PDF-1.5\n1 0 obj<<" + (form % ("9" * 5000)).encode() + b">>\nstartxref\n9\n%%EOF\n"
    found = probe_pdf(b64(raw))
    assert found is not None
    assert found.pages > 600  # more than any request takes


def test_pages_unknown() -> None:
    found = probe_pdf(b64(b"%PDF-1.5\n<</Type/ObjStm>>stream\nbroken\nstartxref\n9\n%%EOF"))
    assert found is not None
    assert found.pages == 0


@pytest.mark.parametrize("raw", [b"", b"%PDF-1.7\n", b"<html>%PDF-", b"\n" + base64.b64decode(pdf(1))])
def test_what_is_no_pdf(raw: bytes) -> None:
    assert probe_pdf(b64(raw)) is None


@given(st.binary(max_size=80))
def test_probing_never_raises(raw: bytes) -> None:
    for head in (b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"RIFF0000WEBPVP8X", b"%PDF-"):
        probe_image(b64(head + raw))
        probe_pdf(b64(head + raw))


# -- error texts ------------------------------------------------------------------------------------------

IMAGES, PAPERS, BOTH = frozenset({"image"}), frozenset({"document"}), frozenset({"image", "document"})
PIXELS = "At least one of the image dimensions exceed max allowed size"
REFUSALS = {
    # gptme/gptme#185
    "messages.58.content.2.image.source.base64: image exceeds 5 MB maximum: 6500712 bytes > 5242880 bytes": (
        IMAGES,
        ((58, 2, None),),
    ),
    # earendil-works/pi#424
    "messages.168.content.0.tool_result.content.1.image.source.base64: image exceeds 5 MB maximum": (
        IMAGES,
        ((168, 0, 1),),
    ),
    # anthropics/claude-code#52220, #4778
    f"messages.88.content.1.image.source.base64.data: {PIXELS} for many-image requests: 2000 pixels": (
        IMAGES,
        ((88, 1, None),),
    ),
    'API Error: 400 {"type":"error","error":{"type":"invalid_request_error","message":"'
    f'messages.7.content.2.image.source.base64.data: {PIXELS}: 8000 pixels"}}}}': (IMAGES, ((7, 2, None),)),
    "Could not process image": (IMAGES, ()),
    "image cannot be empty": (IMAGES, ()),
    "The image was specified using the image/jpeg media type, but the image appears to be a image/png image": (
        IMAGES,
        (),
    ),
    # anthropics/claude-code#16136
    "A maximum of 100 PDF pages may be provided.": (PAPERS, ()),
    "The PDF specified was not valid.": (PAPERS, ()),
    "The PDF specified is password protected.": (PAPERS, ()),
    "messages.0.content.0.pdf.source.base64.data: The PDF specified was not valid.": (PAPERS, ((0, 0, None),)),
    "Request exceeds the maximum size": (BOTH, ()),
    '{"type":"error","error":{"type":"request_too_large","message":"Request too large"}}': (BOTH, ()),
}


@pytest.mark.parametrize("text", REFUSALS)
def test_what_an_error_refuses(text: str) -> None:
    kinds, targets = REFUSALS[text]
    assert parse_refusal(text) == Refusal(kinds, targets)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "prompt is too long: 211000 tokens > 200000 maximum",
        "messages.1.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1",
        "messages: text content blocks must be non-empty",
        "Overloaded",
        "Imagine that",
        "messages.2.content.0.thinking.signature: Field required",
        f"messages.{'9' * 5000}.content.0.image.source.base64: x",
    ],
)
def test_what_isnt_about_media(text: str) -> None:
    assert parse_refusal(text) is None


# -- models and limits ------------------------------------------------------------------------------------


def test_the_same_model_by_another_name() -> None:
    one = {
        "claude-sonnet-4-5",
        "claude-sonnet-4-5-20250929",
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "anthropic/claude-sonnet-4.5",
        "claude-sonnet-4-5@20250929",
        "Claude-Sonnet-4-5[1m]",
    }
    assert {model_key(name) for name in one} == {"claude-sonnet-4-5"}
    assert model_key("claude-sonnet-4-0") == model_key("claude-sonnet-4-20250514")
    assert model_key("claude-opus-4-5") != model_key("claude-sonnet-4-5")


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("claude-opus-4-6", ("opus", 4, 6)),
        ("claude-3-5-haiku-20241022", ("haiku", 3, 5)),
        ("claude-3-opus-20240229", ("opus", 3, 0)),
        ("claude-sonnet-4-20250514", ("sonnet", 4, 0)),
        ("claude-fable-5", ("fable", 5, 0)),
        ("claude-opus-4.1", ("opus", 4, 1)),
        ("gpt-4", None),
        ("", None),
    ],
)
def test_versions(name: str, version: tuple[str, int, int] | None) -> None:
    assert model_version(name) == version


def test_what_hangs_on_the_version() -> None:
    names = ["claude-sonnet-4-5", "claude-opus-4-6", "claude-opus-4-8", "claude-fable-5", "claude-sonnet-5", None, "x"]
    assert [refuses_prefill(name) for name in names] == [False, True, True, True, True, False, False]
    assert [is_adaptive(name) for name in names] == [False, True, True, True, True, False, False]
    assert [takes_system_role(name) for name in names] == [False, False, True, True, False, False, False]
    assert [has_long_context(name) for name in names] == [False, True, True, True, True, False, False]
    assert not has_long_context("claude-haiku-5")


def test_limits_are_a_table_to_replace() -> None:
    assert limits_for("claude-sonnet-4-5") == limits_for(None) == MediaLimits()
    assert (limits_for("claude-opus-4-6").images, limits_for("claude-opus-4-6").pdf_pages) == (600, 600)
    assert limits_for("claude-opus-4-6", "bedrock").request_bytes == 20_000_000
    with pytest.raises(dataclasses.FrozenInstanceError):
        MediaLimits().images = 3  # type: ignore[misc]
    assert dataclasses.replace(MediaLimits(), images=3).images == 3
