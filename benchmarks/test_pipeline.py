"""How fast bytes become messages: the table of `turnstream bench`, and cases for `--benchmark-compare`.

Figures depend on the machine and on what else it does, so nothing fails here for being slow; what is asserted
is that the yardstick is a fair one.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from turnstream.bench import FLOORS, OURS, Contender, Given, Report, finish, given, make_workload, render, run

ROUNDS = 5
SHARE = 0.2
"""Of the full workloads, for the single cases."""

CASES = (FLOORS[0], *OURS)


@cache
def report() -> Report:
    return run(rounds=ROUNDS)


@cache
def what(name: str, size: int) -> Given:
    return given(make_workload(name, scale=SHARE), size)


@pytest.mark.bench
def test_ratios(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """All workloads in both chunkings, full size, interleaved."""
    benchmark.pedantic(report, rounds=1)
    benchmark.extra_info["checks"] = {check.what: check.value for check in report().checks}
    with capsys.disabled():
        print("\n" + render(report()))


@pytest.mark.bench
def test_the_floor_is_no_easy_one() -> None:
    """The plain loop costs at most 3.3 times what orjson alone costs on A."""
    (check,) = [check for check in report().checks if check.what.startswith("the floor itself")]
    assert check.value <= 3.3


@pytest.mark.bench
@pytest.mark.parametrize("contender", CASES, ids=lambda contender: contender.name)
@pytest.mark.parametrize("size", [16_384, 0], ids=["16KiB", "1event"])
@pytest.mark.parametrize("name", ["A", "B", "C"])
def test_case(benchmark: Any, name: str, size: int, contender: Contender) -> None:
    """One contender on a fifth of a workload."""
    benchmark.group = f"{name}, {'one event a chunk' if size == 0 else '16 KiB chunks'}"
    results: list[Any] = []

    def go(prepared: Any) -> None:
        results.append(finish(contender, prepared))

    benchmark.pedantic(go, args=(contender.prepare(what(name, size)),), rounds=ROUNDS, warmup_rounds=1)
    for result in results:
        # Tidies up too: a run leaves its transcript for this.
        contender.found(result)
