"""What is always measured: the floors, and turnstream itself."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from turnstream.bench.contender import Contender, Found, Given
from turnstream.bench.floor import floor
from turnstream.composition import Pipeline
from turnstream.messages.types import AssistantMessage
from turnstream.operators import Batch, accumulate, decode_sse, parse_events
from turnstream.run import RunOutcome
from turnstream.sinks import MetricsSink, SinkBase, TranscriptSink, UISink
from turnstream.sources import from_bytes, in_turn

__all__ = ["COUNTING", "FLOOR", "FLOORS", "ORJSON", "OURS", "THREE_SINKS", "scratch_folder"]

FLOOR: Final = "floor (the plain loop)"
ORJSON: Final = "orjson alone (payloads cut before)"
COUNTING: Final = "three stages, counting sink"
THREE_SINKS: Final = "bytes to three sinks"


def scratch_folder() -> str:
    """A folder in memory where there is one, so that no disk is measured."""
    memory = "/dev/shm"
    return tempfile.mkdtemp(prefix="turnstream-bench-", dir=memory if os.access(memory, os.W_OK) else None)


# -- floors ------------------------------------------------------------------------------------------


def _floor(given: Given) -> list[tuple[str, object]]:
    return floor(given.chunks)


def _floor_found(out: list[tuple[str, Any]]) -> Found:
    return Found(
        text_characters=sum(len(value) for kind, value in out if kind != "tool_use"),
        blocks=len(out),
        tool_characters=sum(_characters(value) for kind, value in out if kind == "tool_use"),
    )


def _characters(arguments: Any) -> int:
    """Of a tool's input, written as the workloads write it."""
    return len(json.dumps(arguments, ensure_ascii=False))


def _payloads(given: Given) -> list[bytes]:
    events = b"".join(given.chunks).split(b"\n\n")
    return [event[event.find(b"\ndata: ") + 7 :] for event in events if event]


def _orjson_alone(payloads: list[bytes]) -> Found:
    loads = orjson.loads
    for payload in payloads:
        loads(payload)
    return Found(events=len(payloads))


def _split(given: Given) -> Found:
    buffer = b""
    count = 0
    for chunk in given.chunks:
        buffer += chunk
        events = buffer.split(b"\n\n")
        buffer = events.pop()
        count += len(events)
    return Found(events=count)


def _each_payload(load: Callable[[bytes], Any]) -> Callable[[Given], Found]:
    def run(given: Given) -> Found:
        buffer = b""
        count = 0
        for chunk in given.chunks:
            buffer += chunk
            events = buffer.split(b"\n\n")
            buffer = events.pop()
            count += len(events)
            for event in events:
                load(event[event.find(b"\ndata: ") + 7 :])
        return Found(events=count)

    return run


FLOORS: Final = (
    Contender(FLOOR, _floor, found=_floor_found),
    Contender(ORJSON, _orjson_alone, prepare=_payloads),
    Contender("split only", _split),
    Contender("split + orjson", _each_payload(orjson.loads)),
    Contender("split + msgspec", _each_payload(msgspec.json.Decoder().decode)),
)


# -- turnstream --------------------------------------------------------------------------------------


class _Counting(SinkBase):
    """Counts finished blocks and their text; every item reaches it."""

    name = "counting"

    def __init__(self) -> None:
        self.text = 0
        self.blocks = 0
        self.items = 0
        self.inputs: list[Any] = []

    def on_next(self, batch: Sequence[Any], /) -> None:
        items = batch.items if isinstance(batch, Batch) else batch
        self.items += len(items)
        if AssistantMessage in map(type, items):
            for item in items:
                if item.__class__ is AssistantMessage:
                    for block in item.message["content"]:
                        self.blocks += 1
                        self.text += len(block.get("text") or block.get("thinking") or "")
                        if block["type"] == "tool_use":
                            self.inputs.append(block["input"])

    def found(self) -> Found:
        """What was counted."""
        return Found(self.text, self.blocks, sum(map(_characters, self.inputs)), self.items - self.blocks)


def _pipeline(given: Given) -> Pipeline[Any]:
    """One stream through one chain; or a session, each answer through a fresh chain of the same operator."""
    operator = decode_sse() | parse_events() | accumulate()
    if not given.fresh:
        return Pipeline(from_bytes(given.chunks)).through(operator)
    return Pipeline(in_turn((from_bytes(answer) for answer in given.answers), lambda _: operator))


def _checked(outcome: RunOutcome) -> None:
    if not outcome.ok:
        raise RuntimeError(
            f"the run ended {outcome.status}: {outcome.error or outcome.sink_errors or outcome.failures}"
        )


async def _counting(given: Given) -> _Counting:
    sink = _Counting()
    _checked(await _pipeline(given).to(sink).run())
    return sink


def _no_run(given: Given) -> _Counting:
    """The stages fed by hand: what Pipeline, tasks and fan-out add is the difference."""
    sink = _Counting()
    operator = decode_sse() | parse_events() | accumulate()
    take = sink.on_next
    for chunks in given.answers if given.fresh else (given.chunks,):
        chain = operator.chain()
        feed = chain.feed
        for chunk in chunks:
            take(feed((chunk,)))
        take(chain.flush())
    return sink


class _Run:
    """What a run with all three sinks left behind.

    A plain class on purpose: asyncio.run asks a finished task for its repr, and that of a struct shows all it holds.
    """

    def __init__(self, folder: str, outcome: RunOutcome, metrics: MetricsSink) -> None:
        self.folder = folder
        self.outcome = outcome
        self.metrics = metrics


async def _three_sinks(given: Given) -> _Run:
    folder = scratch_folder()
    ui, transcript, metrics = UISink(), TranscriptSink(Path(folder) / "t.jsonl"), MetricsSink()
    return _Run(folder, await _pipeline(given).to(ui, transcript, metrics).run(), metrics)


def _three_found(run: _Run) -> Found:
    """Read the transcript back; the metrics must say the same."""
    try:
        _checked(run.outcome)
        text = tool = blocks = 0
        with open(Path(run.folder) / "t.jsonl", "rb") as lines:
            for line in lines:
                entry = json.loads(line)
                if entry.get("type") != "assistant":
                    continue
                for block in entry["message"]["content"]:
                    blocks += 1
                    if block["type"] == "tool_use":
                        tool += _characters(block["input"])
                    else:
                        text += len(block[block["type"]])
        counted = sum(run.metrics.report()["totals"]["blocks"].values())
        if counted != blocks:
            raise RuntimeError(f"the metrics counted {counted} blocks, the transcript holds {blocks}")
        return Found(text, blocks, tool, run.outcome.items - blocks)
    finally:
        shutil.rmtree(run.folder)


OURS: Final = (
    Contender(COUNTING, _counting, found=_Counting.found),
    Contender("three stages, fed by hand", _no_run, found=_Counting.found),
    Contender(THREE_SINKS, _three_sinks, found=_three_found),
)
