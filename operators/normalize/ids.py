"""Ids of tool calls: what the API takes, and new ones where it wouldn't (WIRE.md §4, repair)."""

from __future__ import annotations

import re
import uuid
from typing import Any, Final

from turnstream.messages.ids import NAMESPACE

__all__ = ["CLIENT_ID", "SERVER_ID", "CallIds"]

CLIENT_ID: Final = re.compile(r"[a-zA-Z0-9_-]+").fullmatch
"""The API's pattern of a tool_use's id, and of an MCP call's."""
SERVER_ID: Final = re.compile(r"srvtoolu_[a-zA-Z0-9_]+").fullmatch
"""The API's pattern of a server_tool_use's id."""
_LONGEST_CONVERSE: Final = 64


class CallIds:
    """Gives each call of a request an id of its own: its own one, or a new one made from it.

    New ids depend only on the old one and on how often it came before, so the same history always gets the same.

    Args:
        prefix: what new ids begin with.
        pattern: what an id must match.
        converse: whether ids may have 64 characters only.
    """

    __slots__ = ("_counts", "_longest", "_pattern", "_prefix", "_taken")

    def __init__(self, prefix: str, pattern: Any, *, converse: bool = False) -> None:
        self._prefix = prefix
        self._pattern = pattern
        self._longest = _LONGEST_CONVERSE if converse else 1 << 20
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}

    def take(self, old: Any) -> str:
        """The id for the next call, whose id was ``old``."""
        if isinstance(old, str) and old not in self._taken and len(old) <= self._longest and self._pattern(old):
            self._taken.add(old)
            return old
        name = f"{type(old).__name__}:{old}"
        while True:
            count = self._counts.get(name, 0)
            self._counts[name] = count + 1
            new = self._prefix + uuid.uuid5(NAMESPACE, f"{count}/{name}").hex[:24]
            if new not in self._taken:
                self._taken.add(new)
                return new
