"""Stages of ``replay`` for what was recorded as messages: is there any, and whose session is it?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from turnstream.messages.codec import replace
from turnstream.messages.types import RESULT_TYPES, OpaqueRecord
from turnstream.operators.stage import Operator, Stage, lift

__all__ = ["adopt", "watch"]


def watch(nothing: Callable[[], None]) -> Operator[Any, Any]:
    """Items pass; ``nothing`` is called at the end of a source that held no message of a conversation."""
    return lift(lambda: _Watch(nothing), "watch")


class _Watch(Stage[Any, Any]):
    def __init__(self, nothing: Callable[[], None]) -> None:
        self._nothing = nothing
        self._found = False

    def feed(self, batch: Sequence[Any], /) -> Sequence[Any]:
        if not self._found:
            self._found = any(isinstance(item, RESULT_TYPES) for item in batch)
        return batch

    def flush(self) -> Sequence[Any]:
        if not self._found:
            self._nothing()
        return ()

    def fail(self, error: Exception, /) -> Sequence[Any]:
        return ()


def adopt(session_id: str) -> Operator[Any, Any]:
    """Messages and records of another session become this one's, so that its transcript takes them."""
    return lift(lambda: _Adopt(session_id), "adopt")


class _Adopt(Stage[Any, Any]):
    def __init__(self, session_id: str) -> None:
        self._session_id = session_id

    def feed(self, batch: Sequence[Any], /) -> Sequence[Any]:
        return [self._adopted(item) for item in batch]

    def _adopted(self, item: Any) -> Any:
        if isinstance(item, RESULT_TYPES):
            holder = item.extra
        else:
            holder = item.data if item.__class__ is OpaqueRecord else None
        if not isinstance(holder, dict) or holder.get("sessionId", self._session_id) == self._session_id:
            return item
        ours = {**holder, "sessionId": self._session_id}
        return replace(item, data=ours) if item.__class__ is OpaqueRecord else replace(item, extra=ours)

    def flush(self) -> Sequence[Any]:
        return ()

    def fail(self, error: Exception, /) -> Sequence[Any]:
        return ()
