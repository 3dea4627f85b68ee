"""``settle``: for consumers that serialize at once (WIRE.md §1, accumulation)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnstream.messages.events import EVENT_CLASSES, MessageStart, MessageStop
from turnstream.messages.types import (
    AssistantMessage,
    QueryItem,
    RequestStart,
    ResponseFailed,
    StreamNote,
    Tombstone,
)
from turnstream.operators.stage import Fault, Operator, lift

__all__ = ["Settler", "settle"]


class Settler:
    """The stage: holds an open answer's messages until their values are final.

    Stream events pass at once. Everything else keeps its order: what comes behind a held message waits
    with it. A superseded attempt's messages are dropped together with their tombstones, counted in one
    note. Memory: one answer.
    """

    def __init__(self) -> None:
        self._held: list[Any] = []
        self._dropped = 0

    def feed(self, batch: Sequence[QueryItem], /) -> Sequence[QueryItem | Fault]:
        """Take one batch."""
        out: list[Any] | None = None
        held = self._held
        for position, item in enumerate(batch):
            cls = item.__class__
            if cls in EVENT_CLASSES:
                if (held or self._dropped) and (cls is MessageStop or cls is MessageStart):
                    if out is None:
                        out = list(batch[:position])
                    self._release(out, item if isinstance(item, MessageStart) else None)
                    held = self._held
                if out is not None:
                    out.append(item)
                continue
            if cls is AssistantMessage or held or self._dropped or cls is Tombstone:
                if out is None:
                    out = list(batch[:position])
                self._take(item, out)
                held = self._held
            elif out is not None:
                out.append(item)
        return batch if out is None else out

    def _take(self, item: Any, out: list[Any]) -> None:
        held = self._held
        cls = item.__class__
        if cls is Tombstone:
            for at in range(len(held) - 1, -1, -1):
                if held[at] is item.message or getattr(held[at], "uuid", None) == getattr(item.message, "uuid", 0):
                    del held[at]
                    self._dropped += 1
                    return
            (held if held else out).append(item)
        elif cls is ResponseFailed or cls is RequestStart or (cls is StreamNote and item.kind == "no_message_stop"):
            self._release(out)
            out.append(item)
        else:
            held.append(item)

    def _release(self, out: list[Any], start: MessageStart | None = None) -> None:
        if self._dropped:
            count = self._dropped
            self._dropped = 0
            out.append(
                StreamNote(
                    kind="superseded_messages",
                    message=f"{count} message{'s' * (count != 1)} of a superseded attempt dropped",
                )
            )
        kept = 0 if start is None else _made_by(start, self._held)
        out.extend(self._held[: len(self._held) - kept])
        self._held = self._held[len(self._held) - kept :]

    def flush(self) -> Sequence[QueryItem | Fault]:
        """The end: nothing changes any more."""
        out: list[Any] = []
        self._release(out)
        return out

    def fail(self, error: Exception, /) -> Sequence[QueryItem | Fault]:
        """The end: nothing changes any more."""
        return self.flush()


def _made_by(start: MessageStart, held: Sequence[Any]) -> int:
    """How many items at the end of ``held`` came with ``start``, which holds content: its answer begins with them."""
    message = start.message if isinstance(start.message, dict) else {}
    for at, item in enumerate(held):
        if item.__class__ is AssistantMessage and (
            item.message.get("id") == message["id"] if message.get("id") else item.synthesized_envelope
        ):
            return len(held) - at
    return 0


def settle() -> Operator[QueryItem, QueryItem]:
    """Hold each answer's messages until their usage and stop_reason are final; never put it before tools."""
    return lift(Settler, "settle")
