"""Where streams end: the display, the transcript and the metrics. Loaded when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnstream.sinks.base import Policy, Sink, SinkBase

if TYPE_CHECKING:
    from turnstream.sinks.metrics import MetricsSink
    from turnstream.sinks.transcript import TranscriptSink
    from turnstream.sinks.ui import UISink

__all__ = ["MetricsSink", "Policy", "Sink", "SinkBase", "TranscriptSink", "UISink"]

_HOME_OF = {
    "MetricsSink": "turnstream.sinks.metrics",
    "TranscriptSink": "turnstream.sinks.transcript",
    "UISink": "turnstream.sinks.ui",
}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'turnstream.sinks' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)
