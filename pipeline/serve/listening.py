"""A listening socket of a server that may be cancelled at any point: nothing it accepted is let fall."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from aiohttp import web

__all__ = ["finish", "listen", "stop_listening"]

_TURNS: Final = 3  # of the loop, that a new connection needs until it is known


async def listen(server: web.Server, host: str, port: int) -> tuple[asyncio.Server, str]:
    """Listen for ``server``; returns the listener, which accepts nothing yet, and the URL.

    Not a site of aiohttp's: cancelled while it starts, that leaves the socket open.

    Raises:
        OSError: the address can't be had.
    """
    listener = await asyncio.get_running_loop().create_server(server, host, port, start_serving=False)
    address = listener.sockets[0].getsockname()
    shown = f"[{address[0]}]" if ":" in address[0] else address[0]
    return listener, f"http://{shown}:{address[1]}"


async def stop_listening(listener: asyncio.Server) -> None:
    """Accept no more connections, and close the socket.

    Who was let in a moment ago must be through the door before it is closed: asyncio (3.11, 3.12) lets such a
    socket fall.
    """
    loop = asyncio.get_running_loop()
    for listening in listener.sockets:
        with contextlib.suppress(NotImplementedError):
            loop.remove_reader(listening)
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    listener.close()


async def finish(closing: asyncio.Task[None], on_cancel: Callable[[], None] | None = None) -> None:
    """Wait until ``closing`` is done, also when cancelled meanwhile; the cancellation is raised then.

    Args:
        closing: what must come to its end.
        on_cancel: is called at each cancellation.
    """
    cancelled: asyncio.CancelledError | None = None
    while not closing.done():
        try:
            await asyncio.wait([closing])
        except asyncio.CancelledError as error:
            cancelled = error
            if on_cancel is not None:
                on_cancel()
    if cancelled is not None:
        raise cancelled
    closing.result()
