"""``forks``: the branches of a transcript (WIRE.md §3)."""

from __future__ import annotations

from pathlib import Path

import pytest
import reading_files as rf
from reading_files import assistant, boundary, call, result, summary, user

from turnstream.messages import TranscriptError
from turnstream.sinks.transcript.reading import forks, resume


def test_each_branch_is_listed_once_the_newest_first(tmp_path: Path) -> None:
    path = rf.write(
        tmp_path / "t.jsonl",
        user("a", None, "hello"),
        assistant("b", "a"),
        user("c", "b", "first  way\nto go on"),
        assistant("d", "c"),
        user("e", "d", "deeper"),
        assistant("f", "e"),
        user("g", "d", "x" * 300),
        user("h", "b", "last way"),
    )
    found = forks(path)
    assert [(rf.short(one.leaf), rf.short(one.parent), one.messages, one.line) for one in found] == [
        ("h", "", 3, 8),
        ("g", "b", 5, 7),
        ("f", "d", 6, 6),
    ]
    assert [one.text for one in found] == ["hello", "first way to go on", "deeper"]
    assert {one.timestamp for one in found} == {rf.TIME}
    for fork in found:
        assert len(resume(path, leaf=fork.leaf).messages) == fork.messages
    assert resume(path).forks == found[1:]


def test_long_texts_are_cut(tmp_path: Path) -> None:
    path = rf.write(tmp_path / "t.jsonl", user("a", None, "x" * 300))
    assert len(forks(path)[0].text) == 200


def test_parallel_calls_and_compactions_are_no_branches(tmp_path: Path) -> None:
    path = rf.write(
        tmp_path / "t.jsonl",
        user("a", None),
        assistant("b1", "a", call("t1"), answer="m"),
        assistant("b2", "b1", call("t2"), answer="m"),
        result("r1", "b1", "t1"),
        rf.record("attachment", "hook", "r1", attachment={"type": "hook_success", "toolUseID": "t1"}),
        result("r2", "b2", "t2"),
        rf.record("system", "mark", "r2", subtype="turn_duration"),
        boundary("m", "r2"),
        summary("s", "m"),
        assistant("c", "s"),
    )
    assert [rf.short(one.leaf) for one in forks(path)] == ["c"]


def test_the_parallel_calls_of_an_abandoned_branch_are_one_branch(tmp_path: Path) -> None:
    path = rf.write(
        tmp_path / "t.jsonl",
        user("a", None),
        assistant("b1", "a", call("t1"), answer="m"),
        assistant("b2", "b1", call("t2"), answer="m"),
        result("r1", "b1", "t1"),
        result("r2", "b2", "t2"),
        user("z", None, "anew"),
        assistant("z2", "z"),
    )
    assert [(rf.short(one.leaf), one.parent) for one in forks(path)] == [("z2", None), ("r2", None)]


def test_a_file_without_a_conversation_has_none(tmp_path: Path) -> None:
    assert forks(rf.write(tmp_path / "t.jsonl", {"type": "summary"})) == []
    with pytest.raises(TranscriptError):
        forks(tmp_path / "missing")
