"""The list's cache: a second listing opens no transcript that is as it was; a broken cache costs time only."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sessions import assistant, session_id, talk, write

from turnstream.sinks.transcript.lockfile import SessionLock
from turnstream.sinks.transcript.sessions import default_index, default_root, list_sessions


class Opened:
    """The transcripts that were opened."""

    def __init__(self) -> None:
        self.paths: list[Path] = []

    def take(self) -> list[Path]:
        paths, self.paths = self.paths, []
        return paths


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    found = Opened()
    real = os.open

    def note(path: Any, *rest: Any, **more: Any) -> int:
        if "projects" in Path(path).parts and str(path).endswith(".jsonl"):
            found.paths.append(Path(path))
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "open", note)
    return found


def test_a_second_listing_reads_no_transcript_again(tmp_path: Path, opened: Opened) -> None:
    root, index = tmp_path / "root", tmp_path / "cache" / "index.jsonl"
    for number in range(60):
        write(root, number, *talk(number, minute=number % 50), slug=f"-p{number % 7}")
    write(root, 99, {"type": "summary", "summary": "no session"}, slug="-p1")
    first = list_sessions(root, index=index)
    assert (len(first), len(opened.take())) == (60, 61)
    assert list_sessions(root, index=index) == first
    assert opened.take() == []
    # Nothing but the changed file: longer, as long but touched, another file in its place.
    changed = first[7].path
    with changed.open("ab") as file:
        file.write(b'{"type":"custom-title","customTitle":"New"}\n')
    touched = first[9].path
    there = touched.stat()
    touched.write_bytes(touched.read_bytes().replace(b"Hello", b"Hallo"))
    os.utime(touched, ns=(there.st_atime_ns, there.st_mtime_ns + 1))
    replaced = first[11].path
    there = replaced.stat()
    other = replaced.with_suffix(".tmp")
    other.write_bytes(replaced.read_bytes().replace(b"Hello", b"Jello"))
    os.utime(other, ns=(there.st_atime_ns, there.st_mtime_ns))
    os.replace(other, replaced)
    titles = {info.path: info.title for info in list_sessions(root, index=index)}
    assert sorted(opened.take()) == sorted([changed, touched, replaced])
    assert (titles[changed], titles[touched], titles[replaced]) == ("New", "Hallo", "Jello")
    assert sum(title == "Hello" for title in titles.values()) == 57


def test_what_is_gone_is_forgotten(tmp_path: Path, opened: Opened) -> None:
    root, index = tmp_path / "root", tmp_path / "index.jsonl"
    paths = [write(root, number, *talk(number), slug=f"-p{number % 2}") for number in range(4)]
    list_sessions(root, index=index)
    paths[0].unlink()
    list_sessions(root, index=index)
    rows = [json.loads(line) for line in index.read_text().splitlines()[1:]]
    assert {row["path"] for row in rows} == {f"-p{n % 2}/{session_id(n)}.jsonl" for n in (1, 2, 3)}


def test_listing_one_project_keeps_the_others_rows(tmp_path: Path, opened: Opened) -> None:
    root, index = tmp_path / "root", tmp_path / "index.jsonl"
    write(root, 1, *talk(1, cwd="/a"), slug="-a")
    gone = write(root, 2, *talk(2, cwd="/a"), slug="-a")
    write(root, 3, *talk(3, cwd="/b"), slug="-b")
    list_sessions(root, index=index)
    gone.unlink()
    opened.take()
    assert len(list_sessions(root, project="/a", index=index)) == 1
    assert gone.name not in index.read_text()
    assert len(list_sessions(root, index=index)) == 2
    assert opened.take() == []


def test_an_open_session_that_just_changed_is_read_again(tmp_path: Path, opened: Opened) -> None:
    # A tombstone of the same length within one tick of the file's clock would go unseen.
    root, index = tmp_path / "root", tmp_path / "index.jsonl"
    path = write(root, 1, *talk(1))
    lock = SessionLock(path)
    lock.acquire()
    try:
        list_sessions(root, index=index)
        opened.take()
        list_sessions(root, index=index)
        assert opened.take() == [path]
        old = path.stat().st_mtime_ns - 10_000_000_000
        os.utime(path, ns=(old, old))
        list_sessions(root, index=index)
        list_sessions(root, index=index)
        assert opened.take() == [path]
    finally:
        lock.release()


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\xff\xfe\x00",
        b'{"kind":"turnstream-sessions","version":1}\n',
        b"[1]\n{}\n",
        b'{"kind":"turnstream-sessions","version":1,"root":"/elsewhere"}\n',
    ],
)
def test_a_broken_cache_is_made_anew(tmp_path: Path, opened: Opened, damage: bytes) -> None:
    root, index = tmp_path / "root", tmp_path / "index.jsonl"
    write(root, 1, *talk(1))
    first = list_sessions(root, index=index)
    good = index.read_bytes()
    index.write_bytes(damage)
    opened.take()
    assert list_sessions(root, index=index) == first
    assert len(opened.take()) == 1
    assert index.read_bytes() == good


@pytest.mark.parametrize("change", [(b'"version":1', b'"version":2'), (b'"root":"', b'"root":"/other')])
def test_another_version_or_root_is_not_believed(tmp_path: Path, change: tuple[bytes, bytes]) -> None:
    root, index = tmp_path / "root", tmp_path / "index.jsonl"
    write(root, 1, *talk(1))
    first = list_sessions(root, index=index)
    lying = index.read_bytes().replace(b"Hello", b"Bello")
    index.write_bytes(lying)
    assert [info.title for info in list_sessions(root, index=index)] == ["Bello"]  # so the cache is what is read
    index.write_bytes(lying.replace(*change))
    assert list_sessions(root, index=index) == first


def test_a_broken_row_costs_its_session_only(tmp_path: Path, opened: Opened) -> None:
    root, index = tmp_path / "root", tmp_path / "index.jsonl"
    for number in range(5):
        write(root, number, *talk(number))
    first = list_sessions(root, index=index)
    head, *rows = index.read_bytes().split(b"\n")
    rows[0] = rows[0][:30]
    rows[1] = rows[1].replace(b'"messages":2', b'"messages":"two"')
    rows[2] = rows[2].replace(b'"messages":2', b'"messages":2,"later":[1]')
    index.write_bytes(b"\n".join([head, *rows]))
    opened.take()
    assert list_sessions(root, index=index) == first
    assert len(opened.take()) == 2
    # Cut anywhere, it is never more than slow.
    whole = index.read_bytes()
    for cut in range(0, len(whole), 97):
        index.write_bytes(whole[:cut])
        assert list_sessions(root, index=index) == first


def test_the_cache_is_the_users_own(tmp_path: Path) -> None:
    root, index = tmp_path / "root", tmp_path / "new" / "folders" / "index.jsonl"
    write(root, 1, *talk(1))
    list_sessions(root, index=index)
    assert stat.S_IMODE(index.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) & 0o077 == 0 or os.name == "nt"
    assert [path.name for path in index.parent.iterdir()] == ["index.jsonl"]
    before = index.stat()
    list_sessions(root, index=index)
    assert index.stat().st_ino == before.st_ino  # nothing changed, nothing written


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    write(root, 1, *talk(1))
    (tmp_path / "file").write_text("")
    assert len(list_sessions(root, index=tmp_path / "file" / "index.jsonl")) == 1
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "link").symlink_to(victim)
    assert len(list_sessions(root, index=tmp_path / "link")) == 1
    assert victim.read_text() == "mine"

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert len(list_sessions(root, index=tmp_path / "index.jsonl")) == 1
    assert not list(tmp_path.glob("*.tmp"))
    assert not list(tmp_path.glob(".*.tmp"))


def test_usual_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Opened) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("TURNSTREAM_ROOT", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/x")
    assert default_root() == Path("/home/x/.local/share/turnstream")
    assert default_index("/r").parent == Path("/home/x/.cache/turnstream")
    assert default_index("/r") != default_index("/s")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")  # not valid, the specification says
    assert default_root() == Path("/home/x/.local/share/turnstream")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_root() == Path("/data/turnstream")
    monkeypatch.setenv("TURNSTREAM_ROOT", "/mine")
    assert default_root() == Path("/mine")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "root"
    path = write(root, 1, *talk(1), assistant("a-2", "x"))
    list_sessions(root)
    # Nothing is written below the root; the cache is known again under another spelling of it.
    assert [p for p in root.rglob("*") if p.is_file()] == [path]
    opened.take()
    (tmp_path / "alias").symlink_to(root, target_is_directory=True)
    assert len(list_sessions(tmp_path / "alias")) == 1
    assert opened.take() == []
