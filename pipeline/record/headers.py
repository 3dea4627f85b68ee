"""Headers on their way through: all but those that concern one connection only (RFC 9110 §7.6.1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from multidict import CIMultiDict

__all__ = ["answer_headers", "request_headers"]

_HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# Ours to say: the upstream's host is another, and whether a body may come is settled with each side alone.
_OURS: Final = frozenset({"host", "expect"})


def request_headers(headers: Any) -> CIMultiDict[str]:
    """What the upstream gets of a request's headers."""
    return _passed(headers, _HOP_BY_HOP | _OURS)


def answer_headers(headers: Any) -> CIMultiDict[str]:
    """What the client gets of an answer's headers, in their order, repeated ones too."""
    return _passed(headers, _HOP_BY_HOP)


def _passed(headers: Any, left_out: Iterable[str]) -> CIMultiDict[str]:
    from multidict import CIMultiDict

    left = set(left_out)
    for value in headers.getall("connection", ()):
        left.update(word.strip().lower() for word in value.split(","))
    # A message with both is framed by its transfer coding (RFC 9112 §6.3).
    if "transfer-encoding" in headers:
        left.add("content-length")
    else:
        left.discard("content-length")
    return CIMultiDict([(name, _sendable(value)) for name, value in headers.items() if name.lower() not in left])


def _sendable(value: str) -> str:
    """Bytes that are no UTF-8 were read as lone surrogates, which nobody can write: they are Latin-1 then."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogateescape").decode("latin-1")
    return value
