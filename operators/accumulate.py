"""``accumulate``: stream events become messages, one finished content block each (WIRE.md §1).

Every event is emitted too, in order, after what it caused. The rules of attempts and ends are in
:mod:`turnstream.operators.answer`; here is the walk over a batch, which costs nothing but the append
for a run of deltas to one block.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from turnstream.messages.errors import AbortedError, ProtocolError, TurnstreamError
from turnstream.messages.events import (
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    ErrorEvent,
    InputJsonDelta,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    UnknownDelta,
    UnknownEvent,
    delta_to_wire,
    delta_type,
)
from turnstream.messages.factories import MessageFactory
from turnstream.messages.ids import Clock, IdSource, format_timestamp, random_ids, system_clock
from turnstream.messages.types import (
    AssistantMessage,
    QueryItem,
    RequestStart,
    ResponseFailed,
    StreamNote,
    Tombstone,
)
from turnstream.operators.answer import Answer
from turnstream.operators.blocks import OpenBlock
from turnstream.operators.events import Parsed
from turnstream.operators.failures import api_failure, as_exception, error_object, outcome_of
from turnstream.operators.stage import Fault, Operator, lift

__all__ = ["Accumulator", "NormalizeBlock", "accumulate"]

NormalizeBlock = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes a finished content block, returns the one to emit; run once, at its stop."""

_NO_INDEX: Final = -1


def _no_block(text: str) -> None:
    """Stands where no block is open; never called."""


class _StrictError(Exception):
    """Carries a strict mode error out of the walk."""

    def __init__(self, error: TurnstreamError) -> None:
        super().__init__()
        self.error = error


