"""Upstreams, clients and devices that misbehave around the recording proxy, and what must not come of it (FAULTS.md 84, 111)."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import logging
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from serving import KEY, TEXT, serving
from wire_client import STREAM, exchange

from turnstream.record import Exchange, record_proxy
from turnstream.testing import virtual_time
from turnstream.testing.leftovers import Leftovers

PIECE = 64 * 1024
RESET = struct.pack("ii", 1, 0)


@contextlib.contextmanager
def deaf() -> Iterator[socket.socket]:
    """A server to which one can connect and write, and that never reads."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.setblocking(False)
        yield listening


def url_of(listening: socket.socket) -> str:
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


async def connected(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]), limit=PIECE)


async def stuck(proxy: Any, writer: asyncio.StreamWriter) -> None:
    """Send a body until the proxy doesn't read any more; a few pieces wait in its kernel then."""
    writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n\r\n")
    passed = -1
    further = 8
    while further:
        now = proxy.report()["proxy"]["request_bytes"]
        further -= now == passed
        passed = now
        writer.write(bytes(PIECE))
        await asyncio.sleep(1)  # on this loop: until no socket has anything to do
    assert passed > 0


@pytest.mark.parametrize("how", ["close", "reset", "the proxy ends"])
@virtual_time
async def test_a_request_that_the_upstream_does_not_read_is_let_go_of(how: str) -> None:
    with deaf() as upstream:
        before = Leftovers()
        async with record_proxy(url_of(upstream), grace=1) as proxy:
            without_client = Leftovers()
            _, writer = await connected(proxy.url)
            await stuck(proxy, writer)
            if how == "reset":
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            if how != "the proxy ends":
                assert writer.transport.get_write_buffer_size() == 0
                writer.transport.abort()
                await asyncio.sleep(1)
                counts = proxy.report()["proxy"]
                assert (counts["ends"], counts["in_flight"]) == ({"client gone": 1}, 0)
                assert not without_client.since()
        writer.transport.abort()
        await asyncio.sleep(1)
        assert not before.since()
        with upstream.accept()[0] as served, pytest.raises(ConnectionResetError):  # noqa: PT012
            served.setblocking(False)
            while served.recv(PIECE):  # what had come before
                pass
    assert proxy.report()["proxy"]["ends"] == {"proxy ended" if how == "the proxy ends" else "client gone": 1}


@pytest.mark.parametrize("slow", [False, True])
@virtual_time
async def test_an_answer_before_the_request_is_read_leaves_nothing_behind(slow: bool) -> None:
    loop = asyncio.get_running_loop()
    piece = b"8000\r\n" + bytes(0x8000) + b"\r\n"
    with deaf() as listening:
        async with record_proxy(url_of(listening)) as proxy:
            without_client = Leftovers()
            reader, writer = await connected(proxy.url)
            await stuck(proxy, writer)
            served, _ = await loop.sock_accept(listening)
            served.send(b"HTTP/1.1 413 Too Large\r\ntransfer-encoding: chunked\r\n\r\n")
            sent = 0
            while slow and sent - proxy.report()["proxy"]["answer_bytes"] < 0x8000:
                served.send(piece)
                sent += 0x8000
                await asyncio.sleep(1)
            # The slow client: the proxy knows the answer's end while it still waits with what comes before it.
            served.send(b"0\r\n\r\n")
            await asyncio.sleep(1)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 413 Too Large\r\n")
            while size := int(await reader.readline(), 16):
                sent -= len(await reader.readexactly(size))
                assert await reader.readline() == b"\r\n"
            assert sent == 0
            writer.transport.abort()
            await asyncio.sleep(1)
            assert without_client.since() == ["1 open file descriptor(s)"]  # the upstream's own
            served.close()
            assert proxy.report()["proxy"]["ends"] == {"complete": 1}


@pytest.mark.parametrize("before", ["http://api.test", "HTTPS://user@api.test:8443", "http://[::1]:1"])
@virtual_time
async def test_a_request_line_with_a_whole_url_is_what_its_path_says(before: str, tmp_path: Path) -> None:
    targets: list[str] = []
    ended: list[Exchange] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        targets.append(request.raw_path)
        return web.Response(body=TEXT, content_type="text/event-stream")

    async with serving(handle) as upstream, record_proxy(upstream, tmp_path, on_end=ended.append) as proxy:
        assert (await exchange(proxy.url, STREAM, path=f"{before}/v1/messages?beta=true")).body == TEXT
        assert (await exchange(proxy.url, method="GET", path=f"{before}?x=1")).body == TEXT
        assert (await exchange(proxy.url, method="GET", path=f"{before}/-/health")).json == {"status": "ok"}
        await proxy.drained()
    assert targets == ["/v1/messages?beta=true", "/?x=1"]
    assert [(each.path, each.recording is not None) for each in ended] == [("/v1/messages", True), ("/", False)]
    assert len(list(tmp_path.glob("*.sse"))) == 1


@virtual_time
async def test_a_tunnel_is_refused_and_not_asked_for() -> None:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        raise AssertionError

    async with serving(handle) as upstream, record_proxy(upstream) as proxy:
        reader, writer = await connected(proxy.url)
        writer.write(b"CONNECT api.test:443 HTTP/1.1\r\nhost: api.test:443\r\n\r\n\x16\x03\x01")
        answer = await reader.read()  # to the connection's end
        writer.close()
        assert proxy.report()["proxy"]["requests"] == 0
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["type"] == "error"


