"""What transcripts cost: the tables of `turnstream bench --workload transcript`, with files of up to 1 GB.

Figures depend on the machine and on what else it does, so nothing fails here for being slow; what is asserted are
figures that don't: bytes touched.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from turnstream.bench import Report, render, run
from turnstream.bench import transcripts as module
from turnstream.sinks.transcript.reading import resume

COUNT = 5_000
"""Messages of the single cases: a long session."""


@cache
def report() -> Report:
    return run(["transcript"])


@pytest.mark.bench
def test_tables(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything, full size."""
    benchmark.pedantic(report, rounds=1)
    benchmark.extra_info["checks"] = {check.what: check.value for check in report().checks}
    with capsys.disabled():
        print("\n" + render(report()))


@pytest.mark.bench
def test_bytes_touched() -> None:
    """A tombstone in a file of 1 GB, and a second list of 10,000 sessions."""
    checks = [check for check in report().checks if "bytes" in check.what]
    assert [check.what for check in checks if not check.met] == []


@pytest.mark.bench
def test_append(benchmark: Any, tmp_path: Path) -> None:
    """A long session, message by message."""
    benchmark.group = f"a transcript of {COUNT:,} messages"
    path = tmp_path / f"{module.SESSION}.jsonl"
    messages = module.live_messages(COUNT)

    def setup() -> None:
        path.unlink(missing_ok=True)

    benchmark.pedantic(module._write, args=(path, messages), setup=setup, rounds=5, warmup_rounds=1)


@pytest.mark.bench
def test_resume(benchmark: Any, tmp_path: Path) -> None:
    """The same, read again."""
    benchmark.group = f"a transcript of {COUNT:,} messages"
    path = tmp_path / f"{module.SESSION}.jsonl"
    module._write(path, module.live_messages(COUNT))
    assert len(benchmark(resume, path).messages) >= COUNT
