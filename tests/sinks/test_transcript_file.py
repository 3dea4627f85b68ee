"""The file: made safely, appended to in whole lines, one writer (WIRE.md §3, *Append*)."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from transcripts import BROKEN, FULL, OTHER_SESSION, SESSION, Answer, FaultyDevice, maker, parents, records, uuids

from turnstream.messages import TranscriptError
from turnstream.sinks.transcript import TranscriptSink, files
from turnstream.sinks.transcript.lockfile import SessionLock
from turnstream.testing import VirtualLoop, run_virtual, virtual_time


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@virtual_time
async def test_nothing_is_made_before_the_first_member_and_nothing_is_left_without_one(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "projects" / "-home" / "s.jsonl"
    sink = TranscriptSink(path, title="t")
    sink.on_next([make.progress("t", None, {}), *[make.user("x", is_virtual=True)]])
    await sink.drain()
    assert list(tmp_path.iterdir()) == []
    await sink.aclose()
    assert list(tmp_path.iterdir()) == []

    opened = TranscriptSink(path, title="t")
    opened.open()
    lost = make.user("taken back before it was written")
    opened.on_next([lost, make.tombstone(lost)])
    await opened.aclose()
    assert list(path.parent.iterdir()) == [], "a file without a conversational record is no session"


@virtual_time
async def test_files_are_0600_and_folders_0700(tmp_path: Path) -> None:
    path = tmp_path / "projects" / "-home" / "s.jsonl"
    sink = TranscriptSink(path)
    await sink.record([maker().user("x")])
    lock = path.with_name(".s.jsonl.lock")
    assert mode(path) == mode(lock) == 0o600
    assert mode(path.parent) == mode(path.parent.parent) == 0o700
    await sink.aclose()
    assert list(path.parent.iterdir()) == [path], "the lock file is gone"


def test_an_existing_file_is_refused_unless_append(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"{}\n")
    with pytest.raises(TranscriptError, match="exists and isn't empty"):
        TranscriptSink(path)
    assert path.read_bytes() == b"{}\n"


@virtual_time
async def test_an_empty_file_is_none(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.touch()
    sink = TranscriptSink(path)
    await sink.record([maker().user("x")])
    await sink.aclose()
    assert len(records(path)) == 1


@virtual_time
async def test_a_file_that_appears_after_all_is_refused_when_the_first_message_comes(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    path.write_bytes(b"{}\n")
    with pytest.raises(TranscriptError, match="exists and isn't empty"):
        sink.on_next([maker().user("x")])
    await sink.aclose()
    assert path.read_bytes() == b"{}\n"


@virtual_time
async def test_append_goes_on_with_session_and_chain_and_skips_what_is_held(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    first = TranscriptSink(path, session_id=SESSION, title="one")
    talk = [make.user("1"), make.assistant("2")]
    await first.record(talk)
    await first.aclose()
    before = path.read_bytes()

    second = TranscriptSink(path, append=True, title="one")
    assert second.session_id == SESSION
    assert second.last_uuid == talk[1].uuid
    more = make.user("3")
    assert await second.record([*talk, more]) == more.uuid
    await second.aclose()
    assert path.read_bytes().startswith(before)
    assert parents(path)[more.uuid] == talk[1].uuid
    assert uuids(path) == [talk[0].uuid, talk[1].uuid, more.uuid]
    assert [r["type"] for r in records(path)].count("custom-title") == 1, "the title was there already"
    assert {r["sessionId"] for r in records(path)} == {SESSION}
    assert second.statistics()["duplicates"] == 2

    third = TranscriptSink(path, append=True, title="two")
    await third.record([make.user("4")])
    await third.aclose()
    assert [r.get("customTitle") for r in records(path)][-2:] == ["two", None]


@virtual_time
async def test_append_ends_a_line_that_was_cut(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, session_id=SESSION)
    first = make.user("1")
    await sink.record([first, make.user("cut")])
    await sink.aclose()
    whole = path.read_bytes().split(b"\n")
    path.write_bytes(whole[0] + b"\n" + whole[1][:40])

    again = TranscriptSink(path, append=True)
    second = make.user("2")
    await again.record([second])
    await again.record([make.user("3")])
    await again.aclose()
    lines = path.read_bytes().split(b"\n")
    assert lines[:2] == [whole[0], whole[1][:40]]
    assert len(lines) == 5
    assert lines[-1] == b""
    assert f'"parentUuid":"{first.uuid}"'.encode() in lines[2]
    assert again.statistics()["loaded_bad_lines"] == 1


@virtual_time
async def test_append_to_a_last_line_without_its_line_end(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"type":"user","uuid":"u1","parentUuid":null,"sessionId":"%s"}' % SESSION.encode())
    sink = TranscriptSink(path, append=True)
    message = make.user("2")
    await sink.record([message])
    await sink.aclose()
    assert parents(path) == {"u1": None, message.uuid: "u1"}


@virtual_time
async def test_append_indexes_only_conversational_records(tmp_path: Path) -> None:
    make = maker()
    clash, message = make.user("1"), make.user("2")
    path = tmp_path / "s.jsonl"
    path.write_bytes(
        b'{"type":"user","uuid":"u1","parentUuid":"gone"}\n'
        b'{"type":"file-history-snapshot","uuid":"%s"}\n'
        b'{"type":"progress","uuid":"p1","parentUuid":"u1"}\n'
        b'{"type":"assistant","uuid":"side","parentUuid":"u1","isSidechain":true}\n'
        b"[1]\nnull\n\n{broken\n" % clash.uuid.encode()
    )
    sink = TranscriptSink(path, append=True, session_id=SESSION)
    assert sink.last_uuid == "u1", "neither progress nor a sidechain moves the pointer"
    await sink.record([clash, message])
    await sink.aclose()
    lines = path.read_bytes().decode().splitlines()
    assert f'"uuid":"{clash.uuid}"' in lines[-2]
    assert '"parentUuid":"u1"' in lines[-2]
    assert sink.statistics()["loaded_bad_lines"] == 3


def test_append_refuses_another_session(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"type":"user","uuid":"u1","sessionId":"%s"}\n' % SESSION.encode())
    with pytest.raises(TranscriptError, match=f"holds session {SESSION}"):
        TranscriptSink(path, append=True, session_id=OTHER_SESSION)
    TranscriptSink(path, append=True, session_id=SESSION)


def test_the_session_is_named_like_its_file_if_that_is_a_uuid(tmp_path: Path) -> None:
    assert TranscriptSink(tmp_path / f"{SESSION}.jsonl").session_id == SESSION
    assert TranscriptSink(tmp_path / f"{SESSION}.jsonl", session_id=OTHER_SESSION).session_id == OTHER_SESSION
    assert TranscriptSink(tmp_path / "x.jsonl", ids=lambda *scope: "made " + "".join(map(str, scope))).session_id == (
        "made session"
    )


@pytest.mark.parametrize("dangling", [False, True])
def test_symlinks_are_never_followed(tmp_path: Path, dangling: bool) -> None:
    target = tmp_path / "target"
    if not dangling:
        target.write_bytes(b"")
    link = tmp_path / "s.jsonl"
    link.symlink_to(target)
    with pytest.raises(TranscriptError, match="symlink"):
        TranscriptSink(link)

    @virtual_time
    async def late() -> None:
        link.unlink()
        sink = TranscriptSink(link)
        link.symlink_to(target)
        with pytest.raises(TranscriptError, match="symlink"):
            sink.open()
        await sink.aclose()

    late()
    assert not dangling or not target.exists()


@virtual_time
async def test_a_symlink_put_there_at_the_last_moment_isnt_followed_either(tmp_path: Path) -> None:
    path, target = tmp_path / "s.jsonl", tmp_path / "target"
    sink = TranscriptSink(path)
    sink.open()
    path.symlink_to(target)
    with pytest.raises(TranscriptError, match="1 lines can't be written"):
        await sink.record([maker().user("x")])
    path.unlink()
    await sink.aclose()
    assert not target.exists()
    assert len(records(path)) == 1


def test_a_pipe_or_a_folder_is_no_transcript(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(TranscriptError, match="no regular file"):
            TranscriptSink(tmp_path / name)


def test_folders_that_cant_be_made_are_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    sink = TranscriptSink(tmp_path / "file" / "s.jsonl")
    with pytest.raises(TranscriptError):
        sink.open()


# -- one writer


@virtual_time
async def test_a_second_writer_gets_a_clear_error(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    first = TranscriptSink(path)
    await first.record([make.user("1")])
    with pytest.raises(TranscriptError, match=f"another writer \\(process {os.getpid()}\\).*a fork"):
        TranscriptSink(path, append=True)
    await first.record([make.user("2")])
    await first.aclose()
    second = TranscriptSink(path, append=True)
    await second.record([make.user("3")])
    await second.aclose()
    assert len(records(path)) == 3


@virtual_time
async def test_two_writers_of_a_new_file_the_first_message_decides(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    first, second = TranscriptSink(path), TranscriptSink(path)
    first.append(make.user("1"))
    with pytest.raises(TranscriptError, match="another writer"):
        second.append(make.user("2"))
    with pytest.raises(TranscriptError, match="another writer"):
        await second.record([make.user("2")])
    await second.aclose()
    await first.aclose()
    assert [r["message"]["content"] for r in records(path)] == ["1"]


@virtual_time
async def test_the_lock_survives_a_rename_of_the_transcript(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    await sink.record([make.user("1")])
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    copy.rename(path)
    with pytest.raises(TranscriptError, match="another writer"):
        TranscriptSink(path, append=True)
    await sink.aclose()


@virtual_time
async def test_a_lock_file_that_was_left_locks_nobody_out(tmp_path: Path) -> None:
    (tmp_path / ".s.jsonl.lock").write_text("999999\n")
    sink = TranscriptSink(tmp_path / "s.jsonl")
    await sink.record([maker().user("1")])
    await sink.aclose()
    assert len(records(tmp_path / "s.jsonl")) == 1


def test_a_lock_on_a_removed_lock_file_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last writer removes the lock file on release: who had it open already must not take it for the lock."""
    path = tmp_path / "s.jsonl"
    opened = SessionLock._open
    fds: list[int] = []

    def open_then_removed(self: SessionLock) -> int:
        fds.append(opened(self))
        if len(fds) == 1:
            self.path.unlink()
        return fds[-1]

    monkeypatch.setattr(SessionLock, "_open", open_then_removed)
    lock = SessionLock(path)
    lock.acquire()
    assert len(fds) == 2
    with pytest.raises(TranscriptError, match="another writer"):
        SessionLock(path).acquire()
    lock.release()
    lock.release()


