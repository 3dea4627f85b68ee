"""What ``accumulate`` emits and where: edits of a batch, notes, messages made of blocks (WIRE.md §1, accumulation)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Final

from turnstream.messages.errors import ProtocolError, TurnstreamError
from turnstream.messages.events import StreamEvent
from turnstream.messages.ids import Clock, IdSource, format_timestamp, random_ids, system_clock
from turnstream.messages.types import AssistantMessage, ResponseFailed, StreamNote
from turnstream.operators.answer import Answer
from turnstream.operators.blocks import OpenBlock
from turnstream.operators.events import Parsed
from turnstream.operators.failures import as_exception
from turnstream.operators.sse import SSEDecoder

__all__ = ["Emission", "NormalizeBlock", "StrictError"]

NormalizeBlock = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes a finished content block, returns the one to emit; run once, at its stop."""

_NO_INDEX: Final = -1


class StrictError(Exception):
    """Carries a strict mode error out of the walk."""

    def __init__(self, error: TurnstreamError) -> None:
        super().__init__()
        self.error = error


class Emission:
    """The state of the stage, and how it emits: beside the batch's own items, which stay where they are."""

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
        self.seen = 0  # items fed before this batch
        # The last batch that knows places, or who knows the last one's: where the end is.
        self.last: Parsed | SSEDecoder | None = None
        # The block that deltas go to, unpacked for the walk.
        self.hot_index = _NO_INDEX
        self.hot_class: type | None = None
        unused: list[str] = []
        self.hot_append: Callable[[str], None] = unused.append
        # This batch: (position, items consumed there, what stands instead)
        self._edits: list[tuple[int, int, list[Any]]] = []
        self._batch: Sequence[Any] = ()

    # -- edits ---------------------------------------------------------------------------------------

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
            self.hot_index = block.index
            self.hot_class = block.takes
            self.hot_append = block.parts.append
        else:
            self.hot_index = _NO_INDEX
            self.hot_class = None

    def _place(self, position: int) -> tuple[int | None, int | None]:
        """Event number and byte offset of the item at ``position``, as far as they are known."""
        if isinstance(self._batch, Parsed) and position < len(self._batch):
            return self._batch.locate(position)
        if position < 0 and self.last is not None and (place := self.last.last_place()) is not None:
            return place  # at the end: the last event that came
        return self.seen + position + 1, None

    def _note(self, position: int, kind: str, message: str) -> None:
        """Report a lenient step; in strict mode it is the end."""
        number, offset = self._place(position)
        if self._strict:
            raise StrictError(ProtocolError(message, kind=kind, event_number=number, byte_offset=offset))
        self._insert(position, [StreamNote(kind=kind, message=message, event_number=number, byte_offset=offset)])

    # -- answers and blocks --------------------------------------------------------------------------

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

    def _fault_if_strict(self, failed: ResponseFailed) -> None:
        if self._strict:
            raise StrictError(as_exception(failed))

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
