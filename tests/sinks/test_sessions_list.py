"""``list_sessions``: which files are sessions, and what is said of each."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import recordings
from sessions import CWD, SLUG, assistant, at, jsonl, record, result, session_id, talk, text, use, user, write

from turnstream.messages import TranscriptError
from turnstream.sinks.transcript.sessions import SessionInfo, find_session, list_sessions
from turnstream.sinks.transcript.sessions.titles import LONGEST


def listed(root: Path, **options: Any) -> list[SessionInfo]:
    return list_sessions(root, index=False, **options)


def only(root: Path, *lines: Any) -> SessionInfo:
    write(root, 1, *lines)
    (info,) = listed(root)
    return info


# -- which ---------------------------------------------------------------------------------------------


def test_no_root_no_sessions(tmp_path: Path) -> None:
    assert listed(tmp_path / "nothing") == []
    (tmp_path / "projects").write_text("a file")
    assert listed(tmp_path) == []


def test_the_last_active_first(tmp_path: Path) -> None:
    write(tmp_path, 1, *talk(1, day=2))
    write(tmp_path, 2, *talk(2, day=3), slug="-other")
    write(tmp_path, 3, *talk(3, day=1))
    assert [info.session_id for info in listed(tmp_path)] == [session_id(n) for n in (2, 1, 3)]


def test_a_session_without_any_time_is_sorted_by_its_file(tmp_path: Path) -> None:
    timeless = [{k: v for k, v in line.items() if k != "timestamp"} for line in talk(1)]
    path = write(tmp_path, 1, *timeless)
    write(tmp_path, 2, *talk(2, day=2))
    write(tmp_path, 3, *talk(3, day=4))
    third_of_june = 1748908800
    os.utime(path, (third_of_june, third_of_june))
    found = listed(tmp_path)
    assert [info.session_id for info in found] == [session_id(n) for n in (3, 1, 2)]
    assert (found[1].last_activity, found[1].active_at) == (None, third_of_june)


def test_files_that_are_no_sessions_are_not_listed(tmp_path: Path) -> None:
    write(tmp_path, 1, *talk(1))
    write(
        tmp_path, 2, {"type": "summary", "summary": "s", "leafUuid": "x"}, {"type": "custom-title", "customTitle": "t"}
    )
    write(tmp_path, 3)
    write(tmp_path, 4, *[line | {"isSidechain": True} for line in talk(4)])
    write(tmp_path, 5, {"type": "user", "uuid": "u", "timestamp": at(0)}, {"type": "assistant", "message": "no object"})
    folder = tmp_path / "projects" / SLUG
    for name in ("agent-abc.jsonl", "notes.jsonl", f"{session_id(6)}.jsonl.bak", f"{session_id(7)}.txt"):
        (folder / name).write_bytes(jsonl(*talk(8)))
    (folder / f"{session_id(9)}.jsonl").mkdir()
    (tmp_path / "projects" / "stray.jsonl").write_bytes(jsonl(*talk(8)))
    assert [info.session_id for info in listed(tmp_path)] == [session_id(1)]


def test_symlinks_are_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    outside = write(elsewhere, 1, *talk(1))
    root = tmp_path / "root"
    write(root, 2, *talk(2))
    (root / "projects" / SLUG / outside.name).symlink_to(outside)
    (root / "projects" / "linked").symlink_to(outside.parent, target_is_directory=True)
    assert [info.session_id for info in listed(root)] == [session_id(2)]
    (tmp_path / "third").mkdir()
    (tmp_path / "third" / "projects").symlink_to(root / "projects", target_is_directory=True)
    with pytest.raises(TranscriptError, match="symlink"):
        listed(tmp_path / "third")


def test_a_fifo_does_not_hang_it(tmp_path: Path) -> None:
    write(tmp_path, 1, *talk(1))
    os.mkfifo(tmp_path / "projects" / SLUG / f"{session_id(2)}.jsonl")
    assert len(listed(tmp_path)) == 1


def test_a_file_that_cannot_be_read_is_listed_with_its_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 1, *talk(1))
    bad = write(tmp_path, 2, *talk(2))
    real = os.open

    def refuse(path: Any, *rest: Any, **more: Any) -> int:
        if Path(path) == bad:
            raise PermissionError(13, "Permission denied")
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    found = {info.path: info for info in listed(tmp_path)}
    assert len(found) == 2
    assert [(p.line, p.problem) for p in found[bad].problems] == [(0, "it can't be read: Permission denied")]


# -- working folders -----------------------------------------------------------------------------------


def test_the_cwd_in_the_lines_tells_colliding_folders_apart(tmp_path: Path) -> None:
    # WIRE.md §3: the slug collides; cwd in the lines decides.
    write(tmp_path, 1, *talk(1, cwd="/src/demo"))
    write(tmp_path, 2, *talk(2, cwd="/src-demo"))
    write(tmp_path, 3, *talk(3, cwd="/src/demo"), slug="-elsewhere")
    nameless = [{k: v for k, v in line.items() if k != "cwd"} for line in talk(4)]
    write(tmp_path, 4, *nameless)
    assert {info.session_id for info in listed(tmp_path, project="/src/demo")} == {session_id(1), session_id(4)}
    assert {info.session_id for info in listed(tmp_path, project="/src-demo")} == {session_id(2), session_id(4)}
    assert listed(tmp_path, project="/src") == []
    assert {info.project for info in listed(tmp_path)} == {SLUG, "-elsewhere"}


def test_a_session_that_moves_about_belongs_to_the_folder_it_lies_in(tmp_path: Path) -> None:
    lines = [
        user("u-1", "a", cwd="/elsewhere"),
        user("u-2", "b", "u-1", cwd="/src/demo"),
        user("u-3", "c", "u-2", cwd="/third"),
    ]
    assert only(tmp_path, *lines).cwd == "/src/demo"


def test_long_folder_names_end_in_a_hash_that_writers_differ_in(tmp_path: Path) -> None:
    cwd = "/src/" + "x" * 300
    slug = ("-src-" + "x" * 300)[:200]
    write(tmp_path, 1, *talk(1, cwd=cwd), slug=f"{slug}-abc123")
    write(tmp_path, 2, *talk(2, cwd=cwd + "y"), slug=f"{slug}-zzz")
    assert [info.session_id for info in listed(tmp_path, project=cwd)] == [session_id(1)]


# -- what is said --------------------------------------------------------------------------------------


def test_counts(tmp_path: Path) -> None:
    info = only(
        tmp_path,
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
        user("u-1", "Read it", timestamp=at(5)),
        assistant("a-1", "I will", "u-1", timestamp=at(6)),
        assistant("a-2", use("t-1"), "a-1", timestamp=at(7)),
        user("u-2", [result("t-1", "tool_result, says the text")], "a-2", timestamp=at(8)),
        user("u-3", "a tool_result is what I mean", "u-2", timestamp=at(9)),
        user("u-4", "for the model", "u-3", isMeta=True),
        user("u-5", "[Request interrupted by user]", "u-4"),
        user("u-6", "summary", "u-5", isCompactSummary=True),
        record("system", "s-1", "u-6", subtype="turn_duration", durationMs=3),
        record("attachment", "at-1", "s-1", attachment={"type": "todo"}),
        record("progress", "p-1", "at-1", data={}, timestamp="2025-06-01T12:30:00+02:00"),
        assistant("a-9", "sub", None, answer="msg_9", isSidechain=True),
        gitless := user(None, "without an id", gitBranch="main"),
    )
    assert "uuid" not in gitless
    # Two answers' lines and seven of the user; of these three are a human's words.
    assert (info.messages, info.turns, info.answers) == (9, 3, 2)
    # By time, not by text or place: 12:30 in another zone is 10:30.
    assert (info.first_activity, info.last_activity) == (at(0), "2025-06-01T12:30:00+02:00")
    assert (info.cwd, info.git_branch, info.models) == (CWD, "main", ["claude-a"])
    assert (info.bad_lines, info.problems, info.filler_bytes) == (0, [], 0)
    assert info.size == info.path.stat().st_size


def test_fault_28_the_last_numbers_of_an_answer_count_once(tmp_path: Path) -> None:
    info = only(
        tmp_path,
        user("u-1", "Go"),
        *(
            assistant(f"a-{n}", "x", "u-1", usage={"input_tokens": 10, "output_tokens": output})
            for n, output in enumerate((9, 9, 159))
        ),
        assistant("b-1", "y", "a-2", answer="msg_2", usage={"input_tokens": 1, "output_tokens": 2}),
    )
    assert info.tokens == {"input_tokens": 11, "output_tokens": 161}


def test_fault_29_the_message_id_alone_tells_answers_apart(tmp_path: Path) -> None:
    # Same id four times, no request id; then one whose lines have different request ids.
    info = only(
        tmp_path,
        user("u-1", "Go"),
        *(assistant(f"a-{n}", "x", "u-1", usage={"output_tokens": 7}) for n in range(4)),
        assistant("b-1", "y", "u-1", answer="msg_2", requestId="r1", usage={"output_tokens": 100}),
        assistant("b-2", "y", "b-1", answer="msg_2", requestId="r2", usage={"output_tokens": 100}),
    )
    assert info.tokens == {"output_tokens": 107}
    assert info.answers == 2


def test_tokens_by_key(tmp_path: Path) -> None:
    usage = {
        "input_tokens": 10,
        "cache_creation": {"ephemeral_5m_input_tokens": 7},
        "service_tier": "standard",
        "iterations": [{"input_tokens": 10}],
        "flag": True,
    }
    info = only(
        tmp_path,
        user("u-1", "Go"),
        assistant("a-1", "x", usage=usage),
        assistant("a-2", "y", answer=None, usage={"output_tokens": 1}),
        assistant("a-3", "z", answer=None, usage={"output_tokens": 1}),
        assistant("a-4", "no usage", answer="msg_4", usage=None),
        assistant("a-5", "local", answer="msg_5", model="<synthetic>", usage={"output_tokens": 900}),
    )
    assert info.tokens == {"input_tokens": 10, "cache_creation.ephemeral_5m_input_tokens": 7, "output_tokens": 2}
    assert (info.answers, info.models) == (4, ["claude-a"])


def test_a_uuid_counts_once_and_what_was_taken_back_not_at_all(tmp_path: Path) -> None:
    first = user("u-1", "Go")
    info = only(
        tmp_path,
        first,
        assistant("a-1", "x", "u-1"),
        first,
        assistant("a-2", "y", "a-1"),
        {"type": "tombstone", "targetUuid": "a-1", "sessionId": session_id(1)},
        b'{"type":"tombstone-filler","targetUuid":"a-0","pad":"    "}',
        b"     ",
    )
    assert (info.messages, info.turns) == (2, 1)
    assert info.filler_bytes == len(b'{"type":"tombstone-filler","targetUuid":"a-0","pad":"    "}\n') + 6


def test_bad_lines_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    lines = jsonl(*talk(1))
    first = lines.index(b"\n") + 1
    path = write(tmp_path, 1)
    torn = lines[first:][:40]
    path.write_bytes(lines[:first] + b"{broken\n[1]\n" + b"\n" + lines[first:-1] + lines[:first] + b'"text"\n' + torn)
    (info,) = listed(tmp_path)
    assert info.messages == 2  # the last whole line holds two records, one again
    assert info.bad_lines == 4
    assert [(p.line, p.offset) for p in info.problems] == [(2, first), (3, first + 8), (6, path.stat().st_size - 47)]


def test_fault_20_lone_surrogates_cost_nothing(tmp_path: Path) -> None:
    write(tmp_path, 1, jsonl(*talk(1))[:-1].replace(b"Hello", b"Hello \\ud83d"))
    (info,) = listed(tmp_path)
    assert (info.messages, info.title, info.bad_lines) == (2, "Hello \ufffd", 0)
    json.dumps(info.to_json()).encode()


def test_unknown_records_and_odd_values_are_no_problem(tmp_path: Path) -> None:
    info = only(
        tmp_path,
        *talk(1),
        *({"type": kind, "sessionId": 3, "timestamp": 5} for kind in ("mode", "cost-state", "tool_progress", 7, None)),
        {"type": ["list"], "uuid": {}, "cwd": 4, "isSidechain": "x", "timestamp": "yesterday"},
        {"type": "custom-title", "customTitle": 5},
        {"type": "summary", "summary": None},
        user("u-5", None),
        user("u-6", [None, 5, {"type": "text", "text": 6}]),
        assistant("a-5", "x", usage=[1], model=None, answer="msg_5"),
    )
    assert (info.messages, info.title, info.bad_lines) == (5, "Hello", 0)
    assert (info.first_activity, info.last_activity) == (at(0), at(1))


def test_sub_agents_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, 1, *talk(1))
    folder = path.with_suffix("") / "subagents"
    folder.mkdir(parents=True)
    for name in ("agent-a1.jsonl", "agent-b2.jsonl", "agent-b2.meta.json", "x.jsonl"):
        (folder / name).write_bytes(b"")
    (folder / "agent-c3.jsonl").symlink_to(path)
    (info,) = listed(tmp_path)
    assert info.subagents == 2


# -- titles --------------------------------------------------------------------------------------------

CUSTOM = {"type": "custom-title", "customTitle": "Mine", "sessionId": "s"}
GENERATED = {"type": "ai-title", "aiTitle": "Made", "sessionId": "s"}
SUMMARY = {"type": "summary", "summary": "Summed up", "leafUuid": "a-1"}
FOREIGN = {"type": "summary", "summary": "Another session's", "leafUuid": "elsewhere"}
COMMAND = user("u-0", "<command-name>/model</command-name>\n<command-args>opus</command-args>")


@pytest.mark.parametrize(
    ("lines", "title"),
    [
        ([CUSTOM, GENERATED, SUMMARY], "Mine"),
        ([CUSTOM, {**CUSTOM, "customTitle": "Later"}], "Later"),
        ([CUSTOM, {**CUSTOM, "customTitle": "  "}], "Mine"),
        ([SUMMARY, GENERATED], "Made"),
        ([SUMMARY, FOREIGN], "Summed up"),
        ([FOREIGN], "Hello"),
        ([COMMAND], "Hello"),
        ([user("u-0", [text("<ide_opened_file>a.py</ide_opened_file>"), text(" What\n is  this?")])], "What is this?"),
        ([user("u-0", [{"type": "image"}])], "Hello"),
        ([user("u-0", "x", isMeta=True), user("u-9", [result("t")])], "Hello"),
        ([user("u-0", "y" * 500)], "y" * (LONGEST - 1) + "…"),
    ],
)
def test_titles(tmp_path: Path, lines: list[Any], title: str) -> None:
    assert only(tmp_path, *lines, *talk(1)).title == title


def test_titles_of_sessions_without_a_prompt(tmp_path: Path) -> None:
    assert only(tmp_path, COMMAND).title == "/model opus"
    assert only(tmp_path, user("u-1", "<bash-input>ls</bash-input>")).title == "! ls"
    assert only(tmp_path, FOREIGN, assistant("a-1", "x")).title == "Another session's"
    assert only(tmp_path, assistant("a-1", "x")).title is None


# -- by name -------------------------------------------------------------------------------------------


def test_find_session(tmp_path: Path) -> None:
    first, second = write(tmp_path, 1, *talk(1)), write(tmp_path, 2, *talk(2), slug="-b")
    assert find_session(tmp_path, session_id(1)) == first
    assert find_session(tmp_path, session_id(2).upper()) == second
    third = tmp_path / "projects" / "-b" / "bbbbbbbb-0000-0000-0000-000000000000.jsonl"
    third.write_bytes(jsonl(*talk(3)))
    assert find_session(tmp_path, "bbb") == third
    for name, why in [("a0", "2 sessions"), ("ccc", "no session"), ("", "no session"), ("../x", "no session")]:
        with pytest.raises(TranscriptError, match=why):
            find_session(tmp_path, name)


def test_an_empty_name_is_none_even_if_there_is_one_session_only(tmp_path: Path) -> None:
    write(tmp_path, 1, *talk(1))
    with pytest.raises(TranscriptError, match="no session ''"):
        find_session(tmp_path, "")


def test_the_same_id_in_two_projects_is_ambiguous(tmp_path: Path) -> None:
    write(tmp_path, 1, *talk(1))
    write(tmp_path, 1, *talk(1), slug="-copy")
    assert len(listed(tmp_path)) == 2
    with pytest.raises(TranscriptError, match="2 sessions"):
        find_session(tmp_path, session_id(1))


# -- real files ----------------------------------------------------------------------------------------


def test_recordings(tmp_path: Path) -> None:
    # Token totals by a program of its own: stdlib json, last usage per id.
    folder = recordings.need("transcripts in the list of sessions") / "transcripts"
    sources = {}
    for number, source in enumerate(sorted(folder.rglob("*.jsonl"))):
        path = write(tmp_path, number)
        path.write_bytes(source.read_bytes())
        sources[path] = source
    found = {info.path: info for info in listed(tmp_path)}
    assert len(found) > 30
    for path, source in sources.items():
        usages: dict[str, dict[str, Any]] = {}
        said: dict[str, str] = {}
        for number, line in enumerate(source.read_bytes().split(b"\n")):
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if not isinstance(value, dict) or value.get("type") not in ("user", "assistant"):
                continue
            if value.get("isSidechain") is not True:
                said[value.get("uuid") or f"line {number}"] = value["type"]
            message = value["message"]
            if value["type"] == "assistant" and message.get("model") != "<synthetic>":
                key = message.get("id") or value.get("uuid") or f"line {number}"
                usages[key] = message.get("usage") or usages.get(key) or {}
        info = found.get(path)
        if info is None:
            assert not said, source
            continue
        total = sum(usage.get("output_tokens", 0) for usage in usages.values())
        assert info.tokens.get("output_tokens", 0) == total, source
        assert (info.answers, info.messages) == (len(usages), len(said)), source
