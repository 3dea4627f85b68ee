"""``prune``: what goes, what stays, and that nothing goes by mistake."""

from __future__ import annotations

import datetime
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from sessions import SLUG, assistant, jsonl, result, session_id, talk, user, write

from turnstream.messages import TranscriptError
from turnstream.sinks.transcript import fillers
from turnstream.sinks.transcript.fillers import filler
from turnstream.sinks.transcript.lockfile import SessionLock
from turnstream.sinks.transcript.sessions import PruneReport, SessionInfo, list_sessions, prune
from turnstream.sinks.transcript.sessions.locked import hold, is_open
from turnstream.sinks.transcript.sessions.retention import choose

DAY = 86400.0
# The tenth of June, 10:00: sessions of day n are 10 - n days old.
NOW = datetime.datetime(2025, 6, 10, 10, tzinfo=datetime.UTC).timestamp()
LONG_AGO = NOW - 5 * DAY


def pruned(root: Path, **options: Any) -> PruneReport:
    return prune(root, **{"now": NOW, "index": False, "dry_run": False} | options)


def gone(report: PruneReport) -> set[str]:
    return {removal.path.name for removal in report.removals if removal.done}


def side_file(path: Path, name: str, data: bytes = b"x", *, changed: float = LONG_AGO) -> Path:
    file = path.with_suffix("") / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    os.utime(file, (changed, changed))
    return file


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Sessions of the days 1 to 5."""
    for number in range(1, 6):
        write(tmp_path / "root", number, *talk(number, day=number), slug=f"-p{number % 2}")
    return tmp_path / "root"


# -- choosing ------------------------------------------------------------------------------------------


def info(number: int, age_days: float, size: int = 100) -> SessionInfo:
    return SessionInfo(
        session_id=str(number), path=Path(f"/{number}"), project="p", size=size, modified=NOW - age_days * DAY
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, []),
        ({"older_than": 2.5 * DAY}, ["4", "3"]),
        ({"older_than": 2 * DAY}, ["4", "3"]),
        ({"older_than": 0.0}, ["4", "3", "2", "1"]),
        ({"keep": 1}, ["4", "3", "2"]),
        ({"keep": 0}, ["4", "3", "2", "1"]),
        ({"keep": 9}, []),
        ({"keep": 3, "older_than": 1.5 * DAY}, ["4"]),
        ({"max_size": 400}, []),
        ({"max_size": 399}, ["4"]),
        ({"max_size": 150}, ["4", "3", "2"]),
        ({"max_size": 0}, ["4", "3", "2", "1"]),
        ({"max_size": 0, "keep": 2}, ["4", "3"]),
        ({"max_size": 250, "older_than": 3.5 * DAY}, ["4", "3"]),
    ],
)
def test_which_sessions_go(options: dict[str, Any], expected: list[str]) -> None:
    sessions = [info(2, 2), info(4, 4), info(1, 1), info(3, 3)]
    assert [chosen.session_id for chosen, _ in choose(sessions, now=NOW, **options)] == expected


@pytest.mark.parametrize("options", [{"older_than": -1.0}, {"keep": -1}, {"max_size": -1}])
def test_less_than_nothing_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="negative"):
        choose([], now=NOW, **options)


# -- sessions ------------------------------------------------------------------------------------------


def test_a_dry_run_touches_nothing(root: Path, tmp_path: Path) -> None:
    path = root / "projects" / "-p1" / f"{session_id(1)}.jsonl"
    side_file(path, "tool-results/t-1.txt", b"12345")
    before = tree(root)
    report = prune(root, older_than=6.5 * DAY, now=NOW, index=tmp_path / "index")
    assert report.dry_run
    assert [(r.kind, r.session_id, r.done, r.problem) for r in report.removals] == [
        ("session", session_id(1), False, None),
        ("session", session_id(2), False, None),
        ("session", session_id(3), False, None),
    ]
    sizes = [(root / "projects" / f"-p{n % 2}" / f"{session_id(n)}.jsonl").stat().st_size for n in (1, 2, 3)]
    assert report.bytes == sum(sizes) + 5
    assert tree(root) == before
    assert json.loads(json.dumps(report.to_json()))["removals"][0]["path"] == str(path)


def test_with_a_session_goes_all_that_is_its_own(root: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    first = root / "projects" / "-p1" / f"{session_id(1)}.jsonl"
    side_file(first, "tool-results/t-1.txt")
    side_file(first, "subagents/agent-a.jsonl", jsonl(*talk(1)))
    for name in (f"{first.name}.bak", f"{first.name}.rejected", f".{first.name}.tmp", f".{first.name}.lock"):
        first.with_name(name).write_bytes(b"x")
    neighbour = first.with_name(f"{session_id(1)}-notes.txt")
    neighbour.write_bytes(b"mine")
    os.utime(first, (LONG_AGO, LONG_AGO))
    list_sessions(root, index=index)
    assert session_id(1) in index.read_text()
    report = pruned(root, older_than=datetime.timedelta(days=8.5), index=index)
    assert gone(report) == {first.name}
    left = {str(p.relative_to(root / "projects")) for p in (root / "projects").rglob("*") if p.is_file()}
    assert left == {f"-p{n % 2}/{session_id(n)}.jsonl" for n in (2, 3, 4, 5)} | {f"-p1/{neighbour.name}"}
    assert not first.with_suffix("").exists()
    assert session_id(1) not in index.read_text()
    assert session_id(2) in index.read_text()


def test_keep_and_project(root: Path) -> None:
    for number in (6, 7):
        write(root, number, *talk(number, day=number - 5, cwd="/src/other"), slug="-src-other")
    assert gone(pruned(root, keep=1, project="/src/other")) == {f"{session_id(6)}.jsonl"}
    # Same folder, another working folder: not its sessions.
    write(root, 8, *talk(8, day=1, cwd="/src-other"), slug="-src-other")
    assert gone(pruned(root, keep=0, project="/src/other")) == {f"{session_id(7)}.jsonl"}
    assert len(list_sessions(root, index=False)) == 6


def test_with_a_project_other_folders_are_not_touched(root: Path) -> None:
    mine = write(root, 6, *talk(6, cwd="/src/other"), slug="-src-other")
    theirs = write(root, 7, *talk(7, cwd="/src-other"), slug="-src-other")
    orphans = [side_file(path, "tool-results/unused.txt") for path in (mine, theirs)]
    nobodys = side_file(mine.with_name(f"{session_id(8)}.jsonl"), "tool-results/unused.txt")
    report = pruned(root, project="/src/other")
    assert [removal.path for removal in report.removals] == orphans[:1]
    assert [file.exists() for file in (*orphans, nobodys)] == [False, True, True]


def test_holding_a_session_means_its_sub_agents_too(root: Path) -> None:
    path = root / "projects" / "-p1" / f"{session_id(1)}.jsonl"
    agent = side_file(path, "subagents/agent-a.jsonl")
    lock = SessionLock(agent)
    lock.acquire()
    try:
        with pytest.raises(TranscriptError, match="another writer"), hold(path):
            pass
    finally:
        lock.release()
    with hold(path):
        assert is_open(path)
        with pytest.raises(TranscriptError, match="another writer"):
            SessionLock(path).acquire()
    assert not is_open(path)


def test_an_open_session_is_never_removed(root: Path) -> None:
    path = root / "projects" / "-p1" / f"{session_id(1)}.jsonl"
    agent = root / "projects" / "-p0" / f"{session_id(2)}" / "subagents" / "agent-a.jsonl"
    agent.parent.mkdir(parents=True)
    agent.write_bytes(b"")
    locks = [SessionLock(path), SessionLock(agent)]
    for lock in locks:
        lock.acquire()
    try:
        for dry_run in (True, False):
            report = pruned(root, keep=0, dry_run=dry_run)
            assert report.open == [path, root / "projects" / "-p0" / f"{session_id(2)}.jsonl"]
            assert len(report.removals) == 3
            assert path.exists()
            assert agent.exists()
    finally:
        for lock in locks:
            lock.release()
    assert len(gone(pruned(root, keep=0))) == 2


def test_the_lock_of_a_killed_writer_does_not_protect(root: Path) -> None:
    path = root / "projects" / "-p1" / f"{session_id(1)}.jsonl"
    SessionLock(path).path.write_text("4194304\n")
    assert path.name in gone(pruned(root, older_than=8.5 * DAY))
    assert not SessionLock(path).path.exists()


def test_a_session_that_changes_meanwhile_stays(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = root / "projects" / "-p1" / f"{session_id(1)}.jsonl"
    acquire = SessionLock.acquire

    def used_just_before(lock: SessionLock) -> None:
        with path.open("ab") as file:
            file.write(b'{"type":"mode"}\n')
        acquire(lock)

    monkeypatch.setattr(SessionLock, "acquire", used_just_before)
    report = pruned(root, older_than=8.5 * DAY)
    assert [(r.done, r.problem) for r in report.removals] == [(False, "it was changed meanwhile")]
    assert report.bytes == 0
    assert path.exists()


def test_symlinks_are_left_alone(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious.txt").write_text("x")
    path = root / "projects" / "-p1" / f"{session_id(1)}.jsonl"
    path.with_suffix("").symlink_to(outside, target_is_directory=True)
    third = root / "projects" / "-p1" / session_id(3)
    third.mkdir()
    (third / "tool-results").symlink_to(outside, target_is_directory=True)
    (third / "subagents").symlink_to(outside, target_is_directory=True)
    report = pruned(root, keep=0)
    assert len(gone(report)) == 5
    assert (outside / "precious.txt").read_text() == "x"
    assert not third.exists()


def test_what_cannot_be_removed_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    report = pruned(root, older_than=8.5 * DAY)
    assert [(r.done, r.problem) for r in report.removals] == [(False, "Permission denied")]


def test_a_file_that_cannot_be_read_is_not_judged(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = root / "projects" / "-p1" / f"{session_id(1)}.jsonl"
    real = os.open

    def refuse(path: Any, *rest: Any, **more: Any) -> int:
        if Path(path) == bad:
            raise PermissionError(13, "Permission denied")
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    assert bad.name not in gone(pruned(root, keep=0))
    assert bad.exists()


# -- fillers -------------------------------------------------------------------------------------------


def with_fillers(root: Path, number: int) -> tuple[Path, bytes]:
    first, second = jsonl(*talk(number, day=9)).splitlines(keepends=True)
    path = write(root, number)
    path.write_bytes(first + filler("gone-1", 300) + second + filler("gone-2", 20) + b"{bad line\n")
    return path, first + second + b"{bad line\n"


def test_fillers_vanish_and_every_other_byte_stays(root: Path) -> None:
    path, wanted = with_fillers(root, 9)
    os.utime(path, (LONG_AGO, LONG_AGO))
    dry = pruned(root, dry_run=True)
    assert [(r.kind, r.bytes) for r in dry.removals] == [("fillers", 320)]
    assert path.stat().st_size == len(wanted) + 320
    report = pruned(root)
    assert (gone(report), report.bytes) == ({path.name}, 320)
    assert path.read_bytes() == wanted
    assert path.stat().st_mtime == LONG_AGO
    assert pruned(root).removals == []


def test_fillers_of_an_open_session_stay(root: Path) -> None:
    path, _ = with_fillers(root, 9)
    before = path.read_bytes()
    lock = SessionLock(path)
    lock.acquire()
    try:
        report = pruned(root)
    finally:
        lock.release()
    assert (report.removals, report.open) == ([], [path])
    assert path.read_bytes() == before


def test_a_full_disk_leaves_the_file_as_it_was(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = with_fillers(root, 9)
    before = path.read_bytes()

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fillers, "_write", full)
    report = pruned(root)
    assert [(r.done, r.problem) for r in report.removals] == [(False, "No space left on device")]
    assert path.read_bytes() == before
    assert not list(path.parent.glob(".*"))


# -- side files ----------------------------------------------------------------------------------------


def named(name: str) -> dict[str, Any]:
    return user(
        f"u-{name}", [result(name)], "a-9", sideFiles=[{"path": f"{session_id(9)}/tool-results/{name}", "block": 0}]
    )


def test_tool_results_that_no_line_names_go(root: Path) -> None:
    mention = assistant("a-2", 'It says:\nmentioned.json and "h\u00e9llo"', "u-1")
    torn = jsonl(named("torn.txt"))[:-4]
    path = write(root, 9, *talk(9, day=9), named("used.txt"), named("used.result.json"), mention, torn)
    keep = [side_file(path, f"tool-results/{name}") for name in ("used.txt", "used.result.json", "mentioned.json")]
    keep.append(side_file(path, "tool-results/torn.txt"))
    keep.append(side_file(path, "tool-results/fresh.txt", changed=NOW - 600))
    keep.append(side_file(path, "tool-results/odd n\u00e4me.txt"))
    keep.append(side_file(path, "subagents/agent-a.jsonl", jsonl(named("agent.txt"))))
    keep.append(side_file(path, "tool-results/agent.txt"))
    keep.append(side_file(path, "subagents/agent-a/tool-results/agent.txt"))
    keep.append(side_file(path, "other/unused.txt"))
    orphans = [
        side_file(path, f"tool-results/{name}", b"12345")
        for name in ("unused.txt", "another.txt", "used.txt.json", "used.result", ".used.txt.tmp")
    ]
    orphans.append(side_file(path, "subagents/agent-a/tool-results/unused.json", b"12345"))
    report = pruned(root, dry_run=True)
    assert sorted(r.path for r in report.removals) == sorted(orphans)
    assert report.bytes == 30
    assert all(file.exists() for file in keep + orphans)
    report = pruned(root)
    assert {(r.kind, r.done) for r in report.removals} == {("side_file", True)}
    assert not any(file.exists() for file in orphans)
    assert all(file.exists() for file in keep)


def test_a_name_across_two_blocks_counts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(root, 9, *talk(9, day=9), named("used.txt"))
    file = side_file(path, "tool-results/used.txt")
    size = path.stat().st_size
    for block in (1, 7, size // 2, size - 30):
        monkeypatch.setattr("turnstream.sinks.transcript.sessions.sidefolders._BLOCK", block)
        assert pruned(root).removals == []
    assert file.exists()


def test_results_named_meanwhile_stay(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(root, 9, *talk(9, day=9))
    late, never = side_file(path, "tool-results/late.txt"), side_file(path, "tool-results/never.txt")
    acquire = SessionLock.acquire

    def used_just_before(lock: SessionLock) -> None:
        with path.open("ab") as stream:
            stream.write(jsonl(named("late.txt")))
        acquire(lock)

    monkeypatch.setattr(SessionLock, "acquire", used_just_before)
    report = pruned(root)
    assert {(r.path.name, r.done, r.problem) for r in report.removals} == {
        ("late.txt", False, "it is needed now"),
        ("never.txt", True, None),
    }
    assert (late.exists(), never.exists()) == (True, False)


def test_folders_whose_transcript_is_gone(root: Path) -> None:
    path = root / "projects" / SLUG / f"{session_id(9)}.jsonl"
    orphan = side_file(path, "tool-results/t-1.txt")
    agent = side_file(path, "subagents/agent-a.jsonl", jsonl(*talk(9)))
    # Not by age: only what is of no use without the transcript.
    assert gone(pruned(root)) == {orphan.name}
    assert agent.exists()
    assert gone(pruned(root, older_than=20 * DAY)) == set()
    assert [r.kind for r in pruned(root, older_than=4 * DAY, keep=99).removals] == ["side_folder"]
    assert not path.with_suffix("").exists()


def test_the_folder_of_a_session_that_is_just_beginning_stays(root: Path) -> None:
    # A writer has the lock before its first line is in the file.
    path = root / "projects" / SLUG / f"{session_id(9)}.jsonl"
    file = side_file(path, "tool-results/t-1.txt")
    lock = SessionLock(path)
    lock.acquire()
    try:
        report = pruned(root, older_than=4 * DAY, keep=99)
    finally:
        lock.release()
    assert (report.removals, report.open) == ([], [path])
    assert file.exists()


def test_half_made_copies_go(root: Path) -> None:
    project = root / "projects" / "-p1"
    there = project / f"{session_id(1)}.jsonl"
    half = [
        project / f".{session_id(77)}.jsonl.tmp",  # of a fork that was killed
        project / f".{session_id(1)}.jsonl.tmp",
        project / f".{session_id(1)}.jsonl.doctor-2.tmp",
    ]
    others = [
        project / f".{session_id(78)}.jsonl.tmp",  # somebody may be writing it
        project / ".notes.jsonl.tmp",
        project / f".{session_id(1)}.jsonl.bak",
        project / f"{session_id(1)}.jsonl.tmp",
    ]
    for path in (*half, *others):
        path.write_bytes(b"1234567")
        os.utime(path, (NOW - 7200, NOW - 7200))
    os.utime(others[0], (NOW, NOW))
    before = there.read_bytes()
    report = pruned(root, dry_run=True)
    assert {(r.kind, r.path, r.bytes) for r in report.removals} == {("half_made", path, 7) for path in half}
    lock = SessionLock(there)
    lock.acquire()
    assert [r.path for r in pruned(root).removals] == half[:1]
    lock.release()
    pruned(root)
    assert not any(path.exists() for path in half)
    assert all(path.exists() for path in others)
    assert there.read_bytes() == before


@pytest.mark.parametrize("at", range(3))
def test_a_kill_in_the_middle_leaves_what_the_next_prune_finds(
    root: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    path = root / "projects" / "-p1" / f"{session_id(1)}.jsonl"
    backup = path.with_name(f"{path.name}.bak")
    backup.write_bytes(b"the original")
    result = side_file(path, "tool-results/t.txt")
    calls = 0

    def killed(real: Any, target: Path, *rest: Any, **more: Any) -> None:
        nonlocal calls
        if calls == at:
            raise KeyboardInterrupt
        calls += 1
        real(target, *rest, **more)

    with monkeypatch.context() as patched:
        unlink, rmtree = Path.unlink, shutil.rmtree
        patched.setattr(Path, "unlink", lambda target, **more: killed(unlink, target, **more))
        patched.setattr(shutil, "rmtree", lambda target: killed(rmtree, target))
        with pytest.raises(KeyboardInterrupt):
            pruned(root, older_than=8.5 * DAY)
    pruned(root, older_than=8.5 * DAY)
    assert not [left for left in (path, backup, result, result.parent.parent) if left.exists()]


def test_other_files_are_never_touched(root: Path) -> None:
    folder = root / "projects" / "-p1"
    (folder / "memory").mkdir()
    (folder / "memory" / "notes.md").write_text("x")
    (folder / "agent-old.jsonl").write_bytes(jsonl(*talk(1)))
    (folder / f"{session_id(7)}.jsonl").write_bytes(jsonl({"type": "summary", "summary": "no session"}))
    before = set(tree(root))
    pruned(root, keep=0, older_than=0.0, max_size=0)
    assert set(tree(root)) == {
        name for name in before if "memory" in name or "agent-old" in name or session_id(7) in name
    }
