"""``decode_sse`` against the WHATWG's examples and the web platform tests (eventsource/format-*).

Their streams and what a browser must dispatch are facts of the specification; the sentences are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from turnstream.messages import StreamNote
from turnstream.operators import Fault, lift, run_batches, run_stages
from turnstream.operators.sse import (
    RECORDED_AT,
    Frames,
    ServerSentEvent,
    SSEDecoder,
    decode_sse,
    recorded_comment,
    valid_utf8,
)

BOM = b"\xef\xbb\xbf"


def decode(chunks: bytes | Iterable[bytes], **options: Any) -> list[Any]:
    """All that comes out of a decoder, a batch a chunk."""
    decoder = SSEDecoder(**options)
    out: list[Any] = []
    for chunk in [chunks] if isinstance(chunks, bytes) else chunks:
        out.extend(decoder.feed([chunk]))
    out.extend(decoder.flush())
    return out


def events(stream: bytes, **options: Any) -> list[ServerSentEvent]:
    """The events, the same whole and byte by byte."""
    options.setdefault("final", "discard")
    whole = [item for item in decode(stream, **options) if isinstance(item, ServerSentEvent)]
    bytewise = [item for item in decode([bytes([b]) for b in stream], **options) if isinstance(item, ServerSentEvent)]
    assert whole == bytewise
    return whole


def texts(stream: bytes, **options: Any) -> list[str]:
    return [event.text for event in events(stream, **options)]


def notes(items: Sequence[Any]) -> list[StreamNote]:
    return [item for item in items if isinstance(item, StreamNote)]


# --- the WHATWG's own examples (HTML, "Interpreting an event stream") ----------------------------------


def test_whatwg_example_stock_ticker() -> None:
    assert texts(b"data: YHOO\ndata: +2\ndata: 10\n\n") == ["YHOO\n+2\n10"]


def test_whatwg_example_four_blocks() -> None:
    """A comment; an event with id 1; one whose ``id`` line resets the id; one whose data starts with a space."""
    stream = b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n"
    assert [(e.text, e.id) for e in events(stream + b"\n")] == [
        ("first event", "1"),
        ("second event", ""),
        (" third event", ""),
    ]
    # As printed there, no blank line follows the third.
    assert texts(stream) == ["first event", "second event"]


def test_whatwg_example_two_events_and_an_unfinished_one() -> None:
    """``data`` alone is data: the empty string; two of them are one LF; the last block isn't finished."""
    assert texts(b"data\n\ndata\ndata\n\ndata:") == ["", "\n"]


def test_whatwg_example_space_after_the_colon() -> None:
    first, second = events(b"data:test\n\ndata: test\n\n")
    assert first.data == second.data == b"test"


def test_whatwg_example_named_events() -> None:
    stream = b"event: add\ndata: 73857293\n\nevent: remove\ndata: 2153\n\nevent: add\ndata: 113411\n\n"
    assert [(e.event, e.text) for e in events(stream)] == [("add", "73857293"), ("remove", "2153"), ("add", "113411")]


# --- the web platform tests -----------------------------------------------------------------------------

# name, what the server sends, what arrives
WPT_DATA = [
    # Only the first of the two is at the very start: the other makes its line's field unknown.
    ("format-bom", BOM + b"data:1\n\n" + BOM + b"data:2\n\ndata:3\n\n\n", ["1", "3"]),
    ("format-bom-2", BOM + BOM + b"data:1\n\ndata:2\n\ndata:3\n\n\n", ["2", "3"]),
    (
        "format-comments",
        b"data:1\r:\0\n:\r\ndata:2\n:" + b"x" * 2048 + b"\rdata:3\n:data:fail\r:" + b"x" * 2048 + b"\ndata:4\n\n",
        ["1\n2\n3\n4"],
    ),
    ("format-data-before-final-empty-line", b"retry:1000\ndata:test1\n\nid:test\ndata:test2\n", ["test1"]),
    ("format-field-data", b"data:\n\ndata\ndata\n\ndata:test\n\n\n", ["", "\n", "test"]),
    ("format-field-event-empty", b"event: \ndata:data\n\n\n", ["data"]),
    (
        "format-field-parsing",
        b"data:\0\ndata:  2\rData:1\ndata\0:2\ndata:1\r\0data:4\nda-ta:3\rdata_5\ndata:3\rdata:\r\n data:32\ndata:4\n\n",
        ["\0\n 2\n1\n3\n\n4"],
    ),
    ("format-field-retry-empty", b"retry:1000\nretry\ndata:test\n\n\n", ["test"]),
    (
        "format-field-unknown",
        b"data:test\n data\ndata\nfoobar:xxx\njustsometext\n:thisisacommentyay\ndata:test\n\n",
        ["test\n\ntest"],
    ),
    ("format-leading-space", b"data:\ttest\rdata: \ndata:test\n\n", ["\ttest\n\ntest"]),
    ("format-newlines", b"data:test\r\ndata\ndata:test\r\r\n", ["test\n\ntest"]),
    ("format-null-character", b"data:\0\n\n\n", ["\0"]),
    ("format-utf-8", "data:ok…\n\n\n".encode(), ["ok…"]),
    (
        "event-data",
        b"data:msg\ndata: msg\n\n:\nfalsefield:msg\n\nfalsefield:msg\nData:data\n\ndata\n\ndata:end\n\n",
        ["msg\nmsg", "", "end"],
    ),
]


