"""Compaction in the transcript (WIRE.md §3, *Compaction*; faults 40, 41, 50)."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transcripts import SESSION, Answer, maker, parents, records, uuids

from turnstream.messages import MessageFactory, SystemMessage, decode_line
from turnstream.sinks.transcript import TranscriptSink, files
from turnstream.testing import virtual_time


def compaction(make: MessageFactory, kept: list[Any]) -> list[Any]:
    """What a compaction returns: boundary, summary, the preserved messages."""
    summary = make.compact_summary("what was said")
    metadata: dict[str, Any] = {"trigger": "auto", "preTokens": 9}
    if kept:
        segment = {"headUuid": kept[0].uuid, "anchorUuid": summary.uuid, "tailUuid": kept[-1].uuid}
        metadata["preservedSegment"] = segment
    boundary = make.system("compact_boundary", "Conversation compacted", compactMetadata=metadata)
    return [boundary, summary, *kept]


@virtual_time
async def test_fault_40_a_boundary_is_a_root_and_what_follows_hangs_on_its_summary(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    old = [make.user("1"), make.assistant("2"), make.user("3"), make.assistant("4")]
    await sink.record(old)
    context = compaction(make, old[2:])
    await sink.record(context)
    boundary, summary = context[:2]
    found = {record["uuid"]: record for record in records(path)}
    assert found[boundary.uuid]["parentUuid"] is None
    assert found[boundary.uuid]["logicalParentUuid"] == old[3].uuid
    assert found[summary.uuid]["parentUuid"] == boundary.uuid
    # Turn after turn with the whole context: what was kept never becomes a parent again.
    talk = [make.user("5"), make.assistant("6"), make.user("7")]
    for number in range(3):
        assert await sink.record([*context, *talk[: number + 1]]) == talk[number].uuid
    # … also after the session was closed and gone on with, and with a second compaction.
    await sink.aclose()
    again = TranscriptSink(path, append=True)
    more = make.user("8")
    await again.record([*context, *talk, more])
    second = compaction(make, [talk[2], more])
    await again.record(second)
    last = make.user("9")
    await again.record([*second, last])
    await again.aclose()
    chain = parents(path)
    assert [chain[m.uuid] for m in (*talk, more)] == [summary.uuid, talk[0].uuid, talk[1].uuid, talk[2].uuid]
    assert chain[second[0].uuid] is None
    assert chain[second[1].uuid] == second[0].uuid
    assert chain[last.uuid] == second[1].uuid
    assert len(uuids(path)) == len(set(uuids(path))) == 4 + 2 + 4 + 2 + 1


@virtual_time
async def test_what_a_boundary_preserves_is_written_before_it(tmp_path: Path) -> None:
    """The kept tail may not have been recorded yet: then it comes first, hanging on what was."""
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    old = [make.user("1"), make.assistant("2"), make.user("3"), make.assistant("4"), make.user("5")]
    await sink.record(old[:3])
    context = compaction(make, old[2:])
    after = make.user("6")
    assert await sink.record([*context, after]) == after.uuid
    await sink.aclose()
    boundary, summary = context[:2]
    wanted = [*old, boundary, summary, after]
    assert uuids(path) == [message.uuid for message in wanted]
    assert list(parents(path).values()) == [
        None, old[0].uuid, old[1].uuid, old[2].uuid, old[3].uuid, None, boundary.uuid, summary.uuid,
    ]  # fmt: skip
    assert records(path)[5]["logicalParentUuid"] == old[4].uuid


@virtual_time
async def test_an_unknown_tail_is_skipped_and_the_last_of_its_name_counts(tmp_path: Path) -> None:
    make = maker()
    for name, tail, first in (("a", "nobody", "boundary"), ("b", "last", "kept"), ("c", None, "boundary")):
        path = tmp_path / f"{name}.jsonl"
        sink = TranscriptSink(path)
        kept = [make.user("k1"), make.user("k2")]
        boundary, summary, *_ = compaction(make, kept)
        segment = boundary.fields["compactMetadata"]["preservedSegment"]
        segment["tailUuid"] = kept[1].uuid if tail == "last" else tail
        if tail == "last":
            segment["headUuid"] = "nobody"  # then all up to the tail
        await sink.record([boundary, summary, *kept])
        await sink.aclose()
        order = [kept[0].uuid, kept[1].uuid, boundary.uuid, summary.uuid]
        if first == "boundary":
            order = order[2:] + order[:2]
        assert uuids(path) == order


@pytest.mark.parametrize(
    "metadata",
    [None, {}, [], {"preservedSegment": None}, {"preservedSegment": []}, {"preservedSegment": {"tailUuid": 7}}],
)
def test_fault_52_metadata_of_any_shape_is_no_error(tmp_path: Path, metadata: Any) -> None:
    @virtual_time
    async def check() -> None:
        make = maker()
        sink = TranscriptSink(tmp_path / "s.jsonl")
        boundary = make.system("compact_boundary")
        if metadata is not None:
            boundary.fields["compactMetadata"] = metadata
        user = make.user("1")
        await sink.record([boundary, make.compact_summary("s"), user])
        await sink.aclose()
        assert uuids(tmp_path / "s.jsonl")[-1] == user.uuid

    check()


@virtual_time
async def test_fault_51_an_unknown_logical_parent_is_kept(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    await sink.record([make.user("1"), make.system("compact_boundary", logicalParentUuid="gone")])
    await sink.aclose()
    assert records(path)[1]["logicalParentUuid"] == "gone"
    assert records(path)[1]["parentUuid"] is None


@pytest.mark.parametrize("how", ["stream", "append", "started"])
def test_fault_50_boundary_and_summary_go_at_once_with_all_before(tmp_path: Path, how: str) -> None:
    @virtual_time
    async def check() -> None:
        make = maker()
        path = tmp_path / "s.jsonl"
        sink = TranscriptSink(path)
        user, answer = make.user("1"), Answer(make)
        boundary, summary = compaction(make, [])
        # Lines of an answer that just ended would wait for 100 ms, those of an open one for its end.
        sink.on_next([user, answer.start(), *answer.text("a"), *answer.text("b")])
        more = Answer(make, "msg_2")
        if how == "stream":
            sink.on_next([boundary, more.start(), *more.text("an odd place"), summary])
        elif how == "append":
            sink.append(boundary)
            sink.append(summary)
        else:
            await sink.record([boundary, summary], wait=False)
        await asyncio.sleep(0.01)  # less than any line's time
        between = [message.uuid for message in more.messages]
        assert uuids(path) == [user.uuid, *(m.uuid for m in answer.messages), boundary.uuid, *between, summary.uuid]
        await sink.aclose()

    check()


@virtual_time
async def test_fault_50_recorded_means_on_the_device_under_fsync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.jsonl"
    synced: list[int] = []

    def sync(fd: int) -> None:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            synced.append(len(path.read_bytes().splitlines()))

    monkeypatch.setattr(files, "_fsync", sync)
    make = maker()
    sink = TranscriptSink(path, durability="fsync")
    await sink.record([make.user("1"), make.assistant("2")])
    await sink.record(compaction(make, []))
    assert synced[-1] == 4
    await sink.aclose()


COMPACTED = """
import asyncio, os, sys
from turnstream.messages import MessageFactory
from turnstream.sinks.transcript import TranscriptSink

