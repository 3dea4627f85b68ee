"""Many live streams, begun and cancelled at random points: nothing of any of them is left (DESIGN.md §4)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from serving import TEXT, TOOLS

from turnstream import Pipeline, accumulate, decode, from_request, parse_events
from turnstream.serve import serve_recordings
from turnstream.sinks import MetricsSink, TranscriptSink, UISink
from turnstream.sources.http import shared_session
from turnstream.testing import RecordingSink, run_virtual
from turnstream.testing.leftovers import Leftovers

STREAMS = int(os.environ.get("TURNSTREAM_TEST_STREAMS", "1000"))
"""How many (1,000 take seconds)."""

AT_ONCE = 50
REQUEST: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}

FAULTS = (
    *(None, None, "stall-after=3", "stall-after=0", "first-byte-stall=5", "first-byte-stall", "slow=0.3"),
    *("pings-after=2,keepalive=0.5", "cut-after=4", "eof-after=6", "overloaded-after=2", "529", "html"),
)
"""What the servers of the others do to them while they are cancelled."""


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)


def descriptors() -> dict[str, int]:
    """What is open, by kind (``socket``, ``pipe``, a path …), with how many; empty where nobody lists them."""
    found: dict[str, int] = {}
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with contextlib.suppress(OSError):  # the listing's own
            kind = os.readlink(f"/proc/self/fd/{name}").partition(":")[0]
            found[kind] = found.get(kind, 0) + 1
    return found


async def settle(*left: Callable[[], Any]) -> None:
    """Give the server, which shares this loop, its turns to hear from its sockets that its clients are gone.

    A second of the loop's time at most, which is virtual: no timer of a stream's is over by then.
    """
    for _ in range(100):
        if not any(look() for look in left):
            return
        await asyncio.sleep(0.01)


class Many:
    """The streams, some at a time.

    Args:
        seed: of the points at which they are cancelled, of the ways, and of what the server does meanwhile.
        folder: for transcripts.

    Attributes:
        ends: how many ended in each way.
    """

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.ends: dict[str, int] = {}

    async def run(self, count: int, url: str, session: aiohttp.ClientSession) -> None:
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            async with gate:
                end = await self.stream(number, url, session)
                self.ends[end] = self.ends.get(end, 0) + 1

        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(one(number))

    async def stream(self, number: int, url: str, session: aiohttp.ClientSession) -> str:
        """One stream: cancelled, aborted, disposed, left, or read to its end."""
        choice = self.random.choice
        fault = choice(FAULTS)
        headers = {} if fault is None else {"x-turnstream-fault": fault}
        own = self.random.random() < 0.3
        source = from_request(REQUEST, base_url=url, headers=headers, session=None if own else session, trust_env=False)
        way = choice(("cancel", "cancel", "abort", "dispose", "leave", "bare", "turns", "turns"))
        # In virtual time only what waits takes any: most points lie within what the server lets pass.
        after = choice((0.0, 0.0, 0.001, 0.05, self.random.random(), self.random.random() * 8))
        if way == "bare":
            return await self.bare(source, after)
        sinks: list[Any] = [UISink(), MetricsSink(), RecordingSink()]
        if number % 5 == 0:
            sinks.append(TranscriptSink(self.folder / f"{number}.jsonl"))
        pipeline = Pipeline(source).through(decode() | parse_events() | accumulate()).to(*sinks)
        if way in ("cancel", "turns"):
            task = asyncio.ensure_future(pipeline.run())
            if way == "turns":
                for _ in range(self.random.randrange(60)):
                    await asyncio.sleep(0)
            else:
                await asyncio.wait([task], timeout=after)
            task.cancel()
            await asyncio.wait([task])
            if task.cancelled():
                return "cancelled"
            return f"run {task.result().status}"
        async with pipeline as run:
            await asyncio.sleep(after)
            if way == "abort":
                run.abort("enough")
            elif way == "dispose":
                run.dispose()
            elif way == "leave":
                return "left"
            return f"run {(await run).status}"

    @staticmethod
    async def bare(source: Any, after: float) -> str:
        """Only the source, iterated by hand, cancelled in the middle of a wait."""

        async def read() -> None:
            async for _ in source.batches():
                pass

        task = asyncio.ensure_future(read())
        await asyncio.wait([task], timeout=after)
        task.cancel()
        await asyncio.wait([task])
        return "cancelled" if task.cancelled() else f"source {type(task.exception()).__name__}"


def test_many_streams_cancelled_anywhere_leave_nothing(tmp_path: Path) -> None:
    gc.collect()
    outside = descriptors()
    many = Many(7, tmp_path)

    async def main() -> None:
        before_server = Leftovers()
        async with serve_recordings([TEXT, TOOLS]) as server:
            # What is made once (the default executor, caches) is no stream's.
            async with shared_session() as session:
                await Many(1, tmp_path / "warm").stream(1, server.url, session)

            def answering() -> list[str]:
                return [request.path for request in server.requests if request.ended is None]

            await settle(answering)
            before = Leftovers()
            inside = descriptors()
            async with shared_session() as session:
                await many.run(STREAMS, server.url, session)
                # While the session lives it may keep connections that nobody uses, but none is in use.
                assert session.connector is not None
                assert not session.connector._acquired
            await settle(answering, before.since)
            gc.collect()
            refused = [request for request in server.requests if request.status == 400]
            assert refused == [], "a fault that the server doesn't know"
            assert descriptors() == inside
            assert answering() == []
            assert before.since() == []
        gc.collect()
        assert before_server.since() == []

    run_virtual(main(), debug=False)
    gc.collect()
    assert descriptors() == outside
    # It was at many points: some never began, some came to their end, some broke.
    assert sum(many.ends.values()) == STREAMS
    assert len(many.ends) >= 6, many.ends
    print(many.ends)
    assert many.ends["cancelled"] > STREAMS / 10, many.ends
    assert many.ends["run complete"] > STREAMS / 20, many.ends