@pytest.mark.parametrize(("stream", "arrives"), [c[1:] for c in WPT_DATA], ids=[c[0] for c in WPT_DATA])
def test_wpt(stream: bytes, arrives: list[str]) -> None:
    assert texts(stream) == arrives


def test_wpt_format_field_event() -> None:
    """The name counts for its own event only."""
    assert [e.event for e in events(b"event:test\ndata:x\n\ndata:x\n\n")] == ["test", ""]


def test_the_last_name_counts_also_when_it_is_none() -> None:
    stream = b"event: a\nevent: b\ndata: x\n\nevent: a\nevent\ndata: x\n\nevent: a\nevent:\ndata: x\n\n"
    assert [e.event for e in events(stream)] == ["b", "", ""]


def test_an_event_without_data_is_not_dispatched_and_loses_its_name() -> None:
    assert [(e.event, e.text, e.number) for e in events(b"event: lost\n\ndata: x\n\n")] == [("", "x", 1)]


def test_wpt_format_field_id() -> None:
    assert [e.id for e in events("id: …\ndata: hello\n\ndata: x\n\n".encode())] == ["…", "…"]


@pytest.mark.parametrize(
    ("stream", "ids"),
    [
        (b"id: 1\ndata: a\n\ndata: b\n\n", ["1", "1"]),
        (b"id: 1\ndata: a\n\nid: 2\ndata: b\n\ndata: c\n\n", ["1", "2", "2"]),
        (b"id: 1\ndata: a\n\nid:\ndata: b\n\ndata: c\n\n", ["1", "", ""]),
        (b"id: 1\n\ndata: a\n\n", ["1"]),
    ],
    ids=["persists", "changes", "resets", "without-data"],
)
def test_wpt_format_field_id_3(stream: bytes, ids: list[str]) -> None:
    assert [e.id for e in events(stream)] == ids


@pytest.mark.parametrize("value", [b"\0", b"\0x", b"x\0", b"x\0x", b" \0"])
def test_wpt_format_field_id_null(value: bytes) -> None:
    assert [e.id for e in events(b"id: kept\ndata: a\n\nid:" + value + b"\ndata: b\n\n")] == ["kept", "kept"]


@pytest.mark.parametrize(
    ("lines", "retry"),
    [
        (b"retry:3000", 3000),
        (b"retry: 02000", 2000),
        (b"retry:2000\nretry:1000x", 2000),
        (b"retry:1000\nretry", 1000),
        (b"retry:-1", None),
        (b"retry:1.5", None),
        ("retry:１２".encode(), None),
        (b"retry:" + b"9" * 5000, None),
        (b"x:y", None),
    ],
)
def test_wpt_format_field_retry(lines: bytes, retry: int | None) -> None:
    """Digits mean ASCII digits; what Python couldn't read as a number is no number."""
    assert [e.retry for e in events(lines + b"\ndata:x\n\ndata:y\n\n")] == [retry, None]


def test_retry_of_a_block_without_data_belongs_to_the_next_event() -> None:
    assert [e.retry for e in events(b"retry: 7\n\ndata: a\n\ndata: b\n\n")] == [7, None]


# --- numbers, offsets, recorded times --------------------------------------------------------------------


