"""How a repair is made: nothing lost, nobody else writing, the whole old or the whole new file at the path."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import ailing
import pytest
from ailing import assistant, call, dump, lines_of, result, talk, user, write

from turnstream.messages.errors import TranscriptError
from turnstream.sinks.transcript.doctor import KINDS, diagnose, repair
from turnstream.sinks.transcript.lockfile import SessionLock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"{ailing.SESSION}.jsonl"


@pytest.fixture
def broken(path: Path) -> Path:
    """A file with a torn line, a dangling parent and a line without its end."""
    lines = talk(3)
    write(path, lines[0], b'{"type":"assist', *lines[2:5])
    path.write_bytes(path.read_bytes() + dump(lines[5]))
    return path


def names(path: Path) -> list[str]:
    return sorted(one.name for one in path.parent.iterdir())


def test_the_session_that_is_open_is_refused(broken: Path) -> None:
    before = broken.read_bytes()
    lock = SessionLock(broken)
    lock.acquire()
    try:
        with pytest.raises(TranscriptError, match="another writer"):
            repair(broken)
    finally:
        lock.release()
    assert broken.read_bytes() == before
    assert names(broken) == [broken.name]


def test_the_lock_is_given_back(broken: Path) -> None:
    repair(broken)
    lock = SessionLock(broken)
    lock.acquire()
    lock.release()


def test_mode_is_kept_and_copies_are_numbered(broken: Path) -> None:
    before = broken.read_bytes()
    broken.chmod(0o640)
    first = repair(broken)
    broken.write_bytes(before)
    second = repair(broken)
    assert first.backup is not None
    assert second.backup is not None
    assert second.rejected is not None
    assert (first.backup.name, second.backup.name) == (f"{broken.name}.bak", f"{broken.name}.bak.2")
    assert second.rejected.name == f"{broken.name}.rejected.2"
    for one in (broken, first.backup, first.rejected):
        assert one is not None
        assert stat.S_IMODE(one.stat().st_mode) == 0o640
    assert first.backup.read_bytes() == second.backup.read_bytes() == before


def test_a_symlink_is_not_followed(broken: Path) -> None:
    link = broken.with_name("link.jsonl")
    link.symlink_to(broken)
    with pytest.raises(TranscriptError, match="is a symlink"):
        repair(link)
    assert link.is_symlink()


@pytest.mark.parametrize("act", [diagnose, repair])
def test_what_is_no_file_is_refused(tmp_path: Path, act: Any) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(TranscriptError, match="no regular file"):
            act(path)
    with pytest.raises(TranscriptError, match="No such file"):
        act(tmp_path / "missing.jsonl")


def test_a_file_without_any_record_is_not_emptied(path: Path) -> None:
    path.write_bytes(b"\x89PNG\r\n\x1a\nnot a transcript\n")
    assert diagnose(path).counts == {"bad-line": 3}
    with pytest.raises(TranscriptError, match="no record"):
        repair(path)
    assert path.read_bytes() == b"\x89PNG\r\n\x1a\nnot a transcript\n"
    assert names(path) == [path.name]


@pytest.mark.parametrize("call_that_fails", ["fsync", "link", "replace", "write"])
def test_a_full_or_failing_disk_leaves_everything_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch, call_that_fails: str
) -> None:
    large = "x" * 400_000
    write(path, user(1, None), assistant(2, 1, call("t")), result(3, 2, "t", large), b"{torn", b"")
    before = path.read_bytes()

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    if call_that_fails == "link":
        monkeypatch.setattr("shutil.copy2", fail)  # where there are no links it is copied
    if call_that_fails == "write":
        monkeypatch.setattr("turnstream.sinks.transcript.doctor.rewrite.write_side_file", fail)
    else:
        monkeypatch.setattr(os, call_that_fails, fail)
    with pytest.raises(TranscriptError, match="No space left"):
        repair(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [name for name in names(path) if not (path.parent / name).is_dir()] == [path.name]
    side = path.parent / ailing.SESSION / "tool-results"
    assert not side.exists() or list(side.iterdir()) == []
    assert repair(path).repaired


def test_without_hard_links_the_original_is_copied(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EPERM, "Operation not permitted")

    before = broken.read_bytes()
    monkeypatch.setattr(os, "link", no_links)
    report = repair(broken)
    assert report.backup is not None
    assert report.backup.read_bytes() == before


def test_what_somebody_writes_meanwhile_is_noticed(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from turnstream.sinks.transcript.doctor import mending

    late = b'{"type":"mode","mode":"late"}\n'
    real = mending.rewrite

    def and_meanwhile(*arguments: Any, **named: Any) -> Any:
        with open(broken, "ab") as file:
            file.write(late)
        return real(*arguments, **named)

    monkeypatch.setattr(mending, "rewrite", and_meanwhile)
    with pytest.raises(TranscriptError, match="meanwhile"):
        repair(broken)
    assert broken.read_bytes().endswith(late)
    assert names(broken) == [broken.name]


def test_litter_of_a_repair_that_was_killed_is_no_hindrance(broken: Path) -> None:
    (broken.parent / f".{broken.name}.doctor-1.tmp").write_bytes(b"half")
    assert repair(broken).repaired
    assert all(not name.startswith(".") for name in names(broken))


def test_the_new_file_is_durable_before_it_takes_the_old_one_s_place(
    broken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, str]] = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(fd: int) -> None:
        steps.append(("fsync", Path(os.readlink(f"/proc/self/fd/{fd}")).name))
        real_fsync(fd)

    def replace(old: Any, new: Any) -> None:
        steps.append(("replace", Path(new).name))
        real_replace(old, new)

    if not Path("/proc/self/fd").exists():
        pytest.skip("no /proc")
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr("turnstream.sinks.transcript.fillers._fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    repair(broken)
    done = steps.index(("replace", broken.name))
    before = {name for step, name in steps[:done] if step == "fsync"}
    assert {f".{broken.name}.doctor-1.tmp", f"{broken.name}.rejected", f"{broken.name}.bak"} <= before
    assert ("fsync", broken.parent.name) in steps[done:]


def test_all_that_was_in_the_file_is_in_one_of_the_three(broken: Path) -> None:
    before = broken.read_bytes()
    report = repair(broken)
    assert report.backup is not None
    assert report.backup.read_bytes() == before
    (piece,) = ailing.rows(report.rejected)  # type: ignore[arg-type]
    data = piece["data"].encode()
    assert before[piece["offset"] : piece["offset"] + piece["bytes"]] == data
    assert len(lines_of(broken)) == 5


def test_every_kind_says_what_it_means_and_what_is_done(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text(encoding="utf-8")
    for name, kind in KINDS.items():
        assert f"| `{name}` | {kind.severity} |" in page
    assert page.count("\n| `") == len(KINDS)
