"""What is tried again, how often, and after which wait (WIRE.md §7)."""

from __future__ import annotations

import math
from typing import Any, Final, TypeGuard

import msgspec

from turnstream.messages.types import ResponseFailed

__all__ = ["NO_RETRY", "RetryPolicy", "may_fall_back", "may_pass"]

# The status decides where there is one: a 400 stays a 400, whatever its body says.
_PASSING_STATUS: Final = frozenset({408, 409, 429})
_REFUSED: Final = range(400, 500)
_SERVER_FAULT: Final = 500
_OK: Final = 200


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often an attempt is made, and how long is waited in between.

    Attributes:
        tries: attempts in all, the first one included; 1 never tries again.
        initial: seconds before the second attempt; each further wait is twice as long.
        longest: seconds; no wait of ours is longer.
        jitter: waits vary by this share, up and down, so that clients don't come back all at once.
        longest_retry_after: seconds; a server's ``Retry-After`` counts up to this.
        total: seconds since the first failure in which a further attempt may begin; None for no limit.

    Raises:
        ValueError: a number that makes no sense.
    """

    tries: int = 10
    initial: float = 0.5
    longest: float = 32.0
    jitter: float = 0.25
    longest_retry_after: float = 120.0
    total: float | None = 600.0

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise ValueError(f"there is at least one try, not {self.tries}")
        if not 0 <= self.jitter < 1:
            raise ValueError(f"jitter is a share from 0 to below 1, not {self.jitter}")
        for name in ("initial", "longest", "longest_retry_after", "total"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} must be a number of seconds, not {value}")

    @property
    def retries(self) -> int:
        """How many attempts may follow the first one (``maxRetries``)."""
        return self.tries - 1

    def delay(self, retry: int, chance: float, retry_after: float | None = None) -> float:
        """Seconds to wait before a retry.

        Args:
            retry: its number, from 1.
            chance: from 0 to 1, evenly distributed: where in the jitter the wait is.
            retry_after: seconds that the server asked for; kept to up to the cap, and never shortened.
        """
        swing = 1 + self.jitter * (2 * chance - 1)
        if retry_after is not None and 0 < retry_after < math.inf:
            return min(retry_after, self.longest_retry_after) * max(1.0, swing)
        # 2 ** 1024 is no float; no wait doubles that often.
        return min(self.initial * 2.0 ** min(retry - 1, 64), self.longest) * swing


NO_RETRY: Final = RetryPolicy(tries=1)
"""One attempt, whatever becomes of it."""


def may_pass(failed: ResponseFailed) -> bool:
    """Whether the same request may succeed later.

    Transport errors, timeouts, incomplete answers, overload, 408, 409, 429, 5xx, and protocol errors that say so;
    never another 4xx.
    """
    error = failed.error
    status = error.get("status")
    if _is_status(status) and status > _OK:
        if status in _PASSING_STATUS or status >= _SERVER_FAULT:
            return True
        if status in _REFUSED:
            return False
    return error.get("retryable") is True


def may_fall_back(failed: ResponseFailed) -> bool:
    """Whether another kind of request (not streaming, another model) may succeed where this one failed.

    What may pass, what is no stream of the API, and what broke the protocol; not what the API refuses.
    """
    if may_pass(failed):
        return True
    if _is_status(failed.error.get("status")) and failed.error["status"] in _REFUSED:
        return False
    return failed.outcome == "not_a_stream" or failed.outcome.startswith("protocol_error(")


def _is_status(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