def test_a_writer_that_nobody_closed_gives_the_lock_back(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    sink.open()
    del sink
    TranscriptSink(path).open()


def test_a_forked_child_doesnt_give_its_parents_lock_back(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    sink.open()
    child = os.fork()
    if child == 0:
        del sink
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(TranscriptError, match="another writer"):
        TranscriptSink(path).open()


# -- the device


@virtual_time
async def test_one_write_per_group_of_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = FaultyDevice()
    monkeypatch.setattr(files, "_write", device)
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    await sink.record([make.user(str(n)) for n in range(100)])
    await sink.aclose()
    assert device.calls == [path.stat().st_size]


@virtual_time
async def test_a_short_write_is_cut_back_to_the_line_start_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = maker()
    talk = [make.user(str(n)) for n in range(5)]
    path = tmp_path / "s.jsonl"
    plain = TranscriptSink(tmp_path / "plain.jsonl", session_id=SESSION, cwd="/w")
    await plain.record(talk)
    await plain.aclose()
    expected = (tmp_path / "plain.jsonl").read_bytes()
    size = expected.index(b"\n") + 1
    for allowed in (0, 1, size - 1, size, size + 1, 3 * size + 7, len(expected) - 1):
        device = FaultyDevice(allowed)
        monkeypatch.setattr(files, "_write", device)
        path.unlink(missing_ok=True)
        sink = TranscriptSink(path, session_id=SESSION, cwd="/w")
        await sink.record(talk)
        assert sink.statistics()["short_writes"] == 1
        await sink.aclose()
        assert path.read_bytes() == expected
        left = len(expected) - (expected.rfind(b"\n", 0, allowed) + 1)
        assert device.calls == [len(expected), left], "the rest begins at a line start"


@virtual_time
async def test_a_full_device_keeps_the_lines_reports_and_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    first, second, third = make.user("1"), make.user("2"), make.user("3")
    await sink.record([first])
    monkeypatch.setattr(files, "_write", FaultyDevice(FULL, FULL))
    with pytest.raises(TranscriptError, match=r"1 lines can't be written: No space left.*kept") as caught:
        await sink.record([second])
    assert caught.value.kept == (second,)
    assert caught.value.file == str(path)
    assert isinstance(caught.value.__cause__, OSError)
    assert "No space left" in sink.statistics()["device_error"]
    assert sink.full(), "a failing device holds the source"
    sink.append(third)
    with pytest.raises(TranscriptError, match="2 lines") as caught:
        await sink.drain()
    assert caught.value.kept == (second, third)
    await sink.drain()
    assert not sink.full()
    assert sink.statistics()["device_error"] is None
    assert sink.statistics()["write_errors"] == 2
    await sink.aclose()
    assert uuids(path) == [first.uuid, second.uuid, third.uuid]


@virtual_time
async def test_a_partly_written_group_keeps_only_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, title="t")
    talk = [make.user("x" * 100) for _ in range(10)]
    await sink.record(talk[:1])
    size = path.stat().st_size - path.read_bytes().index(b"\n") - 1
    monkeypatch.setattr(files, "_write", FaultyDevice(4 * size + 400, BROKEN))
    with pytest.raises(TranscriptError) as caught:
        await sink.record(talk)
    written = len(records(path)) - 2
    assert 1 <= written <= 4
    assert list(caught.value.kept) == talk[1 + written :]
    await sink.aclose()
    assert uuids(path) == [message.uuid for message in talk]
    assert sink.statistics()["lines"] == 11


@virtual_time
async def test_a_device_that_takes_no_whole_line_is_an_error_and_leaves_no_torn_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    await sink.record([make.user("1")])
    before = path.read_bytes()
    device = FaultyDevice(*[20] * 4)
    monkeypatch.setattr(files, "_write", device)
    with pytest.raises(TranscriptError, match="1 lines"):
        await sink.record([make.user("2")])
    assert path.read_bytes() == before
    assert len(device.calls) == 4
    await sink.aclose()
    assert len(records(path)) == 2


@virtual_time
async def test_a_torn_line_that_cant_be_cut_is_ended_by_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, size: int) -> None:
        raise PermissionError(errno.EPERM, "append only")

    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    await sink.record([make.user("1")])
    monkeypatch.setattr(files, "_ftruncate", refuse)
    monkeypatch.setattr(files, "_write", FaultyDevice(20, FULL))
    with pytest.raises(TranscriptError):
        await sink.record([make.user("2")])
    await sink.aclose()
    first, torn, second, rest = path.read_bytes().split(b"\n")
    assert (len(torn), rest) == (20, b"")
    assert b'"content":"1"' in first
    assert b'"content":"2"' in second


