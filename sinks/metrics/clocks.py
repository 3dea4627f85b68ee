"""When an answer's firsts and lasts came: the clocks of WIRE.md §9, null where there is no time."""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET

from turnstream.messages.events import CompactionDelta, InputJsonDelta, TextDelta, ThinkingDelta
from turnstream.sinks.metrics.histogram import Histogram, milliseconds

__all__ = ["FOLD_AT", "TOOL_BLOCKS", "Clocks"]

TOOL_BLOCKS: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
"""The types of blocks that are the model's (or a server's) call of a tool."""

_TEXT: Final = 1
_THINKING: Final = 2
FOLD_AT: Final = 512
"""How many arrivals are kept before they are counted."""


class Clocks:
    """The times of one answer, monotonic seconds; None: not seen, or the batch had no time.

    What doesn't count as content (FAULTS.md 33): pings, the start, empty deltas, empty block starts,
    signatures, citations, results of server tools. A tool's block start does count: its name is what the
    model wrote. A thinking delta without text but with ``estimated_tokens`` counts as thinking (and as a
    token), not as content.

    Attributes:
        arrivals: when the last batches of the open answer came; at :data:`FOLD_AT` of them :meth:`fold` is due.
        request: when the request went out.
        first_byte: the first chunk of the response.
        first_event: the first event of any type.
        first_thinking: the first thinking, redacted thinking included.
        first_content: the first of any content.
        first_text: the first text outside thinking.
        first_token: the first content or thinking; with ``last_token`` what a rate is measured over.
        last_token: the last batch that held a token.
        end: the answer's end.
        gaps: gaps between the batches, while the answer is open.
    """

    __slots__ = (
        "_blocks_open",
        "_gaps_report",
        "_wanted",
        "arrivals",
        "end",
        "first_byte",
        "first_content",
        "first_event",
        "first_text",
        "first_thinking",
        "first_token",
        "gaps",
        "last_token",
        "request",
    )

    def __init__(
        self,
        request: float | None = None,
        first_byte: float | None = None,
        first_event: float | None = None,
        at: float | None = None,
    ) -> None:
        self.request = request
        self.first_byte = first_byte
        self.first_event = first_event
        self.first_thinking: float | None = None
        self.first_content: float | None = None
        self.first_text: float | None = None
        self.first_token: float | None = None
        self.last_token: float | None = None
        self.end: float | None = None
        self.gaps: Histogram | None = None
        self.arrivals: list[float] = [] if at is None else [at]
        self._gaps_report: dict[str, Any] | None = None
        self._blocks_open = 0
        self._wanted = 0

    # -- the stream ------------------------------------------------------------------------------------

    def fold(self) -> None:
        """Count the gaps between the arrivals so far."""
        if len(self.arrivals) > 1:
            if self.gaps is None:
                self.gaps = Histogram()
            self.gaps.add_gaps(self.arrivals)
            self.arrivals = self.arrivals[-1:]

    def block_starts(self, block: dict[str, Any], at: float) -> None:
        """A block opens; what it holds already counts, an empty one doesn't."""
        if self._blocks_open == 0:
            self._wanted = 0
        self._blocks_open += 1
        kind = block.get("type")
        if kind.__class__ is not str:
            pass  # opaque: nobody knows what is content in it
        elif kind == "text":
            if block.get("text"):
                self._saw(_TEXT, at)
            elif self.first_text is None:
                self._wanted |= _TEXT
        elif kind == "thinking" or kind == "redacted_thinking":
            if block.get("thinking") or block.get("data"):
                self._saw(_THINKING, at)
            elif self.first_thinking is None:
                self._wanted |= _THINKING
        elif kind in TOOL_BLOCKS or (kind == "compaction" and block.get("content")):
            self._saw(0, at)

    def block_unannounced(self) -> None:
        """A delta without a block start opens a block of either kind; it may stay open until the end."""
        self._blocks_open += 1
        if self.first_text is None:
            self._wanted |= _TEXT
        if self.first_thinking is None:
            self._wanted |= _THINKING

    def block_stops(self) -> None:
        """A block closed."""
        if self._blocks_open:
            self._blocks_open -= 1

    def delta(self, delta: Any, at: float) -> bool:
        """A delta came.

        Returns:
            Whether the next delta of the same batch has to be looked at too: this one held no token, or
            a block is open whose first content is still to come.
        """
        # In the steady state only the last token moves.
        cls = type(delta)
        if cls is TextDelta:
            if not delta.text:
                return True
            if self.first_text is None:
                self._saw(_TEXT, at)
        elif cls is InputJsonDelta:
            if not delta.partial_json:
                return True
            if self.first_content is None:
                self._saw(0, at)
        elif cls is ThinkingDelta:
            if delta.thinking:
                if self.first_thinking is None or self.first_content is None:
                    self._saw(_THINKING, at)
            elif delta.estimated_tokens is not UNSET and delta.estimated_tokens > 0:
                if self.first_thinking is None:
                    self._saw_hidden_thinking(at)
            else:
                return True
        elif cls is CompactionDelta and delta.content.__class__ is str and delta.content:
            self._saw(0, at)
        else:
            return True
        self.last_token = at
        return self._wanted != 0 or self.first_content is None

    def _saw(self, kind: int, at: float) -> None:
        self.last_token = at
        if self.first_token is None:
            self.first_token = at
        if self.first_content is None:
            self.first_content = at
        if kind == _TEXT:
            if self.first_text is None:
                self.first_text = at
        elif kind == _THINKING and self.first_thinking is None:
            self.first_thinking = at
        self._wanted &= ~kind

    def _saw_hidden_thinking(self, at: float) -> None:
        self.last_token = at
        if self.first_token is None:
            self.first_token = at
        if self.first_thinking is None:
            self.first_thinking = at
        self._wanted &= ~_THINKING

    def close(self, at: float | None) -> Histogram | None:
        """The answer ends.

        Returns:
            The gaps between its batches, to be summed up; here only their summary stays.
        """
        self.end = at
        if not self.arrivals:
            return None
        self.fold()
        self.arrivals = []
        gaps, self.gaps = self.gaps, None
        self._gaps_report = gaps.report() if gaps is not None else None
        return gaps

    # -- the report ------------------------------------------------------------------------------------

    def gaps_report(self) -> dict[str, Any] | None:
        """What the report says about the gaps, None where there are none."""
        gaps = self.open_gaps()
        return gaps.report() if gaps is not None else self._gaps_report

    def open_gaps(self) -> Histogram | None:
        """The gaps of an answer that is still open; None if there are none."""
        if len(self.arrivals) < 2:
            return self.gaps
        gaps = self.gaps.copy() if self.gaps is not None else Histogram()
        gaps.add_gaps(self.arrivals)
        return gaps

    def since_request(self, at: float | None) -> float | None:
        """Milliseconds from the request to ``at``; None if either is unknown (or the clocks contradict)."""
        return _between(self.request, at)

    def streamed_for(self) -> float | None:
        """Milliseconds from the first event to the end."""
        return _between(self.first_event, self.end)

    def rate(self, tokens: int | None) -> float | None:
        """Tokens per second from the first to the last token; None without two times or a count."""
        if tokens is None or self.first_token is None or self.last_token is None:
            return None
        seconds = self.last_token - self.first_token
        return round(tokens / seconds, 3) if seconds > 0 else None


def _between(start: float | None, end: float | None) -> float | None:
    if start is None or end is None or end < start:
        return None
    return milliseconds(end - start)
