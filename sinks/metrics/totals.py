"""Sums over answers: the same for one that is still held and one that was let go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from turnstream.sinks.metrics.answer import Answer
from turnstream.sinks.metrics.tally import Tally
from turnstream.sinks.metrics.usage import PLAIN_TOKENS, TOKENS, server_tools, thinking_tokens

__all__ = ["Totals"]

_AT_ONCE: Final = 64  # answers
_INT: Final[frozenset[type]] = frozenset({int})


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

    def add_usages(self, usages: Sequence[dict[str, Any]]) -> None:
        """Column by column: much cheaper than one usage after the other."""
        values = self.values
        for key in PLAIN_TOKENS:
            column: list[Any] = [usage.get(key) for usage in usages]
            if not _INT.issuperset(map(type, column)) or min(column, default=0) < 0:
                column = [count for count in column if type(count) is int and count >= 0]
            if column:
                values[key] = (values[key] or 0) + sum(column)
        for usage in usages:
            if "output_tokens_details" in usage or "thinking_tokens" in usage:
                thinking = thinking_tokens(usage)
                if thinking is not None:
                    values["thinking_tokens"] = (values["thinking_tokens"] or 0) + thinking


class Totals:
    """Exact sums; superseded attempts are apart (WIRE.md §9)."""

    def __init__(self) -> None:
        self._waiting: list[Answer] = []
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
        """Count one answer or superseded attempt, which must not change any more."""
        waiting = self._waiting
        waiting.append(answer)
        if len(waiting) >= _AT_ONCE:
            self.settle()

    def settle(self) -> None:
        """Count what was added and not counted yet."""
        usages: list[dict[str, Any]] = []
        superseded: list[dict[str, Any]] = []
        outcomes, stop_reasons, blocks, tools = self.outcomes, self.stop_reasons, self.blocks, self.tool_uses
        for answer in self._waiting:
            # What couldn't be applied says something about the stream, not about the answer.
            if answer.unapplied is not None or answer.open:
                self.unapplied_deltas.merge(answer.unapplied_deltas() or {})
            if answer.superseded:
                superseded.append(answer.usage)
                self.superseded_blocks += answer.finished_blocks
                continue
            usages.append(answer.usage)
            word = answer.outcome
            if word != "complete":
                word = answer.word
                self.incomplete_answers += answer.incomplete
            if word is None:
                self.unknown_outcomes += 1
            elif word in outcomes:
                outcomes[word] += 1
            else:
                outcomes.add(word)
            reason = answer.stop_reason
            if reason is not None:
                if reason in stop_reasons:
                    stop_reasons[reason] += 1
                else:
                    stop_reasons.add(reason)
            for kind, count in answer.blocks.items():
                if kind in blocks:
                    blocks[kind] += count
                else:
                    blocks.add(kind, count)
            for name, count in answer.tools.items():
                if name in tools:
                    tools[name] += count
                else:
                    tools.add(name, count)
            if "server_tool_use" in answer.usage:
                self.server_tool_use.merge(server_tools(answer.usage) or {})
            self.partial_blocks += answer.partial_blocks
            self.invalid_tool_inputs += answer.invalid_tool_inputs
            self.unfinished_tool_inputs += answer.unfinished_tool_inputs
        self.answers += len(usages)
        self.tokens.add_usages(usages)
        if superseded:
            self.superseded_answers += len(superseded)
            self.superseded_tokens.add_usages(superseded)
        self._waiting.clear()

    def merge(self, other: Totals) -> None:
        """Add all of ``other``."""
        other.settle()
        for name, value in vars(other).items():
            mine = getattr(self, name)
            if isinstance(mine, Tally):
                mine.merge(value)
            elif isinstance(mine, _Sums):
                mine.add(value.values)
            elif isinstance(mine, int):
                setattr(self, name, mine + value)

    def report(self) -> dict[str, Any]:
        """The part of the report's totals that comes from answers; :meth:`settle` comes before it."""
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
