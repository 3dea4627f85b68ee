"""Takes the steps of an answer over a connection: writes, waits on the loop's clock, ends it as it shall end."""

from __future__ import annotations

import asyncio
import math
import socket
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

from turnstream.serve.steps import End, Send, Step, Wait
from turnstream.sources.http.sessions import reset_at_close

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["Writer", "flushed", "forever", "let_go"]

_YIELD_EVERY: Final = 64
"""Writes without a wait, after which others get their turn."""
_GRACE: Final = 0.1
"""Seconds before a connection is broken: the client shall have what was sent, and lose only what wasn't."""
_PATIENCE: Final = 5.0
"""Seconds for which such a connection may be full, because nobody reads."""
_CLOSING: Final = 0.5
"""Seconds that a client has at the server's end to read what it was sent."""
_POLL: Final = 0.01


async def forever() -> None:
    """Wait until the task is cancelled: the client goes, or the server ends."""
    await asyncio.get_running_loop().create_future()


async def flushed(request: web.BaseRequest) -> None:
    """Return once the kernel has what was written, or the connection is gone."""
    while (transport := request.transport) is not None and transport.get_write_buffer_size():  # noqa: ASYNC110
        await asyncio.sleep(_POLL)


async def let_go(transports: Iterable[asyncio.Transport]) -> None:
    """Return once no closing connection holds anything: who doesn't read what is left in time is cut off."""
    open_ = [transport for transport in transports if transport.get_write_buffer_size()]
    if not open_:
        return
    loop = asyncio.get_running_loop()
    patience = loop.time() + _CLOSING
    while loop.time() < patience and any(transport.get_write_buffer_size() for transport in open_):  # noqa: ASYNC110
        await asyncio.sleep(_POLL)
    for transport in open_:
        if transport.get_write_buffer_size():
            transport.abort()
    await asyncio.sleep(0)  # that is done in the loop's next turn


class Account(Protocol):
    """Whoever wants to know how many bytes of body were sent."""

    sent: int


class Writer:
    """Writes one answer.

    Args:
        request: whose connection it is.
        response: where it goes; it was prepared.
        start: the loop's time when the request came.
        account: where what is sent is counted.
    """

    def __init__(self, request: web.BaseRequest, response: web.StreamResponse, start: float, account: Account) -> None:
        self._request = request
        self._response = response
        self._start = start
        self._account = account

    async def perform(self, steps: Iterable[Step]) -> None:
        """Take the steps.

        Raises:
            ConnectionError: the client is gone, or the last step broke the connection.
        """
        writes = 0
        for step in steps:
            if isinstance(step, Send):
                await self._write(step.data)
                writes += 1
                if writes % _YIELD_EVERY == 0:
                    await asyncio.sleep(0)
            elif isinstance(step, Wait):
                await self._wait(step)
            else:
                await _end(step, self._request, self._response)

    async def _write(self, data: bytes) -> None:
        self._account.sent += len(data)
        await self._response.write(data)

    async def _wait(self, step: Wait) -> None:
        now = asyncio.get_running_loop().time
        end = math.inf
        if step.until is not None:
            end = self._start + step.until
        elif step.seconds is not None:
            end = now() + step.seconds
        if step.every is not None:
            due = now() + step.every
            while due < end:
                await asyncio.sleep(due - now())
                await self._write(step.sign)
                due += step.every
        if end == math.inf:
            await forever()
        elif end > now():
            await asyncio.sleep(end - now())


async def _end(step: End, request: web.BaseRequest, response: web.StreamResponse) -> None:
    if step.how == "eof":
        await response.write_eof()
        return
    transport = request.transport
    if transport is None:
        raise ConnectionResetError("the client is gone")
    loop = asyncio.get_running_loop()
    patience = loop.time() + _PATIENCE
    connection = transport.get_extra_info("socket")
    while loop.time() < patience and (transport.get_write_buffer_size() or _unsent(connection)):  # noqa: ASYNC110
        await asyncio.sleep(_POLL)
    await asyncio.sleep(_GRACE)
    if step.how == "reset":
        reset_at_close(transport)
        transport.abort()
    else:
        transport.close()
    raise ConnectionResetError("the fault asked for it")


def _unsent(connection: socket.socket | None) -> int:
    """Bytes that the kernel still holds for the client; a reset would take them away. Known on Linux only."""
    if connection is None or sys.platform != "linux":
        return 0
    import fcntl
    import termios

    try:
        return int.from_bytes(fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    except OSError:
        return 0
