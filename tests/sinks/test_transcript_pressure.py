"""Backpressure (DESIGN.md §4): bounded, lossless, never deadlocked by what waits for an open answer."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import tracemalloc
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from transcripts import Answer, maker, records, uuids

from turnstream.bench.workloads import make_workload
from turnstream.messages import ContentBlockDelta, TextDelta
from turnstream.operators import accumulate, decode_sse, parse_events
from turnstream.operators.batch import Batch
from turnstream.sinks.base import Sink
from turnstream.sinks.transcript import TranscriptSink, files
from turnstream.testing import check_sink, run_virtual, virtual_time


class Gate:
    """A device that waits to be let on: a slow disk without a clock."""

    def __init__(self) -> None:
        self.open = threading.Semaphore(0)
        self.passed = threading.Semaphore(0)

    def __call__(self, fd: int, data: memoryview) -> int:
        if not self.open.acquire(timeout=30):
            raise OSError("nobody let the write on")
        count = os.write(fd, data)
        self.passed.release()
        return count


def test_fault_108_a_slow_disk_bounds_memory_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    monkeypatch.setattr(files, "_write", gate)
    make = maker()
    path = tmp_path / "s.jsonl"
    high, low = 200_000, 50_000
    sent: list[str] = []

    async def flood() -> int:
        sink = TranscriptSink(path, high_water=high, low_water=low)
        loop = asyncio.get_running_loop()
        waited = 0
        for number in range(400):
            answer = Answer(make, f"msg_{number}")
            sink.on_next([answer.start(), *answer.text("x" * 5_000), *answer.end()])
            sent.extend(message.uuid for message in answer.messages)
            assert sink.statistics()["pending_bytes"] < high + 10_000
            if sink.full():
                waited += 1
                room = asyncio.ensure_future(sink.room())
                await asyncio.sleep(0)
                assert not room.done()
                while not room.done():
                    gate.open.release()
                    # The write's word may come later than the write: then there may be none to wait for.
                    await loop.run_in_executor(None, gate.passed.acquire, True, 0.1)
                    await asyncio.sleep(0)
                assert sink.statistics()["pending_bytes"] <= low
                assert not sink.full()
        for _ in range(100):
            gate.open.release()
        await sink.aclose()
        return waited

    assert asyncio.run(flood()) >= 400 * 5_000 // high - 1
    assert uuids(path) == sent


def test_what_waits_for_a_slow_disk_takes_the_memory_that_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A high-water mark in bytes bounds nothing if a line of 600 bytes takes 4 KB (as what orjson gives does)."""
    gate = threading.Event()

    def slow(fd: int, data: memoryview) -> int:
        assert gate.wait(30)
        return os.write(fd, data)

    monkeypatch.setattr(files, "_write", slow)
    answers = make_workload("C", scale=0.5).data().split(b"event: message_start")[1:]

    async def flood() -> tuple[int, int]:
        sink = TranscriptSink(tmp_path / "s.jsonl")
        for answer in answers:
            chain = (decode_sse() | parse_events() | accumulate()).chain()
            sink.on_next(Batch(chain.feed((b"event: message_start" + answer,))))
        held = tracemalloc.get_traced_memory()[0] - before
        pending = sink.statistics()["pending_bytes"]
        gate.set()
        await sink.drain()
        await sink.aclose()
        return held, pending

    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        held, pending = asyncio.run(flood())
    finally:
        tracemalloc.stop()
    assert pending > 1_000_000
    assert held < 3 * pending


@virtual_time
async def test_lines_of_an_open_answer_dont_hold_up_the_source_that_brings_its_end(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, high_water=10_000, low_water=5_000)
    answer = Answer(make)
    sink.on_next([answer.start()])
    for _ in range(20):
        sink.on_next(answer.text("y" * 8_000))
        # A pump: it goes on as soon as there is room, and time stands still meanwhile.
        while sink.full():
            await sink.room()
    assert asyncio.get_running_loop().time() == 0, "no line waited for its 5 s"
    assert len(records(path)) >= 18
    sink.on_next(answer.text("z" * 50_000))
    while sink.full():
        await sink.room()
    assert len(records(path)) == 20, "all but the newest, however large it is"
    sink.on_next(answer.end(4_711))
    await sink.aclose()
    assert len(records(path)) == 21
    assert records(path)[-1]["message"]["usage"]["output_tokens"] == 4_711


@virtual_time
async def test_a_finished_line_of_any_size_is_written_before_its_time_when_memory_is_short(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, high_water=10_000, low_water=5_000)
    answer = Answer(make)
    sink.on_next([answer.start(), *answer.text("y" * 100_000), *answer.end()])
    assert sink.full()
    await sink.room()
    assert len(records(path)) == 1
    await sink.aclose()


@virtual_time
async def test_room_returns_when_the_sink_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    monkeypatch.setattr(files, "_write", gate)
    make = maker()
    sink = TranscriptSink(tmp_path / "s.jsonl", high_water=1_000, low_water=500)
    sink.append(make.user("x" * 5_000))
    assert sink.full()
    room = asyncio.ensure_future(sink.room())
    await asyncio.sleep(0)
    for _ in range(9):
        gate.open.release()
    await sink.aclose()
    await room


@virtual_time
async def test_what_comes_while_a_write_is_in_flight_goes_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    monkeypatch.setattr(files, "_write", gate)
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    for number in range(500):
        sink.append(make.user(str(number)))
    for _ in range(9):
        gate.open.release()
    await sink.drain()
    assert sink.statistics()["writes"] == 2
    await sink.aclose()
    assert len(records(path)) == 500


def test_a_batch_of_deltas_calls_nothing(tmp_path: Path) -> None:
    """The hot path is one lookup an item: no Python function is called for a delta, none for the batch."""
    sink = TranscriptSink(tmp_path / "s.jsonl")
    batch = Batch([ContentBlockDelta(TextDelta("x"), 0)] * 100, 1.0, None, 5_000)
    calls: list[str] = []

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)

    sys.setprofile(profile)
    try:
        sink.on_next(batch)
    finally:
        sys.setprofile(None)
    assert calls == ["on_next"]


def test_it_is_a_sink_and_keeps_the_promises_of_one(tmp_path: Path) -> None:
    numbers = iter(range(10_000))

    def make() -> TranscriptSink:
        return TranscriptSink(
            tmp_path / f"{next(numbers)}.jsonl", session_id="s", title="t", cwd="/", clock=lambda: 0.0
        )

    def output(sink: TranscriptSink) -> bytes | None:
        return sink.path.read_bytes() if sink.path.exists() else None

    sink = make()
    assert isinstance(sink, Sink)
    assert (sink.name, sink.policy) == ("transcript", "block")
    run_virtual(check_sink(make, output=output))
    run_virtual(check_sink(lambda: TranscriptSink(tmp_path / "never.jsonl", persist=False)))
    assert not (tmp_path / "never.jsonl").exists()