@virtual_time
async def test_the_device_is_tried_again_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    device = FaultyDevice(FULL, FULL, FULL)
    monkeypatch.setattr(files, "_write", device)
    sink.append(make.user("1"))
    await asyncio.sleep(0.5)
    assert sink.full()
    assert len(loop.pending_timers()) == 1
    sink.append(make.user("2"))
    await asyncio.sleep(0.4)
    assert len(device.calls) == 1, "new lines don't hammer a failing device"
    await sink.room()
    assert loop.time() == pytest.approx(1 + 2 + 4, abs=0.01)
    assert len(device.calls) >= 4
    await sink.aclose()
    assert len(records(path)) == 2


@virtual_time
async def test_a_limit_to_how_long_a_failing_device_holds_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = TranscriptSink(tmp_path / "s.jsonl", device_patience=5.0)
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(files, "_write", FaultyDevice(*[FULL] * 20))
    sink.append(maker().user("1"))
    await asyncio.sleep(0.1)
    with pytest.raises(TranscriptError, match="1 lines can't be written"):
        await sink.room()
    assert 5 <= loop.time() <= 8
    with pytest.raises(TranscriptError):
        await sink.aclose()


@virtual_time
async def test_lines_that_never_got_through_are_in_the_error_of_aclose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    monkeypatch.setattr(files, "_write", FaultyDevice(*[BROKEN] * 20))
    message = maker().user("1")
    sink.append(message)
    with pytest.raises(TranscriptError) as caught:
        await sink.aclose()
    assert caught.value.kept == (message,)
    await sink.aclose()
    await sink.drain()
    assert not sink.full()
    assert not path.with_name(".s.jsonl.lock").exists()


