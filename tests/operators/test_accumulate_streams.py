"""``accumulate``: several streams at once, what it lets go, and whatever may come (WIRE.md §1)."""

from __future__ import annotations

import copy
import gc
import sys
import weakref
from collections.abc import Sequence
from typing import Any

import frames as f
import msgspec
import reactivex
from accumulating import THREE_BLOCKS, events, messages, of, run, stage
from hypothesis import given
from hypothesis import strategies as st
from reactivex.subject import Subject

from turnstream.messages import (
    AssistantMessage,
    ContentBlockDelta,
    ResponseFailed,
    StreamNote,
    Tombstone,
    encode,
    seeded_clock,
    seeded_ids,
)
from turnstream.operators import accumulate, run_stages
from turnstream.operators.accumulate import Accumulator
from turnstream.operators.events import EventParser
from turnstream.operators.sse import SSEDecoder
from turnstream.operators.stage import Fault
from turnstream.testing import record_observable

# -- several streams ---------------------------------------------------------------------------------------


def test_fault_17_state_is_per_subscription() -> None:
    operator = accumulate(ids=seeded_ids(1), clock=seeded_clock())
    one: Subject[Any] = Subject()
    two: Subject[Any] = Subject()
    first, second = record_observable(operator(one)), record_observable(operator(two))
    left = events(f.start("a"), f.says("left"), f.turn(), f.STOP)
    right = events(f.start("b"), f.opens_thinking(0), f.thinks(0, "right"), f.closes(0), f.turn("max_tokens"), f.STOP)
    for number in range(max(len(left), len(right))):
        for subject, flat in ((one, left), (two, right)):
            if number < len(flat):
                subject.on_next([flat[number]])
    one.on_completed()
    two.on_completed()
    assert [m.message["content"] for m in messages(first.items)] == [[f.text_block("left")]]
    assert [m.message["content"] for m in messages(second.items)] == [[f.thinking_block("right")]]
    for seen in (first, second):
        assert not of(seen.items, ResponseFailed, StreamNote, Tombstone)
        assert seen.completed


def test_a_second_subscription_starts_afresh() -> None:
    source = reactivex.of(events(f.start(), f.opens_text(0), f.text(0, "half")))
    observable = accumulate(ids=seeded_ids(1), clock=seeded_clock())(source)
    for _ in range(2):
        items = record_observable(observable).items
        assert [m.message["content"] for m in messages(items)] == [[f.text_block("half")]]


def test_a_finished_stage_is_freed_at_once() -> None:
    # Two thousand short answers, each with a chain of its own: no reference cycle may keep them.
    accumulator: Accumulator | None = stage()
    assert accumulator is not None
    accumulator.feed(events(*THREE_BLOCKS))
    ref = weakref.ref(accumulator)
    gc.disable()
    try:
        accumulator = None
        assert ref() is None
    finally:
        gc.enable()


def test_an_ended_answer_is_let_go() -> None:
    parser, decoder, accumulator = EventParser(), SSEDecoder(), stage()
    out = accumulator.feed(parser.feed(decoder.feed([f.sse(*THREE_BLOCKS)])))
    message = messages(out)[0]
    assert sys.getrefcount(message) > 2
    del out
    assert sys.getrefcount(message) == 2, "only the variable here and the argument hold it"


# -- anything goes -----------------------------------------------------------------------------------------

INDEX = st.none() | st.integers(-1, 2) | st.just(0)
PAYLOADS = st.one_of(
    st.sampled_from(["a", "b", None, ""]).map(f.start),
    st.builds(lambda c: f.start("w", content=c), st.sampled_from(["", "text", None, 5, [5, {}], [f.text_block("x")]])),
    st.builds(f.opens_text, INDEX),
    st.builds(f.opens_thinking, INDEX),
    st.builds(f.opens_tool, INDEX),
    st.builds(lambda i: f.opens(i, "redacted_thinking", data="d"), INDEX),
    st.builds(lambda i: f.opens(i, "vendor"), INDEX),
    st.builds(f.text, INDEX, st.sampled_from(["", "a", "b"])),
    st.builds(f.thinks, INDEX, st.sampled_from(["", "c"])),
    st.builds(f.args, INDEX, st.sampled_from(["", '{"a":', "1}", "{}"])),
    st.builds(f.signs, INDEX, st.just("s")),
    st.builds(lambda i: f.cites(i, {"n": 1}), INDEX),
    st.builds(lambda i: f.delta(i, "compaction_delta", content="c"), INDEX),
    st.builds(lambda i: f.delta(i, "vendor_delta"), INDEX),
    st.builds(f.closes, INDEX),
    st.builds(f.turn, st.sampled_from([None, "end_turn", "tool_use"])),
    st.just(f.STOP),
    st.just(f.PING),
    st.just(f.fails()),
    st.just({"type": "vendor"}),
)


