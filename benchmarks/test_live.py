"""What live streams cost: the tables of `turnstream bench --workload live`, over loopback.

Figures depend on the machine and on what else it does, so nothing fails here for being slow.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from turnstream.bench import Report, render, run


@cache
def report() -> Report:
    return run(["live"])


@pytest.mark.bench
def test_tables(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything, full size: about four minutes."""
    benchmark.pedantic(report, rounds=1)
    benchmark.extra_info["checks"] = {check.what: check.value for check in report().checks}
    with capsys.disabled():
        print("\n" + render(report()))


@pytest.mark.bench
def test_an_event_came_alone() -> None:
    """What is measured is what is meant: one event a read, or the figures are of something else."""
    live = report().live
    assert live is not None
    assert [each.client for each in live.costs if each.events_per_read > 1.1] == []
