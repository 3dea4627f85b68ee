"""Compaction in the transcript: what stands before a boundary, and what hangs behind it (WIRE.md §3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnstream.messages.types import Message, SystemMessage, UserMessage

__all__ = ["is_boundary", "is_compaction", "kept_first"]


def is_boundary(message: Any) -> bool:
    """Whether it is a ``compact_boundary``: where the chain begins anew."""
    return message.__class__ is SystemMessage and message.subtype == "compact_boundary"


def is_compaction(message: Any) -> bool:
    """Whether it is a boundary or its summary: a compaction is done when both are in the file."""
    if message.__class__ is UserMessage:
        return message.is_compact_summary is True
    return is_boundary(message)


def kept_first(messages: list[Message], is_held: Callable[[str], bool]) -> list[Message]:
    """The messages with what a new boundary preserves before it, as far as the file doesn't hold it.

    After a compaction the list is boundary, summary, preserved segment. The segment is older than the
    boundary, and readers look for it there. Its tail is searched from the end; where it isn't known,
    nothing moves.

    Args:
        messages: as they are to be recorded.
        is_held: whether a uuid is in the file or its queue.
    """
    for at in range(len(messages) - 1, -1, -1):
        boundary: Any = messages[at]
        if not is_boundary(boundary) or is_held(boundary.uuid):
            continue
        head, tail = _segment(boundary)
        if tail is None:
            break
        end = next((n for n in range(len(messages) - 1, at, -1) if _uuid(messages[n]) == tail), at)
        start = next((n for n in range(at + 1, end + 1) if _uuid(messages[n]) == head), at + 1)
        moved = [m for m in messages[start : end + 1] if not is_compaction(m) and not is_held(_uuid(m) or "")]
        moving = set(map(id, moved))
        return [*messages[:at], *moved, *(m for m in messages[at:] if id(m) not in moving)]
    return messages


def _segment(boundary: Any) -> tuple[str | None, str | None]:
    metadata = boundary.fields.get("compactMetadata")
    segment = metadata.get("preservedSegment") if isinstance(metadata, dict) else None
    if not isinstance(segment, dict):
        return None, None
    head, tail = segment.get("headUuid"), segment.get("tailUuid")
    return head if isinstance(head, str) else None, tail if isinstance(tail, str) and tail else None


def _uuid(message: Any) -> str | None:
    uuid = getattr(message, "uuid", None)
    return uuid if isinstance(uuid, str) and uuid else None
