"""Framing never depends on chunking: any cut of any bytes against a decoder written independently."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import recordings
from anthropic._streaming import SSEDecoder as SDKDecoder
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sse_reference import Dispatched, TooLarge, decode

from turnstream.messages import StreamNote
from turnstream.operators.sse import ServerSentEvent, SSEDecoder

BOM = b"\xef\xbb\xbf"
# What makes decoders trip: line ends alone and in pairs, BOMs and halves of them, separators that only text
# knows (U+2028, U+2029, U+0085 and its last byte, VT, FF, FS), multi-byte characters and their halves.
TRICKY = [
    *[b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n", b"\n\r", b"\r\n\n"],
    *[BOM, BOM[:1], BOM[:2], BOM[2:]],
    *[
        b"data:",
        b"data: ",
        b"data",
        b"event:",
        b"event: a",
        b"event",
        b"id:",
        b"id: 7",
        b"retry: 12",
        b"retry:",
        b":",
        b": c",
    ],
    *[b"data: 1\n\n", b"event: a\ndata: 2\n\n", b"event: b\r\ndata: 3\r\n\r\n", b": keep-alive\n\n", b"id: \0\n"],
    *[b" ", b"x", b"\0", b"\x0b", b"\x0c", b"\x1c", b"\xff", b"\x85", b'{"a":1}'],
    *[s.encode() for s in ("\u2028", "\u2029", "\u0085", "✅", "é", "…")],
    *["🙂".encode()[:cut] for cut in (1, 2, 3, 4)],
]
STREAMS = st.lists(st.sampled_from(TRICKY), max_size=24).map(b"".join)


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(edges)]


def run(chunks: list[bytes], *, batches: int = 1, **options: Any) -> list[Any]:
    decoder = SSEDecoder(**options)
    out: list[Any] = []
    for at in range(0, len(chunks), batches):
        out.extend(decoder.feed(chunks[at : at + batches]))
    out.extend(decoder.flush())
    return out


def shown(items: list[Any], limit: int | None = None) -> list[Dispatched | TooLarge]:
    """Our items as the reference's."""
    out: list[Dispatched | TooLarge] = []
    for item in items:
        if isinstance(item, ServerSentEvent):
            out.append(Dispatched(item.event, item.data.decode(), item.id, item.retry, item.number, item.offset))
        elif item.kind == "event_too_large":
            sizes = [int(word) for word in item.message.split() if word.isdigit()]
            assert sizes[1:] == [limit]
            out.append(TooLarge(sizes[0], item.event_number, item.byte_offset))
    return out


@settings(max_examples=400, deadline=None)
@given(STREAMS, st.lists(st.integers(0, 400), max_size=12), st.integers(1, 3))
@example(b"data: 1\r\n\r\ndata: 2\r\n\r\n", [10], 1)
@example(b"\r\n\xef\xbb\xbfdata: 1\n\n", [1], 1)
def test_any_cut_of_any_bytes(stream: bytes, places: list[int], batches: int) -> None:
    assert shown(run(cut(stream, places), batches=batches, final="discard")) == decode(stream)


@settings(max_examples=200, deadline=None)
@given(STREAMS)
def test_byte_by_byte_as_whole(stream: bytes) -> None:
    """Notes too, down to their words, and the last event that counts because it is JSON."""
    assert run([bytes([byte]) for byte in stream]) == run([stream])


@settings(max_examples=300, deadline=None)
@given(STREAMS, st.lists(st.integers(0, 400), max_size=12), st.integers(3, 24))
def test_any_cut_with_a_small_limit(stream: bytes, places: list[int], limit: int) -> None:
    items = run(cut(stream, places), max_event_bytes=limit, final="discard")
    assert shown(items, limit) == decode(stream, limit)


@settings(max_examples=200, deadline=None)
@given(STREAMS, st.lists(st.integers(0, 400), max_size=12), st.integers(3, 24))
def test_any_cut_with_a_small_limit_when_strict(stream: bytes, places: list[int], limit: int) -> None:
    """Strict delivers what came before, then the fault, which is the same in any cut."""
    wanted = decode(stream, limit)
    first = next((n for n, item in enumerate(wanted) if isinstance(item, TooLarge)), None)
    decoder = SSEDecoder(max_event_bytes=limit, final="discard", strict=True)
    out: list[Any] = []
    fault = None
    for chunk in cut(stream, places):
        out.extend(decoder.feed([chunk]))
        if out and not isinstance(out[-1], (ServerSentEvent, StreamNote)):
            fault = out.pop()
            break
    else:
        out.extend(decoder.flush())
    assert shown(out) == wanted[:first]
    if first is None:
        assert fault is None
    else:
        large = wanted[first]
        assert fault.error.message == f"an event is larger than the limit of {limit} bytes"
        assert (fault.error.event_number, fault.error.byte_offset) == (large.number, large.offset)


