"""The readers that people use open our files (WIRE.md §3): claude-agent-sdk and claude-code-log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import recordings
from harness import run
from transcripts import SESSION, Answer, maker, records

from turnstream.messages import TranscriptError
from turnstream.sinks.transcript import Limits, TranscriptLimitError, TranscriptSink, project_slug, session_path
from turnstream.testing import run_virtual

sdk = pytest.importorskip("claude_agent_sdk")
pytest.importorskip("claude_code_log")

from claude_code_log.converter import load_transcript


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "root"))
    return tmp_path / "root"


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    folder = tmp_path / "wörk ing_dir.x"
    folder.mkdir()
    return folder.resolve()


def write(path: Path, items: list[Any], **options: Any) -> TranscriptSink:
    sink = TranscriptSink(path, **options)

    async def go() -> None:
        sink.on_next(items)
        await sink.aclose()

    run_virtual(go())
    return sink


def conversation() -> tuple[list[Any], list[Any]]:
    """Items of a session, and the user and assistant messages among them in order."""
    make = maker()
    user = make.user("What is in notes.txt? ✅")
    asks, says = Answer(make, "msg_1"), Answer(make, "msg_2")
    first = [
        user,
        make.attachment({"type": "memory", "content": "short answers"}),
        asks.start(),
        *asks.block({"type": "thinking", "thinking": "read it", "signature": "c2ln"}),
        *asks.tool("toolu_1"),
        *asks.tool("toolu_2"),
        *asks.end(77, "tool_use"),
    ]
    results = [
        make.tool_result("toolu_1", "two lines", tool_use_result={"lines": 2}, source=asks.messages[1]),
        make.tool_result("toolu_2", [{"type": "text", "text": "nothing"}], source=asks.messages[2]),
    ]
    second = [
        make.progress("toolu_1", None, {"type": "bash_progress"}),
        *results,
        make.system("informational", "model switched"),
        says.start(),
        *says.text("It says hello."),
        *says.end(12),
    ]
    thanks = make.user("Thanks")
    return [*first, *second, thanks], [user, *asks.messages, *results, *says.messages, thanks]


def test_claude_agent_sdk_lists_the_session_and_reads_its_messages(root: Path, cwd: Path) -> None:
    items, expected = conversation()
    path = session_path(root, cwd, SESSION)
    write(path, items, cwd=str(cwd), title="Notes", git_branch="main")

    (info,) = sdk.list_sessions(directory=str(cwd))
    assert info.session_id == SESSION
    assert info.summary == info.custom_title == "Notes"
    assert info.first_prompt == "What is in notes.txt? ✅"
    assert info.cwd == str(cwd)
    assert info.git_branch == "main"
    assert info.file_size == path.stat().st_size
    found = sdk.get_session_messages(SESSION, directory=str(cwd))
    assert {m.uuid for m in found} == {m.uuid for m in expected}, "parallel tool calls and all results come back"
    assert found[0].uuid == expected[0].uuid
    assert found[-1].uuid == expected[-1].uuid
    by_uuid = {m.uuid: m for m in found}
    for message in expected:
        assert by_uuid[message.uuid].message == json.loads(json.dumps(message.message))
        assert by_uuid[message.uuid].session_id == SESSION


def test_a_replay_is_listed_by_its_title_even_behind_a_huge_first_record(root: Path, cwd: Path) -> None:
    """The reader looks at the first and last 64 KiB only, and a replay has no prompt."""
    make = maker()
    answer = Answer(make)
    items = [answer.start(), *answer.text("x" * 100_000), *answer.text("y" * 100_000), *answer.end()]
    write(session_path(root, cwd, SESSION), items, cwd=str(cwd), title="Replay of answer.sse")
    (info,) = sdk.list_sessions(directory=str(cwd))
    assert (info.summary, info.first_prompt) == ("Replay of answer.sse", None)


def test_a_sidechain_isnt_listed_title_or_not(root: Path, cwd: Path) -> None:
    make = maker()
    write(session_path(root, cwd, SESSION), [make.user("warm up")], cwd=str(cwd), title="agent", is_sidechain=True)
    assert sdk.list_sessions(directory=str(cwd)) == []


def test_sdk_renames_a_session_and_we_go_on(root: Path, cwd: Path) -> None:
    make = maker()
    path = session_path(root, cwd, SESSION)
    first, second = make.user("1"), make.user("2")
    write(path, [first], cwd=str(cwd), title="old")
    sdk.rename_session(SESSION, "new", directory=str(cwd))
    write(path, [second], cwd=str(cwd), append=True)
    (info,) = sdk.list_sessions(directory=str(cwd))
    assert info.custom_title == "new"
    assert [m.uuid for m in sdk.get_session_messages(SESSION, directory=str(cwd))] == [first.uuid, second.uuid]


def test_sdk_sees_only_what_follows_a_boundary(root: Path, cwd: Path) -> None:
    make = maker()
    boundary = make.system("compact_boundary", "Conversation compacted", compactMetadata={"trigger": "auto"})
    summary, after = make.user("Summary: it was about notes", is_compact_summary=True), make.user("go on")
    write(session_path(root, cwd, SESSION), [make.user("1"), make.assistant("2"), boundary, summary, after])
    found = sdk.get_session_messages(SESSION, directory=str(cwd))
    assert [m.uuid for m in found] == [summary.uuid, after.uuid]


def test_a_tombstoned_line_leaves_one_chain(root: Path, cwd: Path) -> None:
    make = maker()
    user, bad, after = make.user("1"), make.assistant("wrong"), make.user("2")
    path = session_path(root, cwd, SESSION)
    sink = TranscriptSink(path)

    async def go() -> None:
        await sink.record([user, bad])
        sink.append(make.tombstone(bad))
        await sink.record([after])
        await sink.aclose()

    run_virtual(go())
    found = sdk.get_session_messages(SESSION, directory=str(cwd))
    assert [m.uuid for m in found] == [user.uuid, after.uuid]


def test_sub_agents_are_found(root: Path, cwd: Path) -> None:
    make = maker()
    write(session_path(root, cwd, SESSION), [make.user("start an agent")], cwd=str(cwd))
    answer = Answer(make)
    task = make.user("count files")
    items = [task, answer.start(), *answer.text("3"), *answer.end()]
    path = session_path(root, cwd, SESSION, agent_id="abc123")
    write(path, items, session_id=SESSION, cwd=str(cwd), is_sidechain=True, agent_id="abc123")
    assert sdk.list_subagents(SESSION, directory=str(cwd)) == ["abc123"]
    found = sdk.get_subagent_messages(SESSION, "abc123", directory=str(cwd))
    assert [m.uuid for m in found] == [task.uuid, answer.messages[0].uuid]


def test_claude_code_log_reads_every_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items, expected = conversation()
    path = tmp_path / f"{SESSION}.jsonl"
    write(path, items, title="Notes", cwd="/home/me")
    loaded = load_transcript(path)
    said = capsys.readouterr().out
    assert "error" not in said.lower(), said
    assert "skipping" not in said.lower(), said
    assert [e.uuid for e in loaded if e.type in ("user", "assistant")] == [m.uuid for m in expected]
    assert len(loaded) == len(records(path)) - 1, "all but the title, which it knows and skips"
    totals = {e.message.id: e.message.usage.output_tokens for e in loaded if e.type == "assistant"}
    assert totals == {"msg_1": 77, "msg_2": 12}


def test_claude_code_log_finds_one_root(tmp_path: Path) -> None:
    items, _ = conversation()
    path = tmp_path / f"{SESSION}.jsonl"
    write(path, items)
    nodes = {e.uuid: e for e in load_transcript(path, silent=True)}
    roots = [e.uuid for e in nodes.values() if e.parentUuid is None]
    assert roots == [records(path)[0]["uuid"]]
    assert all(e.parentUuid in nodes for e in nodes.values() if e.parentUuid is not None)


@pytest.mark.parametrize("name", recordings.names((".sse",))[::6])
def test_readers_open_recorded_streams(name: str, root: Path, cwd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recordings.need("transcripts of recorded streams")
    path = session_path(root, cwd, SESSION)
    write(path, run(recordings.read(name), settled=False), title=f"Replay of {name}", cwd=str(cwd))
    if not path.exists():
        assert sdk.list_sessions(directory=str(cwd)) == []
        return
    lines = [record for record in records(path) if record["type"] == "assistant"]
    (info,) = sdk.list_sessions(directory=str(cwd))
    assert info.custom_title == f"Replay of {name}"
    assert [m.uuid for m in sdk.get_session_messages(SESSION, directory=str(cwd))] == [r["uuid"] for r in lines]
    loaded = [e.uuid for e in load_transcript(path)]
    assert {r["uuid"] for r in lines} <= set(loaded), capsys.readouterr().out


def test_slug_as_the_readers_make_it(tmp_path: Path) -> None:
    for folder in ("/home/me/my_project.v2", "/", "relative", "/ünïcode/日本", "/a" * 99):
        assert project_slug(folder) == "".join(c if c.isascii() and c.isalnum() else "-" for c in folder)
    long = "/" + "x" * 300
    assert project_slug(long).startswith("-" + "x" * 199 + "-")
    assert len(project_slug(long)) < 255
    assert project_slug(long) != project_slug(long + "y")


def test_a_very_long_working_folder_is_found_too(root: Path, tmp_path: Path) -> None:
    cwd = tmp_path.resolve() / ("a" * 120) / ("b" * 120)
    cwd.mkdir(parents=True)
    write(session_path(root, cwd, SESSION), [maker().user("hello")])
    (info,) = sdk.list_sessions(directory=str(cwd))
    assert info.first_prompt == "hello"


def test_ids_are_validated_before_they_become_paths() -> None:
    for session in ("../../etc/passwd", "", "x", SESSION + "/..", SESSION + "\n"):
        with pytest.raises(TranscriptError, match="no uuid"):
            session_path("/root", "/cwd", session)
    for agent in ("../x", "", "a/b", "a" * 200, ".hidden", "a\n"):
        with pytest.raises(TranscriptError, match="agent id"):
            session_path("/root", "/cwd", SESSION, agent_id=agent)


def odd_session(path: Path, cwd: Path, close: bool = True) -> tuple[TranscriptSink, list[Any]]:
    """A session with everything a writer may have to do: fillers, bridged lines, side files, a stand-in."""
    make = maker()
    user, bad, good = make.user("What is it?"), make.assistant("wrong"), make.user("Go on")
    answer, last = Answer(make, "msg_1"), make.user("Thanks")
    result = make.tool_result("toolu_1", "line\n" * 9000, tool_use_result={"stdout": "line\n" * 9000, "stderr": ""})
    huge = make.user("start of a huge paste " + "x" * 300_000)
    sink = TranscriptSink(path, cwd=str(cwd), title="Odd", limits=Limits(tool_result=5_000, record=100_000))

    async def go() -> None:
        await sink.record([user, bad, good])
        sink.append(make.tombstone(bad))
        sink.on_next([answer.start(), *answer.tool("toolu_1"), *answer.end(77, "tool_use")])
        await sink.record([result])
        sink.append(huge)
        sink.append(last)
        with pytest.raises(TranscriptLimitError):
            await sink.drain()
        if close:
            await sink.aclose()

    run_virtual(go())
    return sink, [user, good, *answer.messages, result, huge, last]


@pytest.mark.parametrize("close", [False, True])
def test_readers_skip_fillers_and_read_previews_and_stand_ins(
    root: Path, cwd: Path, capsys: pytest.CaptureFixture[str], close: bool
) -> None:
    path = session_path(root, cwd, SESSION)
    sink, expected = odd_session(path, cwd, close)
    assert any(record["type"] == "tombstone-filler" for record in records(path)) is not close
    wanted = [message.uuid for message in expected]
    (info,) = sdk.list_sessions(directory=str(cwd))
    assert (info.summary, info.first_prompt) == ("Odd", "What is it?")
    found = sdk.get_session_messages(SESSION, directory=str(cwd))
    assert [m.uuid for m in found] == wanted
    assert found[3].message["content"][0]["content"].startswith("line\nline\n")
    assert found[4].message["content"].startswith("start of a huge paste")
    loaded = load_transcript(path)
    said = capsys.readouterr().out
    assert "error" not in said.lower(), said
    assert [e.uuid for e in loaded if e.type in ("user", "assistant")] == wanted
    parents = {e.uuid: e.parentUuid for e in loaded if e.type in ("user", "assistant")}
    assert list(parents.values()) == [None, *wanted[:-1]]
    assert {e.message.id: e.message.usage.output_tokens for e in loaded if e.type == "assistant"} == {"msg_1": 77}
    if not close:

        async def end() -> None:
            await sink.aclose()

        run_virtual(end())


def test_readers_skip_the_records_of_an_audit_trail(root: Path, cwd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make = maker()
    user, bad, after = make.user("1"), make.assistant("wrong"), make.user("2")
    path = session_path(root, cwd, SESSION)
    sink = TranscriptSink(path, tombstones="append")

    async def go() -> None:
        await sink.record([user, bad])
        sink.append(make.tombstone(bad))
        await sink.record([after])
        await sink.aclose()

    run_virtual(go())
    assert [m.uuid for m in sdk.get_session_messages(SESSION, directory=str(cwd))] == [user.uuid, after.uuid]
    assert {user.uuid, after.uuid} <= {e.uuid for e in load_transcript(path) if e.type in ("user", "assistant")}
    assert "error" not in capsys.readouterr().out.lower()


@pytest.mark.parametrize("close", [False, True])
def test_claude_code_transcripts_reads_and_renders_every_message(root: Path, cwd: Path, close: bool) -> None:
    reader = pytest.importorskip("claude_code_transcripts")
    path = session_path(root, cwd, SESSION)
    sink, expected = odd_session(path, cwd, close)
    lines = reader.parse_session_file(path)["loglines"]
    assert [(line["type"], line["timestamp"]) for line in lines] == [
        ("assistant" if hasattr(message, "request_id") else "user", message.timestamp) for message in expected
    ]
    assert reader.get_session_summary(path) == "What is it?"
    reader.generate_html(path, root / "html")
    page = (root / "html" / "page-001.html").read_text(encoding="utf-8")
    for text in ("What is it?", "Go on", "more characters are in", "more characters left out", "Thanks"):
        assert text in page
    assert "wrong" not in page
    if not close:

        async def end() -> None:
            await sink.aclose()

        run_virtual(end())
