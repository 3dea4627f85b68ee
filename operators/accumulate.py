"""``accumulate``: stream events become messages, one finished content block each (WIRE.md §1).

Every event is emitted too, in order, after what it caused. The rules of attempts and ends are in
:mod:`turnstream.operators.answer`; here is the walk over a batch, which costs nothing but the append
for a run of deltas to one block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

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
    TextDelta,
    ThinkingDelta,
    UnknownDelta,
    UnknownEvent,
    delta_to_wire,
    delta_type,
)
from turnstream.messages.ids import Clock, IdSource, format_timestamp, system_clock
from turnstream.messages.types import (
    AssistantMessage,
    QueryItem,
    RequestStart,
    StreamNote,
    Tombstone,
)
from turnstream.operators.answer import Answer
from turnstream.operators.blocks import OpenBlock
from turnstream.operators.emission import NormalizeBlock, StrictError
from turnstream.operators.endings import Endings
from turnstream.operators.events import Parsed
from turnstream.operators.shortcut import ShortCut, short_cut
from turnstream.operators.stage import Fault, Operator, lift
from turnstream.operators.whole import AnswerItems, WholeAnswer, read_whole

__all__ = ["Accumulator", "NormalizeBlock", "accumulate"]


class Accumulator(Endings):
    """The stage. State is per use: never share one between streams.

    Args:
        ids: makes message uuids; scope ``("assistant", answer number, message id, block index)``.
        clock: wall-clock seconds.
        normalize_block: run once on each finished block before it is emitted.
        strict: each lenient step is a fault instead of a note.
        request_id: put on every message, where the transport knows it.
    """

    def short_cut(self, first: Any, second: Any) -> ShortCut | None:
        """One step for small chunks, in place of this stage and the two before it; None if it isn't right for them."""
        return short_cut(first, second, self)

    # -- the walk ------------------------------------------------------------------------------------

    def feed(self, batch: Sequence[QueryItem], /) -> Sequence[QueryItem | Fault]:
        """Take the events of one batch; other items pass."""
        self._batch = batch
        if batch.__class__ is Parsed:
            self.last = batch  # pyright: ignore[reportAttributeAccessIssue]
            batch = batch.items  # pyright: ignore[reportAttributeAccessIssue]
        self.plain = True
        delta: Any
        if len(batch) == 1:
            # What a live stream has most, one delta to the open block: the loop's setting up costs more.
            only: Any = batch[0]
            if only.__class__ is ContentBlockDelta:
                delta = only.delta
                cls = delta.__class__
                if cls is self.hot_class and only.index == self.hot_index:
                    self.seen += 1
                    if cls is TextDelta:
                        self.hot_append(delta.text)
                    elif cls is InputJsonDelta:
                        self.hot_append(delta.partial_json)
                    else:
                        self.hot_append(delta.thinking)
                    return batch
        hot_index = self.hot_index
        hot_class = self.hot_class
        append = self.hot_append
        event: Any
        walk = enumerate(batch)
        for position, event in walk:
            cls = event.__class__
            if cls is ContentBlockDelta:
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
                if cls is MessageStart and self._answer is None and self._normalize is None:
                    whole = read_whole(batch, position)
                    if whole is not None:
                        self._take_whole(whole)
                        over = whole.end + 1 == len(batch)
                        if over and position == 0:
                            self.seen += len(batch)
                            return _just_this(batch, whole)
                        self._edits += [(stop, 0, [m]) for stop, m in zip(whole.stops, whole.messages, strict=True)]
                        if over:
                            break
                        next(islice(walk, whole.end - position - 1, None))
                        continue
                self._handle(position, event)
            except StrictError as strict:
                return [*self._assembled(position), Fault(strict.error)]
            except Exception as error:  # noqa: BLE001 - a normalize_block's: what came before it isn't lost
                return [*self._assembled(position), Fault(error)]
            hot_index = self.hot_index
            hot_class = self.hot_class
            append = self.hot_append
        self.seen += len(batch)
        if not self._edits:
            return batch
        return self._assembled(len(batch))

    def _take_whole(self, whole: WholeAnswer) -> None:
        """Emit the blocks of an answer that came whole, each before its stop."""
        self.plain = False
        self._known = self._anything = self._ended = True
        self._answers = number = self._answers + 1
        make, clock = self._ids, self._clock
        template = whole.template
        wire_id: str = template["id"]
        # What came at once has one time; a clock of the caller's is asked for each message, whatever came how.
        now = format_timestamp(clock()) if clock is system_clock else ""
        whole.messages = messages = []
        for index, block in enumerate(whole.blocks):
            envelope = template.copy()
            envelope["content"] = [block]
            messages.append(
                AssistantMessage(
                    message=envelope,
                    uuid=make("assistant", number, wire_id, index),
                    timestamp=now or format_timestamp(clock()),
                    request_id=self._request_id,
                    index=index,
                )
            )

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
        self.hot_class = None
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
            self.hot_index = index
            self.hot_class = block.takes
            self.hot_append = block.parts.append
        else:
            self.hot_class = None

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
        self.hot_class = None

    # -- message_delta, message_stop, error ------------------------------------------------------------

    def _on_message_delta(self, position: int, event: MessageDelta) -> None:
        answer = self._answer or self._current(position, "message_delta")
        if answer is not None:
            answer.merge(event)


def _just_this(batch: Sequence[Any], whole: WholeAnswer) -> AnswerItems:
    """The batch with the answer's messages put in; it says itself what it is, which spares sinks the look."""
    out = AnswerItems()
    out.whole = whole
    start = 0
    for stop, message in zip(whole.stops, whole.messages, strict=True):
        out += batch[start:stop]
        out.append(message)
        start = stop
    out += batch[start:]
    return out


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
    if ids is None and clock is system_clock and normalize_block is None and not strict and request_id is None:
        return lift(Accumulator, "accumulate")
    return lift(
        lambda: Accumulator(
            ids=ids, clock=clock, normalize_block=normalize_block, strict=strict, request_id=request_id
        ),
        "accumulate",
    )
