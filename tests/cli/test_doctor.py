"""``turnstream doctor``, as a user calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ailing
import pytest
from ailing import talk, write

from turnstream.cli import main
from turnstream.sinks.transcript.lockfile import SessionLock


def doctor(*arguments: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "turnstream", "doctor", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write(tmp_path / "good.jsonl", *talk(1))


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    return write(tmp_path / "bad.jsonl", *talk(1), b"{torn", *talk(1, 4, 3))


def test_nothing_found_is_exit_0(good: Path) -> None:
    done = doctor(good)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{good}: nothing found (2 lines)\n"


def test_findings_are_exit_1_and_say_where(bad: Path) -> None:
    before = bad.read_bytes()
    done = doctor(bad)
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"{bad}: 2 errors (5 lines)"
    assert any(line.lstrip().startswith("error") and "dangling-parent" in line for line in lines)
    assert any("line 4, byte" in line and ailing.uid(3) in line for line in lines)
    assert bad.read_bytes() == before


def test_fix_mends_and_is_exit_0(bad: Path) -> None:
    done = doctor("--fix", bad)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"the original: {bad}.bak" in done.stdout
    assert f"what was rejected: {bad}.rejected" in done.stdout
    assert doctor(bad).returncode == 0


def test_json_is_one_line_a_file(good: Path, bad: Path) -> None:
    done = doctor("--json", good, bad)
    assert done.returncode == 1
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first["path"], first["findings"], first["counts"]) == (str(good), [], {})
    assert second["counts"] == {"bad-line": 1, "dangling-parent": 1}
    found = second["findings"][0]
    assert (found["kind"], found["severity"], found["line"], found["count"]) == ("bad-line", "error", 3, 1)
    assert found["offset"] == len(bad.read_bytes().split(b"{torn")[0])
    assert found["mends"]


def test_of_a_folder_all_transcripts_are_looked_at_once(good: Path, bad: Path) -> None:
    deep = bad.parent / "projects" / "-work"
    deep.mkdir(parents=True)
    write(deep / "other.jsonl", *talk(2))
    (deep / "notes.txt").write_text("no transcript")
    (deep / "link.jsonl").symlink_to(bad)
    done = doctor("--json", bad.parent, good)
    names = [Path(json.loads(line)["path"]).name for line in done.stdout.splitlines()]
    assert names == ["bad.jsonl", "good.jsonl", "other.jsonl"]


def test_a_folder_without_transcripts_is_said(tmp_path: Path) -> None:
    done = doctor(tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "no transcript" in done.stderr


def test_a_missing_file_is_exit_2_and_the_others_are_looked_at(good: Path) -> None:
    done = doctor(good.parent / "missing.jsonl", good)
    assert done.returncode == 2
    assert "missing.jsonl" in done.stderr
    assert "nothing found" in done.stdout


def test_no_file_is_usage() -> None:
    assert doctor().returncode == 2


def test_an_open_session_is_said_and_exit_1(bad: Path) -> None:
    lock = SessionLock(bad)
    lock.acquire()
    try:
        done = doctor("--fix", bad)
    finally:
        lock.release()
    assert done.returncode == 1
    assert "another writer" in done.stderr
    assert not (bad.parent / f"{bad.name}.bak").exists()


def test_what_the_file_says_cannot_steer_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first, second = talk(1)
    path = write(tmp_path / "x.jsonl", first, {**second, "parentUuid": "\x1b[2J\r\nlost"})
    assert main(["doctor", os.fspath(path)]) == 1
    out = capfd.readouterr().out
    assert "\x1b" not in out
    assert "\r" not in out
    assert "lost" in out
