"""Hypothesis strategies for content blocks, good and bad, and the media they carry.

Values are drawn from short lists, so that equal ones meet often (ids, names, texts) and examples shrink well.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

from hypothesis import strategies as st

Block = dict[str, Any]

MODEL, OTHER_MODEL, NEW_MODEL = "claude-sonnet-4-5", "claude-opus-4-1-20250805", "claude-opus-4-6"
TOOL_NAMES = ("Read", "Bash", "mcp__db__query", "Gone")
"""What calls name; ``Gone`` is in no toolset of :func:`toolsets`."""


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int) -> str:
    """A complete PNG, base64; few bytes whatever its size."""
    head = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    pixels = _chunk(b"IDAT", zlib.compress(bytes((1 + (width + 7) // 8) * height), 9))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + head + pixels + _chunk(b"IEND", b"")).decode()


def pdf(pages: int) -> str:
    """A complete PDF of blank pages, base64."""
    kids = " ".join(f"{3 + page} 0 R" for page in range(pages))
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", f"<</Type/Pages/Kids[{kids}]/Count {pages}>>".encode()]
    objects += [b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 72 72]>>"] * pages
    out, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj" % number + body + b"endobj\n"
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    tail = b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return base64.b64encode(out + tail).decode()


def _b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


TINY = png(1, 1)
GIF = _b64(
    b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"
)
_IMAGES = [
    ("image/png", TINY),
    ("image/gif", GIF),
    ("image/png", png(2001, 2)),
    ("image/png", png(2, 8001)),
    ("image/jpeg", TINY),
    ("image/tiff", TINY),
    ("image/png", _b64(b"no image at all, really")),
    ("image/png", "data:image/png;base64," + TINY),
    ("image/png", "not base64!!"),
    ("image/png", ""),
]
_PDFS = [pdf(1), pdf(101), _b64(b"%PDF-1.7\n"), _b64(b"<html>no PDF</html>"), "", "%PDF-not-base64"]


def image(media_type: str = "image/png", data: str = TINY) -> Block:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def document(data: str) -> Block:
    return {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": data}}


TEXTS = [
    "hello",
    "more words",
    "ends in space \n",
    "",
    " ",
    "\n\n",
    "é ✓ 你好",
    "cut \ud83d",
    "\udc8f",
    "\u200b",
    "[Request interrupted by user]",
]
texts = st.sampled_from(TEXTS)
ids = st.sampled_from(["toolu_1", "toolu_2", "toolu_3", "toolu_4", "call-5", "toolu_1"])
odd_ids = st.one_of(
    ids, ids, ids, st.sampled_from(["", "functions.f:0", "id with space", 7, None, ["toolu_1"], "a" * 70, "b" * 70])
)
marks = st.sampled_from(
    [{"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}, {"type": "ephemeral", "ttl": "2h"}, {"type": "x"}, None]
)


@st.composite
def marked(draw: st.DrawFn, blocks: st.SearchStrategy[Block]) -> Block:
    """A block that sometimes has a cache mark or a field no request may hold."""
    block = draw(blocks)
    extra = draw(st.sampled_from(["", "", "", "mark", "mark", "stray"]))
    if extra == "mark":
        return {**block, "cache_control": draw(marks)}
    return {**block, "partial_json": "", "index": 3} if extra == "stray" else block


text_blocks = texts.map(lambda text: {"type": "text", "text": text})
cited_blocks = st.just(
    {
        "type": "text",
        "text": "cited",
        "citations": [
            {
                "type": "char_location",
                "cited_text": "x",
                "document_index": 0,
                "document_title": None,
                "start_char_index": 0,
                "end_char_index": 1,
            }
        ],
    }
)
_embedded = st.sampled_from(_IMAGES).map(lambda pair: image(*pair))
images = st.one_of(
    _embedded,
    _embedded,
    _embedded,
    st.just({"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}),
    st.just({"type": "image", "source": {"type": "file", "file_id": "file_1"}}),
    st.just({"type": "image", "source": {"type": "base64", "media_type": "image/png"}}),
)
documents = st.one_of(
    st.sampled_from(_PDFS).map(document),
    st.just({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "plain"}}),
    st.just({"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}}),
    st.just({"type": "document", "source": {"type": "s3", "uri": "s3://b/k"}}),
    st.just({"type": "document", "source": {}}),
)
media = st.one_of(images, documents)

_INPUTS = [{}, {"file_path": "/a"}, {"n": 1.5, "deep": [{"x": None}]}, {"p": "\ud99c"}, {"k\udc00": 1}]
_BAD_INPUTS = ['{"a": 1', "", None, [1], 3, True]
inputs = st.one_of(st.sampled_from(_INPUTS), st.sampled_from(_INPUTS), st.sampled_from(_BAD_INPUTS))
names = st.sampled_from([*TOOL_NAMES, "Read", "Bash", "", "bad name!", None])


@st.composite
def tool_uses(draw: st.DrawFn) -> Block:
    block = {"type": "tool_use", "id": draw(odd_ids), "name": draw(names), "input": draw(inputs)}
    lacking = draw(st.sampled_from([None] * 12 + ["id", "name", "input"]))
    if lacking:
        del block[lacking]
    return block


thinkings = st.builds(
    lambda text, signed: {"type": "thinking", "thinking": text, **signed},
    st.sampled_from(["Let me see.", "", "cut \ud83d"]),
    st.sampled_from(
        [{"signature": "c2lnbmF0dXJl"}, {"signature": "b3RoZXI="}, {"signature": ""}, {"signature": None}, {}]
    ),
)
redacted = st.sampled_from(
    [
        {"type": "redacted_thinking", "data": "ZGF0YQ=="},
        {"type": "redacted_thinking", "data": ""},
        {"type": "redacted_thinking"},
    ]
)
_SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
_FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
_MCP = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "ask", "server_name": "wiki", "input": {}}
_MCP_ANSWER = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False, "content": "yes"}
server_blocks = st.sampled_from(
    [
        [_SEARCH, _FOUND],
        [_SEARCH],
        [_FOUND],
        [{**_SEARCH, "id": "toolu_1"}, {**_FOUND, "tool_use_id": "toolu_1"}],
        [_SEARCH, {**_FOUND, "tool_use_id": "srvtoolu_2"}],
        [{**_SEARCH, "id": "srvtoolu_2"}, _SEARCH, _FOUND],
        [_MCP, _MCP_ANSWER],
        [_MCP],
    ]
)
"""Server calls with their results, without, results alone, ids that don't fit."""

