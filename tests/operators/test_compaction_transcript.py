"""What a compaction returns, recorded: the file's slice is memory's slice (WIRE.md §3, compaction; §6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import compacting as c
import pytest
from transcripts import SESSION, parents, records

from turnstream.messages import from_wire
from turnstream.operators.compaction import (
    CompactionError,
    after_boundary,
    auto_compact,
    compact,
    compact_metadata,
    is_compact_boundary,
    microcompact,
)
from turnstream.sinks.transcript import TranscriptSink
from turnstream.testing import virtual_time


def talk() -> c.Talk:
    made = c.Talk()
    made.attach(c.memory("/a"))
    for _ in range(3):
        made.prompt("p")
        made.round("r")
        made.says("s")
    return made


@virtual_time
async def test_fault_50_boundary_and_summary_are_in_the_file_before_compaction_is_done(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, session_id=SESSION)
    made = talk()
    await sink.record(made.messages)
    before = records(path)
    result = await compact(made.messages, c.Summarizer(), keep_recent=2, factory=made.make, normalize=c.plain)
    await sink.record(list(result.messages))
    # Read now, as after a kill: nothing was closed or drained.
    found = records(path)
    assert found[: len(before)] == before
    boundary, summary, *attached = found[len(before) :]
    assert boundary["parentUuid"] is None
    assert boundary["logicalParentUuid"] == made.messages[-1].uuid
    # 12 user and assistant messages; two were to be kept, and the use that the first of them answers.
    assert boundary["compactMetadata"]["messagesSummarized"] == 12 - 3
    assert (summary["isCompactSummary"], summary["parentUuid"]) == (True, boundary["uuid"])
    assert [line["attachment"] for line in attached] == [c.memory("/a")]
    assert attached[0]["parentUuid"] == summary["uuid"]
    # The kept messages are in the file once, and the boundary says where.
    ids = [line["uuid"] for line in found]
    assert len(ids) == len(set(ids))
    read: Any = from_wire(boundary)
    segment = compact_metadata(read).preserved_segment
    assert segment is not None
    assert ids.index(str(segment.head_uuid)) < ids.index(str(segment.tail_uuid)) < ids.index(boundary["uuid"])
    assert segment.anchor_uuid == summary["uuid"]
    await sink.aclose()


@virtual_time
async def test_a_failed_compaction_leaves_no_trace_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, session_id=SESSION)
    made = talk()
    await sink.record(made.messages)
    before = path.read_bytes()
    with pytest.raises(CompactionError):
        await auto_compact(1, c.Summarizer(""), normalize=c.plain)(made.messages)
    await sink.drain()
    assert path.read_bytes() == before
    await sink.aclose()


@virtual_time
async def test_a_microcompact_boundary_keeps_its_parent_and_the_file_its_results(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, session_id=SESSION)
    made = c.Talk()
    made.round("b" * 9_000)
    made.says()
    await sink.record(made.messages)
    found = microcompact(made.messages, keep_recent=0, factory=made.make)
    assert found.boundary is not None
    await sink.record(list(found.messages))
    await sink.aclose()
    lines = records(path)
    assert lines[-1]["subtype"] == "microcompact_boundary"
    assert parents(path)[found.boundary.uuid] == made.messages[-1].uuid
    assert [line["message"]["content"][0]["content"] for line in lines if line["type"] == "user"] == ["b" * 9_000]
    read: list[Any] = [from_wire(line) for line in lines]
    assert after_boundary(read) == read
    assert not any(map(is_compact_boundary, read))
