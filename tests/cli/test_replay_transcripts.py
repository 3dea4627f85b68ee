"""``turnstream replay`` of what was recorded as messages: recognised, played, written back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import recordings

from turnstream.cli.recognition import EVENTS, HEAD, Found, look, recognise, recognising
from turnstream.messages import AssistantMessage, UserMessage
from turnstream.operators import accumulate, decode, parse_events, run_stages
from turnstream.sources import decode_transcript

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TEXT = EXAMPLES / "1-text.sse"
TOOLS = EXAMPLES / "3-two-tools.sse"
CUT = EXAMPLES / "5-truncated.sse"
SESSION = "5c0375b4-57a5-4f26-b12d-d022ee4e51b7"
OTHER = "0b6b3f2e-1d58-4c3e-9f7e-5a3c1f0d9e77"


def replay(*arguments: Any, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "turnstream", "replay", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )


def record(kind: str, uuid: str, parent: str | None, second: int, message: Any, session: str = SESSION) -> bytes:
    value = {
        "parentUuid": parent,
        "isSidechain": False,
        "cwd": "/src",
        "sessionId": session,
        "version": "2.0.1",
        "type": kind,
        "message": message,
        "uuid": uuid,
        "timestamp": f"2025-06-01T12:00:{second:02d}.000Z",
    }
    return json.dumps(value, separators=(",", ":")).encode()


def said(ident: str, text: str, tokens: int) -> dict[str, Any]:
    return {
        "id": ident,
        "type": "message",
        "role": "assistant",
        "model": "claude-test-1",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 20, "output_tokens": tokens},
    }


LINES = [
    b'{"type":"file-history-snapshot","messageId":"u1","snapshot":{},"isSnapshotUpdate":false}',
    record("user", "u1", None, 0, {"role": "user", "content": "Where is the boat?"}),
    record("assistant", "a1", "u1", 3, said("msg_1", "On the river.", 11)),
    b"{torn",
    record("user", "u2", "a1", 9, {"role": "user", "content": "And now?"}),
    record("assistant", "a2", "u2", 12, said("msg_2", "Still there.", 7)),
    b'{"type":"last-prompt","lastPrompt":"And now?","sessionId":"' + SESSION.encode() + b'"}',
]


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    path = tmp_path / "session.jsonl"
    path.write_bytes(b"\n".join(LINES) + b"\n")
    return path


def report(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    totals = json.loads(done.stdout)["totals"]
    assert isinstance(totals, dict)
    return totals


# -- recognising -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", recordings.names((".sse", ".ndjson", ".eventstream")))
def test_recordings_of_streams_are_events(name: str) -> None:
    assert look(str(recordings.need("recognition") / name)) == EVENTS


def test_recordings_of_other_apis_are_events() -> None:
    for path in (recordings.need("recognition") / "openai").iterdir():
        assert look(str(path)) == EVENTS, path


def test_real_transcripts_are_recognised() -> None:
    paths = list((recordings.need("recognition") / "transcripts").rglob("*.jsonl"))
    kinds = {path.name: look(str(path)) for path in paths}
    # Of one the first records name neither session nor parent.
    items = {name for name, found in kinds.items() if found is not None and found.kind == "items"}
    assert items == {"claude-scriptorium__glosses.jsonl"}
    assert {found.kind for name, found in kinds.items() if found is not None and name not in items} == {"transcript"}
    for path in paths:
        first = next((v for v in map(_session, path.read_bytes().split(b"\n")) if v), None)
        found = kinds[path.name]
        assert found is not None
        if found.session_id is not None:
            assert found.session_id == first, path


def _session(line: bytes) -> str | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value.get("sessionId") if isinstance(value, dict) else None


BIG = "x" * (HEAD + 10)


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (b"", EVENTS),
        (b"\n\n", EVENTS),
        (b"event: message_start\ndata: {}\n\n", EVENTS),
        (b": comment\n", EVENTS),
        (b"<html>", EVENTS),
        (b'{"type":"message_start","message":{}}\n', EVENTS),
        (b'{"type":"ping"}', EVENTS),
        (b'{"type":"error","error":{}}\n', EVENTS),
        (b'{"Type":"x","Data":"{}"}\n', EVENTS),
        (b'{"id":"chatcmpl-1","object":"chat.completion.chunk"}\n', EVENTS),
        (b'{"id":"msg_1","type":"message","role":"assistant","content":[]}', EVENTS),
        (b'{\n  "type": "message",\n  "content": []\n}\n', EVENTS),
        (b"\xef\xbb\xbfdata: {}\n", EVENTS),
        (b"[1]\n", EVENTS),
        (b"{broken", EVENTS),
        (b'{"type":"message_start","mess', EVENTS),
        (b'{"parentUuid":null,"isSid', Found("transcript")),
        (LINES[1], Found("transcript", SESSION)),
        (LINES[0] + b"\n" + LINES[1] + b"\n", Found("transcript", SESSION)),
        (LINES[0] + b"\n", Found("transcript")),
        (LINES[0] + b"\n" + LINES[1][:40], Found("transcript")),
        (b'{"parentUuid":null,"sess\n' + LINES[1] + b"\n", Found("transcript", SESSION)),
        (b'{"type":"summary","summary":"s","leafUuid":"x"}\n{"odd":1}\n', Found("transcript")),
        (b"\xef\xbb\xbf\n" + LINES[1] + b"\n", Found("transcript", SESSION)),
        (
            b'{"type":"last-prompt","sessionId":"s"}\n{"type":"user","isSidechain":false,"message":{}}\n',
            Found("transcript", "s"),
        ),
        (record("user", "u", None, 0, {"content": BIG})[:HEAD], Found("transcript")),
        (b'{"type":"user","message":{"content":"' + BIG.encode()[: HEAD - 40], EVENTS),
        (b'{"type":"user","session_id":"s","message":{"content":"' + BIG.encode(), Found("stream-json")),
        (b'{"type":"system","subtype":"init","session_id":"s"}\n', Found("stream-json")),
        (b'{"type":"assistant","message":{},"parent_tool_use_id":null}\n', Found("stream-json")),
        (b'{"type":"result","session_id":"s"}\n', Found("stream-json")),
        (b'{"type":"stream_event","event":{"type":"ping"}}\n', Found("items")),
        (b'{"type":"stream_request_start"}\n', Found("items")),
        (b'{"type":"assistant","message":{},"uuid":"u","timestamp":"t"}\n', Found("items")),
    ],
)
def test_the_first_records_tell(head: bytes, found: Found) -> None:
    assert recognise(head, final=True) == found
    # In pieces: it is never told otherwise before all of it has come.
    early = [recognise(head[:size], final=False) for size in range(0, min(len(head), 400), 3)]
    assert {one for one in early if one is not None} <= {found}


def test_a_live_stream_is_recognised_at_its_first_bytes() -> None:
    assert recognise(b"e", final=False) == EVENTS
    assert recognise(b'{"type":"ping"}', final=False) is None
    assert recognise(b'{"type":"ping"}\n', final=False) == EVENTS
    assert recognise(b'{"type":"system","subtype":"init","session_id":"s"}\n', final=False) == Found("stream-json")


def test_a_pipe_and_a_missing_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert look(str(tmp_path / "pipe")) is None
    assert look(str(tmp_path / "missing")) == EVENTS


@pytest.mark.parametrize("size", [1, 5, 1 << 20])
def test_the_stages_for_what_comes(size: int) -> None:
    found: list[Found] = []

    def make(one: Found) -> Any:
        found.append(one)
        if one.kind == "events":
            return decode() | parse_events() | accumulate()
        return decode_transcript()

    for data, kind, cls in ((TEXT.read_bytes(), "events", AssistantMessage), (LINES[1], "transcript", UserMessage)):
        items = run_stages([data[at : at + size] for at in range(0, len(data), size)], recognising(make))
        assert [type(item) for item in items].count(cls) == 1
        assert [one.kind for one in found] == [kind]
        found.clear()
    (failed,) = run_stages([], recognising(make))
    assert failed.outcome == "empty"


# -- playing -----------------------------------------------------------------------------------------


def test_a_transcript_is_shown_metered_and_named(transcript: Path) -> None:
    done = replay(transcript)
    assert done.returncode == 0
    assert done.stderr.decode() == f"turnstream: {transcript} is a transcript\n"
    shown = done.stdout.decode()
    words = ["Where is the boat?", "On the river.", "And now?", "Still there."]
    assert [shown.index(text) for text in words] == sorted(shown.index(text) for text in words)
    totals = report(replay(transcript, "--metrics", "json"))
    assert (totals["answers"], totals["output_tokens"], totals["outcomes"]) == (2, 18, {"complete": 2})


def test_standard_output_carries_the_lines_as_they_are(transcript: Path) -> None:
    done = replay(transcript, "--output", "messages", "--metrics", "none")
    assert done.stdout.split(b"\n")[:-1] == [LINES[1], LINES[2], LINES[4], LINES[5]]
    items = replay(transcript, "--output", "items", "--metrics", "none").stdout.split(b"\n")[:-1]
    assert [one for one in items if b'"bad_record"' not in one] == LINES
    text = replay(transcript, "--output", "text", "--metrics", "none")
    assert text.stdout == b"On the river.\nStill there.\n"


def test_standard_input_and_a_pipe_are_recognised_too(transcript: Path, tmp_path: Path) -> None:
    done = replay("-", "--output", "messages", "--metrics", "none", stdin=transcript.read_bytes())
    assert done.returncode == 0
    assert done.stdout.split(b"\n")[:-1] == [LINES[1], LINES[2], LINES[4], LINES[5]]
    assert done.stderr == b"turnstream: stdin is a transcript\n"
    done = replay("-", "--output", "text", "--metrics", "none", stdin=TEXT.read_bytes())
    assert done.stdout == replay(TEXT, "--output", "text", "--metrics", "none").stdout
    assert done.stderr == b""


def test_recorded_items_give_the_totals_of_the_stream(tmp_path: Path) -> None:
    items = tmp_path / "items.ndjson"
    items.write_bytes(replay(TOOLS, CUT, "--output", "items", "--metrics", "none").stdout)
    done = replay(items, "--metrics", "json")
    assert b"recorded items" in done.stderr
    assert done.returncode == 1  # an answer failed then, so it does now
    live = report(replay(TOOLS, CUT, "--metrics", "json"))
    again = report(done)
    assert {**again, "bytes": None} == {**live, "bytes": None}


def test_stream_json_is_played(tmp_path: Path) -> None:
    lines = [
        {"type": "system", "subtype": "init", "session_id": SESSION, "uuid": "i", "tools": ["Read"]},
        {"type": "assistant", "message": said("msg_1", "Hello.", 5), "session_id": SESSION, "uuid": "a"},
        {"type": "result", "subtype": "success", "session_id": SESSION},
    ]
    done = replay("-", "--output", "text", "--metrics", "none", stdin=b"\n".join(json.dumps(v).encode() for v in lines))
    assert done.returncode == 0
    assert done.stdout == b"Hello.\n"
    assert b"stream-json" in done.stderr


def test_files_of_all_kinds_are_one_session(transcript: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    done = replay(
        TEXT, transcript, TOOLS, "--transcript", out, "--metrics", "json", "--metrics-file", tmp_path / "m.json"
    )
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in out.read_bytes().split(b"\n")[:-1] if line != LINES[3]]
    assert len({one["sessionId"] for one in records if "sessionId" in one}) == 1
    chain = [one for one in records if "parentUuid" in one]
    assert [one["parentUuid"] for one in chain] == [None, *(one["uuid"] for one in chain[:-1])]
    assert [one["uuid"] for one in chain[1:5]] == ["u1", "a1", "u2", "a2"]
    assert json.loads((tmp_path / "m.json").read_text())["totals"]["output_tokens"] == 24 + 18 + 96


def test_a_transcript_written_back_alone_stays_itself_byte_for_byte(transcript: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy.jsonl"
    done = replay(transcript, "--transcript", out, "--ui", "none", "--metrics", "none")
    assert done.returncode == 0, done.stderr
    assert out.read_bytes() == transcript.read_bytes()


def test_another_session_takes_it_over(transcript: Path, tmp_path: Path) -> None:
    out = tmp_path / f"{OTHER}.jsonl"
    assert replay(transcript, "--transcript", out, "--ui", "none", "--metrics", "none").returncode == 0
    records = [json.loads(line) for line in out.read_bytes().split(b"\n")[:-1] if line != LINES[3]]
    assert {one.get("sessionId") for one in records} == {OTHER, None}
    assert [one["uuid"] for one in records if "parentUuid" in one] == ["u1", "a1", "u2", "a2"]
    assert {one["cwd"] for one in records if "parentUuid" in one} == {"/src"}
    # Going on with it once more adds nothing of the conversation.
    before = sum("parentUuid" in one for one in records)
    assert replay(transcript, "--transcript", out, "--append", "--ui", "none", "--metrics", "none").returncode == 0
    after = [json.loads(line) for line in out.read_bytes().split(b"\n")[:-1] if line != LINES[3]]
    assert sum("parentUuid" in one for one in after) == before


def test_speed_plays_the_recorded_gaps(tmp_path: Path) -> None:
    asked = said("msg_1", "", 5) | {"content": [{"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}]}
    result = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "water"}]
    path = tmp_path / "t.jsonl"
    path.write_bytes(
        record("assistant", "a1", None, 0, asked) + b"\n" + record("user", "u1", "a1", 9, {"content": result}) + b"\n"
    )
    done = replay(
        path, "--speed", "100", "--output", "items", "--metrics", "json", "--metrics-file", tmp_path / "m.json"
    )
    assert done.returncode == 0
    # No request goes out where a conversation is played.
    assert b"stream_request_start" not in done.stdout
    assert json.loads((tmp_path / "m.json").read_text())["totals"]["tool_durations"]["Read"]["count"] == 1


def test_no_message_no_session(tmp_path: Path) -> None:
    path = tmp_path / "summary.jsonl"
    path.write_bytes(b'{"type":"summary","summary":"s","leafUuid":"x"}\n')
    out = tmp_path / "out.jsonl"
    done = replay(path, "--transcript", out)
    assert done.returncode == 1
    assert b"holds no message of a conversation" in done.stderr
    assert not out.exists()
