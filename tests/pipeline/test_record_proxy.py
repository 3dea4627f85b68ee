"""The recording proxy over real sockets: what passes, what is recorded, and who never notices (FAULTS.md group G)."""

from __future__ import annotations

import asyncio
import errno
import gzip
import itertools
import json
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from serving import EXAMPLES, KEY, TEXT, TOOLS, TRUNCATED, Streamer, serving
from stores import Store
from wire_client import REQUEST, STREAM, exchange

from turnstream.messages import SourceError
from turnstream.operators import decode, parse_events, run_stages
from turnstream.record import Exchange, record_proxy
from turnstream.serve import serve_recordings
from turnstream.sources import from_file
from turnstream.testing import cancel_everywhere, virtual_time

MB = 1_000_000
PLAIN = re.sub(rb"(?m)^: turnstream at=.*\n", b"", TEXT)


@pytest.fixture(autouse=True)
def no_key_is_said(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    caplog.set_level(logging.DEBUG, "turnstream")
    caplog.set_level(logging.DEBUG, "aiohttp")
    yield
    assert KEY not in caplog.text
    assert KEY not in "".join(capfd.readouterr())


def written(folder: Path) -> dict[str, bytes]:
    """The files, by their suffixes."""
    return {"".join(path.suffixes): path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def dropped(proxy: Any) -> dict[str, int]:
    found: dict[str, int] = proxy.report()["proxy"]["dropped"]
    return found


# -- what passes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"])
@virtual_time
async def test_every_method_and_path_passes_with_its_headers(method: str) -> None:
    seen: list[Any] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        seen.append((request.method, request.raw_path, list(request.headers.items()), await request.read()))
        answer = web.Response(status=203, reason="Or So", body=b"told")
        answer.headers.add("X-B", "1")
        answer.headers.add("x-b", "2")
        answer.headers["Connection"] = "x-hop"
        answer.headers["X-Hop"] = "gone"
        return answer

    async with serving(handle) as upstream, record_proxy(f"{upstream}/base") as proxy:
        path = "/a%2Fb//c?q=%20&r"
        sent = {"x-api-key": KEY, "Accept-Encoding": "br", "X-Hop": "1", "Connection": "x-hop", "cookie": "a=b"}
        reply = await exchange(proxy.url, b"body", method=method, path=path, headers=sent)
        counts = proxy.report()["proxy"]
    ((got, target, headers, body),) = seen
    assert (got, target, body) == (method, f"/base{path}", b"body")
    names = {name.lower(): value for name, value in headers}
    assert names.pop("host") == upstream.removeprefix("http://")
    names.pop("connection", None)
    assert names == {"x-api-key": KEY, "accept-encoding": "br", "cookie": "a=b", "content-length": "4"}
    assert (reply.status, reply.reason, reply.ended) == (203, "Or So", "eof")
    assert reply.headers["x-b"] in ("1", "2")
    assert "x-hop" not in reply.headers
    assert reply.headers["content-length"] == "4"
    assert reply.body == (b"" if method == "HEAD" else b"told")
    assert (counts["requests"], counts["ends"], counts["in_flight"]) == (1, {"complete": 1}, 0)


@virtual_time
async def test_no_header_is_added_on_either_side() -> None:
    lines: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.extend((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[1:-2])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, record_proxy(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as proxy:
        reply = await exchange(proxy.url, method="GET", path="/x")
        assert (reply.headers, reply.body) == ({"content-length": "2"}, b"hi")
    assert sorted(line.split(b":")[0].lower() for line in lines) == [b"content-length", b"host"]


@virtual_time
async def test_statuses_without_a_body_and_redirects_are_the_clients() -> None:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        status = int(request.path[1:])
        return web.Response(status=status, headers={"location": "http://127.0.0.1:1/"})

    async with serving(handle) as upstream, record_proxy(upstream) as proxy:
        for status in (204, 304):
            async with aiohttp.ClientSession() as client, client.get(f"{proxy.url}/{status}") as reply:
                assert (reply.status, await reply.read()) == (status, b"")
        reply = await exchange(proxy.url, method="GET", path="/307")
        assert (reply.status, reply.headers["location"]) == (307, "http://127.0.0.1:1/")


@virtual_time
async def test_compressed_bytes_pass_as_they_are_and_are_recorded_plain(tmp_path: Path) -> None:
    bodies: list[bytes] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        bodies.append(await request.content.read())
        headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
        return web.Response(body=gzip.compress(TEXT, mtime=1), headers=headers)

    async with serving(handle) as upstream, record_proxy(upstream, tmp_path, bodies=True) as proxy:
        packed = gzip.compress(json.dumps(STREAM).encode())
        reply = await exchange(proxy.url, packed, headers={"content-encoding": "gzip"})
    assert reply.body == gzip.compress(TEXT, mtime=1)
    assert reply.headers["content-encoding"] == "gzip"
    files = written(tmp_path)
    assert files[".sse"].split(b"\n", 1)[1] == PLAIN
    assert files[".request.bin"] == packed


@pytest.mark.parametrize("encoding", ["rot13", "gzip"])
@virtual_time
async def test_what_cannot_be_decompressed_passes_all_the_same(encoding: str, tmp_path: Path) -> None:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        headers = {"content-type": "text/event-stream", "content-encoding": encoding}
        return web.Response(body=TEXT, headers=headers)

    async with serving(handle) as upstream, record_proxy(upstream, tmp_path) as proxy:
        assert (await exchange(proxy.url, STREAM)).body == TEXT
        await proxy.drained()
        assert dropped(proxy) == {"tee_encoding": 1, "recording_encoding": 1}
    assert written(tmp_path) == {}


@virtual_time
async def test_each_chunk_passes_at_once_and_so_do_the_headers() -> None:
    go = [asyncio.Event() for _ in range(3)]

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for number, event in enumerate(go):
            await event.wait()
            await answer.write(b"%d" % number)
        return answer

    async with serving(handle) as upstream, record_proxy(upstream) as proxy, aiohttp.ClientSession() as client:
        async with client.post(f"{proxy.url}/v1/messages", json=STREAM) as reply:  # returns with the headers
            for number, event in enumerate(go):
                event.set()
                assert await reply.content.readany() == b"%d" % number
            assert await reply.content.readany() == b""


@virtual_time
async def test_a_request_body_is_streamed_and_a_continue_is_given() -> None:
    first = asyncio.Event()
    got: list[bytes] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        assert request.headers["transfer-encoding"] == "chunked"
        assert "expect" not in request.headers
        async for chunk in request.content.iter_any():
            got.append(chunk)
            first.set()
        return web.Response()

    async def body() -> Any:
        yield b"one"
        await first.wait()
        yield b"two"

    async with serving(handle) as upstream, record_proxy(upstream) as proxy, aiohttp.ClientSession() as client:
        async with client.post(f"{proxy.url}/x", data=body(), expect100=True) as reply:
            assert reply.status == 200
    assert got == [b"one", b"two"]


@virtual_time
async def test_the_upstreams_connection_is_used_again() -> None:
    peers: set[Any] = set()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        await request.read()
        return web.Response(body=TEXT, content_type="text/event-stream")

    async with serving(handle) as upstream, record_proxy(upstream) as proxy:
        for _ in range(3):
            assert (await exchange(proxy.url, STREAM)).body == TEXT
    assert len(peers) == 1


# -- backpressure ------------------------------------------------------------------------------------


@virtual_time
async def test_a_slow_client_pauses_the_upstream(tmp_path: Path) -> None:
    # Far more than the kernel holds for a connection (some MB), as in test_http for the source.
    piece = b": " + b"x" * 99_997 + b"\n"
    pieces = 600
    server = Streamer(*[piece] * pieces, TEXT)
    async with serving(server) as upstream, record_proxy(upstream, tmp_path) as proxy:
        host, port = proxy.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1000)
        writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}")
        await reader.readuntil(b"\r\n\r\n")
        # On this loop, time passes only when no socket has anything to do any more.
        stopped_at = -1
        while stopped_at != server.written:
            stopped_at = server.written
            await asyncio.sleep(10)
        assert (server.written, server.drained, server.sent.is_set()) == (stopped_at, False, False)
        assert stopped_at < 50 * MB
        length = 0
        while chunk := await reader.read(1 << 16):
            length += len(chunk)
        writer.close()
        await proxy.drained()
    assert length > pieces * len(piece)
    assert server.sent.is_set()


@virtual_time
async def test_a_slow_upstream_pauses_the_client() -> None:
    go = asyncio.Event()
    got = 0

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal got
        await go.wait()
        async for chunk in request.content.iter_any():
            got += len(chunk)
        return web.Response()

    size = 60 * MB
    async with serving(handle) as upstream, record_proxy(upstream) as proxy:
        host, port = proxy.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size)
        writer.write(bytes(size))
        await asyncio.sleep(5)
        assert writer.transport.get_write_buffer_size() > 10 * MB
        go.set()
        await writer.drain()
        assert (await reader.readuntil(b"\r\n")) == b"HTTP/1.1 200 OK\r\n"
        writer.close()
    assert got == size


# -- recordings --------------------------------------------------------------------------------------


@virtual_time
async def test_a_recording_can_be_replayed_at_its_pace(tmp_path: Path) -> None:
    events = [event + b"\n\n" for event in PLAIN.split(b"\n\n") if event]

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(request)
        for event in events:
            await asyncio.sleep(2)
            await answer.write(event)
        return answer

    async with serving(handle) as upstream, record_proxy(upstream, tmp_path) as proxy:
        reply = await exchange(proxy.url, STREAM)
        await proxy.drained()
        assert proxy.report()["proxy"]["recordings"] == 1
    (path,) = tmp_path.glob("*.sse")
    loop = asyncio.get_running_loop()
    start = loop.time()
    played: dict[int, bytes] = {}
    stream: Any = from_file(path, pace=1).batches()
    async for batch in stream:
        second = round(loop.time() - start)
        played[second] = played.get(second, b"") + b"".join(batch.items)
    stamped = [b": turnstream at=%d.000000\n%b" % (2 * n, event) for n, event in enumerate(events, 1)]
    assert played == {2 * n: event for n, event in enumerate(stamped, 1)}
    assert reply.body == PLAIN
    assert path.stat().st_mode & 0o777 == 0o600


@virtual_time
async def test_messages_get_into_a_transcript_a_session(tmp_path: Path) -> None:
    key = "0a1b2c3d-0000-4000-8000-000000000001"
    async with serve_recordings([EXAMPLES / "3-two-tools.sse"]) as server:
        async with record_proxy(server.url, tmp_path, session_header="x-session", bodies=True) as proxy:
            for session in (key, key, "../../etc", None):
                await exchange(proxy.url, STREAM, headers={"x-session": session} if session else {})
            await proxy.drained()
            assert proxy.report()["proxy"]["transcript_answers"] == 4
    files = {path.name: path for path in (tmp_path / "transcripts").glob("*.jsonl")}
    assert len(files) == 3
    lines = [json.loads(line) for line in files[f"{key}.jsonl"].read_text().splitlines()]
    said = [(line["type"], line["message"]["role"]) for line in lines if "message" in line]
    blocks = [event for event in TOOLS.split(b"\n\n") if b'"content_block_stop"' in event]
    assert said == 2 * [("user", "user"), *[("assistant", "assistant")] * len(blocks)]
    assert [line["parentUuid"] for line in lines[1:]] == [line["uuid"] for line in lines[:-1]]
    assert {line["sessionId"] for line in lines} == {key}


@virtual_time
async def test_answers_at_the_same_time_do_not_mix(tmp_path: Path) -> None:
    async with serve_recordings([EXAMPLES / "1-text.sse", EXAMPLES / "3-two-tools.sse"], pace=1) as server:
        async with record_proxy(server.url, tmp_path) as proxy:
            names = ["1-text", "3-two-tools"] * 5
            await asyncio.gather(*[exchange(proxy.url, {**STREAM, "model": name}) for name in names])
            await proxy.drained()
            totals = proxy.report()["model"]["totals"]
    assert (totals["answers"], totals["incomplete_answers"]) == (10, 0)
    (transcript,) = (tmp_path / "transcripts").glob("*.jsonl")
    ids = [json.loads(line)["message"]["id"] for line in transcript.read_text().splitlines()]
    changes = sum(a != b for a, b in itertools.pairwise(ids))
    assert changes <= 9
    recorded = sorted(run_of(path) for path in tmp_path.glob("*.sse"))
    assert recorded == sorted(5 * [run_of(EXAMPLES / "1-text.sse"), run_of(EXAMPLES / "3-two-tools.sse")])


def run_of(path: Path) -> str:
    items = run_stages([path.read_bytes()], decode(), parse_events())
    return repr(items)


@virtual_time
async def test_whole_messages_and_errors(tmp_path: Path) -> None:
    async with serve_recordings([EXAMPLES / "1-text.sse"], fault="529,times=2") as server:
        async with record_proxy(server.url, tmp_path) as proxy:
            assert [(await exchange(proxy.url, REQUEST)).status for _ in range(3)] == [529, 529, 200]
            await exchange(proxy.url, REQUEST, path="/v1/messages/count_tokens")
            await proxy.drained()
            report = proxy.report()
    assert report["proxy"]["statuses"] == {"200": 2, "529": 2}
    assert report["proxy"]["recordings"] == 1
    assert report["model"]["totals"]["outcomes"] == {"complete": 1, "api_error(overloaded_error)": 2}
    assert list(written(tmp_path)) == [".json"]
    message = json.loads(written(tmp_path)[".json"])
    assert message["type"] == "message"


@pytest.mark.parametrize("bodies", [False, True])
@virtual_time
async def test_nothing_secret_is_written(bodies: bool, tmp_path: Path) -> None:
    secrets = {
        "x-api-key": KEY, "authorization": f"Bearer {KEY}", "cookie": f"s={KEY}", "proxy-authorization": KEY,
        "x-goog-api-key": KEY, "x-auth-token": KEY,
    }  # fmt: skip
    ended: list[Exchange] = []
    async with serving(Streamer(TEXT)) as upstream:
        async with record_proxy(upstream, tmp_path, bodies=bodies, on_end=ended.append) as proxy:
            await exchange(proxy.url, STREAM, path=f"/v1/messages?key={KEY}", headers=secrets)
            await exchange(proxy.url, method="GET", path=f"/{KEY}", headers=secrets)
            await proxy.drained()
            said = f"{proxy.report()} {proxy!r} {proxy.__dict__} {ended} {list(map(str, ended))}"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert KEY not in said
    for path in files:
        assert KEY.encode() not in path.read_bytes()
        assert KEY not in path.name
    names = {"".join(path.suffixes) for path in tmp_path.iterdir() if path.is_file()}
    assert names == ({".sse", ".request.json", ".headers.json"} if bodies else {".sse"})
    if bodies:
        assert json.loads(written(tmp_path)[".request.json"]) == STREAM
        assert json.loads(written(tmp_path)[".headers.json"])["x-api-key"] == "[redacted]"


# -- a recorder that is slow, full, broken ------------------------------------------------------------


def failing(fault: str) -> Callable[[str], Awaitable[None]]:
    async def at(step: str) -> None:
        if fault == "hang" and step != "close":
            await asyncio.Event().wait()
        if fault == "full" and step == "write":
            raise OSError(errno.ENOSPC, "No space left on device")
        if fault == "bug" and step == "create":
            raise RuntimeError(KEY)

    return at


@pytest.mark.parametrize(
    ("fault", "why"), [("hang", "recording_slow"), ("full", "recording_failed"), ("bug", "recording_failed")]
)
@virtual_time
async def test_a_failing_recorder_never_touches_the_stream(fault: str, why: str) -> None:
    store = Store(failing(fault))
    buffer = 20_000 if fault == "hang" else MB
    ended: list[Exchange] = []
    async with serving(Streamer(*[TEXT] * 50)) as upstream:
        async with record_proxy(upstream, store=store, buffer=buffer, on_end=ended.append) as proxy:
            reply = await exchange(proxy.url, STREAM)
            await asyncio.sleep(1)
            assert dropped(proxy)[why] == 1
            assert (reply.body, reply.ended) == (50 * TEXT, "eof")
            assert reply.at == 0  # not one tick of the clock
            assert proxy.report()["model"]["totals"]["answers"] > 0
    assert store.committed == set()
    assert any(why.replace("_", " dropped: ") in note for note in ended[0].notes)
    assert ended[0].recording is None


@virtual_time
async def test_a_store_that_hangs_at_the_end_costs_the_budget_and_no_more() -> None:
    loop = asyncio.get_running_loop()
    async with serving(Streamer(TEXT)) as upstream:
        async with record_proxy(upstream, store=Store(failing("hang")), flush=7) as proxy:
            await exchange(proxy.url, STREAM)
            start = loop.time()
    assert loop.time() - start <= 3 * 7
    assert proxy.finished is False
    assert dropped(proxy) == {"recording_unfinished": 1}


@virtual_time
async def test_a_recorder_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("bug")

    monkeypatch.setattr("turnstream.record.recording.Recorder", broken)
    async with serving(Streamer(TEXT)) as upstream, record_proxy(upstream) as proxy:
        assert (await exchange(proxy.url, STREAM)).body == TEXT
        assert dropped(proxy) == {"tee_failed": 1}


@virtual_time
async def test_what_hangs_does_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnstream.record.recording._MOST_OPEN", 4)
    async with serving(Streamer(TEXT)) as upstream:
        async with record_proxy(upstream, store=Store(failing("hang"))) as proxy:
            for _ in range(6):
                assert (await exchange(proxy.url, STREAM)).body == TEXT
            assert dropped(proxy) == {"tee_slow": 2}


@virtual_time
async def test_a_bug_in_a_stage_or_in_the_metrics_costs_figures_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with serving(Streamer(TEXT)) as upstream, record_proxy(upstream, tmp_path) as proxy:

        def broken(batch: Any) -> None:
            raise RuntimeError(KEY)

        monkeypatch.setattr(proxy._recording.metrics, "on_next", broken)
        assert (await exchange(proxy.url, STREAM)).body == TEXT
        await proxy.drained()
        assert dropped(proxy) == {"metrics_failed": 1}
        assert proxy.report()["proxy"]["recordings"] == 1


@virtual_time
async def test_a_folder_that_goes_away(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    async with serving(Streamer(TEXT)) as upstream, record_proxy(upstream, folder, transcripts=False) as proxy:
        folder.rmdir()
        assert (await exchange(proxy.url, STREAM)).body == TEXT
        await proxy.drained()
        assert dropped(proxy) == {"recording_failed": 1}


@virtual_time
async def test_a_transcript_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "transcripts").write_text("in the way")
    async with serving(Streamer(TEXT)) as upstream, record_proxy(upstream, tmp_path) as proxy:
        assert (await exchange(proxy.url, STREAM)).body == TEXT
        await proxy.drained()
        assert dropped(proxy) == {"transcript_failed": 1}
        assert proxy.report()["proxy"]["recordings"] == 1


# -- ends --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before the answer", "inside of it"])
@virtual_time
async def test_a_client_that_goes_closes_the_upstream_at_once(when: str, tmp_path: Path) -> None:
    server = Streamer(TRUNCATED, ending="hang")
    asked, gone = asyncio.Event(), asyncio.Event()

    async def silent(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()
        raise AssertionError

    before = when == "before the answer"
    async with serving(silent if before else server) as upstream, record_proxy(upstream, tmp_path) as proxy:
        asking = asyncio.create_task(exchange(proxy.url, STREAM))
        await (asked if before else server.sent).wait()
        start = asyncio.get_running_loop().time()
        await asyncio.sleep(0.5)
        asking.cancel()
        await (gone if before else server.gone).wait()
        assert asyncio.get_running_loop().time() - start < 1
        await asyncio.sleep(1)
        await proxy.drained()
        counts = proxy.report()["proxy"]
        assert (counts["ends"], counts["in_flight"]) == ({"client gone": 1}, 0)
        if not before:
            # What came is kept.
            assert written(tmp_path)[".sse"].replace(b"\r", b"").endswith(TRUNCATED[-20:])
            assert proxy.report()["model"]["totals"]["incomplete_answers"] == 1
            assert proxy.report()["model"]["answers"][0]["error_type"] == "aborted"


def is_api_error(reply: Any, status: int) -> str:
    """The message, once status and shape are the API's."""
    assert (reply.status, reply.headers["content-type"], reply.ended) == (status, "application/json", "eof")
    assert reply.json["type"] == "error"
    assert set(reply.json["error"]) == {"type", "message"}
    assert reply.json["error"]["type"] == "api_error"
    message: str = reply.json["error"]["message"]
    return message


@virtual_time
async def test_no_upstream_is_a_502() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        async with record_proxy(f"http://127.0.0.1:{taken.getsockname()[1]}") as proxy:
            for method in ("POST", "GET"):
                reply = await exchange(proxy.url, STREAM, method=method, headers={"x-api-key": KEY})
                assert "Connection refused" in is_api_error(reply, 502)
            counts = proxy.report()["proxy"]
    assert (counts["statuses"], counts["ends"]) == ({"502": 2}, {"upstream failed": 2})


@pytest.mark.parametrize("said", [b"", b"SSH-2.0-OpenSSH\r\n", f"HTTP/1.1 {KEY}\r\n\r\n".encode()])
@virtual_time
async def test_an_upstream_that_speaks_no_http_is_a_502(said: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, record_proxy(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as proxy:
        reply = await exchange(proxy.url, STREAM, headers={"x-api-key": KEY})
        assert KEY not in is_api_error(reply, 502)


@pytest.mark.parametrize("ending", ["cut", "close"])
@virtual_time
async def test_an_answer_that_the_upstream_breaks_off_looks_so_to_the_client(ending: str, tmp_path: Path) -> None:
    async with serve_recordings([EXAMPLES / "1-text.sse"], fault=f"{ending}-after=4") as server:
        direct = await exchange(server.url, STREAM)
        async with record_proxy(server.url, tmp_path) as proxy:
            reply = await exchange(proxy.url, STREAM)
            await proxy.drained()
            report = proxy.report()
    assert (reply.status, reply.ended) == (200, "closed")
    assert reply.body == direct.body != b""
    assert report["proxy"]["ends"] == {"upstream broke": 1}
    assert report["model"]["totals"]["incomplete_answers"] == 1
    assert len(written(tmp_path)) == 1


@virtual_time
async def test_the_end_waits_for_open_streams_within_its_grace() -> None:
    loop = asyncio.get_running_loop()
    async with serve_recordings([EXAMPLES / "1-text.sse"], fault="slow=1") as server:
        async with record_proxy(server.url, grace=60) as proxy:
            asking = asyncio.create_task(exchange(proxy.url, STREAM))
            await asyncio.sleep(3)
        reply = await asking
        assert (reply.ended, reply.body) == ("eof", TEXT)
        async with record_proxy(server.url, grace=2) as proxy:
            asking = asyncio.create_task(exchange(proxy.url, STREAM))
            await asyncio.sleep(3)
            start = loop.time()
        assert loop.time() - start < 4
        assert (await asking).ended in ("closed", "reset")
        assert proxy.report()["proxy"]["ends"] == {"proxy ended": 1}
        with pytest.raises(KeyError):  # noqa: PT012 - it is raised in the block
            async with record_proxy(server.url, grace=1e6) as proxy:
                asking = asyncio.create_task(exchange(proxy.url, STREAM))
                await asyncio.sleep(3)
                raise KeyError
        assert (await asking).ended in ("closed", "reset")


@virtual_time
async def test_a_cancellation_ends_the_grace() -> None:
    async def run(url: str, inside: asyncio.Event) -> None:
        async with record_proxy(url, grace=1e6) as proxy:
            asyncio.create_task(exchange(proxy.url, STREAM)).add_done_callback(lambda task: task.exception())
            await asyncio.sleep(1)
            inside.set()

    async with serving(Streamer(TEXT, ending="hang")) as upstream:
        inside = asyncio.Event()
        running = asyncio.create_task(run(upstream, inside))
        await inside.wait()
        await asyncio.sleep(5)
        assert not running.done()
        running.cancel()
        await asyncio.wait([running], timeout=5)
        assert running.cancelled()


# -- what is the proxy's own -------------------------------------------------------------------------


@virtual_time
async def test_its_own_paths_and_the_upstreams() -> None:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=f"upstream {request.method} {request.path}")

    async with serving(handle) as upstream:
        async with record_proxy(upstream) as proxy:
            for path in ("/metrics", "/-/metrics", "/metrics?format=json"):
                reply = await exchange(proxy.url, method="GET", path=path)
                assert reply.json["proxy"]["requests"] == 0
                assert reply.json["model"]["totals"]["answers"] == 0
            text = await exchange(proxy.url, method="GET", path="/-/metrics", headers={"accept": "text/plain"})
            assert text.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert b"\nturnstream_record_requests_total 0\n" in text.body
            assert (await exchange(proxy.url, method="GET", path="/-/health")).json == {"status": "ok"}
            assert (await exchange(proxy.url, method="HEAD", path="/-/health")).status == 200
            assert (await exchange(proxy.url, method="GET", path="/-/other")).status == 404
            assert (await exchange(proxy.url, method="POST", path="/-/metrics")).status == 405
            assert (await exchange(proxy.url, method="GET", path="/metrics?format=xml")).status == 400
            for method, path in (("POST", "/metrics"), ("GET", "/metrics/x"), ("GET", "/-")):
                reply = await exchange(proxy.url, method=method, path=path)
                assert reply.body == f"upstream {method} {path}".encode()
        async with record_proxy(upstream, own_metrics=False) as proxy:
            assert (await exchange(proxy.url, method="GET", path="/metrics")).body == b"upstream GET /metrics"
            assert "proxy" in (await exchange(proxy.url, method="GET", path="/-/metrics")).json


@pytest.mark.parametrize(
    "options", [{"session_header": "x y"}, {"session_header": "Authorization"}, {"session_header": "x-api-key"},
                {"session_header": ""}, {"buffer": 0}]
)  # fmt: skip
@virtual_time
async def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"header|buffer"):
        async with record_proxy("http://h", **options):
            pass


@virtual_time
async def test_a_folder_or_an_address_that_cannot_be_had(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError, match="folder"):
        async with record_proxy("http://h", tmp_path / "file" / "x"):
            pass
    async with record_proxy("http://h") as proxy:
        with pytest.raises(SourceError, match="listen"):
            async with record_proxy("http://h", port=int(proxy.url.rpartition(":")[2])):
                pass


@pytest.mark.parametrize("again", [None, 3])
def test_cancelled_anywhere_it_leaves_nothing(again: int | None, tmp_path: Path) -> None:
    folders = itertools.count()

    async def scenario() -> None:
        folder = tmp_path / str(next(folders))
        async with serve_recordings([TEXT]) as server, record_proxy(server.url, folder, grace=1) as proxy:
            await exchange(proxy.url, STREAM)

    assert cancel_everywhere(scenario, again=again) > 20
    for part in tmp_path.rglob("*.part"):
        raise AssertionError(part)
