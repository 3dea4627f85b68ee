"""What each stream event changes: the rules of WIRE.md §1 as far as numbers are concerned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from turnstream.messages import events as e
from turnstream.sinks.metrics.answer import Answer
from turnstream.sinks.metrics.state import State
from turnstream.sinks.metrics.traffic import KNOWN_BLOCKS, error_type, is_opaque_block
from turnstream.sinks.metrics.usage import merge_usage

__all__ = ["EVENT_HANDLERS", "EventReducer"]


class EventReducer(State):
    """One method for each kind of stream event, called with the event and its time."""

    def on_delta(self, delta: Any, at: float | None) -> bool:
        """A delta that has to be looked into; returns whether the next one has to be, too."""
        answer = self.stream.answer or self.current(at)
        if delta.__class__ is e.UnknownDelta:
            self.traffic.opaque_deltas.add(delta.type)
            if answer is not None:
                answer.lacked().opaque(delta.type)
            return at is not None
        if answer is None or at is None:
            return False
        return (answer.clocks or answer.timing).delta(delta, at)

    def _message_start(self, event: e.MessageStart, at: float | None) -> None:
        stream = self.stream
        if at is not None:
            stream.event(at)
        message = event.message if isinstance(event.message, dict) else {}
        said = message.get("id")
        wire_id = said if isinstance(said, str) and said else None
        answer = stream.answer
        if answer is not None and not answer.tombstones and not answer.block_opened:
            # The rule of accumulate: an id that is no text is another answer's, one that is missing isn't.
            if not said or wire_id == answer.message_id is not None:
                merge_usage(answer.usage, message.get("usage"))
                return
        # What a start holds is emitted before it: the messages that wait are its own.
        waiting, stream.waiting = stream.waiting, []
        if answer is not None:
            self.close(None, at, superseded=True)
        whole = _holds_content(message.get("content"))
        if waiting and not whole:
            stream.waiting = waiting
            self.settle(stream)
            waiting = []
        loose = stream.loose
        if loose is not None:
            stream.set_loose(None)
        if (
            whole
            and not waiting
            and loose is not None
            and not loose.streamed
            and (wire_id == loose.message_id if wire_id is not None else loose.synthesized)
        ):
            # The same where messages have no index: a recording of items.
            if wire_id is None:
                self.window.unname(loose)
            answer = loose
            answer.streamed = answer.open = True
            answer.clocks = self.clocks(at)
            self.open(answer, known=True)
        else:
            answer = self.open(Answer(wire_id, True, self.clocks(at)))
        if whole:
            answer.whole = answer.block_opened = True
            stream.waiting = waiting
            self.claim(stream, answer, whole=True)
        answer.started = True
        answer.read(message)

    def _block_start(self, event: e.ContentBlockStart, at: float | None) -> None:
        block = event.content_block
        kind = block.get("type")
        if not isinstance(kind, str) or (kind not in KNOWN_BLOCKS and is_opaque_block(kind)):
            self.traffic.opaque_blocks.add(kind)
        if at is not None:
            self.stream.event(at)
        answer = self.stream.answer or self.current(at)
        if answer is not None:
            answer.block_opened = True
            if at is not None:
                (answer.clocks or answer.timing).block_starts(block, at)

    def _block_stop(self, event: e.ContentBlockStop, at: float | None) -> None:
        stream = self.stream
        answer = stream.answer or self.current(at)
        if stream.waiting:
            self.settle(stream)
        if at is not None and answer is not None:
            (answer.clocks or answer.timing).block_stops()

    def _message_delta(self, event: e.MessageDelta, at: float | None) -> None:
        if at is not None:
            self.stream.event(at)
        answer = self.stream.answer or self.current(at)
        if answer is not None:
            delta = event.delta
            if isinstance(delta, dict):
                stop_reason = delta.get("stop_reason")
                if stop_reason is not None:
                    answer.set_stop_reason(stop_reason)
            news = event.usage
            if isinstance(news, dict):
                usage = answer.usage  # as merge_usage, with a look at one key
                for name, value in news.items():
                    if value is not None:
                        usage[name] = value
                        if name == "output_tokens":
                            answer.output_is_final = True
                    elif name not in usage:
                        usage[name] = None

    def _message_stop(self, event: e.MessageStop, at: float | None) -> None:
        if self.stream.answer is not None or self.current(at) is not None:
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


def _holds_content(content: Any) -> bool:
    """Whether a start holds its content already: accumulate makes blocks of objects, and of a text."""
    if isinstance(content, str):
        return bool(content)
    return isinstance(content, list) and any(isinstance(block, dict) for block in content)


# By class, not by instance: a table of bound methods would make every sink a reference cycle.
EVENT_HANDLERS: Final[dict[type, Callable[[EventReducer, Any, float | None], None]]] = {
    e.MessageStart: EventReducer._message_start,
    e.ContentBlockStart: EventReducer._block_start,
    e.ContentBlockStop: EventReducer._block_stop,
    e.MessageDelta: EventReducer._message_delta,
    e.MessageStop: EventReducer._message_stop,
    e.Ping: EventReducer._ping,
    e.ErrorEvent: EventReducer._error_event,
    e.UnknownEvent: EventReducer._unknown_event,
}
"""Of stream events other than deltas."""