def test_number_and_offset_count_dispatched_events_and_raw_bytes() -> None:
    stream = BOM + b"\n: c\nevent: a\ndata: 1\n\n: alone\n\r\n\r\ndata: 2\r\rdata: 3\n\n"
    assert [(e.number, e.offset) for e in events(stream)] == [
        (1, stream.index(b": c")),
        (2, stream.index(b"data: 2")),
        (3, stream.index(b"data: 3")),
    ]


def test_recorded_at_is_the_last_such_comment_since_the_event_before() -> None:
    stream = (
        b": turnstream at=0.250000\nevent: a\ndata: 1\n\n"
        b"data: 2\n\n"
        b": turnstream at=1.000000\n\n: other\n\n: turnstream at=1.500000\n\ndata: 3\n\n"
        b"data: 4\n: turnstream at=2\n\n"
    )
    assert [e.recorded_at for e in events(stream)] == [0.25, None, 1.5, 2.0]


def test_recorded_comment_is_read_back() -> None:
    line = recorded_comment(12.3456789)
    assert line == b": turnstream at=12.345679\n"
    assert [float(at) for at in RECORDED_AT.findall(line + b"data: 1\n\n" + recorded_comment(13))] == [12.345679, 13.0]
    assert [e.recorded_at for e in events(line + b"data: 1\n\n")] == [12.345679]


@pytest.mark.parametrize("value", [b"", b"x", b"1e400", b"-1", b"1" * 13, b"1.0 "])
def test_recorded_comment_that_is_none(value: bytes) -> None:
    assert [e.recorded_at for e in events(b": turnstream at=" + value + b"\ndata: 1\n\n")] == [None]


# --- invalid UTF-8 ---------------------------------------------------------------------------------------


def test_invalid_utf8_becomes_u_fffd_and_is_counted() -> None:
    (event,) = events(b"id: \xff\nevent: \xfe\ndata: a\xe2\x82z\xff\n\n")
    assert (event.text, event.replaced, event.event, event.id) == ("a\ufffdz\ufffd", 2, "\ufffd", "\ufffd")


def test_frames_keep_the_bytes_and_repair_the_events() -> None:
    frames = SSEDecoder().feed([b"data: \xff\n\n"])
    assert isinstance(frames, Frames)
    assert frames.payloads == [b"\xff"]
    assert (frames[0].data, frames[0].replaced) == ("\ufffd".encode(), 1)


@pytest.mark.parametrize(
    ("payload", "repaired", "count"),
    [
        (b"plain", "plain", 0),
        ("ok… ✅".encode(), "ok… ✅", 0),
        ("sent \ufffd".encode(), "sent \ufffd", 0),
        (b"\xf0\xef\xbf\xbd", "\ufffd\ufffd", 1),
        # One sequence per maximal part, a surrogate is three (Unicode 15, table 3-8).
        (b"\xf0\x9f\x98", "\ufffd", 1),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd", 3),
        (b"\xc0\xaf", "\ufffd\ufffd", 2),
    ],
)
def test_valid_utf8(payload: bytes, repaired: str, count: int) -> None:
    assert valid_utf8(payload) == (repaired.encode(), count)


# --- when an event leaves --------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [b"", b"data: 0\n\n", b"data: 0\r\n\r\n", b"data: 0\r\r"])
@pytest.mark.parametrize("ends", [(b"\n", b"\n"), (b"\n", b"\r"), (b"\r", b"\r"), (b"\r\n", b"\n"), (b"\r\n", b"\r")])
def test_an_event_leaves_with_the_byte_that_completes_it(before: bytes, ends: tuple[bytes, bytes]) -> None:
    """A CR ends the blank line at once; the LF that may follow it belongs to nothing."""
    stream = before + b"event: a\ndata: 1" + ends[0] + ends[1]
    assert [e.data for e in SSEDecoder().feed([stream])][-1:] == [b"1"]
    decoder = SSEDecoder()
    assert b"1" not in [e.data for e in decoder.feed([stream[:-1]])]
    assert [e.data for e in decoder.feed([stream[-1:]])] == [b"1"]


# --- the end of the stream -------------------------------------------------------------------------------

OPEN = b'data: {"a":1}\n\nevent: last\ndata: {"b":2}'


@pytest.mark.parametrize("end", [b"", b"\n", b"\r", b"\r\n", b"\nda", b"\n: c\n"])
def test_final_if_json_dispatches_a_last_event_that_parses(end: bytes) -> None:
    last = events(OPEN + end, final="if_json")[-1]
    assert (last.event, last.data, last.number, last.offset) == ("last", b'{"b":2}', 2, OPEN.index(b"event"))


