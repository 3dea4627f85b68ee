"""Stages that are made when the response is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from turnstream.messages.types import StreamNote
from turnstream.operators.decode import decode
from turnstream.operators.frames import ServerSentEvent
from turnstream.operators.stage import Chain, Operator, lift

if TYPE_CHECKING:
    from turnstream.sources.http.source import HTTPSource

__all__ = ["decode_answer", "when_answered"]

A = TypeVar("A")
B = TypeVar("B")


class _WhenAnswered:
    """A stage that is made when the first item comes."""

    def __init__(self, make: Callable[[], Operator[Any, Any]]) -> None:
        self._make = make
        self._chain: Chain | None = None

    def _stages(self) -> Chain:
        if self._chain is None:
            self._chain = self._make().chain()
        return self._chain

    def feed(self, batch: Sequence[Any], /) -> Sequence[Any]:
        return self._stages().feed(batch)

    def flush(self) -> Sequence[Any]:
        return self._stages().flush()

    def fail(self, error: Exception, /) -> Sequence[Any]:
        return self._stages().fail(error)


def when_answered(make: Callable[[], Operator[A, B]]) -> Operator[A, B]:
    """An operator that is made when the first item comes: for stages that need what the response says.

    ``when_answered(lambda: decode(content_type=source.content_type) | …)``
    """
    return lift(lambda: _WhenAnswered(make), "when_answered")


def decode_answer(source: HTTPSource, *, strict: bool = False) -> Operator[bytes, ServerSentEvent | StreamNote]:
    """``decode`` with the content type of the response: a stream, a JSON message or AWS frames, whatever was asked for.

    Args:
        source: where the bytes come from.
        strict: framing problems end the stream with a typed error.
    """
    return when_answered(lambda: decode(content_type=source.content_type, strict=strict))
