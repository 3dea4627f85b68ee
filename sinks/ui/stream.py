"""The answer that streams: its mode, its open blocks, its thinking (WIRE.md §5, router)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from turnstream.messages.events import (
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    InputJsonDelta,
    MessageStart,
    MessageStop,
    TextDelta,
    ThinkingDelta,
)
from turnstream.sinks.ui.views import Fate, Mode, OpenBlock, ThinkingView

__all__ = ["StreamState", "take_run"]

_NO_INDEX: Final = -1


class StreamState:
    """What is known of the open answer. The handlers take one event each, off the short way.

    Attributes:
        mode: what the model does, None for idle.
        message_id: id of the open answer, None if it has none or none is open.
        answering: whether an answer is open.
        outcome: the word of the answer that ended last (WIRE.md §1), None while one is open.
        blocks_opened: blocks that were opened so far.
        blocks_closed: blocks that were closed so far; equal to the former whenever no answer is open,
            however it ended (FAULTS 81).
    """

    def __init__(self) -> None:
        self.mode: Mode | None = None
        self.message_id: str | None = None
        self.answering = False
        self.outcome: str | None = None
        self.blocks_opened = 0
        self.blocks_closed = 0
        self._open: dict[int, OpenBlock] = {}
        # The block that deltas go to, and unpacked for the walk.
        self._hot: OpenBlock | None = None
        self._index = _NO_INDEX
        self._takes: type[Any] | None = None
        self._append: Callable[[str], None] = _nowhere
        self._used: set[int] = set()
        self._awaiting = False  # an answer ended: blocks and deltas before the next start are stray
        self._finished = 0
        self._length = 0  # of the blocks that are no longer open
        self._serial = 0
        self._thinking: ThinkingView | None = None
        self._thinking_block: OpenBlock | None = None

    @property
    def open_blocks(self) -> list[OpenBlock]:
        """The streamed blocks that nothing has superseded yet, in index order. Read only."""
        blocks = self._open
        return list(blocks.values()) if len(blocks) < 2 else [blocks[index] for index in sorted(blocks)]

    @property
    def streamed_length(self) -> int:
        """Characters that deltas brought so far, signatures excepted. Joins what is open: O(length)."""
        return self._length + sum(block.streamed() for block in self._open.values())

    @property
    def incomplete(self) -> bool:
        """Whether the answer that ended last did so other than well (FAULTS 80)."""
        return self.outcome is not None and self.outcome != "complete"

    @property
    def thinking(self) -> ThinkingView | None:
        """The current or last thinking. Joins it while it streams."""
        block = self._thinking_block
        return block.thought() if block is not None else self._thinking

    # -- blocks --------------------------------------------------------------------------------------

    def _heat(self, block: OpenBlock) -> None:
        """Make ``block`` the one whose deltas take the short way."""
        self._hot = block
        self._index = block.index
        self._takes = block.takes
        self._append = block.parts.append

    def _cool(self) -> None:
        self._hot = None
        self._index = _NO_INDEX
        self._takes = None
        self._append = _nowhere

    def _open_block(self, index: int, content_block: dict[str, Any], at: float | None) -> OpenBlock:
        if not self.answering:
            self._begin(None)
        self._serial += 1
        self.blocks_opened += 1
        block = OpenBlock.start(self._serial, index, content_block, at)
        self._open[index] = block
        self._used.add(index)
        if block.takes is not None:
            self._heat(block)
        else:
            self._cool()
        mode = block.mode
        if mode is not None:
            self.mode = mode
            if mode == "thinking":
                self._thinking_block = block
        return block

    def _close(self, block: OpenBlock, at: float | None) -> None:
        """Nothing is appended to it any more; it stays shown until it is superseded."""
        if block.closed:
            return
        block.closed = True
        block.until = at
        self.blocks_closed += 1
        if self._hot is block:
            self._cool()
        if self._thinking_block is block:
            self._thinking_block = None

    def _drop(self, block: OpenBlock, at: float | None, fate: Fate) -> None:
        """It isn't shown any more: superseded, or its answer ended."""
        self._close(block, at)
        block.fate = fate
        del self._open[block.index]
        self._length += block.streamed()
        if fate == "incomplete" and block.mode == "thinking":
            self._thinking = block.thought()

    def _begin(self, message_id: str | None) -> None:
        self.answering = True
        self.message_id = message_id
        self.outcome = None
        self._awaiting = False
        self._used = set()
        self._finished = 0

    def _end_answer(self, outcome: str, at: float | None = None) -> None:
        if self._open:
            for block in self.open_blocks:
                self._drop(block, at, "incomplete")
        self.answering = False
        self.message_id = None
        self._awaiting = True
        self.outcome = outcome

    def _break_off(self, at: float | None = None) -> None:
        """Whatever comes next, an answer that is still open gets no further."""
        if self.answering:
            self._end_answer(f"incomplete({self._finished})", at)

    # -- one event -----------------------------------------------------------------------------------

    def _on_delta(self, item: ContentBlockDelta, at: float | None) -> None:
        """A delta off the short way: another block's, the first of a synthesized one, or unapplied."""
        index = item.index
        delta = item.delta
        if index is None:
            return
        block = self._open.get(index)
        if block is None:
            if index in self._used or self._awaiting:
                return
            if isinstance(delta, TextDelta):
                block = self._open_block(index, {"type": "text", "text": ""}, at)
            elif isinstance(delta, ThinkingDelta):
                block = self._open_block(index, {"type": "thinking", "thinking": ""}, at)
            else:
                return
        elif block.closed or delta.__class__ is not block.takes:
            return
        if isinstance(delta, TextDelta):
            block.parts.append(delta.text)
        elif isinstance(delta, ThinkingDelta):
            block.parts.append(delta.thinking)
        elif isinstance(delta, InputJsonDelta):
            block.parts.append(delta.partial_json)
        self._heat(block)

    def _on_block_start(self, item: ContentBlockStart, at: float | None) -> None:
        if self._awaiting:
            return
        index = item.index
        if index is None or index in self._used:
            # accumulate fills in and renumbers; this is for streams that didn't pass through it.
            index = max(self._used, default=-1) + 1
        self._open_block(index, item.content_block, at)

    def _on_block_stop(self, item: ContentBlockStop, at: float | None) -> None:
        block = self._hot if item.index is None else self._open.get(item.index)
        if block is not None:
            self._close(block, at)
            if block.mode == "thinking":
                self._thinking = block.thought()

    def _on_message_start(self, item: MessageStart, at: float | None) -> None:
        message_id = item.message.get("id") if isinstance(item.message, dict) else None
        if not isinstance(message_id, str):
            message_id = None
        if self.answering:
            if not self._used and (message_id is None or message_id == self.message_id):
                return  # the same start again: one answer goes on
            for block in self.open_blocks:
                self._drop(block, at, "retracted")
            self._thinking = None
        self._begin(message_id)

    def _on_message_stop(self, item: MessageStop, at: float | None) -> None:
        if self.answering or not self._awaiting:
            self._end_answer("complete", at)
            self.mode = "tool-use"


def _nowhere(text: str) -> None:
    """What deltas are appended to while no block is open: never called, no class matches."""


def take_run(block: OpenBlock, items: Sequence[Any]) -> bool:
    """Append a batch that is nothing but deltas to ``block``, in one comprehension (17 ns a delta against 37).

    Only the delta class of the block has the attribute read here, and only a delta event has both
    ``delta`` and ``index``: anything else raises or is left out, and then nothing is appended.

    Returns:
        Whether the batch was taken.
    """
    index = block.index
    takes = block.takes
    try:
        if takes is TextDelta:
            new = [item.delta.text for item in items if item.index == index]
        elif takes is InputJsonDelta:
            new = [item.delta.partial_json for item in items if item.index == index]
        else:
            new = [item.delta.thinking for item in items if item.index == index]
    except AttributeError:
        return False
    if len(new) != len(items):
        return False
    block.parts += new
    return True
