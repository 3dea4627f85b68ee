"""What a request says in confidence, and recordings without it: also where the upstream, or the body, repeats it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl

__all__ = ["HIDDEN", "Masker", "secrets_of", "without_tokens"]

HIDDEN: Final = b"[redacted]"

_NAMES: Final = re.compile(r"key|authorization|token|secret|credential|passw", re.IGNORECASE)
# Anything shorter is a flag or a number, and would be taken out of texts that have nothing to do with it.
_SHORTEST: Final = 16
# The one place where the Messages API itself takes a secret: mcp_servers[].authorization_token.
_TOKEN_FIELD: Final = b'"authorization_token"'
_TOKEN: Final = re.compile(rb'("authorization_token"\s*:\s*")(?:[^"\\]|\\.)*(?=")', re.DOTALL)


def secrets_of(headers: Mapping[str, str], target: str) -> tuple[bytes, ...]:
    """The keys and tokens of a request, the longest first.

    Args:
        headers: the request's; those that hold a secret by their name count, without ``Bearer`` and the like.
        target: its path and query; likewise the query's fields.
    """
    fields: list[tuple[str, str]] = list(headers.items())
    try:
        fields += parse_qsl(target.partition("?")[2])
    except ValueError:
        pass  # it has too many fields to be one of the API's
    found = {
        secret.encode("utf-8", "surrogateescape")
        for name, value in fields
        if _NAMES.search(name)
        if len(secret := value.strip().rpartition(" ")[2]) >= _SHORTEST
    }
    return tuple(sorted(found, key=len, reverse=True))


def without_tokens(body: bytes, secrets: Iterable[bytes]) -> bytes:
    """A request's body without ``secrets``, and without the tokens that it may hold for other servers."""
    if _TOKEN_FIELD in body:
        body = _TOKEN.sub(rb"\1" + HIDDEN, body)
    for secret in secrets:
        body = body.replace(secret, HIDDEN)
    return body


class Masker:
    """Takes secrets out of a stream, wherever it is cut.

    Args:
        secrets: what is taken out; see :func:`secrets_of`.
    """

    def __init__(self, secrets: Iterable[bytes]) -> None:
        self._secrets = tuple(secrets)
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """The next bytes; an end that may be a secret's beginning is kept back."""
        if not self._secrets:
            return data
        data = self._rest + data
        for secret in self._secrets:
            if secret in data:
                data = data.replace(secret, HIDDEN)
        keep = max(_begun(data, secret) for secret in self._secrets)
        cut = len(data) - keep
        self._rest = data[cut:]
        return data[:cut]

    def end(self) -> bytes:
        """What was kept back."""
        rest, self._rest = self._rest, b""
        return rest


def _begun(data: bytes, secret: bytes) -> int:
    """How many bytes at the end of ``data`` are the beginning of ``secret``."""
    at = max(0, len(data) - len(secret) + 1)
    while (at := data.find(secret[:1], at)) >= 0:
        if secret.startswith(data[at:]):
            return len(data) - at
        at += 1
    return 0
