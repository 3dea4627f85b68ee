"""The metrics sink: takes every batch at once and loses nothing (WIRE.md §9, DESIGN.md §5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turnstream.messages.events import ContentBlockDelta, UnknownDelta
from turnstream.operators.batch import Batch, StreamKey
from turnstream.operators.whole import AnswerItems, WholeAnswer
from turnstream.sinks.base import Policy, SinkBase
from turnstream.sinks.metrics.events import EVENT_HANDLERS
from turnstream.sinks.metrics.reducer import OTHER_HANDLERS, Reducer
from turnstream.sinks.metrics.rows import row
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
        self._traffic = self._reducer.traffic
        self._run_error: str | None = None

    def on_next(self, batch: Sequence[Any], /) -> None:
        """Take one batch. A delta costs one look at its class and one at its delta's, unless a clock waits for it."""
        carrier: Any = batch
        reducer = self._reducer
        traffic = self._traffic
        at: float | None = None
        weight = 0
        if carrier.__class__ is Batch:
            at = carrier.at
            if at is not None and carrier.plain and reducer.ticks(carrier, at):
                return
            items: Sequence[Any] = carrier.items
            weight = carrier.weight
            traffic.bytes += weight
            stream = reducer.stream if carrier.key is reducer.key else reducer.switch(carrier.key)
            if at is None:
                if carrier.plain:
                    if stream.answer is not None:
                        # Known deltas to an open block, and no clock that waits for one: only the sums change.
                        traffic.events += len(items)
                        return
                elif items.__class__ is AnswerItems:
                    whole: WholeAnswer = items.whole  # pyright: ignore[reportAttributeAccessIssue]
                    if reducer.take_whole(whole):
                        traffic.events += len(items) - len(whole.messages)
                        return
        else:
            items = batch
            stream = reducer.stream if reducer.key is None else reducer.switch(None)
        traffic.events += len(items)
        if at is not None:
            self._timed(items, at, weight)
            return
        handler: Callable[[Reducer, Any, float | None], None] | None
        for item in items:
            cls = type(item)
            if cls is ContentBlockDelta:
                if item.delta.__class__ is UnknownDelta or stream.answer is None:
                    reducer.on_delta(item.delta, None)
                continue
            handler = EVENT_HANDLERS.get(cls)
            if handler is None:
                traffic.events -= 1
                handler = OTHER_HANDLERS.get(cls)
                if handler is None:
                    continue
            handler(reducer, item, None)

    def _timed(self, items: Sequence[Any], at: float, weight: int) -> None:
        """The same with a time: deltas are looked into only while that can change a clock in this batch."""
        reducer = self._reducer
        reducer.arrived(at, weight)
        look = True
        handler: Callable[[Reducer, Any, float | None], None] | None
        for item in items:
            cls = type(item)
            if cls is ContentBlockDelta:
                if look or item.delta.__class__ is UnknownDelta:
                    look = reducer.on_delta(item.delta, at)
                continue
            look = True  # every other item may start a clock
            handler = EVENT_HANDLERS.get(cls)
            if handler is None:
                self._traffic.events -= 1
                handler = OTHER_HANDLERS.get(cls)
                if handler is None:
                    continue
            handler(reducer, item, at)

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

        It may be asked for at any time. Two unpaced replays give equal reports.
        """
        reducer = self._reducer
        reducer.settle_all()  # in whole batches a message waits only if the run broke there or no events come
        totals = Totals()
        totals.merge(reducer.folded)
        gaps = reducer.gaps.copy()
        rows: list[dict[str, Any]] = []
        for answer in reducer.window:
            answer.read_again()
            totals.add(answer)
            open_gaps = answer.clocks.open_gaps() if answer.clocks is not None else None
            if open_gaps is not None:
                gaps.merge(open_gaps)
            rows.append(row(answer))
        totals.settle()
        return {
            "schema_version": SCHEMA_VERSION,
            "incomplete": bool(totals.incomplete_answers) or self._run_error is not None,
            "run_error": self._run_error,
            "answers": rows,
            "answers_left_out": reducer.window.folded,
            "totals": {
                **totals.report(),
                **self._traffic.report(),
                "tool_results": reducer.tools.results.report(),
                "tool_errors": reducer.tools.errors.report(),
                "tool_durations": reducer.tools.durations(),
                "batch_gaps": gaps.report(),
            },
        }

    def statistics(self) -> Mapping[str, Any]:
        """Counters of the sink itself."""
        reducer = self._reducer
        reducer.settle_all()
        return {
            "events": self._traffic.events,
            "answers_held": len(reducer.window),
            "answers_left_out": reducer.window.folded,
            "streams_held": reducer.streams_held,
        }
