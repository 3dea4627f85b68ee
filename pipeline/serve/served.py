"""What a replay server remembers of a request: everything but secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

__all__ = ["ServedRequest", "without_secrets"]

_SECRET_WORDS: Final = ("key", "auth", "cookie", "token", "secret", "credential", "password", "signature")
_HIDDEN: Final = "[redacted]"


class ServedRequest(msgspec.Struct, kw_only=True, eq=False):
    """What came, and what became of it.

    Attributes:
        method: the HTTP method.
        path: without the query.
        headers: names in lower case; the values of those that may hold secrets are ``[redacted]``.
        body: as it came.
        status: of the reply, None before there is one.
        recording: the name of what was served, None without.
        fault: the text of the fault that it met, ``none`` without.
        stream: whether it asked for a stream.
        sent: bytes of the reply's body.
        ended: ``complete`` (as far as the fault let it), ``broken`` (the fault broke the connection), ``client gone``
            or ``server ended``; None while it goes on.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""
    status: int | None = None
    recording: str | None = None
    fault: str = "none"
    stream: bool = False
    sent: int = 0
    ended: str | None = None

    @property
    def json(self) -> Any:
        """The body as JSON.

        Raises:
            msgspec.DecodeError: it is none.
        """
        return msgspec.json.decode(self.body)


def without_secrets(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers, names in lower case; what may be a secret by its name is ``[redacted]``."""
    return {name.lower(): _shown(name.lower(), value) for name, value in headers.items()}


def _shown(name: str, value: str) -> str:
    return _HIDDEN if any(word in name for word in _SECRET_WORDS) else value
