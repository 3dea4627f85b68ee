"""The terminal items: what says that an answer is over, which arrives whatever is dropped (DESIGN.md §4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from turnstream.flow.waiting import Waiting
from turnstream.messages.events import MessageStop
from turnstream.messages.types import ResponseFailed, StreamNote
from turnstream.operators.batch import Batch

__all__ = ["KEPT_BYTES", "Ends", "ends_of"]

KEPT_BYTES: Final = 64 * 1024
"""What the kept ends of dropped batches may weigh; beyond it the oldest of them go, the newest never."""

_MAY_END: Final = frozenset({MessageStop, ResponseFailed, StreamNote})


def ends_of(items: Sequence[Any]) -> tuple[Any, ...]:
    """Those of ``items`` that end an answer: message_stop, a failure, the note that stands for a lost stop."""
    if _MAY_END.isdisjoint(map(type, items)):
        return ()
    return tuple(
        item
        for item in items
        if item.__class__ is MessageStop
        or item.__class__ is ResponseFailed
        or (item.__class__ is StreamNote and item.kind == "no_message_stop")
    )


class Ends:
    """The ends out of batches that were dropped, in order and bounded.

    Attributes:
        weight: bytes they weigh.
        items: how many there are.
        dropped: how many of them had to go, too.
    """

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()
        self.weight = 0
        self.items = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def keep(self, dropped: Waiting) -> int:
        """Keep the ends of a batch that is dropped; returns how many items that are."""
        ends = ends_of(dropped.batch.items)
        if not ends:
            return 0
        batch = dropped.batch
        for end in ends:
            kept = Waiting.of(Batch((end,), batch.at, batch.key), dropped.since)
            self._waiting.append(kept)
            self.weight += kept.weight
            self.items += 1
        while self.weight > KEPT_BYTES and len(self._waiting) > 1:
            self.pop()
            self.dropped += 1
        return len(ends)

    def pop(self) -> Waiting:
        """The oldest."""
        first = self._waiting.popleft()
        self.weight -= first.weight
        self.items -= 1
        return first

    def oldest(self) -> float | None:
        """Since when the oldest waits."""
        return self._waiting[0].since if self._waiting else None

    def clear(self) -> None:
        """Forget all."""
        self._waiting.clear()
        self.weight = self.items = 0
