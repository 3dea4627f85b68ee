"""The session store passes the SDK's own conformance kit, and the SDK lists and resumes what our sink wrote."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import multiprocessing
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from transcripts import OTHER_SESSION, SESSION, Answer, maker

from turnstream.messages import TranscriptError
from turnstream.sinks.transcript import TranscriptSink, project_slug, session_path
from turnstream.sinks.transcript import sessions_store as module
from turnstream.sinks.transcript.sessions_store import SessionStoreAdapter

KEY = {"project_key": "proj", "session_id": SESSION}


def entry(number: int, **more: Any) -> dict[str, Any]:
    return {"type": "user", "uuid": f"u{number}", "n": number, **more}


def test_the_conformance_kit_of_claude_agent_sdk(tmp_path: Path) -> None:
    testing = pytest.importorskip("claude_agent_sdk.testing")
    roots = itertools.count()
    asyncio.run(testing.run_session_store_conformance(lambda: SessionStoreAdapter(tmp_path / str(next(roots)))))
    # It made a store for each of its contracts, the optional ones too (a skipped one makes none).
    assert next(roots) == 1 + 14


def test_the_sdk_lists_and_reads_what_our_sink_wrote(tmp_path: Path) -> None:
    sdk = pytest.importorskip("claude_agent_sdk")
    make = maker()
    cwd = tmp_path.resolve() / "work"
    cwd.mkdir()
    user, answer = make.user("What is in notes.txt?"), Answer(make)
    items = [user, answer.start(), *answer.tool("t1"), *answer.tool("t2"), *answer.end()]
    results = [make.tool_result(f"t{n}", "x", source=answer.messages[n - 1]) for n in (1, 2)]
    gone, thanks = make.assistant("wrong"), make.user("Thanks")

    async def go() -> None:
        sink = TranscriptSink(session_path(tmp_path / "root", cwd, SESSION), cwd=str(cwd), title="Notes")
        sink.on_next(items)
        await sink.record([*results, gone])
        sink.append(make.tombstone(gone))
        await sink.record([thanks])
        await sink.aclose()

        store = SessionStoreAdapter(tmp_path / "root")
        (info,) = await sdk.list_sessions_from_store(store, directory=str(cwd))
        assert (info.session_id, info.custom_title) == (SESSION, "Notes")
        found = await sdk.get_session_messages_from_store(store, SESSION, directory=str(cwd))
        assert [m.uuid for m in found] == [m.uuid for m in (user, *answer.messages, *results, thanks)]
        await sdk.rename_session_via_store(store, SESSION, "New name", directory=str(cwd))
        (info,) = await sdk.list_sessions_from_store(store, directory=str(cwd))
        assert info.custom_title == "New name"
        fork = await sdk.fork_session_via_store(store, SESSION, directory=str(cwd))
        copied = await sdk.get_session_messages_from_store(store, fork.session_id, directory=str(cwd))
        assert [m.message for m in copied] == [m.message for m in found]

    asyncio.run(go())
    assert (tmp_path / "root" / "projects" / project_slug(cwd) / f"{SESSION}.jsonl").exists()


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_an_entry_with_a_uuid_is_written_once_and_one_without_each_time(tmp_path: Path) -> None:
    async def go() -> None:
        store = SessionStoreAdapter(tmp_path)
        title = {"type": "custom-title", "customTitle": "t"}
        await store.append(KEY, [entry(1), entry(1), title])
        await store.append(KEY, [entry(1), entry(2), title])
        # Another one, which hasn't written it.
        other = SessionStoreAdapter(tmp_path)
        await other.append(KEY, [entry(2), entry(3)])
        await store.append(KEY, [entry(3), entry(4)])
        assert await store.load(KEY) == [entry(1), title, entry(2), title, entry(3), entry(4)]

    asyncio.run(go())


def test_entries_come_back_as_they_were(tmp_path: Path) -> None:
    odd = {"type": "x", "big": 2**70, "small": 1e-7, "null": None, "text": "ünï\u2028✅", "deep": [[{"a": []}]], "": 0}

    async def go() -> None:
        store = SessionStoreAdapter(tmp_path)
        await store.append(KEY, [odd])
        assert await store.load(KEY) == [odd]

    asyncio.run(go())


def test_calls_are_carried_out_in_the_order_they_were_made(tmp_path: Path) -> None:
    async def go() -> None:
        store = SessionStoreAdapter(tmp_path)
        await asyncio.gather(*(store.append(KEY, [entry(n)]) for n in range(50)))
        found = await store.load(KEY)
        assert found is not None
        assert [e["n"] for e in found] == list(range(50))

    asyncio.run(go())


def _append_many(root: str, first: int) -> None:
    async def go() -> None:
        store = SessionStoreAdapter(root, patience=60)
        for n in range(first, first + 40):
            await store.append(KEY, [entry(n), entry(9999)])

    asyncio.run(go())


def test_processes_share_a_session(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_append_many, args=(str(tmp_path), first)) for first in (0, 100)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    found = [e["n"] for e in lines(tmp_path / "projects" / "proj" / f"{SESSION}.jsonl")]
    assert sorted(found) == [*range(40), *range(100, 140), 9999], "each once, the shared one too"
    assert [n for n in found if n < 40] == list(range(40))


@pytest.mark.parametrize(
    "ident", ["../../etc/passwd", "..", ".", ".hidden", "a/b", "a%2Fb", "nul\0", "ü ✅", "C:\\x", "-", "A" * 200]
)
def test_any_id_works_and_none_leaves_the_root(ident: str, tmp_path: Path) -> None:
    async def go() -> None:
        store = SessionStoreAdapter(tmp_path / "root")
        key = {"project_key": ident, "session_id": ident}
        await store.append(key, [entry(1)])
        await store.append({**key, "subpath": f"subagents/{ident}"}, [entry(2)])
        assert await store.load(key) == [entry(1)]
        assert [s["session_id"] for s in await store.list_sessions(ident)] == [ident]
        assert await store.list_subkeys(key) == [f"subagents/{ident}"]

    asyncio.run(go())
    assert [path.name for path in tmp_path.iterdir()] == ["root"]
    (project,) = (tmp_path / "root" / "projects").iterdir()
    assert all(p.is_relative_to(project) for p in project.rglob("*"))
    for path in project.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


@pytest.mark.parametrize("ident", ["", "A" * 300, None])
def test_what_cant_be_a_name_is_refused(ident: Any, tmp_path: Path) -> None:
    async def go() -> None:
        with pytest.raises(TranscriptError, match=r"can't name a file|too long"):
            await SessionStoreAdapter(tmp_path).append({**KEY, "session_id": ident}, [entry(1)])

    asyncio.run(go())


def test_what_cant_be_read_is_left_out_and_a_torn_line_ended(tmp_path: Path) -> None:
    path = tmp_path / "projects" / "proj" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    broken = b'{"type":"user","uuid":"u1","n":1}\nnot json\n{"type":"tombstone-filler","targetUuid":"u0","pad":""}\n{"type":"us'
    path.write_bytes(broken)

    async def go() -> None:
        store = SessionStoreAdapter(tmp_path)
        await store.append(KEY, [entry(1), entry(2)])
        assert await store.load(KEY) == [entry(1), entry(2)]

    asyncio.run(go())
    assert path.read_bytes() == broken + b'\n{"type":"user","uuid":"u2","n":2}\n'


def test_a_symlink_isnt_followed(tmp_path: Path) -> None:
    path = tmp_path / "projects" / "proj" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    target = tmp_path / "secret"
    target.write_bytes(b'{"type":"x"}\n')
    path.symlink_to(target)

    async def go() -> None:
        store = SessionStoreAdapter(tmp_path)
        with pytest.raises(TranscriptError, match="can't be written"):
            await store.append(KEY, [entry(1)])
        with pytest.raises(TranscriptError, match="can't be read"):
            await store.load(KEY)
        assert await store.list_sessions("proj") == []

    asyncio.run(go())
    assert target.read_bytes() == b'{"type":"x"}\n'


def test_neither_is_a_folder_that_is_one(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "projects" / "proj").mkdir(parents=True)
    (tmp_path / "projects" / "proj" / SESSION).symlink_to(tmp_path / "elsewhere")

    async def go() -> None:
        store = SessionStoreAdapter(tmp_path)
        with pytest.raises(TranscriptError, match="symlink"):
            await store.append({**KEY, "subpath": "agent-1"}, [entry(1)])
        await store.append(KEY, [entry(1)])
        assert await store.list_subkeys(KEY) == []
        await store.delete(KEY)

    asyncio.run(go())
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_another_writer_is_told_of(tmp_path: Path) -> None:
    async def go() -> None:
        sink = TranscriptSink(tmp_path / "projects" / "proj" / f"{SESSION}.jsonl")
        await sink.record([maker().user("hello")])
        store = SessionStoreAdapter(tmp_path, patience=0.05)
        with pytest.raises(TranscriptError, match="another writer"):
            await store.append(KEY, [entry(1)])
        await sink.aclose()
        await store.append(KEY, [entry(1)])
        found = await store.load(KEY)
        assert found is not None
        assert len(found) == 2

    asyncio.run(go())


def test_on_a_full_disk_nothing_of_a_batch_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        store = SessionStoreAdapter(tmp_path)
        await store.append(KEY, [entry(1)])
        calls = itertools.count()

        def full(fd: int, data: memoryview) -> int:
            if next(calls):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return os.write(fd, data[:10])

        with monkeypatch.context() as patch:
            patch.setattr(module, "_write", full)
            with pytest.raises(TranscriptError, match="No space left"):
                await store.append(KEY, [entry(2), entry(3)])
        assert lines(tmp_path / "projects" / "proj" / f"{SESSION}.jsonl") == [entry(1)]
        await store.append(KEY, [entry(2), entry(3)])
        assert await store.load(KEY) == [entry(1), entry(2), entry(3)]

    asyncio.run(go())


def test_a_cancelled_append_ends_before_the_next_one_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    writes: list[bytes] = []

    def slow(fd: int, data: memoryview) -> int:
        writes.append(bytes(data))
        begun.set()
        assert go_on.wait(30)
        return os.write(fd, data)

    monkeypatch.setattr(module, "_write", slow)

    async def go() -> None:
        store = SessionStoreAdapter(tmp_path, patience=0)
        first = asyncio.ensure_future(store.append(KEY, [entry(1)]))
        await asyncio.to_thread(begun.wait, 30)
        first.cancel()
        second = asyncio.ensure_future(store.append(KEY, [entry(2)]))
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(writes) == 1
        assert not first.done(), "what it began goes on"
        go_on.set()
        await second
        assert first.cancelled()
        assert await store.load(KEY) == [entry(1), entry(2)]

    asyncio.run(go())


def test_what_a_record_took_back_isnt_loaded(tmp_path: Path) -> None:
    make = maker()
    kept, gone = make.user("1"), make.user("2")

    async def go() -> None:
        path = tmp_path / "projects" / "proj" / f"{SESSION}.jsonl"
        sink = TranscriptSink(path, tombstones="append")
        await sink.record([kept, gone])
        sink.append(make.tombstone(gone))
        await sink.aclose()
        assert gone.uuid in path.read_text()
        found = await SessionStoreAdapter(tmp_path).load(KEY)
        assert found is not None
        assert [e["uuid"] for e in found] == [kept.uuid]

    asyncio.run(go())


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "projects" / "proj" / f"{SESSION}.jsonl"

    async def go() -> None:
        store = SessionStoreAdapter(tmp_path)
        await store.append(KEY, [entry(1), entry(2)])
        other = path.with_name("other")
        other.write_bytes(path.read_bytes().replace(b"u1", b"u7") + b"\n")
        other.replace(path)
        await store.append(KEY, [entry(1), entry(7)])
        assert [e["uuid"] for e in await store.load(KEY) or []] == ["u7", "u2", "u1"]

    asyncio.run(go())


def test_deleting_a_session_leaves_others(tmp_path: Path) -> None:
    async def go() -> None:
        store = SessionStoreAdapter(tmp_path)
        other = {**KEY, "session_id": OTHER_SESSION}
        for key in (KEY, other, {**KEY, "subpath": "subagents/agent-1"}):
            await store.append(key, [entry(1)])
        side = tmp_path / "projects" / "proj" / SESSION / "tool-results" / "t1.json"
        side.parent.mkdir()
        side.write_text("{}")
        await store.delete(KEY)
        assert not side.exists()
        assert [s["session_id"] for s in await store.list_sessions("proj")] == [OTHER_SESSION]
        await store.append(KEY, [entry(1)])
        assert await store.load(KEY) == [entry(1)], "it may come again"

    asyncio.run(go())
