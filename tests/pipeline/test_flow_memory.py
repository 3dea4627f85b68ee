"""Bounded memory (issue 3): 50 MB through a slow disk and a stuck display; ten thousand answers; FAULTS 108."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from flowing import answer

from turnstream.bench import make_workload

SCRIPT = Path(__file__).resolve().parents[1] / "support" / "memory_run.py"
BOUND = 20_000_000


def run(*arguments: Any, stdin: bytes = b"") -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(SCRIPT), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, int, str]:
    """Workload D as a file: its bytes, its answers, and its text by json alone."""
    made = make_workload("D")
    path = tmp_path_factory.mktemp("workload") / "d.sse"
    digest = hashlib.sha256()
    size = 0
    with path.open("wb") as file:
        for event in made.events:
            size += file.write(event)
            payload = json.loads(event.partition(b"data: ")[2])
            if payload["type"] == "content_block_delta":
                digest.update(payload["delta"]["text"].encode())
    return path, size, len(made.answers), digest.hexdigest()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
@pytest.mark.parametrize("beside", [(), ("stuck",)])
def test_fault_108_50_mb_through_a_slow_transcript_stay_under_20_mb_and_every_byte_arrives(
    workload: tuple[Path, int, int, str], beside: tuple[str, ...], tmp_path: Path
) -> None:
    path, size, answers, digest = workload
    assert size > 50_000_000
    found = run("slow", path, tmp_path, *beside)
    assert found["growth"] < BOUND, f"{found['growth']:,} bytes above the start"
    assert (found["bytes"], found["complete"], found["sha256"]) == (size, answers, digest)
    if not beside:
        assert found["status"] == "complete"
        return
    # Nothing was ever taken; what waited was merged, replaced or covered by the snapshot it never asked for.
    assert found["errors"] == ["stuck"]
    assert found["stuck"]["resyncs"] == 1
    assert found["stuck"]["max_queued_bytes"] < 4 << 20


def test_ten_thousand_answers_through_one_session_leave_no_growth(tmp_path: Path) -> None:
    found = run("session", tmp_path, 10_000, stdin=b"".join(answer(1, "abc")))
    assert found["complete"] == 10_001
    # After two thousand (the metrics' window of the latest thousand answers is full), and at the end.
    first, *_, last = found["seen"][2:]
    assert last - first < 100_000, f"{last - first:,} bytes in eight thousand answers: {found['seen']}"
