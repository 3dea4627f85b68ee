"""One answer while it streams: its envelope, its blocks, and how it may end (WIRE.md §1)."""

from __future__ import annotations

from typing import Any, Final

from turnstream.messages.events import Delta, MessageDelta
from turnstream.messages.ids import IdSource
from turnstream.messages.types import AssistantMessage, ResponseFailed
from turnstream.operators.blocks import OpenBlock

__all__ = ["ANSWERS_OWN", "Answer"]


# What a message_delta can't change: what the answer is, and what the blocks and the usage make.
ANSWERS_OWN: Final = frozenset({"id", "type", "role", "content", "usage"})


class Answer:
    """What is known of an answer between its start and its end.

    Attributes:
        number: 1-based, counted over the stream.
        started: whether a ``message_start`` opened it.
        synthesized: whether the envelope (or its id) was made up.
        usage: the one usage dict that all messages of the answer share.
        messages: what was emitted, in order.
        by_wire_index: the block that a wire index means now.
        blocks_finished: how many blocks were finished.
    """

    def __init__(self, number: int, message: dict[str, Any], *, started: bool, ids: IdSource) -> None:
        self.number = number
        self.started = started
        wire_id = message.get("id")
        self.wire_id: str | None = wire_id if isinstance(wire_id, str) and wire_id else None
        self.synthesized = not started or self.wire_id is None
        # A copy: the raw event is never changed. Key order stays the wire's.
        template = dict(message)
        if self.wire_id is None:
            made = ids("message", number)
            template = {"id": f"msg_{made.replace('-', '')}", **{k: v for k, v in template.items() if k != "id"}}
        template.setdefault("type", "message")
        template.setdefault("role", "assistant")
        template["content"] = []
        template.setdefault("stop_reason", None)
        template.setdefault("stop_sequence", None)
        usage = message.get("usage")
        self.usage: dict[str, Any] = dict(usage) if isinstance(usage, dict) else {}
        template["usage"] = self.usage
        self.template = template
        self.message_id: str = template["id"]
        self.messages: list[AssistantMessage] = []
        self.blocks: dict[int, OpenBlock] = {}
        self.by_wire_index: dict[int, OpenBlock] = {}
        self.blocks_finished = 0
        self._next_index = 0
        self._highest_finished = -1
        self._tool_finished = False
        self._open: list[OpenBlock] = []  # in the order they were opened
        self._last: OpenBlock | None = None
        self.refused = False  # whether any block refused a delta
        self.homeless: list[Any] = []  # deltas that no block could take, in wire form

    @property
    def stop_reason(self) -> Any:
        """The stop_reason so far; an open set of words."""
        return self.template["stop_reason"]

    # -- the envelope ----------------------------------------------------------------------------------

    def envelope(self, content: list[Any]) -> dict[str, Any]:
        """A ``message`` object around ``content`` that shares the answer's usage dict."""
        message = self.template.copy()
        message["content"] = content
        return message

    def merge_usage(self, usage: Any) -> None:
        """Usage is cumulative: what is present and not null overwrites, an explicit 0 too (WIRE.md §1)."""
        if isinstance(usage, dict):
            ours = self.usage
            for key, value in usage.items():
                if value is not None:
                    ours[key] = value
                else:
                    ours.setdefault(key, None)

    def merge(self, event: MessageDelta) -> None:
        """Late news: null or absence never overwrites.

        All messages of the answer are updated in place, so that a holder who serializes after the
        answer's end has the final values; nobody else changes them before (WIRE.md §1).
        """
        self.merge_usage(event.usage)
        news: dict[str, Any] = {}
        if isinstance(event.delta, dict):
            news.update((k, v) for k, v in event.delta.items() if v is not None and k not in ANSWERS_OWN)
        if event.context_management.__class__ is dict:
            news["context_management"] = event.context_management
        if news:
            self.template.update(news)
            for message in self.messages:
                message.message.update(news)

    # -- blocks ----------------------------------------------------------------------------------------

    def knows(self, index: int) -> bool:
        """Whether a block with this index was opened before."""
        return index in self.blocks or index in self.by_wire_index

    def free_index(self) -> int:
        """The next index no block has."""
        return self._next_index

    def open_block(self, block: OpenBlock) -> OpenBlock:
        """Register a block that was opened."""
        wire_index = block.index if block.wire_index is None else block.wire_index
        self.blocks[block.index] = block
        self.by_wire_index[wire_index] = block
        self._next_index = max(self._next_index, block.index + 1, wire_index + 1)
        self._open.append(block)
        self._last = block
        return block

    @property
    def has_open(self) -> bool:
        """Whether any block is still open."""
        return bool(self._open)

    def open_blocks(self) -> list[OpenBlock]:
        """The blocks still open, in index order."""
        return sorted((b for b in self._open if b.open), key=lambda b: b.index)

    def latest_open(self, delta: Delta | None) -> OpenBlock | None:
        """The block opened last that is still open (and can take ``delta``)."""
        for block in reversed(self._open):
            if block.open and (delta is None or block.can_take(delta)):
                return block
        return None

    def last_opened(self) -> OpenBlock | None:
        """The block opened last, open or not."""
        return self._last

    def out_of_order(self, block: OpenBlock) -> bool:
        """Whether ``block`` stops in another order than the indexes say."""
        if block.index < self._highest_finished:
            return True
        if len(self._open) == 1:
            return False  # only this one
        return any(other.open and other.index < block.index for other in self._open)

    def finished(self, block: OpenBlock, message: AssistantMessage) -> None:
        """Register the message that a finished block was emitted as."""
        block.message = message
        self._open.remove(block)
        self.messages.append(message)
        self.blocks_finished += 1
        self._highest_finished = max(self._highest_finished, block.index)
        if not self._tool_finished and block.type is not None and block.type.endswith("tool_use"):
            self._tool_finished = True

    def unfinished_tools(self) -> list[dict[str, Any]]:
        """Tool inputs that never came to their end: raw text, never parsed, never executed."""
        return [
            {
                "index": block.index,
                "id": block.block.get("id"),
                "name": block.block.get("name"),
                "raw": block.raw_input(),
            }
            for block in self.open_blocks()
            if block.is_tool
        ]

    def leftovers(self) -> list[Any]:
        """Deltas that couldn't be applied and whose block makes no message: the last message keeps them."""
        left = [delta for block in self.blocks.values() if block.message is None for delta in block.unapplied]
        left += self.homeless
        return left

    # -- ends ------------------------------------------------------------------------------------------

    def repeats(self, message: dict[str, Any]) -> bool:
        """Whether another start is this answer's own again: no block between, and the same id or none."""
        wire_id = message.get("id")
        return not self.blocks and (not wire_id or wire_id == self.wire_id)

    def is_over(self) -> bool:
        """Whether all but its message_stop came: all blocks stopped and a stop_reason."""
        return self.stop_reason is not None and not any(b.open for b in self._open)

    def may_end(self) -> bool:
        """Whether it is complete but for its message_stop; without a message_start it never is."""
        return self.started and self.is_over()

    def lacks_tool_block(self) -> bool:
        """stop_reason ``tool_use`` without any tool block: a protocol error that may be retried."""
        return bool(self.stop_reason == "tool_use" and not self._tool_finished)

    def kept(self, partial: AssistantMessage | None = None) -> list[Any]:
        """The content blocks that were kept, finished ones first."""
        blocks = [
            block
            for message in self.messages
            if message is not partial and not message.is_aborted_mid_stream
            for block in message.message["content"]
        ]
        if partial is not None:
            blocks += partial.message["content"]
        return blocks

    def incomplete(
        self,
        why: str,
        event_number: int | None,
        byte_offset: int | None,
        *,
        partial: AssistantMessage | None = None,
    ) -> ResponseFailed:
        """The failure of an answer that broke off."""
        return ResponseFailed(
            error={"type": "incomplete_stream", "message": why, "retryable": True},
            kept=self.kept(partial),
            outcome=f"incomplete({self.blocks_finished})",
            event_number=event_number,
            byte_offset=byte_offset,
        )

    def contradiction(self, event_number: int | None, byte_offset: int | None) -> ResponseFailed:
        """The failure of an answer that says ``tool_use`` but asks for no tool."""
        kind = "tool_use_without_block"
        return ResponseFailed(
            error={
                "type": kind,
                "message": "stop_reason is tool_use, but no tool block was finished",
                "retryable": True,
            },
            kept=self.kept(),
            outcome=f"protocol_error({kind})",
            event_number=event_number,
            byte_offset=byte_offset,
        )
