"""What a response's headers say about limits: how much is left, and when to come again."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from turnstream.messages.types import StreamNote

__all__ = ["limits_note", "rate_limits", "retry_after"]

_NAME: Final = re.compile(r"(?:anthropic|x)-ratelimit-([a-z0-9-]+)-(limit|remaining|reset|status)")
# The other order, as some gateways have it: x-ratelimit-remaining-requests.
_OTHER_NAME: Final = re.compile(r"x-ratelimit-(limit|remaining|reset)-([a-z0-9-]+)")
_WHOLE: Final = re.compile(r"[0-9]{1,18}")


def rate_limits(headers: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The rate limits that the headers name, by what is limited (``requests``, ``input_tokens`` …).

    Each has what was said of ``limit`` and ``remaining`` (numbers) and ``reset`` (as it was: RFC 3339, or
    seconds). A set that isn't closed: what is called like these comes along.
    """
    found: dict[str, dict[str, Any]] = {}
    for key, value in headers.items():
        name = key.lower()
        if (match := _NAME.fullmatch(name)) is not None:
            what, field = match.groups()
        elif (match := _OTHER_NAME.fullmatch(name)) is not None:
            field, what = match.groups()
        else:
            continue
        number = field in ("limit", "remaining") and _WHOLE.fullmatch(value)
        found.setdefault(what.replace("-", "_"), {})[field] = int(value) if number else value
    return found


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds to wait before the next try, None if the headers don't say so in a way that can be read.

    Args:
        headers: ``retry-after-ms`` goes before ``retry-after`` (seconds, or an HTTP date); case doesn't matter if
            the mapping's doesn't.
        now: the wall clock's time, for a date; default now.
    """
    exact = _seconds(headers.get("retry-after-ms"))
    if exact is not None:
        return exact / 1000
    value = headers.get("retry-after")
    seconds = _seconds(value)
    if seconds is not None or value is None:
        return seconds
    try:
        then = parsedate_to_datetime(value)
    except ValueError:
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return max((then - (now or datetime.now(UTC))).total_seconds(), 0.0)


def _seconds(value: str | None) -> float | None:
    try:
        seconds = float(value or "")
    except ValueError:
        return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def limits_note(limits: Mapping[str, Mapping[str, Any]], wait: float | None, request_id: str | None) -> StreamNote:
    """The item that says so: kind ``rate_limit``, the rest in ``rateLimits``, ``retryAfter`` and ``requestId``."""
    said = [
        f"{each['remaining']}{f' of {limit}' if (limit := each.get('limit')) is not None else ''} {what.replace('_', ' ')} left"
        for what, each in limits.items()
        if "remaining" in each
    ]
    if wait is not None:
        said.append(f"retry after {wait:g} s")
    extra: dict[str, Any] = {"rateLimits": {what: dict(each) for what, each in limits.items()}}
    if wait is not None:
        extra["retryAfter"] = wait
    if request_id is not None:
        extra["requestId"] = request_id
    return StreamNote(kind="rate_limit", message=", ".join(said) or "the response names rate limits", extra=extra)
