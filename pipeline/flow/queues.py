"""The bounded queues behind the policies (DESIGN.md §4). Pure data: no loop, no clock, no I/O."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from turnstream.flow.conflation import conflate
from turnstream.flow.ends import Ends
from turnstream.flow.waiting import Waiting
from turnstream.flow.weights import size_of_all
from turnstream.messages.types import Resync
from turnstream.operators.batch import Batch
from turnstream.sinks.base import Policy

__all__ = ["FlowQueue", "make_queue"]


class FlowQueue:
    """Takes everything: the source is asked to wait (policy ``block``).

    Args:
        high: bytes that may wait.
        limit: items that may wait; None: only bytes count.

    Attributes:
        weight: bytes that wait.
        items: items that wait.
        batches: batches that wait.
        dropped_batches: batches that were dropped, in whole or all but their ends.
        dropped_items: items that were dropped.
        dropped_ends: those of them that ended an answer.
        conflated: items that were merged into, replaced or covered by others.
        resyncs: how often the queue collapsed.
    """

    def __init__(self, high: int, limit: int | None) -> None:
        self._high = high
        self._limit = limit
        self._queue: deque[Waiting] = deque()
        self.weight = 0
        self.items = 0
        self.dropped_batches = 0
        self.dropped_items = 0
        self.conflated = 0
        self.resyncs = 0

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def batches(self) -> int:
        """Batches that wait."""
        return len(self._queue)

    @property
    def dropped_ends(self) -> int:
        """Ends of answers that were dropped: more of them waited than may be kept."""
        return 0

    def put(self, batch: Batch[Any], now: float) -> None:
        """Take a batch of at least one item."""
        self._append(Waiting.of(batch, now))

    def pop(self) -> Waiting | None:
        """What is delivered next; None if nothing waits."""
        return self._popleft() if self._queue else None

    def oldest(self) -> float | None:
        """Since when the oldest batch waits."""
        return self._queue[0].since if self._queue else None

    def clear(self) -> None:
        """Let go of everything."""
        self._queue.clear()
        self.weight = self.items = 0

    def over(self, weight: int, items: int) -> bool:
        """Whether so much is too much."""
        return weight > self._high or (self._limit is not None and items > self._limit)

    def _append(self, waiting: Waiting) -> None:
        self._queue.append(waiting)
        self.weight += waiting.weight
        self.items += len(waiting.batch.items)

    def _popleft(self) -> Waiting:
        first = self._queue.popleft()
        self.weight -= first.weight
        self.items -= len(first.batch.items)
        return first


class _DroppingQueue(FlowQueue):
    """Keeps the ends of what it drops."""

    def __init__(self, high: int, limit: int | None) -> None:
        super().__init__(high, limit)
        self._ends = Ends()

    def __bool__(self) -> bool:
        return bool(self._queue) or bool(len(self._ends))

    @property
    def batches(self) -> int:
        return len(self._queue) + len(self._ends)

    @property
    def dropped_ends(self) -> int:
        return self._ends.dropped

    def clear(self) -> None:
        super().clear()
        self._ends.clear()

    def _drop(self, waiting: Waiting) -> None:
        self.dropped_batches += 1
        self.dropped_items += len(waiting.batch.items) - self._ends.keep(waiting)


class DropOldestQueue(_DroppingQueue):
    """Over the limit the oldest batches go; their ends come first. The newest batch stays, whatever its size."""

    def put(self, batch: Batch[Any], now: float) -> None:
        self._append(Waiting.of(batch, now))
        while len(self._queue) > 1 and self.over(self.weight, self.items):
            self._drop(self._popleft())

    def pop(self) -> Waiting | None:
        return self._ends.pop() if len(self._ends) else super().pop()

    def oldest(self) -> float | None:
        ends = self._ends.oldest()
        return ends if ends is not None else super().oldest()


class DropNewestQueue(_DroppingQueue):
    """Over the limit what comes is dropped; its ends come last. An empty queue takes a batch of any size."""

    def put(self, batch: Batch[Any], now: float) -> None:
        ends = self._ends
        waiting = Waiting.of(batch, now)
        weight = self.weight + ends.weight + waiting.weight
        if self and self.over(weight, self.items + ends.items + len(batch.items)):
            self._drop(waiting)
            return
        while len(ends):
            self._append(ends.pop())
        self._append(waiting)

    def pop(self) -> Waiting | None:
        return super().pop() or (self._ends.pop() if len(self._ends) else None)

    def oldest(self) -> float | None:
        since = super().oldest()
        return since if since is not None else self._ends.oldest()


class ConflatingQueue(_DroppingQueue):
    """Merges what can be merged; if that isn't enough it collapses to one ``Resync``.

    What waits for one stream is delivered as one batch. While a ``Resync`` waits nothing is queued: the
    snapshot is taken when its turn comes, so it covers all that came until then. Ends of answers go before
    it: a sink that learns them late must not take them for the end of the answer that the snapshot shows.
    """

    def __init__(self, high: int, limit: int | None) -> None:
        super().__init__(high, limit)
        self._collapsed: float | None = None  # since when

    def __bool__(self) -> bool:
        return self._collapsed is not None or bool(self._queue)

    @property
    def batches(self) -> int:
        return super().batches + (self._collapsed is not None)

    def put(self, batch: Batch[Any], now: float) -> None:
        waiting = Waiting.of(batch, now)
        if self._collapsed is not None:
            self._cover(waiting)
            return
        self._append(waiting)
        if self.over(self.weight, self.items):
            self._compact()
            if self.over(self.weight, self.items):
                self._collapse(now)

    def pop(self) -> Waiting | None:
        if self._collapsed is not None:
            if len(self._ends):
                return self._ends.pop()
            since, self._collapsed = self._collapsed, None
            return Waiting(Batch((Resync(),)), 0, since, resync=True)
        if not self._queue:
            return None
        run = [self._popleft()]
        while self._queue and self._queue[0].batch.key == run[0].batch.key:
            run.append(self._popleft())
        return self._merge(run)

    def oldest(self) -> float | None:
        return self._collapsed if self._collapsed is not None else super().oldest()

    def clear(self) -> None:
        super().clear()
        self._collapsed = None

    def _compact(self) -> None:
        runs: list[list[Waiting]] = []
        for waiting in self._queue:
            if runs and runs[-1][0].batch.key == waiting.batch.key:
                runs[-1].append(waiting)
            else:
                runs.append([waiting])
        self._queue.clear()
        self.weight = self.items = 0
        for run in runs:
            self._append(self._merge(run))

    def _merge(self, run: list[Waiting]) -> Waiting:
        """The batches of one stream as one. It has the time of the last chunk, as a chunk has that of its last byte."""
        first = run[0]
        items = first.batch.items if len(run) == 1 else [item for waiting in run for item in waiting.batch.items]
        merged = conflate(items)
        same = len(merged) == len(items)
        if len(run) == 1 and same:
            return first
        self.conflated += len(items) - len(merged)
        batch = Batch(tuple(merged), run[-1].batch.at, first.batch.key, sum(waiting.batch.weight for waiting in run))
        # What was merged no longer holds its chunks: it weighs what it is.
        weight = sum(waiting.weight for waiting in run) if same else size_of_all(merged)
        return Waiting(batch, weight, first.since)

    def _collapse(self, now: float) -> None:
        oldest = self._queue[0].since if self._queue else now
        while self._queue:
            self._cover(self._popleft())
        self._collapsed = oldest
        self.resyncs += 1

    def _cover(self, waiting: Waiting) -> None:
        self.conflated += len(waiting.batch.items) - self._ends.keep(waiting)


_QUEUES: Final[dict[Policy, type[FlowQueue]]] = {
    "block": FlowQueue,
    "conflate": ConflatingQueue,
    "drop_oldest": DropOldestQueue,
    "drop_newest": DropNewestQueue,
}


def make_queue(policy: Policy, high: int, limit: int | None) -> FlowQueue:
    """The queue of a policy.

    Raises:
        ValueError: the policy has none (``direct``), or there is no such policy.
    """
    make = _QUEUES.get(policy)
    if make is None:
        raise ValueError(f"policy must be one of {', '.join(_QUEUES)}, not {policy!r}")
    return make(high, limit)
