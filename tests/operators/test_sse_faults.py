"""Faults of group A (FAULTS.md): each stream breaks a decoder that lacks the rule, shown beside ours.

The broken decoders are the shortest form of what was found in the field; a test that they passed would prove
nothing about ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from turnstream.messages import StreamNote
from turnstream.operators.sse import ServerSentEvent, SSEDecoder

SEPARATORS = "\u2028\u2029\u0085\x0b\x0c\x1c\x1d\x1e"


def payload(text: str) -> str:
    """A text delta whose text stands there raw, as servers send it; JSON needs no escape above U+001F."""
    return json.dumps({"type": "text_delta", "text": text}, ensure_ascii=False)


def frame(data: str, end: str = "\n") -> bytes:
    return f"event: content_block_delta{end}data: {data}{end}{end}".encode()


def run(chunks: Iterable[bytes], **options: Any) -> list[Any]:
    decoder = SSEDecoder(**options)
    out: list[Any] = []
    for chunk in chunks:
        out.extend(decoder.feed([chunk]))
    out.extend(decoder.flush())
    return out


def payloads(chunks: Iterable[bytes]) -> list[str]:
    return [item.text for item in run(chunks) if isinstance(item, ServerSentEvent)]


def cuts(stream: bytes) -> Iterable[list[bytes]]:
    yield [stream]
    yield [stream[at : at + 1] for at in range(len(stream))]
    for at in range(1, len(stream)):
        yield [stream[:at], stream[at:]]


def lines_to_payloads(lines: Iterable[str]) -> list[str]:
    """What comes of lines when a blank one dispatches; nothing is wrong with this part."""
    out, data = [], []
    for line in lines:
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            out.append("\n".join(data))
            data = []
    return out


def naive(stream: bytes) -> list[str]:
    return lines_to_payloads(stream.decode().split("\n"))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_row_1_unicode_separators_end_no_line(end: str) -> None:
    text = f"one{SEPARATORS}two"
    # VT, FF and FS to RS are control characters, which JSON escapes; U+0085 and above stand raw.
    raw = payload(text)
    assert "\u2028" in raw
    stream = frame(raw, end) + frame(f"x{SEPARATORS}y", end)
    for chunks in cuts(stream):
        assert payloads(chunks) == [raw, f"x{SEPARATORS}y"]
    # Broken: lines of text are what str.splitlines says.
    assert lines_to_payloads(stream.decode().splitlines()) != [raw, f"x{SEPARATORS}y"]


def test_row_2_always_utf_8() -> None:
    """The last byte of ✅ is 85, a line end in Latin-1; there is no charset to give the decoder."""
    raw = payload("done ✅, next… é")
    stream = frame(raw)
    assert b"\x85" in stream
    for chunks in cuts(stream):
        assert payloads(chunks) == [raw]
    # Broken: the charset that HTTP says when nothing is said.
    assert lines_to_payloads(stream.decode("latin-1").splitlines()) != [raw]


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_row_3_a_cr_may_be_half_of_a_crlf(end: str) -> None:
    stream = f"event: a{end}data: one{end}data: two{end}data: three{end}{end}data: next{end}{end}".encode()
    for chunks in cuts(stream):
        assert payloads(chunks) == ["one\ntwo\nthree", "next"]


def test_row_3_broken_a_cr_is_judged_before_the_lf_is_seen() -> None:
    stream = b"data: one\r\ndata: two\r\n\r\n"

    def broken(chunks: Iterable[bytes]) -> list[str]:
        lines: list[str] = []
        open_line = ""
        for chunk in chunks:
            parts = (open_line + chunk.decode()).replace("\r\n", "\n").replace("\r", "\n").split("\n")
            open_line = parts.pop()
            lines += parts
        return lines_to_payloads(lines)

    assert broken([stream]) == ["one\ntwo"]
    assert any(broken(chunks) != ["one\ntwo"] for chunks in cuts(stream))


def test_row_4_a_character_may_be_cut() -> None:
    raw = payload("🙂")
    stream = frame(raw)
    at = stream.index("🙂".encode())
    for cut in (1, 2, 3):
        chunks = [stream[: at + cut], stream[at + cut :]]
        assert payloads(chunks) == [raw]
        # Broken: each chunk is decoded by itself.
        assert naive("".join(chunk.decode("utf-8", "replace") for chunk in chunks).encode()) != [raw]


def test_row_5_the_space_is_optional_and_done_is_data() -> None:
    """``[DONE]`` is the next stage's to ignore; here it is an event like any other."""
    stream = b'data:{"a":1}\n\ndata:  {"b":2}\n\ndata: [DONE]\n\n'
    for chunks in cuts(stream):
        assert payloads(chunks) == ['{"a":1}', ' {"b":2}', "[DONE]"]
    # Broken: only lines that begin with "data: " are data.
    assert [line[6:] for line in stream.decode().split("\n") if line.startswith("data: ")] != payloads([stream])


def test_row_6_lines_of_an_event_may_come_apart() -> None:
    raw = payload("apart")
    stream = frame(raw)
    for chunks in cuts(stream):
        assert payloads(chunks) == [raw]
    # Broken: each chunk is taken for whole lines.
    assert any([found for chunk in chunks for found in naive(chunk)] != [raw] for chunks in cuts(stream))


def test_row_7_one_line_may_be_long() -> None:
    """700 KiB in one data line: more than aiohttp's line reader takes. A limit of that kind is a note that says so."""
    raw = payload("x" * 700 * 1024)
    stream = frame(raw)
    chunks = [stream[at : at + 16384] for at in range(0, len(stream), 16384)]
    assert payloads(chunks) == [raw]
    # Broken: a cap as small as the line reader's.
    (note,) = run(chunks, max_event_bytes=512 * 1024)
    assert isinstance(note, StreamNote)
    assert note.kind == "event_too_large"
    assert str(512 * 1024) in note.message


def test_row_10_bom_and_a_flood_of_comments_before_the_first_event() -> None:
    raw = payload("first")
    stream = b"\xef\xbb\xbf" + b": keepalive\n\n" * 50 + b":\n" * 50 + b"retry: 10\nid: a\0b\n" + frame(raw)
    for chunks in ([stream], [stream[at : at + 1] for at in range(len(stream))], [stream[:2], stream[2:]]):
        (event,) = run(chunks)
        assert (event.event, event.text, event.number) == ("content_block_delta", raw, 1)
        assert (event.id, event.retry) == ("", 10)


def test_row_10_a_bom_is_not_part_of_the_first_field() -> None:
    stream = b"\xef\xbb\xbf" + b"data: 1\n\n"
    for chunks in cuts(stream):
        assert payloads(chunks) == ["1"]
    # Broken: the BOM stays.
    assert naive(stream) != ["1"]


def test_row_10_comments_cause_nothing() -> None:
    """No item, so nothing downstream can take a comment for progress of the model."""
    assert run([b": keepalive\n\n"] * 3) == []
