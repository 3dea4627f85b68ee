"""The histogram's promises: exact count, sum and maximum; percentiles within 4.5 %; bounded."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstream.sinks.metrics.histogram import Histogram

durations = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=200)


@settings(max_examples=100, deadline=None)
@given(durations, st.sampled_from([1, 50, 90, 99, 100]))
def test_percentiles_by_nearest_rank(values: list[float], percent: int) -> None:
    histogram = Histogram()
    histogram.add_all(values)
    exact = sorted(values)[max(1, math.ceil(len(values) * percent / 100)) - 1]
    assert histogram.percentile(percent) == pytest.approx(exact, rel=0.045)
    assert histogram.count == len(values)
    assert histogram.largest == max(values)
    assert histogram.total == pytest.approx(sum(values))


@settings(max_examples=60, deadline=None)
@given(durations, durations)
def test_merging_is_counting_both(one: list[float], other: list[float]) -> None:
    first, second, both = Histogram(), Histogram(), Histogram()
    first.add_all(one)
    second.add_all(other)
    both.add_all([*one, *other])
    copy = first.copy()
    copy.merge(second)
    assert (copy.buckets, copy.count, copy.largest) == (both.buckets, both.count, both.largest)
    assert first.count == len(one)


def test_buckets_are_bounded() -> None:
    histogram = Histogram()
    histogram.add_all([10 ** (n / 1000) for n in range(-9_000, 10_000)])
    assert len(histogram.buckets) <= 520


def test_zero_and_backwards() -> None:
    histogram = Histogram()
    histogram.add_gaps([5.0, 5.0, 4.0, 6.0])
    assert histogram.report() == {"count": 3, "mean_ms": 666.667, "p50_ms": 0.0, "p99_ms": 2000.0, "max_ms": 2000.0}


def test_nothing() -> None:
    histogram = Histogram()
    histogram.add_gaps([1.0])
    histogram.add_all([])
    assert histogram.report() is None
    assert histogram.percentile(50) is None
