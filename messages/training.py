"""A conversation as training data, refused where a result was made up (WIRE.md §2, tool results)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from turnstream.messages import texts
from turnstream.messages.errors import TrainingDataError
from turnstream.messages.events import StreamEvent
from turnstream.messages.identity import tombstoned_uuids
from turnstream.messages.texts import is_synthetic
from turnstream.messages.types import AssistantMessage, Message, UserMessage

__all__ = ["export_training"]

_REFUSED: Final = (texts.MISSING_RESULT, texts.FOREIGN_MISSING_RESULT)


def export_training(messages: Iterable[Message | StreamEvent]) -> list[dict[str, Any]]:
    """The conversation as ``{"role", "content"}`` objects, in order.

    Left out: virtual and synthetic messages, API errors, what a tombstone took back, and all that is neither
    user nor assistant. Contents are shared, not copied.

    Args:
        messages: a conversation.

    Returns:
        The messages; empty if there are none.

    Raises:
        TrainingDataError: a string anywhere in what was given holds the text that stands for a missing result,
            ours or the foreign one: in a key, a tool's own output, a field nobody exports. Nothing is returned then.
    """
    items = list(messages)
    for number, item in enumerate(items):
        path = _find(item)
        if path is not None:
            uuid = getattr(item, "uuid", None)
            raise TrainingDataError(
                f"item {number} holds a made-up tool result at {path}",
                index=number,
                path=path,
                uuid=uuid if isinstance(uuid, str) else None,
                hint="a conversation with such a result is no training data; leave it out as a whole",
            )
    gone = tombstoned_uuids(items)
    return [
        {"role": "user" if isinstance(item, UserMessage) else "assistant", "content": item.message.get("content")}
        for item in items
        if isinstance(item, UserMessage | AssistantMessage) and item.uuid not in gone and _is_speech(item)
    ]


def _is_speech(item: UserMessage | AssistantMessage) -> bool:
    if item.is_virtual or is_synthetic(item):
        return False
    return not (isinstance(item, AssistantMessage) and item.is_api_error_message)


def _find(root: Any) -> str | None:
    """Where a refused text stands, None if nowhere. No recursion: payloads may nest as deep as they like."""
    pending: list[tuple[str, Any]] = [("$", root)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, str):
            if any(text in value for text in _REFUSED):
                return path
        else:
            pending.extend(_parts(path, value))
    return None


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{path} (a key)", key
            yield f"{path}.{key}", inner
    elif isinstance(value, list | tuple | set | frozenset):
        for number, inner in enumerate(value):
            yield f"{path}[{number}]", inner
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield f"{path}.{name}", getattr(value, name)
        # A line that is no JSON has its text only here.
        raw = getattr(value, "__dict__", {}).get("raw")
        if isinstance(raw, bytes):
            yield f"{path} (its line)", raw.decode("utf-8", "replace")
