"""Servers and sinks that fall silent, on the loop's time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aiohttp import web
from serving import TEXT

from turnstream import Pipeline, SinkBase, accumulate, decode_sse, parse_events
from turnstream.messages import AssistantMessage, RequestStart
from turnstream.operators.resilience import NO_RETRY
from turnstream.operators.stage import Operator
from turnstream.sinks.base import Policy
from turnstream.sources import SessionSource, resilient

EVENTS = [block + b"\n\n" for block in TEXT.split(b"\n\n")[:-1]]


def now() -> float:
    return asyncio.get_running_loop().time()


class Drip:
    """A server that sends ``steps`` of one stream: bytes, or seconds to be silent; then it hangs, or ends.

    Attributes:
        gone: the loop's time when the client let go of the connection.
    """

    def __init__(self, *steps: bytes | float, hang: bool = True) -> None:
        self.steps = steps
        self.hang = hang
        self.gone = asyncio.get_running_loop().create_future()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"content-type": "text/event-stream", "request-id": "req_drip"})
        try:
            await response.prepare(request)
            for step in self.steps:
                await (response.write(step) if isinstance(step, bytes) else asyncio.sleep(step))
            if self.hang:
                await asyncio.Event().wait()
            await response.write_eof()
        except asyncio.CancelledError:
            if not self.gone.done():
                self.gone.set_result(now())
            raise
        return response


class Tool(SinkBase):
    """Full for ``seconds`` from the second chunk on, as while a tool runs; lossless."""

    name = "tool"
    policy: Policy = "block"
    stall_timeout = None

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.until: float | None = None
        self.chunks = 0

    def on_next(self, batch: Sequence[Any], /) -> None:
        self.chunks += bool(batch.weight)  # type: ignore[attr-defined]
        if self.until is None and self.chunks == 2:
            self.until = now() + self.seconds

    def full(self) -> bool:
        return self.until is not None and now() < self.until

    async def room(self) -> None:
        assert self.until is not None
        await asyncio.sleep(self.until - now())


class Executor(SinkBase):
    """Starts each tool as it is finished, and counts."""

    name = "executor"

    def __init__(self) -> None:
        self.start: RequestStart | None = None
        self.started = 0

    def on_next(self, batch: Any, /) -> None:
        for item in batch:
            if isinstance(item, RequestStart):
                self.start = item
            elif isinstance(item, AssistantMessage):
                for block in item.message["content"]:
                    if block["type"] == "tool_use":
                        assert self.start is not None
                        self.start.committed = True
                        self.started += 1


# -- the ways in which a run takes a live source --------------------------------------------------------


def stages() -> Operator[bytes, Any]:
    return decode_sse() | parse_events() | accumulate()


def as_it_is(source: Any) -> Pipeline[Any]:
    return Pipeline(source).through(stages())


def in_session(source: Any) -> Pipeline[Any]:
    return Pipeline(SessionSource([source], lambda _: stages()))


def in_attempts(source: Any) -> Pipeline[Any]:
    return Pipeline(resilient(lambda start: source, lambda _: stages(), retry=NO_RETRY))


WAYS = [as_it_is, in_session, in_attempts]
