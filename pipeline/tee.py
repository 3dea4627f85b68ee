"""Fan-out to guarded sinks (DESIGN.md §4): lock-free, one sink's fault is never another's."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from turnstream.messages.errors import AbortedError, SinkError
from turnstream.messages.types import StreamNote
from turnstream.operators.batch import Batch
from turnstream.sinks.base import Sink

__all__ = ["Tee"]

_log = logging.getLogger("turnstream.tee")

# Nothing is cancelled inside a call: such an error is the sink's own, let out of something it awaited.
_FAULTS = (Exception, asyncio.CancelledError)


class Tee:
    """An observer that hands each batch to every sink, in the order they were given.

    A sink that raises is detached and reported in-band (a ``stream_note`` of kind ``sink_detached``);
    the others get exactly what they would have got without it. What a sink emits while it is called is
    queued until the current batch has reached all sinks.

    Args:
        sinks: in the order in which they are called.
        fatal: a sink's fault is to end the run: ``fatal_error`` is set.
        on_stop: called when the stream has ended, and when ``fatal_error`` was set.

    Attributes:
        errors: why a sink was detached, by its name.
        batches: how many batches came; ``items`` and ``weight`` (bytes) likewise.
        error: what ended the stream, None if it completed.
        done: whether it ended.
        fatal_error: the fault that is to end the run.
    """

    def __init__(
        self, sinks: Sequence[Sink], *, fatal: bool = False, on_stop: Callable[[], None] | None = None
    ) -> None:
        self._sinks: list[Sink] = list(sinks)
        self._attach()
        self._queue: deque[Sequence[Any]] = deque()
        self._busy = False
        self._fatal = fatal
        self._on_stop = on_stop
        self._ending: tuple[Exception | None] | None = None
        self.errors: dict[str, SinkError] = {}
        self.batches = 0
        self.items = 0
        self.weight = 0
        self.error: Exception | None = None
        self.done = False
        self.fatal_error: SinkError | None = None

    def _attach(self) -> None:
        self._takers = tuple(sink.on_next for sink in self._sinks)
        self._delta_takers = tuple(sink.on_next for sink in self._sinks if sink.wants_deltas)

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """The sinks that are still attached."""
        return tuple(self._sinks)

    def on_next(self, batch: Sequence[Any]) -> None:
        """Hand one batch to every sink."""
        if self._busy or self.done:
            if not self.done:
                self._queue.append(batch)
            return
        queue = self._queue
        self._busy = True
        try:
            while True:
                self.batches += 1
                if batch.__class__ is Batch:
                    takers = self._delta_takers if batch.plain else self._takers  # pyright: ignore[reportAttributeAccessIssue]
                    self.items += len(batch.items)  # pyright: ignore[reportAttributeAccessIssue]
                    self.weight += batch.weight  # pyright: ignore[reportAttributeAccessIssue]
                else:
                    takers = self._takers
                    self.items += len(batch)
                for take in takers:
                    try:
                        if (result := take(batch)) is not None:
                            self._refuse(result)
                    except _FAULTS as error:
                        self._detach(take.__self__, error)  # type: ignore[attr-defined]
                if not queue or self.done:
                    break
                batch = queue.popleft()
        finally:
            self._busy = False
        if self._ending is not None:
            self._end(self._ending[0])

    def _refuse(self, result: Any) -> None:
        if inspect.isawaitable(result):
            close = getattr(result, "close", None)
            if close is not None:
                close()
            raise TypeError("on_next returned an awaitable, which nobody awaits; make it a plain function")

    def detach(self, sink: Sink, cause: BaseException) -> None:
        """Go on without a sink that failed outside of a call, and tell the others."""
        self._detach(sink, cause)
        self._flush()

    def _detach(self, sink: Sink, cause: BaseException) -> None:
        if isinstance(cause, SinkError) and cause.sink == sink.name:
            error = cause
        else:
            error = SinkError(f"sink {sink.name!r} raised {type(cause).__name__}: {cause}", sink=sink.name)
            error.__cause__ = cause
        self.errors.setdefault(sink.name, error)
        self._sinks = [other for other in self._sinks if other is not sink]
        self._attach()
        _log.warning("sink %s detached: %s", sink.name, cause)
        self._queue.append(Batch((StreamNote(kind="sink_detached", message=str(error)),)))
        if self._fatal and self.fatal_error is None:
            self.fatal_error = error
            if self._on_stop is not None:
                self._on_stop()

    def _flush(self) -> None:
        """Deliver what was queued outside of a call."""
        if self._queue and not self._busy and not self.done:
            self.on_next(self._queue.popleft())

    def tell(self, item: Any) -> None:
        """Hand an item to every sink that came beside the stream: now, or behind the batch that is on its way."""
        self.on_next(Batch((item,), asyncio.get_running_loop().time()))

    def tell_first_byte(self, at: float) -> None:
        """Say to the sinks that want to know it (they have a ``first_byte``) that an answer begins to come."""
        for sink in list(self._sinks):
            first_byte = getattr(sink, "first_byte", None)
            if first_byte is not None and not self.done:
                try:
                    first_byte(at)
                except _FAULTS as error:
                    self._detach(sink, error)
        self._flush()

    def on_error(self, error: Exception) -> None:
        """The stream broke: sinks learn it; an abort is a completion (it was wanted)."""
        self._end(error)

    def on_completed(self) -> None:
        """The stream completed."""
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self._busy:
            # From inside a sink: the current batch, and what was emitted until now, reaches all first.
            self._ending = self._ending or (error,)
            return
        self._ending = None
        self._flush()
        if self.done:
            return
        self.done = True
        self.error = error
        for sink in list(self._sinks):
            try:
                if error is None or isinstance(error, AbortedError):
                    sink.on_completed()
                else:
                    sink.on_error(error)
            except _FAULTS as cause:
                self._detach(sink, cause)
        if self._on_stop is not None:
            self._on_stop()

    def close(self) -> None:
        """Deliver nothing more (the run was disposed)."""
        self.done = True
        self._queue.clear()
        if self._on_stop is not None:
            self._on_stop()
