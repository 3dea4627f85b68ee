"""``turnstream normalize``, as a user calls it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import recordings

from turnstream.cli import main, reading
from turnstream.sinks.transcript.reading import records

ENVELOPE = {"isSidechain": False, "userType": "external", "cwd": "/src", "sessionId": "s", "version": "2.1.0"}


def record(kind: str, uuid: str, parent: str | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "parentUuid": parent,
        **ENVELOPE,
        "type": kind,
        "uuid": uuid,
        "timestamp": "2025-06-01T10:00:00.000Z",
        **fields,
    }


def user(uuid: str, content: Any, **fields: Any) -> dict[str, Any]:
    return record("user", uuid, message={"role": "user", "content": content}, **fields)


def assistant(uuid: str, *blocks: Any, ident: str = "msg_1", **fields: Any) -> dict[str, Any]:
    message = {
        "id": ident,
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": list(blocks),
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 5},
    }
    return record("assistant", uuid, message=message, **fields)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(ident: str, name: str = "Read") -> dict[str, Any]:
    return {"type": "tool_use", "id": ident, "name": name, "input": {"file_path": "a.py"}}


def result(ident: str, content: str = "1\n2") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": ident, "content": content}


SESSION = [
    {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
    user("u-1", "Read a.py"),
    assistant("a-1", text("I'll look."), ident="msg_1"),
    assistant("a-2", use("toolu_1"), ident="msg_1"),
    record("progress", "p-1", toolUseID="toolu_1", parentToolUseID="toolu_1", data={"type": "hook_progress"}),
    user("u-2", [result("toolu_1")], toolUseResult={"file": "a.py"}),
    record("system", "s-1", subtype="turn_duration", durationMs=5),
    assistant("a-3", text("Two lines."), ident="msg_2"),
    user("u-3", "Thanks"),
]
REQUEST = [
    {"role": "user", "content": [text("Read a.py")]},
    {"role": "assistant", "content": [text("I'll look."), use("toolu_1")]},
    {"role": "user", "content": [result("toolu_1")]},
    {"role": "assistant", "content": [text("Two lines.")]},
    {"role": "user", "content": [text("Thanks")]},
]


def jsonl(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def lines(data: bytes) -> list[Any]:
    return [json.loads(line) for line in data.splitlines()]


def normalize(*arguments: Any, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "turnstream", "normalize", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def session(tmp_path: Path) -> Path:
    path = tmp_path / "session.jsonl"
    path.write_bytes(jsonl(*SESSION))
    return path


# -- for the API ---------------------------------------------------------------------------------------


def test_one_role_and_content_a_line(session: Path) -> None:
    done = normalize(session, "--for", "api")
    assert done.returncode == 0
    assert done.stderr == b""
    assert lines(done.stdout) == REQUEST
    assert done.stdout.endswith(b"\n")


def test_standard_input() -> None:
    done = normalize("-", "--for", "api", stdin=jsonl(*SESSION))
    assert (done.returncode, lines(done.stdout)) == (0, REQUEST)


def test_explain_tells_each_repair_on_stderr(session: Path) -> None:
    session.write_bytes(jsonl(user("u-1", "Go"), assistant("a-1", use("toolu_9")), user("u-2", "Stop")))
    done = normalize(session, "--for", "api", "--explain")
    assert done.returncode == 0
    answered = lines(done.stdout)[2]["content"]
    assert (answered[0]["type"], answered[0]["tool_use_id"], answered[0]["is_error"]) == (
        "tool_result",
        "toolu_9",
        True,
    )
    told = done.stderr.decode().splitlines()
    assert told
    assert any(line.startswith("repair ") and "toolu_9" in line for line in told)
    assert all(len(line.split(" ", 2)) == 3 and ": " in line for line in told)
    # The same, as data.
    done = normalize("--explain=json", session, "--for", "api")
    repairs = lines(done.stderr)
    assert [f"{r['stage']} {r['uuid'] or '-'} {r['what']}: {r['why']}" for r in repairs] == told
    # Without it nothing is told.
    assert normalize(session, "--for", "api").stderr == b""


def test_the_options_reach_normalization(session: Path, tmp_path: Path) -> None:
    ends_with_answer = jsonl(user("u-1", "Go"), assistant("a-1", text("Done. ")))
    session.write_bytes(ends_with_answer)
    assert lines(normalize(session, "--for", "api").stdout)[-1]["role"] == "user"
    allowed = lines(normalize(session, "--for", "api", "--prefill", "allow").stdout)
    assert allowed[-1] == {"role": "assistant", "content": [text("Done.")]}
    # Marks: four fit, of which the caller keeps three for itself.
    marked = [dict(text(f"part {n}"), cache_control={"type": "ephemeral"}) for n in range(4)]
    session.write_bytes(jsonl(user("u-1", marked)))
    (message,) = lines(normalize(session, "--for", "api", "--reserved-cache-marks", 3).stdout)
    assert ["cache_control" in block for block in message["content"]] == [False, False, False, True]
    # Thinking that another model signed goes.
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    session.write_bytes(jsonl(user("u-1", "Go"), assistant("a-1", thinking, text("Done.")), user("u-2", "More")))
    on = (session, "--for", "api", "--thinking", "--model")
    assert thinking in lines(normalize(*on, "claude-sonnet-4-5").stdout)[1]["content"]
    other = lines(normalize(*on, "claude-opus-4-6").stdout)
    assert thinking not in other[1]["content"]
    # A reference to a tool that the request doesn't have goes; with unknown tools it stays.
    reference = {"type": "tool_reference", "tool_name": "gone"}
    search = dict(result("toolu_1"), content=[reference, text("found")])
    session.write_bytes(jsonl(user("u-1", "Go"), assistant("a-1", use("toolu_1", "Find")), user("u-2", [search])))
    tools = tmp_path / "tools.json"
    for value in ([{"name": "Find"}], {"model": "m", "tools": [{"name": "Find"}]}):
        tools.write_text(json.dumps(value))
        done = normalize(session, "--for", "api", "--tools", tools)
        assert done.returncode == 0
        assert reference not in lines(done.stdout)[2]["content"][0]["content"]
    # So it does where a toolset doesn't say which tools it has.
    tools.write_text('[{"name": "Find"}, {"type": "mcp_toolset", "mcp_server_name": "wiki"}]')
    assert reference in lines(normalize(session, "--for", "api", "--tools", tools).stdout)[2]["content"][0]["content"]
    assert reference in lines(normalize(session, "--for", "api").stdout)[2]["content"][0]["content"]


def test_thinking_that_cant_be_on_is_told(session: Path) -> None:
    begun = jsonl(user("u-1", "Go"), assistant("a-1", use("toolu_1")), user("u-2", [result("toolu_1")]))
    session.write_bytes(begun)
    done = normalize(session, "--for", "api", "--thinking", "--model", "claude-sonnet-4-5")
    assert done.returncode == 0
    assert done.stderr.startswith(b"turnstream: the request can't have thinking on")
    assert normalize(session, "--for", "api", "--thinking", "--model", "claude-opus-4-6").stderr == b""
    assert normalize(session, "--for", "api", "--model", "claude-sonnet-4-5").stderr == b""


def test_refused_strips_what_the_error_names(session: Path) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGFsbG8="}}
    session.write_bytes(jsonl(user("u-1", [text("look"), image])))
    why = "messages.0.content.1.image.source.base64: The image could not be processed"
    done = normalize(session, "--for", "api", "--refused", why)
    assert done.returncode == 0
    assert "aGFsbG8=" not in done.stdout.decode()


# -- for a display -------------------------------------------------------------------------------------


def test_one_block_a_message_for_a_display(session: Path) -> None:
    both = [text("I'll look."), use("toolu_1", "Bash"), use("toolu_2", "Write")]
    records = [
        user("u-1", "Go"),
        assistant("a-1", *both),
        user("u-2", [result("toolu_2")]),
        user("u-3", [result("toolu_1")]),
    ]
    session.write_bytes(jsonl(*records))
    done = normalize(session, "--for", "display")
    assert done.returncode == 0
    shown = lines(done.stdout)
    assert all(len(message["message"]["content"]) == 1 for message in shown)
    blocks = [message["message"]["content"][0] for message in shown]
    # Each result stands behind its call, whatever order they came in.
    assert blocks == [text("Go"), both[0], both[1], result("toolu_1"), both[2], result("toolu_2")]
    assert len({message["uuid"] for message in shown}) == 6
    assert done.stdout == normalize(session, "--for", "display").stdout


def test_runs_of_tools_are_one_item(session: Path) -> None:
    ids = ["toolu_1", "toolu_2", "toolu_3"]
    for name, kind in (("Bash", "grouped_tool_use"), ("Read", "collapsed_read_search")):
        calls = [use(ident, name) for ident in ids]
        session.write_bytes(jsonl(user("u-1", "Go"), assistant("a-1", *calls), user("u-2", [result(i) for i in ids])))
        shown = lines(normalize(session, "--for", "display").stdout)
        assert [item["type"] for item in shown] == ["user", kind]
        for ident in ids:
            assert json.dumps(shown[1]).count(f'"id": "{ident}"') == 1
            assert json.dumps(shown[1]).count(f'"tool_use_id": "{ident}"') == 1


def test_a_display_gets_progress_and_notices_but_no_foreign_records(session: Path) -> None:
    shown = lines(normalize(session, "--for", "display").stdout)
    assert [m["type"] for m in shown].count("progress") == 1
    assert [m["type"] for m in shown].count("system") == 1
    assert "file-history-snapshot" not in {m["type"] for m in shown}


def test_what_a_tombstone_takes_back_is_gone(session: Path) -> None:
    dead = assistant("a-1", text("Never mind."))
    session.write_bytes(jsonl(user("u-1", "Go"), dead, {"type": "tombstone", "message": dead}, user("u-2", "On")))
    for purpose in ("api", "display"):
        assert "Never mind" not in normalize(session, "--for", purpose).stdout.decode()
    # One that names its message by uuid only takes it back as well.
    session.write_bytes(jsonl(user("u-1", "Go"), dead, {"type": "tombstone", "message": {"uuid": "a-1"}}))
    for purpose in ("api", "display"):
        assert "Never mind" not in normalize(session, "--for", purpose).stdout.decode()


# -- which records ---------------------------------------------------------------------------------------


def test_of_records_with_one_uuid_the_last_counts_in_the_place_of_the_first(session: Path) -> None:
    session.write_bytes(
        jsonl(user("u-1", "first"), assistant("a-1", text("Yes.")), user("u-1", "last"), user("u-2", "On"))
    )
    sent = lines(normalize(session, "--for", "api").stdout)
    assert [m["content"] for m in sent] == [[text("last")], [text("Yes.")], [text("On")]]


def test_sub_agents_are_left_out_but_for_their_own_files(session: Path) -> None:
    inner = [user("x-1", "find it", isSidechain=True), assistant("x-2", text("found"), isSidechain=True, ident="msg_x")]
    outer = [user("u-1", "Go"), assistant("a-1", text("Done.")), user("u-2", "On")]
    session.write_bytes(jsonl(outer[0], *inner, *outer[1:]))
    done = normalize(session, "--for", "api")
    assert [m["content"][0]["text"] for m in lines(done.stdout)] == ["Go", "Done.", "On"]
    session.write_bytes(jsonl({"type": "summary", "summary": "s", "leafUuid": "x"}, *inner))
    done = normalize(session, "--for", "api", "--prefill", "allow")
    assert [m["content"][0]["text"] for m in lines(done.stdout)] == ["find it", "found"]


def test_stream_json_lines_are_read_too(session: Path) -> None:
    own = {"session_id": "5c0375b4", "parent_tool_use_id": None}
    answer = assistant("a-1", text('Yes: "session_id"'))["message"]
    stream = [
        {"type": "system", "subtype": "init", "tools": ["Read"], "model": "claude-sonnet-4-5", "uuid": "i-1", **own},
        {"type": "user", "message": {"role": "user", "content": "Go"}, "uuid": "u-1", **own},
        {"type": "assistant", "message": answer, "uuid": "a-1", **own},
        {
            "type": "user",
            "message": {"role": "user", "content": "inner"},
            "uuid": "x",
            **own,
            "parent_tool_use_id": "t",
        },
        {"type": "result", "subtype": "success", "is_error": False, "uuid": "r-1", "session_id": "5c0375b4"},
    ]
    # Mixed with lines of a transcript: sniffed line by line.
    session.write_bytes(jsonl(*stream, user("u-2", 'On, not "session_id"')))
    done = normalize(session, "--for", "api")
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout) == [
        {"role": "user", "content": [text("Go")]},
        {"role": "assistant", "content": [text('Yes: "session_id"')]},
        {"role": "user", "content": [text('On, not "session_id"')]},
    ]


def test_messages_of_a_replay(tmp_path: Path) -> None:
    example = Path(__file__).resolve().parents[2] / "examples" / "3-two-tools.sse"
    command = [sys.executable, "-m", "turnstream", "replay", str(example), "--metrics", "none", "--output", "items"]
    items = subprocess.run(command, capture_output=True, timeout=60, check=True).stdout
    sent = lines(normalize("-", "--for", "api", stdin=items).stdout)
    assert [m["role"] for m in sent][-2:] == ["assistant", "user"]
    calls = [b["id"] for b in sent[-2]["content"] if b["type"] == "tool_use"]
    assert [b["tool_use_id"] for b in sent[-1]["content"] if b["type"] == "tool_result"] == calls
    assert len(calls) == 2


# -- what is wrong with a file -------------------------------------------------------------------------------


def test_bad_lines_are_told_and_passed_over(session: Path) -> None:
    first = jsonl(user("u-1", "Go"))
    broken = b'{"type":"user","mess\n'
    session.write_bytes(first + broken + b"\n   \n" + b"[1]\n" + jsonl({"type": "user"}, user("u-2", "On")))
    done = normalize(session, "--for", "api")
    assert done.returncode == 0
    assert lines(done.stdout) == [{"role": "user", "content": [text("Go"), text("On")]}]
    told = done.stderr.decode().splitlines()
    assert told[0].startswith(f"turnstream: line 2, byte {len(first)}: ")
    assert told[1].startswith("turnstream: line 5, byte ")
    assert told[2].startswith("turnstream: line 6, byte ")
    assert told[3] == "turnstream: 3 of 7 lines skipped"
    assert len(told) == 4
    done = normalize(session, "--for", "api", "--explain=json")
    notes = lines(done.stderr)
    assert [note["what"].split(",")[0] for note in notes if note["stage"] == "read"] == ["line 2", "line 5", "line 6"]


def test_two_records_on_a_line_are_both_there_and_what_was_taken_back_is_not(session: Path) -> None:
    """The same reader as resume's (WIRE.md §3)."""
    one, two = jsonl(user("u-1", "Go")), jsonl(user("u-2", "On"))
    filler = jsonl({"type": "tombstone-filler", "targetUuid": "u-9", "pad": "   "})
    session.write_bytes(one.rstrip(b"\n") + two + filler)
    done = normalize(session, "--for", "api")
    assert (done.returncode, done.stderr) == (0, b"")
    assert lines(done.stdout) == [{"role": "user", "content": [text("Go"), text("On")]}]


