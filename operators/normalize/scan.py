"""One look at a history before it is normalized: where it begins, and what is rare in it (WIRE.md §4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from turnstream.messages import AssistantMessage, SystemMessage, Tombstone, UserMessage
from turnstream.operators.compaction import is_compact_boundary
from turnstream.operators.normalize.turns import USER

__all__ = ["Scan", "scan"]


class Scan:
    """What :func:`scan` found.

    Attributes:
        items: the history from the last compact boundary on.
        tombstones: whether anything is taken back.
        errors: places of the API errors among the items.
        roles: whether a message is of another role than it should be.
    """

    __slots__ = ("errors", "items", "roles", "tombstones")

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items
        self.tombstones = False
        self.errors: list[int] = []
        self.roles = False


def scan(messages: Iterable[Any]) -> Scan:
    """Read a history once; it isn't copied where nothing is cut off."""
    items = messages if isinstance(messages, list) else list(messages)
    start = 0
    found = Scan(items)
    for at, item in enumerate(items):
        cls = item.__class__
        if cls is AssistantMessage:
            if item.is_api_error_message:
                found.errors.append(at)
        elif cls is UserMessage:
            if item.message.get("role") != USER:
                found.roles = True
        elif cls is Tombstone:
            found.tombstones = True
        elif cls is SystemMessage and is_compact_boundary(item):
            start = at
            found = Scan(items)
    if start:
        found.items = items[start:]
        found.errors = [at - start for at in found.errors]
    return found
