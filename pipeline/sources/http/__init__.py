"""A live answer over HTTP: one request, its bytes as they come (DESIGN.md §4, WIRE.md §7).

One request, sent once: retries are :mod:`turnstream.sources.resilient`'s. Who reads slowly slows down the server:
nothing is read ahead but 64 KiB here and what the kernel buffers.

- :func:`from_request` → :class:`HTTPSource`; :func:`shared_session` for connections that several of them use.
- :func:`when_answered`, :func:`decode_answer`: stages that need what the response says.
"""

from turnstream.sources.http.answered import decode_answer, when_answered
from turnstream.sources.http.limits import rate_limits, retry_after
from turnstream.sources.http.request import from_request
from turnstream.sources.http.sessions import shared_session
from turnstream.sources.http.source import HTTPSource

__all__ = [
    "HTTPSource",
    "decode_answer",
    "from_request",
    "rate_limits",
    "retry_after",
    "shared_session",
    "when_answered",
]