@virtual_time
async def test_what_couldnt_be_written_may_be_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    monkeypatch.setattr(files, "_write", FaultyDevice(FULL))
    message = make.user("1")
    with pytest.raises(TranscriptError):
        await sink.record([message])
    sink.append(make.tombstone(message))
    await sink.drain()
    assert not sink.full()
    await sink.record([make.user("2")])
    await sink.aclose()
    assert [r["message"]["content"] for r in records(path)] == ["2"]


@pytest.mark.parametrize("durability", ["flush", "fsync"])
def test_durability(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: Any) -> None:
    synced: list[bool] = []
    monkeypatch.setattr(files, "_fsync", lambda fd: synced.append(stat.S_ISREG(os.fstat(fd).st_mode)))

    @virtual_time
    async def check() -> None:
        make = maker()
        sink = TranscriptSink(tmp_path / "s.jsonl", durability=durability)
        await sink.record([make.user("1")])
        await sink.record([make.user("2")])
        await sink.aclose()

    check()
    # The folder once, when the file was made; the file with each acknowledged write.
    assert synced == ([False, True, True] if durability == "fsync" else [])


@virtual_time
async def test_a_failed_fsync_counts_as_not_written_and_the_lines_are_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, durability="fsync")
    await sink.record([make.user("1")])

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files, "_fsync", fail)
    with pytest.raises(TranscriptError, match="Input/output error"):
        await sink.record([make.user("2")])
    assert len(records(path)) == 1
    monkeypatch.undo()
    await sink.aclose()
    assert len(records(path)) == 2


