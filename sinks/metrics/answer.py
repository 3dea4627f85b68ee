"""One answer as metrics see it, from its start to its row in the report."""

from __future__ import annotations

from typing import Any, Final

from turnstream.messages.types import AssistantMessage
from turnstream.operators.whole import WholeAnswer
from turnstream.sinks.metrics.clocks import TOOL_BLOCKS, Clocks
from turnstream.sinks.metrics.histogram import Histogram
from turnstream.sinks.metrics.tally import LONGEST, Tally, count_word
from turnstream.sinks.metrics.tools import ToolTimes
from turnstream.sinks.metrics.traffic import KNOWN_BLOCKS
from turnstream.sinks.metrics.unapplied import Unapplied
from turnstream.sinks.metrics.usage import merge_usage

__all__ = ["Answer"]

_NO_BLOCKS: Final[list[Any]] = []


class Answer:
    """What is known of an answer, or of an attempt that was superseded.

    Attributes:
        message_id: the API's id, None if it sent none.
        request_id: where a message says it.
        streamed: whether events brought it; else messages did (a transcript, a non-streaming reply).
        started: whether a ``message_start`` opened it.
        whole: whether that start held the content already: nothing was streamed.
        synthesized: whether its envelope was made up.
        open: whether its end is still to come.
        held: whether its stream may still say something about it.
        outcome: the word of WIRE.md §1, None while open and where nobody can tell.
        superseded: whether another attempt took its place.
        error_type: what it failed with.
        usage: cumulative.
        blocks: finished blocks by type.
        tools: finished tool uses by name.
        tombstones: how many of its messages were taken back.
        clocks: its times, None as long as none is known.
        unapplied: deltas that found no block, None as long as there is none.
        untimed: whether thinking came whose text nobody saw.
        output_is_final: whether a ``message_delta`` said how many output tokens there are.
        block_opened: whether an event opened a block.
        error_event: whether an ``error`` event came.
    """

    __slots__ = (
        "_latest",
        "_taken",
        "block_opened",
        "blocks",
        "clocks",
        "error_event",
        "error_type",
        "held",
        "invalid_tool_inputs",
        "message_id",
        "model",
        "open",
        "outcome",
        "output_is_final",
        "partial_blocks",
        "request_id",
        "started",
        "stop_reason",
        "streamed",
        "superseded",
        "synthesized",
        "tombstones",
        "tools",
        "unapplied",
        "unfinished_tool_inputs",
        "untimed",
        "usage",
        "whole",
    )

    # One is made per answer, so what is rarely needed is made when it is.
    def __init__(self, message_id: str | None, streamed: bool, clocks: Clocks | None = None) -> None:
        self.message_id = message_id
        self.request_id: str | None = None
        self.model: str | None = None
        self.streamed = streamed
        self.started = False
        self.whole = False
        self.synthesized = False
        self.open = streamed
        self.held = False
        self.outcome: str | None = None
        self.superseded = False
        self.error_type: str | None = None
        self.stop_reason: str | None = None
        self.usage: dict[str, Any] = {}
        self.blocks: dict[str, int] = {}
        self.tools: dict[str, int] = {}
        self.partial_blocks = 0
        self.invalid_tool_inputs = 0
        self.unfinished_tool_inputs = 0
        self.tombstones = 0
        self.block_opened = False
        self.error_event = False
        self.clocks = clocks
        self.output_is_final = False
        self.untimed = False
        self.unapplied: Unapplied | None = None
        # By uuid: the messages it took, themselves only while it is open. After its end their uuids.
        self._taken: dict[str, AssistantMessage | None] | tuple[str, ...] = {}
        self._latest: AssistantMessage | None = None

    @property
    def timing(self) -> Clocks:
        """Its clocks, to write to."""
        clocks = self.clocks
        if clocks is None:
            clocks = self.clocks = Clocks()
        return clocks

    def lacked(self) -> Unapplied:
        """Deltas that found no block, to write to."""
        found = self.unapplied
        if found is None:
            found = self.unapplied = Unapplied()
        return found

    def unapplied_deltas(self) -> Tally | None:
        """Deltas that found no block by type, None if there are none."""
        if isinstance(self._taken, dict):
            told = [message for message in self._taken.values() if message and message.unapplied_deltas]
            if told:
                return self.lacked().so_far(told)
        return self.unapplied.so_far(()) if self.unapplied is not None else None

    # -- events ----------------------------------------------------------------------------------------

    def read(self, message: dict[str, Any]) -> None:
        """What a message's envelope says, that of a ``message_start`` included."""
        model = message.get("model")
        if isinstance(model, str):
            self.model = model
        stop_reason = message.get("stop_reason")
        if stop_reason is not None:
            self.set_stop_reason(stop_reason)
        usage = message.get("usage")
        if isinstance(usage, dict):
            if self.usage:
                merge_usage(self.usage, usage)
            else:
                self.usage = usage.copy()

    def set_stop_reason(self, value: Any) -> None:
        """The last one that isn't null wins; an open set of words."""
        self.stop_reason = (value if isinstance(value, str) else str(value))[:LONGEST]

    # -- messages --------------------------------------------------------------------------------------

    @property
    def taken(self) -> int:
        """How many messages were taken."""
        return len(self._taken)

    def knows(self, uuid: str) -> bool:
        """Whether a message with this uuid was taken."""
        return uuid in self._taken

    def take(self, item: AssistantMessage, at: float | None, tools: ToolTimes) -> list[Any]:
        """A message of the answer: counts what it holds, unless the same message came before.

        Args:
            item: the message.
            at: when it came, None if nobody knows.
            tools: told of the tool uses and results in it.

        Returns:
            Its finished blocks.
        """
        taken = self._taken
        uuid = item.uuid
        if uuid in taken:
            return _NO_BLOCKS
        if not isinstance(taken, dict):
            taken = self._taken = dict.fromkeys(taken)
        if self.open:
            # Deltas that can't be applied may come until the answer's end; they are added in place.
            taken[uuid or f"unnamed {len(taken)}"] = item
        else:
            taken[uuid or f"unnamed {len(taken)}"] = None
            if item.unapplied_deltas:
                self.lacked().count(item)
        if item.synthesized_envelope:
            self.synthesized = True
        if item.invalid_tool_input:
            self.invalid_tool_inputs += 1
        if item.unfinished_tool_inputs:
            self.unfinished_tool_inputs += len(item.unfinished_tool_inputs)
        content = item.message.get("content")
        if not isinstance(content, list):
            return _NO_BLOCKS
        if item.is_aborted_mid_stream:
            self.partial_blocks += len(content)
            if not self.streamed:
                self.outcome = "incomplete"
            return _NO_BLOCKS
        counts = self.blocks
        for block in content:
            if not isinstance(block, dict):
                continue
            kind = block.get("type")
            if not isinstance(kind, str):
                count_word(counts, kind)
                kind = ""
            elif kind in counts:
                counts[kind] += 1
            elif kind in KNOWN_BLOCKS:
                counts[kind] = 1
            else:
                count_word(counts, kind)
            if kind == "text":
                continue
            if kind in TOOL_BLOCKS:
                name = block.get("name")
                names = self.tools
                if names or not isinstance(name, str) or len(name) > LONGEST:
                    count_word(names, name)
                else:
                    names[name] = 1
                tools.used(block, at)
                continue
            if "tool_use_id" in block:
                tools.answered(block, at)
            if (kind == "thinking" and not block.get("thinking")) or kind == "redacted_thinking":
                self.untimed = True
        return content

    def take_whole(self, whole: WholeAnswer, tools: ToolTimes) -> None:
        """:meth:`take` for all messages of an answer that came whole and has no time (:class:`AnswerItems`)."""
        self._taken = tuple([message.uuid for message in whole.messages])
        counts = self.blocks
        for block in whole.blocks:
            kind: str = block["type"]  # a known one
            counts[kind] = counts.get(kind, 0) + 1
            if kind in TOOL_BLOCKS:
                name = block.get("name")
                names = self.tools
                if names or not isinstance(name, str) or len(name) > LONGEST:
                    count_word(names, name)
                else:
                    names[name] = 1
                tools.used(block, None)
            elif kind == "thinking" and not block.get("thinking"):
                self.untimed = True

    def read_message(self, item: AssistantMessage) -> None:
        """A message without events: it alone says usage and stop_reason, the last one wins (FAULTS.md 28)."""
        self._latest = item
        self.read(item.message)

    def read_again(self) -> None:
        """Read once more what its maker may have updated in place since (WIRE.md §1, accumulation)."""
        if self._latest is not None:
            self.read(self._latest.message)

    def release(self) -> None:
        """Read a last time, then hold no message any more."""
        self.read_again()
        self._latest = None

    # -- the end ---------------------------------------------------------------------------------------

    @property
    def finished_blocks(self) -> int:
        """How many blocks were finished."""
        return sum(self.blocks.values())

    def close(self, outcome: str | None, at: float | None) -> Histogram | None:
        """The answer ends; a failure may still follow (:meth:`may_fail_after_stop`).

        Returns:
            The gaps between its batches.
        """
        self.open = False
        self.outcome = outcome
        taken = self._taken
        if isinstance(taken, dict):
            for message in taken.values():
                if message and message.unapplied_deltas:
                    self.lacked().count(message)
            self._taken = tuple(taken)
        if self.unapplied is not None:
            self.unapplied.settle()
        if at is None and self.clocks is None:
            return None
        return self.timing.close(at)

    def may_fail_after_stop(self, outcome: str) -> bool:
        """Whether a failure with this word is that of this answer, whose ``message_stop`` came just before.

        WIRE.md §1 knows two: nothing came (or no start), or ``tool_use`` without a tool block.
        """
        if not self.streamed or self.outcome != "complete":
            return False
        if outcome.startswith("protocol_error("):
            return self.stop_reason == "tool_use" and not self.tools
        return outcome.startswith("incomplete(") and (
            not self.started or (self.stop_reason is None and not self.blocks)
        )

    @property
    def word(self) -> str | None:
        """How it ended: for an answer without events what its messages say, None if they don't."""
        if self.outcome == "incomplete":
            return f"incomplete({self.finished_blocks})"
        if self.outcome is None and not self.streamed and self.stop_reason is not None:
            return "complete"
        return self.outcome

    @property
    def incomplete(self) -> bool:
        """Whether it is known not to be whole: open, or ended other than well."""
        return self.open or self.superseded or self.word not in ("complete", None)
