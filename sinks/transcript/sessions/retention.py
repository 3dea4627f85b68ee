"""Which sessions go: by age, by number, by size. Nothing here touches a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from turnstream.sinks.transcript.sessions.info import SessionInfo

__all__ = ["choose"]


def choose(
    sessions: Sequence[SessionInfo],
    *,
    now: float,
    older_than: float | None = None,
    keep: int | None = None,
    max_size: int | None = None,
    size_of: Callable[[SessionInfo], int] = lambda info: info.size,
) -> list[tuple[SessionInfo, str]]:
    """The sessions that go, and why, the least active first.

    The ``keep`` last active ones stay in any case. Of the others go those whose last activity is more than
    ``older_than`` ago, then the least active ones until all that are left take at most ``max_size``; all of them if
    neither is given. Without any of the three nothing goes.

    Args:
        sessions: all of them.
        now: seconds since 1970.
        older_than: seconds.
        keep: how many.
        max_size: bytes.
        size_of: what a session takes, bytes.

    Raises:
        ValueError: a negative number.
    """
    if any(value is not None and value < 0 for value in (older_than, keep, max_size)):
        raise ValueError("what is kept can't be negative")
    if older_than is None and keep is None and max_size is None:
        return []
    ordered = sorted(sessions, key=lambda info: (info.active_at, info.session_id))
    candidates = ordered[: max(0, len(ordered) - (keep or 0))]
    if older_than is None and max_size is None:
        return [(info, f"not among the last {keep}") for info in candidates]
    chosen = []
    left = sum(map(size_of, ordered)) if max_size is not None else 0
    for info in candidates:
        age = now - info.active_at
        if older_than is not None and age > older_than:
            chosen.append((info, f"last active {_days(age)} ago"))
        elif max_size is not None and left > max_size:
            chosen.append((info, "the sessions take more than they may"))
        else:
            continue
        left -= size_of(info) if max_size is not None else 0
    return chosen


def _days(seconds: float) -> str:
    days = seconds / 86400
    return f"{days:.0f} days" if days >= 2 else f"{seconds / 3600:.0f} hours"
