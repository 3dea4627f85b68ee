"""``turnstream replay``, as a user calls it: a process with real files, pipes and a terminal."""

from __future__ import annotations

import json
import os
import pty
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import frames as f
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
TEXT = EXAMPLES / "1-text.sse"
TOOLS = EXAMPLES / "3-two-tools.sse"
ERROR = EXAMPLES / "4-error.sse"
CUT = EXAMPLES / "5-truncated.sse"
RIVER = "A stream is a river you can only step into once – unless you record it. 🛶\n"


def replay(
    *arguments: Any, stdin: bytes = b"", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "turnstream", "replay", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, **(env or {})},
    )


def lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def test_the_answer_and_the_table_go_to_stdout() -> None:
    done = replay(TEXT)
    assert done.returncode == 0
    assert done.stderr == b""
    assert done.stdout.decode().startswith(RIVER)
    assert "end_turn" in done.stdout.decode()
    assert b"\x1b" not in done.stdout


def test_messages_are_settled_ndjson_and_everything_human_goes_to_stderr() -> None:
    done = replay(TOOLS, "--output", "messages", "--ui", "plain")
    assert done.returncode == 0
    messages = lines(done.stdout)
    assert [m["type"] for m in messages] == ["assistant"] * 3
    assert [m["message"]["content"][0]["type"] for m in messages] == ["text", "tool_use", "tool_use"]
    # settled: every line has the final values
    assert {m["message"]["stop_reason"] for m in messages} == {"tool_use"}
    assert {m["message"]["usage"]["output_tokens"] for m in messages} == {96}
    assert messages[1]["message"]["content"][0]["input"] == {"file_path": "src/river.py", "limit": 40}
    assert b"Read" in done.stderr
    assert b"tool_use" in done.stderr


def test_items_hold_every_event_in_its_envelope() -> None:
    done = replay(TEXT, "--output", "items", "--metrics", "none")
    items = lines(done.stdout)
    events = [i["event"]["type"] for i in items if i["type"] == "stream_event"]
    sent = [json.loads(line[6:])["type"] for line in TEXT.read_text().splitlines() if line.startswith("data: ")]
    assert events == sent
    assert [i["type"] for i in items if i["type"] != "stream_event"] == ["assistant"]
    assert done.stderr == b""


def test_text_is_the_text_alone() -> None:
    done = replay(TOOLS, "--output", "text", "--metrics", "none")
    assert done.stdout.decode() == "I'll look at both files at once.\n"


def test_metrics_json_on_stdout_is_json_and_nothing_else() -> None:
    done = replay(TEXT, "--metrics", "json")
    report = json.loads(done.stdout)
    assert report["totals"]["output_tokens"] == 24
    assert report["answers"][0]["first_content_ms"] is None  # unpaced: times are unknown
    done = replay(TEXT, "--metrics", "json", "--ui", "plain")
    json.loads(done.stdout)
    assert RIVER in done.stderr.decode()


