"""Taking back what is in the file (WIRE.md §3, *Tombstone*): cut off, or overwritten in place; bridged; compacted."""

from __future__ import annotations

import errno
import json
import os
import random
import stat
from pathlib import Path
from typing import Any

import pytest
from transcripts import SESSION, Answer, maker, parents, records, uuids

from turnstream.messages import TranscriptError
from turnstream.sinks.transcript import TranscriptSink, files, fillers, index, tombstones
from turnstream.sinks.transcript.chain import Bridge
from turnstream.sinks.transcript.fillers import drop_fillers, filler, is_filler
from turnstream.sinks.transcript.index import LineIndex, read_line, search_back
from turnstream.sinks.transcript.tombstones import erase
from turnstream.testing import virtual_time


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def kinds(path: Path) -> list[str]:
    return [record["type"] for record in records(path)]


# -- the writer


@virtual_time
async def test_the_last_line_is_cut_off(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    user, bad, after = make.user("1"), make.assistant("wrong"), make.user("2")
    await sink.record([user])
    before = path.read_bytes()
    await sink.record([bad])
    sink.append(make.tombstone(bad))
    await sink.drain()
    assert path.read_bytes() == before
    assert sink.last_uuid == user.uuid
    await sink.record([after])
    await sink.aclose()
    assert parents(path) == {user.uuid: None, after.uuid: user.uuid}
    assert sink.statistics()["lines_cut"] == 1
    assert sink.statistics()["tombstones_on_disk"] == 1


@virtual_time
async def test_an_answer_at_the_end_is_cut_off_as_a_whole(tmp_path: Path) -> None:
    """The lines of a superseded attempt, tombstoned first to last: none becomes a filler."""
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    user = make.user("1")
    lost, kept = Answer(make, "msg_lost"), Answer(make, "msg_kept")
    await sink.record([user])
    before = path.read_bytes()
    sink.on_next([lost.start(), *lost.text("a"), *lost.text("b"), *lost.text("c"), *lost.fail()])
    await sink.drain()
    assert len(records(path)) == 4
    sink.on_next(lost.tombstones())
    await sink.drain()
    assert path.read_bytes() == before
    sink.on_next([kept.start(), *kept.text("d"), *kept.end()])
    await sink.aclose()
    assert parents(path) == {user.uuid: None, kept.messages[0].uuid: user.uuid}


@virtual_time
async def test_an_earlier_line_is_overwritten_by_a_filler_of_the_same_length_in_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    user, bad, other = make.user("1"), make.assistant("wrong ✅ " * 50), make.user("2")
    await sink.record([user, bad])
    await sink.record([other], parent=user.uuid)  # so that nothing hangs on the line
    before = lines_of(path)
    calls: list[tuple[int, int]] = []

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        assert not fcntl_flags(fd) & os.O_APPEND, "pwrite on a descriptor that appends appends"
        calls.append((offset, len(data)))
        return os.pwrite(fd, data, offset)

    monkeypatch.setattr(tombstones, "_pwrite", pwrite)
    sink.append(make.tombstone(bad))
    await sink.drain()
    after = lines_of(path)
    assert calls == [(len(before[0]), len(before[1]))]
    assert (after[0], after[2]) == (before[0], before[2])
    assert len(after[1]) == len(before[1])
    found = json.loads(after[1])
    assert (found["type"], found["targetUuid"]) == ("tombstone-filler", bad.uuid)
    assert set(found["pad"]) == {" "}
    assert set(found) == {"type", "targetUuid", "pad"}
    assert sink.statistics()["lines_overwritten"] == 1
    await sink.aclose()
    assert lines_of(path) == [before[0], before[2]], "it vanishes at close"


def fcntl_flags(fd: int) -> int:
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_GETFL)


