"""Whatever stands beside it, a recorder gets the same: random sinks, random chunks, random live or replay."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from flowing import SnapshotTaker, Taker, answer, live, stages
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import turnstream as ts
from turnstream.flow import buffered
from turnstream.flow.ends import ends_of
from turnstream.messages import StreamNote, ToolUseSummary
from turnstream.testing import RecordingSink, run_virtual
from turnstream.testing.leftovers import Leftovers

DATA = b"".join([*answer(1, "abcdef"), *answer(2, []), *answer(3, ["x" * 300] * 4), *answer(4, ["cut off"])[:-2]])
ALONE = ts.run_stages([DATA], stages())
POLICIES = ("block", "conflate", "drop_oldest", "drop_newest")


class EmittingSink(RecordingSink):
    """Emits something for every third batch that it didn't emit itself."""

    run: ts.Run | None = None

    def on_next(self, batch: Sequence[Any], /) -> None:
        super().on_next(batch)
        if self.run is not None and len(self.batches) % 3 == 0 and not any(map(emitted, batch)):
            self.run.emit(ToolUseSummary(summary=self.name, uuid="u", timestamp="t"))


class StoppingTwice(RecordingSink):
    """Cancels its own drain twice over, as a sink with a broken task of its own would."""

    async def drain(self) -> None:
        task = asyncio.get_running_loop().create_task(asyncio.sleep(100), name="its own")
        await asyncio.sleep(0)
        task.cancel()
        task.cancel()
        await task


def emitted(item: Any) -> bool:
    return isinstance(item, ToolUseSummary)


def noted(item: Any) -> bool:
    return isinstance(item, StreamNote) and item.kind == "sink_detached"


items_at = st.integers(1, len(ALONE) + 5)
seconds = st.sampled_from([0.001, 0.5, 3.0, 20.0])


@st.composite
def sink_specs(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    kind = draw(
        st.sampled_from(["recorder", "slow", "raising", "hanging", "emitting", "cancelling", "buffered", "buffered"])
    )
    if kind == "slow":
        return kind, {"slow": draw(seconds), "capacity": draw(st.integers(1, 4))}
    if kind == "raising":
        return kind, {"raise_at": draw(items_at)}
    if kind == "hanging":
        return kind, {
            "slow": 1.0,
            "capacity": draw(st.integers(1, 4)),
            "hang": draw(st.sampled_from(["work", "drain", "aclose"])),
        }
    if kind == "buffered":
        fault = draw(st.sampled_from(["none", "raise_at", "hang_at"]))
        return kind, {
            "policy": draw(st.sampled_from(POLICIES)),
            "high_water": draw(st.sampled_from([1, 200, 1 << 20])),
            "delay": draw(st.sampled_from([0.0, 0.5, 20.0])),
            "fault": {} if fault == "none" else {fault: draw(st.integers(1, 6))},
        }
    return kind, {}


def make_sink(number: int, spec: tuple[str, dict[str, Any]]) -> Any:
    kind, options = spec
    name = f"{kind} {number}"
    match kind:
        case "buffered":
            make = SnapshotTaker if options["policy"] == "conflate" else Taker
            taker = make(name, delay=options["delay"], **options["fault"])
            return buffered(taker, options["policy"], high_water=options["high_water"])
        case "emitting":
            return EmittingSink(name)
        case "cancelling":
            return StoppingTwice(name)
        case "slow" | "hanging":
            return RecordingSink(name, "block", **options)
        case _:
            return RecordingSink(name, **options)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    out: list[bytes] = []
    at = 0
    for size in sizes:
        out.append(data[at : at + size])
        at += size
    return [*out, data[at:]]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    specs=st.lists(sink_specs(), max_size=5),
    position=st.integers(0, 5),
    sizes=st.lists(st.integers(1, 400), max_size=30),
    gap=st.sampled_from([None, 0.0, 0.3, 15.0]),
)
def test_the_recorder_always_gets_the_same(
    specs: list[tuple[str, dict[str, Any]]], position: int, sizes: list[int], gap: float | None
) -> None:
    async def scenario() -> None:
        before = Leftovers()
        recorder = RecordingSink("recorder")
        sinks = [make_sink(number, spec) for number, spec in enumerate(specs)]
        chunks = cut(DATA, sizes)
        source = ts.from_bytes(chunks) if gap is None else ts.from_async_iterable(live(chunks, gap))
        beside = [*sinks[:position], recorder, *sinks[position:]]
        async with ts.Pipeline(source).through(stages()).to(*beside) as run:
            for sink in sinks:
                if isinstance(sink, EmittingSink):
                    sink.run = run
            outcome = await run

        assert [i for i in recorder.items if not emitted(i) and not noted(i)] == ALONE
        assert (recorder.completed, recorder.closed, recorder.late) == (True, True, [])
        assert (outcome.answers_complete, outcome.answers_failed) == (3, 1)
        for sink in sinks:
            faulty = sink.name in outcome.sink_errors
            if isinstance(sink, RecordingSink) and not faulty:
                # Behind a queue the end of the run may come before an item is taken, never before it is queued.
                assert sink.items == recorder.items
            elif not isinstance(sink, RecordingSink) and not faulty:
                taker = sink._sink
                assert (taker.ends, taker.closed) == ([None], 1)
                if sink.policy == "block":
                    assert taker.items == recorder.items
                assert ends_of(taker.items) == ends_of(recorder.items)
        # Who is detached is told in-band and in the outcome; what is found out at the end only there.
        assert sum(map(noted, recorder.items)) <= len(outcome.sink_errors)
        assert outcome.status == "failed"
        for _ in range(3):
            await asyncio.sleep(0)
        assert before.since() == []

    run_virtual(scenario())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    specs=st.lists(sink_specs(), max_size=3),
    first=st.sampled_from([0.0, 0.1, 1.0, 7.0, 100.0]),
    second=st.sampled_from([0.0, 0.1, 40.0]),
)
def test_cancelled_twice_the_recorder_has_a_beginning_of_the_same_and_all_is_closed(
    specs: list[tuple[str, dict[str, Any]]], first: float, second: float
) -> None:
    async def scenario() -> None:
        before = Leftovers()
        recorder = RecordingSink("recorder")
        sinks = [make_sink(number, spec) for number, spec in enumerate(specs)]
        chunks = cut(DATA, [100] * 30)

        async def own() -> None:
            source = ts.from_async_iterable(live(chunks, 0.3))
            async with ts.Pipeline(source).through(stages()).to(recorder, *sinks) as run:
                await run

        task = asyncio.create_task(own())
        await asyncio.sleep(first)
        task.cancel()
        await asyncio.sleep(second)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
        streamed = [i for i in recorder.items if type(i).__module__.endswith(".events")]
        expected = [i for i in ALONE if type(i).__module__.endswith(".events")]
        assert streamed == expected[: len(streamed)]
        if recorder.batches:
            assert (recorder.completed, recorder.closed) == (True, True)
        for _ in range(3):
            await asyncio.sleep(0)
        assert before.since() == []

    run_virtual(scenario())


def test_the_oracle_has_all_kinds_of_ends() -> None:
    """The property would say little if the stream were all well."""
    assert sorted({type(i).__name__ for i in ends_of(ALONE)}) == ["MessageStop", "ResponseFailed"]
