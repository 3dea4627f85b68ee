"""A run cancelled at every step it takes, once and twice: nothing is left, and no line is cut."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from flowing import SnapshotTaker, Taker, answer, live, stages

import turnstream as ts
from turnstream.flow import buffered, map_async
from turnstream.messages import AssistantMessage
from turnstream.sinks.base import SinkBase
from turnstream.sinks.ui import UISink
from turnstream.testing import RecordingSink, cancel_everywhere

FRAMES = [*answer(1, ["a", "b"]), *answer(2, ["c"])]
HALF = FRAMES[:-3]


class Files:
    """A transcript's folder, a fresh file for each run, and a look at all of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.number = 0

    def fresh(self) -> Path:
        self.number += 1
        return self._folder / f"{self.number}.jsonl"

    def check(self, step: int) -> None:
        for path in self._folder.iterdir():
            assert path.suffix in (".jsonl", ".lock"), path
            if path.suffix == ".jsonl":
                data = path.read_bytes()
                assert data.endswith(b"\n"), f"half a line is left in {path.name}, cancelled at step {step}"
                for line in data.splitlines():
                    json.loads(line)
                path.unlink()


def scenarios(files: Files) -> dict[str, Callable[[], Coroutine[Any, Any, Any]]]:
    async def work(item: Any) -> Any:
        await asyncio.sleep(0.3)
        return item

    def sinks() -> Sequence[Any]:
        ui = UISink(keep=True)
        return (
            ui,
            ts.TranscriptSink(files.fresh(), session_id="s", cwd="/"),
            buffered(Taker("block", delay=0.7), high_water=300),
            buffered(SnapshotTaker("conflate", delay=2.0), "conflate", high_water=300, state=ui.state.snapshot),
            buffered(Taker("oldest", delay=2.0), "drop_oldest", high_water=300),
        )

    async def replay() -> None:
        await ts.Pipeline(ts.from_bytes(FRAMES)).through(stages()).to(*sinks()).run()

    async def live_run() -> None:
        source = ts.from_async_iterable(live(FRAMES, 0.5))
        async with ts.Pipeline(source).through(stages()).to(*sinks()) as run:
            await run

    async def cut_off() -> None:
        source = ts.from_async_iterable(live(HALF, 0.5, ConnectionResetError("peer reset")))
        async with ts.Pipeline(source).through(stages()).to(*sinks()) as run:
            await run

    async def aborted() -> None:
        source = ts.from_async_iterable(live(FRAMES, 0.5))
        async with ts.Pipeline(source).through(stages()).to(*sinks()) as run:
            await asyncio.sleep(2.2)
            run.abort("enough")
            await run

    async def disposed() -> None:
        source = ts.from_async_iterable(live(FRAMES, 0.5))
        async with ts.Pipeline(source).through(stages()).to(*sinks()):
            await asyncio.sleep(2.2)

    async def mapped() -> None:
        source = ts.from_async_iterable(live(FRAMES, 0.1))
        async with ts.Pipeline(source).through(stages() | map_async(work, 3)).to(RecordingSink()) as run:
            await run

    async def faulty() -> None:
        source = ts.from_async_iterable(live(FRAMES, 0.5))
        bad = buffered(Taker("bad", raise_at=2)), buffered(Taker("stuck", hang_at=2), high_water=1, stall_timeout=2)
        hung = RecordingSink("hung", hang="aclose")
        async with ts.Pipeline(source).through(stages()).to(*bad, hung, *sinks()[:2], drain_timeout=3) as run:
            await run

    async def iterated() -> None:
        pipeline = ts.Pipeline(ts.from_async_iterable(live(FRAMES, 0.5))).through(stages())
        async with aclosing(ts.to_async_iterable(pipeline, maxsize=2)) as items:
            async for _ in items:
                await asyncio.sleep(0.1)

    return {
        f.__name__: f for f in (replay, live_run, cut_off, aborted, disposed, mapped, faulty, iterated)
    }  # fmt: skip


NAMES = ["replay", "live_run", "cut_off", "aborted", "disposed", "mapped", "faulty", "iterated"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("again", [None, 1, 3])
def test_cancelled_anywhere_nothing_is_left(name: str, again: int | None, tmp_path: Path) -> None:
    files = Files(tmp_path)
    steps = cancel_everywhere(scenarios(files)[name], again=again, check=files.check)
    assert steps > 10


def test_cancelled_anywhere_what_was_open_is_kept_and_every_sink_is_closed() -> None:
    """Whatever step it is: sinks learn the end once, are closed once, and have the partial answer."""
    seen: list[tuple[RecordingSink, Taker]] = []

    async def scenario() -> None:
        recorder, taker = RecordingSink(), Taker()
        seen.append((recorder, taker))
        source = ts.from_async_iterable(live(HALF, 0.5))
        async with ts.Pipeline(source).through(stages()).to(recorder, buffered(taker)) as run:
            await run

    def check(step: int) -> None:
        recorder, taker = seen.pop()
        if step == 1:
            return  # cancelled before it began: neither sink has heard of a run
        assert recorder.completed
        assert recorder.closed
        assert recorder.late == []
        assert taker.closed == 1
        assert taker.items == recorder.items
        deltas = [i for i in recorder.items if type(i).__name__ == "ContentBlockDelta"]
        text = "".join(d.delta.text for d in deltas)
        kept = [i for i in recorder.items if isinstance(i, AssistantMessage)]
        assert "".join(block["text"] for m in kept for block in m.message["content"]) == text

    assert cancel_everywhere(scenario, check=check) > 10


class _Unnamed(SinkBase):
    name = "plain"

    def on_next(self, batch: Sequence[Any], /) -> None: ...


def test_every_task_of_a_run_has_a_name_of_ours() -> None:
    names: set[str] = set()

    async def scenario() -> None:
        async def work(item: Any) -> Any:
            names.update(task.get_name() for task in asyncio.all_tasks())
            await asyncio.sleep(0.3)
            return item

        async def watch() -> None:
            while True:
                names.update(task.get_name() for task in asyncio.all_tasks())
                await asyncio.sleep(0)

        owner = asyncio.current_task()
        assert owner is not None
        owner.set_name("owner")
        watching = asyncio.create_task(watch(), name="watch")
        source = ts.from_bytes(FRAMES)
        pipeline = ts.Pipeline(source).through(stages() | map_async(work, 3))
        await pipeline.to(_Unnamed(), buffered(Taker(delay=0.0))).run()
        watching.cancel()

    asyncio.run(scenario(), debug=True)
    ours = {name for name in names if name.startswith("turnstream-")}
    assert names - ours <= {"owner", "watch"}
    assert {"turnstream-pump", "turnstream-close", "turnstream-close plain", "turnstream-sink taker"} <= ours
