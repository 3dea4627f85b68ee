"""What a stream carried, whichever answer it belonged to."""

from __future__ import annotations

from typing import Any, Final

from turnstream.messages.types import SystemMessage
from turnstream.sinks.metrics.histogram import milliseconds
from turnstream.sinks.metrics.tally import Tally

__all__ = ["KNOWN_BLOCKS", "Traffic", "error_type", "is_opaque_block"]

KNOWN_BLOCKS: Final = frozenset(
    {
        "text",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "server_tool_use",
        "mcp_tool_use",
        "tool_result",
        "compaction",
        "fallback",
        "container_upload",
        "image",
        "document",
        "search_result",
    }
)
"""The types of content blocks the API has, besides the results of server tools."""


def is_opaque_block(kind: Any) -> bool:
    """Whether a content block's type is none of the API's."""
    if not isinstance(kind, str):
        return True
    return kind not in KNOWN_BLOCKS and not kind.endswith("_tool_result")


def error_type(error: Any) -> str:
    """The type of an error object (bare or inside ``{"type": "error", "error": …}``); ``unknown`` without one."""
    if isinstance(error, dict):
        inner = error.get("error")
        if isinstance(inner, dict):
            error = inner
        kind = error.get("type")
        if isinstance(kind, str) and kind:
            return kind
    return "unknown"


class Traffic:
    """Counts of events, notices and faults."""

    def __init__(self) -> None:
        self.events = 0
        self.pings = 0
        self.bytes = 0
        self.retries = 0
        self.retry_wait = 0.0
        self.fallbacks = 0
        self.tombstones = 0
        self.errors = Tally()
        self.opaque_events = Tally()
        self.opaque_deltas = Tally()
        self.opaque_blocks = Tally()
        self.notes = Tally()

    def retry(self, message: SystemMessage) -> None:
        """A wait before a retry was announced."""
        self.retries += 1
        wait = message.fields.get("retryInMs")
        if isinstance(wait, (int, float)) and not isinstance(wait, bool) and 0 <= wait < 1e12:
            self.retry_wait += wait / 1000

    def report(self) -> dict[str, Any]:
        """The part of the report's totals that comes from the stream."""
        return {
            "retries": self.retries,
            "retry_wait_ms": milliseconds(self.retry_wait) if self.retries else None,
            "fallbacks": self.fallbacks,
            "tombstones": self.tombstones,
            "errors": self.errors.report(),
            "opaque_events": self.opaque_events.report(),
            "opaque_deltas": self.opaque_deltas.report(),
            "opaque_blocks": self.opaque_blocks.report(),
            "notes": self.notes.report(),
            "events": self.events,
            "pings": self.pings,
            "bytes": self.bytes or None,
        }
