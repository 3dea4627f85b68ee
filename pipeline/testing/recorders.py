"""Ends of a stream that remember: a sink, and a subscription."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from reactivex import Observable, abc

from turnstream.operators.batch import Batch
from turnstream.sinks.base import Policy, SinkBase

__all__ = ["Recorded", "RecordingSink", "record_observable"]

Hang = Literal["work", "drain", "aclose"]
"""Where a :class:`RecordingSink` hangs: its queue never moves, or ``drain`` or ``aclose`` never return."""

_COMPLETED: Final = object()


class RecordingSink(SinkBase):
    """A sink that keeps what it was given, and can be made slow, faulty or stuck.

    Without options it records at once. With ``slow`` it has a queue and takes ``slow`` seconds of loop
    time a batch; it is full while ``capacity`` batches wait, which holds a source back under every
    policy that waits.

    Args:
        name: what reports call it.
        policy: how it says it takes batches.
        slow: seconds of loop time that each batch takes; needs a running loop.
        capacity: batches that may wait before it is full.
        raise_at: number (from 1) of the item at which ``on_next`` raises; the items before it are kept.
        error: what it raises; default a RuntimeError that says so.
        hang: where it never returns.

    Attributes:
        batches: what was recorded, as new batches of tuples (a sink may not keep what it is given).
        items: the items of all of them.
        error: what ``on_error`` brought.
        completed: whether ``on_completed`` came.
        late: items that came after the end, or after ``aclose``; a pipeline never delivers any.
        max_queued: the most batches that ever waited.
        closed: whether ``aclose`` returned.
    """

    def __init__(
        self,
        name: str = "recording",
        policy: Policy = "direct",
        *,
        slow: float = 0.0,
        capacity: int = 16,
        raise_at: int | None = None,
        error: Exception | None = None,
        hang: Hang | None = None,
    ) -> None:
        self.name = name
        self.policy = policy
        self.batches: list[Batch[Any]] = []
        self.items: list[Any] = []
        self.error: Exception | None = None
        self.completed = False
        self.late: list[Any] = []
        self.max_queued = 0
        self.closed = False
        self._slow = slow
        self._capacity = capacity
        self._raise_at = raise_at
        self._raised = error
        self._hang = hang
        self._arrived = 0
        self._ended = False
        self._queue: deque[Any] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._moved = asyncio.Event()

    def on_next(self, batch: Sequence[Any], /) -> None:
        """Record one batch, now or when its turn comes.

        Raises:
            Exception: the batch holds item number ``raise_at``.
        """
        items = tuple(batch)
        if self._ended or self.closed:
            self.late.extend(items)
            return
        first = self._arrived + 1
        self._arrived += len(items)
        at, key, weight = getattr(batch, "at", None), getattr(batch, "key", None), getattr(batch, "weight", 0)
        if self._raise_at is not None and first <= self._raise_at <= self._arrived:
            if before := items[: self._raise_at - first]:
                self._take(Batch(before, at, key, weight))
            raise self._raised or RuntimeError(f"sink {self.name!r} was told to raise at item {self._raise_at}")
        self._take(Batch(items, at, key, weight))

    def on_error(self, error: Exception, /) -> None:
        """Record the error, behind what still waits."""
        if not self._ended:
            self._ended = True
            self._take(error)

    def on_completed(self) -> None:
        """Record the end, behind what still waits."""
        if not self._ended:
            self._ended = True
            self._take(_COMPLETED)

    def full(self) -> bool:
        """Whether ``capacity`` batches wait."""
        return len(self._queue) >= self._capacity

    async def room(self) -> None:
        """Return once it is no longer full."""
        while self.full():
            await self._next_move()

    async def drain(self) -> None:
        """Return once nothing waits."""
        if self._hang == "drain":
            await _for_ever()
        while self._queue:
            await self._next_move()

    async def aclose(self) -> None:
        """Drain and close; a cancelled close lets go of what waits."""
        try:
            if self._hang == "aclose":
                await _for_ever()
            await self.drain()
        finally:
            self._queue.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        self.closed = True

    def statistics(self) -> Mapping[str, Any]:
        """Counts of batches and items recorded, waiting, and late."""
        return {
            "batches": len(self.batches),
            "items": len(self.items),
            "queued": len(self._queue),
            "max_queued": self.max_queued,
            "late_items": len(self.late),
        }

    def _take(self, what: Any) -> None:
        if not self._slow and self._hang != "work":
            self._record(what)
            return
        self._queue.append(what)
        self.max_queued = max(self.max_queued, len(self._queue))
        if self._timer is None and self._hang != "work":
            self._timer = asyncio.get_running_loop().call_later(self._slow, self._work)

    def _work(self) -> None:
        self._timer = None
        self._record(self._queue.popleft())
        # The end isn't work: it is recorded with the last batch.
        if len(self._queue) == 1 and self._ended:
            self._record(self._queue.popleft())
        if self._queue:
            self._timer = asyncio.get_running_loop().call_later(self._slow, self._work)
        self._moved.set()

    def _record(self, what: Any) -> None:
        if what is _COMPLETED:
            self.completed = True
        elif isinstance(what, Exception):
            self.error = what
        else:
            self.batches.append(what)
            self.items.extend(what.items)

    async def _next_move(self) -> None:
        self._moved.clear()
        await self._moved.wait()


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()


class Recorded:
    """What an observable did so far.

    Attributes:
        batches: each emission as it came.
        items: the items of the batches, one after another; an emission that is no sequence is an item.
        error: what ``on_error`` brought.
        completed: whether ``on_completed`` came.
        times: the running loop's time of each emission, seconds; None where no loop runs.
        threads: the names of the threads that anything came on.
        subscription: dispose it to stop.
    """

    def __init__(self) -> None:
        self.batches: list[Any] = []
        self.items: list[Any] = []
        self.error: Exception | None = None
        self.completed = False
        self.times: list[float | None] = []
        self.threads: set[str] = set()
        self.subscription: abc.DisposableBase | None = None
        self._end = asyncio.Event()

    def __repr__(self) -> str:
        end = "completed" if self.completed else f"failed with {self.error!r}" if self.error else "open"
        return f"<Recorded {len(self.items)} items in {len(self.batches)} batches, {end}>"

    @property
    def ended(self) -> bool:
        """Whether it completed or failed."""
        return self.completed or self.error is not None

    async def finished(self) -> Recorded:
        """Return this once the observable has completed or failed (a failure isn't raised)."""
        if not self.ended:
            await self._end.wait()
        return self

    def dispose(self) -> None:
        """End the subscription."""
        if self.subscription is not None:
            self.subscription.dispose()

    def _on_next(self, batch: Any) -> None:
        self._note()
        try:
            self.times.append(asyncio.get_running_loop().time())
        except RuntimeError:
            self.times.append(None)
        self.batches.append(batch)
        if isinstance(batch, Sequence) and not isinstance(batch, (str, bytes, bytearray)):
            self.items.extend(batch)
        else:
            self.items.append(batch)

    def _on_error(self, error: Exception) -> None:
        self._note()
        self.error = error
        self._end.set()

    def _on_completed(self) -> None:
        self._note()
        self.completed = True
        self._end.set()

    def _note(self) -> None:
        self.threads.add(threading.current_thread().name)


def record_observable(observable: Observable[Any], *, scheduler: abc.SchedulerBase | None = None) -> Recorded:
    """Subscribe and record. A synchronous observable has ended when this returns.

    Args:
        observable: what to subscribe to.
        scheduler: given to the subscription, for operators that take time.
    """
    recorded = Recorded()
    recorded.subscription = observable.subscribe(
        recorded._on_next, recorded._on_error, recorded._on_completed, scheduler=scheduler
    )
    return recorded