def text_in(items: Sequence[Any]) -> str:
    """All text deltas' characters that some message, tombstoned or not, or an unapplied delta holds."""
    out = []
    for message in messages(items):
        for block in message.message["content"]:
            out.append(block.get("text") or "")
        for value in message.unapplied_deltas or ():
            out.append(value.get("text") or "")
    return "".join(sorted("".join(out)))


def test_a_refused_delta_of_a_moved_block_passes_once_behind_its_note() -> None:
    items = run(
        f.start(), f.says("a"), f.opens_text(0), f.thinks(0, "x"), f.closes(0), f.thinks(0, "y"), f.turn(), f.STOP
    )
    assert [type(i).__name__ for i in items if isinstance(i, (ContentBlockDelta, StreamNote))] == [
        "ContentBlockDelta",
        "StreamNote",
        "StreamNote",
        "ContentBlockDelta",
        "StreamNote",
        "ContentBlockDelta",
    ]
    assert [i.index for i in items if isinstance(i, ContentBlockDelta)] == [0, 1, 1]


# Streams that are past their beginning find more than those that have to begin by chance.
BEGUN = st.sampled_from(
    [[], [f.start()], [f.start(), f.says("a"), f.opens_text(0)], [f.start(), f.opens_tool(1), f.opens_thinking(0)]]
)
STREAMS = st.builds(lambda begun, rest: [*f.flat((begun,)), *rest], BEGUN, st.lists(PAYLOADS, max_size=20))


@given(STREAMS, st.lists(st.integers(1, 5), max_size=10))
def test_no_stream_whatever_makes_it_crash_and_all_events_pass(payloads: list[Any], sizes: list[int]) -> None:
    flat = events(*payloads)
    before = copy.deepcopy(flat)
    items = run_stages(flat, accumulate(ids=seeded_ids(1), clock=seeded_clock()))
    assert flat == before
    passed = [i for i in items if isinstance(i, msgspec.Struct) and type(i) in {type(e) for e in flat}]
    notes = of(items, StreamNote, ResponseFailed, Tombstone, AssistantMessage)
    assert len(items) == len(flat) + len(notes)
    assert [type(i) for i in passed if i not in notes] == [type(e) for e in flat]
    assert items == run(*payloads, sizes=sizes)
    for item in items:
        encode(item)
    uuids = [m.uuid for m in messages(items)]
    assert len(set(uuids)) == len(uuids)
    tombstoned = [t.message for t in of(items, Tombstone)]
    assert all(any(t is m for m in messages(items)) for t in tombstoned)
    for message in messages(items):
        for block in message.message["content"]:
            assert not (message.is_aborted_mid_stream and block.get("type") == "tool_use")


@given(STREAMS)
def test_strict_is_lenient_up_to_its_fault(payloads: list[Any]) -> None:
    lenient = stage().feed(events(*payloads))
    strict = stage(strict=True).feed(events(*payloads))
    if strict and isinstance(strict[-1], Fault):
        strict = strict[:-1]
    strict_events = [i for i in strict if not isinstance(i, (StreamNote, ResponseFailed))]
    lenient_events = [i for i in lenient if not isinstance(i, (StreamNote, ResponseFailed))]
    assert [type(i) for i in strict_events] == [type(i) for i in lenient_events[: len(strict_events)]]


@given(
    st.lists(st.builds(f.text, st.integers(0, 2) | st.none(), st.text("abc", max_size=3)), max_size=12), st.booleans()
)
def test_no_text_is_lost_whatever_its_index(deltas: list[Any], stopped: bool) -> None:
    items = run(f.start(), f.opens_text(0), *deltas, *([f.turn(), f.STOP] if stopped else []))
    assert text_in(items) == "".join(sorted("".join(d["delta"]["text"] for d in deltas)))
