"""The live report of the proxy, as JSON or in Prometheus' text format (0.0.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["PROMETHEUS_TYPE", "prometheus", "wants_prometheus"]

PROMETHEUS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_TOKENS: Final = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_creation": "cache_creation_input_tokens",
    "cache_read": "cache_read_input_tokens",
    "thinking": "thinking_tokens",
}


def wants_prometheus(asked: str | None, accept: str) -> bool:
    """Which of the two it is.

    Args:
        asked: the query's ``format``, which goes before.
        accept: the header; a scraper names ``text/plain`` or OpenMetrics, nobody else does.

    Raises:
        ValueError: ``asked`` is neither ``json`` nor ``prometheus``.
    """
    if asked is not None:
        if asked not in ("json", "prometheus"):
            raise ValueError("format is json or prometheus")
        return asked == "prometheus"
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    return bool(kinds & {"text/plain", "application/openmetrics-text"}) and "application/json" not in kinds


def prometheus(report: Mapping[str, Any]) -> str:
    """The report's numbers as text lines; names end in ``_total`` where they only grow."""
    out: list[str] = []

    def put(name: str, kind: str, told: str, values: Iterable[tuple[str, float | None]]) -> None:
        lines = [f"turnstream_record_{name}{labels} {value:g}" for labels, value in _exact(values)]
        if lines:
            out.extend((f"# HELP turnstream_record_{name} {told}", f"# TYPE turnstream_record_{name} {kind}", *lines))

    proxy = report["proxy"]
    totals = report["model"]["totals"]
    put("up", "gauge", "Always 1.", [("", 1)])
    put("uptime_seconds", "gauge", "Since the start.", [("", report["uptime_s"])])
    put("requests_total", "counter", "Requests that came.", [("", proxy["requests"])])
    put("in_flight", "gauge", "Requests that are open.", [("", proxy["in_flight"])])
    put("answers_total", "counter", "Answers by HTTP status.", _labelled("status", proxy["statuses"]))
    put("ends_total", "counter", "Requests by how they ended.", _labelled("how", proxy["ends"]))
    put("request_bytes_total", "counter", "Bodies to the upstream.", [("", proxy["request_bytes"])])
    put("answer_bytes_total", "counter", "Bodies to the clients.", [("", proxy["answer_bytes"])])
    put("recordings_total", "counter", "Recordings that were written.", [("", proxy["recordings"])])
    put("recording_bytes_total", "counter", "Their bytes.", [("", proxy["recording_bytes"])])
    put("dropped_total", "counter", "What the recorder dropped, and why.", _labelled("what", proxy["dropped"]))
    put("model_answers_total", "counter", "Model answers that began.", [("", totals["answers"])])
    put("model_outcomes_total", "counter", "Model answers by outcome.", _labelled("outcome", totals["outcomes"]))
    put("model_events_total", "counter", "Stream events.", [("", totals.get("events"))])
    tokens = {name: totals.get(field) for name, field in _TOKENS.items()}
    put("model_tokens_total", "counter", "Tokens by kind.", _labelled("kind", tokens))
    put("model_tool_uses_total", "counter", "Tool uses by tool.", _labelled("tool", totals["tool_uses"]))
    return "\n".join([*out, ""])


class _Whole(float):
    """Prints as a plain number, however large."""

    def __format__(self, spec: str) -> str:
        return str(int(self)) if self.is_integer() else repr(float(self))


def _exact(values: Iterable[tuple[str, float | None]]) -> list[tuple[str, float]]:
    return [(labels, _Whole(value)) for labels, value in values if value is not None]


def _labelled(name: str, values: Mapping[str, float | None]) -> list[tuple[str, float | None]]:
    return [(f'{{{name}="{_escaped(key)}"}}', value) for key, value in values.items()]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
