"""What a message costs to normalize, over conversations of 1,000, 10,000 and 100,000 messages.

Figures depend on the machine and on what else it does, so nothing fails here for being slow; the table says
whether a message costs more in a longer conversation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from turnstream.bench import OPERATIONS, Report, make_conversation, render, run

SHARE = 2_800
"""Messages of the single cases: a long session."""


@cache
def report() -> Report:
    return run(["growth"])


@pytest.mark.bench
def test_decades(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """All operations on all lengths, the best of five."""
    benchmark.pedantic(report, rounds=1)
    benchmark.extra_info["checks"] = {check.what: check.value for check in report().checks}
    with capsys.disabled():
        print("\n" + render(report()))


@pytest.mark.bench
@pytest.mark.parametrize(("name", "operation"), OPERATIONS, ids=[name for name, _ in OPERATIONS])
def test_case(benchmark: Any, name: str, operation: Callable[[list[Any]], Any]) -> None:
    """One operation on a long session."""
    benchmark.group = f"{SHARE:,} messages"
    benchmark(operation, make_conversation(SHARE))