def test_metrics_file(tmp_path: Path) -> None:
    out = tmp_path / "m.json"
    done = replay(TEXT, "--metrics", "json", "--metrics-file", out)
    assert done.returncode == 0
    assert json.loads(out.read_text())["totals"]["input_tokens"] == 21
    assert done.stdout.decode() == RIVER
    done = replay(TEXT, "--metrics-file", tmp_path / "no" / "m.json")
    assert done.returncode == 2
    assert b"no/m.json" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_transcript_is_written_once_and_appended_on_demand(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    assert replay(TOOLS, "--transcript", out).returncode == 0
    first = out.read_bytes()
    records = [r for r in lines(first) if r["type"] == "assistant"]
    assert [r["parentUuid"] for r in records] == [None, *(r["uuid"] for r in records[:-1])]
    done = replay(TEXT, "--transcript", out)
    assert done.returncode == 2
    assert b"--append" in done.stderr
    assert b"Traceback" not in done.stderr
    assert done.stdout == b""
    assert out.read_bytes() == first
    assert replay(TEXT, "--transcript", out, "--append").returncode == 0
    assert out.read_bytes().startswith(first)
    assert lines(out.read_bytes())[-1]["parentUuid"] == records[-1]["uuid"]


def test_stable_ids_are_the_same_for_the_same_input(tmp_path: Path) -> None:
    outputs = [replay(TOOLS, TEXT, "--ids", "stable", "--output", "messages").stdout for _ in range(2)]
    uuids = [[m["uuid"] for m in lines(out)] for out in outputs]
    assert uuids[0] == uuids[1]
    assert len(set(uuids[0])) == 4
    random = [m["uuid"] for m in lines(replay(TOOLS, TEXT, "--output", "messages").stdout)]
    assert set(random).isdisjoint(uuids[0])


@pytest.mark.parametrize(
    ("file", "word", "event", "error"),
    [(ERROR, "api_error(overloaded_error)", 8, "APIError"), (CUT, "incomplete(1)", 13, "IncompleteStreamError")],
)
def test_a_failed_answer_is_exit_1_with_file_event_byte_and_class(
    file: Path, word: str, event: int, error: str
) -> None:
    done = replay(file, "--metrics", "none")
    assert done.returncode == 1
    told = done.stderr.decode()
    # where the event begins, counted by hand: the comment before it belongs to it
    offset = [len(b) for b in _starts(file.read_bytes())][event - 1]
    assert told.startswith(f"turnstream: {word}: ")
    assert str(file) in told
    assert f"event {event}, byte {offset}" in told
    assert f"[{error}]" in told
    assert "Traceback" not in told
    assert done.stdout  # what came was delivered


def _starts(data: bytes) -> list[bytes]:
    parts = data.split(b"\n\n")
    return [b"".join(part + b"\n\n" for part in parts[:n]) for n in range(len(parts))]


def test_several_files_are_one_session_and_one_failure_fails_it(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    done = replay(TEXT, ERROR, TOOLS, "--transcript", out, "--output", "messages")
    assert done.returncode == 1
    messages = lines(done.stdout)
    assert [m["message"]["id"] for m in messages] == [
        "msg_example_text",
        "msg_example_error",
        *["msg_example_tools"] * 3,
    ]
    records = [r for r in lines(out.read_bytes()) if r["type"] == "assistant"]
    assert len({r["sessionId"] for r in records}) == 1
    assert [r["parentUuid"] for r in records] == [None, *(r["uuid"] for r in records[:-1])]


def test_a_missing_file_fails_and_the_others_are_played(tmp_path: Path) -> None:
    done = replay(tmp_path / "no.sse", TEXT, "--output", "text", "--metrics", "none")
    assert done.returncode == 1
    assert b"no.sse" in done.stderr
    assert b"Traceback" not in done.stderr
    assert done.stdout.decode() == RIVER + "\n" or done.stdout.decode() == RIVER


def test_stdin() -> None:
    done = replay("-", "--output", "text", "--metrics", "none", stdin=TEXT.read_bytes())
    assert done.returncode == 0
    assert RIVER in done.stdout.decode()
    assert replay("-", "-").returncode == 2
    done = replay("-", stdin=b"", env={})
    assert done.returncode == 1
    assert b"empty" in done.stderr


@pytest.mark.parametrize("kind", ["stdin", "fifo"])
def test_a_pipe_that_falls_silent_is_given_up_when_asked(tmp_path: Path, kind: str) -> None:
    """FAULTS.md 84, for the bytes of another client: what came is kept, the reason told."""
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "turnstream", "replay", "-" if kind == "stdin" else str(fifo)),
            *("--idle-timeout", "0.5", "--output", "items"),
        ],
        stdin=subprocess.PIPE if kind == "stdin" else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    writer = process.stdin if process.stdin is not None else open(fifo, "wb", buffering=0)  # noqa: SIM115
    try:
        writer.write(TEXT.read_bytes()[:1_200])
        writer.flush()
        assert process.stdout is not None
        assert process.stderr is not None
        with process.stdout, process.stderr:
            out, err = process.stdout.read(), process.stderr.read()
        assert process.wait(60) == 1
    finally:
        writer.close()
        process.kill()
        process.wait()
    assert b"no byte came for 0.5 s" in err
    (failed,) = [item for item in lines(out) if item["type"] == "response_failed"]
    assert failed["error"]["type"] == "stream_idle_timeout"
    assert any(item["type"] == "assistant" for item in lines(out))


