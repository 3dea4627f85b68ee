"""Sessions of aiohttp, set up for answers that take long and come slowly."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import ClientSession

__all__ = ["shared_session"]


def shared_session() -> ClientSession:
    """A session for many requests: a connection whose answer was read to its end serves the next one.

        async with shared_session() as session:
            source = from_request(request, session=session)

    It keeps no cookies and waits for no free place in a pool (that would count as connecting). To be made in a
    running loop; it is its owner's to close.
    """
    import aiohttp

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
    )
