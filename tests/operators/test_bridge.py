"""``each``, ``batched``, ``coalesce``: between batches and single items (DESIGN.md §3)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import frames as f
import pytest
import reactivex
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as ops
from reactivex.subject import Subject

from turnstream.messages import (
    ContentBlockDelta,
    InputJsonDelta,
    Ping,
    SignatureDelta,
    TextDelta,
    ThinkingDelta,
    event_from_wire,
    seeded_clock,
    seeded_ids,
)
from turnstream.operators import Batch, StreamKey, accumulate, batched, coalesce, each, run_batches, run_stages, settle
from turnstream.scheduler import LoopScheduler
from turnstream.testing import record_observable, run_virtual

KEY = StreamKey("s", "t")


def batches(*sizes: int) -> list[Batch[int]]:
    out, number = [], 0
    for at, size in enumerate(sizes):
        out.append(Batch(list(range(number, number + size)), float(at), KEY, 10 * size))
        number += size
    return out


# -- each --------------------------------------------------------------------------------------------


def test_items_leave_in_the_batch_they_came_in() -> None:
    seen = record_observable(each(ops.map(lambda n: n * 2))(reactivex.from_iterable(batches(2, 1))))
    assert seen.batches == [Batch([0, 2], 0.0, KEY, 20), Batch([4], 1.0, KEY, 10)]
    assert seen.completed


def test_plain_lists_leave_as_batches_without_a_time() -> None:
    assert record_observable(each(ops.map(str))(reactivex.of([1], [2]))).batches == [Batch(["1"]), Batch(["2"])]


def test_several_operators_run_in_order() -> None:
    operator = each(ops.filter(lambda n: n % 2 == 0), ops.map(lambda n: n + 1), ops.map(str))
    assert record_observable(operator(reactivex.of([0, 1, 2]))).items == ["1", "3"]


@pytest.mark.parametrize("sizes", [(6,), (1,) * 6, (2, 4), (5, 1)])
def test_state_is_kept_over_batches(sizes: tuple[int, ...]) -> None:
    source = reactivex.from_iterable(batches(*sizes))
    assert record_observable(each(ops.scan(lambda a, b: a + b, 0))(source)).items == [0, 1, 3, 6, 10, 15]
    assert record_observable(each(ops.pairwise())(source)).items == [(n, n + 1) for n in range(5)]
    assert record_observable(each(ops.distinct_until_changed(lambda n: n // 3))(source)).items == [0, 3]
    assert record_observable(each(ops.skip(2), ops.take(3))(source)).items == [2, 3, 4]


def test_state_belongs_to_the_subscription() -> None:
    observable = each(ops.scan(lambda a, b: a + b, 0))(reactivex.of([1, 2], [3]))
    assert record_observable(observable).items == [1, 3, 6]
    assert record_observable(observable).items == [1, 3, 6]


def test_a_batch_that_causes_nothing_is_not_passed_on_but_its_bytes_count() -> None:
    seen = record_observable(each(ops.filter(lambda n: n >= 2))(reactivex.from_iterable(batches(1, 1, 1, 1))))
    assert seen.batches == [Batch([2], 2.0, KEY, 30), Batch([3], 3.0, KEY, 10)]
    seen = record_observable(each(ops.filter(lambda n: False))(reactivex.from_iterable(batches(1, 1))))
    assert sum(batch.weight for batch in seen.batches) == 20
    assert seen.items == []


def test_take_in_the_middle_of_a_batch_ends_with_that_batchs_items() -> None:
    source: Subject[Any] = Subject()
    seen = record_observable(each(ops.take(3))(source))
    source.on_next(Batch([0, 1], 0.0, KEY, 20))
    source.on_next(Batch([2, 3], 1.0, KEY, 20))
    assert seen.batches == [Batch([0, 1], 0.0, KEY, 20), Batch([2], 1.0, KEY, 20)]
    assert seen.completed
    assert not source.observers, "the source is still subscribed"


def test_what_an_operator_emits_at_the_end_leaves_before_the_end() -> None:
    seen = record_observable(each(ops.reduce(lambda a, b: a + b))(reactivex.from_iterable(batches(2, 2))))
    assert seen.items == [6]
    assert seen.batches[0].key == KEY
    assert seen.completed
    seen = record_observable(each(ops.buffer_with_count(3))(reactivex.from_iterable(batches(2, 2))))
    assert seen.items == [[0, 1, 2], [3]]


def test_an_error_in_a_callback_comes_after_what_was_emitted_before_it() -> None:
    source: Subject[Any] = Subject()
    seen = record_observable(each(ops.map(lambda n: 6 // n))(source))
    source.on_next(Batch([1, 2, 0, 3], 1.0, KEY, 40))
    assert seen.batches == [Batch([6, 3], 1.0, KEY, 40)]
    assert isinstance(seen.error, ZeroDivisionError)
    assert not source.observers


def test_the_sources_error_goes_through_the_operators() -> None:
    error = RuntimeError("broke")
    source = reactivex.concat(reactivex.of([1]), reactivex.throw(error))
    seen = record_observable(each(ops.map(str))(source))
    assert (seen.items, seen.error) == (["1"], error)
    caught = record_observable(each(ops.catch(reactivex.of(9)))(source))
    assert (caught.items, caught.completed) == ([1, 9], True)


def test_disposing_reaches_the_source_and_the_operators() -> None:
    source: Subject[Any] = Subject()
    ended: list[str] = []
    seen = record_observable(each(ops.finally_action(lambda: ended.append("operator")))(source))
    source.on_next([1])
    seen.dispose()
    source.on_next([2])
    assert seen.items == [1]
    assert ended == ["operator"]
    assert not source.observers


def test_timers_emit_later_on_the_loops_thread_with_the_key() -> None:
    async def scenario() -> Any:
        loop = asyncio.get_running_loop()
        source: Subject[Any] = Subject()
        seen = record_observable(each(ops.delay(2.0))(source), scheduler=LoopScheduler())
        source.on_next(Batch([1, 2], loop.time(), KEY, 20))
        await asyncio.sleep(1.0)
        source.on_next(Batch([3], loop.time(), KEY, 10))
        assert seen.items == []
        source.on_completed()
        await seen.finished()
        return seen

    seen = run_virtual(scenario())
    assert seen.items == [1, 2, 3]
    assert seen.times[:3] == [2.0, 2.0, 3.0]
    assert len(seen.threads) == 1
    assert {batch.key for batch in seen.batches} == {KEY}
    assert sum(batch.weight for batch in seen.batches) == 30


def test_debounce_over_batches() -> None:
    async def scenario() -> Any:
        source: Subject[Any] = Subject()
        seen = record_observable(each(ops.debounce(1.0))(source), scheduler=LoopScheduler())
        for number in range(3):
            source.on_next([number, number * 10])
            await asyncio.sleep(0.5)
        await asyncio.sleep(2.0)
        source.on_next([7])
        source.on_completed()
        await seen.finished()
        return seen

    seen = run_virtual(scenario())
    assert seen.items == [20, 7]
    assert len(seen.threads) == 1


def test_each_composes_with_stages() -> None:
    operator = coalesce() | each(ops.filter(lambda item: not isinstance(item, Ping))) | coalesce()
    deltas = [ContentBlockDelta(delta=TextDelta(c), index=0) for c in "ab"]
    seen = record_observable(operator(reactivex.of([deltas[0], Ping(), deltas[1]])))
    assert seen.items == [ContentBlockDelta(delta=TextDelta("ab"), index=0)]


# -- batched -----------------------------------------------------------------------------------------


def test_batched_wraps_each_item() -> None:
    seen = record_observable(reactivex.of(1, 2).pipe(batched(), each(ops.map(str))))
    assert seen.batches == [Batch(["1"]), Batch(["2"])]
    assert seen.completed


# -- coalesce ----------------------------------------------------------------------------------------


def text(words: str, index: int | None = 0, **more: Any) -> ContentBlockDelta:
    return ContentBlockDelta(delta=TextDelta(words, **more), index=index)


def test_adjacent_deltas_of_a_block_merge() -> None:
    assert run_stages([text("a"), text("b"), text("c")], coalesce()) == [text("abc")]
    args = [ContentBlockDelta(delta=InputJsonDelta(part), index=1) for part in ('{"a"', "", ":1}")]
    assert run_stages(args, coalesce()) == [ContentBlockDelta(delta=InputJsonDelta('{"a":1}'), index=1)]
    thoughts = [ContentBlockDelta(delta=ThinkingDelta(part), index=None) for part in "xy"]
    assert run_stages(thoughts, coalesce()) == [ContentBlockDelta(delta=ThinkingDelta("xy"), index=None)]


APART: list[list[Any]] = [
    [text("a", 0), text("b", 1)],
    [text("a", 0), ContentBlockDelta(delta=ThinkingDelta("b"), index=0)],
    [text("a"), Ping(), text("b")],
    [text("a", extra={"x": 1}), text("b")],
    [text("a"), text("b", extra={"x": 1})],
    [text("a"), ContentBlockDelta(delta=TextDelta("b"), index=0, extra={"y": 1})],
    [ContentBlockDelta(delta=ThinkingDelta("a", estimated_tokens=3), index=0)] * 2,
    [ContentBlockDelta(delta=SignatureDelta("a"), index=0)] * 2,
]


@pytest.mark.parametrize("items", APART, ids=range(len(APART)))
def test_what_would_lose_something_stays_apart(items: list[Any]) -> None:
    assert run_stages(items, coalesce()) == items


def test_the_items_that_came_are_not_changed_and_an_unchanged_batch_is_passed_on() -> None:
    first = text("a")
    run_stages([first, text("b")], coalesce())
    assert first == text("a")
    batch = [first, Ping()]
    assert next(iter(run_batches([batch], coalesce()))) is batch


def test_batches_are_never_merged() -> None:
    assert [list(b) for b in run_batches([[text("a")], [text("b")]], coalesce())] == [[text("a")], [text("b")]]


EVENTS = st.lists(
    st.sampled_from(
        [
            f.text(0, "a"),
            f.text(1, "b"),
            f.thinks(2, "c"),
            f.thinks(2, "", estimated_tokens=4),
            f.args(3, '"'),
            f.signs(2, "s"),
            f.PING,
        ]
    ),
    max_size=20,
)


@given(EVENTS)
def test_coalesced_or_not_the_messages_are_the_same(middle: list[Any]) -> None:
    payloads = [
        f.start(),
        f.opens_text(0),
        f.opens_text(1),
        f.opens_thinking(2),
        f.opens_tool(3),
        *middle,
        *(f.closes(n) for n in range(4)),
        f.turn(),
        f.STOP,
    ]

    def messages(*before: Any) -> list[Any]:
        events = [event_from_wire(json.loads(json.dumps(p))) for p in payloads]
        whole = accumulate(ids=seeded_ids(), clock=seeded_clock()) | settle()
        for operator in before:
            whole = operator | whole
        return [i for i in run_stages(events, whole) if type(i).__name__ == "AssistantMessage"]

    assert messages(coalesce()) == messages()
