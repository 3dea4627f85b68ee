"""One answer as metrics see it, from its start to its row in the report."""

from __future__ import annotations

from typing import Any

from turnstream.messages.types import AssistantMessage
from turnstream.sinks.metrics.clocks import Clocks, is_tool_block
from turnstream.sinks.metrics.histogram import Histogram
from turnstream.sinks.metrics.tally import Tally
from turnstream.sinks.metrics.unapplied import Unapplied
from turnstream.sinks.metrics.usage import merge_usage, server_tools, token_counts

__all__ = ["Answer"]


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
        unapplied: deltas that found no block.
        block_opened: whether an event opened a block.
        error_event: whether an ``error`` event came.
    """

    __slots__ = (
        "_latest",
        "_output_is_final",
        "_untimed",
        "_uuids",
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
        "usage",
        "whole",
    )

    def __init__(self, *, message_id: str | None = None, streamed: bool, clocks: Clocks | None = None) -> None:
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
        self.blocks = Tally()
        self.tools = Tally()
        self.partial_blocks = 0
        self.invalid_tool_inputs = 0
        self.unfinished_tool_inputs = 0
        self.tombstones = 0
        self.block_opened = False
        self.error_event = False
        self.unapplied = Unapplied()
        self.clocks = clocks if clocks is not None else Clocks()
        self._output_is_final = False
        self._untimed = False
        self._uuids: set[str] = set()
        self._latest: AssistantMessage | None = None

    # -- events ----------------------------------------------------------------------------------------

    def start(self, message: dict[str, Any]) -> None:
        """The ``message`` of a ``message_start``, the same one again included."""
        self.started = True
        self._read(message)

    def _read(self, message: dict[str, Any]) -> None:
        model = message.get("model")
        if isinstance(model, str):
            self.model = model
        self.set_stop_reason(message.get("stop_reason"))
        merge_usage(self.usage, message.get("usage"))

    def news(self, delta: Any, usage: Any) -> None:
        """A ``message_delta``: null or absence never overwrites."""
        if isinstance(delta, dict):
            self.set_stop_reason(delta.get("stop_reason"))
        if isinstance(usage, dict):
            merge_usage(self.usage, usage)
            if usage.get("output_tokens") is not None:
                self._output_is_final = True

    def set_stop_reason(self, value: Any) -> None:
        """The last one that isn't null wins; an open set of words."""
        if value is not None:
            self.stop_reason = (value if isinstance(value, str) else str(value))[:128]

    # -- messages --------------------------------------------------------------------------------------

    def take(self, item: AssistantMessage) -> list[dict[str, Any]]:
        """A message of the answer: counts what it holds.

        Returns:
            Its finished blocks; none if the same message came before.
        """
        if item.uuid:
            if item.uuid in self._uuids:
                return []
            self._uuids.add(item.uuid)
        if item.synthesized_envelope:
            self.synthesized = True
        if self.open:
            # Deltas that can't be applied may come until the answer's end; they are added in place.
            self.unapplied.watch(item)
        else:
            self.unapplied.count(item)
        if item.invalid_tool_input:
            self.invalid_tool_inputs += 1
        if item.unfinished_tool_inputs:
            self.unfinished_tool_inputs += len(item.unfinished_tool_inputs)
        content = item.message.get("content")
        if not isinstance(content, list):
            return []
        if item.is_aborted_mid_stream:
            self.partial_blocks += len(content)
            if not self.streamed:
                self.outcome = "incomplete"
            return []
        blocks = []
        for block in content:
            if isinstance(block, dict):
                blocks.append(block)
                kind = block.get("type")
                self.blocks.add(kind)
                if is_tool_block(block):
                    self.tools.add(block.get("name"))
                elif (kind == "thinking" and not block.get("thinking")) or kind == "redacted_thinking":
                    self._untimed = True
        return blocks

    def read_message(self, item: AssistantMessage) -> None:
        """A message without events: it alone says usage and stop_reason, the last one wins (FAULTS.md 28)."""
        self._latest = item
        self._read(item.message)

    def read_again(self) -> None:
        """Read once more what its maker may have updated in place since (WIRE.md §1, accumulation)."""
        if self._latest is not None:
            self._read(self._latest.message)

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
        self.unapplied.settle()
        return self.clocks.close(at)

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

    def row(self) -> dict[str, Any]:
        """The answer's row in the report."""
        clocks = self.clocks
        since = clocks.since_request
        tokens = token_counts(self.usage)
        # Thinking without a time of its own would make the rest look faster than it was.
        timed = self._output_is_final and not (self._untimed and clocks.first_thinking is None)
        return {
            "message_id": self.message_id,
            "request_id": self.request_id,
            "model": self.model,
            "streamed": self.streamed and not self.whole,
            "outcome": self.word,
            "incomplete": self.incomplete,
            "superseded": self.superseded,
            "error_type": self.error_type,
            "stop_reason": self.stop_reason,
            **tokens,
            "server_tool_use": server_tools(self.usage),
            "usage": dict(self.usage),
            "blocks": self.blocks.report(),
            "partial_blocks": self.partial_blocks,
            "tool_uses": self.tools.report(),
            "first_byte_ms": since(clocks.first_byte),
            "first_event_ms": None if self.whole else since(clocks.first_event),
            "first_thinking_ms": since(clocks.first_thinking),
            "first_content_ms": since(clocks.first_content),
            "first_visible_text_ms": since(clocks.first_text),
            "duration_ms": since(clocks.end),
            "stream_ms": None if self.whole else clocks.streamed_for(),
            "tokens_per_s": clocks.rate(tokens["output_tokens"]) if timed else None,
            "batch_gaps": clocks.gaps_report(),
        }
