"""Feeding the metrics sink: payloads become the items that ``accumulate`` emits, at times set by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from frames import Payload

from turnstream.messages import AssistantMessage, event_from_wire, seeded_clock, seeded_ids
from turnstream.operators import Batch, StreamKey, accumulate
from turnstream.sinks.metrics import MetricsSink

Moment = tuple[float | None, Sequence[Any]]


def emitted(*parts: Any, **options: Any) -> list[Any]:
    """What ``accumulate`` emits for payloads (other items pass), the end of the stream included."""
    return [item for _, items in timed((None, parts), **options) for item in items]


def timed(*moments: Moment, end: float | None = None, **options: Any) -> list[Moment]:
    """The same, batch by batch: each moment is a time and the payloads that came then."""
    stage = accumulate(ids=seeded_ids(1), clock=seeded_clock(), **options).chain()
    out: list[Moment] = [(at, list(stage.feed(_events(parts)))) for at, parts in moments]
    out.append((end, list(stage.flush())))
    return [(at, items) for at, items in out if items]


def _events(parts: Iterable[Any]) -> list[Any]:
    out: list[Any] = []
    for part in parts:
        if isinstance(part, list):
            out += _events(part)
        else:
            out.append(event_from_wire(part) if isinstance(part, dict) else part)
    return out


def meter(items: Iterable[Any], **options: Any) -> dict[str, Any]:
    """The report for items in one batch without a time."""
    sink = MetricsSink(**options)
    sink.on_next(list(items))
    return sink.report()


def clocked(*moments: Moment, key: StreamKey | None = None, weight: int = 100, **options: Any) -> dict[str, Any]:
    """The report for moments, each one batch."""
    sink = MetricsSink(**options)
    for at, items in moments:
        sink.on_next(Batch(items, at, key, weight))
    return sink.report()


def read(message: Payload, *, uuid: str, request_id: str | None = None, **more: Any) -> AssistantMessage:
    """An assistant message as a transcript holds it."""
    return AssistantMessage(
        message={"type": "message", "role": "assistant", "model": "claude-test-1", "stop_reason": None, **message},
        uuid=uuid,
        timestamp="2025-01-01T00:00:00.000Z",
        request_id=request_id,
        **more,
    )
