"""RecordingSink and record_observable; the sample items are what a pipeline delivers."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import orjson
import pytest
import reactivex as rx
from reactivex import operators as ops
from reactivex.subject import Subject

from turnstream import testing
from turnstream.messages import (
    AssistantMessage,
    ContentBlockStop,
    MessageStart,
    ResponseFailed,
    StreamEvent,
    Tombstone,
    UserMessage,
    encode,
    raw_of,
)
from turnstream.operators.batch import Batch, StreamKey
from turnstream.scheduler import LoopScheduler
from turnstream.sinks.base import Sink
from turnstream.testing import (
    RecordingSink,
    VirtualLoop,
    awkward_items,
    record_observable,
    sample_items,
    seeded_clock,
    seeded_ids,
    virtual_time,
)


def now() -> float:
    return asyncio.get_running_loop().time()


# -- the sink


def test_it_is_a_sink_and_records_items_batches_and_the_end() -> None:
    sink = RecordingSink("mine", "block")
    assert isinstance(sink, Sink)
    assert (sink.name, sink.policy, sink.full()) == ("mine", "block", False)
    sink.on_next([1, 2])
    sink.on_next(Batch([3], 4.5, StreamKey("s"), 70))
    assert not sink.completed
    sink.on_completed()
    assert sink.items == [1, 2, 3]
    assert sink.batches == [Batch((1, 2)), Batch((3,), 4.5, StreamKey("s"), 70)]
    assert sink.completed
    assert sink.error is None


def test_it_keeps_no_batch_of_its_source() -> None:
    sink = RecordingSink()
    batch = [1, 2]
    sink.on_next(batch)
    batch.clear()
    assert sink.items == [1, 2]
    assert list(sink.batches[0]) == [1, 2]


def test_only_the_first_end_counts_and_what_comes_later_is_late() -> None:
    sink = RecordingSink()
    error = RuntimeError("broken")
    sink.on_error(error)
    sink.on_completed()
    sink.on_next(["late"])
    assert (sink.error, sink.completed, sink.items, sink.late) == (error, False, [], ["late"])


@pytest.mark.parametrize(("raise_at", "kept"), [(1, []), (3, [1, 2]), (4, [1, 2, 3])])
def test_raise_at_keeps_what_came_before(raise_at: int, kept: list[int]) -> None:
    mine = LookupError("mine")
    sink = RecordingSink(raise_at=raise_at, error=mine)

    def feed() -> None:
        for batch in ([1, 2], [3, 4, 5]):
            sink.on_next(batch)

    with pytest.raises(LookupError) as caught:
        feed()
    assert caught.value is mine
    assert sink.items == kept


def test_raise_at_says_so() -> None:
    with pytest.raises(RuntimeError, match="'recording' was told to raise at item 2"):
        RecordingSink(raise_at=2).on_next([1, 2, 3])


@virtual_time
async def test_slow_takes_its_time_for_each_batch_and_is_full_at_its_capacity() -> None:
    sink = RecordingSink(slow=2.0, capacity=3)
    seen: list[tuple[bool, float]] = []
    for number in range(5):
        sink.on_next([number])
        seen.append((sink.full(), now()))
        await sink.room()
    sink.on_completed()
    # Two fit beside the one at work; from then on each waits for the one before.
    assert seen == [(False, 0.0), (False, 0.0), (True, 0.0), (True, 2.0), (True, 4.0)]
    assert sink.statistics() == {"batches": 3, "items": 3, "queued": 3, "max_queued": 3, "late_items": 0}
    assert not sink.completed
    await sink.drain()
    assert (sink.items, sink.completed, now()) == ([0, 1, 2, 3, 4], True, 10.0)
    await sink.aclose()
    assert sink.closed
    assert now() == 10.0


@virtual_time
async def test_slow_records_an_error_behind_what_waits() -> None:
    sink = RecordingSink(slow=1.0)
    sink.on_next([1])
    sink.on_error(RuntimeError("broken"))
    assert sink.error is None
    await sink.aclose()
    assert sink.items == [1]
    assert str(sink.error) == "broken"
    await asyncio.sleep(10)
    sink.on_next([2])
    assert sink.late == [2]


@pytest.mark.parametrize("where", ["drain", "aclose"])
@virtual_time
async def test_hang(where: Any) -> None:
    sink = RecordingSink(hang=where)
    sink.on_next([1])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1000):
            await getattr(sink, where)()
    assert sink.items == [1]
    assert not sink.closed


@virtual_time
async def test_hang_at_work_fills_up_and_never_has_room() -> None:
    sink = RecordingSink(hang="work", capacity=2)
    sink.on_next([1])
    assert not sink.full()
    sink.on_next([2])
    assert sink.full()
    for waiting in (sink.room, sink.drain, sink.aclose):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1000):
                await waiting()
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    assert loop.pending_timers() == []
    assert sink.items == []


# -- observables


def test_a_synchronous_observable_is_recorded_at_once() -> None:
    recorded = record_observable(rx.of([1, 2], Batch((3,), 1.0)))
    assert recorded.items == [1, 2, 3]
    assert recorded.batches == [[1, 2], Batch((3,), 1.0)]
    assert (recorded.completed, recorded.ended, recorded.error) == (True, True, None)
    assert recorded.times == [None, None]
    assert recorded.threads == {threading.current_thread().name}


def test_an_error_is_recorded_not_raised() -> None:
    error = RuntimeError("broken")
    recorded = record_observable(rx.concat(rx.of("text"), rx.throw(error)))
    assert (recorded.items, recorded.error, recorded.completed) == (["text"], error, False)
    assert "broken" in repr(recorded)


@virtual_time
async def test_times_and_the_end_of_a_timed_observable() -> None:
    recorded = record_observable(rx.interval(60).pipe(ops.take(3)), scheduler=LoopScheduler())
    assert not recorded.ended
    assert await recorded.finished() is recorded
    assert (recorded.items, recorded.times) == ([0, 1, 2], [60.0, 120.0, 180.0])
    assert recorded.completed
    assert await recorded.finished() is recorded


@virtual_time
async def test_finished_returns_after_an_error_too() -> None:
    recorded = record_observable(rx.never().pipe(ops.timeout(90)), scheduler=LoopScheduler())
    await recorded.finished()
    assert (str(recorded.error), now()) == ("Timeout", 90.0)


def test_dispose_ends_the_subscription() -> None:
    source: Subject[list[int]] = Subject()
    recorded = record_observable(source)
    source.on_next([1])
    recorded.dispose()
    source.on_next([2])
    assert recorded.items == [1]
    assert not recorded.ended
    assert "open" in repr(recorded)


# -- samples, ids


def test_samples_are_the_same_for_a_seed_and_made_fresh() -> None:
    first, second, other = sample_items(), sample_items(), sample_items(7)
    assert first == second
    assert first != other
    assert not {id(item) for item in first} & {id(item) for item in second}
    assert awkward_items() == awkward_items()


def test_samples_hold_every_event_class_and_every_message_that_a_sink_may_meet() -> None:
    from turnstream.messages.events import EVENT_CLASSES
    from turnstream.messages.types import Message, StreamEventMessage

    # The envelope of events is made on output only.
    wanted = set(EVENT_CLASSES) | set(Message.__args__) - {StreamEventMessage}
    assert {type(item) for item in [*sample_items(), *awkward_items()]} == wanted


def test_samples_keep_the_promises_of_accumulate() -> None:
    """WIRE.md §1: a block's message comes just before its stop; one usage dict an answer; tombstones before a start."""
    items = sample_items()
    usage: dict[str, list[int]] = {}
    for before, item in zip([None, *items], items, strict=False):
        if isinstance(item, ContentBlockStop):
            assert isinstance(before, AssistantMessage)
            assert before.index == item.index
        if isinstance(item, AssistantMessage) and item.request_id:
            usage.setdefault(item.message["id"], []).append(id(item.message["usage"]))
        if isinstance(before, Tombstone):
            assert isinstance(item, (Tombstone, MessageStart))
        if isinstance(item, ResponseFailed):
            assert isinstance(before, AssistantMessage)
            assert before.is_aborted_mid_stream
    assert {message_id: len(set(dicts)) for message_id, dicts in usage.items()} == {f"msg_{n}": 1 for n in range(1, 6)}
    ids = [item.uuid for item in items if isinstance(item, (AssistantMessage, UserMessage))]
    assert len(ids) == len(set(ids))


def test_samples_can_be_written_and_have_no_line() -> None:
    for item in [*sample_items(), *awkward_items()]:
        orjson.loads(encode(item))
        if not isinstance(item, StreamEvent):
            assert raw_of(item) is None


def test_ids_and_clock_are_the_models() -> None:
    from turnstream import messages

    assert seeded_ids is messages.seeded_ids
    assert seeded_clock is messages.seeded_clock


def test_all_is_what_there_is() -> None:
    assert sorted(testing.__all__) == testing.__all__
    assert all(hasattr(testing, name) for name in testing.__all__)
