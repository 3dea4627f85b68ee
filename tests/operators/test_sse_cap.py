"""The size cap of an event (WIRE.md §1): dropped with a note, memory below the cap, the same in any cut."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from turnstream.messages import SSEError, StreamNote
from turnstream.operators import Fault, lines, run_stages, sse
from turnstream.operators.sse import MAX_EVENT_BYTES, Frames, ServerSentEvent, SSEDecoder, decode_sse

KIB = 1024


def run(chunks: list[bytes], **options: Any) -> list[Any]:
    decoder = SSEDecoder(**options)
    out: list[Any] = []
    for chunk in chunks:
        out.extend(decoder.feed([chunk]))
    out.extend(decoder.flush())
    return out


def drip(head: bytes, size: int, piece: int, tail: bytes) -> Iterator[bytes]:
    """An event of ``size`` bytes of payload in pieces, none of which holds much."""
    yield head
    for at in range(0, size, piece):
        yield b"x" * min(piece, size - at)
    yield tail


def test_the_default_is_what_the_specification_says() -> None:
    assert MAX_EVENT_BYTES == 64 * 1024 * 1024


# The event between the two small ones has 40 bytes up to its blank line: 6 + 33 and a line end.
STREAM = b"data: 1\n\n" + b"data: " + b"x" * 33 + b"\n\n" + b"data: 3\n\n"


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"], ids=["lf", "cr", "crlf"])
def test_size_and_limit_are_exact_and_the_stream_goes_on(end: bytes) -> None:
    stream = STREAM.replace(b"\n", end)
    size = 39 + len(end)
    assert [item.number for item in run([stream], max_event_bytes=size)] == [1, 2, 3]
    one, note, three = run([stream], max_event_bytes=size - 1)
    assert isinstance(note, StreamNote)
    assert (one.number, one.data, three.number, three.data) == (1, b"1", 3, b"3")
    assert note == StreamNote(
        kind="event_too_large",
        message=f"an event of {size} bytes was dropped: the limit is {size - 1} bytes",
        event_number=2,
        byte_offset=stream.index(b"data: x"),
    )


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"], ids=["lf", "cr", "crlf"])
def test_the_note_is_the_same_in_every_cut(end: bytes) -> None:
    stream = (STREAM + STREAM).replace(b"\n", end)
    whole = run([stream], max_event_bytes=20)
    assert [getattr(item, "kind", "event") for item in whole] == ["event", "event_too_large", "event"] * 2
    assert run([stream[at : at + 1] for at in range(len(stream))], max_event_bytes=20) == whole
    for first in range(len(stream) + 1):
        for second in range(first, len(stream) + 1, 3):
            assert run([stream[:first], stream[first:second], stream[second:]], max_event_bytes=20) == whole


def test_an_event_inside_one_chunk_does_not_escape() -> None:
    """Neither alone, nor among small ones, nor when small ones alone make the chunk longer than the cap."""
    large = b"event: a\ndata: " + b"x" * 100 + b"\n\n"
    small = b"event: a\ndata: 1\n\n"
    for chunk, kinds in [(large, "L"), (small + large + small, "eLe"), (small * 9, "e" * 9)]:
        items = run([chunk], max_event_bytes=50)
        assert "".join("L" if isinstance(item, StreamNote) else "e" for item in items) == kinds


def test_many_small_events_in_a_chunk_below_the_cap_stay_on_the_fast_path() -> None:
    assert isinstance(SSEDecoder(max_event_bytes=100).feed([b"data: 1\n\n" * 11]), Frames)


def test_comments_and_a_bom() -> None:
    """Comments of the block count, a BOM and blank lines before it don't."""
    block = b": 34\ndata: 1\n"
    for size, kinds in [(len(block), ["event"]), (len(block) - 1, ["event_too_large"])]:
        items = run([b"\xef\xbb\xbf\n\n" + block + b"\n"], max_event_bytes=size)
        assert [getattr(item, "kind", "event") for item in items] == kinds


def test_what_a_dropped_event_said_does_not_count() -> None:
    large = b"id: 2\nretry: 5\n: turnstream at=9\ndata: " + b"x" * 50 + b"\n\n"
    stream = b"id: 1\ndata: a\n\n" + large + b"data: b\n\n"
    for chunks in ([stream], [bytes([byte]) for byte in stream]):
        _, note, last = run(chunks, max_event_bytes=40)
        assert note.kind == "event_too_large"
        assert (last.id, last.retry, last.recorded_at) == ("1", None, None)


def test_it_is_the_event_before_the_next_one() -> None:
    """What stands until the next event (a retry, a recorded time) ends with it, dropped or not."""
    stream = b"retry: 5\n\n: turnstream at=9\n\ndata: " + b"x" * 50 + b"\n\ndata: b\n\n"
    for chunks in ([stream], [bytes([byte]) for byte in stream]):
        _, last = run(chunks, max_event_bytes=40)
        assert (last.number, last.retry, last.recorded_at) == (2, None, None)