def test_html_is_not_a_stream(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<html>\n<body>502 Bad Gateway</body>\n</html>\n")
    done = replay(page)
    assert done.returncode == 1
    assert b"not_a_stream" in done.stderr


def test_strict_ends_at_the_first_broken_rule(tmp_path: Path) -> None:
    odd = tmp_path / "odd.sse"
    data = TEXT.read_bytes().replace(b'"type":"content_block_stop","index":0', b'"type":"content_block_stop"')
    odd.write_bytes(data)
    assert replay(odd).returncode == 0
    done = replay(odd, "--strict")
    assert done.returncode == 1
    assert b"ProtocolError" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--ui", "fancy", "x"],
        ["x", "--speed", "0"],
        ["x", "--speed", "-1"],
        ["x", "--speed", "fast"],
        ["x", "--speed", "nan"],
        ["x", "--append"],
    ],
)
def test_usage_errors_are_exit_2(arguments: Sequence[str]) -> None:
    done = replay(*arguments)
    assert done.returncode == 2
    assert done.stderr
    assert b"Traceback" not in done.stderr


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    big = tmp_path / "big.sse"
    big.write_bytes(TEXT.read_bytes() * 2000)
    out = tmp_path / "t.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-m", "turnstream", "replay", str(big), "--output", "items", "--transcript", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    told = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 141
    assert b"Traceback" not in told
    assert b"Broken" not in told
    # the other sinks finished
    assert sum(1 for r in lines(out.read_bytes()) if r["type"] == "assistant") == 2000


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_what_came_and_says_what_is_lost(tmp_path: Path, number: signal.Signals, status: int) -> None:
    out = tmp_path / "t.jsonl"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "turnstream", "replay", TEXT, "-", TOOLS, "--output", "items"),
            *("--metrics", "none", "--transcript", str(out)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    cut = CUT.read_bytes()
    process.stdin.write(cut[: cut.rindex(b"event: content_block_delta")])
    process.stdin.flush()
    for line in process.stdout:
        if b"input_json_delta" in line:
            break
    process.send_signal(number)
    assert process.wait(60) == status
    told = process.stderr.read()
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()
    assert b"Traceback" not in told
    last = told.decode().splitlines()[-1]
    assert last.startswith(f"turnstream: {number.name}: the open answer was cut off: 1 content block kept; ")
    assert "the input of tool Write is unfinished, kept as text" in last
    assert "1 of 3 files were not played" in last
    records = lines(out.read_bytes())
    assert f"{out} holds {len(records)} new lines" in last
    (marked,) = [r for r in records if r.get("isAbortedMidStream")]
    assert marked["unfinishedToolInputs"][0]["name"] == "Write"


@pytest.mark.parametrize(("number", "ends"), [(signal.SIGINT, {130}), (signal.SIGTERM, {143, -signal.SIGTERM})])
def test_an_output_that_nobody_reads_cannot_hold_it(tmp_path: Path, number: signal.Signals, ends: set[int]) -> None:
    big = tmp_path / "big.sse"
    big.write_bytes(TEXT.read_bytes() * 2000)
    process = subprocess.Popen(
        [sys.executable, "-m", "turnstream", "replay", str(big), "--output", "items"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()  # it runs; the rest fills the pipe
    while process.poll() is None:
        process.send_signal(number)
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            pass
    told = process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    assert process.returncode in ends
    assert b"Traceback" not in told


def _on_a_terminal(arguments: list[str], env: dict[str, str]) -> bytes:
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "turnstream", "replay", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=child,
        stderr=child,
        env={**os.environ, **env},
    )
    os.close(child)
    out = b""
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:
            break
        if not piece:
            break
        out += piece
    os.close(parent)
    assert process.wait(60) == 0
    return out


def test_on_a_terminal_there_is_colour_unless_no_color_says_no() -> None:
    thinking = str(EXAMPLES / "2-thinking.sse")
    env = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    env["TERM"] = "xterm"
    assert b"\x1b[" in _on_a_terminal([thinking], {"NO_COLOR": "", "TERM": "xterm"})
    plain = _on_a_terminal([thinking], {"NO_COLOR": "1", "TERM": "xterm"})
    assert b"\x1b[2m" not in plain
    assert b"\x1b[3" not in plain
    assert b"391" in plain


def test_a_long_file_has_a_progress_bar_on_a_terminal(tmp_path: Path) -> None:
    big = tmp_path / "big.sse"
    big.write_bytes(TEXT.read_bytes() * 2500)
    assert big.stat().st_size > 4 * 1024 * 1024
    out = _on_a_terminal([str(big), "--ui", "none", "--metrics", "none"], {"TERM": "xterm"})
    assert b"% " in out
    assert b"MB" in out
    assert out.endswith(b"\r\x1b[K")


def test_replay_at_the_recorded_pace_measures_times() -> None:
    done = replay(TEXT, "--speed", "20", "--metrics", "json")
    report = json.loads(done.stdout)
    assert report["answers"][0]["first_content_ms"] is not None
    assert report["answers"][0]["tokens_per_s"] is not None


def test_help_and_version() -> None:
    done = subprocess.run([sys.executable, "-m", "turnstream", "--help"], capture_output=True, check=False)
    assert done.returncode == 0
    assert b"replay" in done.stdout
    done = subprocess.run([sys.executable, "-m", "turnstream", "--version"], capture_output=True, check=False)
    assert done.stdout.startswith(b"turnstream ")
    done = subprocess.run([sys.executable, "-m", "turnstream"], capture_output=True, check=False)
    assert done.returncode == 2


# -- hostile surroundings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["in.sse", "--metrics-file", "in.sse"], "the metrics file in.sse is an input, too"),
        (["in.sse", "--metrics-file", "link.sse"], "the metrics file link.sse is an input, too"),
        (["in.sse", "--transcript", "in.sse", "--append"], "the transcript in.sse is an input, too"),
        (["in.sse", "--transcript", "o", "--metrics-file", "./o"], "the metrics file ./o is the transcript, too"),
        (["in.sse", "--transcript", "/"], "the transcript needs the name of a file, not '/'"),
        (["in.sse", "--transcript", ""], "the transcript needs the name of a file, not ''"),
    ],
)
def test_no_file_is_read_and_written_or_written_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(TEXT, "in.sse")
    os.symlink("in.sse", "link.sse")
    done = replay(*arguments)
    assert done.returncode == 2
    assert done.stderr.decode() == f"turnstream: {what}\n"
    assert Path("in.sse").read_bytes() == TEXT.read_bytes()
    assert sorted(os.listdir()) == ["in.sse", "link.sse"]


