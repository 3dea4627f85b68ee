"""Notices that a client has gone while nobody reads from it: then asyncio doesn't look at its socket."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable

__all__ = ["HangupWatch"]


class HangupWatch:
    """Calls back once when the other side of a connection closes or resets it, whatever of its bytes is unread.

    Backpressure stops reading, and with it goes all that asyncio would learn from the socket. The kernel still
    knows (``EPOLLRDHUP``). On Linux only; elsewhere it never calls back.

    Args:
        transport: the connection.
        on_gone: called in the loop, at most once.
    """

    def __init__(self, transport: asyncio.BaseTransport, on_gone: Callable[[], None]) -> None:
        self._on_gone = on_gone
        self._close: Callable[[], None] | None = None
        if sys.platform == "linux":
            import select

            connection = transport.get_extra_info("socket")
            if connection is None or connection.fileno() < 0:
                return
            # An epoll of its own can be watched by every loop, and a socket that a transport has can't.
            watched = select.epoll(1)
            watched.register(connection.fileno(), select.EPOLLRDHUP)
            loop = asyncio.get_running_loop()
            number = watched.fileno()
            loop.add_reader(number, self._gone)

            def close() -> None:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.remove_reader(number)
                watched.close()

            self._close = close

    def _gone(self) -> None:
        self.close()
        self._on_gone()

    def close(self) -> None:
        """Watch no more. Idempotent."""
        close, self._close = self._close, None
        if close is not None:
            close()
