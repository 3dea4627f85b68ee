"""Sessions of aiohttp, set up for answers that take long and come slowly."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from aiohttp import ClientSession

__all__ = ["drop_unsent", "reset_at_close", "shared_session", "watch_transport"]

_NO_LINGER: Final = struct.pack("ii", 1, 0)

_watched: ContextVar[list[Any] | None] = ContextVar("turnstream_transports", default=None)


def shared_session() -> ClientSession:
    """A session for many requests: a connection whose answer was read to its end serves the next one.

        async with shared_session() as session:
            source = from_request(request, session=session)

    It keeps no cookies and waits for no free place in a pool (that would count as connecting). To be made in a
    running loop; it is its owner's to close.
    """
    import aiohttp

    class Connector(aiohttp.TCPConnector):
        """Tells who asks for a connection which one it is: before the answer comes, aiohttp doesn't."""

        async def connect(self, *args: Any, **options: Any) -> Any:
            connection = await super().connect(*args, **options)
            watched = _watched.get()
            if watched is not None:
                watched[:] = [connection.transport]
            return connection

    return aiohttp.ClientSession(
        connector=Connector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
    )


@contextlib.contextmanager
def watch_transport(found: list[Any]) -> Iterator[None]:
    """While it is entered, ``found`` gets the transport that a request of a :func:`shared_session` goes out by."""
    token = _watched.set(found)
    try:
        yield
    finally:
        _watched.reset(token)


def drop_unsent(found: list[Any]) -> None:
    """Cut off a request that is given up and that the server hasn't read: closed only, it would go out to its end."""
    for transport in found:
        if transport is not None and transport.get_write_buffer_size():
            reset_at_close(transport)  # else the kernel would go on sending what it has
            transport.abort()
    found.clear()


def reset_at_close(transport: asyncio.BaseTransport) -> None:
    """Let the other side see a reset when the connection is closed; what the kernel still holds is dropped then."""
    connection: socket.socket | None = transport.get_extra_info("socket")
    if connection is not None:
        with contextlib.suppress(OSError):  # it is gone already
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
