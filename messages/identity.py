"""Which message is meant: by its uuid, in whatever form it is at hand (WIRE.md §2, tombstone)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from turnstream.messages.types import OpaqueRecord, Tombstone

__all__ = ["tombstoned_uuids", "uuid_of"]


def uuid_of(message: Any) -> str:
    """The uuid of a message, an opaque record's object or a plain object; ``""`` where it has none."""
    if isinstance(message, OpaqueRecord):
        message = message.data
    uuid = message.get("uuid") if isinstance(message, dict) else getattr(message, "uuid", None)
    return uuid if isinstance(uuid, str) else ""


def tombstoned_uuids(messages: Iterable[Any]) -> frozenset[str]:
    """The uuids that the tombstones in a whole list take back, wherever they stand in it."""
    found = (uuid_of(item.message) for item in messages if item.__class__ is Tombstone)
    return frozenset(uuid for uuid in found if uuid)
