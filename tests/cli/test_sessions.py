"""``turnstream sessions`` and ``sessions prune``, as a user calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sessions import session_id, talk, write

from turnstream.cli import main
from turnstream.cli.parser import build_parser
from turnstream.sinks.transcript.lockfile import SessionLock


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("TURNSTREAM_ROOT", raising=False)
    return tmp_path / "root"


def run(*arguments: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "turnstream", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONUTF8": "1", **environment},
        timeout=60,
        check=False,
    )


def test_the_table(root: Path) -> None:
    write(root, 1, *talk(1, day=1, words="Older"))
    other = root / "projects" / "-src-demo" / "bbbbbbbb-0000-0000-0000-000000000000.jsonl"
    other.write_bytes(write(root, 2, *talk(2, day=2, words="Newer \x1b[31m talk")).read_bytes())
    (root / "projects" / "-src-demo" / f"{session_id(2)}.jsonl").unlink()
    done = run("sessions", "--root", root)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "SESSION   LAST ACTIVE       MESSAGES  TOKENS  FOLDER     TITLE",
        "bbbbbbbb  2025-06-02 10:01         2       8  /src/demo  Newer \\x1b[31m talk",
        "a0000000  2025-06-01 10:01         2       8  /src/demo  Older",
    ]


def test_ids_are_as_long_as_it_takes_to_tell_them_apart(root: Path) -> None:
    for number in (0x10, 0x11):
        write(root, number, *talk(number))
    first = [line.split()[0] for line in run("sessions", "--root", root).stdout.splitlines()[1:]]
    assert sorted(first) == [session_id(0x10), session_id(0x11)]


def test_json(root: Path) -> None:
    path = write(root, 1, *talk(1))
    write(root, 2, *talk(2, cwd="/elsewhere"), slug="-elsewhere")
    done = run("sessions", "--root", root, "--json", "--project", "/src/demo")
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert report["root"] == str(root)
    (info,) = report["sessions"]
    assert info.pop("modified") > 1e9
    assert info == {
        "session_id": session_id(1),
        "path": str(path),
        "project": "-src-demo",
        "cwd": "/src/demo",
        "git_branch": None,
        "title": "Hello",
        "first_activity": "2025-06-01T10:00:00.000Z",
        "last_activity": "2025-06-01T10:01:00.000Z",
        "messages": 2,
        "turns": 1,
        "answers": 1,
        "tokens": {"input_tokens": 3, "output_tokens": 5},
        "models": ["claude-a"],
        "subagents": 0,
        "size": path.stat().st_size,
        "filler_bytes": 0,
        "bad_lines": 0,
        "problems": [],
    }


def test_our_own_root_is_the_default(root: Path) -> None:
    write(root, 1, *talk(1))
    assert len(run("sessions", TURNSTREAM_ROOT=str(root)).stdout.splitlines()) == 2
    # Nothing there yet is no error, and nothing is made.
    done = run("sessions", TURNSTREAM_ROOT=str(root / "new"))
    assert (done.returncode, done.stdout) == (0, "")
    assert f"no sessions below {root / 'new'}" in done.stderr
    assert not (root / "new").exists()


def test_a_root_that_is_no_folder(root: Path) -> None:
    for command in (["sessions"], ["sessions", "prune"], ["show", "a0"], ["fork", "a0", "--at", "u"]):
        done = run(*command, "--root", root)
        assert (done.returncode, done.stdout) == (2, ""), command
        assert done.stderr == f"turnstream: {root} is no folder\n"


def test_a_folder_that_cannot_be_read(root: Path, tmp_path: Path) -> None:
    root.mkdir()
    (root / "projects").symlink_to(tmp_path)
    done = run("sessions", "--root", root)
    assert done.returncode == 1
    assert "symlink" in done.stderr


def test_standard_output_that_is_closed_early(root: Path) -> None:
    for number in range(200):
        write(root, number, *talk(number, words="x" * 190))
    read, written = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "turnstream", "sessions", "--root", str(root)],
            stdout=written,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    finally:
        os.close(written)
    assert (done.returncode, done.stderr) == (141, b"")


def test_prune_says_first_and_removes_when_told(root: Path) -> None:
    old = write(root, 1, *talk(1))
    new = write(root, 2, *talk(2, day=20))
    size = old.stat().st_size
    done = run("sessions", "prune", "--root", root, "--keep", "1")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        f"session  {size} bytes  {old}  (not among the last 1)",
        f"{size} bytes would be removed; --yes removes it",
    ]
    assert old.exists()
    done = run("sessions", "--root", root, "prune", "--older-than", "1w", "--keep", "1", "--yes")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == f"{size} bytes removed"
    assert (old.exists(), new.exists()) == (False, True)
    assert run("sessions", "prune", "--root", root).stdout == "nothing to remove\n"


def test_prune_as_json_and_open_sessions(root: Path) -> None:
    free, held = write(root, 1, *talk(1)), write(root, 2, *talk(2))
    lock = SessionLock(held)
    lock.acquire()
    try:
        done = run("sessions", "prune", "--root", root, "--max-size", "0", "--yes", "--json")
    finally:
        lock.release()
    assert done.returncode == 0
    assert done.stderr == f"turnstream: {held} is open and stays\n"
    report = json.loads(done.stdout)
    assert (report["dry_run"], report["open"], report["problems"]) == (False, [str(held)], [])
    (removal,) = report["removals"]
    assert (removal["kind"], removal["path"], removal["done"], removal["problem"]) == ("session", str(free), True, None)
    assert report["bytes"] == removal["bytes"]


def test_what_cannot_be_removed_is_told(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(root, 1, *talk(1))

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    assert main(["sessions", "prune", "--root", str(root), "--keep", "0", "--yes"]) == 1
    out, err = capsys.readouterr()
    assert out == "nothing was removed\n"
    assert f"{path} stays: Permission denied" in err


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("--older-than", "30d", 30 * 86400.0),
        ("--older-than", "2", 2 * 86400.0),
        ("--older-than", "1.5h", 5400.0),
        ("--older-than", "2W", 2 * 604800.0),
        ("--older-than", "0d", 0.0),
        ("--max-size", "500", 500),
        ("--max-size", "1.5M", 1_500_000),
        ("--max-size", "2GB", 2_000_000_000),
        ("--keep", "0", 0),
        *(("--older-than", bad, None) for bad in ("", "d", "-1d", "3y", "nan", "inf", "1e300")),
        *(("--max-size", bad, None) for bad in ("", "M", "-1", "3X", "nan", "1e300")),
        *(("--keep", bad, None) for bad in ("-1", "x", "1.5")),
    ],
)
def test_times_and_sizes(option: str, text: str, value: float | None, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["sessions", "prune", f"{option}={text}"]
    if value is None:
        with pytest.raises(SystemExit) as ended:
            build_parser().parse_args(arguments)
        assert ended.value.code == 2
        assert repr(text) in capsys.readouterr().err
    else:
        assert getattr(build_parser().parse_args(arguments), option[2:].replace("-", "_")) == value


def test_help_imports_nothing_of_ours() -> None:
    code = "import sys; from turnstream.cli import main\ntry: main(['sessions', '--help'])\nexcept SystemExit: pass\n"
    code += "print([m for m in sys.modules if m.startswith('turnstream.') and not m.startswith('turnstream.cli')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
