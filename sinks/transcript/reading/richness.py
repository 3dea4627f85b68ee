"""Which of two records with the same uuid says more (WIRE.md §3; FAULTS.md 42)."""

from __future__ import annotations

from typing import Any

from turnstream.messages.jsonvalue import MAX_RECORD_DEPTH, JSONValueError, loads

__all__ = ["lacks_something"]


def lacks_something(later: bytes, earlier: bytes) -> bool:
    """Whether the later record says less than the earlier one: then the earlier one counts.

    It says less if a key that has a value there has none here (missing, null, empty), in the record, its message or
    its usage, or if its content has fewer blocks, and it says nothing that the earlier one doesn't. Two that differ
    otherwise are two states of the same record: the later one counts.
    """
    if later == earlier:
        return False
    new, old = _value(later), _value(earlier)
    if new is None or old is None:
        return new is None
    said, was = _said(new), _said(old)
    return said < was


def _value(raw: bytes) -> dict[str, Any] | None:
    try:
        value = loads(raw, max_depth=MAX_RECORD_DEPTH)
    except JSONValueError:
        return None
    return value if isinstance(value, dict) else None


def _said(value: dict[str, Any]) -> set[str]:
    """Names of what the record says."""
    names = {key for key, item in value.items() if _tells(item)}
    message = value.get("message")
    if isinstance(message, dict):
        names |= {f"message.{key}" for key, item in message.items() if _tells(item)}
        usage = message.get("usage")
        if isinstance(usage, dict):
            names |= {f"message.usage.{key}" for key, item in usage.items() if _tells(item)}
        content = message.get("content")
        if isinstance(content, list):
            names |= {f"message.content.{at}" for at in range(len(content))}
    return names


def _tells(item: Any) -> bool:
    return item is not None and item not in ("", [], {})