def test_final_if_json_drops_what_does_not_parse_and_says_so() -> None:
    (note,) = notes(decode(OPEN[:-1]))
    assert (note.kind, note.event_number, note.byte_offset) == ("unterminated_event", 2, OPEN.index(b"event"))


def test_final_discard_drops_it_whatever_it_is() -> None:
    assert texts(OPEN) == ['{"a":1}']
    assert [note.kind for note in notes(decode(OPEN, final="discard"))] == ["unterminated_event"]


@pytest.mark.parametrize("stream", [b"", BOM, b"\n\r\n", b": keep-alive\n", b"id: 42\nevent: message_delta\ndata: "])
def test_nothing_was_lost_and_nothing_is_said(stream: bytes) -> None:
    """Comments, an id, an empty data line: neither an event nor a loss."""
    assert decode(stream) == decode([bytes([b]) for b in stream]) == []


def test_an_unterminated_done_is_no_loss() -> None:
    assert notes(decode(b"data: 1\n\ndata: [DONE]\n")) == []


def test_fail_keeps_a_last_event_that_is_whole() -> None:
    decoder = SSEDecoder()
    assert len(decoder.feed([OPEN])) == 1
    assert [item.data for item in decoder.fail(ConnectionError()) if isinstance(item, ServerSentEvent)] == [b'{"b":2}']


def test_flush_twice_gives_nothing_more() -> None:
    decoder = SSEDecoder()
    decoder.feed([b"<html>\n\ndata: x"])
    assert {note.kind for note in notes(decoder.flush())} == {"not_sse", "unterminated_event"}
    assert list(decoder.flush()) == []


# --- not an event stream ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "count", "first"),
    [
        (b"<html>\n<body>busy</body>\n</html>\n", 3, "<html>"),
        (b"upstream connect error", 1, "upstream connect error"),
        (b'{"type":"message"}\n\n{"type":"ping"}\r\n', 2, '{"type":"message"}'),
        ("é".encode("utf-16"), 1, "\ufffd\ufffd"),
        (b"x" * 5000, 1, "x" * 60),
    ],
)
def test_not_sse(body: bytes, count: int, first: str) -> None:
    for chunks in ([body], [bytes([b]) for b in body]):
        (note,) = decode(chunks)
        assert note.kind == "not_sse"
        assert f"({count})" in note.message
        assert f"'{first}" in note.message
        assert len(note.message) < 200


def test_unknown_lines_beside_events_are_ignored() -> None:
    assert notes(decode(b"<html>\n\ndata: 1\n\n")) == []


# --- the interface ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_chunks_of_all_kinds_of_bytes(kind: Any) -> None:
    stream = b"event: a\ndata: 1\n\nevent: b\ndata: 2\n\n"
    chunks = [kind(stream[:20]), kind(stream[20:])]
    wanted = events(stream)
    assert run_stages(chunks, decode_sse()) == wanted
    assert [item for batch in run_batches([[chunk] for chunk in chunks], decode_sse()) for item in batch] == wanted


def test_a_chunk_that_changes_later_does_not_matter() -> None:
    chunk = bytearray(b"data: 1\n\ndata: 2")
    decoder = SSEDecoder()
    first = decoder.feed([chunk])
    chunk[:] = b"x" * len(chunk)
    assert [e.data for e in [*first, *decoder.flush()] if isinstance(e, ServerSentEvent)] == [b"1", b"2"]


@pytest.mark.parametrize("wrong", ["data: 1\n\n", 7, None])
def test_text_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError):
        run_stages([wrong], decode_sse())


@pytest.mark.parametrize(
    "options", [{"final": "keep"}, {"max_event_bytes": 0}, {"max_event_bytes": -1}], ids=["final", "zero", "negative"]
)
def test_bad_arguments_are_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"final|max_event_bytes"):
        decode_sse(**options)


def test_each_use_has_its_own_state() -> None:
    operator = decode_sse()
    assert run_stages([b"id: 1\ndata: a\n\ndata: op"], operator)[0].number == 1
    (event,) = run_stages([b"data: b\n\n"], operator)
    assert (event.number, event.offset, event.id) == (1, 0, "")