def test_a_large_page_of_html_is_no_event_stream() -> None:
    items = run([b"<html>\n\n" + b"x" * 50 + b"\n\n"], max_event_bytes=40)
    assert [item.kind for item in items] == ["event_too_large", "not_sse"]


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_the_stream_ends_inside_of_it(chunk: int) -> None:
    stream = b"data: 1\n\ndata: " + b'"' + b"x" * 50 + b'"\n'
    one, note = run([stream[at : at + chunk] for at in range(0, len(stream), chunk)], max_event_bytes=40)
    assert one.data == b"1"
    assert note.message == "an event of 59 bytes was dropped: the limit is 40 bytes"
    assert (note.event_number, note.byte_offset) == (2, 9)


def test_strict_is_a_fault_after_the_events_before_it() -> None:
    for chunks in ([STREAM], [bytes([byte]) for byte in STREAM]):
        with pytest.raises(SSEError, match="larger than the limit of 20 bytes") as caught:
            run_stages(chunks, decode_sse(max_event_bytes=20, strict=True))
        assert (caught.value.event_number, caught.value.byte_offset) == (2, 9)
        assert [event.data for event in caught.value.kept] == [b"1"]


def test_strict_is_a_fault_for_an_event_that_the_end_cuts_off() -> None:
    with pytest.raises(SSEError, match="ended inside an event") as caught:
        run_stages([b"data: 1\n\nfoo: x\ndata: {half"], decode_sse(strict=True))
    assert (caught.value.event_number, caught.value.byte_offset) == (2, 9)
    assert [event.data for event in caught.value.kept] == [b"1"]
    assert [event.data for event in run_stages([b"data: 1\n\ndata: 2"], decode_sse(strict=True))] == [b"1", b"2"]
    with pytest.raises(SSEError):  # and nothing stands behind the fault
        run_stages([b"foo: x\ndata: {half"], decode_sse(strict=True))


def test_strict_does_not_wait_for_the_end() -> None:
    decoder = SSEDecoder(max_event_bytes=20, strict=True)
    assert not decoder.feed([b"data: " + b"x" * 14])
    (fault,) = decoder.feed([b"x"])
    assert isinstance(fault, Fault)


# --- memory ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [100, 4 * KIB, 64 * KIB])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
def test_memory_stays_below_the_cap(piece: int, end: bytes) -> None:
    """A 12 MiB event against a 1 MiB cap; the buffer grows in steps of an eighth, and one piece is in flight."""
    cap = 1024 * KIB
    size = 12 * cap
    decoder = SSEDecoder(max_event_bytes=cap)
    out: list[Any] = []
    head = b": c" + end + b"data: "
    tail = end + end + b"data: 2" + end + end
    tracemalloc.start()
    try:
        for chunk in drip(head, size, piece, tail):
            out.extend(decoder.feed([chunk]))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    note, event = out
    assert note.message == f"an event of {len(head) + size + len(end)} bytes was dropped: the limit is {cap} bytes"
    assert event.data == b"2"
    assert peak < cap * 9 / 8 + 3 * piece + 16 * KIB


def test_a_dropped_event_leaves_nothing_behind() -> None:
    decoder = SSEDecoder(max_event_bytes=256 * KIB)
    tracemalloc.start()
    try:
        for chunk in drip(b"data: ", 300 * KIB, KIB, b""):
            decoder.feed([chunk])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 16 * KIB


# --- work ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("fits", [True, False])
def test_a_dripping_event_is_searched_once(monkeypatch: pytest.MonkeyPatch, end: bytes, fits: bool) -> None:
    """Bytes looked at for a blank line, counted: linear in the size of the event, however small the pieces."""
    looked_at = 0

    def counting(data: bytes, start: int, has_cr: bool) -> tuple[int, int] | None:
        nonlocal looked_at
        looked_at += len(data) - start
        return lines.find_border(data, start, has_cr)

    monkeypatch.setattr(sse, "find_border", counting)
    piece, size = 64, 512 * KIB
    decoder = SSEDecoder(max_event_bytes=1024 * KIB if fits else 64 * KIB)
    out: list[Any] = []
    for chunk in drip(b"id: 1" + end + b"data: ", size, piece, end + end):
        out.extend(decoder.feed([chunk]))
    assert [isinstance(item, ServerSentEvent) for item in out] == [fits]
    # Pieces overlap by a byte, the finished event is read once more, and its first 4 KiB are joined piece by piece.
    first = sum(range(0, 4 * KIB + piece, piece))
    assert looked_at < 2.2 * size + first