# Two blocks of each framing, short enough to try every cut into two and three.
SHORT = [
    b"event: a\r\ndata: 1\r\n\r\ndata: 2\r\r",
    BOM + "event: é\ndata: ✅🙂\n\n: c\n\ndata: x\n\n".encode(),
    b"data: 1\n\r\ndata: 2\r\n\rdata: 3\r\r\n\ndata: 4\n\n",
    b": turnstream at=1.5\ndata: 1\n\nid: 7\nretry: 8\n\ndata: 2\n\n<p>\ndata: 3",
]


@pytest.mark.parametrize("stream", SHORT)
def test_every_cut_into_three(stream: bytes) -> None:
    whole = run([stream])
    for first in range(len(stream) + 1):
        for second in range(first, len(stream) + 1):
            assert run([stream[:first], stream[first:second], stream[second:]]) == whole


def _long_stream(end: str, seed: int) -> bytes:
    """Blocks of 1 byte to 20 KB, so that some are longer than a chunk and some chunks hold many."""
    rng = random.Random(seed)
    blocks = []
    for number in range(60):
        size = rng.choice([1, 30, 300, 4_000, 20_000])
        lines = [f"event: e{number}", f"data: {'x' * size}"]
        if number % 13 == 7:
            lines.insert(0, f"id: {number}")
        if number % 17 == 3:
            lines.append("data: é second")
        blocks.append(end.join([*lines, "", ""]))
    return "".join(blocks).encode()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["lf", "crlf", "cr"])
@pytest.mark.parametrize("size", [7, 100, 1_000, 5_000, 16_384, 65_536])
def test_long_streams_in_chunks_of_one_size(end: str, size: int) -> None:
    stream = _long_stream(end, seed=size)
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert shown(run(chunks)) == decode(stream)


# --- recordings ------------------------------------------------------------------------------------------


def test_recordings_byte_by_byte_as_whole() -> None:
    folder = recordings.need("server-sent events byte by byte")
    files = [path for kind in ("sse", "odd") for path in sorted((folder / kind).glob("*.sse"))]
    assert files
    for path in files:
        stream = path.read_bytes()
        whole = run([stream])
        assert run([stream[at : at + 1] for at in range(len(stream))]) == whole, path.name
        assert shown(run([stream], final="discard")) == decode(stream), path.name


def _sdk(stream: bytes) -> list[tuple[str, str]]:
    """The official SDK's events. It also gives out blocks that have no data, and reads an unfinished last block."""
    decoded = SDKDecoder().iter_bytes(iter([stream]))
    return [(sse.event or "", sse.data) for sse in decoded if sse.data]


def test_recordings_as_the_official_sdk_reads_them() -> None:
    folder = recordings.need("server-sent events against the official SDK")
    compared = 0
    for kind in ("sse", "odd"):
        for path in sorted((folder / kind).glob("*.sse")):
            stream = path.read_bytes()
            if b"\r" in stream:
                continue
            ours = [(e.event, e.text) for e in run([stream], final="discard") if isinstance(e, ServerSentEvent)]
            theirs = _sdk(stream)
            assert ours == theirs[: len(ours)], path.name
            assert len(theirs) - len(ours) <= (not stream.endswith(b"\n\n")), path.name
            compared += len(ours)
    assert compared > 1_000


FIELDS = st.sampled_from(
    ["event: a", "event:b", "data: 1", "data:2", "data:  3", "data: é✅", ": c", "retry: 5", "x: y"]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(FIELDS, min_size=1, max_size=5), max_size=8), st.integers(1, 40))
def test_lf_streams_as_the_official_sdk_reads_them(blocks: list[list[str]], size: int) -> None:
    stream = "".join("\n".join([*block, "", ""]) for block in blocks).encode()
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [(e.event, e.text) for e in run(chunks) if isinstance(e, ServerSentEvent)] == _sdk(stream)
