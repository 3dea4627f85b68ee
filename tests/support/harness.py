"""Running bytes through the stages: one way here, so that every oracle test compares the same thing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from turnstream.messages import seeded_clock, seeded_ids
from turnstream.operators import Operator, accumulate, decode, parse_events, run_batches, settle


def stages(*, settled: bool = True, decoder: Operator[Any, Any] | None = None) -> tuple[Operator[Any, Any], ...]:
    """Operators with seeded ids and a seeded clock; make new ones for each run, the seeds go on."""
    made: tuple[Operator[Any, Any], ...] = (
        decode() if decoder is None else decoder,
        parse_events(),
        accumulate(ids=seeded_ids(1), clock=seeded_clock()),
    )
    return (*made, settle()) if settled else made


def joined(operators: Sequence[Operator[Any, Any]]) -> Operator[Any, Any]:
    whole = operators[0]
    for operator in operators[1:]:
        whole = whole | operator
    return whole


def run(
    chunks: bytes | Iterable[bytes], *, settled: bool = True, decoder: Operator[Any, Any] | None = None
) -> list[Any]:
    """The items of a stream in any container (or as ``decoder`` reads it), a batch a chunk, without Rx."""
    if isinstance(chunks, bytes):
        chunks = [chunks]
    out: list[Any] = []
    for batch in run_batches(([chunk] for chunk in chunks), joined(stages(settled=settled, decoder=decoder))):
        out.extend(batch)
    return out


def as_sse(data: bytes, container: str) -> bytes:
    """A stream's bytes as event-stream bytes, by code that isn't the product's: for comparison and the SDK."""
    if container in ("sse", "unknown"):
        return data
    if container == "json":
        body = json.loads(data)
        if body.get("type") != "message":
            return _frame(data)
        return _frame(json.dumps({"type": "message_start", "message": body}).encode()) + _frame(
            b'{"type":"message_stop"}'
        )
    out = []
    for line in re.split(rb"[\r\n]+", data):
        if line:
            out.append(_frame(_unwrapped(line)))
    return b"".join(out)


def _unwrapped(line: bytes) -> bytes:
    try:
        value = json.loads(line)
    except ValueError:
        return line
    if isinstance(value, dict) and isinstance(value.get("Data"), str):
        return str(value["Data"]).encode()
    return line


def _frame(payload: bytes) -> bytes:
    return b"data: " + re.sub(rb"[\r\n]+", b"\ndata: ", payload) + b"\n\n"


def container_of(name: str) -> str:
    return "ndjson" if name.endswith(".ndjson") else "sse"
