"""One word per answer (WIRE.md §1, outcome vocabulary)."""

from __future__ import annotations

import json
from typing import Any

import frames as f
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstream.messages import ResponseFailed, SourceError, StreamNote, event_from_wire
from turnstream.operators import OutcomeTracker, accumulate, answer_outcomes, run_batches, run_stages, settle


def items_of(*parts: Any, error: Exception | None = None) -> list[Any]:
    """One source through a fresh accumulator."""
    flat = [event_from_wire(json.loads(json.dumps(p))) for p in f.flat(parts)]
    return [item for batch in run_batches([flat] if flat else [], accumulate(), error=error) for item in batch]


def words(items: list[Any]) -> list[str]:
    return [outcome.word for outcome in answer_outcomes(items)]


WHOLE = [f.start(), f.says("a"), f.turn(), f.STOP]
ENDS: list[tuple[list[Any], list[str]]] = [
    (WHOLE, ["complete"]),
    (WHOLE[:-1], ["complete"]),
    ([f.start(), f.says("a")], ["incomplete(1)"]),
    ([f.start()], ["incomplete(0)"]),
    ([f.start(), f.STOP], ["incomplete(0)"]),
    ([f.start(), f.says("a"), f.turn("tool_use"), f.STOP], ["protocol_error(tool_use_without_block)"]),
    ([f.start(), f.says("a"), f.fails()], ["api_error(overloaded_error)"]),
    ([f.fails("x")], ["api_error(x)"]),
    ([{"type": "error", "error": {}}], ["api_error(unknown)"]),
    ([f.says("a"), f.turn(), f.STOP], ["incomplete(1)"]),
    ([f.start("a"), f.says("x"), f.start("b"), f.says("y"), f.turn(), f.STOP], ["complete"]),
    ([f.start("a"), f.says("x"), f.start("b"), f.fails("e")], ["api_error(e)"]),
    ([*WHOLE, *WHOLE], ["complete", "complete"]),
    ([*WHOLE, f.start(), f.fails("e"), *WHOLE], ["complete", "api_error(e)", "complete"]),
    ([*WHOLE, f.STOP, f.PING, f.text(0, "x"), f.fails()], ["complete"]),
    ([*WHOLE[:-1], *WHOLE], ["complete", "complete"]),
    ([f.PING], ["incomplete(0)"]),
    ([{"type": "chat.completion.chunk"}], ["not_a_stream"]),
    ([], ["empty"]),
]


@pytest.mark.parametrize(("parts", "expected"), ENDS, ids=range(len(ENDS)))
def test_the_word_of_each_answer(parts: list[Any], expected: list[str]) -> None:
    items = items_of(*parts)
    assert words(items) == expected
    assert words(run_stages(items, settle())) == expected


@pytest.mark.parametrize(("parts", "expected"), ENDS, ids=range(len(ENDS)))
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_the_tracker_counts_the_same_whatever_the_batches(parts: list[Any], expected: list[str], size: int) -> None:
    items = items_of(*parts)
    tracker = OutcomeTracker()
    for at in range(0, len(items), size):
        tracker.feed(items[at : at + size])
    tracker.finish()
    assert tracker.complete == expected.count("complete")
    assert tracker.failed == len(expected) - tracker.complete
    assert [failed.outcome for failed in tracker.failures] == [word for word in expected if word != "complete"]


FAILURES: list[tuple[list[Any], Exception | None]] = [
    ([], None),
    ([], SourceError("can't open it")),
    ([f.PING], None),
    ([{"type": "chat.completion.chunk"}], None),
    ([f.fails("e")], None),
    ([f.says("a")], None),
    ([f.STOP], None),
]


@pytest.mark.parametrize(("parts", "error"), FAILURES, ids=range(len(FAILURES)))
def test_in_a_session_the_next_sources_failure_does_not_undo_a_complete_answer(
    parts: list[Any], error: Exception | None
) -> None:
    # Nothing need stand between the message_stop of one source and the failure of the next.
    whole, broken = items_of(*WHOLE), items_of(*parts, error=error)
    (word,) = words(broken)
    assert words([*whole, *broken]) == ["complete", word]
    for batches in ([whole, broken], [[*whole, *broken]], [[item] for item in (*whole, *broken)]):
        tracker = OutcomeTracker()
        for batch in batches:
            tracker.feed(batch)
        tracker.finish()
        assert (tracker.complete, tracker.failed) == (1, 1)


def test_an_outcome_has_its_failure() -> None:
    items = items_of(f.start(), f.fails())
    (outcome,) = answer_outcomes(items)
    assert outcome.failed is next(item for item in items if isinstance(item, ResponseFailed))
    assert answer_outcomes(items_of(*WHOLE))[0].failed is None


def test_the_tracker_keeps_a_bounded_number_of_failures() -> None:
    tracker = OutcomeTracker(keep=2)
    for _ in range(5):
        tracker.feed(items_of(f.start(), f.fails()))
    assert (tracker.failed, len(tracker.failures)) == (5, 2)


def test_a_stop_is_counted_when_something_follows_or_at_the_end() -> None:
    tracker = OutcomeTracker()
    tracker.feed(items_of(*WHOLE))
    assert tracker.complete == 0, "a failure may still follow"
    tracker.feed([StreamNote(kind="x", message="m")])
    assert tracker.complete == 1
    tracker.finish()
    tracker.finish()
    assert tracker.complete == 1


@given(st.lists(st.sampled_from([*WHOLE, f.start("b"), f.PING, f.fails(), f.turn("tool_use")]), max_size=16))
def test_tracker_and_list_agree(payloads: list[Any]) -> None:
    items = items_of(*payloads)
    tracker = OutcomeTracker(keep=1000)
    for item in items:
        tracker.feed([item])
    tracker.finish()
    outcomes = answer_outcomes(items)
    assert tracker.complete == sum(o.word == "complete" for o in outcomes)
    assert tracker.failures == [o.failed for o in outcomes if o.failed is not None]
    assert len(tracker.failures) == sum(isinstance(i, ResponseFailed) for i in items)
