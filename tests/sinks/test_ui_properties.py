"""What must hold for any stream: batches don't matter, nothing twice, a snapshot is enough to go on."""

from __future__ import annotations

from typing import Any

import frames as f
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from ui_items import events, factory, texts_of

from turnstream.messages import (
    AssistantMessage,
    RequestStart,
    StreamNote,
    event_from_wire,
    seeded_clock,
    seeded_ids,
)
from turnstream.operators.accumulate import accumulate
from turnstream.operators.settle import settle
from turnstream.operators.stage import run_stages
from turnstream.sinks.ui import UIState

INDEX = st.sampled_from([0, 0, 0, 1, 2, None])
WORDS = st.sampled_from(["", "a", "**", "the same", "the same", "é\n", "\r", "\r\n"])

PAYLOADS = st.one_of(
    st.builds(f.opens_text, INDEX),
    st.builds(f.opens_thinking, INDEX),
    st.builds(f.opens_tool, INDEX),
    st.builds(f.opens, INDEX, st.sampled_from(["redacted_thinking", "web_search_tool_result", "new"])),
    st.builds(f.text, INDEX, WORDS),
    st.builds(f.text, INDEX, WORDS),
    st.builds(f.thinks, INDEX, WORDS),
    st.builds(f.args, INDEX, WORDS),
    st.builds(f.signs, INDEX, WORDS),
    st.builds(f.closes, INDEX),
    st.builds(f.closes, INDEX),
    st.builds(f.start, st.sampled_from(["msg_a", "msg_b", None])),
    st.builds(f.turn, st.sampled_from(["end_turn", "tool_use", None])),
    st.just(f.STOP),
    st.just(f.PING),
    st.just(f.fails()),
)
# Runs of deltas, so that the whole-batch way is taken.
RUNS = st.lists(
    st.one_of(
        PAYLOADS.map(lambda p: [p]),
        st.tuples(st.sampled_from([f.text, f.thinks, f.args]), INDEX, st.lists(WORDS, min_size=4, max_size=9)).map(
            lambda run: [run[0](run[1], words) for words in run[2]]
        ),
    ),
    max_size=40,
)
OTHERS = ["request", "user", "tick", "boundary"]


def to_items(runs: list[list[dict[str, Any]]], others: list[tuple[int, str]], settled: bool) -> list[Any]:
    make = factory(3)
    items: list[Any] = [event_from_wire(payload) for run in runs for payload in run]
    for place, kind in others:
        other: Any = RequestStart()
        if kind == "user":
            other = make.user("words")
        elif kind == "tick":
            other = make.progress("p", "t", {"type": "bash_progress"})
        elif kind == "boundary":
            other = make.system("compact_boundary", "Conversation compacted")
        items.insert(place % (len(items) + 1), other)
    chain = accumulate(ids=seeded_ids(4), clock=seeded_clock())
    return run_stages(items, chain | settle() if settled else chain)


STREAMS = st.builds(
    to_items, RUNS, st.lists(st.tuples(st.integers(0, 200), st.sampled_from(OTHERS)), max_size=5), st.booleans()
)


def cut(items: list[Any], cuts: list[int]) -> list[list[Any]]:
    places = sorted({c % (len(items) + 1) for c in cuts})
    return [items[a:b] for a, b in zip([0, *places], [*places, len(items)], strict=True)]


@settings(max_examples=150, deadline=None)
@given(STREAMS, st.lists(st.integers(0, 300), max_size=12))
def test_batches_do_not_matter(items: list[Any], cuts: list[int]) -> None:
    whole, single, some = UIState(), UIState(), UIState()
    whole.apply(items)
    for item in items:
        single.apply([item])
    for batch in cut(items, cuts):
        some.apply(batch)
    assert single.snapshot() == whole.snapshot()
    assert some.snapshot() == whole.snapshot()


