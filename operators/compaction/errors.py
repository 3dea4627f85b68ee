"""The error of a compaction that didn't happen."""

from __future__ import annotations

from typing import Any, Final

from turnstream.messages import TurnstreamError

__all__ = [
    "EMPTY_SUMMARY",
    "NOTHING_TO_SUMMARIZE",
    "NOT_A_TEXT",
    "SUMMARIZER_FAILED",
    "CompactionError",
    "is_prompt_too_long",
]

SUMMARIZER_FAILED: Final = "summarizer_failed"
EMPTY_SUMMARY: Final = "empty_summary"
NOT_A_TEXT: Final = "not_a_text"
NOTHING_TO_SUMMARIZE: Final = "nothing_to_summarize"


class CompactionError(TurnstreamError):
    """A context couldn't be compacted; the messages are as they were.

    Attributes:
        kind: a stable word: ``summarizer_failed`` (the cause is ``__cause__``), ``empty_summary``,
            ``not_a_text``, ``nothing_to_summarize``.
        retryable: whether the same compaction may succeed later (what the cause says of itself).
    """

    def __init__(self, message: str, *, kind: str, retryable: bool = False, **where: Any) -> None:
        super().__init__(message, **where)
        self.kind = kind
        self.retryable = retryable


_TOO_LONG: Final = ("prompt is too long", "exceed context limit", "input is too long")


def is_prompt_too_long(error: BaseException) -> bool:
    """Whether an error says that a request was too long for the model or the API (by type, status or words)."""
    if getattr(error, "status", None) == 413 or getattr(error, "error_type", None) == "request_too_large":
        return True
    text = str(error).lower()
    return any(words in text for words in _TOO_LONG)
