"""Bytes of a response at the moment they arrive.

A task that awaits them is woken by the loop's next turn: a future, a callback, another look at the selector, for each
small event. So a listener is put between the response's connection and its protocol, which still does all
the work: it reads, decodes and keeps; whoever listens takes what the protocol has decoded, in the same turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from turnstream.operators.batch import Batch
from turnstream.sources.base import CHUNK_SIZE, Taker, cut

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from turnstream.flow.clocks import WaitClock

__all__ = ["Tap"]


def _protocol_of(transport: Any) -> Any:
    """Who listens to a transport; None where it has let go of its parts, as that of TLS does before it closes."""
    try:
        return transport.get_protocol()
    except (AttributeError, NotImplementedError):
        return None


def _nobody(_: Callable[[], None]) -> None:
    """Calls nothing: no context, or no more."""


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
        self._read = response.content.read_nowait
        self._transport = transport
        self._protocol = protocol
        self._received = protocol.data_received
        self._clock: WaitClock | None = clock
        self._counts = clock.counts
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._pieces: deque[bytes] = deque()
        self._taker: Taker | None = None
        self._run: Callable[[Callable[[], None]], None] = _nobody
        self._waiter: asyncio.Future[bool] | None = None
        self._taking = False
        self._ended = False  # the body, or the connection

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
        protocol = _protocol_of(transport)
        if protocol is None or response.content.is_eof() or not hasattr(transport, "set_protocol"):
            return None
        tap = cls(response, transport, protocol, clock, received)
        # At the body's end the connection goes back to its pool, for the next request.
        response.content.on_eof(tap._at_end)
        transport.set_protocol(tap)
        return tap

    def _at_end(self) -> None:
        self._ended = True
        self._hand_back()

    def _hand_back(self) -> None:
        transport: Any = self._transport
        self._transport = None
        if _protocol_of(transport) is self:
            transport.set_protocol(self._protocol)

    def remove(self) -> None:
        """Listen no longer, and hold nothing."""
        self._hand_back()
        self._clock = self._taker = None
        self._run = _nobody
        self._pieces.clear()

    async def pass_on(self, taker: Taker, context: Context | None) -> bool:
        """Hand over what is here and what comes, until there is a reason to stop.

        Args:
            taker: takes it.
            context: what it is called in while this waits.

        Returns:
            Whether the body is at its end, or broken (who reads on, learns which); False: the taker has enough for now.
        """
        self._taker = taker
        # What the taker starts is to run as if the task that waits had started it.
        self._run = (context if context is not None else copy_context()).run
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._waiter = waiter
        try:
            self._hand_over()
            return await waiter
        finally:
            self._waiter = None
            if self._clock is not None:
                self._clock.since = None

    def end(self) -> None:
        """Stop handing over: whoever waits reads on, and learns why."""
        self._ended = True
        if self._waiter is not None and not self._waiter.done() and not self._taking:
            self._waiter.set_result(True)

    def _hand_over(self) -> None:
        """Give the taker what is here; in the context of the task that waits."""
        waiter, taker, clock = self._waiter, self._taker, self._clock
        if waiter is None or taker is None or clock is None or self._taking or waiter.done():
            return
        self._taking = True
        at = self._time()
        if self._counts and clock.since is not None:
            clock.waited += at - clock.since
            clock.since = None
        content = self._content
        pieces = self._pieces
        more = True
        try:
            while more:
                if pieces:
                    chunk = pieces.popleft()
                elif content.total_bytes == self.received:
                    break
                else:
                    try:
                        # It may make the protocol decode on, so there may be more behind it.
                        chunk = self._read()
                    except Exception:  # noqa: BLE001 - the connection's error, or the body's; who reads on gets it
                        break
                    size = len(chunk)
                    self.received += size
                    if size > CHUNK_SIZE:
                        pieces.extend(cut(chunk))
                        continue
                more = taker(Batch((chunk,), at, None, len(chunk))) and not waiter.done()
        except Exception as error:  # noqa: BLE001 - a taker isn't to raise; the connection has nothing to do with it
            if not waiter.done():
                waiter.set_exception(error)
            return
        finally:
            self._taking = False
        if more and not self._ended and content.exception() is None:
            # Nobody looks at the clock before this returns, so what the taker took of the time is no waiting.
            clock.since = self._time()
        elif not waiter.done():
            waiter.set_result(more)

    # -- the protocol's calls -------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Let the protocol have it, then take what it made of it."""
        self._received(data)
        if self._waiter is not None:
            self._run(self._hand_over)

    def eof_received(self) -> bool | None:
        """The peer sends no more."""
        keep_open: bool | None = self._protocol.eof_received()
        if self._waiter is not None:
            self._run(self._hand_over)
        return keep_open

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone; the protocol makes the end of a body, or an error, of that."""
        self._protocol.connection_lost(exc)
        self._ended = True
        if self._waiter is not None:
            self._run(self._hand_over)

    def pause_writing(self) -> None:
        """The request is still going out."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """The request goes on."""
        self._protocol.resume_writing()
