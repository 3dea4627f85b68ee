"""What each policy does with batches that come faster than they are taken (DESIGN.md §4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from flowing import SnapshotTaker, Taker, batch, finished, open_text, start, text, text_of, whole_answer

import turnstream as ts
from turnstream.flow import buffered
from turnstream.flow.ends import KEPT_BYTES
from turnstream.flow.queues import make_queue
from turnstream.flow.weights import size_of, weigh
from turnstream.messages import (
    AssistantMessage,
    ContentBlockDelta,
    ContentBlockStop,
    InputJsonDelta,
    MessageStop,
    ResponseFailed,
    Resync,
    StreamNote,
    TextDelta,
    ThinkingDelta,
)
from turnstream.operators.batch import Batch, StreamKey
from turnstream.sinks.ui import UIState
from turnstream.testing import check_sink, virtual_time

POLICIES: tuple[Any, ...] = ("block", "conflate", "drop_oldest", "drop_newest")


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# -- all of them ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
@virtual_time
async def test_one_that_keeps_up_gets_everything_in_order(policy: Any) -> None:
    taker = Taker()
    sink = buffered(taker, policy)
    items = whole_answer("abc")
    for number, item in enumerate(items):
        sink.on_next(batch(item, at=float(number), weight=7))
        await turns()
    sink.on_completed()
    await sink.aclose()
    assert taker.items == items
    assert [b.at for b in taker.batches] == [float(n) for n in range(len(items))]
    assert (taker.ends, taker.closed) == ([None], 1)
    said = sink.statistics()
    assert (said["batches"], said["items"], said["queued"], said["queued_bytes"]) == (len(items), len(items), 0, 0)


@pytest.mark.parametrize("policy", POLICIES)
@virtual_time
async def test_the_end_of_an_answer_and_of_the_run_always_arrive(policy: Any) -> None:
    taker = Taker(gate=asyncio.Event())
    sink = buffered(taker, policy, high_water=1_000, limit=10)
    sink.on_next(batch(text("x"), weight=100))
    await turns()  # this one is being taken; all that follows waits
    failed = ResponseFailed(error={"type": "overloaded_error"}, outcome="api_error(overloaded_error)")
    note = StreamNote(kind="no_message_stop", message="…")
    for end in (MessageStop(), failed, note):
        for _ in range(100):
            sink.on_next(batch(text("y" * 50), weight=100))
        sink.on_next(batch(text("z"), end, text("z"), weight=100))
        for _ in range(100):
            sink.on_next(batch(text("y" * 50), weight=100))
    sink.on_error(RuntimeError("the run broke"))
    assert taker._gate is not None
    taker._gate.set()
    await sink.aclose()
    ends = [i for i in taker.items if isinstance(i, (MessageStop, ResponseFailed, StreamNote))]
    assert ends == [MessageStop(), failed, note]
    assert [str(e) for e in taker.ends] == ["the run broke"]
    if policy == "block":
        assert len(taker.items) == 1 + 3 * 203


@pytest.mark.parametrize("policy", ["conflate", "drop_oldest", "drop_newest"])
@virtual_time
async def test_memory_is_bounded_whatever_comes(policy: Any) -> None:
    """A sink that never takes anything: what waits stays under the mark, one batch and the kept ends."""
    taker = Taker(hang_at=1)
    sink = buffered(taker, policy, high_water=50_000)
    biggest = 0
    for number in range(3_000):
        kind = number % 10
        if kind < 7:
            items: list[Any] = [text("d" * 500)]
        elif kind == 7:
            items = [finished("m" * 5_000, number)]
        elif kind == 8:
            items = [ResponseFailed(error={"type": "x"}, kept=[{"type": "text", "text": "k" * 3_000}])]
        else:
            items = [MessageStop(), text("t")]
        key = StreamKey(None, f"toolu_{number}") if number % 3 == 0 else None
        sink.on_next(Batch(items, None, key, 600))
        await asyncio.sleep(0)
        biggest = max(biggest, sink.statistics()["queued_bytes"])
        assert sink.full() is False
    assert biggest <= 50_000 + 6_000
    # Counted by itself, what the queue really holds (the kept ends are beside the mark).
    queue: Any = sink._queue
    held = sum(size_of(w.batch.items) for w in (*queue._queue, *queue._ends._waiting))
    assert held <= 50_000 + 6_000 + 2 * KEPT_BYTES
    sink._fail(RuntimeError("enough"))
    with pytest.raises(RuntimeError, match="enough"):
        await sink.aclose()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("delay", [0.0, 0.01])
@pytest.mark.parametrize("high_water", [1 << 20, 3_000])
def test_it_keeps_the_promises_of_a_sink(policy: Any, delay: float, high_water: int) -> None:
    from turnstream.testing import run_virtual

    def make() -> Any:
        return buffered(Taker(delay=delay), policy, high_water=high_water)

    output = (lambda sink: len(sink._sink.items)) if policy == "block" else None
    run_virtual(check_sink(make, output=output))


# -- weights -------------------------------------------------------------------------------------------


def test_a_batch_weighs_its_chunk_and_the_messages_in_it() -> None:
    deltas = [text("x" * 100)] * 3
    assert weigh(Batch(deltas, None, None, 321)) == 321
    with_message = weigh(Batch([*deltas, finished("y" * 100_000)], None, None, 321))
    assert 100_321 < with_message < 102_321
    # Nobody says what weightless ones weigh: at least what they hold.
    assert weigh([finished("y" * 100_000)]) > 100_000
    assert weigh(Batch([text("x" * 1_000)])) > 1_000
    assert weigh(Batch([text("🛶" * 1_000)])) > 4_000


def test_an_item_that_holds_itself_is_weighed_all_the_same() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert size_of(loop) > 0


def test_marks_and_policies_are_checked() -> None:
    taker = Taker()
    for arguments in (
        {"high_water": 0},
        {"low_water": 5, "high_water": 4},
        {"limit": 0},
        {"policy": "direct"},
        {"policy": "nonsense"},
    ):
        with pytest.raises(ValueError, match="must be"):
            buffered(taker, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="conflate"):
        buffered(taker, "block", state=dict)
    with pytest.raises(TypeError, match="resync"):
        buffered(taker, "conflate", state=dict)


# -- block ---------------------------------------------------------------------------------------------


@virtual_time
async def test_block_is_full_from_the_high_mark_to_the_low_one() -> None:
    taker = Taker(delay=1.0)
    sink = buffered(taker, "block", high_water=1_000, low_water=300)
    loop = asyncio.get_running_loop()
    for number in range(10):
        assert sink.full() is False, number
        sink.on_next(batch(text(str(number)), weight=100))
    assert sink.full()
    await sink.room()
    # One batch a second; 300 bytes are left when seven are taken.
    assert loop.time() == 7.0
    assert sink.statistics()["queued_bytes"] == 300
    assert sink.full() is False
    await sink.aclose()
    assert text_of(taker.items) == "0123456789"
    assert sink.statistics()["max_queued_bytes"] == 1_000


@virtual_time
async def test_block_holds_the_source_and_loses_nothing() -> None:
    chunks = [b"x" * 1_000] * 100
    ahead: list[int] = []
    given = 0
    taker = Taker(delay=1.0)

    def count() -> Any:
        nonlocal given
        for chunk in chunks:
            given += 1
            ahead.append(given - len(taker.batches))
            yield chunk

    sink = buffered(taker, "block", high_water=5_000, low_water=1_000)
    outcome = await ts.Pipeline(ts.from_bytes(count())).to(sink).run()
    assert outcome.ok
    assert b"".join(taker.items) == b"x" * 100_000
    assert max(ahead) == 5, "never more than the high mark, in chunks of 1,000"


@virtual_time
async def test_a_limit_counts_items() -> None:
    taker = Taker(delay=1.0)
    sink = buffered(taker, "block", limit=4)
    for _ in range(4):
        assert sink.full() is False
        sink.on_next(batch(text("a")))
    await turns()
    assert sink.full(), "one is being taken, three wait"
    await sink.room()
    assert sink.statistics()["queued_items"] == 2
    await sink.aclose()
    assert len(taker.items) == 4


@virtual_time
async def test_lag_is_the_age_of_what_waits_longest() -> None:
    taker = Taker(delay=10.0)
    sink = buffered(taker)
    assert sink.statistics()["lag"] == 0
    sink.on_next(batch(text("a")))
    await asyncio.sleep(4)
    sink.on_next(batch(text("b")))
    assert sink.statistics()["lag"] == 4
    await asyncio.sleep(7)
    assert sink.statistics()["lag"] == 7, "the second came at 4, now it is 11"
    await sink.aclose()
    assert sink.statistics()["lag"] == 0


# -- conflate ------------------------------------------------------------------------------------------


def popped(queue: Any) -> list[Any]:
    out: list[Any] = []
    while (waiting := queue.pop()) is not None:
        out.append(waiting.batch)
    return out


def test_conflate_merges_adjacent_deltas_of_one_block() -> None:
    queue = make_queue("conflate", 1 << 20, None)
    for item in (start(), open_text(0), text("a"), text("b"), text("c", 1), text("d", 1), text("e")):
        queue.put(batch(item, weight=100, at=1.0), 0.0)
    queue.put(batch(ContentBlockDelta(ThinkingDelta("t"), 0), ContentBlockDelta(InputJsonDelta("{"), 2), at=2.0), 0.0)
    queue.put(batch(ContentBlockDelta(InputJsonDelta("}"), 2), at=3.0), 0.0)
    (merged,) = popped(queue)
    assert list(merged.items) == [
        start(),
        open_text(0),
        text("ab"),
        text("cd", 1),
        text("e"),
        ContentBlockDelta(ThinkingDelta("t"), 0),
        ContentBlockDelta(InputJsonDelta("{}"), 2),
    ]
    assert (merged.at, merged.weight) == (3.0, 700)
    assert queue.conflated == 3
    assert (queue.weight, queue.items, queue.batches) == (0, 0, 0)


def test_conflate_lets_a_finished_message_replace_the_deltas_of_its_block_only() -> None:
    queue = make_queue("conflate", 1 << 20, None)
    items = [
        text("before", 0),
        start("msg_2"),
        open_text(0),
        text("gone", 0),
        open_text(1),
        text("stays", 1),
        text("gone too", 0),
        finished("gonegone too", 0, "msg_2"),
        ContentBlockStop(0),
        text(" here", 1),
    ]
    for item in items:
        queue.put(batch(item, weight=100), 0.0)
    (merged,) = popped(queue)
    assert list(merged.items) == [
        text("before", 0),  # of another answer
        start("msg_2"),
        open_text(0),
        open_text(1),
        text("stays", 1),
        finished("gonegone too", 0, "msg_2"),
        ContentBlockStop(0),
        text(" here", 1),
    ]


def test_conflate_keeps_the_deltas_of_what_broke_off() -> None:
    partial = AssistantMessage(
        message={"id": "m", "content": []}, uuid="u", timestamp="t", is_aborted_mid_stream=True, index=0
    )
    queue = make_queue("conflate", 1 << 20, None)
    queue.put(batch(text("a"), partial), 0.0)
    (merged,) = popped(queue)
    assert list(merged.items) == [text("a"), partial]


def test_conflate_keeps_streams_apart() -> None:
    agent = StreamKey(None, "toolu_1")
    queue = make_queue("conflate", 1 << 20, None)
    for value, key in (("a", None), ("b", None), ("x", agent), ("y", agent), ("c", None)):
        queue.put(batch(text(value), key=key), 0.0)
    assert [(b.key, text_of(b)) for b in popped(queue)] == [(None, "ab"), (agent, "xy"), (None, "c")]


def test_conflate_collapses_only_if_merging_is_not_enough() -> None:
    queue = make_queue("conflate", 10_000, None)
    for _ in range(1_000):
        # A delta of one character comes in a frame of 100 bytes; merged it is one character.
        queue.put(batch(text("x"), weight=100), 0.0)
    assert queue.resyncs == 0
    assert text_of(popped(queue)[0]) == "x" * 1_000
    for _ in range(30):
        queue.put(batch(text("y" * 1_000), weight=1_100), 0.0)
    assert queue.resyncs == 1
    assert [list(b) for b in popped(queue)] == [[Resync()]]


def test_conflate_collapses_over_a_limit_of_items_too() -> None:
    queue = make_queue("conflate", 1 << 20, 5)
    for index in range(6):
        queue.put(batch(text("x", index)), 0.0)
    assert [list(b) for b in popped(queue)] == [[Resync()]]


def test_ends_go_before_the_resync_so_they_cannot_end_the_answer_that_the_snapshot_shows() -> None:
    queue = make_queue("conflate", 1_000, None)
    for item in (text("a" * 2_000), MessageStop(), start("msg_2"), text("b" * 2_000)):
        queue.put(batch(item, weight=100), 0.0)
        queue.put(batch(finished("z" * 3_000, 7), weight=100), 0.0)
    assert [list(b) for b in popped(queue)] == [[MessageStop()], [Resync()]]
    queue.put(batch(text("afterwards")), 0.0)
    assert [list(b) for b in popped(queue)] == [[text("afterwards")]]


@virtual_time
async def test_after_a_resync_the_snapshot_and_what_follows_show_the_same_as_the_whole_stream() -> None:
    """The one that overflowed restores its state from the snapshot: no text twice, none missing."""
    whole = UIState()
    gate = asyncio.Event()

    class Display(Taker):
        def __init__(self) -> None:
            super().__init__("display", gate=gate)
            self.state = UIState()

        async def take(self, batch: Any, /) -> None:
            await super().take(batch)
            self.state.apply(batch)

        async def resync(self, snapshot: Any) -> None:
            self.snapshots.append(snapshot)
            self.state = UIState.restore(snapshot)

    display = Display()
    sink = buffered(display, "conflate", high_water=1_500, state=whole.snapshot)
    items: list[Any] = []
    for number in range(6):
        items += whole_answer("abcdefghij" * 40, f"msg_{number}")
        if number == 2:
            items[-1] = ResponseFailed(error={"type": "x"}, outcome="incomplete(1)")
    items += [start("msg_7"), open_text(), text("half a ")]
    for position, item in enumerate(items):
        whole.apply((item,))
        sink.on_next(batch(item, weight=60))
        if position == 40 or position % 500 == 0:
            gate.set()
            await turns()
            gate.clear()
    gate.set()
    await turns()
    for item in (text("sentence"), finished("half a sentence", 0, "msg_7"), ContentBlockStop(0), MessageStop()):
        whole.apply((item,))
        sink.on_next(batch(item, weight=60))
    await sink.drain()
    assert len(display.snapshots) == sink.statistics()["resyncs"] > 0
    shown, expected = display.state.snapshot(), whole.snapshot()
    assert shown.items == expected.items
    assert (shown.blocks, shown.outcome, shown.answering) == (expected.blocks, "complete", False)
    await sink.aclose()


@virtual_time
async def test_what_comes_while_a_resync_waits_is_in_its_snapshot_and_not_queued() -> None:
    taker = SnapshotTaker(gate=asyncio.Event())
    seen: list[str] = []
    sink = buffered(taker, "conflate", high_water=300, state=lambda: "".join(seen))
    assert taker._gate is not None

    def give(value: str) -> None:
        seen.append(value)
        sink.on_next(batch(text(value), weight=200))

    give("a")
    await turns()
    for index, value in enumerate("bcdefgh"):
        give(value)
        sink.on_next(batch(finished("m" * 1_000, index), weight=10))
    taker._gate.set()
    await turns()
    give("i")
    await sink.aclose()
    assert [i for i in taker.items if not isinstance(i, ContentBlockDelta)] == ["abcdefgh"]
    assert text_of(taker.items) == "ai"


@virtual_time
async def test_without_resync_the_sink_gets_a_resync_item() -> None:
    taker = Taker(gate=asyncio.Event())
    sink = buffered(taker, "conflate", high_water=300)
    for _ in range(4):
        sink.on_next(batch(finished("m" * 1_000), weight=10))
    await turns()
    assert taker._gate is not None
    taker._gate.set()
    await sink.aclose()
    assert Resync() in taker.items


# -- dropping ------------------------------------------------------------------------------------------


@virtual_time
async def test_drop_oldest_keeps_the_newest_that_fit_and_counts_the_rest() -> None:
    taker = Taker(gate=asyncio.Event())
    sink = buffered(taker, "drop_oldest", high_water=300)
    assert taker._gate is not None
    sink.on_next(batch(text("0"), weight=100))
    await turns()
    for value in "123456789":
        sink.on_next(batch(text(value), text(value), weight=100))
    said = sink.statistics()
    assert (said["dropped_batches"], said["dropped_items"], said["queued"]) == (6, 12, 4)
    taker._gate.set()
    await sink.aclose()
    assert text_of(taker.items) == "0" + "778899"


@virtual_time
async def test_drop_newest_keeps_the_oldest_that_fit_and_counts_the_rest() -> None:
    taker = Taker(gate=asyncio.Event())
    sink = buffered(taker, "drop_newest", high_water=300)
    assert taker._gate is not None
    sink.on_next(batch(text("0"), weight=100))
    await turns()
    for value in "12345":
        sink.on_next(batch(text(value), weight=100))
    sink.on_next(batch(text("x"), MessageStop(), weight=100))
    said = sink.statistics()
    assert (said["dropped_batches"], said["dropped_items"]) == (3, 3)
    taker._gate.set()
    await turns()
    sink.on_next(batch(text("6"), weight=100))
    await sink.aclose()
    assert text_of(taker.items) == "01236"
    assert taker.items.index(MessageStop()) == 4, "behind what was kept, before what came later"


def test_one_batch_over_the_mark_is_taken_where_nothing_waits() -> None:
    for policy in ("drop_oldest", "drop_newest"):
        queue = make_queue(policy, 100, None)  # type: ignore[arg-type]
        queue.put(batch(text("big"), weight=5_000), 0.0)
        assert [text_of(b) for b in popped(queue)] == ["big"]


def test_kept_ends_are_bounded_and_the_newest_is_always_there() -> None:
    for policy in ("drop_oldest", "drop_newest", "conflate"):
        queue = make_queue(policy, 100, None)  # type: ignore[arg-type]
        for number in range(3_000):
            queue.put(batch(finished("m" * 200, number), weight=200), 0.0)
            failed = ResponseFailed(error={"number": number}, kept=["k" * 1_000])
            queue.put(batch(failed, text("x" * 200), weight=200), 0.0)
        ends = [i for b in popped(queue) for i in b if isinstance(i, ResponseFailed)]
        numbers = [end.error["number"] for end in ends]
        assert numbers == sorted(numbers)
        assert numbers[-1] == 2_999, policy
        assert queue.dropped_ends == 3_000 - len(numbers) > 0
        assert len(numbers) * 1_000 <= KEPT_BYTES + 1_000


def test_items_are_never_merged_across_a_kind() -> None:
    assert isinstance(TextDelta("a"), TextDelta)
    queue = make_queue("conflate", 1 << 20, None)
    queue.put(batch(text("a"), ContentBlockDelta(ThinkingDelta("b"), 0), text("c")), 0.0)
    assert [len(b) for b in popped(queue)] == [3]