LIMITED = """
import asyncio, resource, sys
from turnstream.messages import MessageFactory, TranscriptError
from turnstream.sinks.transcript import TranscriptSink

async def main():
    make = MessageFactory()
    sink = TranscriptSink(sys.argv[1])
    await sink.record([make.user("x" * 1000) for _ in range(3)])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, hard))
    try:
        await sink.record([make.user("y" * 1000) for _ in range(5)])
    except TranscriptError as error:
        print(len(error.kept))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await sink.aclose()

asyncio.run(main())
"""


def test_a_real_limit_of_the_system(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    found = records(path)
    assert [r["message"]["content"][0] for r in found] == ["x"] * 3 + ["y"] * 5
    sizes = [len(line) + 1 for line in path.read_bytes().split(b"\n")[:-1]]
    fitting = max(n for n in range(9) if sum(sizes[:n]) <= 6000)
    assert int(done.stdout) == 8 - fitting


# -- threads and loops


@virtual_time
async def test_writes_happen_in_one_thread_of_our_own_which_ends_with_aclose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[str] = set()

    def note(fd: int, data: memoryview) -> int:
        seen.add(threading.current_thread().name)
        return os.write(fd, data)

    monkeypatch.setattr(files, "_write", note)
    make = maker()
    sink = TranscriptSink(tmp_path / "s.jsonl", redact=lambda m: seen.add(threading.current_thread().name) or m)
    before = threading.active_count()
    for number in range(5):
        await sink.record([make.user(str(number))])
    assert threading.active_count() == before + 1
    await sink.aclose()
    assert threading.active_count() == before
    writer = seen - {threading.current_thread().name}
    assert len(writer) == 1
    assert writer.pop().startswith("turnstream-transcript-")
    assert threading.current_thread().name in seen, "lines are made on the loop"


def test_one_loop_after_another(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    sink.append(make.user("without a loop"))
    assert not path.exists()
    asyncio.run(sink.record([make.user("in one")]))

    async def leave() -> None:
        sink.append(make.user("started, not awaited"))
        sink.append(make.assistant("x"))

    asyncio.run(leave())
    asyncio.run(sink.record([make.user("in another")]))
    asyncio.run(sink.aclose())
    assert len(records(path)) == 5
    assert len(set(uuids(path))) == 5


def test_a_timer_of_the_last_loop_isnt_waited_for_in_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    answer = Answer(maker())

    async def leave() -> None:
        sink.append(answer.message({"type": "text", "text": "waits 5 s"}))

    async def go_on() -> None:
        sink.append(answer.message({"type": "text", "text": "waits too"}))
        await asyncio.sleep(5.1)
        assert len(records(path)) == 2
        await sink.aclose()

    run_virtual(leave(), start=10.0)
    run_virtual(go_on(), start=20.0)


@virtual_time
async def test_after_aclose_it_says_so(tmp_path: Path) -> None:
    make = maker()
    sink = TranscriptSink(tmp_path / "s.jsonl")
    await asyncio.gather(sink.aclose(), sink.aclose())
    await sink.aclose()
    with pytest.raises(TranscriptError, match="closed"):
        sink.append(make.user("x"))
    with pytest.raises(TranscriptError, match="closed"):
        await sink.record([make.user("x")])
    with pytest.raises(TranscriptError, match="closed"):
        sink.on_next([make.user("x")])
    await sink.room()
    assert list(tmp_path.iterdir()) == []


@virtual_time
async def test_a_cancelled_close_releases_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    entered = threading.Event()

    def stuck(fd: int, data: memoryview) -> int:
        entered.set()
        go.wait(20)
        return os.write(fd, data)

    monkeypatch.setattr(files, "_write", stuck)
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    sink.append(make.user("1"))
    loop = asyncio.get_running_loop()
    closing = loop.create_task(sink.aclose())
    await loop.run_in_executor(None, entered.wait, 20)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    with pytest.raises(TranscriptError, match="closed"):
        sink.append(make.user("2"))
    go.set()
    thread = next(t for t in threading.enumerate() if t.name.startswith("turnstream-transcript"))
    await loop.run_in_executor(None, thread.join, 20)
    assert len(records(path)) == 1, "what was in flight ends by itself"
    TranscriptSink(path, append=True)


OUTLIVED = """
import asyncio, os, sys
from turnstream.messages import MessageFactory
from turnstream.sinks.transcript import TranscriptSink

async def main():
    make = MessageFactory()
    sink = TranscriptSink(sys.argv[1])
    await sink.record([make.user("1")])
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(told, b"x")
        os.read(0, 1)  # lives on until the test ends
        os._exit(0)
    os.read(ready, 1)
    print(child, flush=True)
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="a system without fork")
def test_a_killed_writers_lock_is_free_although_a_child_of_it_lives_on(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    writer = subprocess.Popen(
        [sys.executable, "-c", OUTLIVED, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    child = int(writer.stdout.readline())
    assert writer.wait(timeout=60) == -9
    os.kill(child, 0)  # it lives
    assert (tmp_path / ".s.jsonl.lock").exists()
    sink = TranscriptSink(path, append=True)
    asyncio.run(sink.record([maker().user("2")]))
    asyncio.run(sink.aclose())
    assert len(records(path)) == 2
    assert list(tmp_path.iterdir()) == [path]
    writer.communicate()  # the end of its input ends the child


INTERRUPTED = """
import asyncio, os, signal, sys, threading
from turnstream.messages import MessageFactory
from turnstream.sinks.transcript import TranscriptSink, files

go = threading.Event()

def stuck(fd, data):
    print("stuck", flush=True)
    go.wait()
    return os.write(fd, data)

async def main():
    make = MessageFactory()
    sink = TranscriptSink(sys.argv[1])
    await sink.record([make.user("1")])
    files._write = stuck
    sink.append(make.user("2"))
    # The first interrupt starts the drain, which hangs; the second one ends the process at once.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    await sink.aclose()

asyncio.run(main())
"""


def test_after_a_second_interrupt_the_lock_file_is_left_and_locks_nobody_out(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    writer = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(path)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"stuck\n"
    with pytest.raises(TranscriptError, match=f"another writer .process {writer.pid}"):
        TranscriptSink(path, append=True)
    writer.send_signal(2)
    writer.communicate(timeout=60)
    assert writer.returncode == 130
    assert (tmp_path / ".s.jsonl.lock").exists()
    sink = TranscriptSink(path, append=True)
    asyncio.run(sink.record([maker().user("3")]))
    asyncio.run(sink.aclose())
    assert [r["message"]["content"] for r in records(path)] == ["1", "3"]
    assert list(tmp_path.iterdir()) == [path]


@virtual_time
async def test_a_device_that_only_writes_short_says_why_to_the_write_behind_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As tmpfs does: it takes what fits, and says that it is full only to a write at its end."""
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    first, second = make.user("1"), make.user("2")
    monkeypatch.setattr(files, "_write", FaultyDevice(20, 20, 20, FULL))
    with pytest.raises(TranscriptError, match="No space left on device"):
        await sink.record([first])
    assert path.read_bytes() == b""
    # If there is room by then, it is the rest of the line.
    monkeypatch.setattr(files, "_write", FaultyDevice(20, 20, 20))
    await sink.record([second])
    await sink.aclose()
    assert uuids(path) == [first.uuid, second.uuid]


@virtual_time
@pytest.mark.parametrize("ended", [True, False])
async def test_a_file_that_an_editor_put_in_its_place_is_gone_on_with(tmp_path: Path, ended: bool) -> None:
    path = tmp_path / "s.jsonl"
    make = maker()
    sink = TranscriptSink(path)
    first, second, third = make.user("1"), make.assistant("2"), make.user("3")
    await sink.record([first, second])
    edited = path.read_bytes().replace(b'"1"', b'"one"')
    (tmp_path / "new").write_bytes(edited if ended else edited[:-1])
    os.replace(tmp_path / "new", path)
    await sink.record([third])
    assert path.read_bytes().startswith(edited)
    assert parents(path) == {first.uuid: None, second.uuid: first.uuid, third.uuid: second.uuid}
    sink.append(make.tombstone(second))
    await sink.aclose()
    assert parents(path) == {first.uuid: None, third.uuid: first.uuid}


@virtual_time
async def test_a_file_that_is_cut_in_place_is_ended_first(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    make = maker()
    sink = TranscriptSink(path)
    await sink.record([make.user("1"), make.assistant("2")])
    os.truncate(path, path.stat().st_size - 20)
    await sink.record([last := make.user("3")])
    await sink.aclose()
    *_, torn, line = path.read_bytes().splitlines()
    assert torn.startswith(b'{"parentUuid"')
    assert json.loads(line)["uuid"] == last.uuid


@virtual_time
async def test_what_is_acknowledged_after_a_removal_is_at_the_path(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.jsonl"
    make = maker()
    sink = TranscriptSink(path)
    await sink.record([make.user("1")])
    path.unlink()
    await sink.record([last := make.user("2")])
    assert uuids(path) == [last.uuid]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "was replaced or removed" in caplog.text
    await sink.aclose()
