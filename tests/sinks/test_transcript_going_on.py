"""Resumed, gone on with, resumed again: whatever state a file is in, nothing of it may drop out (FAULTS.md 38, 42, 45)."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
import recordings
from sessions import assistant, jsonl, session_id, talk, use, user
from transcripts import maker, records

from turnstream.sinks.transcript import TranscriptSink
from turnstream.sinks.transcript.reading import resume
from turnstream.testing import virtual_time

CONVERSATION = [
    user("u-1", "One"),
    assistant("a-1", "First", "u-1"),
    user("u-2", "Two", "a-1"),
    assistant("a-2", "Second", "u-2", answer="msg_2"),
]
ONE, TWO, THREE, FOUR = (jsonl(line)[:-1] for line in CONVERSATION)


async def go_on(path: Path, *, turns: int = 2) -> list[str]:
    """Resume and record the whole list with a question more, some times; returns what resume gives in the end."""
    make = maker()
    for turn in range(turns):
        sink = TranscriptSink(path, append=True)
        await sink.record([*resume(path).messages, make.user(f"question {turn}")])
        await sink.aclose()
    return [message.uuid for message in resume(path).messages]  # type: ignore[union-attr]


@virtual_time
@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + jsonl(*CONVERSATION),
        b"\n".join([ONE, TWO + THREE, FOUR, b""]),
        b"\n".join([ONE, b"\0\0\0" + TWO, THREE, b"\0" * 40 + FOUR, b""]),
        b"\n".join([ONE, TWO[:50] + TWO, THREE, FOUR, b""]),
        b"\n".join([ONE, TWO, THREE, FOUR + b'{"type":"user","uuid":"to']),
        b"\r\n".join([ONE, TWO, b"", THREE, FOUR, b""]),
        b"\n".join([ONE, TWO, THREE, FOUR, TWO, b""]),
        b"\n".join([ONE, TWO, THREE, ONE, b"{torn", FOUR, ONE]),
    ],
    ids=["bom", "two-on-a-line", "nul", "torn-by-itself", "torn-tail", "crlf", "copy-behind", "copies"],
)
async def test_what_a_reader_finds_is_held(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / f"{session_id(1)}.jsonl"
    path.write_bytes(data)
    first, second = (await go_on(path))[-2:]
    found = [message.uuid for message in resume(path).messages]  # type: ignore[union-attr]
    assert found == ["u-1", "a-1", "u-2", "a-2", first, second]
    added = path.read_bytes()[len(data) :]
    assert path.read_bytes().startswith(data)
    assert added.count(b'"uuid":') == 2, "nothing was written again"


@virtual_time
async def test_append_follows_the_end_and_not_a_copy_of_something_earlier(tmp_path: Path) -> None:
    path = tmp_path / f"{session_id(1)}.jsonl"
    path.write_bytes(jsonl(*CONVERSATION, CONVERSATION[0]))
    sink = TranscriptSink(path, append=True)
    assert sink.last_uuid == "a-2"
    sink.append(maker().user("Three"))
    await sink.aclose()
    assert records(path)[-1]["parentUuid"] == "a-2"


@virtual_time
async def test_a_sub_agents_own_file_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "agent-1.jsonl"
    path.write_bytes(jsonl(*(line | {"isSidechain": True, "agentId": "a17"} for line in CONVERSATION)))
    assert (await go_on(path))[:4] == ["u-1", "a-1", "u-2", "a-2"]
    added = records(path)[4:]
    assert [(line["isSidechain"], line["agentId"]) for line in added] == [(True, "a17")] * 2
    assert added[0]["parentUuid"] == "a-2"


@virtual_time
async def test_a_lost_result_in_what_a_compaction_kept(tmp_path: Path) -> None:
    kept = {"headUuid": "a-1", "anchorUuid": "s-1", "tailUuid": "a-2"}
    boundary = {
        **user("b-1", None),
        "type": "system",
        "subtype": "compact_boundary",
        "content": "Conversation compacted",
        "compactMetadata": {"trigger": "auto", "preTokens": 9, "preservedSegment": kept},
    }
    path = tmp_path / f"{session_id(1)}.jsonl"
    lines = [
        user("u-1", "One"),
        assistant("a-1", use("t-1"), "u-1"),
        # Its result was lost.
        assistant("a-2", "Second", "a-1", answer="msg_2"),
        boundary,
        user("s-1", "What was said", "b-1", isCompactSummary=True),
        user("u-3", "Three", "s-1"),
        assistant("a-3", "Third", "u-3", answer="msg_3"),
    ]
    del lines[3]["message"]
    path.write_bytes(jsonl(*lines))
    found = await go_on(path)
    assert [uuid for uuid in found if uuid[1] == "-"] == ["b-1", "s-1", "a-1", "a-2", "u-3", "a-3"]
    assert len(found) == 6 + 1 + 2, "the result that was made, once, and two questions"


def test_a_session_that_is_named_by_nameless_records_goes_on_under_its_name(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(jsonl(*({k: v for k, v in line.items() if k != "uuid"} for line in talk(1))))
    sink = TranscriptSink(path, append=True)
    assert sink.session_id == session_id(1)
    asyncio.run(sink.aclose())


def test_recordings(tmp_path: Path) -> None:
    folder = recordings.need("transcripts that are gone on with") / "transcripts"
    gone_on = 0
    for number, source in enumerate(sorted(folder.rglob("*.jsonl"))):
        before = resume(source)
        uuids = [getattr(message, "uuid", "") for message in before.messages]
        # What has no ids is written again, with ids; a file without any link in it is read in its order only as it is.
        if not uuids or "" in uuids or before.report.of("flat_file"):
            continue
        path = tmp_path / f"{number}-{source.name}"
        shutil.copyfile(source, path)
        found = asyncio.run(go_on(path, turns=1))
        assert sorted(found[:-1]) == sorted(uuids), source.name
        data = source.read_bytes()
        assert path.read_bytes().startswith(data)
        made = before.report.counts.get("result_made", 0)
        added = path.read_bytes()[len(data) :].splitlines()
        assert len([line for line in added if line]) == made + 1, source.name
        gone_on += 1
    assert gone_on > 40
