"""Sums over answers: the same for one that is still held and one that was let go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnstream.sinks.metrics.answer import Answer
from turnstream.sinks.metrics.tally import Tally
from turnstream.sinks.metrics.usage import TOKENS, server_tools, token_counts

__all__ = ["Totals"]


class _Sums:
    """Token sums; a field that no answer gave stays None."""

    def __init__(self) -> None:
        self.values: dict[str, int | None] = dict.fromkeys(TOKENS)

    def add(self, counts: Mapping[str, int | None]) -> None:
        values = self.values
        for key, count in counts.items():
            if count is not None:
                mine = values[key]
                values[key] = count if mine is None else mine + count


class Totals:
    """Exact sums; superseded attempts are apart (WIRE.md §9)."""

    def __init__(self) -> None:
        self.answers = 0
        self.unknown_outcomes = 0
        self.incomplete_answers = 0
        self.outcomes = Tally()
        self.stop_reasons = Tally()
        self.tokens = _Sums()
        self.server_tool_use = Tally()
        self.blocks = Tally()
        self.partial_blocks = 0
        self.tool_uses = Tally()
        self.invalid_tool_inputs = 0
        self.unfinished_tool_inputs = 0
        self.unapplied_deltas = Tally()
        self.superseded_answers = 0
        self.superseded_tokens = _Sums()
        self.superseded_blocks = 0

    def add(self, answer: Answer) -> None:
        """Count one answer or superseded attempt."""
        # What couldn't be applied says something about the stream, not about the answer.
        unapplied = answer.unapplied.so_far()
        if unapplied:
            self.unapplied_deltas.merge(unapplied)
        tokens = token_counts(answer.usage)
        if answer.superseded:
            self.superseded_answers += 1
            self.superseded_tokens.add(tokens)
            self.superseded_blocks += answer.finished_blocks
            return
        self.answers += 1
        word = answer.word
        if word is None:
            self.unknown_outcomes += 1
        else:
            self.outcomes.add(word)
        if word != "complete":
            self.incomplete_answers += answer.incomplete
        if answer.stop_reason is not None:
            self.stop_reasons.add(answer.stop_reason)
        self.tokens.add(tokens)
        if "server_tool_use" in answer.usage:
            self.server_tool_use.merge(server_tools(answer.usage) or {})
        self.blocks.merge(answer.blocks)
        self.partial_blocks += answer.partial_blocks
        if answer.tools:
            self.tool_uses.merge(answer.tools)
        self.invalid_tool_inputs += answer.invalid_tool_inputs
        self.unfinished_tool_inputs += answer.unfinished_tool_inputs

    def merge(self, other: Totals) -> None:
        """Add all of ``other``."""
        for name, value in vars(other).items():
            mine = getattr(self, name)
            if isinstance(mine, Tally):
                mine.merge(value)
            elif isinstance(mine, _Sums):
                mine.add(value.values)
            else:
                setattr(self, name, mine + value)

    def report(self) -> dict[str, Any]:
        """The part of the report's totals that comes from answers."""
        return {
            "answers": self.answers,
            "incomplete_answers": self.incomplete_answers,
            "unknown_outcomes": self.unknown_outcomes,
            "outcomes": self.outcomes.report(),
            "stop_reasons": self.stop_reasons.report(),
            **self.tokens.values,
            "server_tool_use": self.server_tool_use.report() or None,
            "blocks": self.blocks.report(),
            "partial_blocks": self.partial_blocks,
            "tool_uses": self.tool_uses.report(),
            "invalid_tool_inputs": self.invalid_tool_inputs,
            "unfinished_tool_inputs": self.unfinished_tool_inputs,
            "unapplied_deltas": self.unapplied_deltas.report(),
            "superseded_answers": self.superseded_answers,
            **{f"superseded_{key}": count for key, count in self.superseded_tokens.values.items()},
            "superseded_blocks": self.superseded_blocks,
        }
