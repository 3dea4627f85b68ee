"""What standard output carries: items or messages as NDJSON, or the answers' text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Literal

from turnstream.messages.codec import encode
from turnstream.messages.events import EVENT_CLASSES, MessageStart
from turnstream.messages.types import RESULT_TYPES, AssistantMessage, RequestStart, StreamEventMessage
from turnstream.operators.batch import Batch
from turnstream.operators.settle import Settler
from turnstream.sinks.base import SinkBase

__all__ = ["OutputSink"]


class OutputSink(SinkBase):
    """Writes each item at once, after its answer's values are final.

    Args:
        stream: binary, e.g. ``sys.stdout.buffer``.
        what: ``items`` (everything, events in their envelope), ``messages`` (what a conversation
            keeps), ``text`` (the text blocks of the answers).
        requested_at: when the request went out, loop time; None where that is unknown. From
            ``message_start`` on, events carry ``ttftMs`` if it is known.
    """

    name = "output"

    def __init__(
        self,
        stream: BinaryIO,
        what: Literal["items", "messages", "text"],
        requested_at: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._stream = stream
        self._what = what
        self._settle = Settler()
        self._requested_at = requested_at
        self._ttft: float | None = None

    def on_next(self, batch: Sequence[Any], /) -> None:
        """Write what is final."""
        at = batch.at if isinstance(batch, Batch) else None
        self._write(self._settle.feed(batch), at)

    def on_error(self, error: Exception, /) -> None:
        """Write what was held."""
        self.on_completed()

    def on_completed(self) -> None:
        """Write what was held."""
        self._write(self._settle.flush(), None)
        self._stream.flush()

    def _write(self, items: Sequence[Any], at: float | None) -> None:
        write = self._stream.write
        if self._what == "text":
            for item in items:
                if item.__class__ is AssistantMessage:
                    write(_text(item))
        elif self._what == "messages":
            for item in items:
                if isinstance(item, RESULT_TYPES):
                    write(encode(item) + b"\n")
        else:
            for item in items:
                write(encode(self._enveloped(item, at)) + b"\n")
        if at is not None:
            self._stream.flush()

    def _enveloped(self, item: Any, at: float | None) -> Any:
        cls = item.__class__
        if cls is RequestStart:
            self._ttft = None
        if cls not in EVENT_CLASSES:
            return item
        if cls is MessageStart:
            start = self._requested_at()
            self._ttft = round((at - start) * 1000, 3) if at is not None and start is not None else None
        return StreamEventMessage(event=item, ttft_ms=self._ttft)


def _text(message: AssistantMessage) -> bytes:
    parts = [
        block["text"]
        for block in message.message.get("content", ())
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
    ]
    text = "".join(parts)
    return f"{text}\n".encode("utf-8", "replace") if text else b""
