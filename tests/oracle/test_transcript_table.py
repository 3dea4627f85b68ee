"""Recorded transcripts resume as the table says, which a program of another method computed (support/transcript_table).

And reading them gives back every byte.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import recordings
import transcript_table
from transcripts import Answer, maker

from turnstream.messages import AssistantMessage, OpaqueRecord, UserMessage, decode_line, encode
from turnstream.sinks.transcript import TranscriptSink
from turnstream.sinks.transcript.reading import read_records, resume
from turnstream.testing import run_virtual

REAL = "real session"
"""INDEX.tsv's word for transcripts that a program wrote; the others are fixtures that people made."""


def names(*, real: bool = False) -> list[Any]:
    if recordings.folder() is None:
        return recordings.names()
    rows = [row for row in recordings.index() if row["file"].endswith(".jsonl")]
    return [row["file"] for row in rows if not real or any(REAL in str(value) for value in row.values())]


def path_of(name: str) -> Path:
    return recordings.need("transcripts") / name


@pytest.mark.parametrize("name", names())
def test_resume_holds_what_the_table_says(name: str) -> None:
    path = path_of(name)
    row = transcript_table.table(path.read_bytes())
    resumed = resume(path, mend=False)
    found = [m.uuid or m.raw for m in resumed.messages]
    lines = {f"line {n}": line for n, line in enumerate(path.read_bytes().split(b"\n"), 1)}
    named = {name: lines[name] if name.startswith("line ") else name for name in row.kept}
    assert set(named.values()) - set(found) == set(), "missing"
    assert set(found) - set(named.values()) == set(), "too much"
    assert len(set(found)) == len(found), "once"
    place = {uuid: at for at, uuid in enumerate(found)}
    assert [(p, c) for p, c in row.order if place[named[p]] > place[named[c]]] == [], "each behind its parent"
    if row.leaf is not None and not row.leaf.startswith("line "):
        assert resumed.leaf == row.leaf


@pytest.mark.parametrize("name", names())
def test_what_was_bridged_and_skipped_is_what_the_table_says(name: str) -> None:
    path = path_of(name)
    row = transcript_table.table(path.read_bytes())
    report = resume(path, mend=False).report
    assert sum(report.types.values()) == row.records
    assert [(f.line, f.offset) for f in report.of("bad_line", "bad_tail")] == row.bad
    assert {f.uuid for f in report.of("duplicate")} == row.duplicates
    assert bool(report.of("flat_file")) == (row.flat and bool(row.kept))
    if row.flat:
        return
    kept = {uuid for uuid in row.kept if not uuid.startswith("line ")}
    assert {f.uuid for f in report.of("dangling_parent")} & kept == row.missing & kept
    bridged = report.of("progress_bridged", "other_bridged", "tombstone_bridged")
    assert {f.uuid for f in bridged} & kept == row.bridged & kept
    assert {f.uuid for f in report.of("lost_root", "no_parent")} & kept == row.orphans & kept


@pytest.mark.parametrize("name", names(real=True))
def test_a_real_session_reaches_its_first_message(name: str) -> None:
    path = path_of(name)
    row = transcript_table.table(path.read_bytes())
    if not row.members:
        assert not resume(path).is_session
        return
    assert row.begins in ("first", "boundary")
    assert row.first in {m.uuid for m in resume(path, mend=False, history=True).messages}


@pytest.mark.parametrize("name", names())
def test_every_tool_call_has_one_result(name: str) -> None:
    """Parallel calls keep all their results; an open call gets one that says so."""
    path = path_of(name)
    row = transcript_table.table(path.read_bytes())
    asked: list[str] = []
    answered: list[str] = []
    for message in resume(path).messages:
        content = message.message.get("content") if isinstance(message, (UserMessage, AssistantMessage)) else None
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_use" and isinstance(message, AssistantMessage):
                asked.append(block["id"])
            elif isinstance(block, dict) and block.get("type") == "tool_result":
                answered.append(block["tool_use_id"])
                assert block["tool_use_id"] in asked or row.begins != "first" or row.flat or row.missing, (
                    "before its call"
                )
    assert len(set(asked)) == len(asked)
    assert set(asked) <= set(answered)
    results = [ident for ident in answered if ident in set(asked)]
    assert len(results) == len(set(results)) == row.results + len(row.open_calls)


