"""``decode_ndjson``: JSON without SSE framing as the same server-sent events (WIRE.md §1, events)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import frames as f
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstream.messages import AssistantMessage, ResponseFailed, SSEError, StreamNote, event_to_wire
from turnstream.operators import (
    ServerSentEvent,
    accumulate,
    decode_ndjson,
    decode_sse,
    parse_events,
    run_batches,
    run_stages,
)
from turnstream.operators.ndjson import NDJSONDecoder


def cut(data: bytes, sizes: Sequence[int]) -> list[list[bytes]]:
    chunks, at = [], 0
    for size in sizes:
        chunks.append([data[at : at + size]])
        at += size
    return [*chunks, [data[at:]]]


def decode(data: bytes, sizes: Sequence[int] = (), **options: Any) -> list[Any]:
    return [item for batch in run_batches(cut(data, sizes), decode_ndjson(**options)) for item in batch]


def payloads(data: bytes, sizes: Sequence[int] = (), **options: Any) -> list[Any]:
    return [json.loads(item.data) for item in decode(data, sizes, **options)]


ANSWER = f.flat(([f.start(), f.says("hé😀\u2028"), f.calls(1, '{"a":', "1}"), f.turn("tool_use"), f.STOP],))


# -- lines -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n", b"\n  \n"])
@pytest.mark.parametrize("last", [True, False])
def test_a_payload_a_line(end: bytes, last: bool) -> None:
    data = end.join(f.dump(p) for p in ANSWER) + (end if last else b"")
    assert payloads(data) == ANSWER


def test_numbers_and_offsets_count_lines_as_they_came() -> None:
    lines = [f.dump(f.PING), b"", b"  " + f.dump(f.STOP) + b"\r", b"{broken", f.dump(f.PING)]
    starts = [sum(len(line) + 1 for line in lines[:n]) for n in range(len(lines))]
    events = decode(b"\n".join(lines))
    assert [(e.number, e.offset) for e in events] == [(1, starts[0]), (2, starts[2]), (3, starts[3]), (4, starts[4])]


def test_the_same_events_come_out_as_from_sse() -> None:
    by_lines = run_stages([f.ndjson(*ANSWER)], decode_ndjson(), parse_events())
    by_sse = run_stages([f.sse(*ANSWER)], decode_sse(), parse_events())
    assert by_lines == by_sse


def test_lines_are_given_out_as_they_come() -> None:
    decoder = NDJSONDecoder()
    first, second = f.dump(f.PING), f.dump(f.STOP)
    assert len(decoder.feed([first + b"\n" + second])) == 1
    assert len(decoder.feed([b"\n"])) == 1
    assert list(decoder.flush()) == []


def test_chunks_may_be_any_buffer() -> None:
    data = f.ndjson(*ANSWER)
    assert decode(data) == run_stages([bytearray(data[:9]), memoryview(data)[9:]], decode_ndjson())  # type: ignore[list-item]


def test_done_and_broken_lines_are_for_the_next_stage() -> None:
    items = run_stages([b'{"type":"ping"}\n[DONE]\n{oops\n'], decode_ndjson(), parse_events())
    assert [type(item).__name__ for item in items] == ["Ping", "StreamNote"]
    assert (items[1].kind, items[1].event_number) == ("event_error", 3)  # type: ignore[union-attr]


# -- wrappers ----------------------------------------------------------------------------------------


def test_a_wrapped_payload_is_unwrapped_with_its_name() -> None:
    items = decode(f.wrapped(*ANSWER))
    assert [json.loads(item.data) for item in items] == ANSWER
    assert [item.event for item in items] == [p["type"] for p in ANSWER]


@pytest.mark.parametrize(
    "wrapper",
    [
        {"Type": "ping", "Data": '{"type":"ping"}'},
        {"event": "ping", "data": '{"type":"ping"}'},
        {"event": "ping", "data": {"type": "ping"}},
        {"type": "ping", "data": '  {"type":"ping"}'},
        {"Data": '{"type":"ping"}'},
    ],
)
def test_the_shapes_of_wrappers(wrapper: Any) -> None:
    (event,) = decode(f.dump(wrapper))
    assert json.loads(event.data) == {"type": "ping"}
    assert event.event in ("ping", "")


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "vendor", "data": "just text"},
        {"type": "vendor", "data": ""},
        {"type": "vendor", "data": {"a": 1}},
        {"type": "vendor", "data": None},
        {"type": "vendor", "data": ["{}"]},
        f.opens(0, "redacted_thinking", data="{opaque"),
        {"type": "error", "error": {"data": "{}"}},
    ],
)
def test_a_payload_that_has_a_data_key_is_no_wrapper(payload: Any) -> None:
    assert payloads(f.dump(payload)) == [payload]


def test_wrapped_numbers_keep_their_digits() -> None:
    inner = {"type": "vendor", "n": 2**80, "f": 1e-07}
    assert payloads(f.dump({"event": "vendor", "data": inner})) == [inner]


@pytest.mark.parametrize("form", ["object", "text with escapes", "text"])
def test_half_surrogate_pairs_in_wrappers_are_joined_later(form: str) -> None:
    lines = []
    for half in ("a\ud83d", "\ude00b"):
        inner = f.text(0, half)
        data: Any = inner
        if form == "text with escapes":
            data = json.dumps(inner)
        elif form == "text":
            data = json.dumps(inner, ensure_ascii=False)
        lines.append(json.dumps({"event": "content_block_delta", "data": data}).encode() + b"\n")
    events = run_stages([b"".join(lines)], decode_ndjson())
    for event in events:
        assert isinstance(event, ServerSentEvent)
        event.data.decode()
    items = run_stages(events, parse_events())
    assert [event_to_wire(item)["delta"]["text"] for item in items] == ["a", "😀b"]  # type: ignore[arg-type]


# -- one JSON message --------------------------------------------------------------------------------

MESSAGE = {
    "id": "msg_a",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [f.text_block("Hello"), f.tool_block({"a": [1, {"b": 2}]})],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 4},
}


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(MESSAGE).encode(),
        json.dumps(MESSAGE).encode() + b"\n",
        json.dumps(MESSAGE, indent=2).encode(),
        json.dumps(MESSAGE, indent=0).encode() + b"\r\n",
        json.dumps(MESSAGE, indent="\t").replace("\n", "\r\n").encode(),
        b"\n  " + json.dumps(MESSAGE, indent=4).encode() + b"\n\n",
        b"{\n" + json.dumps(MESSAGE).encode()[1:],
    ],
    ids=range(7),
)
@pytest.mark.parametrize("sizes", [(), (1,) * 2000, (50,) * 20])
def test_one_message_is_a_start_with_its_content_and_a_stop(data: bytes, sizes: Sequence[int]) -> None:
    start, stop = payloads(data, sizes)
    assert start == {"type": "message_start", "message": MESSAGE}
    assert stop == {"type": "message_stop"}
    items = run_stages(decode(data, sizes), parse_events(), accumulate())
    messages = [item for item in items if isinstance(item, AssistantMessage)]
    assert [m.message["content"][0] for m in messages] == MESSAGE["content"]
    assert not [item for item in items if isinstance(item, (ResponseFailed, StreamNote))]


def test_an_indented_error_object_is_one_payload() -> None:
    assert payloads(json.dumps(f.fails(), indent=2).encode()) == [f.fails()]


def test_a_message_inside_an_event_is_no_message() -> None:
    assert payloads(f.ndjson(f.start())) == [f.start()]
    other = {"type": "message", "no_content": 1}
    assert payloads(f.dump(other)) == [other]


def test_a_document_that_is_cut_off_is_one_broken_payload() -> None:
    data = json.dumps(MESSAGE, indent=2).encode()[:-20]
    (event,) = decode(data)
    assert (event.number, event.offset) == (1, 0)
    items = run_stages([data], decode_ndjson(), parse_events())
    assert [item.kind for item in items] == ["event_error"]  # type: ignore[union-attr]


@pytest.mark.parametrize("sizes", [(), (1,) * 400, (20,) * 20])
def test_a_broken_first_line_costs_that_line_only(sizes: Sequence[int]) -> None:
    first = b'  {"type":"ping",\r'
    lines = [first, f.dump(f.PING), b"", f.dump(f.STOP)]
    starts = [sum(len(line) + 1 for line in lines[:n]) for n in range(len(lines))]
    events = decode(b"\n".join(lines), sizes)
    assert [(e.data, e.number, e.offset) for e in events] == [
        (first.strip(), 1, 0),
        (lines[1], 2, starts[1]),
        (lines[3], 3, starts[3]),
    ]


# -- the source breaks -------------------------------------------------------------------------------


def broken_off(data: bytes) -> list[Any]:
    return [item for batch in run_batches([[data]], decode_ndjson(), error=OSError()) for item in batch]


def test_when_the_source_breaks_a_whole_last_line_counts_and_half_a_line_does_not() -> None:
    ping, stop = f.dump(f.PING), f.dump(f.STOP)
    assert [e.data for e in broken_off(ping + b"\n" + stop)] == [ping, stop]
    assert [e.data for e in broken_off(ping + b"\n" + stop[:-2])] == [ping]
    assert broken_off(b"") == []


def test_when_the_source_breaks_behind_a_broken_first_line_the_others_count() -> None:
    data = b'{"type":\n' + f.ndjson(f.PING, f.STOP)
    assert [e.data for e in broken_off(data)] == [b'{"type":', f.dump(f.PING), f.dump(f.STOP)]


def test_when_the_source_breaks_behind_a_whole_document_it_counts() -> None:
    assert len(broken_off(json.dumps(MESSAGE, indent=1).encode())) == 2


# -- caps --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(), (1,) * 300, (7,) * 50])
def test_a_line_over_the_cap_is_dropped_with_a_note_and_decoding_goes_on(sizes: Sequence[int]) -> None:
    line = f.dump(f.text(0, "x" * 100))
    data = b"\n".join([f.dump(f.PING), line, f.dump(f.STOP)])
    items = decode(data, sizes, max_event_bytes=50)
    assert [type(item) for item in items] == [ServerSentEvent, StreamNote, ServerSentEvent]
    note = items[1]
    assert (note.kind, note.event_number, note.byte_offset) == ("event_too_large", 2, len(f.dump(f.PING)) + 1)
    assert str(len(line)) in note.message
    assert "50" in note.message
    assert items[2].number == 3


def test_the_cap_is_exact() -> None:
    line = f.dump(f.PING)
    assert payloads(line + b"\n", max_event_bytes=len(line)) == [f.PING]
    (note,) = decode(line + b"\n", max_event_bytes=len(line) - 1)
    assert isinstance(note, StreamNote)


def test_the_cap_holds_per_line_not_over_all() -> None:
    line = f.dump(f.PING)
    assert len(payloads((line + b"\n") * 500, (37,) * 100, max_event_bytes=len(line))) == 500


def test_a_document_over_the_cap_is_dropped_as_a_whole() -> None:
    (note,) = decode(json.dumps(MESSAGE, indent=1).encode(), (1,) * 300, max_event_bytes=100)
    assert note.kind == "event_too_large"


def test_strict_makes_it_an_error_after_what_came_before() -> None:
    data = f.ndjson(f.PING, f.text(0, "x" * 100), f.STOP)
    out: list[Any] = []
    with pytest.raises(SSEError) as caught:
        out.extend(item for b in run_batches([[data]], decode_ndjson(max_event_bytes=50, strict=True)) for item in b)
    assert [json.loads(item.data) for item in out] == [f.PING]
    assert (caught.value.event_number, caught.value.byte_offset) == (2, len(f.dump(f.PING)) + 1)


def test_memory_stays_below_the_cap_and_a_chunk() -> None:
    decoder = NDJSONDecoder(max_event_bytes=1_000)
    for _ in range(1_000):
        assert list(decoder.feed([b"x" * 100])) == []
    held = sum(len(part) for part in decoder._parts)
    assert held <= 1_000


# -- chunking ----------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        *(f.dump(p) for p in ANSWER),
        f.dump({"Type": "ping", "Data": '{"type":"ping"}'}),
        json.dumps(MESSAGE).encode(),
        json.dumps(MESSAGE, indent=1).encode(),
        b"",
        b"\r",
        b" ",
        b"[DONE]",
        b"{broken",
        b"\xff\xfe",
        b"{",
        b"}",
        b"x" * 400,
    ]
)


@given(
    st.lists(PIECES, max_size=8),
    st.lists(st.integers(0, 60), max_size=30),
    st.booleans(),
    st.sampled_from([10, 300, 10**6]),
)
def test_chunking_means_nothing(pieces: list[bytes], sizes: list[int], ended: bool, cap: int) -> None:
    data = b"\n".join(pieces) + (b"\n" if ended else b"")
    expected = decode(data, max_event_bytes=cap)
    assert decode(data, sizes, max_event_bytes=cap) == expected
    assert decode(data, [1] * len(data), max_event_bytes=cap) == expected
    numbers = [item.number if isinstance(item, ServerSentEvent) else item.event_number for item in expected]
    assert numbers == list(range(1, len(expected) + 1))
