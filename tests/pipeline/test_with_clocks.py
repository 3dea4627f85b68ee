"""Clocks around sources that have none: pipes, other clients' bytes (WIRE.md §7, FAULTS.md 84)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pulling import Producer, collect, joined
from serving import TEXT, Streamer, serving
from stalling import Drip

from turnstream import Clocks, Pipeline, SinkBase, accumulate, decode, from_async_iterable, parse_events, with_clocks
from turnstream.messages import AssistantMessage, ResponseFailed, StreamIdleTimeout, StreamNote
from turnstream.sources import SessionSource, from_bytes, from_file, from_request, from_stdin
from turnstream.testing import RecordingSink, virtual_time

EVENTS = [block + b"\n\n" for block in TEXT.split(b"\n\n") if block]


def now() -> float:
    return asyncio.get_running_loop().time()


def played(source: Any) -> Pipeline[Any]:
    return Pipeline(SessionSource([source], lambda _: decode() | parse_events() | accumulate()))


class Pausing(SinkBase):
    """Lossless; full for an hour after each batch."""

    name = "pausing"

    def __init__(self) -> None:
        self._full = False

    def on_next(self, batch: Sequence[Any], /) -> None:
        self._full = True

    def full(self) -> bool:
        return self._full

    async def room(self) -> None:
        await asyncio.sleep(3600)
        self._full = False


@virtual_time(max_moves=2_000)
async def test_fault_84_a_silent_producer_is_given_up_and_what_came_is_kept() -> None:
    producer = Producer([*EVENTS[:5], b""], gap=1.0)

    async def stream() -> AsyncIterator[bytes]:
        async for chunk in producer.stream():
            if not chunk:
                await asyncio.Event().wait()
            yield chunk

    sink = RecordingSink()
    outcome = await played(with_clocks(from_async_iterable(stream()))).to(sink).run()
    assert outcome.status == "failed"
    (failed,) = [item for item in sink.items if isinstance(item, ResponseFailed)]
    assert failed.error["type"] == "stream_idle_timeout"
    assert failed.error["retryable"] is True
    assert "90 s" in failed.error["message"]
    (message,) = [item for item in sink.items if isinstance(item, AssistantMessage)]
    assert message.is_aborted_mid_stream
    (warning,) = [item for item in sink.items if isinstance(item, StreamNote) and item.kind == "idle_warning"]
    assert "45 s" in warning.message
    assert now() == pytest.approx(5 + 1 + 90, abs=1.5)


@pytest.mark.parametrize(("gap", "ok"), [(89.0, True), (91.0, False)])
@virtual_time
async def test_each_chunk_begins_a_new_wait(gap: float, ok: bool) -> None:
    producer = Producer(EVENTS, gap=gap)
    source = with_clocks(from_async_iterable(producer.stream()), Clocks(first_byte=100.0))
    if ok:
        assert joined(await collect(source)) == TEXT
    else:
        with pytest.raises(StreamIdleTimeout):
            await collect(source)
    assert producer.closed == 1


@pytest.mark.parametrize(("clocks", "word", "at"), [
    (Clocks(), "no byte of an answer came within 300 s", 300.0),
    (Clocks(first_byte=None, total=200.0), "more than 200 s", 200.0),
])  # fmt: skip
@virtual_time
async def test_fault_88_the_first_byte_and_the_whole(clocks: Clocks, word: str, at: float) -> None:
    gap = 1_000.0 if clocks.first_byte else 60.0
    producer = Producer(EVENTS, gap=gap)
    with pytest.raises(StreamIdleTimeout, match=word):
        await collect(with_clocks(from_async_iterable(producer.stream()), clocks))
    assert now() == pytest.approx(at)
    assert producer.closed == 1


@pytest.mark.parametrize("first_byte", [None, 300.0])
@virtual_time
async def test_the_whole_counts_before_the_first_byte(first_byte: float | None) -> None:
    producer = Producer(EVENTS, gap=10_000.0)
    clocks = Clocks(first_byte=first_byte, total=200.0)
    with pytest.raises(StreamIdleTimeout, match="more than 200 s"):
        await collect(with_clocks(from_async_iterable(producer.stream()), clocks))
    assert now() == pytest.approx(200.0)


@virtual_time
async def test_all_off_waits_for_ever() -> None:
    producer = Producer(EVENTS, gap=86_400.0)
    assert joined(await collect(with_clocks(from_async_iterable(producer.stream()), Clocks.off()))) == TEXT


@virtual_time
async def test_fault_87_a_consumer_that_pauses_lets_no_clock_run_out() -> None:
    producer = Producer(EVENTS, gap=10.0)
    source = with_clocks(from_async_iterable(producer.stream()), Clocks(total=300.0))
    sink = Pausing()
    sink.stall_timeout = None  # type: ignore[attr-defined]
    seen = RecordingSink()
    outcome = await played(source).to(sink, seen).run()
    assert outcome.ok
    assert not [item for item in seen.items if isinstance(item, StreamNote)]
    assert now() > 3600 * len(EVENTS)


@virtual_time(max_moves=2_000)
async def test_fault_84_what_is_handed_over_is_watched_as_well() -> None:
    """A source with clocks of its own inside: the shorter ones count."""
    server = Drip(*[step for event in EVENTS[:4] for step in (event, 1.0)])
    request = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    async with serving(server) as url:
        inner = from_request(request, base_url=url, api_key="k")
        sink = RecordingSink()
        began = now()
        outcome = await played(with_clocks(inner, Clocks(idle=20.0, idle_warning=10.0))).to(sink).run()
        (failed,) = [item for item in sink.items if isinstance(item, ResponseFailed)]
        assert "20 s" in failed.error["message"]
        assert not outcome.ok
        assert await server.gone - began == pytest.approx(3 + 20)
    async with serving(Streamer(*EVENTS)) as url:
        inner = from_request(request, base_url=url, api_key="k")
        outcome = await played(with_clocks(inner)).to(RecordingSink()).run()
        assert (outcome.ok, outcome.bytes) == (True, len(TEXT))


@virtual_time
async def test_an_abort_is_an_abort() -> None:
    sink = RecordingSink()
    async with played(with_clocks(from_async_iterable(Producer(EVENTS, gap=80.0).stream()))).to(sink) as run:
        await asyncio.sleep(200)
        run.abort("enough")
        outcome = await run
    assert (outcome.status, outcome.reason) == ("aborted", "enough")


def test_what_never_waits_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.sse"
    path.write_bytes(TEXT)
    for source in (from_bytes(TEXT), from_file(path)):
        watched = with_clocks(source)
        assert watched.name == source.name
        assert not hasattr(watched.batches(), "__anext__")
        assert joined(asyncio.run(collect(watched))) == TEXT


@virtual_time
async def test_a_pipe() -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, EVENTS[0])
        with pytest.raises(StreamIdleTimeout, match=f"after {len(EVENTS[0])} bytes"):
            await collect(with_clocks(from_stdin(reading), Clocks(idle=30.0)))
    finally:
        os.close(reading)
        os.close(writing)
