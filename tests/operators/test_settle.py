"""``settle``: messages leave when their values are final (WIRE.md §1, accumulation)."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import frames as f
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstream.messages import (
    AssistantMessage,
    MessageFactory,
    MessageStart,
    RequestStart,
    ResponseFailed,
    StreamNote,
    Tombstone,
    event_from_wire,
    seeded_clock,
    seeded_ids,
)
from turnstream.messages.events import EVENT_CLASSES
from turnstream.operators import accumulate, run_batches, run_stages, settle
from turnstream.operators.settle import Settler


def accumulated(*parts: Any) -> list[Any]:
    flat = [event_from_wire(json.loads(json.dumps(p))) if isinstance(p, dict) else p for p in f.flat(parts)]
    return run_stages(flat, accumulate(ids=seeded_ids(1), clock=seeded_clock()))


def settled(*parts: Any) -> list[Any]:
    return run_stages(accumulated(*parts), settle())


def names(items: Sequence[Any]) -> list[str]:
    return [type(item).__name__ for item in items]


TWO_BLOCKS = [f.start(), f.says("a", 0), f.says("b", 1), f.turn(), f.STOP]


def test_messages_are_held_until_message_stop_and_events_pass() -> None:
    stage = Settler()
    items = accumulated(*TWO_BLOCKS)
    stop = len(items) - 1
    out = list(stage.feed(items[:stop]))
    assert out == [item for item in items[:stop] if type(item) in EVENT_CLASSES]
    out = list(stage.feed(items[stop:]))
    assert names(out) == ["AssistantMessage", "AssistantMessage", "MessageStop"]
    assert [m.message["content"][0]["text"] for m in out[:2]] == ["a", "b"]
    assert list(stage.flush()) == []


def test_what_is_serialized_at_once_has_the_final_values() -> None:
    flat = [event_from_wire(copy.deepcopy(p)) for p in f.flat(tuple(TWO_BLOCKS))]
    written: list[Any] = []
    operator = accumulate(ids=seeded_ids(1), clock=seeded_clock()) | settle()
    for batch in run_batches([[event] for event in flat], operator):
        written += [copy.deepcopy(item.message) for item in batch if isinstance(item, AssistantMessage)]
    assert [m["usage"] for m in written] == [{"input_tokens": 7, "output_tokens": 5}] * 2
    assert [m["stop_reason"] for m in written] == ["end_turn"] * 2


def test_a_batch_that_holds_no_message_is_passed_on_as_it_is() -> None:
    batch = [event_from_wire(p) for p in (f.start(), f.text(0, "a"), f.STOP)]
    assert Settler().feed(batch) is batch


def test_the_rest_keeps_its_order_behind_what_is_held() -> None:
    make = MessageFactory(seeded_ids(5), seeded_clock())
    before, between, after = make.user("before"), make.progress("t", None, {}), make.user("after")
    items = accumulated(*TWO_BLOCKS)
    at = next(n for n, item in enumerate(items) if isinstance(item, AssistantMessage)) + 1
    out = run_stages([before, *items[:at], between, *items[at:], after], settle())
    rest = [item for item in out if type(item) not in EVENT_CLASSES]
    assert names(rest) == ["UserMessage", "AssistantMessage", "ProgressMessage", "AssistantMessage", "UserMessage"]
    assert out[0] is before


@pytest.mark.parametrize("ident", ["a", None], ids=["with id", "without id"])
@pytest.mark.parametrize("content", [[f.text_block("whole")], "whole"], ids=["blocks", "text"])
def test_what_a_start_holds_already_waits_for_the_answers_end_too(ident: str | None, content: Any) -> None:
    events = [event_from_wire(p) for p in (f.start(ident, content=content), f.PING, f.turn(), f.STOP)]
    operator = accumulate(ids=seeded_ids(1), clock=seeded_clock()) | settle()
    batches = [names(batch) for batch in run_batches([[event] for event in events], operator)]
    assert batches[-1] == ["AssistantMessage", "MessageStop"]
    assert "AssistantMessage" not in [name for batch in batches[:-1] for name in batch]


def test_what_a_superseded_start_held_is_dropped_too() -> None:
    out = settled(f.start("a", content=[f.text_block("whole")]), f.start("b"), f.says("z"), f.turn(), f.STOP)
    assert not [item for item in out if isinstance(item, Tombstone)]
    assert [m.message["content"][0]["text"] for m in out if isinstance(m, AssistantMessage)] == ["z"]


def test_a_superseded_attempt_is_dropped_with_its_tombstones_and_counted_once() -> None:
    out = settled(f.start("a"), f.says("x", 0), f.says("y", 1), f.start("b"), f.says("z"), f.turn(), f.STOP)
    assert not [item for item in out if isinstance(item, Tombstone)]
    assert [m.message["content"][0]["text"] for m in out if isinstance(m, AssistantMessage)] == ["z"]
    (note,) = [item for item in out if isinstance(item, StreamNote)]
    assert note.kind == "superseded_messages"
    assert "2" in note.message
    assert isinstance(out[out.index(note) + 1], MessageStart)


def test_a_tombstone_for_a_message_that_is_out_already_passes() -> None:
    items = accumulated(*TWO_BLOCKS)
    message = next(item for item in items if isinstance(item, AssistantMessage))
    tombstone = Tombstone(message=message)
    out = run_stages([*items, tombstone], settle())
    assert out[-1] is tombstone
    assert message in out
    assert run_stages([tombstone], settle()) == [tombstone]


def test_a_tombstone_finds_its_message_by_uuid_too() -> None:
    (message,) = [item for item in accumulated(f.start(), f.says("a")) if isinstance(item, AssistantMessage)]
    twin = copy.copy(message)
    assert names(run_stages([message, Tombstone(message=twin)], settle())) == ["StreamNote"]


@pytest.mark.parametrize(
    "end",
    [
        [f.fails()],
        [],
        [f.turn("tool_use"), f.STOP],
        [f.turn()],
        [RequestStart()],
        [f.turn(), f.start("b")],
    ],
    ids=["error", "eof", "bad stop", "no message_stop", "new request", "next answer"],
)
def test_every_way_an_answer_ends_releases_it(end: list[Any]) -> None:
    items = accumulated(
        f.start(),
        f.says("a"),
        f.opens_text(1),
        f.text(1, "half"),
        *([] if not end or end[0] != f.turn() else [f.closes(1)]),
        *end,
    )
    stage = Settler()
    out = [*stage.feed(items)]
    held = [*stage.flush()]
    assert not [item for item in held if isinstance(item, AssistantMessage)], "only released by the flush"
    assert [m for m in out if isinstance(m, AssistantMessage)] == [m for m in items if isinstance(m, AssistantMessage)]
    failures = [item for item in out if isinstance(item, ResponseFailed)]
    for failed in failures:
        first = out.index(failed)
        assert all(out.index(m) < first for m in out if isinstance(m, AssistantMessage) and m.message["id"] == "msg_a")


@pytest.mark.parametrize("how", ["flush", "fail"])
def test_the_end_releases_what_is_held(how: str) -> None:
    items = [item for item in accumulated(f.start(), f.says("a")) if not isinstance(item, ResponseFailed)]
    stage = Settler()
    assert "AssistantMessage" not in names(stage.feed(items))
    out = stage.flush() if how == "flush" else stage.fail(RuntimeError())
    assert names(out) == ["AssistantMessage"]
    assert list(stage.flush()) == []


PARTS = st.lists(
    st.sampled_from(
        [
            f.start("a"),
            f.start("b"),
            f.says("x", 0),
            f.says("y", 1),
            f.calls(2, "{}"),
            f.opens_text(3),
            f.text(3, "half"),
            f.turn(),
            f.turn("tool_use"),
            f.STOP,
            f.PING,
            f.fails(),
        ]
    ),
    max_size=14,
)


@given(PARTS, st.lists(st.integers(1, 4), max_size=8))
def test_settled_holds_what_was_not_taken_back_and_nothing_else(parts: list[Any], sizes: list[int]) -> None:
    items = accumulated(*parts)
    batches, at = [], 0
    for size in (*sizes, len(items) or 1):
        if items[at : at + size]:
            batches.append(items[at : at + size])
        at += size
    out = [item for batch in run_batches(batches, settle()) for item in batch]
    assert out == run_stages(items, settle()), "batches must not matter"
    taken_back = [t.message.uuid for t in items if isinstance(t, Tombstone)]
    dropped = 0
    expected = []
    for item in items:
        if isinstance(item, Tombstone):
            dropped += 1
        elif not (isinstance(item, AssistantMessage) and item.uuid in taken_back):
            expected.append(item)
    without_notes = [i for i in out if not (isinstance(i, StreamNote) and i.kind == "superseded_messages")]
    of_events = [i for i in expected if type(i) in EVENT_CLASSES]
    assert [i for i in without_notes if type(i) in EVENT_CLASSES] == of_events
    assert [i for i in without_notes if type(i) not in EVENT_CLASSES] == [
        i for i in expected if type(i) not in EVENT_CLASSES
    ]
    counted = sum(
        int(i.message.split()[0]) for i in out if isinstance(i, StreamNote) and i.kind == "superseded_messages"
    )
    assert counted == dropped
