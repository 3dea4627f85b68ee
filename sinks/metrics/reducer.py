"""What messages and process items change: the rules of WIRE.md §1 and §9 as far as numbers are concerned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from turnstream.messages import events as e
from turnstream.messages import types as t
from turnstream.messages.texts import SYNTHETIC_MODEL, is_synthetic
from turnstream.sinks.metrics.answer import Answer
from turnstream.sinks.metrics.events import EVENT_HANDLERS, EventReducer
from turnstream.sinks.metrics.stream import Stream
from turnstream.sinks.metrics.traffic import error_type

__all__ = ["OTHER_HANDLERS", "Reducer"]

# Notes that say: a known delta wasn't applied; their message begins with its type.
_UNAPPLIED: Final = frozenset({"delta_after_stop", "delta_mismatch", "delta_unapplied"})

_WAITING: Final = 10_000
"""How many messages wait at most; a stream without any event must not keep all of its own."""


_NEAR: Final = 100
"""How many answers back a tombstone without a message is looked for: it stands just behind what it takes back."""


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


class Reducer(EventReducer):
    """One method for each kind of item that isn't an event, called with the item and its time."""

    def _assistant(self, item: t.AssistantMessage, at: float | None) -> None:
        message = item.message
        if message.get("model") == SYNTHETIC_MODEL or item.is_api_error_message or item.is_virtual:
            return
        stream = self.stream
        answer = stream.answer
        if item.index is not None:
            self._live(stream, item, at)
            return
        # Behind tombstones come the messages of the next attempt.
        if (
            answer is None
            or answer.tombstones
            or (message.get("id") != answer.message_id and not _belongs(item, answer))
        ):
            self.without_events(stream, item, at)
            return
        if answer.request_id is None and item.request_id is not None:
            self.window.name_request(answer, item.request_id)
        answer.take(item, at, self.tools)

    def _live(self, stream: Stream, item: t.AssistantMessage, at: float | None) -> None:
        """A message that events tell of (those of files have no index).

        Its id may be made up, or the same for two attempts, so its place decides: directly before a start
        it is a block that the start held, else one of the open answer's. It waits for what comes next.
        """
        waiting = stream.waiting
        if stream.answer is None:
            message_id = item.message.get("id")
            found = self.window.find(message_id, item.request_id) if isinstance(message_id, str) else None
            if found is not None and found.knows(item.uuid):
                self.without_events(stream, item, at)  # it came before
                return
        if waiting and (len(waiting) >= _WAITING or waiting[0][0].message.get("id") != item.message.get("id")):
            self.settle(stream)
            waiting = stream.waiting
        waiting.append((item, at))

    def without_events(self, stream: Stream, item: t.AssistantMessage, at: float | None) -> None:
        """A message that isn't part of the open answer."""
        answer = self._loose(stream, item, _text(item.message.get("id")))
        if answer is None:
            return
        known = answer.knows(item.uuid)
        blocks = answer.take(item, at, self.tools)
        if answer.streamed:
            return
        self.count_opaque(blocks)
        if item.unapplied_deltas and not known:
            self._opaque_deltas(answer, item.unapplied_deltas)
        answer.read_message(item)

    def _opaque_deltas(self, answer: Answer, deltas: list[Any]) -> None:
        """Deltas of types nobody knows are opaque, not unapplied; here no event told so, the message alone does."""
        for delta in deltas:
            event: Any = e.event_from_wire({"type": "content_block_delta", "delta": delta})
            if event.delta.__class__ is e.UnknownDelta:
                self.traffic.opaque_deltas.add(event.delta.type)
                answer.lacked().opaque(event.delta.type)

    def _loose(self, stream: Stream, item: t.AssistantMessage, message_id: str | None) -> Answer | None:
        """The answer of a message that isn't part of the open one; None for what isn't the model's."""
        if is_synthetic(item):
            return None
        found = self.window.find(message_id, item.request_id) if message_id is not None else None
        if found is not None and found.superseded and not found.streamed and not found.knows(item.uuid):
            found = None  # the next attempt, with the same id
        if found is None or found.open or (found.streamed and item.index is not None and not found.knows(item.uuid)):
            # Live messages (they have an index, those of files don't) all come before their answer's end:
            # behind it they are another answer's with the same id, whose start holds its whole content.
            found = Answer(message_id, streamed=False)
            found.request_id = item.request_id
            self.window.add(found)
        if not found.streamed:
            stream.set_loose(found)
        return found

    def _user(self, item: t.UserMessage, at: float | None) -> None:
        if self.stream.waiting:
            self.settle(self.stream)
        if self.stream.answer is None:
            self.stream.forget_last()
        content = item.message.get("content")
        if isinstance(content, list):
            for block in content:
                if isinstance(block, dict) and block.get("type") == "tool_result":
                    self.tools.answered(block, at)

    def _system(self, item: t.SystemMessage, at: float | None) -> None:
        if self.stream.waiting:
            self.settle(self.stream)
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
        if not isinstance(message, t.AssistantMessage | dict):
            return
        if self.stream.waiting:
            self.settle(self.stream)
        if isinstance(message, dict):
            self._line_taken_back(message.get("uuid"))
            return
        message_id = _text(message.message.get("id"))
        answer = self.stream.answer
        if answer is not None and (answer.knows(message.uuid) or _belongs(message, answer)):
            answer.tombstones += 1
            return
        found = self.window.latest(message_id) if message_id is not None else None
        if found is None and self.stream.last is not None and _belongs(message, self.stream.last):
            found = self.stream.last
        if found is not None:
            found.tombstones += 1
            if not found.open and found.word not in ("complete", None):
                found.superseded = True

    def _line_taken_back(self, uuid: Any) -> None:
        """A tombstone that names a uuid only, as transcripts hold it: an answer of which no line is left was replaced."""
        if not isinstance(uuid, str) or not uuid:
            return
        for answer in self.window.newest(_NEAR):
            if answer.knows(uuid):
                answer.tombstones += 1
                if not answer.streamed and answer.word != "complete" and answer.tombstones >= answer.taken:
                    answer.superseded = True
                return

    # -- process items -----------------------------------------------------------------------------------

    def _response_failed(self, item: t.ResponseFailed, at: float | None) -> None:
        stream = self.stream
        if stream.waiting:
            self.settle(stream)
        kind = error_type(item.error)
        answer = stream.answer
        if answer is not None:
            self.close(item.outcome, at)
        elif stream.last is not None and stream.last.may_fail_after_stop(item.outcome):
            answer = stream.last
            answer.outcome = item.outcome
        else:
            # No answer at all: empty, not a stream, or a transport that broke before the first event.
            answer = self.open(Answer(None, streamed=True, clocks=self.clocks(at)))
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
                answer.block_opened = True  # so that the next start is another attempt's
                answer.timing.block_unannounced()
        elif item.kind in _UNAPPLIED:
            answer = self.current(at)
            if answer is not None:
                answer.lacked().noted(item.message.partition(" ")[0])

    def _request_start(self, item: t.RequestStart, at: float | None) -> None:
        stream = self.stream
        if stream.waiting:
            self.settle(stream)
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
        handler = EVENT_HANDLERS.get(event.__class__)
        if handler is not None:
            handler(self, event, at)
        elif isinstance(event, e.ContentBlockDelta):
            self.on_delta(event.delta, at)
        else:
            return
        self.traffic.events += 1


def _nameless(item: t.AssistantMessage) -> bool:
    """Whether a message is of an answer to which the API gave no id; its made-up envelope tells."""
    return bool(item.synthesized_envelope) or not isinstance(item.message.get("id"), str)


def _belongs(item: t.AssistantMessage, answer: Answer) -> bool:
    """Whether a message is one of this answer's."""
    return _nameless(item) if answer.message_id is None else item.message.get("id") == answer.message_id


OTHER_HANDLERS: Final[dict[type, Callable[[Reducer, Any, float | None], None]]] = {
    t.AssistantMessage: Reducer._assistant,
    t.UserMessage: Reducer._user,
    t.SystemMessage: Reducer._system,
    t.Tombstone: Reducer._tombstone,
    t.ResponseFailed: Reducer._response_failed,
    t.StreamNote: Reducer._note,
    t.RequestStart: Reducer._request_start,
    t.StreamEventMessage: Reducer._enveloped,
}
"""Of everything else that counts."""
