"""Bytes of a response at the moment they arrive.

A task that awaits them is woken by the loop's next turn: a future, a callback, another look at the selector, half of
what a small event costs. So a listener is put between the response's connection and its protocol, which still does all
the work: it reads, decodes and keeps; whoever listens takes what the protocol has decoded, in the same turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from turnstream.operators.batch import Batch
from turnstream.sources.base import CHUNK_SIZE, Taker, cut

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from turnstream.flow.clocks import WaitClock

__all__ = ["Tap"]


class Tap(asyncio.Protocol):
    """Listens to the connection of one response, made by :meth:`on`.

    Attributes:
        received: bytes of the body that were read.
    """

    def __init__(
        self, response: ClientResponse, transport: Any, protocol: Any, clock: WaitClock, received: int
    ) -> None:
        self.received = received
        self._content = response.content
        self._transport = transport
        self._protocol = protocol
        self._received = protocol.data_received
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._pieces: deque[bytes] = deque()
        self._taker: Taker | None = None
        self._in_context: Callable[[], None] = self._hand_over
        self._waiter: asyncio.Future[bool] | None = None
        self._taking = False

    @classmethod
    def on(cls, response: ClientResponse, clock: WaitClock, received: int) -> Tap | None:
        """Listen to the connection of a response, None if that can't be: its body is here already, as a rule.

        Args:
            response: of which nobody reads elsewhere.
            clock: told when bytes are waited for.
            received: bytes of the body that were read before.
        """
        connection = response.connection
        transport: Any = None if connection is None else connection.transport
        if transport is None or not hasattr(transport, "set_protocol"):
            return None
        tap = cls(response, transport, transport.get_protocol(), clock, received)
        # At the body's end the connection goes back to its pool, for the next request.
        response.content.on_eof(tap.remove)
        if response.content.is_eof():
            return None
        transport.set_protocol(tap)
        return tap

    def remove(self) -> None:
        """Listen no longer; idempotent."""
        transport, self._transport = self._transport, None
        if transport is not None and transport.get_protocol() is self:
            transport.set_protocol(self._protocol)

    async def pass_on(self, taker: Taker) -> bool:
        """Hand over what is here and what comes, until there is a reason to stop.

        Returns:
            Whether the body is at its end, or broken (who reads on, learns which); False: the taker has enough for now.
        """
        self._taker = taker
        # What the taker starts is to run as if the task that waits had started it.
        self._in_context = partial(copy_context().run, self._hand_over)
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._waiter = waiter
        try:
            self._hand_over()
            return await waiter
        finally:
            self._waiter = None
            self._clock.since = None

    def end(self) -> None:
        """Stop handing over: whoever waits reads on, and learns why."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    def _hand_over(self) -> None:
        """Give the taker what is here; in the context of the task that waits."""
        waiter, taker = self._waiter, self._taker
        if waiter is None or taker is None or waiter.done() or self._taking:
            return
        self._taking = True
        clock = self._clock
        at = self._time()
        if clock.since is not None:
            clock.waited += at - clock.since
            clock.since = None
        content = self._content
        more = True
        while more and (self._pieces or content.total_bytes != self.received):
            if self._pieces:
                chunk = self._pieces.popleft()
            else:
                try:
                    # It may make the protocol decode on, so there may be more behind it.
                    chunk = content.read_nowait()
                except Exception:  # noqa: BLE001 - the connection's error, or the body's; who reads on gets it
                    break
                self.received += len(chunk)
                if len(chunk) > CHUNK_SIZE:
                    self._pieces.extend(cut(chunk))
                    continue
            try:
                more = taker(Batch((chunk,), at, None, len(chunk)))
            except Exception as error:  # noqa: BLE001 - it isn't to; the connection has nothing to do with it
                if not waiter.done():
                    waiter.set_exception(error)
                break
        self._taking = False
        if waiter.done():
            return  # the taker had the wait cancelled
        if not more:
            waiter.set_result(False)
        elif self._transport is None or content.exception() is not None:
            waiter.set_result(True)
        else:
            clock.since = self._time()

    # -- the protocol's calls -------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Let the protocol have it, then take what it made of it."""
        self._received(data)
        if self._waiter is not None:
            self._in_context()

    def eof_received(self) -> bool | None:
        """The peer sends no more."""
        keep_open: bool | None = self._protocol.eof_received()
        if self._waiter is not None:
            self._in_context()
        return keep_open

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone; the protocol makes the end of a body, or an error, of that."""
        self._protocol.connection_lost(exc)
        if self._waiter is not None:
            self._in_context()
        self.end()

    def pause_writing(self) -> None:
        """The request is still going out."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """The request goes on."""
        self._protocol.resume_writing()
