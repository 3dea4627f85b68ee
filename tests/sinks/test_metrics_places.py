"""Which answer a live message belongs to: its place in the stream tells, not its id (WIRE.md §1, §9)."""

from __future__ import annotations

from typing import Any

import pytest
from frames import STOP, Payload, args, closes, fails, opens_text, opens_tool, says, start, text, turn

from turnstream.messages import AssistantMessage, event_from_wire, seeded_clock, seeded_ids
from turnstream.operators import accumulate
from turnstream.sinks.metrics import MetricsSink

# Each ends with these: 9 output tokens, said once.
END = [turn("end_turn", {"output_tokens": 9}), STOP]
GOOD = [*says("hi"), *END]
TOOL = opens_tool(0, "toolu_a", "look")
OPEN = [TOOL, args(0, "{")]  # an attempt without a finished block
NO_MESSAGE: Payload = {"type": "message_start"}
ERROR = fails("overloaded_error")


def flat(parts: list[Any]) -> list[Any]:
    return [event for part in parts for event in (flat(part) if isinstance(part, list) else [part])]


def report(payloads: list[Payload], size: int, *, alone: bool = False) -> dict[str, Any]:
    """The report where ``size`` events come at once; ``alone``: each emitted item is a batch."""
    stage = accumulate(ids=seeded_ids(1), clock=seeded_clock()).chain()
    sink = MetricsSink()
    events = [event_from_wire(payload) for payload in payloads]
    for first in range(0, len(events), size):
        items = list(stage.feed(events[first : first + size]))
        for batch in [[item] for item in items] if alone else [items]:
            sink.on_next(batch)
    sink.on_next(list(stage.flush()))
    return sink.report()


# name: (payloads, outcomes, superseded attempts, blocks, output tokens)
CASES: dict[str, tuple[list[Any], dict[str, int], int, dict[str, int], int]] = {
    "content is text": ([start("a", content="all"), END], {"complete": 1}, 0, {"text": 1}, 9),
    "content is text, no id": ([start(None, content="all"), END], {"complete": 1}, 0, {"text": 1}, 9),
    "content is text after another's failure": (
        [start("z", usage={"output_tokens": 1}), ERROR, start("a", content="all"), END],
        {"api_error(overloaded_error)": 1, "complete": 1},
        0,
        {"text": 1},
        10,
    ),
    "content holds no block": ([start("a", content=[7]), start("a"), GOOD], {"complete": 1}, 0, {"text": 1}, 9),
    "empty id, no block": ([start(""), END], {"complete": 1}, 0, {}, 9),
    "empty id": ([start(""), GOOD], {"complete": 1}, 0, {"text": 1}, 9),
    "empty id twice": ([start(""), start(""), GOOD], {"complete": 1}, 0, {"text": 1}, 9),
    "no block, then an id that is no text": ([start("a"), start(7), GOOD], {"complete": 1}, 1, {"text": 1}, 9),
    "no id, then one": ([start(None), start("a"), GOOD], {"complete": 1}, 1, {"text": 1}, 9),
    "same id, its content whole": (
        [start("a"), OPEN, start("a", content=[{"type": "text", "text": "x"}]), END],
        {"complete": 1},
        1,
        {"text": 1},
        9,
    ),
    "no id twice, the second whole": (
        [start(None), OPEN, start(None, content="all"), END],
        {"complete": 1},
        1,
        {"text": 1},
        9,
    ),
    "a finished block, then whole": (
        [start("a"), says("lost"), start("a", content="all"), END],
        {"complete": 1},
        1,
        {"text": 1},
        9,
    ),
    **{
        f"open block, then a start with {name}": ([start("a"), OPEN, second, GOOD], {"complete": 1}, 1, {"text": 1}, 9)
        for name, second in {
            "{}": {"type": "message_start", "message": {}},
            "null": start(None),
            "7": start(7),  # type: ignore[arg-type]
            "no message": NO_MESSAGE,
        }.items()
    },
}


@pytest.mark.parametrize("name", CASES)
def test_each_answer_counts_once_however_it_is_cut(name: str) -> None:
    parts, outcomes, superseded, blocks, output = CASES[name]
    payloads = flat(parts)
    whole = report(payloads, len(payloads))
    totals = whole["totals"]
    assert totals["outcomes"] == outcomes
    assert (totals["answers"], totals["superseded_answers"]) == (sum(outcomes.values()), superseded)
    assert totals["blocks"] == blocks
    assert totals["output_tokens"] == output
    assert report(payloads, 1) == whole
    assert report(payloads, 3) == whole
    assert report(payloads, 1, alone=True) == whole


# Deltas to tools that no block can take: two of a superseded attempt count too.
UNAPPLIED: dict[str, tuple[list[Any], int]] = {
    "whole and over, then no index": (
        [start("a", content=[{"type": "text", "text": "x"}], stop_reason="end_turn"), args(None, "{"), STOP],
        1,
    ),
    "whole text, no index": ([start("a", content="all"), args(None, "{"), args(None, "}"), END], 2),
    "attempts": (
        [start("z"), OPEN, start("a", content="all"), args(0, "{"), args(0, "}"), start(7), args(0, "{"), GOOD],
        3,
    ),
}


@pytest.mark.parametrize("name", UNAPPLIED)
def test_unapplied_deltas_to_a_whole_answer_dont_depend_on_the_cut(name: str) -> None:
    parts, count = UNAPPLIED[name]
    payloads = flat(parts)
    whole = report(payloads, len(payloads))
    assert whole["totals"]["unapplied_deltas"] == {"input_json_delta": count}
    assert report(payloads, 1) == whole
    assert report(payloads, 1, alone=True) == whole


def test_live_messages_whose_events_were_filtered_out_count() -> None:
    payloads = flat([start("a"), opens_text(0), text(0, "x"), closes(0), says("y", index=1), END])
    stage = accumulate(ids=seeded_ids(1), clock=seeded_clock()).chain()
    items = list(stage.feed([event_from_wire(payload) for payload in payloads]))
    sink = MetricsSink()
    sink.on_next([item for item in items if isinstance(item, AssistantMessage)])
    totals = sink.report()["totals"]
    assert (totals["answers"], totals["blocks"], totals["output_tokens"]) == (1, {"text": 2}, 9)
