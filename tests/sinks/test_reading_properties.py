"""``resume`` on trees that nobody would write: forks, copies, lost lines, circles; and on every cut (WIRE.md §3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import reading_files as rf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnstream.messages import OpaqueRecord, encode, raw_of
from turnstream.sinks.transcript.reading import KINDS, Resumed, forks, resume

KINDS_OF = ("user", "assistant", "result", "attachment", "system", "boundary", "progress", "other", "tombstone")
SETTINGS = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def wild_files(draw: st.DrawFn) -> list[dict[str, Any] | bytes]:
    """Records that hang on anything: on themselves, on what comes later, on what isn't there."""
    count = draw(st.integers(1, 14))
    names = [str(n) for n in range(count)]
    anything = st.one_of(st.none(), st.just(rf.ABSENT), st.sampled_from([*names, "gone"]))
    out: list[dict[str, Any] | bytes] = []
    for name in names:
        name = draw(st.sampled_from([name, name, name, "0", "1"]))
        parent = draw(anything)
        answer = draw(st.sampled_from(["m", "n", None]))
        side = {"isSidechain": True} if draw(st.integers(0, 9)) == 0 else {}
        kind = draw(st.sampled_from(KINDS_OF))
        ends = st.sampled_from([*names, "gone", None])
        if kind == "assistant":
            block = draw(st.sampled_from(["text", rf.call("t1"), rf.call("t2"), {"type": "thinking", "thinking": "x"}]))
            out.append(rf.assistant(name, parent, block, answer=answer, **side))
        elif kind == "result":
            out.append(rf.result(name, parent, draw(st.sampled_from(["t1", "t2"])), **side))
        elif kind == "attachment":
            attachment = {"type": "hook_success", "toolUseID": "t1"}
            out.append(rf.record("attachment", name, parent, attachment=attachment, **side))
        elif kind == "system":
            out.append(rf.record("system", name, parent, subtype="informational", content="x", **side))
        elif kind == "boundary":
            out.append(rf.boundary(name, draw(ends), segment=(draw(ends), draw(ends), draw(ends))))
        elif kind == "progress":
            out.append(rf.progress(name, parent))
        elif kind == "other":
            out.append({"type": "new", "uuid": rf.uuid(name), "parentUuid": None})
        elif kind == "tombstone":
            out.append({"type": draw(st.sampled_from(["tombstone", "tombstone-filler"])), "targetUuid": rf.uuid(name)})
        else:
            out.append(rf.user(name, parent, **side))
        if draw(st.integers(0, 9)) == 0:
            out.append(rf.as_line(out[-1])[: draw(st.integers(1, 60))])
    return out


def check(found: Resumed, lines: list[bytes]) -> None:
    """What holds for every file."""
    known = {rf.short(json.loads(line).get("uuid")) for line in lines if _is_object(line)}
    uuids = [message.uuid for message in found.messages]  # type: ignore[union-attr]
    assert len(set(uuids)) == len(uuids), "each once"
    for message in found.messages:
        assert not isinstance(message, OpaqueRecord)
        if (raw := raw_of(message)) is not None:
            assert rf.short(message.uuid) in known  # type: ignore[union-attr]
            assert encode(message) == raw
            assert any(raw in line for line in lines)
    for finding in found.report.findings:
        assert finding.kind in KINDS
        assert 0 <= finding.line <= len(lines)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


@SETTINGS
@given(wild_files())
def test_any_file_resumes_and_so_does_each_of_its_branches(tmp_path: Path, records: list[Any]) -> None:
    lines = [rf.as_line(one) for one in records]
    path = rf.write(tmp_path / "t.jsonl", *records)
    for options in ({}, {"history": True}, {"mend": False}):
        found = resume(path, **options)  # type: ignore[arg-type]
        check(found, lines)
    leaves = [fork.leaf for fork in forks(path)]
    assert len(set(leaves)) == len(leaves)
    for leaf in leaves:
        again = resume(path, leaf=leaf)
        check(again, lines)
        assert again.leaf == leaf
    assert resume(path).messages == resume(path).messages


@st.composite
def trees(draw: st.DrawFn) -> list[int]:
    """Parents of a tree: member n hangs on ``parents[n]`` < n; the first on nothing (-1)."""
    return [-1, *(draw(st.integers(0, n - 1)) for n in range(1, draw(st.integers(1, 20))))]


def talk(parents: list[int]) -> list[dict[str, Any]]:
    return [rf.user(str(n), str(parent) if n else None) for n, parent in enumerate(parents)]


def way(parents: list[int], leaf: int) -> list[str]:
    out = []
    while leaf >= 0:
        out.append(str(leaf))
        leaf = parents[leaf]
    return out[::-1]