def test_events_go_on_into_the_next_stage() -> None:
    class Texts:
        def feed(self, batch: Sequence[ServerSentEvent | StreamNote], /) -> Sequence[str | Fault]:
            return [item.text for item in batch if isinstance(item, ServerSentEvent)]

        def flush(self) -> Sequence[str | Fault]:
            return ()

        def fail(self, error: Exception, /) -> Sequence[str | Fault]:
            return ()

    assert run_stages([b"data: 1\n\n", b"data: 2\n\n"], decode_sse(), lift(Texts)) == ["1", "2"]


# --- frames ----------------------------------------------------------------------------------------------

RUNS = [
    ("named", b"event: a\ndata: 1\n\nevent:b\ndata:2\n\n"),
    ("bare", b"data: 1\n\ndata:  2\n\n"),
    ("mixed", b"data: 1\n\nevent: b\ndata:\n\ndata: 3\n\n"),
    ("comments", b": x\n\n:\n\nevent: a\ndata: 1\n\n: y\n\n\n: z\ndata: 2\n\n: w\n\n"),
    ("recorded", b": turnstream at=0.5\nevent: a\ndata: 1\n\n: turnstream at=1\n\nevent: b\ndata: 2\n\ndata: 3\n\n"),
    ("blank-lines", b"\n\ndata: 1\n\n\n\ndata: 2\n\n"),
]


@pytest.mark.parametrize("stream", [run[1] for run in RUNS], ids=[run[0] for run in RUNS])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
def test_plain_runs_are_lazy_and_the_same(stream: bytes, end: bytes) -> None:
    stream = stream.replace(b"\n", end)
    decoder = SSEDecoder()
    before = decoder.feed([b"id: 9\ndata: 0\n\n"])
    frames = decoder.feed([stream + b"data: op"])
    assert isinstance(frames, Frames)
    # The exact path: the blocks go one byte at a time, so none is whole in a chunk.
    exact = decode([bytes([b]) for b in b"id: 9\ndata: 0\n\n" + stream], final="discard")
    assert list(before) + list(frames) == exact
    assert frames.payloads == [event.data for event in exact[1:]]
    assert frames.head + b"data: op" == stream + b"data: op"
    for position, event in enumerate(exact[1:]):
        assert frames[position] == event
        assert frames.name(position) == event.event
        assert frames.offset(position) == event.offset
        assert frames.number(position) == event.number


def test_frames_are_a_sequence() -> None:
    frames = SSEDecoder().feed([b"data: 1\n\ndata: 2\n\ndata: 3\n\n"])
    assert isinstance(frames, Frames)
    assert isinstance(frames, Sequence)
    assert len(frames) == 3
    first, second, third = frames
    assert frames[-1] is third
    assert frames.number(-1) == 3
    assert list(frames[1:]) == [second, third]
    assert list(reversed(frames)) == [third, second, first]
    assert second in frames
    assert (frames.index(second), frames.count(second)) == (1, 1)
    with pytest.raises(IndexError):
        frames.number(3)
    with pytest.raises(ValueError, match="not in list"):
        frames.index(None)


@pytest.mark.parametrize(
    "stream",
    [
        b"data: 1\ndata: 2\n\n",
        b"id: 1\ndata: 1\n\n",
        b"retry: 1\ndata: 1\n\n",
        b"event: a\nid: 1\n\ndata: 1\n\n",
        b"event: a\n\ndata: 1\n\n",
        b"Event: a\ndata: 1\n\n",
        b"xevent: a\ndata: 1\n\n",
        b"event: a\nxdata: 1\n\n",
        b"data\n\n",
        b"event\ndata: 1\n\n",
        b"data: 1\rdata: 2\n\n",
        b"data: 1\r\n\n",
        b"data: 1\nx\r\n\r\n",
        b": turnstream at=1\n\n",
        b"data: 1\n\n: turnstream at=1\n\n",
        b"data: 1\r\n\r\n: turnstream at=1\r\n\r\n",
        BOM + b"data: 1\n\n",
    ],
)
def test_what_is_not_plain_takes_the_exact_path(stream: bytes) -> None:
    assert not isinstance(SSEDecoder().feed([stream]), Frames)


def test_the_fast_path_comes_back_after_an_odd_block() -> None:
    decoder = SSEDecoder()
    assert not isinstance(decoder.feed([b"retry: 5\n\n"]), Frames)
    assert not isinstance(decoder.feed([b"data: the retry's\n\n"]), Frames)
    assert isinstance(decoder.feed([b"data: plain\n\n"]), Frames)
