"""What is measured: floors, turnstream itself, and peers, each as a function of the same chunks.

Every contender returns what it found, so that nobody is fast by leaving something out.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from turnstream.bench.floor import floor
from turnstream.composition import Pipeline
from turnstream.messages.types import AssistantMessage
from turnstream.operators import Batch, accumulate, decode_sse, parse_events
from turnstream.sinks import MetricsSink, SinkBase, TranscriptSink, UISink
from turnstream.sources import from_bytes, in_turn

__all__ = ["FLOORS", "OURS", "Contender", "Found", "scratch_folder"]

Chunks = list[list[bytes]]
"""Chunks, by answer."""


class Found(msgspec.Struct, frozen=True):
    """What a contender found in the bytes: characters of text and thinking, and blocks; -1: doesn't count."""

    text_characters: int = -1
    blocks: int = -1


class Contender(msgspec.Struct, frozen=True):
    """One way from bytes to content.

    Attributes:
        name: what the table calls it.
        run: takes the chunks by answer; may be a coroutine function.
        slow: measured on a smaller workload.
    """

    name: str
    run: Callable[[Chunks], Found | Awaitable[Found]]
    slow: bool = False


def scratch_folder() -> str:
    """A folder in memory where there is one, so that no disk is measured."""
    memory = "/dev/shm"
    return tempfile.mkdtemp(prefix="turnstream-bench-", dir=memory if os.access(memory, os.W_OK) else None)


def _flat(chunks: Chunks) -> list[bytes]:
    return [chunk for answer in chunks for chunk in answer] if len(chunks) > 1 else chunks[0]


# -- floors ------------------------------------------------------------------------------------------


def _floor(chunks: Chunks) -> Found:
    text = 0
    blocks = 0
    for kind, value in floor(_flat(chunks)):
        blocks += 1
        if kind != "tool_use":
            text += len(value)  # type: ignore[arg-type]
    return Found(text, blocks)


def _split(chunks: Chunks) -> Found:
    buffer = b""
    for chunk in _flat(chunks):
        buffer += chunk
        buffer = buffer.split(b"\n\n")[-1]
    return Found()


def _each_payload(load: Callable[[bytes], Any]) -> Callable[[Chunks], Found]:
    def run(chunks: Chunks) -> Found:
        buffer = b""
        for chunk in _flat(chunks):
            buffer += chunk
            events = buffer.split(b"\n\n")
            buffer = events.pop()
            for event in events:
                load(event[event.find(b"\ndata: ") + 7 :])
        return Found()

    return run


FLOORS: Final = (
    Contender("floor (the plain loop)", _floor),
    Contender("split only", _split),
    Contender("split + orjson", _each_payload(orjson.loads)),
    Contender("split + msgspec", _each_payload(msgspec.json.Decoder().decode)),
)


# -- turnstream --------------------------------------------------------------------------------------


class _Counting(SinkBase):
    """Counts finished blocks and their text; sees every event."""

    name = "counting"

    def __init__(self) -> None:
        self.text = 0
        self.blocks = 0
        self.items = 0

    def on_next(self, batch: Sequence[Any], /) -> None:
        items = batch.items if isinstance(batch, Batch) else batch
        self.items += len(items)
        if AssistantMessage in map(type, items):
            for item in items:
                if item.__class__ is AssistantMessage:
                    for block in item.message["content"]:
                        self.blocks += 1
                        self.text += len(block.get("text") or block.get("thinking") or "")

    def found(self) -> Found:
        """What was counted."""
        return Found(self.text, self.blocks)


def _operator() -> Any:
    return decode_sse() | parse_events() | accumulate()


def _source(chunks: Chunks) -> Any:
    """One answer: its bytes. Several: a session, each through a fresh chain."""
    return in_turn((from_bytes(answer) for answer in chunks), lambda _: _operator())


async def _stages_rx(chunks: Chunks) -> Found:
    sink = _Counting()
    await Pipeline(from_bytes(_flat(chunks))).through(_operator()).to(sink).run()
    return sink.found()


def _stages_bare(chunks: Chunks) -> Found:
    sink = _Counting()
    chain = _operator().chain()
    for chunk in _flat(chunks):
        sink.on_next(chain.feed((chunk,)))
    sink.on_next(chain.flush())
    return sink.found()


async def _three_sinks(chunks: Chunks) -> Found:
    folder = scratch_folder()
    try:
        ui, transcript, metrics = UISink(), TranscriptSink(Path(folder) / "t.jsonl"), MetricsSink()
        if len(chunks) == 1:
            pipeline = Pipeline(from_bytes(chunks[0])).through(_operator())
        else:
            pipeline = Pipeline(_source(chunks))
        outcome = await pipeline.to(ui, transcript, metrics).run()
        if not outcome.ok:
            raise RuntimeError(f"the run ended {outcome.status}: {outcome.sink_errors or outcome.failures}")
        report = metrics.report()
        return Found(-1, sum(report["totals"]["blocks"].values()))
    finally:
        shutil.rmtree(folder)


OURS: Final = (
    Contender("three stages, counting sink", _stages_rx),
    Contender("three stages, no Rx", _stages_bare),
    Contender("bytes to three sinks", _three_sinks),
)


def call(contender: Contender, chunks: Chunks) -> Found:
    """Run a contender, whatever it is."""
    result = contender.run(chunks)
    if isinstance(result, Found):
        return result

    async def wait() -> Found:
        return await result

    return asyncio.run(wait())
