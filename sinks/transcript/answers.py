"""Which answer is open: the transcript must know an answer's end to know when its lines are final."""

from __future__ import annotations

from typing import Any

from turnstream.messages.events import MessageStart
from turnstream.messages.types import AssistantMessage
from turnstream.sinks.transcript.lazy import OpenAnswer, is_settled

__all__ = ["AnswerTracker"]


class AnswerTracker:
    """The open answer of each stream (a batch's key says whose stream it is)."""

    def __init__(self) -> None:
        self._open: dict[Any, OpenAnswer] = {}

    def start(self, event: MessageStart, key: Any, now: float) -> None:
        """A ``message_start``: the next answer or attempt, unless it repeats the last one before any block."""
        message = event.message
        message_id = message.get("id") if isinstance(message, dict) else None
        answer = self._open.get(key)
        if answer is not None:
            if not answer.has_lines and message_id is not None and answer.message_id == message_id:
                return
            answer.ended_at = now
        self._open[key] = OpenAnswer(message_id if isinstance(message_id, str) else None)

    def is_open(self, key: Any) -> bool:
        """Whether an answer of ``key`` is open."""
        return key in self._open

    def end(self, key: Any, now: float) -> None:
        """The answer of ``key``, if one is open, ended."""
        answer = self._open.pop(key, None)
        if answer is not None:
            answer.ended_at = now

    def end_all(self, now: float) -> None:
        """The run ended."""
        for answer in self._open.values():
            answer.ended_at = now
        self._open.clear()

    def of_streamed(self, message: AssistantMessage, key: Any, now: float) -> OpenAnswer | None:
        """The open answer of a message that came with the stream; None if its values are final."""
        if is_settled(message):
            return None
        answer = self._open.get(key)
        if answer is not None and not answer.from_message:
            return answer
        message_id = message.message.get("id")
        if answer is not None and answer.message_id == message_id:
            return answer
        # A stream without message_start has answers too; only `accumulate` sets an index, and ends follow.
        if message.index is None or message.message.get("stop_reason") is not None:
            return None
        self.end(key, now)
        self._open[key] = answer = OpenAnswer(message_id, from_message=True)
        return answer

    def of_given(self, message: AssistantMessage) -> OpenAnswer | None:
        """The open answer of a message that was handed over apart from the stream: its id tells."""
        if not self._open or is_settled(message):
            return None
        message_id = message.message.get("id")
        for answer in self._open.values():
            if answer.message_id is not None and answer.message_id == message_id:
                return answer
        return None
