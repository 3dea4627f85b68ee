"""Fan-out to guarded sinks (DESIGN.md §4): lock-free, one sink's fault is never another's."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any

from turnstream.messages.errors import AbortedError, SinkError
from turnstream.messages.types import StreamNote
from turnstream.operators.batch import Batch
from turnstream.sinks.base import Sink

__all__ = ["Tee"]

_log = logging.getLogger("turnstream.tee")


class Tee:
    """An observer that hands each batch to every sink, in the order they were given.

    A sink that raises is detached and reported in-band (a ``stream_note`` of kind ``sink_detached``);
    the others get exactly what they would have got without it. What a sink emits while it is called is
    queued until the current batch has reached all sinks.

    Attributes:
        errors: why a sink was detached, by its name.
        batches: how many batches came; ``items`` and ``weight`` (bytes) likewise.
        error: what ended the stream, None if it completed.
        done: whether it ended.
    """

    def __init__(self, sinks: Sequence[Sink], *, fatal: bool = False) -> None:
        self._sinks: list[Sink] = list(sinks)
        self._attach()
        self._queue: deque[Sequence[Any]] = deque()
        self._busy = False
        self._fatal = fatal
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
        self._busy = True
        try:
            while True:
                self.batches += 1
                takers = self._takers
                if batch.__class__ is Batch:
                    if batch.plain:  # pyright: ignore[reportAttributeAccessIssue]
                        takers = self._delta_takers
                    self.items += len(batch.items)  # pyright: ignore[reportAttributeAccessIssue]
                    self.weight += batch.weight  # pyright: ignore[reportAttributeAccessIssue]
                else:
                    self.items += len(batch)
                for take in takers:
                    try:
                        result: Any = take(batch)
                        if result is not None:
                            self._refuse(result)
                    except Exception as error:  # noqa: BLE001 - a sink's fault is never another's
                        self._detach(take.__self__, error)  # type: ignore[attr-defined]
                if not self._queue:
                    break
                batch = self._queue.popleft()
        finally:
            self._busy = False

    def _refuse(self, result: Any) -> None:
        if inspect.isawaitable(result):
            close = getattr(result, "close", None)
            if close is not None:
                close()
            raise TypeError("on_next returned an awaitable, which nobody awaits; make it a plain function")

    def _detach(self, sink: Sink, cause: Exception) -> None:
        error = SinkError(f"sink {sink.name!r} raised {type(cause).__name__}: {cause}", sink=sink.name)
        error.__cause__ = cause
        self.errors.setdefault(sink.name, error)
        self._sinks = [other for other in self._sinks if other is not sink]
        self._attach()
        _log.warning("sink %s detached: %s", sink.name, cause)
        if self._fatal and self.fatal_error is None:
            self.fatal_error = error
        self._queue.append(Batch((StreamNote(kind="sink_detached", message=str(error)),)))

    def on_error(self, error: Exception) -> None:
        """The stream broke: sinks learn it; an abort is a completion (it was wanted)."""
        if self.done:
            return
        self.done = True
        self.error = error
        for sink in self._sinks:
            try:
                if isinstance(error, AbortedError):
                    sink.on_completed()
                else:
                    sink.on_error(error)
            except Exception as cause:  # noqa: BLE001 - a sink's fault is never another's
                self._detach(sink, cause)

    def on_completed(self) -> None:
        """The stream completed."""
        if self.done:
            return
        self.done = True
        for sink in list(self._sinks):
            try:
                sink.on_completed()
            except Exception as cause:  # noqa: BLE001 - a sink's fault is never another's
                self._detach(sink, cause)

    def close(self) -> None:
        """Deliver nothing more (the run was disposed)."""
        self.done = True