def test_a_torn_end_a_bom_and_crlf(session: Path) -> None:
    whole = b"\xef\xbb\xbf" + jsonl(*SESSION).replace(b"\n", b"\r\n")
    session.write_bytes(whole)
    done = normalize(session, "--for", "api")
    assert (done.returncode, done.stderr, lines(done.stdout)) == (0, b"", REQUEST)
    session.write_bytes(whole + b'{"type":"user","message":{"ro')
    done = normalize(session, "--for", "api")
    assert (done.returncode, lines(done.stdout)) == (0, REQUEST)
    assert f"line {len(SESSION) + 1}, byte {len(whole)}:".encode() in done.stderr


@pytest.mark.parametrize(
    "data",
    [b"", b"\n\n", b"hello\nworld\n", jsonl({"type": "summary", "summary": "s", "leafUuid": "x"}), b"\x00" * 3000],
    ids=["empty", "blank", "prose", "no conversation", "zeros"],
)
def test_no_conversation_is_exit_1(session: Path, data: bytes) -> None:
    session.write_bytes(data)
    for purpose in ("api", "display"):
        done = normalize(session, "--for", purpose)
        assert done.returncode == 1
        assert f"{session} holds no message of a conversation".encode() in done.stderr
        assert b"Traceback" not in done.stderr
        assert done.stdout == b""


