"""What each item changes: the rules of WIRE.md §1 and §9 as far as numbers are concerned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from turnstream.messages import events as e
from turnstream.messages import types as t
from turnstream.messages.texts import SYNTHETIC_MODEL, is_synthetic
from turnstream.sinks.metrics.answer import Answer
from turnstream.sinks.metrics.clocks import is_tool_block
from turnstream.sinks.metrics.state import State
from turnstream.sinks.metrics.traffic import error_type, is_opaque_block
from turnstream.sinks.metrics.usage import merge_usage

__all__ = ["Reducer"]

# Notes that say: a known delta wasn't applied; their message begins with its type.
_UNAPPLIED: Final = frozenset({"delta_after_stop", "delta_mismatch", "delta_unapplied"})
_Handler = Callable[[Any, "float | None"], None]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


class Reducer(State):
    """One method for each kind of item, called with the item and its time.

    Attributes:
        on_event: handlers of stream events other than deltas.
        on_other: handlers of everything else that counts.
    """

    def __init__(self, clock_start: float | None, keep_answers: int) -> None:
        super().__init__(clock_start, keep_answers)
        self.on_event: dict[type, _Handler] = {
            e.MessageStart: self._message_start,
            e.ContentBlockStart: self._block_start,
            e.ContentBlockStop: self._block_stop,
            e.MessageDelta: self._message_delta,
            e.MessageStop: self._message_stop,
            e.Ping: self._ping,
            e.ErrorEvent: self._error_event,
            e.UnknownEvent: self._unknown_event,
        }
        self.on_other: dict[type, _Handler] = {
            t.AssistantMessage: self._assistant,
            t.UserMessage: self._user,
            t.SystemMessage: self._system,
            t.Tombstone: self._tombstone,
            t.ResponseFailed: self._response_failed,
            t.StreamNote: self._note,
            t.RequestStart: self._request_start,
            t.StreamEventMessage: self._enveloped,
        }

    # -- events ------------------------------------------------------------------------------------------

    def on_delta(self, delta: Any, at: float | None) -> bool:
        """A delta that has to be looked into; returns whether the next one has to be, too."""
        answer = self.stream.answer or self.current(at)
        if delta.__class__ is e.UnknownDelta:
            self.traffic.opaque_deltas.add(delta.type)
            if answer is not None:
                answer.unapplied.opaque(delta.type)
            return at is not None
        if answer is None or at is None:
            return False
        return answer.clocks.delta(delta, at)

    def _message_start(self, event: e.MessageStart, at: float | None) -> None:
        stream = self.stream
        if at is not None:
            stream.event(at)
        message = event.message if isinstance(event.message, dict) else {}
        wire_id = _text(message.get("id"))
        answer = stream.answer
        if answer is not None:
            same = wire_id is None or wire_id == answer.message_id
            if same and not answer.tombstones and not answer.block_opened:
                merge_usage(answer.usage, message.get("usage"))
                return
            self.close(None, at, superseded=True)
        content = message.get("content")
        whole = isinstance(content, list) and bool(content)
        loose = stream.loose
        stream.set_loose(None)
        if (
            whole
            and loose is not None
            and not loose.streamed
            and (wire_id == loose.message_id if wire_id is not None else loose.synthesized)
        ):
            # What a start holds is emitted before it: these messages were the answer's.
            if wire_id is None:
                self.window.unname(loose)
            answer = loose
            answer.streamed = answer.open = True
            answer.clocks = self.clocks(at)
            stream.open(answer)
        else:
            answer = self.open(Answer(message_id=wire_id, streamed=True, clocks=self.clocks(at)))
        answer.whole = answer.block_opened = whole
        answer.start(message)

    def _block_start(self, event: e.ContentBlockStart, at: float | None) -> None:
        if at is not None:
            self.stream.event(at)
        block = event.content_block
        if is_opaque_block(block.get("type")):
            self.traffic.opaque_blocks.add(block.get("type"))
        answer = self.stream.answer or self.current(at)
        if answer is not None:
            answer.block_opened = True
            if at is not None:
                answer.clocks.block_starts(block, at)

    def _block_stop(self, event: e.ContentBlockStop, at: float | None) -> None:
        answer = self.stream.answer or self.current(at)
        if answer is not None and at is not None:
            answer.clocks.block_stops()

    def _message_delta(self, event: e.MessageDelta, at: float | None) -> None:
        if at is not None:
            self.stream.event(at)
        answer = self.stream.answer or self.current(at)
        if answer is not None:
            answer.news(event.delta, event.usage)

    def _message_stop(self, event: e.MessageStop, at: float | None) -> None:
        if self.stream.answer or self.current(at):
            self.close("complete", at)

    def _ping(self, event: e.Ping, at: float | None) -> None:
        self.traffic.pings += 1
        if at is not None:
            self.stream.event(at)

    def _error_event(self, event: e.ErrorEvent, at: float | None) -> None:
        kind = error_type(event.error)
        self.traffic.errors.add(kind)
        if at is not None:
            self.stream.event(at)
        answer = self.current(at)
        self.stream.error_counted = True
        if answer is not None:
            answer.error_event = True
            answer.error_type = kind[:128]

    def _unknown_event(self, event: e.UnknownEvent, at: float | None) -> None:
        self.traffic.opaque_events.add(event.type)
        if at is not None:
            self.stream.event(at)

    # -- messages ----------------------------------------------------------------------------------------

    def _assistant(self, item: t.AssistantMessage, at: float | None) -> None:
        message = item.message
        if message.get("model") == SYNTHETIC_MODEL or item.is_api_error_message or item.is_virtual:
            return
        message_id = _text(message.get("id"))
        answer = self.stream.answer
        # Behind tombstones come the messages of the next attempt.
        if answer is None or answer.tombstones or not _belongs(item, message_id, answer):
            answer = self._loose(item, message_id)
            if answer is None:
                return
        elif answer.request_id is None and item.request_id is not None:
            self.window.name_request(answer, item.request_id)
        loose = not answer.streamed
        for block in answer.take(item):
            if is_tool_block(block):
                self.tools.used(block, at)
            elif "tool_use_id" in block:
                self.tools.answered(block, at)
            if loose and is_opaque_block(block.get("type")):
                self.traffic.opaque_blocks.add(block.get("type"))
        if loose:
            answer.read_message(item)

    def _loose(self, item: t.AssistantMessage, message_id: str | None) -> Answer | None:
        """The answer of a message that isn't part of the open one; None for what isn't the model's."""
        if is_synthetic(item):
            return None
        found = self.window.find(message_id, item.request_id) if message_id is not None else None
        if found is None or found.open:
            found = Answer(message_id=message_id, streamed=False)
            found.request_id = item.request_id
            self.window.add(found)
        if not found.streamed:
            self.stream.set_loose(found)
        return found

    def _user(self, item: t.UserMessage, at: float | None) -> None:
        if self.stream.answer is None:
            self.stream.forget_last()
        content = item.message.get("content")
        if isinstance(content, list):
            for block in content:
                if isinstance(block, dict) and block.get("type") == "tool_result":
                    self.tools.answered(block, at)

    def _system(self, item: t.SystemMessage, at: float | None) -> None:
        if item.subtype == "api_error":
            self.traffic.retry(item)
            if not self.stream.error_counted:
                self.traffic.errors.add(error_type(item.fields.get("error")))
            self.supersede_last(at)
            self.stream.error_counted = False
        elif item.subtype == "informational" and item.fields.get("fallback"):
            self.traffic.fallbacks += 1
            self.supersede_last(at)

    def _tombstone(self, item: t.Tombstone, at: float | None) -> None:
        self.traffic.tombstones += 1
        message = item.message
        if not isinstance(message, t.AssistantMessage):
            return
        message_id = _text(message.message.get("id"))
        answer = self.stream.answer
        if answer is not None and _belongs(message, message_id, answer):
            answer.tombstones += 1
            return
        found = self.window.latest(message_id) if message_id is not None else None
        if found is None and self.stream.last is not None and _belongs(message, message_id, self.stream.last):
            found = self.stream.last
        if found is not None:
            found.tombstones += 1
            if not found.open and found.word not in ("complete", None):
                found.superseded = True

    # -- process items -----------------------------------------------------------------------------------

    def _response_failed(self, item: t.ResponseFailed, at: float | None) -> None:
        stream = self.stream
        kind = error_type(item.error)
        answer = stream.answer
        if answer is not None:
            self.close(item.outcome, at)
        elif stream.last is not None and stream.last.may_fail_after_stop(item.outcome):
            answer = stream.last
            answer.outcome = item.outcome
        else:
            # No answer at all: empty, not a stream, or a transport that broke before the first event.
            answer = self.open(Answer(streamed=True, clocks=self.clocks(at)))
            self.close(item.outcome, at)
        if not answer.error_event:
            self.traffic.errors.add(kind)
        answer.error_type = kind[:128]
        stream.error_counted = True

    def _note(self, item: t.StreamNote, at: float | None) -> None:
        self.traffic.notes.add(item.kind)
        if item.kind == "no_message_stop":
            self.close("complete", at)
        elif item.kind == "synthesized_block":
            answer = self.current(at)
            if answer is not None:
                answer.clocks.block_unannounced()
        elif item.kind in _UNAPPLIED:
            answer = self.current(at)
            if answer is not None:
                answer.unapplied.noted(item.message.partition(" ")[0])

    def _request_start(self, item: t.RequestStart, at: float | None) -> None:
        stream = self.stream
        if item.attempt > 1:
            self.supersede_last(at)
        elif stream.answer is not None:
            answer = stream.answer
            self.close(f"incomplete({answer.finished_blocks})", at, superseded=bool(answer.tombstones))
        stream.forget_last()
        stream.set_loose(None)
        stream.new_request(at)

    def _enveloped(self, item: t.StreamEventMessage, at: float | None) -> None:
        """A ``stream_event`` envelope, as recordings of items hold it: the event counts."""
        event = item.event
        if isinstance(event, dict):
            try:
                event = e.event_from_wire(event)
            except ValueError:
                return
        handler = self.on_event.get(event.__class__)
        if handler is not None:
            handler(event, at)
        elif isinstance(event, e.ContentBlockDelta):
            self.on_delta(event.delta, at)
        else:
            return
        self.traffic.events += 1


def _belongs(item: t.AssistantMessage, message_id: str | None, answer: Answer) -> bool:
    """Whether a message is one of this answer's; where the API sent no id its made-up envelope tells."""
    if answer.message_id is None:
        return message_id is None or bool(item.synthesized_envelope)
    return message_id == answer.message_id