async def main():
    make = MessageFactory()
    sink = TranscriptSink(sys.argv[1])
    await sink.record([make.user("1"), make.assistant("2")])
    boundary = make.system("compact_boundary", "Conversation compacted")
    if sys.argv[2] == "killed":
        await sink.record([boundary, make.compact_summary("summary")])
        os._exit(9)
    sink.on_next([boundary, make.compact_summary("summary")])
    await sink.aclose()

asyncio.run(main())
"""


@pytest.mark.parametrize("end", ["killed", "disposed"])
def test_fault_50_compact_then_end_at_once_then_reload(tmp_path: Path, end: str) -> None:
    path = tmp_path / "s.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", COMPACTED, str(path), end], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == (9 if end == "killed" else 0), done.stderr
    found = records(path)
    assert [r["type"] for r in found] == ["user", "assistant", "system", "user"]
    assert found[3]["parentUuid"] == found[2]["uuid"]
    assert found[3]["isCompactSummary"] is True


@virtual_time
async def test_fault_41_only_conversational_records_share_the_chains_names(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    first, second, third = make.user("1"), make.user("2"), make.user("3")
    sink = TranscriptSink(path)
    clash = decode_line(b'{"type":"file-history-snapshot","uuid":"%s","messageId":"m"}' % second.uuid.encode())
    sink.on_next([first, clash, second])
    await sink.aclose()
    again = TranscriptSink(path, append=True)
    # Taking back the message leaves the snapshot of the same name.
    again.append(make.tombstone(second))
    await again.record([third])
    await again.aclose()
    assert [r["type"] for r in records(path)] == ["user", "file-history-snapshot", "user"]
    assert parents(path) == {first.uuid: None, third.uuid: first.uuid}


@virtual_time
async def test_lines_that_were_read_and_would_say_the_same_keep_their_bytes(tmp_path: Path) -> None:
    """A record read from a file keeps its raw line (WIRE.md §3); another session or parent makes a new one."""
    template = '{ "uuid":"%s","type":"user", "parentUuid":%s,"sessionId":"%s","message":{"content":"caf\\u00e9"},"timestamp":"t"}'
    lines = [
        (template % ("u1", "null", SESSION)).encode(),
        (template % ("u2", '"u1"', SESSION)).encode(),
        b'{"parentUuid":null,"logicalParentUuid":"u2","sessionId":"%s","type":"system","subtype":"compact_boundary",'
        b'"content":"x","uuid":"b","timestamp":"t","odd":1.0}' % SESSION.encode(),
        (template % ("u3", '"elsewhere"', SESSION)).encode(),
        b'{"parentUuid":"u3","type":"user","message":{"content":"of no session"},"uuid":"u4","timestamp":"t"}',
    ]
    messages = list(map(decode_line, lines))
    assert isinstance(messages[2], SystemMessage)
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, session_id=SESSION)
    await sink.record(messages)
    await sink.aclose()
    written = path.read_bytes().split(b"\n")
    assert written[:3] == lines[:3]
    assert written[3] != lines[3]
    assert json.loads(written[3])["parentUuid"] == "b"
    assert json.loads(written[4])["sessionId"] == SESSION
