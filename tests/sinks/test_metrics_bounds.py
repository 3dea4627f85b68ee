"""Memory is bounded by parameters, whatever comes; sums stay exact (WIRE.md §9, DESIGN.md §5)."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest
from frames import STOP, calls, delta, opens, says, start, turn
from metering import emitted, meter, read

from turnstream.messages import (
    ContentBlockDelta,
    MessageFactory,
    StreamNote,
    TextDelta,
    UnknownEvent,
    seeded_clock,
    seeded_ids,
)
from turnstream.operators import Batch, StreamKey
from turnstream.sinks.metrics import MetricsSink
from turnstream.sinks.metrics.tally import OTHER, Tally

MAKE = MessageFactory(seeded_ids(9), seeded_clock())


def one(number: int) -> list[Any]:
    usage = {"input_tokens": 10, "output_tokens": number}
    return emitted(start(f"msg_{number}"), calls(0, "{}", ident=f"t{number}"), turn("tool_use", usage), STOP)


def test_ten_thousand_answers_are_summed_and_the_last_ones_listed() -> None:
    sink = MetricsSink()
    for number in range(10_000):
        sink.on_next(Batch(one(number), float(number), None, 100))
    report = sink.report()
    assert len(report["answers"]) == 1_000
    assert report["answers_left_out"] == 9_000
    assert report["answers"][0]["message_id"] == "msg_9000"
    totals = report["totals"]
    assert totals["answers"] == totals["outcomes"]["complete"] == 10_000
    assert totals["input_tokens"] == 100_000
    assert totals["output_tokens"] == sum(range(10_000))
    assert totals["bytes"] == 1_000_000
    assert sink.statistics()["answers_held"] == 1_000


def held(sink: MetricsSink, numbers: range) -> int:
    """Bytes that stay allocated after these answers."""
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    for number in numbers:
        sink.on_next(Batch(one(number), float(number), None, 100))
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before


def test_memory_does_not_grow_with_answers() -> None:
    sink = MetricsSink(keep_answers=50)
    tracemalloc.start()
    try:
        held(sink, range(200))
        first = held(sink, range(200, 1_200))
        second = held(sink, range(1_200, 3_200))
    finally:
        tracemalloc.stop()
    # What grows is the table of tool uses without a result, at most 10,000 of a few hundred bytes.
    assert first < 1_000 * 400
    assert second < 2_000 * 400


def test_memory_of_one_endless_answer() -> None:
    sink = MetricsSink()
    sink.on_next(Batch(emitted(start(), says("x"))[:1], 0.0))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(30_000):
            sink.on_next(Batch([ContentBlockDelta(delta=TextDelta(text="x"), index=0)], number / 10))
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 64_000
    assert sink.report()["totals"]["batch_gaps"]["count"] == 30_000


def test_messages_without_events_beyond_the_window() -> None:
    lines = [read({"id": f"m{i}", "content": [], "usage": {"output_tokens": 2}}, uuid=f"u{i}") for i in range(500)]
    report = meter(lines, keep_answers=10)
    assert (len(report["answers"]), report["answers_left_out"]) == (10, 490)
    assert report["totals"]["output_tokens"] == 1_000


def test_an_open_answer_is_never_let_go() -> None:
    main = StreamKey("s")
    sink = MetricsSink(keep_answers=2)
    first = emitted(start("msg_main"), says("x"), turn("end_turn", {"output_tokens": 77}), STOP)
    sink.on_next(Batch(first[:3], None, main))
    for number in range(20):
        sink.on_next(Batch(one(number), None, StreamKey("s", f"agent_{number}")))
    sink.on_next(Batch(first[3:], None, main))
    totals = sink.report()["totals"]
    assert totals["output_tokens"] == 77 + sum(range(20))
    assert totals["outcomes"] == {"complete": 21}


def test_streams_that_are_done_are_let_go() -> None:
    sink = MetricsSink(keep_answers=5)
    for number in range(1_000):
        sink.on_next(Batch(one(number), None, StreamKey("s", f"agent_{number}")))
    assert sink.statistics()["streams_held"] <= 256
    assert sink.statistics()["answers_held"] <= 5 + 256
    assert sink.report()["totals"]["answers"] == 1_000


def test_words_of_the_other_side_cannot_fill_memory() -> None:
    items: list[Any] = [UnknownEvent(f"event_{i}" + "x" * 10_000, {}) for i in range(3_000)]
    items += [StreamNote(kind=f"kind_{i}", message="") for i in range(3_000)]
    totals = meter(items)["totals"]
    for counts in (totals["opaque_events"], totals["notes"]):
        assert len(counts) == 1_001
        assert sum(counts.values()) == 3_000
        assert counts[OTHER] == 2_000
        assert max(map(len, counts)) <= 128


def test_many_types_in_one_answer() -> None:
    stream = [
        start(),
        *(opens(i, f"kind_{i}") for i in range(30)),
        *(delta(i, f"delta_{i}") for i in range(30)),
        turn(),
        STOP,
    ]
    totals = meter(emitted(*stream))["totals"]
    assert len(totals["opaque_blocks"]) == len(totals["opaque_deltas"]) == 30


def test_tool_uses_without_result_are_forgotten_oldest_first() -> None:
    asked = [
        read(
            {"id": f"m{i}", "content": [{"type": "tool_use", "id": f"t{i}", "name": "look", "input": {}}]}, uuid=f"u{i}"
        )
        for i in range(10_001)
    ]
    sink = MetricsSink(keep_answers=10)
    sink.on_next([*asked, MAKE.tool_result("t0", "too late"), MAKE.tool_result("t1", "in time")])
    totals = sink.report()["totals"]
    assert (totals["tool_uses"], totals["tool_results"]) == ({"look": 10_001}, {"look": 1})


def test_tally_merges_within_its_bound() -> None:
    one_side, other = Tally(), Tally()
    for number in range(900):
        one_side.add(f"a{number}")
        other.add(f"b{number}", 2)
    one_side.merge(other)
    assert sum(one_side.values()) == 900 + 1_800
    assert len(one_side) == 1_001


@pytest.mark.parametrize("keep", [0, -1])
def test_the_window_holds_at_least_one(keep: int) -> None:
    with pytest.raises(ValueError, match="keep_answers"):
        MetricsSink(keep_answers=keep)
