"""The metrics sink: takes every batch at once and loses nothing (WIRE.md §9, DESIGN.md §5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turnstream.messages.events import ContentBlockDelta, UnknownDelta
from turnstream.operators.batch import Batch, StreamKey
from turnstream.sinks.base import Policy, SinkBase
from turnstream.sinks.metrics.reducer import Reducer
from turnstream.sinks.metrics.totals import Totals

__all__ = ["SCHEMA_VERSION", "MetricsSink"]

SCHEMA_VERSION = 1


class MetricsSink(SinkBase):
    """One reducer for live streams and replays.

    It wants what ``accumulate`` emits, settled or not, and takes transcripts too: messages without
    events count by (message id, request id), the last one wins (FAULTS.md 28, 29). Streams of several
    keys may be mixed. Memory is bounded: the last ``keep_answers`` answers (and those still open), one
    message each of the open ones, counters of at most 1,000 words.

    Args:
        clock_start: when the first request went out, monotonic seconds of the same clock as
            ``Batch.at``. A ``RequestStart`` item says it for the answers after it; without either the
            times that count from the request are null.
        keep_answers: how many answers are listed in the report (≥ 1). Totals are exact beyond them; a
            message that comes again for an answer older than that is counted as another answer.
    """

    name = "metrics"
    policy: Policy = "direct"

    def __init__(self, *, clock_start: float | None = None, keep_answers: int = 1_000) -> None:
        if keep_answers < 1:
            raise ValueError(f"keep_answers must be at least 1, not {keep_answers}")
        self._reducer = Reducer(clock_start, keep_answers)
        self._run_error: str | None = None

    def on_next(self, batch: Sequence[Any], /) -> None:
        """Take one batch. A delta costs one look at its class and one at its delta's, unless a clock waits for it."""
        reducer = self._reducer
        items: Sequence[Any] = batch
        at: float | None = None
        key: StreamKey | None = None
        weight = 0
        if isinstance(batch, Batch):
            items, at, key, weight = batch.items, batch.at, batch.key, batch.weight
            reducer.traffic.bytes += weight
        stream = reducer.stream if key is reducer.key else reducer.switch(key)
        timed = at is not None
        if at is not None:
            reducer.arrived(at, weight)
        others = 0
        # Deltas are looked into only while that can change something: a time is still to be set in this
        # batch, or no answer is open. Every other item may change that.
        look = timed or stream.answer is None
        handler: Callable[[Any, float | None], None] | None
        for item in items:
            cls = item.__class__
            if cls is ContentBlockDelta:
                delta = item.delta
                if look or delta.__class__ is UnknownDelta:
                    look = reducer.on_delta(delta, at)
                continue
            handler = reducer.on_event.get(cls)
            if handler is None:
                others += 1
                handler = reducer.on_other.get(cls)
                if handler is None:
                    continue
            handler(item, at)
            look = timed or stream.answer is None
        reducer.traffic.events += len(items) - others

    def on_error(self, error: Exception, /) -> None:
        """The run broke: the report says so and stays valid."""
        self._run_error = type(error).__name__

    def first_byte(self, at: float, key: StreamKey | None = None) -> None:
        """The response began to come at ``at`` (monotonic seconds).

        Only the source sees chunks that cause no item; without this call the first chunk that caused
        one counts as the first byte.
        """
        self._reducer.switch(key).first_byte = at

    def report(self) -> dict[str, Any]:
        """What is known so far: JSON-able, snake_case, null where there is no value; :data:`METRICS_SCHEMA`.

        Changes nothing, so it may be asked for at any time. Two unpaced replays give equal reports.
        """
        reducer = self._reducer
        totals = Totals()
        totals.merge(reducer.folded)
        gaps = reducer.gaps.copy()
        rows: list[dict[str, Any]] = []
        for answer in reducer.window:
            answer.read_again()
            totals.add(answer)
            open_gaps = answer.clocks.open_gaps()
            if open_gaps is not None:
                gaps.merge(open_gaps)
            rows.append(answer.row())
        return {
            "schema_version": SCHEMA_VERSION,
            "incomplete": bool(totals.incomplete_answers) or self._run_error is not None,
            "run_error": self._run_error,
            "answers": rows,
            "answers_left_out": reducer.window.folded,
            "totals": {
                **totals.report(),
                **reducer.traffic.report(),
                "tool_results": reducer.tools.results.report(),
                "tool_errors": reducer.tools.errors.report(),
                "tool_durations": reducer.tools.durations(),
                "batch_gaps": gaps.report(),
            },
        }

    def statistics(self) -> Mapping[str, Any]:
        """Counters of the sink itself."""
        reducer = self._reducer
        return {
            "events": reducer.traffic.events,
            "answers_held": len(reducer.window),
            "answers_left_out": reducer.window.folded,
            "streams_held": reducer.streams_held,
        }
