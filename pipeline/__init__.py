"""turnstream: a model's byte stream as an Observable of messages, shown, kept and measured.

    from turnstream import Pipeline, accumulate, decode, from_file, parse_events

Names are loaded when they are first used (PEP 562), so importing one part doesn't pay for the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnstream.bridges import to_async_iterable
    from turnstream.composition import Pipeline
    from turnstream.flow import AsyncSink, Clocks, buffered, map_async
    from turnstream.messages import TurnstreamError
    from turnstream.operators import (
        Batch,
        Operator,
        accumulate,
        batched,
        coalesce,
        decode,
        decode_ndjson,
        decode_sse,
        each,
        lift,
        parse_events,
        run_stages,
        settle,
    )
    from turnstream.operators.normalize import normalize_for_api, request_messages
    from turnstream.run import Run, RunOutcome
    from turnstream.scheduler import LoopScheduler
    from turnstream.sinks import MetricsSink, Sink, SinkBase, TranscriptSink, UISink
    from turnstream.sinks.transcript.reading import resume
    from turnstream.sources import (
        FallBack,
        Source,
        decode_transcript,
        from_async_iterable,
        from_bytes,
        from_file,
        from_items,
        from_request,
        from_stdin,
        from_transcript,
        in_turn,
        resilient,
        shared_session,
        with_clocks,
    )

__all__ = [
    "AsyncSink",
    "Batch",
    "Clocks",
    "FallBack",
    "LoopScheduler",
    "MetricsSink",
    "Operator",
    "Pipeline",
    "Run",
    "RunOutcome",
    "Sink",
    "SinkBase",
    "Source",
    "TranscriptSink",
    "TurnstreamError",
    "UISink",
    "accumulate",
    "batched",
    "buffered",
    "coalesce",
    "decode",
    "decode_ndjson",
    "decode_sse",
    "decode_transcript",
    "each",
    "from_async_iterable",
    "from_bytes",
    "from_file",
    "from_items",
    "from_request",
    "from_stdin",
    "from_transcript",
    "in_turn",
    "lift",
    "map_async",
    "normalize_for_api",
    "parse_events",
    "request_messages",
    "resilient",
    "resume",
    "run_stages",
    "settle",
    "shared_session",
    "to_async_iterable",
    "with_clocks",
]

_HOMES = {
    "turnstream.bridges": ("to_async_iterable",),
    "turnstream.composition": ("Pipeline",),
    "turnstream.flow": ("AsyncSink", "Clocks", "buffered", "map_async"),
    "turnstream.messages": ("TurnstreamError",),
    "turnstream.operators": (
        "Batch",
        "Operator",
        "accumulate",
        "batched",
        "coalesce",
        "decode",
        "decode_ndjson",
        "decode_sse",
        "each",
        "lift",
        "parse_events",
        "run_stages",
        "settle",
    ),
    "turnstream.operators.normalize": ("normalize_for_api", "request_messages"),
    "turnstream.run": ("Run", "RunOutcome"),
    "turnstream.scheduler": ("LoopScheduler",),
    "turnstream.sinks": ("MetricsSink", "Sink", "SinkBase", "TranscriptSink", "UISink"),
    "turnstream.sinks.transcript.reading": ("resume",),
    "turnstream.sources": (
        "FallBack",
        "Source",
        "decode_transcript",
        "from_async_iterable",
        "from_bytes",
        "from_file",
        "from_items",
        "from_request",
        "from_stdin",
        "from_transcript",
        "in_turn",
        "resilient",
        "shared_session",
        "with_clocks",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'turnstream' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
