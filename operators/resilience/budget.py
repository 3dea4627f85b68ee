"""A retry budget that all requests to one host share, so that many clients don't bury a host that is down."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final
from urllib.parse import urlsplit

__all__ = ["RetryBudget", "host_budget"]

_HOSTS: Final = 1000


class RetryBudget:
    """Tokens: each retry takes one; each complete answer, and time, give some back.

    First attempts and fallbacks are free. Time is the caller's (monotonic seconds); one that goes back, as with
    another loop's clock, gives nothing.

    Args:
        capacity: tokens at most, and at first.
        per_answer: tokens that a complete answer gives back.
        per_second: tokens that a second gives back.

    Attributes:
        tokens: how many there are.
        refused: how many retries were refused.
    """

    def __init__(self, capacity: float = 100.0, *, per_answer: float = 1.0, per_second: float = 1 / 6) -> None:
        if capacity < 0 or per_answer < 0 or per_second < 0:
            raise ValueError("a budget's numbers aren't negative")
        self._capacity = capacity
        self._per_answer = per_answer
        self._per_second = per_second
        self._at: float | None = None
        self.tokens = capacity
        self.refused = 0

    def __repr__(self) -> str:
        return f"<RetryBudget {self.tokens:g} of {self._capacity:g}>"

    def take(self, now: float) -> bool:
        """Take one for a retry; False if there is none."""
        self._pass(now)
        if self.tokens < 1:
            self.refused += 1
            return False
        self.tokens -= 1
        return True

    def answered(self, now: float) -> None:
        """An answer of this host was complete."""
        self._pass(now)
        self.tokens = min(self._capacity, self.tokens + self._per_answer)

    def _pass(self, now: float) -> None:
        if self._at is not None and now > self._at:
            self.tokens = min(self._capacity, self.tokens + (now - self._at) * self._per_second)
        self._at = now


_budgets: OrderedDict[str, RetryBudget] = OrderedDict()


def host_budget(url: str) -> RetryBudget:
    """The process's budget of the host (and port) that ``url`` names; the least used of 1,000 hosts is forgotten."""
    host = urlsplit(url).netloc.rpartition("@")[2].lower()
    budget = _budgets.get(host)
    if budget is None:
        budget = _budgets[host] = RetryBudget()
        if len(_budgets) > _HOSTS:
            _budgets.popitem(last=False)
    _budgets.move_to_end(host)
    return budget