unknown_blocks = st.sampled_from(
    [
        {"type": "video", "source": {"type": "url", "url": "https://example.com/v"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"text": "no type"},
        {"type": None},
        {"type": "compaction", "content": None},
        {"type": "compaction", "content": "Summary.", "encrypted_content": "ZQ=="},
        {"type": "tool_reference", "tool_name": "Read"},
        {"type": "text"},
        {"type": "text", "text": None},
    ]
)
not_blocks: st.SearchStrategy[Any] = st.sampled_from(["bare string", None, 5, []])

misplaced = st.sampled_from(
    [
        {"type": "tool_use", "id": "toolu_8", "name": "Read", "input": {}},
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"},
        {"type": "thinking", "thinking": "x", "signature": "c2ln"},
        image(),
    ]
)
"""Blocks one of the two roles may not hold."""

references = st.sampled_from([*TOOL_NAMES, "Ghost"]).map(lambda name: {"type": "tool_reference", "tool_name": name})

result_contents: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(["ok", "", " ", "cut \ud83d", None, {"a": 1}, []]),
    st.lists(references, min_size=1, max_size=2),
    st.lists(
        st.one_of(
            marked(text_blocks),
            st.just({"type": "text", "text": "marked", "cache_control": {"type": "ephemeral"}}),
            images,
            documents,
            references,
            st.just({"type": "tool_use", "id": "toolu_9", "name": "Read", "input": {}}),
            unknown_blocks,
        ),
        min_size=1,
        max_size=4,
    ),
)


@st.composite
def results(draw: st.DrawFn, use_id: Any) -> Block:
    """A tool_result for this id, its content of any kind, fields missing now and then."""
    block: Block = {"type": "tool_result", "tool_use_id": use_id, "content": draw(result_contents)}
    error = draw(st.sampled_from([None, None, True, False, "null"]))
    if error is not None:
        block["is_error"] = None if error == "null" else error
    lacking = draw(st.sampled_from([None] * 10 + ["content", "tool_use_id"]))
    if lacking:
        del block[lacking]
    return block
