"""What an answer cost: cumulative usage and the numbers in it (WIRE.md §1, usage)."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["PLAIN_TOKENS", "TOKENS", "merge_usage", "server_tools", "thinking_tokens", "token_counts"]

TOKENS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "thinking_tokens",
)
"""The token fields of reports, in order."""

PLAIN_TOKENS: Final = TOKENS[:-1]
"""Those that stand in the usage itself."""


def merge_usage(usage: dict[str, Any], news: Any) -> None:
    """Overwrite in ``usage`` what is present and not null in ``news``: an explicit 0 overwrites, null doesn't."""
    if not isinstance(news, dict):
        return
    for key, value in news.items():
        if value is not None:
            usage[key] = value
        else:
            usage.setdefault(key, None)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def token_counts(usage: dict[str, Any]) -> dict[str, int | None]:
    """The fields of :data:`TOKENS`, None where the usage doesn't say.

    Thinking tokens are part of the output tokens; they stand in ``output_tokens_details``, or, from
    gateways, as ``reasoning_tokens`` there or ``thinking_tokens`` beside it.
    """
    counts: dict[str, int | None] = {}
    for key in PLAIN_TOKENS:
        value = usage.get(key)
        counts[key] = value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
    counts["thinking_tokens"] = thinking_tokens(usage)
    return counts


def thinking_tokens(usage: dict[str, Any]) -> int | None:
    """How many of the output tokens were thinking, None where the usage doesn't say."""
    details = usage.get("output_tokens_details")
    if isinstance(details, dict):
        for key in ("thinking_tokens", "reasoning_tokens"):
            count = _count(details.get(key))
            if count is not None:
                return count
    return _count(usage.get("thinking_tokens"))


def server_tools(usage: dict[str, Any]) -> dict[str, int] | None:
    """The counters of ``server_tool_use`` (web_search_requests …), None if the usage has none."""
    value = usage.get("server_tool_use")
    if not isinstance(value, dict):
        return None
    return {str(key): count for key, count in value.items() if _count(count) is not None}
