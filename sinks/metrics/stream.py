"""Where one stream stands: its open answer, its last one, and the request they belong to."""

from __future__ import annotations

from turnstream.messages.types import AssistantMessage
from turnstream.sinks.metrics.answer import Answer

__all__ = ["Stream"]


class Stream:
    """The state of one key (session, sub-agent).

    Attributes:
        answer: the answer whose events come, None between answers.
        last: the answer before, as long as a failure, a retry or a fallback may speak of it.
        loose: the answer of the last message that came without events.
        ended: an answer ended and no request or start followed: events are stray.
        request: when the request went out.
        first_byte: when its response began to come.
        first_event: when its first event came.
        error_counted: whether an error of this request was counted.
        waiting: live messages and their times, whose answer the next event tells.
    """

    __slots__ = ("answer", "ended", "error_counted", "first_byte", "first_event", "last", "loose", "request", "waiting")

    def __init__(self, request: float | None = None) -> None:
        self.answer: Answer | None = None
        self.last: Answer | None = None
        self.loose: Answer | None = None
        self.ended = False
        self.request = request
        self.first_byte: float | None = None
        self.first_event: float | None = None
        self.error_counted = False
        self.waiting: list[tuple[AssistantMessage, float | None]] = []

    def new_request(self, at: float | None) -> None:
        """A request goes out at ``at``."""
        self.ended = False
        self.request = at
        self.first_byte = self.first_event = None
        self.error_counted = False

    def event(self, at: float) -> None:
        """An event came; stray ones don't belong to the next answer."""
        if self.first_event is None and not self.ended:
            self.first_event = at

    def forget_last(self) -> None:
        """Nothing will speak of the last answer any more."""
        if self.last is not None:
            self.last.held = False
            self.last = None

    def set_loose(self, answer: Answer | None) -> None:
        """Messages without events are now those of ``answer``."""
        if self.loose is not answer:
            if self.loose is not None:
                self.loose.release()
                self.loose.held = False
            self.loose = answer
            if answer is not None:
                answer.held = True
