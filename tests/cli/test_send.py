"""``turnstream send``, as a user calls it: a process, against a real server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from serving import KEY, TEXT, TOOLS, TRUNCATED, Handler, Streamer, refusing, serving

from turnstream.serve import serve_recordings

REQUEST: dict[str, Any] = {
    "model": "m",
    "max_tokens": 100,
    "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": [{"type": "text", "text": "What is a stream?"}]},
    ],
}


ONCE = ("--no-retry", "--no-stream-fallback")


class Done:
    def __init__(self, status: int, stdout: bytes, stderr: bytes) -> None:
        self.status = status
        self.stdout = stdout
        self.stderr = stderr
        assert b"Traceback" not in stderr
        assert KEY.encode() not in stdout + stderr


async def start(*arguments: Any, request: bytes | None = None) -> asyncio.subprocess.Process:
    """The command with its request on standard input, so that no file is needed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "turnstream",
        "send",
        *map(str, arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "ANTHROPIC_API_KEY": KEY},
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(REQUEST).encode() if request is None else request)
    process.stdin.close()
    return process


async def finish(process: asyncio.subprocess.Process) -> Done:
    out, told = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return Done(process.returncode, out, told)


def send(handler: Handler | Callable[[], Handler], *arguments: Any, request: bytes | None = None) -> Done:
    async def run() -> Done:
        made: Any = handler() if handler.__name__ == "<lambda>" else handler  # type: ignore[union-attr]
        async with serving(made) as url:
            return await finish(await start("--request", "-", "--base-url", url, *arguments, request=request))

    return asyncio.run(run())


