"""``turnstream bench``, as a user calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest


def bench(*arguments: Any) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "TURNSTREAM_BENCH_NODE"}
    return subprocess.run(
        [sys.executable, "-m", "turnstream", "bench", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
        env=env,
    )


def test_json_is_data_and_progress_goes_to_stderr() -> None:
    done = bench("--quick", "--json", "--workload", "B/8,C/8", "--rounds", 1)
    assert done.returncode == 0
    report = json.loads(done.stdout)
    rows = report["rows"]
    assert [r["workload"] for r in rows if r["contender"] == "bytes to three sinks"] == ["B/8", "B/8", "C/8", "C/8"]
    assert {r["chunking"] for r in rows} == {"16 KiB", "1 event"}
    assert {r["rounds"] for r in rows} == {1}
    assert all(r["ratio"] > 0 and r["us_per_event"] > 0 for r in rows)
    assert report["scale"] == 0.1
    assert report["environment"]["packages"]["orjson"]
    assert "turnstream: C/8, one event a chunk …" in done.stderr.splitlines()


def test_tables_for_reading() -> None:
    done = bench("--quick", "--workload", "C/8", "--rounds", 1)
    assert done.returncode == 0
    assert "× floor" in done.stdout
    assert "bytes to three sinks" in done.stdout
    assert "medians of 1 interleaved rounds" in done.stdout


def test_growth_and_bars_are_told() -> None:
    done = bench("--quick", "--workload", "B", "--rounds", 1, "--json")
    report = json.loads(done.stdout)
    assert [g["workloads"] for g in report["growth"]] == [["B/8", "B/4", "B/2", "B"]] * 2
    assert [len(g["doublings"]) for g in report["growth"]] == [3, 3]
    assert all(isinstance(c["met"], bool) for c in report["checks"])


def test_missing_peers_are_told() -> None:
    done = bench("--quick", "--peers", "--workload", "C/8", "--rounds", 1)
    assert done.returncode == 0
    assert "reactivex, written naively" in done.stdout
    assert "not measured: peers under Node" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--workload", "X"), "no workload 'X'; there are A, B, C, D"),
        (("--workload", "A,B/0"), "no workload 'B/0'"),
        (("--workload", ","), "names none"),
        (("--rounds", "0"), "1 or more"),
        (("--rounds", "many"), "1 or more"),
        (("--what",), "unrecognized"),
    ],
)
def test_usage(arguments: tuple[str, ...], words: str) -> None:
    done = bench(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
