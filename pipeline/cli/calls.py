"""Tool calls of a file of messages and how they ended, in one pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from turnstream.messages.types import AssistantMessage, UserMessage

__all__ = ["Calls"]

_USES: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_RESULT: Final = "tool_result"
"""Also the end of the types of server tools' results: ``web_search_tool_result``."""


@dataclass
class _Call:
    ident: str | None
    name: str
    answer: str
    line: int
    error: bool | None = None  # None while there is no result


class Calls:
    """Pairs calls with results by id, whichever comes first.

    An id that another answer uses again is another call: ids repeat in the field.
    """

    def __init__(self) -> None:
        self._calls: dict[str, _Call] = {}
        self._over: list[_Call] = []
        self._orphans: dict[str, bool] = {}

    def assistant(self, message: AssistantMessage, line: int) -> None:
        """Take in the calls of an answer, and the results of tools that ran on the server."""
        ident = message.message.get("id")
        answer = ident if isinstance(ident, str) and ident else message.uuid
        for block in _blocks(message.message):
            kind = block.get("type")
            if not isinstance(kind, str):
                continue
            if kind in _USES:
                self._use(block, answer, line)
            elif kind.endswith(_RESULT):
                self._result(block)

    def user(self, message: UserMessage) -> None:
        """Take in results."""
        for block in _blocks(message.message):
            if block.get("type") == _RESULT:
                self._result(block)

    def _use(self, block: dict[str, Any], answer: str, line: int) -> None:
        ident, name = block.get("id"), block.get("name")
        known = ident if isinstance(ident, str) else None
        call = _Call(known, name if isinstance(name, str) else "(none)", answer, line)
        if known is None:
            self._over.append(call)
            return
        before = self._calls.get(known)
        if before is not None:
            if before.answer == answer:
                return  # the same line again
            self._over.append(before)
        call.error = self._orphans.pop(known, None)
        self._calls[known] = call

    def _result(self, block: dict[str, Any]) -> None:
        ident = block.get("tool_use_id")
        if not isinstance(ident, str):
            return
        content = block.get("content")
        kind = content.get("type") if isinstance(content, dict) else None
        error = block.get("is_error") is True or (isinstance(kind, str) and kind.endswith("_error"))
        call = self._calls.get(ident)
        if call is not None:
            call.error = error
        else:
            self._orphans[ident] = error

    def report(self) -> dict[str, Any]:
        """``tools``, ``open_tool_uses`` and ``orphan_results`` as JSON values."""
        uses: Counter[str] = Counter()
        errors: Counter[str] = Counter()
        calls = [*self._over, *self._calls.values()]
        for call in calls:
            uses[call.name] += 1
            errors[call.name] += call.error is True
        return {
            "tools": {name: {"uses": count, "errors": errors[name]} for name, count in uses.most_common()},
            "open_tool_uses": [
                {"id": call.ident, "name": call.name, "line": call.line} for call in calls if call.error is None
            ],
            "orphan_results": len(self._orphans),
        }


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
