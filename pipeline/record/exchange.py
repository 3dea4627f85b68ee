"""What the proxy says of one request and its answer: no word of it is the client's own, so none can be a secret."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["Exchange"]

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_PATHS: Final = frozenset({"/", "/v1/messages", "/v1/messages/count_tokens", "/v1/messages/batches", "/v1/models"})


class Exchange(msgspec.Struct, kw_only=True, eq=False):
    """One request that passed.

    Attributes:
        method: the HTTP method, ``other`` if it is a rare one.
        path: without the query; ``other`` if it isn't one of the API's well-known ones.
        status: of the answer, None before there is one.
        sent: bytes of the answer's body that were handed to the client.
        received: bytes of the request's body that were handed to the upstream.
        recording: the recording's name, None without one.
        ended: ``complete``, ``client gone``, ``upstream failed`` (before its answer: the client got a 502),
            ``upstream broke`` (inside of its answer), ``proxy ended``; None while it goes on.
        why: why there was no answer, None if there was one.
        notes: what the recorder dropped, in order; the last may come when the exchange is over.
    """

    method: str
    path: str
    status: int | None = None
    sent: int = 0
    received: int = 0
    recording: str | None = None
    ended: str | None = None
    why: str | None = None
    notes: list[str] = []

    @classmethod
    def of(cls, method: str, path: str) -> Exchange:
        """The exchange of a request."""
        return cls(method=method if method in _METHODS else "other", path=path if path in _PATHS else "other")

    def __str__(self) -> str:
        """One line."""
        parts = [f"{self.method} {self.path}: {self.status or 'no answer'}, {self.sent} bytes"]
        if self.recording is not None:
            parts.append(self.recording)
        if self.ended not in (None, "complete"):
            parts.append(str(self.ended))
        if self.why is not None:
            parts.append(self.why)
        return ", ".join(parts)
