"""What the report says never depends on where batches end (WIRE.md §1, DESIGN.md §3)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from frames import (
    PING,
    STOP,
    args,
    calls,
    closes,
    fails,
    opens,
    opens_text,
    opens_thinking,
    opens_tool,
    says,
    signs,
    start,
    text,
    thinks,
    turn,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from metering import emitted, read

from turnstream.messages import MessageFactory, RequestStart, SystemMessage, Tombstone, seeded_clock, seeded_ids
from turnstream.operators import Batch
from turnstream.sinks.metrics import MetricsSink

MAKE = MessageFactory(seeded_ids(9), seeded_clock())

PAYLOADS: list[Any] = [
    start("a"),
    start("b", usage={"input_tokens": 3}),
    start(None),
    start("w", content=[{"type": "text", "text": "whole"}], stop_reason="end_turn"),
    PING,
    STOP,
    {"type": "pong"},
    opens_text(0),
    opens_text(1),
    opens_thinking(2),
    opens_tool(3),
    opens(4, "redacted_thinking", data="x"),
    text(0, "t"),
    text(0, ""),
    text(1, "u"),
    text(None, "lost"),
    thinks(2, "h"),
    thinks(2, "", estimated_tokens=4),
    signs(2, "s"),
    args(3, "{}"),
    {"type": "content_block_delta", "index": 0, "delta": {"type": "odd_delta"}},
    closes(0),
    closes(1),
    closes(2),
    closes(3),
    closes(4),
    turn("end_turn", {"output_tokens": 9}),
    turn("tool_use", {"cache_read_input_tokens": 2}),
    fails(),
    RequestStart(attempt=1),
    RequestStart(attempt=2),
]
OTHERS: list[Any] = [
    read({"id": "r", "content": [{"type": "text", "text": "x"}], "usage": {"output_tokens": 7}}, uuid="u1"),
    read(
        {"id": "r", "content": [{"type": "text", "text": "y"}], "usage": {"output_tokens": 8}},
        uuid="u2",
        request_id="q",
    ),
    MAKE.assistant("synthetic"),
    MAKE.tool_result("toolu_a", "done"),
    MAKE.user("go on"),
    MAKE.system("api_error", "busy", error={"type": "overloaded_error"}),
    Tombstone(message=read({"id": "a", "content": []}, uuid="u3")),
]
streams = st.lists(st.sampled_from(PAYLOADS), max_size=40)


def report(batches: list[list[Any]], at: float | None) -> dict[str, Any]:
    sink = MetricsSink(clock_start=100.0, keep_answers=3)
    for items in batches:
        sink.on_next(Batch(items, at, None, len(items)))
    return sink.report()


@settings(max_examples=200, deadline=None)
@given(streams, st.lists(st.tuples(st.integers(0, 60), st.sampled_from(OTHERS)), max_size=4), st.data())
def test_any_split_gives_the_same_report(
    payloads: list[Any], extra: list[tuple[int, Any]], data: st.DataObject
) -> None:
    items = emitted(*payloads)
    for position, other in extra:
        items.insert(min(position, len(items)), other)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(items)), max_size=12)))
    bounds = [0, *cuts, len(items)]
    pieces = [items[a:b] for a, b in pairwise(bounds)]
    whole = report([items], None)
    assert report(pieces, None) == whole
    assert report([[item] for item in items], None) == whole
    # With one time for all: the same, but for how many gaps (of zero) there were.
    assert _without_gaps(report(pieces, 101.0)) == _without_gaps(report([items], 101.0))
    # Sums hold whatever came.
    totals = whole["totals"]
    assert sum(totals["outcomes"].values()) + totals["unknown_outcomes"] == totals["answers"]
    assert totals["answers"] + totals["superseded_answers"] == len(whole["answers"]) + whole["answers_left_out"]


def _without_gaps(value: dict[str, Any]) -> dict[str, Any]:
    for answer in value["answers"]:
        del answer["batch_gaps"]
    del value["totals"]["batch_gaps"]
    return value


@settings(max_examples=60, deadline=None)
@given(streams, st.integers(1, 4))
def test_the_window_changes_no_sum(payloads: list[Any], keep: int) -> None:
    items = emitted(*payloads)
    small, large = MetricsSink(keep_answers=keep), MetricsSink()
    for sink in (small, large):
        sink.on_next(items)
    assert small.report()["totals"] == large.report()["totals"]
    answers = large.report()["answers"]
    assert small.report()["answers"] == answers[len(answers) - len(small.report()["answers"]) :]


def test_asking_changes_nothing() -> None:
    items = emitted(start("a"), says("x"), start("b"), calls(0, "{}"), turn("tool_use"), STOP)
    asked, silent = MetricsSink(), MetricsSink()
    for item in items:
        asked.on_next([item])
        asked.report()
        silent.on_next([item])
    assert asked.report() == silent.report()


def test_system_messages_of_other_kinds_pass() -> None:
    other = SystemMessage(subtype=None, uuid="u", timestamp="t")
    assert report([[other]], None) == report([[]], None) | {"totals": report([[other]], None)["totals"]}
