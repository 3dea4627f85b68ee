"""``parse_events``: payloads to typed events, surprises included (WIRE.md §1, events and tool input)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import frames as f
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstream.messages import (
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    ErrorEvent,
    EventError,
    InputJsonDelta,
    MessageStart,
    MessageStop,
    Ping,
    StreamNote,
    TextDelta,
    ThinkingDelta,
    UnknownDelta,
    UnknownEvent,
    event_to_wire,
)
from turnstream.operators import decode_sse, parse_events, run_batches, run_stages
from turnstream.operators.events import EventParser, Parsed
from turnstream.operators.sse import SSEDecoder


def parse(*parts: Any, strict: bool = False, sizes: Sequence[int] = ()) -> list[Any]:
    """Frames (or raw wire bytes) through decode_sse and parse_events, cut at ``sizes``."""
    data = f.sse(*parts)
    chunks, at = [], 0
    for size in sizes:
        chunks.append([data[at : at + size]])
        at += size
    chunks.append([data[at:]])
    out: list[Any] = []
    for batch in run_batches(chunks, decode_sse() | parse_events(strict=strict)):
        out.extend(batch)
    return out


def text(words: str, index: int | None = 0) -> ContentBlockDelta:
    return ContentBlockDelta(delta=TextDelta(words), index=index)


def raw(payload: bytes, name: str | None = None) -> bytes:
    return f.frame(payload, name=name)


# -- ordinary events ---------------------------------------------------------------------------------


def test_events_come_typed_in_order() -> None:
    items = parse(f.start(), f.PING, f.says("hi"), f.turn(), f.STOP)
    assert [event_to_wire(item) for item in items] == [f.start(), f.PING, *f.says("hi"), f.turn(), f.STOP]
    assert isinstance(items[0], MessageStart)


def test_white_space_in_payloads_means_nothing() -> None:
    assert parse(raw(b'  { "type" :\t"ping" }   '), raw(b'{"type": "message_stop"  }')) == [Ping(), MessageStop()]


def test_the_json_type_decides_and_the_name_is_the_fallback() -> None:
    assert parse(raw(b'{"type":"ping"}', "message_stop")) == [Ping()]
    assert parse(raw(b'{"index":1}', "content_block_stop")) == [ContentBlockStop(index=1)]
    assert parse(raw(b'{"a":1}', "vendor")) == [UnknownEvent("vendor", {"a": 1})]
    assert parse(raw(b'{"a":1}')) == [UnknownEvent(None, {"a": 1})]
    assert parse(raw(b'{"error":{"type":"x"}}', "message")) == [ErrorEvent(error={"type": "x"})]


def test_unknown_keys_give_the_same_class_with_extra() -> None:
    payload = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a", "b": 1}, "c": 2}
    expected = ContentBlockDelta(delta=TextDelta("a", extra={"b": 1}), index=0, extra={"c": 2})
    assert parse(payload, f.PING) == [expected, Ping()]
    unknown = f.delta(0, "vendor_delta", x=1)
    assert parse(unknown) == [ContentBlockDelta(delta=UnknownDelta("vendor_delta", unknown["delta"]), index=0)]


@pytest.mark.parametrize("done", [f.DONE, b"data:[DONE]\n\n", b"event: done\ndata:  [DONE] \n\n"])
@pytest.mark.parametrize("strict", [False, True])
def test_done_is_ignored(done: bytes, strict: bool) -> None:
    assert parse(f.PING, done, f.STOP, done, strict=strict) == [Ping(), MessageStop()]


def test_big_integers_keep_their_digits() -> None:
    (event,) = parse(f.opens(0, "tool_use", input={"n": 2**70}))
    assert event.content_block["input"] == {"n": 2**70}


def test_notes_of_the_decoder_pass() -> None:
    note = StreamNote(kind="event_too_large", message="m", event_number=1, byte_offset=0)
    assert run_stages([note], parse_events()) == [note]


def test_one_odd_payload_does_not_change_its_neighbours() -> None:
    plain = parse(f.start(), f.says("a"), f.STOP)
    mixed = parse(f.start(), raw(b"{broken"), f.says("a"), f.STOP)
    assert [i for i in mixed if not isinstance(i, StreamNote)] == plain


# -- broken payloads ---------------------------------------------------------------------------------

BROKEN = [b"{", b"", b"nope", b'"text"', b"[1]", b"null", b"true", b"7", b'{"a":1}{"b":2}', b'{"a":NaN}']


@pytest.mark.parametrize("payload", BROKEN)
def test_a_broken_payload_is_noted_with_its_place(payload: bytes) -> None:
    first = f.frame(f.PING)
    items = parse(first, raw(payload), f.STOP)
    assert [type(item) for item in items] == [Ping, StreamNote, MessageStop]
    note = items[1]
    assert (note.kind, note.event_number, note.byte_offset) == ("event_error", 2, len(first))


@pytest.mark.parametrize(
    "payload",
    [
        *BROKEN,
        b'{"type":"content_block_start","index":0}',
        b'{"type":"ping","x":"\xff"}',
        b'{"type":"ping","x":1e400}',
    ],
)
def test_strict_ends_with_an_event_error_after_what_came_before(payload: bytes) -> None:
    out: list[Any] = []
    batches = run_batches([[f.sse(f.PING, raw(payload), f.STOP)]], decode_sse() | parse_events(strict=True))
    with pytest.raises(EventError) as caught:
        out.extend(item for batch in batches for item in batch)
    assert out == [Ping()]
    assert caught.value.event_number == 2
    assert caught.value.byte_offset == len(f.frame(f.PING))


def test_the_note_says_what_the_payload_is() -> None:
    for payload, word in (
        (b"[1]", "array"),
        (b"null", "null"),
        (b"1", "number"),
        (b'"a"', "string"),
        (b"true", "boolean"),
    ):
        assert word in parse(raw(payload))[0].message


def test_a_block_start_without_its_block_is_an_event_error() -> None:
    (note,) = parse({"type": "content_block_start", "index": 0})
    assert note.kind == "event_error"


@pytest.mark.parametrize(
    "payload", ['{"type":"x","n":1e400}', '{"type":"x","n":' + "9" * 5000 + "}", '{"a":' * 300 + "1" + "}" * 300]
)
def test_valid_json_that_no_value_holds_is_kept_as_text(payload: str) -> None:
    note, event = parse(raw(payload.encode(), "vendor"))
    assert note.kind == "unheld_payload"
    assert event == UnknownEvent("vendor", payload)


def test_invalid_utf8_is_replaced_and_counted() -> None:
    items = parse(
        f.PING, raw(b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\xff\xfeb"}}')
    )
    assert items[2] == text("a\ufffd\ufffdb")
    assert (items[1].kind, items[1].event_number) == ("invalid_utf8", 2)
    assert "2" in items[1].message


# -- half surrogate pairs ----------------------------------------------------------------------------

HIGH, LOW = "\ud83d", "\ude00"  # 😀


def escaped(payload: Any) -> bytes:
    return f.frame(json.dumps(payload).encode(), name=None)


def joined(items: list[Any], index: int = 0, cls: type = TextDelta) -> str:
    field = {TextDelta: "text", ThinkingDelta: "thinking", InputJsonDelta: "partial_json"}[cls]
    return "".join(
        getattr(i.delta, field)
        for i in items
        if isinstance(i, ContentBlockDelta) and i.index == index and isinstance(i.delta, cls)
    )


def assert_whole(items: list[Any]) -> None:
    for item in items:
        json.dumps(event_to_wire(item), ensure_ascii=False).encode()


@pytest.mark.parametrize("sizes", [(), (1,) * 500, (7,) * 80])
def test_a_pair_split_over_two_deltas_is_joined(sizes: Sequence[int]) -> None:
    items = parse(escaped(f.text(0, "a" + HIGH)), escaped(f.text(0, LOW + "b")), sizes=sizes)
    assert items == [text("a"), text("😀b")]


@pytest.mark.parametrize(
    ("make", "cls"),
    [(f.text, TextDelta), (f.thinks, ThinkingDelta), (f.args, InputJsonDelta)],
    ids=["text", "thinking", "json"],
)
def test_every_appended_kind_is_held_back(make: Any, cls: type) -> None:
    items = parse(escaped(make(0, "a" + HIGH)), escaped(make(0, LOW)))
    assert_whole(items)
    assert joined(items, 0, cls) == "a😀"


def test_the_half_waits_over_empty_deltas_pings_and_other_blocks() -> None:
    items = parse(
        escaped(f.text(0, "a" + HIGH)),
        escaped(f.text(0, "")),
        f.PING,
        escaped(f.text(1, "x" + HIGH)),
        f.turn(),
        escaped(f.text(1, LOW)),
        escaped(f.text(0, LOW + "b")),
    )
    assert_whole(items)
    assert joined(items, 0) == "a😀b"
    assert joined(items, 1) == "x😀"


def test_kinds_of_one_block_are_held_apart() -> None:
    items = parse(escaped(f.text(0, HIGH)), escaped(f.thinks(0, LOW)), escaped(f.text(0, LOW)))
    assert_whole(items)
    assert joined(items, 0) == "😀"
    assert joined(items, 0, ThinkingDelta) == "\ufffd"


@pytest.mark.parametrize(
    "end",
    [f.closes(0), f.STOP, f.fails(), f.start("msg_b"), {"type": "content_block_stop"}, f.opens_text(0)],
    ids=["stop", "message_stop", "error", "start", "stop without index", "block start"],
)
def test_a_half_that_stays_alone_is_given_out_before_what_ends_its_block(end: Any) -> None:
    items = parse(escaped(f.text(0, "a" + HIGH)), end)
    assert items[:2] == [text("a"), text("\ufffd")]
    assert len(items) == 3


def test_a_stop_of_another_block_releases_nothing() -> None:
    items = parse(escaped(f.text(0, "a" + HIGH)), f.closes(1), escaped(f.text(0, LOW)))
    assert items == [text("a"), ContentBlockStop(index=1), text("😀")]


@pytest.mark.parametrize("how", ["flush", "fail"])
def test_the_end_of_the_stream_gives_a_held_half_out(how: str) -> None:
    parser = EventParser()
    events = SSEDecoder().feed([escaped(f.text(3, "a" + HIGH))])
    assert list(parser.feed(events)) == [text("a", 3)]
    assert list(parser.flush() if how == "flush" else parser.fail(RuntimeError())) == [text("\ufffd", 3)]
    assert list(parser.flush()) == []


def test_lone_halves_elsewhere_become_replacement_characters() -> None:
    dirty = "x" + LOW + HIGH + "y"
    payloads = [
        {**f.start(), "vendor\ud800": dirty},
        f.opens(0, "text", text=dirty, more=[{dirty: dirty}]),
        f.text(0, dirty),
        {**f.text(0, "a"), "extra": [dirty]},
        f.delta(0, "text_delta", text="b", unknown=dirty),
        f.signs(0, dirty),
        f.cites(0, {"cited_text": dirty, "list": [dirty]}),
        f.delta(0, "vendor_delta", a=dirty),
        f.turn(dirty),
        {"type": "message_delta", "context_management": [dirty]},
        f.fails("x", dirty),
        {"type": "error", "error": [dirty]},
        {"type": "vendor", "a": dirty},
    ]
    items = parse(*(escaped(p) for p in payloads))
    assert len(items) == len(payloads)
    assert_whole(items)
    assert items[2] == text("x\ufffd\ufffdy")


@given(
    st.text(st.sampled_from(["a", "ä", "😀", "\u2028"]), min_size=1, max_size=12),
    st.lists(st.integers(0, 30), max_size=8),
    st.lists(st.integers(1, 90), max_size=6),
)
def test_text_cut_anywhere_between_utf16_units_arrives_whole(words: str, cuts: list[int], sizes: list[int]) -> None:
    units = words.encode("utf-16-le")
    halves = [units[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(units), 2)]
    borders = sorted({min(cut, len(halves)) for cut in cuts} | {0, len(halves)})
    pieces = ["".join(halves[a:b]) for a, b in itertools.pairwise(borders)]
    items = parse(f.start(), f.opens_text(0), *(escaped(f.text(0, p)) for p in pieces), f.closes(0), sizes=sizes)
    assert_whole(items)
    assert joined(items) == words
    assert sum(isinstance(i, ContentBlockDelta) for i in items) == len(pieces), "a delta was invented"


# -- places ------------------------------------------------------------------------------------------


def located(data: bytes, sizes: Sequence[int]) -> list[tuple[Any, tuple[int, int]]]:
    decoder, parser = SSEDecoder(), EventParser()
    out: list[tuple[Any, tuple[int, int]]] = []
    at = 0
    for size in (*sizes, len(data)):
        events = decoder.feed([data[at : at + size]])
        at += size
        if events:
            parsed = parser.feed(events)
            assert isinstance(parsed, Parsed)
            out += [(item, parsed.locate(position)) for position, item in enumerate(parsed)]
    return out


@pytest.mark.parametrize("sizes", [(), (1,) * 2000, (10,) * 200, (333, 1)])
def test_every_item_knows_its_event_number_and_byte_offset(sizes: Sequence[int]) -> None:
    parts = [
        f.frame(f.start()),
        b": a comment\n",
        f.frame(f.opens_text(0)),
        f.frame(b"{broken"),
        f.DONE,
        escaped(f.text(0, "a" + HIGH)),
        escaped(f.text(0, "b")),
        f.frame({**f.PING, "x": 1}),
        f.frame(f.STOP),
    ]
    data = b"".join(parts)
    starts = [0]
    for part in parts:
        starts.append(starts[-1] + len(part))
    # The comment belongs to the block of the event behind it; [DONE] counts as an event without an item.
    expected = [
        (MessageStart, (1, starts[0])),
        (ContentBlockStart, (2, starts[1])),
        (StreamNote, (3, starts[3])),
        (ContentBlockDelta, (5, starts[5])),
        (ContentBlockDelta, (6, starts[6])),
        (Ping, (7, starts[7])),
        (MessageStop, (8, starts[8])),
    ]
    assert [(type(item), place) for item, place in located(data, sizes)] == expected


@pytest.mark.parametrize("before", [b"", b": a comment\n\nretry: 1\n\n"], ids=["plain", "exact path"])
def test_invalid_utf8_is_noted_also_where_the_payload_is_broken(before: bytes) -> None:
    items = parse(before, raw(b'{"type":\xff'), f.PING)
    assert [item.kind for item in items if isinstance(item, StreamNote)] == ["invalid_utf8", "event_error"]
    assert isinstance(items[-1], Ping)


def test_strict_fault_leaves_nothing_behind_it() -> None:
    parser = EventParser(strict=True)
    out = parser.feed(SSEDecoder().feed([f.sse(f.PING, raw(b"{"), f.STOP)]))
    assert [type(item).__name__ for item in out] == ["Ping", "Fault"]


def test_what_is_parsed_is_a_sequence() -> None:
    parsed = EventParser().feed(SSEDecoder().feed([f.sse(f.PING, f.STOP, f.PING)]))
    assert isinstance(parsed, Sequence)
    assert (len(parsed), parsed[0], parsed[-1], list(parsed[1:])) == (3, Ping(), Ping(), [MessageStop(), Ping()])
    assert (MessageStop() in parsed, parsed.index(MessageStop()), parsed.count(Ping())) == (True, 1, 2)
    assert list(reversed(parsed)) == [Ping(), MessageStop(), Ping()]


def test_a_forged_payload_is_never_two_events() -> None:
    """Payloads are decoded one by one: joined by commas, these would read as whole events (WIRE.md §1)."""
    from turnstream.messages import Ping, StreamNote

    forged = [
        b'{"type":"ping"},{"type":"ping"}',
        b'{"type":"ping"}, 7',
        b'{"type":"ping","x":[1',
        b"2]}",
        b'{"type":"ping"}]',
    ]
    data = b"".join(b"event: ping\ndata: " + payload + b"\n\n" for payload in (b'{"type":"ping"}', *forged))
    items = run_stages([data], decode_sse(), parse_events())
    assert [type(item) for item in items] == [Ping, *[StreamNote] * len(forged)]
    assert {item.kind for item in items if isinstance(item, StreamNote)} == {"event_error"}
