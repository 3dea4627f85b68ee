"""A streaming histogram of durations: bounded memory, mergeable, percentiles within 4.5 %."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import ceil, floor, inf, log2
from operator import sub
from typing import Any, Final

__all__ = ["Histogram", "milliseconds"]

_PER_DOUBLING: Final = 8
_SHORTEST: Final = 1e-9
_ZERO: Final = -1_000
"""The bucket of durations below a nanosecond."""


def milliseconds(seconds: float) -> float:
    """Seconds as milliseconds with three digits: what reports show."""
    return round(seconds * 1000, 3)


def _bucket(seconds: float) -> int:
    return floor(log2(seconds) * _PER_DOUBLING) if seconds > _SHORTEST else _ZERO


class Histogram:
    """Durations in seconds, counted in buckets whose bounds grow by the eighth root of two.

    Count, sum and extremes are exact. A percentile is the middle of its bucket, so at most 4.5 % off
    (the bucket is 9 % wide), and never outside of what was counted. Durations from 1 ns to 300 years make at
    most 520 buckets; only those in use are held.
    """

    __slots__ = ("buckets", "count", "largest", "smallest", "total")

    def __init__(self) -> None:
        self.buckets: dict[int, int] = {}
        self.count = 0
        self.total = 0.0
        self.largest = 0.0
        self.smallest = inf

    def add(self, seconds: float) -> None:
        """Count one duration; a negative one (a clock that went back) counts as zero."""
        self.add_all([seconds])

    def add_gaps(self, times: Sequence[float]) -> None:
        """Count the gaps between neighbours of ``times``."""
        self.add_all(list(map(sub, times[1:], times)))

    def add_all(self, durations: Sequence[float]) -> None:
        """Count many durations; much cheaper than one by one, as most share a few buckets."""
        if not durations:
            return
        ordered = sorted(durations)
        if ordered[0] <= _SHORTEST:
            ordered = [seconds if seconds > _SHORTEST else 0.0 for seconds in ordered]
        size = len(ordered)
        self.count += size
        self.total += sum(ordered)
        self.largest = max(self.largest, ordered[-1])
        self.smallest = min(self.smallest, ordered[0])
        buckets = self.buckets
        start = 0
        while start < size:
            bucket = _bucket(ordered[start])
            end = bisect_left(ordered, _SHORTEST if bucket == _ZERO else 2 ** ((bucket + 1) / _PER_DOUBLING), start + 1)
            # The bound is rounded; who stands at it belongs where it belongs alone.
            while end < size and _bucket(ordered[end]) == bucket:
                end += 1
            while _bucket(ordered[end - 1]) != bucket:
                end -= 1
            buckets[bucket] = buckets.get(bucket, 0) + end - start
            start = end

    def merge(self, other: Histogram) -> None:
        """Add all of ``other``."""
        self.count += other.count
        self.total += other.total
        self.largest = max(self.largest, other.largest)
        self.smallest = min(self.smallest, other.smallest)
        for bucket, count in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count

    def copy(self) -> Histogram:
        """An independent copy."""
        copy = Histogram()
        copy.merge(self)
        return copy

    def percentile(self, percent: float) -> float | None:
        """The duration (seconds) that ``percent`` of all don't exceed, by nearest rank; None if empty."""
        if not self.count:
            return None
        rank = max(1, ceil(self.count * percent / 100))
        for bucket in sorted(self.buckets):
            rank -= self.buckets[bucket]
            if rank <= 0:
                return max(self.smallest, min(self.largest, 2 ** ((bucket + 0.5) / _PER_DOUBLING)))
        return self.largest  # pragma: no cover - the buckets sum up to count

    def report(self) -> dict[str, Any] | None:
        """``{count, mean_ms, p50_ms, p99_ms, max_ms}``, None if nothing was counted."""
        median, high = self.percentile(50), self.percentile(99)
        if median is None or high is None:
            return None
        return {
            "count": self.count,
            "mean_ms": milliseconds(self.total / self.count),
            "p50_ms": milliseconds(median),
            "p99_ms": milliseconds(high),
            "max_ms": milliseconds(self.largest),
        }
