"""An answer that comes whole takes a short way through every sink; what comes out is the same as event by event."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import frames as f
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from recordings import need

from turnstream.messages import event_from_wire, seeded_clock, seeded_ids
from turnstream.operators import Batch, accumulate, run_batches
from turnstream.operators.events import Parsed
from turnstream.operators.whole import AnswerItems
from turnstream.sinks import MetricsSink, TranscriptSink, UISink

INDEX = st.sampled_from([0, 0, 1, 2, None])
WORDS = st.lists(st.sampled_from(["", "a", "é\n", "{}", '{"a":', "1}", " \n", "\u2028", "😀"]), max_size=4)
USAGE = st.sampled_from([None, {"output_tokens": 3}, {"output_tokens": None, "new": 1}, {"input_tokens": 0}])
BLOCKS = st.one_of(
    st.tuples(st.just(f.opens_text), st.just(f.text), WORDS),
    st.tuples(st.just(f.opens_thinking), st.just(f.thinks), WORDS),
    st.tuples(st.just(f.opens_tool), st.just(f.args), WORDS),
)
ODD = st.one_of(
    st.builds(f.text, INDEX, st.just("odd")),
    st.builds(f.thinks, INDEX, st.just("odd")),
    st.builds(f.signs, INDEX, st.just("signed")),
    st.builds(f.opens, INDEX, st.sampled_from(["redacted_thinking", "web_search_tool_result", "new"])),
    st.builds(f.opens_text, INDEX),
    st.builds(f.closes, INDEX),
    st.builds(f.start, st.sampled_from(["msg_a", "msg_b", None])),
    st.just(f.PING),
    st.just(f.STOP),
    st.just(f.fails()),
)


def answer(blocks: list[Any], reason: str | None, odd: list[tuple[int, dict[str, Any]]], *, number: int) -> list[Any]:
    """One answer as a server sends it, but for the odd events put in somewhere."""
    payloads: list[dict[str, Any]] = [f.start(f"msg_{number}")]
    for index, (opens, delta, words) in enumerate(blocks):
        payloads += [opens(index), *(delta(index, word) for word in words), f.closes(index)]
    payloads += [f.turn(reason), f.STOP]
    for place, payload in odd:
        payloads.insert(place % (len(payloads) + 1), payload)
    return payloads


ANSWERS = st.lists(
    st.tuples(
        st.lists(BLOCKS, max_size=4),
        st.sampled_from(["end_turn", "tool_use", None]),
        st.one_of(st.just([]), st.just([]), st.lists(st.tuples(st.integers(0, 50), ODD), max_size=2)),
    ),
    min_size=1,
    max_size=3,
).map(lambda drawn: [answer(*one, number=number) for number, one in enumerate(drawn)])


async def finish(sink: TranscriptSink) -> None:
    await sink.drain()
    await sink.aclose()


def through(batches: list[list[dict[str, Any]]], folder: Path) -> dict[str, Any]:
    """What the three sinks come to, and the items, of events that arrive in these batches."""
    ids, clock = seeded_ids(5), seeded_clock()
    operator = accumulate(ids=ids, clock=clock)
    path = folder / "t.jsonl"
    path.unlink(missing_ok=True)
    ui = UISink(keep=True)
    metrics = MetricsSink()
    transcript = TranscriptSink(path, session_id="01234567-0123-4123-8123-0123456789ab", cwd="/", clock=clock)
    items: list[Any] = []
    took = 0
    source = [Parsed([event_from_wire(payload) for payload in batch], [(None, None)] * len(batch)) for batch in batches]
    for out in run_batches(source, operator):
        took += out.__class__ is AnswerItems
        batch = Batch(out, None, None, 1)
        for sink in (ui, metrics, transcript):
            sink.on_next(batch)
        items += out
    for sink in (ui, metrics, transcript):
        sink.on_completed()
    asyncio.run(finish(transcript))
    return {
        "took": took,
        "items": items,
        "ui": ui.state.snapshot(),
        "metrics": metrics.report(),
        "lines": path.read_bytes().splitlines() if path.exists() else [],
        "streamed": ui.state.streamed_length,
    }


def same(answers: list[list[dict[str, Any]]], folder: Path) -> int:
    """Compare answer by answer with event by event; returns how many took the short way."""
    whole = through(answers, folder)
    single = through([[payload] for payloads in answers for payload in payloads], folder)
    assert single.pop("took") == 0
    took: int = whole.pop("took")
    for report in (whole["metrics"], single["metrics"]):
        report["totals"].pop("bytes", None)  # counted a batch here
    assert whole["items"] == single["items"]
    assert whole == single
    return took


@settings(max_examples=200, deadline=None)
@given(ANSWERS)
@example([answer([(f.opens_text, f.text, ["a", "b"]), (f.opens_tool, f.args, ["{}"])], "tool_use", [], number=0)])
def test_an_answer_that_comes_whole_is_the_same_as_one_that_comes_event_by_event(
    tmp_path_factory: pytest.TempPathFactory, answers: list[list[dict[str, Any]]]
) -> None:
    same(answers, tmp_path_factory.getbasetemp())


def test_a_plain_answer_takes_the_short_way_and_an_odd_one_does_not(tmp_path: Path) -> None:
    blocks = [(f.opens_thinking, f.thinks, ["hm"]), (f.opens_text, f.text, ["a", "b"]), (f.opens_tool, f.args, ["{}"])]
    assert same([answer(blocks, "tool_use", [(3, f.PING)], number=1)], tmp_path) == 1
    assert same([answer(blocks, "tool_use", [(3, f.text(7, "lost"))], number=1)], tmp_path) == 0
    assert same([answer([], "end_turn", [], number=1)], tmp_path) == 0, (
        "an answer without blocks has a message of its own"
    )


def test_most_recorded_answers_take_the_short_way_and_come_to_the_same(tmp_path: Path) -> None:
    from turnstream.operators import decode, parse_events, run_stages

    took = files = 0
    for path in sorted((need("whole answers") / "sse").rglob("*.sse"))[::4]:
        events = run_stages([path.read_bytes()], decode() | parse_events())
        payloads = [json.loads(p) for p in _payloads(events)]
        if not payloads:
            continue
        files += 1
        took += same([payloads], tmp_path)
    assert took > files // 2


def _payloads(events: list[Any]) -> list[bytes]:
    from turnstream.messages import event_to_wire
    from turnstream.messages.jsonvalue import dumps
    from turnstream.messages.types import StreamNote

    return [dumps(event_to_wire(event)) for event in events if not isinstance(event, StreamNote)]