@virtual_time
async def test_requests_that_do_not_wait_for_their_turn_get_it() -> None:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        await asyncio.sleep(10 - len(body))  # the first takes longest
        return web.Response(body=body)

    async with serving(handle) as upstream, record_proxy(upstream) as proxy:
        reader, writer = await connected(proxy.url)
        writer.write(
            b"".join(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % n + n * b"x" for n in (1, 2, 3))
        )
        bodies = []
        for _ in range(3):
            head = await reader.readuntil(b"\r\n\r\n")
            bodies.append(await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0])))
        writer.close()
    assert bodies == [b"x", b"xx", b"xxx"]


@pytest.mark.parametrize("how", ["stream", "split", "gzip", "json", "error", "html"])
@virtual_time
async def test_a_key_that_the_upstream_repeats_is_passed_and_not_recorded(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "turnstream")
    said = TEXT.replace(b'"text_delta","text":"', b'"text_delta","text":"%s' % KEY.encode())
    assert KEY.encode() in said
    error = json.dumps({"type": "error", "error": {"type": KEY, "message": KEY}}).encode()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        headers = {"request-id": KEY, "content-type": "text/event-stream"}
        if how in ("error", "html"):
            return web.Response(status=401, reason=KEY, body=error if how == "error" else KEY.encode(), headers=headers)
        if how == "json":
            return web.Response(body=error, headers={"content-type": "application/json"})
        answer = web.StreamResponse(headers=headers)
        if how == "gzip":
            answer.headers["content-encoding"] = "gzip"
        await answer.prepare(request)
        cut = said.index(KEY.encode()) + 7
        for piece in (said[:cut], said[cut:]) if how == "split" else [gzip.compress(said) if how == "gzip" else said]:
            await answer.write(piece)
            await asyncio.sleep(1)
        return answer

    body = {**STREAM, "metadata": {"user_id": KEY}, "mcp_servers": [{"authorization_token": 'o"ther'}], "n": f"=={KEY}"}
    headers = {
        "authorization": f"Bearer {KEY}",
        "x-odd": f"is {KEY}",
        "referer": f"http://h/?key={KEY}",
        "x-bin": "\xff",
    }
    async with serving(handle) as upstream, record_proxy(upstream, tmp_path, bodies=True) as proxy:
        reply = await exchange(proxy.url, body, headers=headers, path="/v1/messages?beta=true")
        assert KEY.encode() in (gzip.decompress(reply.body) if how == "gzip" else reply.body)
        await proxy.drained()
        report = proxy.report()
    assert report["proxy"]["dropped"] == {}
    assert KEY not in f"{report} {caplog.text}"
    files = {"".join(path.suffixes): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert set(files) - {".jsonl", ".jsonl.lock"} == (
        set() if how in ("error", "html") else {".request.json", ".headers.json", ".json" if how == "json" else ".sse"}
    )
    for content in files.values():
        assert KEY.encode() not in content
    if ".request.json" in files:
        kept = json.loads(files[".request.json"])
        hidden = {"metadata": {"user_id": "[redacted]"}, "mcp_servers": [{"authorization_token": "[redacted]"}]}
        assert kept == {**STREAM, **hidden, "n": "==[redacted]"}
    if ".sse" in files:
        assert b"[redacted]" in files[".sse"]


@virtual_time
async def test_a_key_in_the_query_alone(tmp_path: Path) -> None:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=b": %s\n\n" % KEY.encode() + TEXT, content_type="text/event-stream")

    async with serving(handle) as upstream, record_proxy(upstream, tmp_path) as proxy:
        await exchange(proxy.url, STREAM, path=f"/v1/messages?beta=true&api_key={KEY}")
        await proxy.drained()
    (path,) = tmp_path.glob("*.sse")
    assert b": [redacted]\n\n" in path.read_bytes()
    assert KEY.encode() not in path.read_bytes()


@virtual_time
async def test_words_that_are_no_secrets_stay(tmp_path: Path) -> None:
    words = {"x-token-limit": "4096", "x-api-key": "none", "accept": "application/json", "user-agent": "anthropic-sdk"}
    text = b": 4096 none application/json anthropic-sdk\n\n" + TEXT

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=text, content_type="text/event-stream")

    async with serving(handle) as upstream, record_proxy(upstream, tmp_path) as proxy:
        await exchange(proxy.url, STREAM, headers=words)
        await proxy.drained()
    (path,) = tmp_path.glob("*.sse")
    assert text.partition(b"\n")[0] in path.read_bytes()


@virtual_time
async def test_headers_that_are_no_utf8_are_recorded_too(tmp_path: Path) -> None:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=TEXT, content_type="text/event-stream")

    async with serving(handle) as upstream, record_proxy(upstream, tmp_path, bodies=True) as proxy:
        reader, writer = await connected(proxy.url)
        key = b"\xff" + KEY.encode()
        writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-bin: \xff\r\nx-api-key: %b\r\n" % key)
        writer.write(b"x-copy: %b\r\ncontent-length: 2\r\n\r\n{}" % key)
        await reader.readuntil(b'message_stop"}\n\n')
        writer.close()
        await proxy.drained()
        assert proxy.report()["proxy"]["dropped"] == {}
    (path,) = tmp_path.glob("*.headers.json")
    kept = json.loads(path.read_bytes())
    assert (kept["x-api-key"], kept["x-copy"]) == ("[redacted]", "[redacted]")
    assert kept["x-bin"] == "\ufffd"


@virtual_time
async def test_the_proxy_is_not_its_own_upstream() -> None:
    with pytest.raises(ValueError, match="itself"):
        async with record_proxy("http://localhost:18080", port=18080):
            pass
