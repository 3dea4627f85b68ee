"""Running payloads through ``accumulate`` alone, and picking from what comes out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import frames as f

from turnstream.messages import (
    AssistantMessage,
    StreamNote,
    event_from_wire,
    seeded_clock,
    seeded_ids,
)
from turnstream.operators import accumulate, run_batches
from turnstream.operators.accumulate import Accumulator


def events(*parts: Any) -> list[Any]:
    """Payloads as typed events; what isn't a dict passes as it is. Every call makes fresh objects."""
    flat: list[Any] = []
    for part in parts:
        flat.extend(events(*part) if isinstance(part, list) else [part])
    return [event_from_wire(json.loads(json.dumps(p))) if isinstance(p, dict) else p for p in flat]


def stage(**options: Any) -> Accumulator:
    return Accumulator(**{"ids": seeded_ids(1), "clock": seeded_clock(), **options})


def run(*parts: Any, error: Exception | None = None, sizes: Sequence[int] = (), **options: Any) -> list[Any]:
    items = events(*parts)
    batches, at = [], 0
    for size in (*sizes, len(items)):
        if items[at : at + size]:
            batches.append(items[at : at + size])
        at += size
    operator = accumulate(**{"ids": seeded_ids(1), "clock": seeded_clock(), **options})
    out: list[Any] = []
    for batch in run_batches(batches, operator, error=error):
        out.extend(batch)
    return out


def of(items: Sequence[Any], *classes: type) -> list[Any]:
    return [item for item in items if isinstance(item, classes)]


def messages(items: Sequence[Any]) -> list[AssistantMessage]:
    return of(items, AssistantMessage)


def kinds(items: Sequence[Any]) -> list[str]:
    return [item.kind for item in of(items, StreamNote)]


def names(items: Sequence[Any]) -> list[str]:
    return [type(item).__name__ for item in items]


THREE_BLOCKS = [
    f.start(usage={"input_tokens": 7, "output_tokens": 1}),
    f.opens_thinking(0),
    f.thinks(0, "hm"),
    f.signs(0, "sig"),
    f.closes(0),
    f.says("Hello", 1),
    f.calls(2, '{"a":', "1}"),
    f.turn("tool_use", {"output_tokens": 310}),
    f.STOP,
]
