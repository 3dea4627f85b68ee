"""For tests of flow: streams of known content, and sinks that need time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import turnstream as ts
from turnstream.messages import (
    AssistantMessage,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    MessageStart,
    MessageStop,
    TextDelta,
    seeded_clock,
    seeded_ids,
)
from turnstream.operators import Batch


def frames(*events: dict[str, Any]) -> list[bytes]:
    return [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events]


def answer(number: int = 1, texts: Iterable[str] = ("Hello", ", ", "world.")) -> list[bytes]:
    """The frames of one good answer with one text block."""
    usage = {"input_tokens": 3, "output_tokens": 1}
    return frames(
        {"type": "message_start", "message": {"id": f"msg_{number}", "role": "assistant", "model": "m", "content": [], "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": t}} for t in texts),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    )  # fmt: skip


def stages(seed: int = 1) -> Any:
    return ts.decode_sse() | ts.parse_events() | ts.accumulate(ids=seeded_ids(seed), clock=seeded_clock())


def start(message_id: str = "msg_1") -> MessageStart:
    return MessageStart({"id": message_id, "role": "assistant", "content": [], "usage": {}})


def open_text(index: int = 0) -> ContentBlockStart:
    return ContentBlockStart({"type": "text", "text": ""}, index)


def text(value: str, index: int = 0) -> ContentBlockDelta:
    return ContentBlockDelta(TextDelta(value), index)


def finished(value: str, index: int = 0, message_id: str = "msg_1") -> AssistantMessage:
    return AssistantMessage(
        message={"id": message_id, "role": "assistant", "content": [{"type": "text", "text": value}], "usage": {}},
        uuid=f"uuid-{message_id}-{index}",
        timestamp="2026-01-01T00:00:00.000Z",
        index=index,
    )


def whole_answer(value: str, message_id: str = "msg_1") -> list[Any]:
    """What ``accumulate`` emits for an answer of one text block."""
    return [
        start(message_id),
        open_text(),
        *(text(c) for c in value),
        finished(value, 0, message_id),
        ContentBlockStop(0),
        MessageStop(),
    ]


def batch(*items: Any, weight: int = 0, key: Any = None, at: float | None = None) -> Batch[Any]:
    return Batch(items, at, key, weight)


def text_of(items: Iterable[Any]) -> str:
    return "".join(i.delta.text for i in items if isinstance(i, ContentBlockDelta) and isinstance(i.delta, TextDelta))


class Taker:
    """An AsyncSink that keeps what it takes, and can be slow, stuck or faulty."""

    def __init__(
        self,
        name: str = "taker",
        *,
        delay: float = 0.0,
        raise_at: int | None = None,
        hang_at: int | None = None,
        gate: asyncio.Event | None = None,
    ) -> None:
        self.name = name
        self.batches: list[Any] = []
        self.items: list[Any] = []
        self.snapshots: list[Any] = []
        self.ends: list[Exception | None] = []
        self.closed = 0
        self.taken = 0
        self.cancelled = 0
        self._delay = delay
        self._raise_at = raise_at
        self._hang_at = hang_at
        self._gate = gate

    async def take(self, batch: Sequence[Any], /) -> None:
        self.taken += 1
        try:
            if self._gate is not None:
                await self._gate.wait()
            if self._delay:
                await asyncio.sleep(self._delay)
            if self.taken == self._hang_at:
                await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.taken == self._raise_at:
            raise ValueError("boom")
        self.batches.append(batch)
        self.items.extend(batch)

    async def ended(self, error: Exception | None) -> None:
        self.ends.append(error)

    async def aclose(self) -> None:
        self.closed += 1


class SnapshotTaker(Taker):
    async def resync(self, snapshot: Any) -> None:
        self.snapshots.append(snapshot)
        self.items.append(snapshot)


async def live(chunks: Iterable[bytes], gap: float = 0.0, end: Any = None) -> AsyncIterator[bytes]:
    """Chunks with ``gap`` seconds before each; then ``end`` is raised, if given."""
    for chunk in chunks:
        await asyncio.sleep(gap)
        yield chunk
    if end is not None:
        raise end
