"""One batch that waits in a queue."""

from __future__ import annotations

from typing import Any

import msgspec

from turnstream.flow.weights import weigh
from turnstream.operators.batch import Batch

__all__ = ["Waiting"]


class Waiting(msgspec.Struct, eq=False):
    """A batch in a queue.

    Attributes:
        batch: it; its items are the queue's own tuple.
        weight: bytes that it counts for.
        since: loop time when it came.
        resync: it stands for a queue that overflowed; the batch is one ``Resync``.
    """

    batch: Batch[Any]
    weight: int
    since: float
    resync: bool = False

    @classmethod
    def of(cls, batch: Batch[Any], since: float) -> Waiting:
        """Weigh it."""
        return cls(batch, weigh(batch), since)