def test_standard_output_that_is_an_input_is_refused(tmp_path: Path) -> None:
    copy = tmp_path / "in.sse"
    shutil.copy(TEXT, copy)
    with copy.open("ab") as out:
        done = subprocess.run(
            [sys.executable, "-m", "turnstream", "replay", str(copy)],
            stdout=out,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert copy.read_bytes() == TEXT.read_bytes()


def in_a_shell(command: str, **names: Any) -> subprocess.CompletedProcess[bytes]:
    line = command.format(t=f"{shlex.quote(sys.executable)} -m turnstream replay", **names)
    return subprocess.run(["/bin/sh", "-c", line], capture_output=True, timeout=60, check=False)


def test_closed_standard_streams(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    done = in_a_shell("{t} {text} --transcript {out} <&- >&- 2>&-", text=TEXT, out=out)
    assert done.returncode == 0
    assert [r["type"] for r in lines(out.read_bytes())] == ["custom-title", "assistant"]
    done = in_a_shell("{t} {text} --output items >&-", text=TEXT)
    assert (done.returncode, done.stderr) == (2, b"turnstream: standard output is closed\n")
    # What is said to a closed standard error doesn't turn up among the data.
    done = in_a_shell("{t} {error} --output items 2>&-", error=ERROR)
    assert done.returncode == 1
    assert [item["type"] for item in lines(done.stdout)][-1] == "response_failed"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize(
    "options", ["", "--ui none", "--metrics json", "--output items", "--output text --metrics none"]
)
def test_a_full_device_fails_without_a_traceback(options: str, tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    done = in_a_shell("{t} {text} {options} --transcript {out} >/dev/full", text=TEXT, options=options, out=out)
    assert done.returncode == 1
    assert b"No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception" not in done.stderr
    assert len(lines(out.read_bytes())) == 2, "the other sinks got everything"
    done = in_a_shell("{t} {text} --metrics-file /dev/full", text=TEXT)
    assert done.returncode == 1
    assert done.stderr == b"turnstream: can't write the metrics: No space left on device\n"
    assert in_a_shell("{t} {error} 2>/dev/full", error=ERROR).returncode == 1


def test_what_a_server_says_steers_no_terminal_and_stays_on_its_line(tmp_path: Path) -> None:
    odd = tmp_path / "odd.sse"
    odd.write_bytes(f.sse(f.start("m\x1b[2J", model="é\x1b]0;x\x07"), f.fails("bad\x1b[31m", "two\nlines\x9b")))
    for encoding in ("utf-8", "ascii"):
        done = replay(odd, env={"PYTHONIOENCODING": encoding})
        assert done.returncode == 1
        assert done.stderr.count(b"\n") == 1
        for output in (done.stdout, done.stderr):
            assert not {"\x1b", "\x07", "\x9b"} & set(output.decode("utf-8", "replace"))
        json.loads(replay(odd, "--metrics", "json", env={"PYTHONIOENCODING": encoding}).stdout.decode(encoding))


def test_a_file_name_that_is_no_unicode(tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/\xff.sse"
    shutil.copy(ERROR, odd)
    name = os.fsdecode(odd)
    done = replay(name, "--ids", "stable", "--output", "messages", "--transcript", name + ".jsonl")
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    again = replay(name, "--ids", "stable", "--output", "messages")
    assert [m["uuid"] for m in lines(again.stdout)] == [m["uuid"] for m in lines(done.stdout)] != []


def test_an_input_that_cannot_be_opened_is_told_with_its_class(tmp_path: Path) -> None:
    for name in (tmp_path, tmp_path / "no.sse"):
        assert replay(name).stderr.rstrip().endswith(b"[SourceError]")


def test_a_named_pipe_is_live_and_can_be_interrupted(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "turnstream", "replay", str(pipe), "--output", "items", "--metrics", "none"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    cut = CUT.read_bytes()
    with pipe.open("wb", buffering=0) as writer:  # a writer that doesn't end
        writer.write(cut[: cut.rindex(b"event: content_block_delta")])
        for line in process.stdout:
            if b"input_json_delta" in line:
                break
        process.send_signal(signal.SIGINT)
        out, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in told
    assert b"isAbortedMidStream" in out


def test_an_output_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """OUT is refused if it exists, empty or not; nothing else is touched then."""
    out, metrics = tmp_path / "t.jsonl", tmp_path / "m.json"
    out.touch()
    metrics.write_text("before")
    done = replay(TEXT, "--transcript", out, "--metrics-file", metrics)
    assert done.returncode == 2
    assert b"--append" in done.stderr
    assert metrics.read_text() == "before"
    assert replay(TEXT, "--metrics", "none", "--metrics-file", metrics).returncode == 2
    assert metrics.read_text() == "before"
    metrics.write_text("x" * 100_000)
    assert replay(TEXT, "--metrics", "json", "--metrics-file", metrics).returncode == 0
    assert json.loads(metrics.read_text())["totals"]["output_tokens"] == 24