@pytest.mark.parametrize("name", names())
def test_the_table_agrees_with_the_index(name: str) -> None:
    """Lines and types as whoever collected the recordings counted them."""
    row = transcript_table.table(path_of(name).read_bytes())
    (line,) = (line for line in recordings.index() if line["file"] == name)
    assert row.records + len(row.bad) == int(line["count"])
    counts = dict(part.rsplit(":", 1) for part in recordings.facts(line).get("types", []))
    members = sum(int(counts.get(kind, 0)) for kind in transcript_table.MEMBERS)
    quirks = dict(part.rsplit(":", 1) for part in recordings.facts(line).get("quirks", []) if ":" in part)
    # That program let wrong escapes pass, of which some bad lines have one.
    assert 0 <= members - len(row.members) - int(quirks.get("duplicate-uuid", 0)) <= len(row.bad)


def test_what_hangs_on_parallel_results_comes_back(tmp_path: Path) -> None:
    """Each result hangs on the message that asked, so an attachment between two results is a branch of its own."""
    make = maker()
    answer = Answer(make)
    items = [make.user("go"), answer.start(), *(i for n in "123" for i in answer.tool(f"t{n}")), *answer.end()]
    hook = make.attachment({"type": "hook_success", "toolUseID": "t1"})
    results = [make.tool_result(f"t{n}", "x", source=answer.messages[n - 1]) for n in (1, 2, 3)]
    notes = [make.attachment({"type": "nested_memory", "content": text}) for text in ("a", "b")]
    notice = make.system("informational", "between")
    rest = [hook, results[0], notes[0], notice, results[1], notes[1], results[2], make.user("go on")]

    async def write() -> None:
        sink = TranscriptSink(tmp_path / "s.jsonl")
        sink.on_next(items)
        await sink.record(rest)
        await sink.aclose()

    run_virtual(write())
    row = transcript_table.table((tmp_path / "s.jsonl").read_bytes())
    assert row.kept == {m.uuid for m in (items[0], *answer.messages, *rest)}, "all that was written"
    assert [m.uuid for m in resume(tmp_path / "s.jsonl").messages] == [
        m.uuid for m in (items[0], *answer.messages, *rest)
    ]


@pytest.mark.parametrize("name", names())
def test_reading_gives_back_every_byte(name: str) -> None:
    data = path_of(name).read_bytes()
    records = list(read_records(io.BytesIO(data)))
    assert b"".join(r.raw + b"\n" * r.ended for r in records) == data
    assert [r.raw for r in read_records(path_of(name))] == [r.raw for r in records]
    place = 0
    for record in records:
        assert record.offset == place
        place += len(record.raw) + record.ended


@pytest.mark.parametrize("name", names())
def test_reading_and_writing_back_gives_the_same_lines(name: str) -> None:
    """Each line as a message and back: a line that is no JSON, too."""
    for line in path_of(name).read_bytes().split(b"\n"):
        if line.strip():
            assert encode(decode_line(line)) == line


def test_lines_that_nobody_can_read_come_back_too() -> None:
    lines = [
        b"not json",
        b"[1, 2]",
        b'"text"',
        b"{",
        b'{"type": "user"}',
        b"\xff\xfe\x00",
        b'{"a": "\\ud99c"}',
        b"nul\0",
    ]
    for line in lines:
        message = decode_line(line)
        assert isinstance(message, OpaqueRecord) or line == b'{"type": "user"}'
        assert encode(message) == line
    data = b"\n".join(lines) + b"\n\n  \n" + b'{"type":"x"}{"type":"y"} half {"ty'
    assert b"".join(r.raw + b"\n" * r.ended for r in read_records(io.BytesIO(data))) == data
