"""``fork_session``: a conversation up to a record, in a session of its own."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import recordings
from claude_agent_sdk import get_session_info, get_session_messages
from sessions import assistant, at, jsonl, record, result, session_id, talk, text, use, user, write

from turnstream.messages import TranscriptError
from turnstream.sinks.transcript import sidefiles
from turnstream.sinks.transcript.lockfile import SessionLock
from turnstream.sinks.transcript.reading.resume import resume
from turnstream.sinks.transcript.sessions import fork_session, list_sessions

NEW = "ffffffff-0000-4000-8000-000000000001"


def lines(path: Path) -> list[Any]:
    data = path.read_bytes()
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def uuids(path: Path) -> list[str]:
    return [line["uuid"] for line in lines(path) if "uuid" in line]


def resumed(path: Path, leaf: str | None = None) -> list[str]:
    return [message.uuid for message in resume(path, leaf=leaf, mend=False).messages]  # type: ignore[union-attr]


CONVERSATION = [
    {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
    user("u-1", "One", timestamp=at(1)),
    assistant("a-1", "First", "u-1"),
    record("progress", "p-1", "a-1", data={}),
    user("u-2", "Two", "a-1"),
    assistant("a-2", "Second", "u-2", answer="msg_2", usage={"input_tokens": 70, "output_tokens": 900}),
    user("u-3", "Another way", "a-1"),
    assistant("a-3", "Third", "u-3", answer="msg_3"),
    {"type": "custom-title", "customTitle": "Mine", "sessionId": session_id(1)},
]


def test_the_chain_up_to_a_record(tmp_path: Path) -> None:
    path = write(tmp_path, 1, *CONVERSATION)
    before = path.read_bytes()
    new = fork_session(path, at="u-2")
    assert new.parent == path.parent
    assert path.read_bytes() == before
    *members, title = lines(new)
    for copy, source in zip(members, (CONVERSATION[1], CONVERSATION[2], CONVERSATION[4]), strict=True):
        # Everything but the session's id is as it was, also the order of the keys.
        origin = {"sessionId": session_id(1), "messageUuid": source["uuid"]}
        assert copy == {**source, "sessionId": new.stem, "forkedFrom": origin}
        assert list(copy)[:-1] == list(source)
    assert title == {"type": "custom-title", "customTitle": "Mine (fork)", "sessionId": new.stem}
    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    assert sorted(p.name for p in path.parent.iterdir()) == sorted([path.name, new.name])
    assert b'"usage":{' in new.read_bytes()


def test_without_a_record_the_newest_leaf(tmp_path: Path) -> None:
    path = write(tmp_path, 1, *CONVERSATION)
    new = fork_session(path, title="Mine now", session_id=NEW)
    assert (new.stem, uuids(new)) == (NEW, ["u-1", "a-1", "u-3", "a-3"])
    assert lines(new)[-1]["customTitle"] == "Mine now"
    assert resumed(new) == resumed(path)


def test_both_are_listed_and_readers_follow_the_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, 1, *CONVERSATION)
    new = fork_session(path, at="a-2", session_id=NEW)
    found = {info.path: info for info in list_sessions(tmp_path, index=False)}
    assert (found[new].title, found[new].messages) == ("Mine (fork)", 4)
    # The one by Anthropic: title, messages in order.
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    info = get_session_info(NEW)
    assert info is not None
    assert info.summary == "Mine (fork)"
    assert [message.uuid for message in get_session_messages(NEW)] == ["u-1", "a-1", "u-2", "a-2"]


def test_a_fork_can_be_gone_on_with_and_forked(tmp_path: Path) -> None:
    path = write(tmp_path, 1, *CONVERSATION)
    first = fork_session(path, at="a-2")
    second = fork_session(first, at="a-1")
    assert uuids(second) == ["u-1", "a-1"]
    assert lines(second)[0]["forkedFrom"] == {"sessionId": first.stem, "messageUuid": "u-1"}
    assert lines(second)[-1]["customTitle"] == "Mine (fork) (fork)"


PARALLEL = [
    user("u-1", "Read two"),
    assistant("a-1", use("t-1"), "u-1"),
    assistant("a-2", use("t-2"), "a-1"),
    user("r-1", [result("t-1")], "a-1"),
    user("r-2", [result("t-2")], "a-2"),
    assistant("a-3", "Both", "r-2", answer="msg_2"),
]


def test_fault_39_parallel_calls_keep_all_results(tmp_path: Path) -> None:
    path = write(tmp_path, 1, *PARALLEL)
    new = fork_session(path, at="a-3")
    assert set(uuids(new)) == {"u-1", "a-1", "a-2", "r-1", "r-2", "a-3"}
    assert resumed(new) == resumed(path)


COMPACTED = [
    user("u-1", "Before"),
    assistant("a-1", "Long", "u-1"),
    user("u-2", "Kept", "a-1"),
    assistant("a-2", "Kept too", "u-2", answer="msg_2"),
    record(
        "system",
        "b-1",
        None,
        subtype="compact_boundary",
        logicalParentUuid="a-2",
        compactMetadata={
            "trigger": "auto",
            "preservedSegment": {"headUuid": "u-2", "anchorUuid": "s-1", "tailUuid": "a-2"},
        },
    ),
    user("s-1", "Summary", "b-1", isCompactSummary=True, isVisibleInTranscriptOnly=True),
    user("u-3", "After", "s-1"),
    assistant("a-3", "Short", "u-3", answer="msg_3"),
]


def test_compactions_and_what_was_before_them_come_along(tmp_path: Path) -> None:
    path = write(tmp_path, 1, *COMPACTED)
    new = fork_session(path, at="a-3")
    assert uuids(new) == [line["uuid"] for line in COMPACTED]
    assert resumed(new) == resumed(path) == ["b-1", "s-1", "u-2", "a-2", "u-3", "a-3"]
    earlier = fork_session(path, at="a-1")
    assert uuids(earlier) == ["u-1", "a-1"]


def test_fault_38_a_parent_that_is_not_copied_is_bridged(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        1,
        user("u-1", "One"),
        assistant("a-1", "First", "u-1"),
        record("progress", "p-1", "a-1", data={}),
        user("u-2", "Two", "p-1"),
        assistant("a-2", "Second", "lost", answer="msg_2"),
    )
    new = fork_session(path)
    assert [(line["uuid"], line["parentUuid"]) for line in lines(new)[:-1]] == [
        ("u-1", None),
        ("a-1", "u-1"),
        ("u-2", "a-1"),
        ("a-2", "u-2"),
    ]
    assert not resume(new).report.damage


@pytest.mark.parametrize("parent", [["a-1"], {"uuid": "a-1"}, 5])
def test_a_parent_that_is_no_text_is_bridged(tmp_path: Path, parent: Any) -> None:
    path = write(tmp_path, 1, user("u-1", "One"), assistant("a-1", "First", "u-1"), user("u-2", "Two", parent))
    path.write_bytes(path.read_bytes() + jsonl(assistant("a-2", "Second", parent, answer="msg_2")))
    new = fork_session(path)
    assert resumed(new) == resumed(path)


def test_a_circle_is_opened_as_on_reading(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        1,
        user("u-1", "One", "a-2"),
        assistant("a-1", "First", "u-1"),
        user("u-2", "Two", "a-1"),
        assistant("a-2", "Second", "u-2", answer="msg_2"),
    )
    new = fork_session(path)
    assert [line.get("parentUuid") for line in lines(new)[:-1]] == [None, "u-1", "a-1", "u-2"]
    assert resumed(new) == resumed(path) == ["u-1", "a-1", "u-2", "a-2"]


def test_a_later_copy_takes_the_place_of_the_first(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        1,
        {"type": "file-history-snapshot", "uuid": "u-2", "parentUuid": "nowhere", "snapshot": {}},
        user("u-1", "One"),
        assistant("a-1", "First", "u-1"),
        user("u-2", "Two", "a-1"),
        assistant("a-2", "Second", "u-2", answer="msg_2"),
        # Recorded again when the session was opened again, behind what was the last then.
        user("u-1", "One", "a-2", isMeta=False),
        user("u-2", "Two", "u-1", isMeta=False, isSidechain=True),
    )
    new = fork_session(path)
    assert [(line["uuid"], line["parentUuid"], line["isSidechain"]) for line in lines(new)[:-1]] == [
        ("u-1", None, False),
        ("a-1", "u-1", False),
        ("u-2", "a-1", False),
        ("a-2", "u-2", False),
    ]
    assert resumed(new) == resumed(path) == ["u-1", "a-1", "u-2", "a-2"]


def test_broken_lines_duplicates_and_surrogates(tmp_path: Path) -> None:
    path = write(tmp_path, 1)
    one, two = jsonl(*talk(1)).splitlines()
    two = two.replace(b'"Hi"', b'"Hi \\udc8f \xe2\x82\xac"')
    path.write_bytes(b"\n".join([b"{torn", one, one, two, two + one, b"", two[:30]]))
    new = fork_session(path)
    first, second, _ = lines(new)
    assert (first["uuid"], second["uuid"]) == ("u-1", "a-1")
    assert second["message"]["content"] == [text("Hi \ufffd €")]


def test_records_without_ids_come_along(tmp_path: Path) -> None:
    nameless = [{k: v for k, v in line.items() if k not in ("uuid", "parentUuid")} for line in talk(1)]
    path = write(tmp_path, 1, *nameless)
    new = fork_session(path)
    assert [line["type"] for line in lines(new)] == ["user", "assistant", "custom-title"]
    assert lines(new)[0]["forkedFrom"] == {"sessionId": session_id(1)}


def test_tool_results_in_side_files_are_copied(tmp_path: Path) -> None:
    def reference(name: str, folder: str = session_id(1)) -> dict[str, Any]:
        return {"path": f"{folder}/tool-results/{name}", "field": "content", "block": 0, "toolUseId": "t-1"}

    secret = tmp_path / "projects" / "x" / "secret.txt"
    secret.parent.mkdir(parents=True)
    secret.write_text("secret")
    odd = ["../../secret", 5, {"path": "../x/secret.txt"}, {"path": "a/b"}, {"path": 3}, reference("missing.txt")]
    path = write(
        tmp_path,
        1,
        user("u-1", "Read"),
        assistant("a-1", use("t-1"), "u-1"),
        user("u-2", [result("t-1", "preview")], "a-1", sideFiles=[reference("t-1.txt"), *odd]),
        user("u-3", [result("t-1", "preview")], "u-2", sideFiles=[reference("t-2.txt", "moved-away")]),
    )
    folder = path.with_suffix("") / "tool-results"
    folder.mkdir(parents=True)
    for name in ("t-1.txt", "t-2.txt", "other.txt"):
        (folder / name).write_bytes(name.encode() * 1000)
    new = fork_session(path)
    copies = new.with_suffix("") / "tool-results"
    assert {p.name: p.read_bytes() for p in copies.iterdir()} == {n: n.encode() * 1000 for n in ("t-1.txt", "t-2.txt")}
    assert stat.S_IMODE((copies / "t-1.txt").stat().st_mode) == 0o600
    two, three = lines(new)[2:4]
    assert two["sideFiles"] == [reference("t-1.txt", new.stem), *odd]
    # The old session may go.
    for file in folder.iterdir():
        file.unlink()
    path.unlink()
    assert sidefiles.load_side_file(two["sideFiles"][0], new) == "t-1.txt" * 1000
    assert sidefiles.load_side_file(three["sideFiles"][0], new) == "t-2.txt" * 1000


def test_an_open_session_can_be_forked(tmp_path: Path) -> None:
    path = write(tmp_path, 1, *CONVERSATION)
    lock = SessionLock(path)
    lock.acquire()
    try:
        assert uuids(fork_session(path, at="a-1")) == ["u-1", "a-1"]
    finally:
        lock.release()


@pytest.mark.parametrize(
    ("make", "options", "why"),
    [
        (lambda root: write(root, 1, *CONVERSATION), {"at": "nobody"}, "nobody isn't in the file"),
        (lambda root: write(root, 1, *CONVERSATION), {"session_id": "../x"}, "no uuid"),
        (lambda root: write(root, 1, *CONVERSATION), {"session_id": session_id(1)}, "exists already"),
        (lambda root: write(root, 1, {"type": "summary", "summary": "s"}), {}, "no conversation"),
        (lambda root: root / "nothing.jsonl", {}, "can't be read"),
        (lambda root: root, {}, "can't be read"),
    ],
)
def test_refused(tmp_path: Path, make: Callable[[Path], Path], options: dict[str, Any], why: str) -> None:
    path = make(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(TranscriptError, match=why):
        fork_session(path, **options)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("call", ["fsync", "rename", "open"])
def test_a_failing_device_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    path = write(
        tmp_path,
        1,
        user("u-1", [result("t-1", "p")], sideFiles=[{"path": f"{session_id(1)}/tool-results/t-1.txt"}]),
        assistant("a-1", "x", "u-1"),
    )
    side = path.with_suffix("") / "tool-results" / "t-1.txt"
    side.parent.mkdir(parents=True)
    side.write_bytes(b"x")
    before = sorted(tmp_path.rglob("*"))
    real = getattr(os, call)

    def fail(*arguments: Any, **more: Any) -> Any:
        if call == "open" and not str(arguments[0]).endswith(f".{NEW}.jsonl.tmp"):
            return real(*arguments, **more)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(TranscriptError, match="No space left on device"):
        fork_session(path, session_id=NEW)
    monkeypatch.undo()
    assert sorted(tmp_path.rglob("*")) == before


def test_recordings_fork_to_the_same_conversation(tmp_path: Path) -> None:
    folder = recordings.need("transcripts as forks") / "transcripts"
    sources = {}
    for number, source in enumerate(sorted(folder.rglob("*.jsonl"))):
        path = write(tmp_path, number)
        path.write_bytes(source.read_bytes())
        sources[path] = source
    found = list_sessions(tmp_path, index=False)
    assert len(found) > 30
    for info in found:
        new = fork_session(info.path)
        assert resumed(new) == resumed(info.path), sources[info.path]
        assert {line["sessionId"] for line in lines(new)} == {new.stem}
