"""What the proxy counts. All keys are words of ours or HTTP statuses, so memory is bounded."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

__all__ = ["Counts"]

_log = logging.getLogger("turnstream.record")
_NOTES = 20


class Counts:
    """Counters since the start, and the last notes.

    Attributes:
        on_drop: called with each note about something that was dropped.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.in_flight = 0
        self.statuses: Counter[int] = Counter()
        self.ends: Counter[str] = Counter()
        self.request_bytes = 0
        self.answer_bytes = 0
        self.recordings = 0
        self.recording_bytes = 0
        self.dropped: Counter[str] = Counter()
        self.transcript_answers = 0
        self.on_drop: Callable[[str], None] | None = None
        self.notes: deque[str] = deque(maxlen=_NOTES)

    def drop(self, what: str, why: str, detail: str = "") -> str:
        """Count what was dropped; the note about it.

        Args:
            what: ``recording``, ``transcript``, ``body``, ``metrics`` or ``tee`` (all of an answer).
            why: a word: ``slow``, ``failed``, ``large``, ``encoding``, ``unfinished``.
            detail: more, without secrets.
        """
        self.dropped[f"{what}_{why}"] += 1
        note = f"{what} dropped: {why}{f' ({detail})' if detail else ''}"
        self.notes.append(note)
        _log.warning("%s", note)
        if self.on_drop is not None:
            self.on_drop(note)
        return note

    def report(self) -> dict[str, Any]:
        """JSON-able, snake_case."""
        return {
            "requests": self.requests,
            "in_flight": self.in_flight,
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "ends": dict(sorted(self.ends.items())),
            "request_bytes": self.request_bytes,
            "answer_bytes": self.answer_bytes,
            "recordings": self.recordings,
            "recording_bytes": self.recording_bytes,
            "transcript_answers": self.transcript_answers,
            "dropped": dict(sorted(self.dropped.items())),
            "notes": list(self.notes),
        }
