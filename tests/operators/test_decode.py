"""``decode``: any container, told by its first byte (WIRE.md §1, attempts and ends, last paragraph)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import frames as f
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstream.messages import AssistantMessage, ResponseFailed, StreamNote
from turnstream.operators import (
    accumulate,
    answer_outcomes,
    decode,
    decode_ndjson,
    decode_sse,
    parse_events,
    run_batches,
    run_stages,
)
from turnstream.operators.decode import Decoder

BOM = b"\xef\xbb\xbf"
ANSWER = f.flat(([f.start(), f.says("hé😀"), f.turn(), f.STOP],))
MESSAGE = {**f.start()["message"], "content": [f.text_block("hé😀")], "stop_reason": "end_turn"}


def run(data: bytes, sizes: Sequence[int] = (), error: Exception | None = None, **options: Any) -> list[Any]:
    chunks, at = [], 0
    for size in sizes:
        chunks.append([data[at : at + size]])
        at += size
    chunks.append([data[at:]])
    return [item for batch in run_batches(chunks, decode(**options), error=error) for item in batch]


def same(data: bytes, operator: Any) -> list[Any]:
    return list(run_stages([data], operator))


def outcomes(data: bytes, **options: Any) -> list[str]:
    items = run_stages(run(data, **options), parse_events(), accumulate())
    return [outcome.word for outcome in answer_outcomes(items)]


CONTAINERS = {
    "sse": f.sse(*ANSWER),
    "sse without names": f.sse(*ANSWER, names=False),
    "ndjson": f.ndjson(*ANSWER),
    "wrapped": f.wrapped(*ANSWER),
    "json": json.dumps(MESSAGE).encode(),
    "indented json": json.dumps(MESSAGE, indent=2).encode(),
}


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize(
    "before", [b"", BOM, b"\n\n", b"\r\n\n", BOM + b"\n"], ids=["plain", "bom", "blank", "crlf", "bom blank"]
)
@pytest.mark.parametrize("sizes", [(), (1,) * 900, (2, 1, 5), (3,)], ids=["whole", "bytes", "odd", "three"])
def test_every_container_holds_the_same_answer(name: str, before: bytes, sizes: Sequence[int]) -> None:
    items = run_stages(run(before + CONTAINERS[name], sizes), parse_events(), accumulate())
    (message,) = [item for item in items if isinstance(item, AssistantMessage)]
    assert message.message["content"] == [f.text_block("hé😀")]
    assert message.message["stop_reason"] == "end_turn"
    assert not [item for item in items if isinstance(item, (ResponseFailed, StreamNote))]


def test_the_first_byte_beats_the_content_type() -> None:
    assert run(CONTAINERS["sse"], content_type="application/json") == same(CONTAINERS["sse"], decode_sse())
    assert run(CONTAINERS["ndjson"], content_type="text/event-stream") == same(CONTAINERS["ndjson"], decode_ndjson())
    assert run(CONTAINERS["json"], content_type="text/event-stream; charset=latin-1") == same(
        CONTAINERS["json"], decode_ndjson()
    )


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", ["empty"]),
        (b"\n\n", ["empty"]),
        (BOM, ["empty"]),
        (b"   ", ["empty"]),
        (b": only a comment\n\n", ["empty"]),
        (b"<html><body>502 Bad Gateway</body></html>", ["not_a_stream"]),
        (b'{"type":"error","error":{"type":"overloaded_error","message":"m"}}', ["api_error(overloaded_error)"]),
        (b'{"error":{"type":"x"}}', ["api_error(x)"]),
        (b'{"error":"quota"}', ["api_error(unknown)"]),
        (b'{"object":"chat.completion","choices":[]}', ["not_a_stream"]),
        (b"{", ["not_a_stream"]),
        (b'[{"type":"ping"}]', ["not_a_stream"]),
        (b"\xef\xbb", ["not_a_stream"]),
    ],
)
@pytest.mark.parametrize("content_type", [None, "application/json", "text/event-stream", "text/html"])
def test_what_holds_no_answer(data: bytes, expected: list[str], content_type: str | None) -> None:
    assert outcomes(data, content_type=content_type) == expected


def test_a_json_array_is_named_where_the_content_type_says_json() -> None:
    for content_type, kind in (("application/json", "event_error"), (None, "not_sse")):
        items = run_stages(run(b'[{"type":"ping"}]', content_type=content_type), parse_events())
        assert [item.kind for item in items] == [kind]  # type: ignore[union-attr]


def test_positions_count_the_bom_and_blank_lines() -> None:
    first = f.dump(f.PING)
    (event,) = run(BOM + b"\n\n" + first)
    assert (event.number, event.offset) == (1, 5)
    (event,) = run(BOM + first, (1, 1, 1, 2))
    assert event.offset == 3
    (event,) = run(BOM + b"\n\ndata: {}\n\n")
    assert (event.number, event.offset) == (1, 5)


@pytest.mark.parametrize("container", ["sse", "ndjson"])
def test_options_reach_the_decoder_that_is_chosen(container: str) -> None:
    build = f.sse if container == "sse" else f.ndjson
    big = build(f.PING, f.text(0, "x" * 500), f.STOP)
    notes = [item for item in run(big, max_event_bytes=300) if isinstance(item, StreamNote)]
    assert [note.kind for note in notes] == ["event_too_large"]
    with pytest.raises(Exception, match="300"):
        run(big, max_event_bytes=300, strict=True)
    cut_off = f.sse(f.PING) + b'data: {"type":"ping"}'
    assert len(run(cut_off)) == 2
    assert len([i for i in run(cut_off, final="discard") if not isinstance(i, StreamNote)]) == 1


@pytest.mark.parametrize("container", ["sse", "ndjson"])
def test_a_broken_source_leaves_what_was_whole(container: str) -> None:
    build = f.sse if container == "sse" else f.ndjson
    data = build(f.PING, f.STOP)
    assert run(data + b'{"type":', error=OSError())[:2] == same(
        data, decode_sse() if container == "sse" else decode_ndjson()
    )
    assert run(b"", error=OSError()) == []
    assert run(b"\n", error=OSError()) == []


def test_a_flood_of_white_space_is_not_kept() -> None:
    decoder = Decoder()
    for _ in range(200):
        assert not decoder.feed([b"\n" * 1_000])
    held = sum(len(part) for part in decoder._kept)
    assert held <= 64 * 1024
    assert len(decoder.feed([f.sse(f.PING)])) == 1


def test_each_use_chooses_afresh() -> None:
    operator = decode()
    assert len(list(run_batches([[CONTAINERS["ndjson"]]], operator))) == 1
    assert [i for b in run_batches([[CONTAINERS["sse"]]], operator) for i in b] == same(CONTAINERS["sse"], decode_sse())


@given(
    st.sampled_from([b"", BOM, b"\n", b" ", BOM + b"\r\n"]),
    st.sampled_from([*CONTAINERS.values(), b"{", b"<html>", b"\xef", b"\xef\xbb", b"", b"data: x"]),
    st.lists(st.integers(0, 20), max_size=20),
)
def test_chunking_means_nothing(before: bytes, data: bytes, sizes: list[int]) -> None:
    assert run(before + data, sizes) == run(before + data)