def records(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    assert KEY.encode() not in data
    return [json.loads(line) for line in data.splitlines()]


def chained(path: Path) -> list[dict[str, Any]]:
    return [record for record in records(path) if record["type"] in ("user", "assistant")]


def test_one_answer_is_shown_recorded_and_measured(tmp_path: Path) -> None:
    out, file = tmp_path / "t.jsonl", tmp_path / "request.json"
    file.write_text(json.dumps(REQUEST))
    server = Streamer(TOOLS)

    async def run() -> Done:
        async with serving(server) as url:
            return await finish(await start("--request", file, "--base-url", url, "--transcript", out))

    done = asyncio.run(run())
    assert (done.status, done.stderr) == (0, b"")
    shown = done.stdout.decode()
    assert shown.startswith("I'll look at both files at once.")
    assert "tool_use" in shown
    ((_, headers, body),) = server.requests
    assert json.loads(body) == {**REQUEST, "stream": True}
    assert headers["x-api-key"] == KEY
    user, *assistants = chained(out)
    assert user["type"] == "user"
    assert user["message"] == REQUEST["messages"][-1]
    assert user["parentUuid"] is None
    assert [record["type"] for record in assistants] == ["assistant"] * 3
    assert [record["parentUuid"] for record in assistants] == [user["uuid"], *(r["uuid"] for r in assistants[:-1])]
    assert {record["requestId"] for record in assistants} == {"req_served"}


def test_the_outputs_are_those_of_replay() -> None:
    done = send(lambda: Streamer(TEXT), "--output", "items", "--metrics", "none")
    assert done.status == 0
    items = [json.loads(line) for line in done.stdout.splitlines()]
    assert items[0]["type"] == "stream_request_start"
    events = [item for item in items if item["type"] == "stream_event"]
    sent = [json.loads(line[6:])["type"] for line in TEXT.splitlines() if line.startswith(b"data: ")]
    assert [item["event"]["type"] for item in events] == sent
    assert events[0]["ttftMs"] > 0
    done = send(lambda: Streamer(TEXT), "--metrics", "json")
    report = json.loads(done.stdout)
    assert report["answers"][0]["first_content_ms"] > 0
    assert report["totals"]["output_tokens"] == 24
    done = send(lambda: Streamer(TEXT), "--output", "text", "--metrics", "none")
    assert done.stdout.decode().startswith("A stream is a river")


def test_the_prompt_is_durable_before_the_request_goes_out(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    seen: list[dict[str, Any]] = []

    async def handle(request: Any) -> Any:
        seen.extend(chained(out))
        return await refusing(529, b'{"error": {"type": "overloaded_error", "message": "busy"}}')(request)

    done = send(handle, "--transcript", out, "--fsync", *ONCE)
    assert done.status == 1
    assert [record["message"] for record in seen] == [REQUEST["messages"][-1]]
    # and it stays, whatever becomes of the answer
    assert chained(out) == seen


def test_stable_ids_and_append(tmp_path: Path) -> None:
    first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    for out in (first, second):
        assert send(lambda: Streamer(TEXT), "--transcript", out, "--ids", "stable").status == 0
    assert [r["uuid"] for r in chained(first)] == [r["uuid"] for r in chained(second)]
    before = first.read_bytes()
    done = send(lambda: Streamer(TEXT), "--transcript", first)
    assert done.status == 2
    assert b"--append" in done.stderr
    assert send(lambda: Streamer(TEXT), "--transcript", first, "--append").status == 0
    assert first.read_bytes().startswith(before)
    new = chained(first)[2:]
    assert [record["type"] for record in new] == ["user", "assistant"]
    assert new[0]["parentUuid"] == chained(second)[-1]["uuid"]


@pytest.mark.parametrize(
    ("status", "kind"), [(401, "authentication_error"), (429, "rate_limit_error"), (529, "overloaded_error")]
)
def test_an_error_status_is_exit_1_with_what_the_api_says(status: int, kind: str) -> None:
    body = json.dumps({"type": "error", "error": {"type": kind, "message": f"not with {KEY}"}}).encode()
    done = send(refusing(status, body, request_id="req_1"), "--metrics", "none", "--output", "items", *ONCE)
    assert done.status == 1
    told = done.stderr.decode()
    assert told.startswith(f"turnstream: api_error({kind}): {kind}: not with [redacted] (http://127.0.0.1:")
    assert told.endswith(f"/v1/messages) [APIError], status {status}, request req_1\n")
    items = [json.loads(line) for line in done.stdout.splitlines()]
    (failed,) = [item for item in items if item["type"] == "response_failed"]
    assert failed["error"]["retryable"] is (status != 401)


def test_a_reset_in_the_middle_keeps_what_came(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    done = send(lambda: Streamer(TRUNCATED, ending="abort"), "--transcript", out, "--metrics", "none", *ONCE)
    assert done.status == 1
    assert b"incomplete(1): the connection broke after" in done.stderr
    assert b"[TransportError]" in done.stderr
    user, *answer = chained(out)
    assert user["type"] == "user"
    assert answer[-1]["isAbortedMidStream"] is True


def test_nobody_listens(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"

    async def run() -> Done:
        process = await start("--request", "-", "--base-url", "http://127.0.0.1:1", "--transcript", out, *ONCE)
        return await finish(process)

    done = asyncio.run(run())
    assert done.status == 1
    assert b"no connection" in done.stderr
    assert b"[TransportError]" in done.stderr
    assert [record["type"] for record in chained(out)] == ["user"]


def test_a_transcript_that_takes_nothing_keeps_the_request_from_being_sent(tmp_path: Path) -> None:
    file, out = tmp_path / "request.json", tmp_path / "t.jsonl"
    file.write_text(json.dumps(REQUEST))
    server = Streamer(TEXT)

    async def run() -> Done:
        async with serving(server) as url:
            # The file may not grow: as on a full disk, the write fails.
            process = await asyncio.create_subprocess_exec(
                "sh",
                "-c",
                'ulimit -f 0; exec "$@"',
                "sh",
                *(
                    sys.executable,
                    "-m",
                    "turnstream",
                    "send",
                    "--request",
                    file,
                    "--base-url",
                    url,
                    "--transcript",
                    out,
                ),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            return await finish(process)

    done = asyncio.run(run())
    assert done.status == 1
    assert b"[TranscriptError]; nothing was sent" in done.stderr
    assert server.requests == []
    assert out.read_bytes() == b""


@pytest.mark.parametrize(
    ("arguments", "request_body", "word"),
    [
        (["--request", "no-such-file.json"], b"", b"no-such-file.json"),
        (["--request", "-"], b"{", b"standard input holds no JSON"),
        (["--request", "-"], b"[]", b"no JSON object"),
        (["--request", "-", "--base-url", "ftp://x"], b"{}", b"base_url"),
        (["--request", "-", "--append"], b"{}", b"--transcript"),
        ([], b"", b"--request"),
        (["Hi", "--request", "-"], b"{}", b"not both"),
        ([" "], b"", b"empty"),
        (["-"], b"", b"empty"),
        (["--request", "-", "--model", "m"], b"{}", b"--model goes with a PROMPT"),
        (["--request", "-", "--max-tokens", "3"], b"{}", b"--max-tokens goes with a PROMPT"),
        (["Hi", "--max-tokens", "0"], b"", b"number of tokens"),
        (["Hi", "--retries", "-1"], b"", b"retries"),
        (["Hi", "--idle-timeout", "0"], b"", b"seconds above zero"),
        (["Hi", "--retries", "2", "--no-retry"], b"", b"not allowed"),
        (["Hi", "--base-url", "http://x/?q"], b"", b"base_url"),
    ],
)
def test_usage_errors_are_exit_2(arguments: list[str], request_body: bytes, word: bytes) -> None:
    async def run() -> Done:
        return await finish(await start(*arguments, request=request_body))

    done = asyncio.run(run())
    assert done.status == 2
    assert word in done.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_aborts_and_says_what_was_kept_and_lost(tmp_path: Path, number: signal.Signals, status: int) -> None:
    out = tmp_path / "t.jsonl"

    async def run() -> Done:
        server = Streamer(TRUNCATED, ending="hang")
        async with serving(server) as url:
            process = await start(
                "--request", "-", "--base-url", url, "--transcript", out, "--output", "items", "--metrics", "none"
            )
            assert process.stdout is not None
            last = json.loads([line for line in TRUNCATED.splitlines() if line.startswith(b"data: ")][-1][6:])
            read = b""
            while json.loads(line := await process.stdout.readline()).get("event") != last:
                read += line
            process.send_signal(number)
            done = await finish(process)
            # the server sees the connection go
            await asyncio.wait_for(server.gone.wait(), 60)
            return Done(done.status, read + done.stdout, done.stderr)

    done = asyncio.run(run())
    assert done.status == status
    told = done.stderr.decode().splitlines()[-1]
    assert told.startswith(f"turnstream: {number.name}: the open answer was cut off: 1 content block kept; ")
    assert "the input of tool Write is unfinished, kept as text" in told
    assert "is lost" in told
    lines = records(out)
    assert f"{out} holds {len(lines)} new lines" in told
    marked = [record for record in lines if record.get("isAbortedMidStream")]
    assert marked[-1]["unfinishedToolInputs"][0]["name"] == "Write"
    items = [json.loads(line) for line in done.stdout.splitlines()]
    (failed,) = [item for item in items if item["type"] == "response_failed"]
    assert failed["error"]["type"] == "aborted"


def test_a_signal_before_the_answer(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"

    async def run() -> Done:
        asked = asyncio.Event()

        async def silent(request: Any) -> Any:
            asked.set()
            await asyncio.Event().wait()

        async with serving(silent) as url:
            process = await start("--request", "-", "--base-url", url, "--transcript", out)
            await asyncio.wait_for(asked.wait(), 60)
            process.send_signal(signal.SIGTERM)
            return await finish(process)

    done = asyncio.run(run())
    assert done.status == 143
    assert b"SIGTERM: the request was given up before its answer began" in done.stderr
    assert [record["type"] for record in chained(out)] == ["user"]


def asked(fault: str, *arguments: Any, recordings: Any = (TEXT,), stdin: bytes = b"") -> tuple[Done, list[Any]]:
    """The command against the replay server; what it did, and what came to the server."""

    async def run() -> tuple[Done, list[Any]]:
        async with serve_recordings(recordings, fault=fault) as server:
            done = await finish(await start("--base-url", server.url, *arguments, request=stdin))
            return done, list(server.requests)

    return asyncio.run(run())


def test_a_prompt_is_a_request(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    arguments = ("What is\na stream?", "--model", "m-1", "--max-tokens", "77", "--system", "Be brief.")
    done, (request,) = asked("none", *arguments, "--transcript", out, "--metrics", "none")
    assert (done.status, done.stderr) == (0, b"")
    assert done.stdout.decode().startswith("A stream is a river")
    assert request.json == {
        "model": "m-1",
        "max_tokens": 77,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "What is\na stream?"}],
        "stream": True,
    }
    assert chained(out)[0]["message"] == {"role": "user", "content": "What is\na stream?"}
    assert [r["customTitle"] for r in records(out) if r["type"] == "custom-title"] == ["What is a stream?"]


def test_a_prompt_from_standard_input_and_the_defaults() -> None:
    done, (request,) = asked("none", "-", "--metrics", "none", stdin="Wörds".encode())
    assert done.status == 0
    assert request.json["messages"] == [{"role": "user", "content": "Wörds"}]
    assert request.json["max_tokens"] == 4096
    assert isinstance(request.json["model"], str)


def test_what_may_pass_is_tried_again_and_taken_back(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    done, requests = asked(
        "overloaded,times=1;cut-after=blocks,times=1",
        "Hi",
        *("--transcript", out, "--output", "text", "--metrics-file", tmp_path / "m.json", "--metrics", "json"),
        *("--ids", "stable", "--retries", "3"),
    )
    assert (done.status, len(requests)) == (0, 3)
    assert done.stdout.decode().count("A stream is a river") == 1
    told = done.stderr.decode().splitlines()
    assert len(told) == 2
    assert told[0].startswith("turnstream: overloaded_error: ")
    assert told[0].endswith("(retry 1 of 3)")
    assert "transport_error" in told[1]
    assert [record["type"] for record in chained(out)] == ["user", "assistant"]
    totals = json.loads((tmp_path / "m.json").read_text())["totals"]
    assert (totals["retries"], totals["tombstones"], totals["outcomes"]) == (2, 1, {"complete": 1})


def test_no_retry_and_no_fallback_is_one_request() -> None:
    done, requests = asked("eof-after=text", "Hi", *ONCE, "--metrics", "none")
    assert (done.status, len(requests)) == (1, 1)
    assert done.stderr.startswith(b"turnstream: incomplete(0): ")


def test_a_refusal_is_one_request_whatever_is_allowed() -> None:
    done, requests = asked("401", "Hi", "--fallback-model", "other", "--metrics", "none")
    assert (done.status, len(requests)) == (1, 1)
    assert b"authentication_error" in done.stderr


def test_streams_that_fail_are_asked_for_without_streaming(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    arguments = ("Hi", "--no-retry", "--transcript", out, "--output", "text", "--metrics", "none")
    done, requests = asked("eof-after=blocks,only=stream", *arguments)
    assert done.status == 0
    assert [request.json["stream"] for request in requests] == [True, False]
    assert done.stdout.decode().count("A stream is a river") == 1
    assert b"going on with a request that doesn't stream" in done.stderr
    assert [record["type"] for record in chained(out)] == ["user", "assistant"]


def test_a_busy_model_falls_back_to_the_other_one() -> None:
    body = {
        "model": "first",
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "of the first"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "redacted_thinking", "data": "y"},
                    {"type": "text", "text": "Hello"},
                ],
            },
            {"role": "user", "content": "Go on"},
        ],
    }
    done, requests = asked(
        "529,times=1;none",
        *("--request", "-", "--no-retry", "--fallback-model", "second", "--output", "none", "--metrics", "none"),
        stdin=json.dumps(body).encode(),
    )
    assert done.status == 0
    first, second = (request.json for request in requests)
    assert first == {**body, "stream": True}
    # thinking is signed for the model that thought it
    assert second == {
        "model": "second",
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]},
            {"role": "user", "content": "Go on"},
        ],
        "stream": True,
    }


def test_clocks_are_options() -> None:
    done, requests = asked("stall-after=text", "Hi", *ONCE, "--idle-timeout", "0.3", "--metrics", "none")
    assert (done.status, len(requests)) == (1, 1)
    assert b"no byte came for 0.3 s" in done.stderr
    done, requests = asked("first-byte-stall", "Hi", *ONCE, "--first-byte-timeout", "0.3", "--metrics", "none")
    assert b"within 0.3 s" in done.stderr


def test_a_signal_while_it_waits_to_try_again() -> None:
    async def run() -> tuple[Done, int]:
        async with serve_recordings([TEXT], fault="429=60") as server:
            process = await start("Hi", "--base-url", server.url, "--output", "text", "--metrics", "none", request=b"")
            assert process.stderr is not None
            told = await process.stderr.readline()
            assert b"again in" in told
            process.send_signal(signal.SIGINT)
            return await finish(process), len(server.requests)

    done, requests = asyncio.run(run())
    assert (done.status, requests) == (130, 1)
    assert b"SIGINT: the request was given up before its answer began" in done.stderr
