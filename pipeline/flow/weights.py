"""What waiting batches weigh, bytes: the chunk that caused them, and what they hold beyond it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from turnstream.messages.events import (
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    ErrorEvent,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    UnknownEvent,
)
from turnstream.operators.batch import Batch
from turnstream.operators.sse import ServerSentEvent

__all__ = ["size_of", "size_of_all", "weigh"]

# Their bytes are in the chunk that brought them. A finished message holds what many chunks brought.
_OF_THE_CHUNK: Final[frozenset[type[Any]]] = frozenset(
    {
        bytes,
        bytearray,
        memoryview,
        ServerSentEvent,
        ContentBlockDelta,
        ContentBlockStart,
        ContentBlockStop,
        ErrorEvent,
        MessageDelta,
        MessageStart,
        MessageStop,
        Ping,
        UnknownEvent,
    }
)
_OBJECT: Final = 64
# Enough for any message; what somebody else emits may even hold itself.
_PARTS: Final = 100_000


def size_of(item: Any) -> int:
    """About how many bytes of memory an item holds."""
    total = 0
    parts = _PARTS
    stack: list[Any] = [item]
    while stack and parts > 0:
        value = stack.pop()
        parts -= 1
        if isinstance(value, (str, bytes, bytearray)):
            total += value.__sizeof__()
        elif isinstance(value, dict):
            total += _OBJECT + 32 * len(value)
            stack.extend(value.values())
        elif isinstance(value, (list, tuple)):
            total += _OBJECT + 8 * len(value)
            stack.extend(value)
        elif isinstance(value, msgspec.Struct):
            total += _OBJECT
            stack.extend(field for name in value.__struct_fields__ if (field := getattr(value, name)) is not None)
        else:
            total += 8
    return total


def size_of_all(items: Iterable[Any]) -> int:
    """The sizes of several items."""
    return sum(map(size_of, items))


def weigh(batch: Sequence[Any]) -> int:
    """What a waiting batch weighs: the bytes that caused it and the messages that it holds; else an estimate."""
    if isinstance(batch, Batch):
        known = batch.weight
        if known:
            if batch.plain or _OF_THE_CHUNK.issuperset(map(type, batch.items)):
                return known
            return known + size_of_all(item for item in batch.items if item.__class__ not in _OF_THE_CHUNK)
    return size_of_all(batch)
