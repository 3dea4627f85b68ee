"""One word per answer: how it ended (WIRE.md §1, outcome vocabulary)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from turnstream.messages.events import MessageStart, MessageStop
from turnstream.messages.types import RequestStart, ResponseFailed, StreamNote, Tombstone
from turnstream.operators.whole import AnswerItems

__all__ = ["AnswerOutcome", "OutcomeTracker", "answer_outcomes"]


class AnswerOutcome(msgspec.Struct, frozen=True):
    """How an answer ended.

    Attributes:
        word: complete, incomplete(n), api_error(type), protocol_error(kind), not_a_stream, empty.
        failed: the failure item, None for a complete answer.
    """

    word: str
    failed: ResponseFailed | None = None


_ENDS: Final = frozenset({MessageStart, MessageStop, ResponseFailed, StreamNote, RequestStart, Tombstone})


class OutcomeTracker:
    """Watches what ``accumulate`` emits and keeps the counts, in constant memory.

    Attributes:
        complete: how many answers were complete.
        failures: the failure items, at most ``keep`` of them.
        failed: how many answers failed.
    """

    def __init__(self, keep: int = 100) -> None:
        self.complete = 0
        self.failed = 0
        self.failures: list[ResponseFailed] = []
        self._keep = keep
        self._open = False
        self._stopped = False  # a message_stop came; a failure right behind it takes it back

    def feed(self, items: Sequence[Any]) -> None:
        """Take the items of one batch."""
        if items.__class__ is AnswerItems:
            # From start to end, with its message_stop.
            if self._stopped:
                self.complete += 1
            self._open = False
            self._stopped = True
            return
        if len(items) == 1 and not self._stopped:
            # One event a chunk is what a live stream has; a map over it costs more than the look.
            if items[0].__class__ in _ENDS:
                self._one(items[0])
        elif self._stopped or not _ENDS.isdisjoint(map(type, items)):
            ends = _ENDS
            for item in items:
                if item.__class__ in ends or self._stopped:
                    self._one(item)

    def _one(self, item: Any) -> list[AnswerOutcome]:
        cls = item.__class__
        out: list[AnswerOutcome] = []
        if cls is ResponseFailed:
            if self._stopped and not _takes_back(item):
                out += self._settle()
            self._stopped = self._open = False
            self.failed += 1
            if len(self.failures) < self._keep:
                self.failures.append(item)
            out.append(AnswerOutcome(item.outcome, item))
            return out
        if self._stopped:
            out += self._settle()
        if cls is MessageStart:
            self._open = True
        elif cls is MessageStop:
            self._stopped = self._open
            self._open = False
        elif cls is StreamNote and item.kind == "no_message_stop":
            self._open = False
            self.complete += 1
            out.append(AnswerOutcome("complete"))
        return out

    def _settle(self) -> list[AnswerOutcome]:
        if not self._stopped:
            return []
        self._stopped = False
        self.complete += 1
        return [AnswerOutcome("complete")]

    def finish(self) -> None:
        """The stream ended: a message_stop that nothing followed was an answer's end."""
        self._settle()


def _takes_back(failed: ResponseFailed) -> bool:
    """Whether a failure right behind a message_stop is that answer's own.

    In a session the next source may fail without any event: it is empty, no stream, can't be opened.
    """
    kind = failed.error.get("type")
    return kind == "incomplete_stream" or failed.outcome == f"protocol_error({kind})"


def answer_outcomes(items: Iterable[Any]) -> list[AnswerOutcome]:
    """The outcome of each answer in a list of items, in order."""
    tracker = OutcomeTracker(keep=0)
    out: list[AnswerOutcome] = []
    for item in items:
        out += tracker._one(item)
    return out + tracker._settle()
