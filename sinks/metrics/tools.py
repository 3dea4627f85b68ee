"""How long tools took: from the finished ``tool_use`` block to its result, where both have a time."""

from __future__ import annotations

from typing import Any, Final

from turnstream.sinks.metrics.histogram import Histogram
from turnstream.sinks.metrics.tally import LONGEST, OTHER, Tally

__all__ = ["ToolTimes"]

_OPEN_LIMIT: Final = 10_000
_NAME_LIMIT: Final = 1_000


class ToolTimes:
    """Pairs uses and results by tool use id; at most 10,000 uses wait, the oldest is forgotten first."""

    def __init__(self) -> None:
        self.results = Tally()
        self.errors = Tally()
        self._names: dict[str, str | None] = {}  # by id, of the uses that wait
        self._started: dict[str, float] = {}  # of those with a time
        self._durations: dict[str, Histogram] = {}

    def used(self, block: dict[str, Any], at: float | None) -> None:
        """A finished tool use block came."""
        tool_use_id = block.get("id")
        if not isinstance(tool_use_id, str):
            return
        name = block.get("name")
        names = self._names
        names[tool_use_id] = name[:LONGEST] if isinstance(name, str) else None
        if at is not None:
            self._started[tool_use_id] = at
        elif self._started:
            self._started.pop(tool_use_id, None)
        if len(names) > _OPEN_LIMIT:
            oldest = next(iter(names))
            del names[oldest]
            self._started.pop(oldest, None)

    def answered(self, block: dict[str, Any], at: float | None) -> None:
        """A result block came, from us or from a server tool. One without its use isn't counted."""
        tool_use_id = block.get("tool_use_id")
        if not isinstance(tool_use_id, str) or tool_use_id not in self._names:
            return
        name = self._names.pop(tool_use_id)
        started = self._started.pop(tool_use_id, None)
        self.results.add(name)
        if _is_error(block):
            self.errors.add(name)
        if at is not None and started is not None:
            key = name if name is not None else OTHER
            if key not in self._durations and len(self._durations) >= _NAME_LIMIT:
                key = OTHER
            self._durations.setdefault(key, Histogram()).add(at - started)

    def durations(self) -> dict[str, Any] | None:
        """By tool name; None where no result had a time."""
        return {name: self._durations[name].report() for name in sorted(self._durations)} or None


def _is_error(block: dict[str, Any]) -> bool:
    if block.get("is_error") is True:
        return True
    # Server tools say it in the type of the result: web_search_tool_result_error …
    content = block.get("content")
    kind = content.get("type") if isinstance(content, dict) else None
    return isinstance(kind, str) and kind.endswith("_error")
