"""Texts without secrets: servers and gateways quote what they refuse."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["SECRET_HEADERS", "Quiet"]

SECRET_HEADERS: Final = frozenset(
    {"x-api-key", "authorization", "proxy-authorization", "cookie", "api-key", "x-amz-security-token"}
)
"""Headers whose values are shown nowhere; lower case."""

_KEEP_QUIET_FROM: Final = 4  # characters: shorter ones would black out half of every text


class Quiet:
    """Takes secrets out of a text.

    Args:
        secrets: them.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        # The longest first, so that none is left in half.
        self._secrets = sorted({s for s in secrets if len(s) >= _KEEP_QUIET_FROM}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """``text`` without them."""
        for secret in self._secrets:
            text = text.replace(secret, "[redacted]")
        return text

    def also(self, *secrets: str) -> Quiet:
        """One that keeps more to itself."""
        return Quiet([*self._secrets, *secrets])
