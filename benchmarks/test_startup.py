"""What starting costs: CPU of `turnstream --help` over a bare interpreter, in the same run.

The aim is at most 100 ms (whole processes, user + system time, median of interleaved runs).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from typing import Any

import pytest

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "turnstream --help": [sys.executable, "-m", "turnstream", "--help"],
    "import turnstream": [sys.executable, "-c", "import turnstream"],
    "import turnstream.messages": [sys.executable, "-c", "import turnstream.messages"],
    "from turnstream import Pipeline": [sys.executable, "-c", "from turnstream import Pipeline"],
}
ROUNDS = 9


def cpu_seconds(command: list[str]) -> float:
    """User and system time of one child process, by the kernel's account."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime


@pytest.mark.bench
def test_startup_cpu(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, command in COMMANDS.items():
            taken[name].append(cpu_seconds(command))
    bare = statistics.median(taken["python -c pass"])
    with capsys.disabled():
        print("\nCPU of a whole process over `python -c pass` (median of", ROUNDS, "interleaved runs):")
        for name, seconds in taken.items():
            over = (statistics.median(seconds) - bare) * 1000
            benchmark.extra_info[name] = round(over, 1)
            print(f"  {name:34} {over:+7.1f} ms   (min {min(seconds) * 1000:.0f}, max {max(seconds) * 1000:.0f} ms)")
    benchmark.pedantic(cpu_seconds, args=(COMMANDS["turnstream --help"],), rounds=3)
