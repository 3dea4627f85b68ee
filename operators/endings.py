"""How answers end for ``accumulate``: well, badly, or with the stream (WIRE.md §1, attempts and ends)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnstream.messages.errors import AbortedError, ProtocolError
from turnstream.messages.events import ErrorEvent, MessageStop
from turnstream.messages.factories import MessageFactory
from turnstream.messages.types import QueryItem, ResponseFailed, StreamNote
from turnstream.operators.answer import Answer
from turnstream.operators.emission import Emission, StrictError
from turnstream.operators.failures import api_failure, as_exception, error_object, outcome_of
from turnstream.operators.stage import Fault

__all__ = ["Endings"]


class Endings(Emission):
    """One method for each way in which an answer, or the stream, comes to its end."""

    def _on_message_stop(self, position: int, event: MessageStop) -> None:
        answer = self._answer or self._current(position, "message_stop")
        if answer is None:
            return
        if answer.has_open:
            self._finish_open(position, answer)
        failed: ResponseFailed | None = None
        if not answer.started or not (answer.blocks_finished or answer.stop_reason is not None):
            failed = answer.incomplete(
                "the answer has no message_start" if not answer.started else "the answer holds nothing",
                *self._place(position),
            )
        elif answer.lacks_tool_block():
            failed = answer.contradiction(*self._place(position))
        unfinished = answer.unfinished_tools() if answer.has_open else None
        leftovers = answer.leftovers() if answer.refused or answer.homeless else None
        if unfinished or leftovers:
            carrier = self._carrier(answer, [])
            carrier.unfinished_tool_inputs = unfinished or None
            carrier.unapplied_deltas = leftovers or None
            self._insert(position, [carrier])
        elif failed is None and not answer.messages:
            self._insert(position, [self._carrier(answer, [])])
        if failed is not None:
            self._fault_if_strict(failed)
            self._insert(position, [failed], after=True)
        self._end()

    def _finish_open(self, position: int, answer: Answer) -> None:
        for block in answer.open_blocks():
            if block.is_tool:
                continue
            if block.takes is not None and block.is_empty():
                self._note(position, "empty_open_block_dropped", f"block {block.index} was never stopped and is empty")
                continue
            self._note(position, "finished_by_message_stop", f"block {block.index} was never stopped")
            self._insert(position, [self._finish(block)])

    def _on_error_event(self, position: int, event: ErrorEvent) -> None:
        answer = self._answer
        if answer is None and self._ended:
            self._note(position, "event_after_end", "error after the answer's end and before a start")
            return
        if answer is None:
            answer = self._begin({}, started=False)
        number, offset = self._place(position)
        failed = api_failure(event, answer.kept(), number, offset)
        partial = self._partial(answer)
        if partial is not None:
            failed.kept = answer.kept(partial)
        self._insert(position, [*([partial] if partial is not None else ()), failed], after=True)
        self._end()
        if self._strict:
            raise StrictError(as_exception(failed))

    def _end(self) -> None:
        self._answer = None
        self._ended = True
        self._heat(None)

    def _end_without_stop(self, position: int, *, strict: bool) -> list[Any]:
        """All blocks stopped and a stop_reason: complete although message_stop is missing."""
        answer = self._answer
        assert answer is not None
        number, offset = self._place(position)
        items: list[Any] = []
        leftovers = answer.leftovers() if answer.refused or answer.homeless else None
        if leftovers or not answer.messages:
            carrier = self._carrier(answer, [])
            carrier.unapplied_deltas = leftovers or None
            items.append(carrier)
        failed = answer.contradiction(number, offset) if answer.lacks_tool_block() else None
        items.append(
            StreamNote(
                kind="no_message_stop",
                message="the answer is complete, but its message_stop is missing",
                event_number=number,
                byte_offset=offset,
            )
        )
        if failed is not None:
            items[-1] = failed
        self._end()
        if strict:
            raise StrictError(
                as_exception(failed)
                if failed is not None
                else ProtocolError("message_stop is missing", kind="no_message_stop", event_number=number)
            )
        return items

    def _close(self, error: Exception | None, position: int) -> list[Any]:
        """The stream ends (or a new request starts) while an answer may be open."""
        answer = self._answer
        if answer is None:
            return []
        if answer.may_end():
            whole = self._end_without_stop(position, strict=self._strict and error is None)
            return [*whole, *self._repair(answer)] if isinstance(error, AbortedError) else whole
        number, offset = self._place(position)
        partial = self._partial(answer)
        why = "the stream ended before message_stop" if answer.started else "the answer has no message_start"
        failed = answer.incomplete(why, number, offset, partial=partial)
        if error is not None:
            failed.error = error_object(error)
            failed.outcome = outcome_of(error, answer.blocks_finished)
        items: list[Any] = [partial] if partial is not None else []
        items.append(failed)
        if isinstance(error, AbortedError):
            items += self._repair(answer)
        self._end()
        if self._strict and error is None:
            raise StrictError(as_exception(failed))
        return items

    def _repair(self, answer: Answer) -> list[Any]:
        """An abort while the answer streams: every tool_use gets a result, then the interruption."""
        make = MessageFactory(self._ids, self._clock)
        return [*make.missing_results(answer.messages), make.interruption()]

    def flush(self) -> Sequence[QueryItem | Fault]:
        """The stream completed."""
        return self._finale(None)

    def fail(self, error: Exception, /) -> Sequence[QueryItem | Fault]:
        """The stream broke: the open answer failed with ``error``."""
        return self._finale(error)

    def _finale(self, error: Exception | None) -> list[Any]:
        self._batch = ()
        try:
            if self._answer is not None:
                return self._close(error, -1)
            if self._ended or (self._others and not self._requested):
                return []
            failed = self._nothing(error)
            if failed is None:
                return []
            if self._strict and error is None:
                return [failed, Fault(as_exception(failed))]
            self._ended = True
            return [failed]
        except StrictError as strict:
            return [*self._assembled(0), Fault(strict.error)]

    def _nothing(self, error: Exception | None) -> ResponseFailed | None:
        """No answer at all: say which kind of nothing."""
        if isinstance(error, AbortedError):
            return None
        if error is not None:
            return ResponseFailed(error=error_object(error), outcome=outcome_of(error, 0))
        if self._known:
            kind, outcome, text = "incomplete_stream", "incomplete(0)", "the stream holds no answer"
        elif self._anything:
            kind, outcome, text = "not_a_stream", "not_a_stream", "what came is no Anthropic event stream"
        else:
            kind, outcome, text = "empty_stream", "empty", "the stream holds no event"
        number, offset = self._place(-1) if self.seen else (None, None)
        return ResponseFailed(
            error={"type": kind, "message": text, "retryable": kind != "not_a_stream"},
            outcome=outcome,
            event_number=number,
            byte_offset=offset,
        )