@virtual_time
async def test_children_are_bridged_in_place(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    talk = [make.user("1"), make.assistant("2"), make.assistant("3"), make.user("4"), make.user("5")]
    await sink.record(talk)
    before = lines_of(path)
    sink.append(make.tombstone(talk[1]))
    await sink.drain()
    assert parents(path) == {
        talk[0].uuid: None,
        talk[2].uuid: talk[0].uuid,
        talk[3].uuid: talk[2].uuid,
        talk[4].uuid: talk[3].uuid,
    }
    # … again, over what was bridged before, and by a later job.
    sink.append(make.tombstone(talk[2]))
    await sink.drain()
    assert parents(path)[talk[3].uuid] == talk[0].uuid
    # The first one: its children become roots.
    sink.append(make.tombstone(talk[0]))
    await sink.drain()
    assert parents(path) == {talk[3].uuid: None, talk[4].uuid: talk[3].uuid}
    assert [len(line) for line in lines_of(path)] == [len(line) for line in before]
    assert sink.statistics()["lines_bridged"] == 3
    await sink.aclose()
    assert parents(path) == {talk[3].uuid: None, talk[4].uuid: talk[3].uuid}
    again = TranscriptSink(path, append=True)
    assert again.last_uuid == talk[4].uuid
    await again.aclose()


@virtual_time
async def test_a_tool_result_whose_question_is_taken_back_hangs_on_what_came_before_that(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    user, answer = make.user("go"), Answer(make)
    sink.on_next([user, answer.start(), *answer.tool("t1"), *answer.tool("t2"), *answer.end()])
    first, second = answer.messages
    one, two = make.tool_result("t1", "one", source=first), make.tool_result("t2", "two", source=second)
    await sink.record([two, one])
    assert parents(path)[one.uuid] == first.uuid
    sink.append(make.tombstone(first))
    await sink.drain()
    assert parents(path) == {user.uuid: None, second.uuid: user.uuid, two.uuid: second.uuid, one.uuid: user.uuid}
    await sink.aclose()


@virtual_time
async def test_a_queued_child_of_a_line_in_the_file_is_bridged_when_it_is_written(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    user, bad, answer = make.user("1"), make.assistant("wrong"), Answer(make)
    await sink.record([user, bad])
    sink.on_next([answer.start(), *answer.text("waits")])
    sink.append(make.tombstone(bad))
    sink.on_next(answer.end())
    await sink.aclose()
    assert parents(path) == {user.uuid: None, answer.messages[0].uuid: user.uuid}
    assert sink.statistics()["lines_bridged"] == 0


@virtual_time
async def test_random_tombstones_leave_exactly_one_chain_of_the_rest(tmp_path: Path) -> None:
    """Whatever is taken back, whenever, with sessions closed and gone on with: what is left is one chain in order."""
    for seed in range(30):
        chance = random.Random(seed)
        make = maker(seed)
        path = tmp_path / f"{seed}.jsonl"
        sink = TranscriptSink(path)
        valid: list[Any] = []
        for step in range(60):
            action = chance.random()
            if action < 0.6 or not valid:
                message = make.user(f"{step} " + "x" * chance.randrange(300))
                valid.append(message)
                sink.append(message)
            elif action < 0.85:
                message = valid.pop(chance.randrange(len(valid)) if chance.random() < 0.5 else -1)
                sink.append(make.tombstone(message))
            elif action < 0.95:
                await sink.drain()
            else:
                await sink.aclose()
                sink = TranscriptSink(path, append=True)
        await sink.drain()
        wanted = [message.uuid for message in valid]
        expected = dict(zip(wanted, [None, *wanted[:-1]], strict=True))
        assert (parents(path) if path.exists() else {}) == expected, seed
        await sink.aclose()
        assert (parents(path) if path.exists() else {}) == expected, seed
        assert not path.exists() or "tombstone-filler" not in kinds(path)


@virtual_time
async def test_lines_of_an_earlier_session_of_the_writer_are_found(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    first = TranscriptSink(path, title="t")
    talk = [make.user(str(n)) for n in range(20)]
    await first.record(talk)
    await first.aclose()
    second = TranscriptSink(path, append=True)
    second.append(make.tombstone(talk[3]))
    await second.drain()
    assert talk[3].uuid not in uuids(path)
    assert parents(path)[talk[4].uuid] == talk[2].uuid
    await second.aclose()
    assert uuids(path) == [message.uuid for message in talk if message is not talk[3]]
    assert kinds(path)[0] == "custom-title"


@virtual_time
async def test_a_line_that_somebody_moved_is_searched_for(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    talk = [make.user(str(n) + "y" * 3000) for n in range(50)]
    await sink.record(talk)
    data = path.read_bytes()
    with open(path, "r+b") as file:  # a foreign tool wrote something to its beginning
        file.write(b'{"type":"mode","mode":"x"}\n' + data)
    sink.append(make.tombstone(talk[2]))
    await sink.drain()
    assert uuids(path) == [message.uuid for message in talk if message is not talk[2]]
    # … and one that is gone is no error.
    path.write_bytes(b"")
    sink.append(make.tombstone(talk[5]))
    await sink.drain()
    assert sink.statistics()["lines_to_erase_missing"] == 1
    await sink.aclose()


@virtual_time
async def test_a_record_that_a_foreign_file_holds_twice_is_taken_out_twice(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    first = TranscriptSink(path)
    user, bad, after = make.user("1"), make.assistant("wrong"), make.user("2")
    await first.record([user, bad, after])
    await first.aclose()
    lines = lines_of(path)
    path.write_bytes(b"".join([*lines[:2], lines[1], lines[2]]))
    second = TranscriptSink(path, append=True)
    second.append(make.tombstone(bad))
    await second.aclose()
    assert uuids(path) == [user.uuid, after.uuid]


@virtual_time
async def test_a_tombstone_for_what_is_being_written_right_now(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    user, bad = make.user("1"), make.assistant("wrong")
    sink.append(user)
    sink.append(bad)
    sink.on_completed()  # the write is under way, its result unknown
    sink.append(make.tombstone(bad))
    await sink.drain()
    assert uuids(path) == [user.uuid]
    await sink.aclose()


@virtual_time
async def test_a_tombstone_for_a_write_that_fails_drops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    user, bad, after = make.user("1"), make.user("wrong"), make.user("2")
    await sink.record([user])
    monkeypatch.setattr(files, "_write", full)
    sink.append(bad)
    sink.append(make.tombstone(bad))
    sink.append(after)
    with pytest.raises(TranscriptError, match="1 lines"):
        await sink.drain()
    monkeypatch.undo()
    await sink.aclose()
    assert parents(path) == {user.uuid: None, after.uuid: user.uuid}
    assert sink.statistics()["lines_to_erase_missing"] == 0


@virtual_time
async def test_taking_back_the_only_message_leaves_no_session(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    user = make.user("1")
    await sink.record([user])
    sink.append(make.tombstone(user))
    await sink.aclose()
    assert list(tmp_path.iterdir()) == []


@virtual_time
async def test_a_taken_back_message_isnt_written_again(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    user, bad = make.user("1"), make.assistant("wrong")
    await sink.record([user, bad])
    sink.append(make.tombstone(bad))
    await sink.record([user, bad])
    await sink.aclose()
    assert uuids(path) == [user.uuid]


# -- a device that fails, a writer that is killed


@pytest.mark.parametrize("failing", ["_pwrite", "_ftruncate", "_fsync"])
def test_a_failing_device_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    @virtual_time
    async def check() -> None:
        make = maker()
        path = tmp_path / "s.jsonl"
        sink = TranscriptSink(path, durability="fsync")
        talk = [make.user(str(n)) for n in range(5)]
        await sink.record(talk)
        real = getattr(tombstones, failing)
        plan = [OSError(errno.EIO, "Input/output error")] * 2

        def fail(*args: Any) -> Any:
            if plan:
                raise plan.pop()
            return real(*args)

        monkeypatch.setattr(tombstones, failing, fail)
        sink.append(make.tombstone(talk[1]))
        sink.append(make.tombstone(talk[4]))
        with pytest.raises(TranscriptError, match="Input/output error"):
            await sink.drain()
        assert sink.full(), "it holds the source"
        with pytest.raises(TranscriptError, match="Input/output error"):
            await sink.drain()
        await sink.drain()
        assert not sink.full()
        wanted = [talk[0].uuid, talk[2].uuid, talk[3].uuid]
        assert parents(path) == dict(zip(wanted, [None, *wanted[:-1]], strict=True))
        await sink.aclose()
        assert uuids(path) == wanted

    check()


@virtual_time
async def test_a_short_overwrite_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    talk = [make.user(str(n)) for n in range(3)]
    await sink.record(talk)
    monkeypatch.setattr(tombstones, "_pwrite", lambda fd, data, offset: os.pwrite(fd, data[:7], offset))
    sink.append(make.tombstone(talk[1]))
    await sink.drain()
    assert kinds(path) == ["user", "tombstone-filler", "user"]
    assert parents(path)[talk[2].uuid] == talk[0].uuid
    await sink.aclose()


@virtual_time
async def test_an_overwrite_that_broke_off_is_completed_by_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    talk = [make.user(str(n)) for n in range(3)]
    await sink.record(talk)
    sizes = list(map(len, lines_of(path)))
    calls: list[int] = []

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        calls.append(len(data))
        if len(calls) == 2:  # the first one bridges
            return os.pwrite(fd, data[:100], offset)
        if len(calls) == 3:
            raise OSError(errno.EIO, "Input/output error")
        return os.pwrite(fd, data, offset)

    monkeypatch.setattr(tombstones, "_pwrite", pwrite)
    sink.append(make.tombstone(talk[1]))
    with pytest.raises(TranscriptError, match="Input/output error"):
        await sink.drain()
    assert len(chains(path.read_bytes())) == 2
    await sink.drain()
    assert kinds(path) == ["user", "tombstone-filler", "user"]
    assert list(map(len, lines_of(path))) == sizes
    assert sink.statistics()["lines_to_erase_missing"] == 0
    await sink.aclose()


@virtual_time
async def test_a_filler_that_a_crash_left_still_stands_for_its_message(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    talk = [make.user(str(n)) for n in range(3)]
    sink = TranscriptSink(path)
    await sink.record(talk)
    await sink.aclose()
    lines = lines_of(path)
    path.write_bytes(lines[0] + filler(talk[1].uuid, len(lines[1])) + lines[2])
    again = TranscriptSink(path, append=True)
    assert await again.record(talk) == talk[2].uuid
    # What hung on it goes back over it.
    again.append(make.tombstone(talk[2]))
    await again.drain()
    assert again.last_uuid == talk[0].uuid
    await again.aclose()
    assert lines_of(path) == [lines[0]]


def chains(data: bytes) -> dict[str, str | None]:
    """uuid → parent of what can be read of a file, by the standard library; each line but a torn filler parses."""
    found = {}
    for line in data.split(b"\n"):
        if line and not line.startswith(b'{"type":"tombstone-filler"'):
            record = json.loads(line)
            if "parentUuid" in record:
                found[record["uuid"]] = record["parentUuid"]
    return found


@virtual_time
async def test_each_state_between_two_system_calls_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between any two: every line parses, all that is valid is there, and its chain reaches the first message."""
    make = maker()
    path = tmp_path / "s.jsonl"
    states: list[bytes] = []

    def watched(module: Any, name: str) -> None:
        real = getattr(module, name)

        def call(*args: Any) -> Any:
            states.append(path.read_bytes() if path.exists() else b"")
            result = real(*args)
            states.append(path.read_bytes())
            return result

        monkeypatch.setattr(module, name, call)

    for module, names in (
        (files, ("_write", "_ftruncate")),
        (tombstones, ("_pwrite", "_ftruncate", "_fsync")),
        (fillers, ("_write", "_fsync", "_replace")),
    ):
        for name in names:
            watched(module, name)

    sink = TranscriptSink(path, durability="fsync")
    talk = [make.user(f"{n} " + "z" * 9000 * (n % 2)) for n in range(8)]
    await sink.record(talk)
    states.clear()
    for message in (talk[1], talk[2], talk[5], talk[7]):
        sink.append(make.tombstone(message))
    await sink.aclose()
    left = [m.uuid for m in talk if m not in (talk[1], talk[2], talk[5], talk[7])]
    assert len(states) > 15
    for state in states:
        found = chains(state)
        at: str | None = talk[6].uuid
        walked = []
        while at is not None:
            walked.append(at)
            at = found[at]
        assert set(left) <= set(walked)
        assert walked[-1] == talk[0].uuid
    assert chains(path.read_bytes()) == dict(zip(left, [None, *left[:-1]], strict=True))


@virtual_time
async def test_a_filler_whose_write_was_broken_off_is_one_all_the_same(tmp_path: Path) -> None:
    """A kill inside a write of several pages leaves the filler's beginning and the old line's rest."""
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    talk = [make.user(f"{n}" + "z" * 9000) for n in range(3)]
    await sink.record(talk)
    await sink.aclose()
    lines = lines_of(path)
    torn = filler(talk[1].uuid, len(lines[1]))[:4096] + lines[1][4096:]
    path.write_bytes(lines[0] + torn + lines[2])
    again = TranscriptSink(path, append=True)
    assert again.statistics()["loaded_bad_lines"] == 0
    assert again.last_uuid == talk[2].uuid
    await again.aclose()
    assert lines_of(path) == [lines[0], lines[2]]


# -- fillers


def test_a_filler_has_the_length_of_the_line_for_every_length() -> None:
    for uuid in (SESSION, "", 'odd "quoted" \n ✅'):
        for length in range(1, 300):
            line = filler(uuid, length)
            assert len(line) == length
            assert line.endswith(b"\n")
            assert line.count(b"\n") == 1
            text = line.decode()
            if text.strip():
                assert json.loads(text)["type"] == "tombstone-filler"
                assert json.loads(text)["targetUuid"] == uuid
            assert length == 1 or is_filler(line)
    for line in (b"\n", b"", b'{"type":"user"}\n', b"\t\n", b'{"type":"tombstone"}\n', b" {}\n"):
        assert not is_filler(line)


def test_dropping_fillers_keeps_every_other_byte_mode_and_time(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    kept = [b'{"a":1}\n', b"{broken\n", b"\n", b"\xff\xfe\n", b'{"type":"tombstone"}\n', b'{"unended":1}']
    data = [kept[0], filler("u1", 200), kept[1], filler("u2", 20), *kept[2:5], filler("u3", 100_000), kept[5]]
    path.write_bytes(b"".join(data))
    path.chmod(0o640)
    os.utime(path, ns=(1_700_000_000_123_456_789, 1_700_000_000_123_456_789))
    assert drop_fillers(path, keep_times=True) == 200 + 20 + 100_000
    assert path.read_bytes() == b"".join(kept)
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.stat().st_mtime_ns == 1_700_000_000_123_456_789
    inode = path.stat().st_ino
    assert drop_fillers(path) == 0
    assert path.stat().st_ino == inode, "nothing to drop: untouched"
    assert list(tmp_path.iterdir()) == [path]


def test_no_room_for_the_new_file_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    make = maker()
    path = tmp_path / "s.jsonl"

    @virtual_time
    async def check() -> None:
        sink = TranscriptSink(path)
        talk = [make.user(str(n)) for n in range(3)]
        await sink.record(talk)
        sink.append(make.tombstone(talk[1]))
        await sink.drain()
        monkeypatch.setattr(fillers, "_write", full)
        await sink.aclose()
        assert kinds(path) == ["user", "tombstone-filler", "user"]
        monkeypatch.undo()
        assert list(tmp_path.iterdir()) == [path]
        # The next writer takes them.
        again = TranscriptSink(path, append=True)
        await again.aclose()
        assert kinds(path) == ["user", "user"]

    check()


def test_a_line_that_comes_while_the_new_file_is_written_isnt_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a program that knows no lock, such as an SDK that renames the session."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"n":1}\n' + filler("u", 300) + b'{"n":2}\n')

    def sync(fd: int) -> None:
        monkeypatch.undo()
        with open(path, "ab") as file:
            file.write(b'{"n":3}\n')

    monkeypatch.setattr(fillers, "_fsync", sync)
    assert drop_fillers(path) == 300
    assert [record["n"] for record in records(path)] == [1, 2, 3]


@virtual_time
async def test_what_a_killed_compaction_left_is_removed(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    (tmp_path / ".s.jsonl.tmp").write_bytes(b"half")
    sink = TranscriptSink(path)
    await sink.record([make.user("1")])
    await sink.aclose()
    assert list(tmp_path.iterdir()) == [path]


@virtual_time
async def test_the_lock_is_held_while_the_file_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    refused: list[str] = []

    def replace(source: Any, target: Any) -> None:
        with pytest.raises(TranscriptError, match="another writer"):
            TranscriptSink(path, append=True)
        refused.append("yes")
        os.replace(source, target)

    monkeypatch.setattr(fillers, "_replace", replace)
    sink = TranscriptSink(path)
    talk = [make.user(str(n)) for n in range(3)]
    await sink.record(talk)
    sink.append(make.tombstone(talk[0]))
    await sink.aclose()
    assert refused == ["yes"]
    assert list(tmp_path.iterdir()) == [path]


# -- large files


@virtual_time
async def test_a_tombstone_in_a_large_file_touches_little_and_its_filler_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    first = TranscriptSink(path)
    talk = [make.user(str(n)) for n in range(10)]
    await first.record(talk)
    await first.aclose()
    fat = json.dumps({"type": "file-history-snapshot", "x": "x" * 1_000_000}).encode() + b"\n"
    with open(path, "ab") as file:
        file.writelines(fat for _ in range(70))
    assert path.stat().st_size > 64 * 1024 * 1024

    touched = 0
    read, overwrite = index._pread, tombstones._pwrite

    def pread(fd: int, count: int, offset: int) -> bytes:
        nonlocal touched
        data: bytes = read(fd, count, offset)
        touched += len(data)
        return data

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        nonlocal touched
        count: int = overwrite(fd, data, offset)
        touched += count
        return count

    sink = TranscriptSink(path, append=True)
    monkeypatch.setattr(index, "_pread", pread)
    monkeypatch.setattr(tombstones, "_pwrite", pwrite)
    size = path.stat().st_size
    sink.append(make.tombstone(talk[0]))
    sink.append(make.tombstone(talk[5]))
    await sink.drain()
    assert 0 < touched < 200_000
    await sink.aclose()
    assert path.stat().st_size == size, "fillers of a file of 64 MiB stay until it is pruned"
    with open(path, "rb") as file:
        head = file.read(20_000)
    assert chains(head[: head.rfind(b"\n", 0, head.index(b"xxx")) + 1]) == {
        talk[1].uuid: None,
        talk[2].uuid: talk[1].uuid,
        talk[3].uuid: talk[2].uuid,
        talk[4].uuid: talk[3].uuid,
        talk[6].uuid: talk[4].uuid,
        **{talk[n].uuid: talk[n - 1].uuid for n in (7, 8, 9)},
    }


# -- the parts


def test_the_index_finds_what_it_was_told_and_forgets_what_was_cut() -> None:
    lines = LineIndex()
    lines.add("a", 0)
    lines.extend(["b", "", "a"], [10, 20, 30], 5)
    assert [lines.find(uuid) for uuid in ("a", "b", "c")] == [[0, 35], [5], []]
    lines.cut(35)
    assert [lines.find(uuid) for uuid in ("a", "b")] == [[0], [5]]
    assert len(lines) == 3


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 16])
def test_lines_are_found_over_block_borders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(index, "_BLOCK", block)
    monkeypatch.setattr(index, "_FIRST", max(2, block))
    names = [f"uuid-{n}" for n in range(6)]
    data = [b'{"uuid":"%s","parentUuid":"uuid-%d"}\n' % (name.encode(), n - 1) for n, name in enumerate(names)]
    path = tmp_path / "f"
    path.write_bytes(b"".join(data) + b'{"unended":"uuid-0"')
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        for n, name in enumerate(names):
            line = search_back(fd, name, size)
            assert line is not None
            assert line.data == data[n]
            assert line.offset == sum(map(len, data[:n]))
            assert read_line(fd, line.offset) == line
            assert read_line(fd, line.offset + 1) is None
        assert search_back(fd, "uuid-9", size) is None
        assert read_line(fd, sum(map(len, data))) is None, "a line without its end is none"
        assert read_line(fd, size + 100) is None
    finally:
        os.close(fd)


def test_only_the_lines_own_parent_is_changed(tmp_path: Path) -> None:
    """A tool's input may hold a line of a transcript; and a parent's name that is too long for its place stays."""
    path = tmp_path / "f"
    inner = b'{"input":{"parentUuid":"old"},"message":"\\"parentUuid\\":\\"old\\"","parentUuid": "old","uuid":"c1"}\n'
    plain = b'{"type":"user","parentUuid":"old","uuid":"c2"}\n'
    other = b'{"type":"user","parentUuid":"else","uuid":"c3"}\n'
    target = b'{"type":"user","parentUuid":"n","uuid":"old"}\n'
    lines = LineIndex()

    def place() -> None:
        nonlocal lines
        path.write_bytes(target + inner + plain + other)
        lines = LineIndex()
        lines.extend(["old", "c1", "c2", "c3"], map(len, (target, inner, plain, other)), 0)

    place()
    done = erase(path, lines, ["old"], [Bridge(uuid, ("x", "old"), "n") for uuid in ("c1", "c2", "c3", "gone")])
    assert (done.overwritten, done.bridged, done.missing, done.error) == (1, 2, 0, None)
    assert json.loads(path.read_bytes().split(b"\n")[1]) == {
        "input": {"parentUuid": "old"},
        "message": '"parentUuid":"old"',
        "parentUuid": "n",
        "uuid": "c1",
    }
    assert json.loads(path.read_bytes().split(b"\n")[2])["parentUuid"] == "n"
    assert path.read_bytes().endswith(other)
    assert path.stat().st_size == len(target + inner + plain + other)

    place()
    done = erase(path, lines, ["old"], [Bridge("c2", ("old",), "a name that is longer")])
    assert (done.overwritten, done.bridged) == (1, 0)
    assert plain in path.read_bytes()
    # What was cut off is forgotten.
    assert erase(path, lines, ["c3"], []).cut == 1
    assert (len(lines), lines.find("c3")) == (3, [])
    assert erase(path, lines, ["c3"], []).missing == 1


def test_a_symlink_is_never_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b'{"uuid":"u"}\n')
    (tmp_path / "f").symlink_to(tmp_path / "target")
    lines = LineIndex()
    lines.add("u", 0)
    assert isinstance(erase(tmp_path / "f", lines, ["u"], []).error, OSError)
    assert (tmp_path / "target").read_bytes() == b'{"uuid":"u"}\n'
    assert erase(tmp_path / "none", lines, ["u"], []).missing == 1


def test_the_new_file_is_on_the_device_before_it_takes_the_old_ones_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"n":1}\n' + filler("u", 300))
    calls: list[str] = []

    def sync(fd: int) -> None:
        calls.append("file" if stat.S_ISREG(os.fstat(fd).st_mode) else "folder")

    def replace(source: Any, target: Any) -> None:
        calls.append("rename")
        os.replace(source, target)

    monkeypatch.setattr(fillers, "_fsync", sync)
    monkeypatch.setattr(fillers, "_replace", replace)
    assert drop_fillers(path) == 300
    assert calls == ["file", "rename", "folder"]