@SETTINGS
@given(trees())
def test_in_a_whole_tree_each_branch_is_the_way_to_its_leaf(tmp_path: Path, parents: list[int]) -> None:
    path = rf.write(tmp_path / "t.jsonl", *talk(parents))
    found = resume(path)
    assert rf.names(found.messages) == way(parents, len(parents) - 1)
    assert found.report.findings == []
    leaves = sorted(set(range(len(parents))) - set(parents), reverse=True)
    listed = forks(path)
    assert [int(rf.short(fork.leaf)) for fork in listed] == leaves
    assert found.forks == listed[1:]
    for fork in listed:
        one = way(parents, int(rf.short(fork.leaf)))
        assert rf.names(resume(path, leaf=fork.leaf).messages) == one
        assert fork.messages == len(one)


@SETTINGS
@given(trees(), st.data())
def test_a_lost_line_loses_nothing_of_what_was_before_it(
    tmp_path: Path, parents: list[int], data: st.DataObject
) -> None:
    """Of a straight line: with a fork the nearest earlier record may be another branch's."""
    count = len(parents) + 2
    lost = data.draw(st.sets(st.integers(0, count - 2), max_size=count - 1))
    records = talk(list(range(-1, count - 1)))
    path = rf.write(tmp_path / "t.jsonl", *(one for n, one in enumerate(records) if n not in lost))
    found = resume(path)
    assert rf.names(found.messages) == [str(n) for n in range(count) if n not in lost]
    after = {str(n) for n in range(1, count) if n not in lost and n - 1 in lost}
    named = {rf.short(one.uuid) for one in found.report.of("dangling_parent")}
    assert named == after or found.report.of("flat_file")


@SETTINGS
@given(trees(), st.permutations(range(3)), st.integers(0, 3))
def test_copies_change_nothing(tmp_path: Path, parents: list[int], order: list[int], times: int) -> None:
    records = talk(parents)
    # Whole copies of the conversation, and of pieces of it, behind it.
    copies = [one for _ in range(times) for n, one in enumerate(records) if order[n % 3] != 0]
    path = rf.write(tmp_path / "t.jsonl", *records, *copies)
    found = resume(path)
    assert rf.names(found.messages) == way(parents, len(parents) - 1)
    assert len(found.report.of("duplicate")) == len(copies)


@SETTINGS
@given(trees(), st.data())
def test_what_was_taken_back_is_as_if_it_had_not_been(tmp_path: Path, parents: list[int], data: st.DataObject) -> None:
    gone = data.draw(st.sets(st.integers(1, max(1, len(parents) - 1)))) & set(range(1, len(parents)))
    records: list[Any] = talk(parents)
    marks = [{"type": "tombstone", "targetUuid": rf.uuid(str(n))} for n in gone]
    path = rf.write(tmp_path / "t.jsonl", *records, *marks)
    last = max(n for n in range(len(parents)) if n not in gone)
    assert rf.names(resume(path).messages) == [name for name in way(parents, last) if int(name) not in gone]


CUT = [
    rf.user("a", None),
    rf.assistant("b1", "a", rf.call("t1"), answer="m"),
    rf.assistant("b2", "b1", rf.call("t2"), answer="m"),
    rf.result("r1", "b1", "t1"),
    rf.result("r2", "b2", "t2"),
    {"type": "tombstone", "targetUuid": rf.uuid("b2"), "sessionId": rf.SESSION},
    rf.boundary("c", "r2", segment=("r1", "s", "r1")),
    rf.summary("s", "c"),
    rf.assistant("d", "s", "é\u2028 end"),
]


def test_cut_at_every_byte_each_whole_line_counts(tmp_path: Path) -> None:
    data = b"\n".join(rf.as_line(one) for one in CUT) + b"\n"
    whole, cut_file = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    for cut in range(len(data) + 1):
        cut_file.write_bytes(data[:cut])
        lines = data[:cut].split(b"\n")
        tail = lines.pop()
        if tail and _is_object(tail):
            lines.append(tail)
            tail = b""
        whole.write_bytes(b"".join(line + b"\n" for line in lines))
        found, expected = resume(cut_file), resume(whole)
        assert found.messages == expected.messages
        bad = [(one.line, one.offset) for one in found.report.of("bad_tail", "bad_line")]
        assert bad == ([(len(lines) + 1, cut - len(tail))] if tail else [])


@pytest.mark.parametrize("path", rf.recorded())
def test_a_recording_reaches_its_first_message_and_keeps_all_of_its_conversation(path: Path) -> None:
    records = [json.loads(line) for line in path.read_bytes().split(b"\n") if _is_object(line)]
    payload = {"user": "message", "assistant": "message", "attachment": "attachment", "system": "type"}
    talk = [one for one in records if (one.get("type") in payload and not isinstance(one.get(payload[one["type"]]), str | None)) or one.get("type") == "system"]  # fmt: skip
    main = [one for one in talk if one.get("isSidechain") is not True] or talk
    found = resume(path, history=True, mend=False)
    if not main:
        assert not found.is_session
        assert found.report.holds()
        return
    uuids = {one.uuid for one in found.messages}  # type: ignore[union-attr]
    assert main[0].get("uuid", "") in uuids
    left = [one["uuid"] for one in main if one.get("uuid") and one["uuid"] not in uuids]
    # The one recording in which somebody went back and said something else.
    assert bool(left) == bool(found.forks) == path.name.startswith("dag_within_fork")
