"""``require_complete``: an answer that isn't complete is an error of the stream (WIRE.md §1, §7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from turnstream.messages.errors import EmptyStreamError, IncompleteStreamError
from turnstream.messages.events import MessageStart, MessageStop
from turnstream.messages.types import AssistantMessage, QueryItem, ResponseFailed, StreamNote
from turnstream.operators.failures import as_exception
from turnstream.operators.stage import Fault, Operator, lift

__all__ = ["require_complete"]

_WATCHED: Final = frozenset({MessageStart, MessageStop, AssistantMessage, ResponseFailed, StreamNote})


class _RequireComplete:
    """The stage; behind ``accumulate``."""

    def __init__(self) -> None:
        self._answered = False
        self._open = False
        self._content: list[Any] = []
        self._stop_reason: Any = None

    def feed(self, batch: Sequence[QueryItem], /) -> Sequence[QueryItem | Fault]:
        if _WATCHED.isdisjoint(map(type, batch)):
            return batch
        for position, item in enumerate(batch):
            cls = item.__class__
            error: Exception | None = None
            if isinstance(item, ResponseFailed):
                error = as_exception(item)
            elif cls is MessageStart:
                self._open = True
                self._content, self._stop_reason = [], None
            elif isinstance(item, AssistantMessage):
                content = item.message.get("content")
                self._content += content if isinstance(content, list) else ()
                self._stop_reason = item.message.get("stop_reason")
            elif cls is MessageStop or (isinstance(item, StreamNote) and item.kind == "no_message_stop"):
                self._open = False
                self._answered = True
                if self._is_nothing() and not _failure_follows(batch, position):
                    error = IncompleteStreamError("the answer has no content and no stop_reason")
            if error is not None:
                return [*batch[: position + 1], Fault(error)]
        return batch

    def _is_nothing(self) -> bool:
        """A gateway's 200 that holds no answer (empty texts are none)."""
        return self._stop_reason is None and all(
            isinstance(block, dict) and block.get("type") == "text" and not block.get("text") for block in self._content
        )

    def flush(self) -> Sequence[QueryItem | Fault]:
        if self._open:
            return [Fault(IncompleteStreamError("the stream ended before its answer did"))]
        return () if self._answered else [Fault(EmptyStreamError("the stream held no answer"))]

    def fail(self, error: Exception, /) -> Sequence[QueryItem | Fault]:
        return ()


def _failure_follows(batch: Sequence[Any], position: int) -> bool:
    """Whether the stages before say so themselves, right behind."""
    return position + 1 < len(batch) and isinstance(batch[position + 1], ResponseFailed)


def require_complete() -> Operator[QueryItem, QueryItem]:
    """The first answer that isn't complete ends the stream with its typed error; so does a stream without any.

    What was kept, and the ``response_failed`` item, are delivered before. An answer with neither content nor a
    stop_reason isn't complete, whatever ended it. Goes behind ``accumulate``; before an ordinary Rx ``retry``, or where
    an exception is wanted.
    """
    return lift(_RequireComplete, "require_complete")