def test_nothing_left_to_send_is_exit_1(session: Path) -> None:
    session.write_bytes(jsonl(record("system", "s-1", subtype="turn_duration", durationMs=5)))
    done = normalize(session, "--for", "api")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"turnstream: no message is left\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "the following arguments are required"),
        (("{session}",), "--for"),
        (("{session}", "--for", "fun"), "invalid choice"),
        (("{folder}/none.jsonl", "--for", "api"), "can't read {folder}/none.jsonl: No such file or directory"),
        (("{folder}", "--for", "display"), "can't read {folder}: Is a directory"),
        (("{session}", "--for", "api", "--tools", "{folder}/none.json"), "none.json: No such file or directory"),
        (("{session}", "--for", "api", "--tools", "{folder}/text"), "{folder}/text holds no JSON"),
        (("{session}", "--for", "api", "--tools", "{folder}/list"), "{folder}/list holds no list of tools"),
        (("{session}", "--for", "api", "--tools", "{folder}/object"), "{folder}/object holds no list of tools"),
        (("-", "--for", "api", "--tools", "-"), "standard input can be read only once"),
        (("{session}", "--for", "display", "--explain"), "--explain goes with --for api"),
        (("{session}", "--for", "display", "--thinking"), "--thinking goes with --for api"),
        (
            ("{session}", "--for", "display", "--reserved-cache-marks", "0"),
            "--reserved-cache-marks goes with --for api",
        ),
        (("{session}", "--for", "api", "--reserved-cache-marks", "-1"), "argument --reserved-cache-marks: "),
        (("{session}", "--for", "api", "--reserved-cache-marks", "x"), "isn't a number of cache marks"),
        (("{session}", "--for", "api", "--dialect", "x"), "invalid choice"),
        (("{session}", "--for", "api", "--explain=xml"), "explain"),
        (("{session}", "{session}", "--for", "api"), "unrecognized arguments"),
    ],
)
def test_usage(session: Path, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    (tmp_path / "text").write_text("tools")
    (tmp_path / "list").write_text('[{"name": "Read"}, "Write"]')
    (tmp_path / "object").write_text('{"name": "Read"}')
    places = {"session": session, "folder": tmp_path}
    done = normalize(*(argument.format(**places) for argument in arguments))
    assert done.returncode == 2
    assert words.format(**places) in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()
    assert done.stdout == b""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(session: Path) -> None:
    session.chmod(0)
    done = normalize(session, "--for", "api")
    assert done.returncode == 2
    assert b"Permission denied" in done.stderr


def test_closed_streams(session: Path) -> None:
    turnstream = f"{sys.executable} -m turnstream normalize"
    # Long enough that it can't all stand in the pipe.
    session.write_bytes(jsonl(*(user(f"u-{n}", f"{n} " * 200) for n in range(4000))))
    script = f'{turnstream} "$0" --for display | head -c 10 >/dev/null; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", script, str(session)], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (141, b"")
    done = subprocess.run(["bash", "-c", f"{turnstream} - --for api <&-"], capture_output=True, timeout=60, check=False)
    assert done.returncode == 2
    assert b"can't read standard input: it is closed" in done.stderr
    if os.path.exists("/dev/full"):
        done = subprocess.run(
            ["bash", "-c", f'{turnstream} "$0" --for api >/dev/full', str(session)],
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 1
        assert b"can't write standard output: No space left on device" in done.stderr


# -- reading --------------------------------------------------------------------------------------------


def test_lines_are_read_one_by_one() -> None:
    """A record comes out before the next line is asked for."""

    class Endless(io.RawIOBase):
        asked = 0

        def readline(self, size: int | None = -1, /) -> bytes:
            self.asked += 1
            return jsonl(user(f"u-{self.asked}", "Go"))

    stream = Endless()
    records = reading.read_records(stream)  # type: ignore[arg-type]
    for number in (1, 2, 3):
        found = next(records)
        assert isinstance(found, reading.Record)
        assert (found.line, stream.asked) == (number, number)


def test_a_line_without_end_doesnt_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_LINE", 1024 * 1024)
    good = jsonl(user("u-1", "Go"))
    bad = b"x" * 3_500_000 + b"\n"
    found = list(reading.read_records(io.BytesIO(good + bad + good + b"y" * 1_500_000)))
    assert [(type(f).__name__, f.line, f.offset) for f in found] == [
        ("Record", 1, 0),
        ("BadLine", 2, len(good)),
        ("Record", 3, len(good + bad)),
        ("BadLine", 4, len(good + bad + good)),
    ]
    assert isinstance(found[1], reading.BadLine)
    assert found[1].problem == "longer than 1 MiB"


# -- real files ----------------------------------------------------------------------------------------


def transcripts() -> list[Any]:
    names = [row["file"] for row in recordings.index() if row["file"].startswith("transcripts/")]
    if not names:
        return [pytest.param("", marks=pytest.mark.skip(reason=f"no recordings: set {recordings.VARIABLE}"))]
    return list(names)


def holds_speech(data: bytes) -> bool:
    """Whether a user or an assistant says anything in it, by the standard library alone."""
    for line in data.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict) and value.get("type") in ("user", "assistant") and "message" in value:
            return True
    return False


@pytest.mark.parametrize("name", transcripts())
@pytest.mark.parametrize(
    "options", [(), ("--thinking",), ("--dialect", "bedrock")], ids=["plain", "thinking", "bedrock"]
)
def test_recorded_transcripts_become_valid_requests(
    name: str, options: tuple[str, ...], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    from request_rules import check_messages

    path = recordings.need("transcripts") / name
    status = main(["normalize", str(path), "--for", "api", *options])
    out = capfdbinary.readouterr().out
    if not holds_speech(path.read_bytes()):
        assert (status, out) == (1, b"")
        return
    messages = lines(out)
    assert status == (0 if messages else 1)
    assert all(set(message) == {"role", "content"} for message in messages)
    dialect = "bedrock" if "bedrock" in options else "anthropic"
    assert not messages or list(check_messages(messages, dialect=dialect)) == []


@pytest.mark.parametrize("name", transcripts())
def test_recorded_transcripts_become_items_of_a_display(name: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    path = recordings.need("transcripts") / name
    status = main(["normalize", str(path), "--for", "display"])
    shown = lines(capfdbinary.readouterr().out)
    assert status == (0 if shown else 1)
    flat = [part for item in shown for part in parts_of(item)]
    said = [message["message"]["content"] for message in flat if message["type"] in ("user", "assistant")]
    assert all(len(content) <= 1 for content in said)
    uuids = [message["uuid"] for message in flat if message.get("uuid")]
    assert len(uuids) == len(set(uuids))
    # Nothing that a person, a model or a tool said is lost.
    records = last_of_each_uuid(path.read_bytes())
    expected = [block for record in records for block in content_of(record["message"])]
    assert Counter(json.dumps(c[0], sort_keys=True) for c in said if c) == Counter(
        json.dumps(block, sort_keys=True) for block in expected
    )


def parts_of(item: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages in an item of a display; groups may stand in collapsed runs."""
    if item["type"] not in ("grouped_tool_use", "collapsed_read_search"):
        return [item]
    return [part for inner in (*item["messages"], *item.get("results", ())) for part in parts_of(inner)]


def content_of(message: dict[str, Any]) -> list[Any]:
    """A message's blocks; words without a block count as one of text."""
    content = message.get("content")
    return [text(content)] if isinstance(content, str) else list(content or ())


def last_of_each_uuid(data: bytes) -> list[dict[str, Any]]:
    """What users and assistants said, without sub-agents if there is anything else, by the standard library alone."""
    values = []
    for line in data.split(b"\n"):
        try:
            values.append(json.loads(line))
        except ValueError:
            continue
    chain = [
        v for v in values if isinstance(v, dict) and v.get("type") in ("user", "assistant", "system", "attachment")
    ]
    main_chain = [v for v in chain if not v.get("isSidechain")] or chain
    said = [v for v in main_chain if v["type"] in ("user", "assistant") and isinstance(v.get("message"), dict)]
    return list({v.get("uuid") or number: v for number, v in enumerate(said)}.values())