class Accumulator:
    """The stage. State is per use: never share one between streams.

    Args:
        ids: makes message uuids; scope ``("assistant", answer number, message id, block index)``.
        clock: wall-clock seconds.
        normalize_block: run once on each finished block before it is emitted.
        strict: each lenient step is a fault instead of a note.
        request_id: put on every message, where the transport knows it.
    """

    def __init__(
        self,
        *,
        ids: IdSource | None = None,
        clock: Clock = system_clock,
        normalize_block: NormalizeBlock | None = None,
        strict: bool = False,
        request_id: str | None = None,
    ) -> None:
        self.plain = False  # whether the last batch held nothing but deltas to the open block
        self._ids: IdSource = ids if ids is not None else random_ids()
        self._clock = clock
        self._normalize = normalize_block
        self._strict = strict
        self._request_id = request_id
        self._answer: Answer | None = None
        self._answers = 0
        self._ended = False  # an answer ended and no new one began: what comes now is stray
        self._known = False  # any Anthropic event was seen
        self._anything = False  # any event, also unknown or unreadable
        self._others = False  # anything that isn't an event: a conversation, not (only) a stream
        self._requested = False  # a request went out: an answer is due
        self._seen = 0  # items fed before this batch
        self._last: Parsed | None = None  # the last batch that knows places: where the end is
        # The block that deltas go to, unpacked for the walk.
        self._hot_index = _NO_INDEX
        self._hot_class: type | None = None
        unused: list[str] = []
        self._hot_append: Callable[[str], None] = unused.append
        # This batch: (position, items consumed there, what stands instead)
        self._edits: list[tuple[int, int, list[Any]]] = []
        self._batch: Sequence[Any] = ()

    # -- the walk ------------------------------------------------------------------------------------

    def feed(self, batch: Sequence[QueryItem], /) -> Sequence[QueryItem | Fault]:
        """Take the events of one batch; other items pass."""
        self._batch = batch
        if batch.__class__ is Parsed:
            self._last = batch  # pyright: ignore[reportAttributeAccessIssue]
            batch = batch.items  # pyright: ignore[reportAttributeAccessIssue]
        self.plain = True
        delta: Any
        if len(batch) == 1:
            # What a live stream has most, one delta to the open block: the loop's setting up costs more.
            only: Any = batch[0]
            if only.__class__ is ContentBlockDelta:
                delta = only.delta
                cls = delta.__class__
                if cls is self._hot_class and only.index == self._hot_index:
                    self._seen += 1
                    if cls is TextDelta:
                        self._hot_append(delta.text)
                    elif cls is InputJsonDelta:
                        self._hot_append(delta.partial_json)
                    else:
                        self._hot_append(delta.thinking)
                    return batch
        hot_index = self._hot_index
        hot_class = self._hot_class
        append = self._hot_append
        event: Any
        for position, event in enumerate(batch):
            if event.__class__ is ContentBlockDelta:
                delta = event.delta
                cls = delta.__class__
                if cls is hot_class and event.index == hot_index:
                    if hot_class is TextDelta:
                        append(delta.text)
                    elif hot_class is InputJsonDelta:
                        append(delta.partial_json)
                    else:
                        append(delta.thinking)
                    continue
            try:
                self._handle(position, event)
            except _StrictError as strict:
                return [*self._assembled(position), Fault(strict.error)]
            except Exception as error:  # noqa: BLE001 - a normalize_block's: what came before it isn't lost
                return [*self._assembled(position), Fault(error)]
            hot_index = self._hot_index
            hot_class = self._hot_class
            append = self._hot_append
        self._seen += len(batch)
        if not self._edits:
            return batch
        return self._assembled(len(batch))

    def _assembled(self, end: int) -> list[Any]:
        """The batch up to ``end`` with the edits worked in."""
        out: list[Any] = []
        start = 0
        batch = self._batch
        if isinstance(batch, Parsed):
            batch = batch.items
        for position, consumed, items in self._edits:
            out += batch[start:position]
            out += items
            start = position + consumed
        out += batch[start:end]
        self._edits = []
        return out

    def _insert(self, position: int, items: Sequence[Any], *, after: bool = False) -> None:
        """Emit ``items`` before (or after) the event at ``position``."""
        if items:
            self._edits.append((position + 1 if after else position, 0, list(items)))

    def _swap(self, position: int, event: StreamEvent) -> None:
        """Emit ``event`` instead of the one at ``position`` (a copy with its index filled in); after its notes."""
        self._edits.append((position, 1, [event]))

    def _heat(self, block: OpenBlock | None) -> None:
        """Make ``block`` the one whose deltas take the short way."""
        if block is not None and block.open and block.takes is not None and block.wire_index == block.index:
            self._hot_index = block.index
            self._hot_class = block.takes
            self._hot_append = block.parts.append
        else:
            self._hot_index = _NO_INDEX
            self._hot_class = None

    def _place(self, position: int) -> tuple[int | None, int | None]:
        """Event number and byte offset of the item at ``position``, as far as they are known."""
        if isinstance(self._batch, Parsed) and position < len(self._batch):
            return self._batch.locate(position)
        if position < 0 and self._last:
            # At the end: the last event that came.
            return self._last.locate(len(self._last) - 1)
        return self._seen + position + 1, None

    def _note(self, position: int, kind: str, message: str) -> None:
        """Report a lenient step; in strict mode it is the end."""
        number, offset = self._place(position)
        if self._strict:
            raise _StrictError(ProtocolError(message, kind=kind, event_number=number, byte_offset=offset))
        self._insert(position, [StreamNote(kind=kind, message=message, event_number=number, byte_offset=offset)])

    def _handle(self, position: int, event: Any) -> None:
        self.plain = False
        handler = _HANDLERS.get(event.__class__)
        if handler is not None:
            self._known = self._anything = True
            handler(self, position, event)
        else:
            self._on_other(position, event)

    def _on_ping(self, position: int, event: Ping) -> None:
        """A ping opens nothing and ends nothing."""

    def _on_other(self, position: int, item: Any) -> None:
        cls = item.__class__
        if cls is UnknownEvent or cls is StreamNote:
            self._anything = self._anything or cls is UnknownEvent or item.kind in _UNREADABLE
        elif cls is RequestStart:
            self._insert(position, self._close(None, position))
            self._ended = False
            self._known = self._anything = False
            self._requested = True
        else:
            self._others = True

    # -- message_start -------------------------------------------------------------------------------

    def _on_message_start(self, position: int, event: MessageStart) -> None:
        message = event.message if isinstance(event.message, dict) else {}
        answer = self._answer
        if answer is not None:
            if answer.is_over():
                self._insert(position, self._close(None, position))
            elif answer.repeats(message):
                self._note(position, "duplicate_message_start", "the same message_start again; one answer goes on")
                answer.merge_usage(message.get("usage"))
                return
            else:
                self._insert(position, [Tombstone(message=m) for m in answer.messages])
        if not isinstance(event.message, dict):
            self._note(position, "message_start_without_message", "the envelope is made up")
        elif not isinstance(message.get("id"), str) or not message["id"]:
            self._note(position, "message_start_without_id", "the message id is made up")
        self._begin(message, started=True)
        self._hot_class = None
        content = message.get("content")
        if not content:
            return
        if isinstance(content, list):
            self._emit_whole_content(position, content)
        elif isinstance(content, str):
            self._note(position, "content_is_text", "the content is a string; a text block is made of it")
            self._emit_whole_content(position, [{"type": "text", "text": content}], synthesized=True)

    def _emit_whole_content(self, position: int, content: list[Any], *, synthesized: bool = False) -> None:
        """A start that holds its content already: each block is finished (WIRE.md §1, attempts)."""
        answer = self._answer
        assert answer is not None
        for index, value in enumerate(content):
            if isinstance(value, dict):
                block = answer.open_block(OpenBlock(index, value, synthesized=synthesized, wire_index=index))
                self._insert(position, [self._finish(block)])

    def _begin(self, message: dict[str, Any], *, started: bool) -> Answer:
        self._answers += 1
        self._ended = False
        self._answer = answer = Answer(self._answers, message, started=started, ids=self._ids)
        return answer

    def _current(self, position: int, what: str) -> Answer | None:
        """The open answer; a synthesized one before any start; None for what is stray after an end."""
        if self._answer is None:
            if self._ended:
                self._note(position, "event_after_end", f"{what} after the answer's end and before a start")
                return None
            self._note(position, "no_message_start", f"{what} before any message_start; the envelope is made up")
            return self._begin({}, started=False)
        return self._answer

    # -- blocks --------------------------------------------------------------------------------------

    def _on_block_start(self, position: int, event: ContentBlockStart) -> None:
        answer = self._answer or self._current(position, "content_block_start")
        if answer is None:
            return
        index = event.index
        if index is None:
            index = answer.free_index()
            self._note(position, "index_missing", f"content_block_start without index; it takes {index}")
            self._swap(position, msgspec.structs.replace(event, index=index))
        elif index in answer.blocks or index in answer.by_wire_index:
            free = answer.free_index()
            self._note(position, "index_reused", f"index {index} was used before; the new block takes {free}")
            self._swap(position, msgspec.structs.replace(event, index=free))
            block = OpenBlock(free, event.content_block, wire_index=index)
            self._heat(answer.open_block(block))
            return
        block = answer.open_block(OpenBlock(index, event.content_block, wire_index=index))
        if block.takes is not None:
            self._hot_index = index
            self._hot_class = block.takes
            self._hot_append = block.parts.append
        else:
            self._hot_class = None

    def _on_delta(self, position: int, event: ContentBlockDelta) -> None:
        answer = self._answer or self._current(position, "content_block_delta")
        if answer is None:
            return
        delta = event.delta
        block = answer.by_wire_index.get(event.index) if event.index is not None else None
        if block is None:
            self._on_lost_delta(position, event, answer)
        elif not block.open:
            if delta.__class__ is not UnknownDelta:
                self._note(
                    position, "delta_after_stop", f"{delta_type(delta)} to block {block.index}, which was stopped"
                )
            self._refuse(position, event, block)
        elif block.can_take(delta):
            block.apply(delta)
            if block.index != event.index:
                self._swap(position, msgspec.structs.replace(event, index=block.index))
            self._heat(block)
        else:
            if delta.__class__ is not UnknownDelta:
                self._note(
                    position,
                    "delta_mismatch",
                    f"{delta_type(delta)} to block {block.index}, which is of type {block.type}",
                )
            self._refuse(position, event, block)

    def _refuse(self, position: int, event: ContentBlockDelta, block: OpenBlock) -> None:
        """Keep a delta that its block can't take; it passes, under the index the block has now."""
        block.refuse(event.delta)
        if self._answer is not None:
            self._answer.refused = True
        if block.index != event.index:
            self._swap(position, msgspec.structs.replace(event, index=block.index))

    def _on_lost_delta(self, position: int, event: ContentBlockDelta, answer: Answer) -> None:
        """A delta whose index is missing or was never opened."""
        delta = event.delta
        if event.index is None:
            self._note(position, "index_missing", f"{delta_type(delta)} without index")
        else:
            self._note(position, "index_unknown", f"{delta_type(delta)} to block {event.index}, which wasn't opened")
        prose = isinstance(delta, (TextDelta, ThinkingDelta))
        # Only prose may change its address: a fragment of a tool input in the wrong tool would be worse than lost.
        block = answer.latest_open(delta) if prose or event.index is None else None
        if block is None and prose:
            kind = "text" if isinstance(delta, TextDelta) else "thinking"
            index = event.index
            if index is None or answer.knows(index):
                index = answer.free_index()
            wire_index = index if event.index is None else event.index
            opened = OpenBlock(index, {"type": kind, kind: ""}, synthesized=True, wire_index=wire_index)
            block = answer.open_block(opened)
            number, offset = self._place(position)
            note = StreamNote(
                kind="synthesized_block",
                message=f"{delta_type(delta)} without an open block opens {kind} block {index}",
                event_number=number,
                byte_offset=offset,
            )
            self._insert(position, [note])
        if block is None:
            # Without an index it means the block opened last; a foreign index taints no block.
            last = answer.last_opened() if event.index is None else None
            if last is not None:
                last.refuse(delta)
                answer.refused = True
            else:
                answer.homeless.append(delta_to_wire(delta))
            if last is None and delta.__class__ is not UnknownDelta:
                self._note(position, "delta_unapplied", f"{delta_type(delta)} that no block can take")
            return
        block.apply(delta)
        if event.index != block.index:
            self._swap(position, msgspec.structs.replace(event, index=block.index))
        self._heat(block)

    def _on_block_stop(self, position: int, event: ContentBlockStop) -> None:
        answer = self._answer or self._current(position, "content_block_stop")
        if answer is None:
            return
        if event.index is None:
            self._note(position, "index_missing", "content_block_stop without index")
            block = answer.latest_open(None)
        else:
            block = answer.by_wire_index.get(event.index)
        if block is None or not block.open:
            self._note(position, "stop_without_block", f"content_block_stop for block {event.index}, which isn't open")
            return
        self._edits.append((position, 0, [self._finish(block)]))
        if block.index != event.index:
            self._swap(position, msgspec.structs.replace(event, index=block.index))
        self._hot_class = None

    def _finish(self, block: OpenBlock) -> AssistantMessage:
        answer = self._answer
        assert answer is not None
        block.close()
        content = block.block
        if self._normalize is not None:
            # A copy: it may change what it is given, and the raw events share what is nested in a block.
            content = self._normalize(copy.deepcopy(content))
        envelope = answer.template.copy()
        envelope["content"] = [content]
        message = AssistantMessage(
            message=envelope,
            uuid=self._ids("assistant", answer.number, answer.message_id, block.index),
            timestamp=format_timestamp(self._clock()),
            request_id=self._request_id,
            index=block.index,
        )
        if answer.out_of_order(block):
            message.block_index = block.index
        if block.invalid:
            message.invalid_tool_input = True
        if block.unapplied:
            message.unapplied_deltas = block.unapplied
        if block.synthesized:
            message.synthesized_block = True
        if answer.synthesized:
            message.synthesized_envelope = True
        answer.finished(block, message)
        return message

    # -- message_delta, message_stop, error ------------------------------------------------------------

    def _on_message_delta(self, position: int, event: MessageDelta) -> None:
        answer = self._answer or self._current(position, "message_delta")
        if answer is not None:
            answer.merge(event)

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
            raise _StrictError(as_exception(failed))

    def _fault_if_strict(self, failed: ResponseFailed) -> None:
        if self._strict:
            raise _StrictError(as_exception(failed))

    def _carrier(self, answer: Answer, content: list[Any]) -> AssistantMessage:
        """A message that holds no single finished block: an empty answer, or what was left unfinished."""
        message = AssistantMessage(
            message=answer.envelope(content),
            uuid=self._ids("assistant", answer.number, answer.message_id, "rest"),
            timestamp=format_timestamp(self._clock()),
            request_id=self._request_id,
        )
        if answer.synthesized:
            message.synthesized_envelope = True
        answer.messages.append(message)
        return message

    def _partial(self, answer: Answer) -> AssistantMessage | None:
        """What was unfinished when the answer broke off, kept and marked; None if there is nothing."""
        content: list[dict[str, Any]] = []
        synthesized = False
        for block in answer.open_blocks():
            if block.is_tool or (block.takes is not None and block.is_empty()):
                continue
            block.close()
            content.append(block.block)
            synthesized = synthesized or block.synthesized
        unfinished = answer.unfinished_tools()
        leftovers = answer.leftovers()
        if not content and not unfinished and not leftovers:
            return None
        message = self._carrier(answer, content)
        message.is_aborted_mid_stream = True
        message.message["stop_reason"] = None
        message.unfinished_tool_inputs = unfinished or None
        message.unapplied_deltas = leftovers or None
        if synthesized:
            message.synthesized_block = True
        return message

    # -- ends ----------------------------------------------------------------------------------------

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
            raise _StrictError(
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
            raise _StrictError(as_exception(failed))
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
        except _StrictError as strict:
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
        number, offset = self._place(-1) if self._seen else (None, None)
        return ResponseFailed(
            error={"type": kind, "message": text, "retryable": kind != "not_a_stream"},
            outcome=outcome,
            event_number=number,
            byte_offset=offset,
        )


# By class, not by instance: a table of bound methods would make every stage a reference cycle.
_HANDLERS: Final[dict[type, Callable[[Accumulator, int, Any], None]]] = {
    ContentBlockDelta: Accumulator._on_delta,
    ContentBlockStop: Accumulator._on_block_stop,
    ContentBlockStart: Accumulator._on_block_start,
    MessageDelta: Accumulator._on_message_delta,
    MessageStart: Accumulator._on_message_start,
    MessageStop: Accumulator._on_message_stop,
    ErrorEvent: Accumulator._on_error_event,
    Ping: Accumulator._on_ping,
}

# Notes of the layers below that mean: something came, but it couldn't be read as events.
_UNREADABLE: Final = frozenset({"event_error", "not_sse", "event_too_large", "unterminated_event", "unheld_payload"})


def accumulate(
    *,
    ids: IdSource | None = None,
    clock: Clock = system_clock,
    normalize_block: NormalizeBlock | None = None,
    strict: bool = False,
    request_id: str | None = None,
) -> Operator[QueryItem, QueryItem]:
    """Events become messages: each finished block one :class:`AssistantMessage`, at once.

    All messages of an answer share one usage dict, updated in place until the answer's end, as are
    stop_reason and the rest; a consumer that serializes at once puts :func:`settle` before it.

    Args:
        ids: makes uuids (default random). One source per stream.
        clock: wall-clock seconds (default the system's).
        normalize_block: run once on each finished block, before it is emitted.
        strict: each lenient step, and each failed answer, ends the stream with a typed error.
        request_id: put on every message.
    """
    return lift(
        lambda: Accumulator(
            ids=ids, clock=clock, normalize_block=normalize_block, strict=strict, request_id=request_id
        ),
        "accumulate",
    )