@settings(max_examples=150, deadline=None)
@given(STREAMS)
def test_nothing_is_ever_shown_twice(items: list[Any]) -> None:
    """Whatever a block's text is, streamed and finished copies of it never stand side by side."""
    state = UIState()
    # (message id, attempt) of an open answer's blocks are told by serial: a finished one names its serials.
    for item in items:
        state.apply([item])
        snapshot = state.snapshot()
        open_now = {block.serial for block in snapshot.blocks}
        finished = [serial for entry in snapshot.items for serial in entry.streams if serial]
        assert open_now.isdisjoint(finished)
        assert len(finished) == len(set(finished))
        uuids = [entry.message.uuid for entry in snapshot.items if isinstance(entry.message, AssistantMessage)]
        assert len(uuids) == len(set(uuids))


@settings(max_examples=150, deadline=None)
@given(STREAMS)
@example(
    # After a request, indexes are another answer's, also where no start says so.
    to_items(
        [[f.opens_text(0), f.opens_text(1), f.text(0, "a"), f.opens_text(1), f.text(0, "a")]],
        [(0, "request"), (3, "request")],
        False,
    )
)
def test_a_finished_message_says_what_its_stream_said(items: list[Any]) -> None:
    """The text shown doesn't change when a message takes a stream's place."""
    # A reused index makes what is passed unapplied ambiguous: it keeps the wire's index, which another block has.
    assume(not any(isinstance(item, StreamNote) and item.kind == "index_reused" for item in items))
    state = UIState()
    for item in items:
        before = {block.serial: block for block in state.snapshot().blocks}
        state.apply([item])
        if isinstance(item, AssistantMessage) and state.snapshot().items:
            entry = state.snapshot().items[-1]
            for serial, block in zip(entry.streams, item.message["content"], strict=False):
                if serial and before[serial].type in ("text", "thinking"):
                    assert block[before[serial].type] == before[serial].text


@settings(max_examples=100, deadline=None)
@given(STREAMS)
def test_fault_81_starts_and_ends_are_balanced_at_the_end(items: list[Any]) -> None:
    state = UIState()
    state.apply(items)
    assert not state.answering, "accumulate's flush ends every answer"
    assert state.snapshot().blocks == ()
    assert state.blocks_opened == state.blocks_closed


@settings(max_examples=150, deadline=None)
@given(STREAMS, st.integers(0, 300))
def test_a_late_joiner_goes_on_from_a_snapshot(items: list[Any], place: int) -> None:
    """FAULTS 113: a snapshot instead of a replay of deltas; the same after a resync."""
    place %= len(items) + 1
    state = UIState()
    state.apply(items[:place])
    late = UIState.restore(state.snapshot())
    assert late.snapshot() == state.snapshot()
    state.apply(items[place:])
    late.apply(items[place:])
    assert late.snapshot() == state.snapshot()
    assert late.blocks_opened - late.blocks_closed == state.blocks_opened - state.blocks_closed


@settings(max_examples=100, deadline=None)
@given(STREAMS, st.lists(st.integers(0, 300), max_size=8))
def test_taking_at_any_time_hands_out_the_same(items: list[Any], cuts: list[int]) -> None:
    """What was taken, less what was retracted and with ticks updated, is what one take at the end gives."""
    once = UIState(keep=False)
    once.apply(items)
    expected = [entry.message for entry in once.take_finished()]
    often = UIState(keep=False)
    taken: dict[int, Any] = {}
    for batch in cut(items, cuts):
        often.apply(batch)
        for entry in often.take_finished():
            if entry.kind == "retraction":
                gone = [n for n, message in taken.items() if message is entry.message.message]  # type: ignore[union-attr]
                assert len(gone) == 1, "only what was handed out is retracted"
                del taken[gone[0]]
            else:
                assert entry.update == (entry.number in taken)
                taken[entry.number] = entry.message
    assert list(taken.values()) == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(WORDS.filter(bool), min_size=1, max_size=60), st.integers(1, 60))
def test_streamed_length_is_the_sum_of_the_deltas(words: list[str], size: int) -> None:
    state = UIState()
    state.apply(events(f.start(), f.opens(0, "text", text="seed")))
    deltas = events([f.text(0, word) for word in words])
    for at in range(0, len(deltas), size):
        state.apply(deltas[at : at + size])
    assert state.streamed_length == sum(map(len, words))
    assert texts_of(state.snapshot()) == ["seed" + "".join(words)]
