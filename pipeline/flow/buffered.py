"""``buffered``: a sink that needs time, behind a bounded queue and one task (DESIGN.md §4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from turnstream.flow.async_sink import AsyncSink
from turnstream.flow.patience import STALL_TIMEOUT
from turnstream.flow.queues import make_queue
from turnstream.flow.waiting import Waiting
from turnstream.messages.errors import SinkError
from turnstream.operators.batch import Batch
from turnstream.sinks.base import Policy, SinkBase

__all__ = ["HIGH_WATER", "BufferedSink", "buffered"]

_log = logging.getLogger("turnstream.flow")

HIGH_WATER: Final = 1 << 20
"""Bytes that may wait in a queue before its policy is asked for."""

# Seconds for a cancelled `take` to end; one that swallows its cancellation is left to itself then.
_GRACE: Final = 1.0


class BufferedSink(SinkBase):
    """What :func:`buffered` makes: a sink of a run that hands batches to an :class:`AsyncSink`.

    One task takes them, one at a time and in order; it starts with the first batch and ends with
    :meth:`aclose`. A ``take`` that raised, or that stalled, is the end of the sink: what waits is let go
    and the next ``on_next``, ``room`` or ``drain`` raises why, so that the run detaches it.
    """

    def __init__(
        self,
        sink: AsyncSink,
        policy: Policy,
        *,
        high_water: int,
        low_water: int,
        limit: int | None,
        stall_timeout: float | None,
        state: Callable[[], Any] | None,
    ) -> None:
        self._sink = sink
        self.name = sink.name
        self.policy = policy
        self.wants_deltas = bool(getattr(sink, "wants_deltas", True))
        self.stall_timeout = stall_timeout
        self._queue = make_queue(policy, high_water, limit)
        self._high, self._low, self._limit = high_water, low_water, limit
        self._state = state
        self._resync: Any = getattr(sink, "resync", None)
        self._tell_end: Any = getattr(sink, "ended", None)
        if state is not None and self._resync is None:
            raise TypeError(f"sink {sink.name!r} has no resync(), so it can't take what state() gives")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._came: asyncio.Future[None] | None = None  # what the idle task waits for
        self._waiters: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._moved_at = 0.0
        self._taking: Waiting | None = None
        self._end: tuple[Exception | None] | None = None
        self._end_told = False
        self._draining = 0
        self._was_full = False
        self._error: Exception | None = None
        self._told = False
        self._stopping = False
        self._closed: asyncio.Event | None = None
        self._batches = 0
        self._items = 0
        self._lost_batches = 0
        self._lost_items = 0
        self._max_bytes = 0

    # -- taking ----------------------------------------------------------------------------------------

    def on_next(self, batch: Sequence[Any], /) -> None:
        """Queue one batch, or do with it what the policy says.

        Raises:
            Exception: what ``take`` raised before, or a SinkError if it stalled.
        """
        if self._error is not None:
            self._raise()
        if self._closed is not None or self._end is not None or not len(batch):
            return
        loop = self._loop or self._begin()
        now = loop.time()
        if isinstance(batch, Batch):
            mine: Batch[Any] = Batch(tuple(batch.items), batch.at, batch.key, batch.weight, batch.plain)
        else:
            mine = Batch(tuple(batch))
        if self._taking is None and not self._queue:
            self._moved_at = now  # from now on it is waited for
        self._queue.put(mine, now)
        self._max_bytes = max(self._max_bytes, self._bytes())
        self._watch()
        self._go_on()

    def on_error(self, error: Exception, /) -> None:
        """The run broke: the sink learns it behind all that waits."""
        self._ended(error)

    def on_completed(self) -> None:
        """The run is complete: the sink learns it behind all that waits."""
        self._ended(None)

    def _ended(self, error: Exception | None) -> None:
        if self._end is not None or self._closed is not None or self._error is not None:
            return
        self._end = (error,)
        if self._tell_end is None:
            self._end_told = True
            return
        loop = self._loop or self._begin()
        if self._taking is None and not self._queue:
            self._moved_at = loop.time()
        self._watch()
        self._go_on()

    def _begin(self) -> asyncio.AbstractEventLoop:
        self._loop = loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._work(), name=f"turnstream-sink {self.name}")
        return loop

    # -- the task --------------------------------------------------------------------------------------

    async def _work(self) -> None:
        try:
            while True:
                waiting = self._queue.pop()
                if waiting is not None:
                    self._taking = waiting
                    await self._deliver(waiting)
                    self._batches += 1
                    self._items += len(waiting.batch.items)
                elif self._end is not None and not self._end_told:
                    await self._tell_end(self._end[0])
                    self._end_told = True
                else:
                    await self._next()
                    continue
                self._taking = None
                self._moved()
        except asyncio.CancelledError:
            if self._stopping:
                raise
            # Not ours: the sink let out the cancellation of something it awaited, or the loop shuts down.
            self._fail(SinkError(f"take() of sink {self.name!r} was cancelled", sink=self.name))
        except Exception as error:  # noqa: BLE001 - told by the next call
            self._fail(error)

    async def _deliver(self, waiting: Waiting) -> None:
        if waiting.resync and self._resync is not None:
            # No batch is under way now, so the state has seen exactly what this sink was given.
            await self._resync(self._state() if self._state is not None else None)
        else:
            await self._sink.take(waiting.batch)

    async def _next(self) -> None:
        assert self._loop is not None
        self._came = self._loop.create_future()
        try:
            await self._came
        finally:
            self._came = None

    def _go_on(self) -> None:
        came = self._came
        if came is not None and not came.done():
            came.set_result(None)

    def _moved(self) -> None:
        assert self._loop is not None
        self._moved_at = self._loop.time()
        if self._waiters:
            self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _move(self) -> None:
        """Return when something has moved: a batch was taken, or the sink failed or was closed."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    # -- failing ---------------------------------------------------------------------------------------

    def _fail(self, error: Exception) -> None:
        self._error = error
        queue = self._queue
        taking = () if self._taking is None else self._taking.batch.items
        self._lost_batches = queue.batches + (self._taking is not None)
        self._lost_items = queue.items + len(taking)
        queue.clear()
        self._taking = None
        self._stop_timer()
        if self._task is not None and not self._task.done() and self._task is not _current():
            self._stopping = True
            self._task.cancel()
        self._wake()

    def _raise(self) -> None:
        assert self._error is not None
        self._told = True
        raise self._error

    def _watch(self) -> None:
        """Arm the stall timer: for a sink that holds the source, or that somebody waits for."""
        if self._timer is None and self.stall_timeout is not None and (self.policy == "block" or self._draining):
            assert self._loop is not None
            self._timer = self._loop.call_at(self._moved_at + self.stall_timeout, self._on_time)

    def _on_time(self) -> None:
        # Armed once and looked at here: moving the timer with every batch would cost more than the batch.
        self._timer = None
        assert self._loop is not None
        assert self.stall_timeout is not None
        if self._idle() or self._error is not None:
            return
        if self._loop.time() < self._moved_at + self.stall_timeout:
            self._watch()
            return
        waiting = self._queue.batches + (self._taking is not None)
        self._fail(
            SinkError(
                f"sink {self.name!r} made no progress for {self.stall_timeout:g} s; {waiting} batches are lost to it",
                sink=self.name,
                hint="see why its take() doesn't return, or give it a longer stall_timeout",
            )
        )

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- backpressure ----------------------------------------------------------------------------------

    def _bytes(self) -> int:
        return self._queue.weight + (0 if self._taking is None else self._taking.weight)

    def _count(self) -> int:
        return self._queue.items + (0 if self._taking is None else len(self._taking.batch.items))

    def full(self) -> bool:
        """Whether the source should wait (policy ``block``): from the high water mark until the low one."""
        if self.policy != "block" or self._error is not None or self._closed is not None:
            return False
        weight, limit = self._bytes(), self._limit
        if self._was_full:
            self._was_full = weight > self._low or (limit is not None and self._count() > limit // 2)
        else:
            self._was_full = weight >= self._high or (limit is not None and self._count() >= limit)
        return self._was_full

    async def room(self) -> None:
        """Return once it is no longer full.

        Raises:
            Exception: what ``take`` raised, or a SinkError if it stalled.
        """
        while self.full():
            await self._move()
        if self._error is not None:
            self._raise()

    # -- ends ------------------------------------------------------------------------------------------

    def _idle(self) -> bool:
        return self._taking is None and not self._queue and (self._end is None or self._end_told)

    async def drain(self) -> None:
        """Return once all that was queued has been taken; under every policy within ``stall_timeout`` of the last move.

        Raises:
            Exception: what ``take`` raised, or a SinkError if it stalled.
        """
        self._draining += 1
        try:
            if not self._idle():
                self._watch()
            while self._error is None and not self._idle() and not self._stopping:
                await self._move()
        finally:
            self._draining -= 1
        if self._error is not None:
            self._raise()

    async def aclose(self) -> None:
        """Drain, end the task, close the sink. Idempotent; a cancelled close ends and closes all the same.

        Raises:
            Exception: as :meth:`drain`, if nobody was told yet; else what the sink's own ``aclose`` raises.
        """
        if self._closed is not None:
            await self._closed.wait()
            return
        told = self._told
        self._closed = asyncio.Event()
        try:
            try:
                await self.drain()
            except Exception:
                if not told:
                    raise
            finally:
                await self._end_task()
        finally:
            try:
                await self._sink.aclose()
            finally:
                self._closed.set()

    async def _end_task(self) -> None:
        self._stop_timer()
        self._stopping = True
        self._queue.clear()
        self._wake()
        task = self._task
        if task is None or task.done():
            return
        task.cancel()
        try:
            await asyncio.wait([task], timeout=_GRACE)
        finally:
            self._taking = None
        if not task.done():
            _log.warning("take() of sink %s goes on although it was cancelled; it is left to itself", self.name)

    def statistics(self) -> Mapping[str, Any]:
        """What was taken, what waits, what was let go; ``lag`` is the age of the oldest batch that waits, seconds."""
        queue, taking = self._queue, self._taking
        oldest = taking.since if taking is not None else queue.oldest()
        inner = getattr(self._sink, "statistics", None)
        return {
            "batches": self._batches,
            "items": self._items,
            "queued": queue.batches + (taking is not None),
            "queued_items": self._count(),
            "queued_bytes": self._bytes(),
            "max_queued_bytes": self._max_bytes,
            "lag": max(0.0, self._loop.time() - oldest) if oldest is not None and self._loop is not None else 0.0,
            "dropped_batches": queue.dropped_batches,
            "dropped_items": queue.dropped_items,
            "dropped_ends": queue.dropped_ends,
            "conflated": queue.conflated,
            "resyncs": queue.resyncs,
            "lost_batches": self._lost_batches,
            "lost_items": self._lost_items,
            **({"sink": dict(inner())} if inner is not None else {}),
        }


def _current() -> asyncio.Task[Any] | None:
    return asyncio.current_task() if asyncio._get_running_loop() is not None else None


def buffered(
    sink: AsyncSink,
    policy: Policy = "block",
    *,
    high_water: int = HIGH_WATER,
    low_water: int | None = None,
    limit: int | None = None,
    stall_timeout: float | None = STALL_TIMEOUT,
    state: Callable[[], Any] | None = None,
) -> BufferedSink:
    """Make a sink of a run from one that needs time: a bounded queue, and one task that awaits ``take``.

    What happens when it can't keep up:

    - ``block``: nothing is lost; the source isn't read on until there is room. A sink that makes no
      progress for ``stall_timeout`` is detached (or fails the run: ``to(on_sink_error="fail")``).
    - ``conflate``: for displays. What waits is merged: adjacent deltas of one block become one, a finished
      message replaces those of its block. If that is still too much, all that waits is replaced by one
      snapshot: ``resync(state())`` is awaited if the sink has ``resync``, else ``take`` gets a ``Resync``.
    - ``drop_oldest``, ``drop_newest``: batches are dropped and counted.

    The end of an answer (message_stop, a failure, the note that stands for a lost stop) always arrives:
    it is kept out of what is dropped, before the snapshot; if these ends alone weigh more than 64 KiB the
    oldest of them go. So memory is bounded whatever comes: by the mark, these ends and one batch.

    Args:
        sink: it; see :class:`AsyncSink`.
        policy: ``block``, ``conflate``, ``drop_oldest`` or ``drop_newest``.
        high_water: bytes that may wait: the chunks that caused the batches, the finished messages in them;
            what no bytes caused is estimated.
        low_water: bytes at which a source that waits goes on (``block``); default a quarter of ``high_water``.
        limit: items that may wait, too; None for no such limit.
        stall_timeout: seconds without progress, while something waits, until the sink counts as hung; None:
            never. Under policies other than ``block`` only while it is drained.
        state: gives the snapshot that replaces a queue which overflowed (``conflate``), for example
            ``UISink.state.snapshot`` of a sink beside it. Called between two batches, when its turn comes.

    Raises:
        ValueError: a policy without a queue, marks that make no sense, ``state`` without ``conflate``.
        TypeError: ``state`` is given and the sink has no ``resync``.
    """
    if low_water is None:
        low_water = high_water // 4
    if not 0 <= low_water <= high_water or high_water < 1:
        raise ValueError(f"marks must be 0 <= low_water <= high_water, not {low_water} and {high_water}")
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
    if state is not None and policy != "conflate":
        raise ValueError("state is for the policy 'conflate'")
    return BufferedSink(
        sink,
        policy,
        high_water=high_water,
        low_water=low_water,
        limit=limit,
        stall_timeout=stall_timeout,
        state=state,
    )
