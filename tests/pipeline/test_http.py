"""The HTTP source against real servers (DESIGN.md §4, WIRE.md §7, FAULTS.md 7, 8, 96, 97, 111)."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Sequence
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from pulling import collect, items_of, joined
from serving import KEY, TEXT, TOOLS, TRUNCATED, Streamer, refusing, serving

from turnstream import Pipeline, SinkBase, accumulate, decode, from_request, parse_events
from turnstream.messages import (
    APIError,
    AssistantMessage,
    ContentBlockDelta,
    MessageStop,
    ResponseFailed,
    TransportError,
)
from turnstream.operators import Batch
from turnstream.sinks.base import Policy
from turnstream.sources import SessionSource, when_answered
from turnstream.testing import RecordingSink, virtual_time

REQUEST: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
MB = 1_000_000


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)


def session(source: Any) -> SessionSource[bytes, Any]:
    return SessionSource([source], lambda _: decode() | parse_events() | accumulate(), announce=True)


def failed_of(sink: RecordingSink) -> ResponseFailed:
    (failed,) = [item for item in sink.items if isinstance(item, ResponseFailed)]
    return failed


# -- the request -------------------------------------------------------------------------------------


@virtual_time
async def test_the_request_is_what_the_api_documents() -> None:
    server = Streamer(TEXT)
    async with serving(server) as url:
        request = {**REQUEST, "stream": False, "metadata": {"user_id": 2**70}}
        await collect(from_request(request, base_url=url + "/", api_key=KEY))
    ((path, headers, body),) = server.requests
    assert path == "/v1/messages"
    assert headers["x-api-key"] == KEY
    assert headers["anthropic-version"] == "2023-06-01"
    assert headers["content-type"] == "application/json"
    assert json.loads(body) == {**request, "stream": True}
    assert request["stream"] is False  # the caller's own stays as it is


@virtual_time
async def test_headers_path_and_the_key_of_the_environment() -> None:
    server = Streamer(TEXT)
    async with serving(server) as url:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ANTHROPIC_API_KEY", f"{KEY}\n")
            plain = from_request(REQUEST, base_url=f"{url}/gateway", path="v2/messages")
            bearer = from_request(
                REQUEST, base_url=url, headers={"Authorization": "Bearer t", "Anthropic-Version": "x", "x-more": "1"}
            )
        keyless = from_request(REQUEST, base_url=url)
        for source in (plain, bearer, keyless):
            await collect(source)
    first, second, third = server.requests
    assert first[0] == "/gateway/v2/messages"
    assert first[1]["x-api-key"] == KEY
    assert "x-api-key" not in second[1]
    assert (second[1]["authorization"], second[1]["anthropic-version"], second[1]["x-more"]) == ("Bearer t", "x", "1")
    assert "x-api-key" not in third[1]


@virtual_time
async def test_nothing_is_requested_before_the_run_starts_and_each_run_requests_once() -> None:
    server = Streamer(TEXT)
    async with serving(server) as url:
        source = from_request(REQUEST, base_url=url)
        stream = source.batches()
        pipeline = Pipeline(source).to(RecordingSink())
        await asyncio.sleep(10)
        assert server.requests == []
        await stream.aclose()  # type: ignore[union-attr]
        assert (await pipeline.run()).ok
        assert len(server.requests) == 1
        await collect(source)
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"base_url": "ftp://host"}, "base_url"),
        ({"base_url": "api.example.com"}, "base_url"),
        ({"base_url": "http://"}, "base_url"),
        ({"base_url": "http://host:port"}, "base_url"),
        ({"base_url": "http://host?key=secret"}, "base_url"),
        ({"headers": {"x-a": "1\r\nx-b: 2"}}, "x-a"),
        ({"api_key": "sk-\x00secret"}, "x-api-key"),
        ({"request": {"messages": object()}}, "JSON"),
    ],
)
def test_what_cannot_be_sent_is_refused_at_once(arguments: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word) as refused:
        from_request(**{"request": REQUEST, **arguments})
    assert "secret" not in str(refused.value)


# -- the answer --------------------------------------------------------------------------------------


@virtual_time
async def test_bytes_come_stamped_weighed_and_in_chunks_of_at_most_64_kib() -> None:
    body = TEXT * 500
    async with serving(Streamer(body)) as url:
        source = from_request(REQUEST, base_url=url)
        loop = asyncio.get_running_loop()
        before = loop.time()
        batches = await collect(source)
        after = loop.time()
    assert joined(batches) == body
    assert all(batch.weight == len(batch[0]) <= 64 * 1024 for batch in batches)
    assert all(batch.at is not None and before <= batch.at <= after for batch in batches)
    assert (source.status, source.request_id) == (200, "req_served")
    assert source.content_type == "text/event-stream"


@virtual_time
async def test_a_compressed_answer_is_the_same() -> None:
    body = TEXT * 500
    server = Streamer(body, gzip=True)
    async with serving(server) as url:
        batches = await collect(from_request(REQUEST, base_url=url))
    assert joined(batches) == body
    assert max(batch.weight for batch in batches) <= 64 * 1024
    assert "gzip" in server.requests[0][1]["accept-encoding"]


@virtual_time
async def test_a_data_line_of_700_kib() -> None:
    text = "x" * 700 * 1024
    start = b'"text_delta","text":"'
    body = TEXT.replace(start, start + text.encode(), 1)
    assert len(body) > len(text)
    async with serving(Streamer(body)) as url:
        sink = RecordingSink()
        assert (await Pipeline(session(from_request(REQUEST, base_url=url))).to(sink).run()).ok
    (message,) = [item for item in sink.items if isinstance(item, AssistantMessage)]
    assert message.message["content"][0]["text"].startswith(text)


@virtual_time
async def test_a_json_message_instead_of_a_stream() -> None:
    whole = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
        "stop_sequence": None, "content": [{"type": "text", "text": "Hello"}],
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }  # fmt: skip
    async with serving(refusing(200, json.dumps(whole).encode(), request_id="req_json")) as url:
        source = from_request(REQUEST, base_url=url)
        sink = RecordingSink()
        stages = when_answered(
            lambda: decode(content_type=source.content_type) | parse_events() | accumulate(request_id=source.request_id)
        )
        outcome = await Pipeline(SessionSource([source], lambda _: stages)).to(sink).run()
    assert (outcome.ok, outcome.answers_complete) == (True, 1)
    (message,) = [item for item in sink.items if isinstance(item, AssistantMessage)]
    assert message.message["content"] == whole["content"]
    # what only the response says reached the stages
    assert message.request_id == "req_json"
    assert source.content_type == "application/json"


# -- backpressure ------------------------------------------------------------------------------------


class Gate(SinkBase):
    """Lossless; once shut it is full until it is opened."""

    name = "gate"
    policy: Policy = "block"

    def __init__(self) -> None:
        self.length = 0
        self.taken = 0
        self.shut_after = 1
        self.opened = asyncio.Event()

    def on_next(self, batch: Sequence[Any], /) -> None:
        assert isinstance(batch, Batch)
        self.taken += batch.weight
        for item in batch:
            if isinstance(item, ContentBlockDelta):
                self.length += len(item.delta.text)  # type: ignore[union-attr]

    def full(self) -> bool:
        return self.taken >= self.shut_after and not self.opened.is_set()

    async def room(self) -> None:
        await self.opened.wait()


def event(value: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (value["type"].encode(), json.dumps(value).encode())


@virtual_time(debug=False)
async def test_a_paused_consumer_pauses_the_servers_socket() -> None:
    text = "x" * 2000
    delta = event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})
    per_piece = 50
    piece = delta * per_piece
    pieces = 50 * MB // len(piece) + 1
    head, tail = TEXT.split(b"event: content_block_delta", 1)
    tail = b"event: content_block_stop" + tail.split(b"event: content_block_stop", 1)[1]
    server = Streamer(head, *[piece] * pieces, tail)
    gate = Gate()
    async with serving(server) as url:
        async with Pipeline(session(from_request(REQUEST, base_url=url))).to(gate) as run:
            # On this loop, time passes only when no socket has anything to do any more.
            while server.drained or not server.buffered:
                assert not server.sent.is_set()
                await asyncio.sleep(1)
            stopped_at = server.written
            await asyncio.sleep(5)
            # The server is stuck in one write: nothing is read, only the kernel's buffers are full.
            assert (server.written, server.drained, server.sent.is_set()) == (stopped_at, False, False)
            assert server.buffered > 0
            assert stopped_at < 25 * MB
            assert gate.taken < MB
            gate.opened.set()
            outcome = await run
    assert outcome.ok
    assert server.written > 50 * MB
    assert gate.length == pieces * per_piece * len(text)
    assert outcome.bytes == server.written


# -- ends --------------------------------------------------------------------------------------------


@virtual_time
async def test_abort_closes_the_connection_and_keeps_what_came() -> None:
    server = Streamer(TRUNCATED, ending="hang")
    sink = RecordingSink()
    async with serving(server) as url:
        async with Pipeline(session(from_request(REQUEST, base_url=url))).to(sink) as run:
            await server.sent.wait()
            await asyncio.sleep(1)
            assert not server.gone.is_set()
            run.abort("enough")
            outcome = await run
            await server.gone.wait()
    assert outcome.status == "aborted"
    failed = failed_of(sink)
    assert failed.error["type"] == "aborted"
    assert failed.kept
    assert any(isinstance(item, AssistantMessage) and item.is_aborted_mid_stream for item in sink.items)


@virtual_time
async def test_leaving_the_block_releases_the_connection() -> None:
    server = Streamer(TEXT[: len(TEXT) // 2], ending="hang")
    async with serving(server) as url:
        async with aiohttp.ClientSession() as client:
            async with Pipeline(from_request(REQUEST, base_url=url, session=client)).to(RecordingSink()):
                await server.sent.wait()
            await server.gone.wait()
            assert not client.closed
            assert client.connector is not None
            assert not client.connector._acquired  # type: ignore[attr-defined]


@virtual_time
async def test_an_iteration_that_is_left_releases_the_connection() -> None:
    server = Streamer(TEXT, ending="hang")
    async with serving(server) as url:
        stream: Any = from_request(REQUEST, base_url=url).batches()
        async for _ in stream:
            break
        await stream.aclose()
        await server.gone.wait()


@virtual_time
async def test_abort_while_the_server_has_not_answered() -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def silent(request: web.BaseRequest) -> web.StreamResponse:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()
        raise AssertionError

    async with serving(silent) as url:
        async with Pipeline(session(from_request(REQUEST, base_url=url))).to(RecordingSink()) as run:
            await asked.wait()
            run.abort()
            assert (await run).status == "aborted"
            await gone.wait()


@virtual_time
async def test_a_given_session_stays_open_and_its_connection_is_used_again() -> None:
    peers: set[Any] = set()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response(body=TEXT, content_type="text/event-stream")

    async with serving(handle) as url, aiohttp.ClientSession(raise_for_status=True) as client:
        for _ in range(3):
            await collect(from_request(REQUEST, base_url=url, session=client))
        assert not client.closed
    assert len(peers) == 1


# -- failures ----------------------------------------------------------------------------------------


@virtual_time
async def test_a_reset_in_the_middle_is_a_failure_item_that_may_be_retried_and_partials_are_kept() -> None:
    sink = RecordingSink()
    async with serving(Streamer(TRUNCATED, ending="abort")) as url:
        work = session(from_request(REQUEST, base_url=url))
        outcome = await Pipeline(work).to(sink).run()
    assert outcome.status == "failed"
    failed = failed_of(sink)
    assert failed.error["type"] == "transport_error"
    assert failed.error["retryable"] is True
    assert failed.outcome == "incomplete(1)"
    assert failed.kept
    ((_, error),) = work.errors
    assert isinstance(error, TransportError)
    assert f"after {len(TRUNCATED)} bytes" in str(error)


@virtual_time
async def test_a_clean_end_without_message_stop_is_incomplete() -> None:
    cut = TEXT[: TEXT.index(b"event: content_block_stop")]
    sink = RecordingSink()
    async with serving(Streamer(cut)) as url:
        outcome = await Pipeline(session(from_request(REQUEST, base_url=url))).to(sink).run()
    assert outcome.status == "failed"
    assert failed_of(sink).outcome == "incomplete(0)"
    assert failed_of(sink).error["type"] == "incomplete_stream"


@pytest.mark.parametrize("whole", [True, False])
@virtual_time
async def test_a_body_that_ends_with_the_connection(whole: bool) -> None:
    body = TEXT if whole else TEXT[: TEXT.index(b"event: content_block_stop")]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + body)
        writer.write_eof()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        source = session(from_request(REQUEST, base_url=f"http://127.0.0.1:{port}"))
        outcome = await Pipeline(source).to(RecordingSink()).run()
    assert outcome.ok is whole
    assert outcome.answers_complete == int(whole)


@pytest.mark.parametrize("what", [b"", b"SSH-2.0-OpenSSH\r\n"])
@virtual_time
async def test_a_server_that_speaks_no_http(what: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(what)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        source = from_request(REQUEST, base_url=f"http://127.0.0.1:{port}", api_key=KEY)
        with pytest.raises(TransportError) as broken:
            await collect(source)
    assert broken.value.retryable
    shows_no_key(broken.value, source)


@virtual_time
async def test_no_connection() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        source = from_request(REQUEST, base_url=f"http://127.0.0.1:{taken.getsockname()[1]}", api_key=KEY)
        with pytest.raises(TransportError, match="no connection") as broken:
            await collect(source)
    assert broken.value.retryable
    shows_no_key(broken.value, source)


def shows_no_key(error: BaseException, source: Any) -> None:
    # Neither what is printed nor what a debugger or an error tracker walks to.
    seen: BaseException | None = error
    while seen is not None:
        assert KEY not in f"{seen!s}{seen!r}{vars(seen)}"
        seen = seen.__cause__ or seen.__context__
    assert KEY not in repr(source)
    assert KEY not in str(source)
    assert KEY not in source.name


def error_body(kind: str, message: str = "told", **more: Any) -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}, **more}).encode()


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "invalid_request_error", False),
        (401, "authentication_error", False),
        (403, "permission_error", False),
        (404, "not_found_error", False),
        (408, "timeout_error", True),
        (409, "conflict_error", True),
        (413, "request_too_large", False),
        (429, "rate_limit_error", True),
        (500, "api_error", True),
        (529, "overloaded_error", True),
        # WIRE.md §7: never, whatever the body says
        (400, "overloaded_error", False),
    ],
)
@virtual_time
async def test_an_error_status_is_an_api_error(status: int, kind: str, retryable: bool) -> None:
    async with serving(refusing(status, error_body(kind), request_id="req_h")) as url:
        source = from_request(REQUEST, base_url=url)
        with pytest.raises(APIError) as refused:
            await collect(source)
        sink = RecordingSink()
        outcome = await Pipeline(session(source)).to(sink).run()
    error = refused.value
    assert (error.error_type, error.status, error.request_id, error.retryable) == (kind, status, "req_h", retryable)
    assert error.message == "told"
    assert outcome.status == "failed"
    failed = failed_of(sink)
    assert failed.outcome == f"api_error({kind})"
    assert failed.error == {
        "type": kind, "message": "told", "retryable": retryable, "status": status, "requestId": "req_h",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (502, b"<html>\n <h1>Bad\x07 Gateway</h1></html>", "unknown", "HTTP 502 Bad Gateway: <html> <h1>Bad"),
        (503, b"", "unknown", "HTTP 503 Service Unavailable"),
        (500, b'{"error": "boom"}', "unknown", "boom"),
        (500, b'{"detail": "boom"}', "unknown", "boom"),
        (500, b'{"error": {"type": 7, "message": null}}', "unknown", "HTTP 500"),
        (500, b"[1]", "unknown", "HTTP 500"),
        (400, error_body("x", "m", request_id="req_b"), "x", "m"),
        (429, b"<html>slow down</html>", "rate_limit_error", "HTTP 429 Too Many Requests: <html>slow down"),
        (529, b"", "overloaded_error", "HTTP 529"),
        (403, b'{"message": "no"}', "permission_error", "no"),
        (307, b"", "unknown", "redirects aren't followed"),
        (204, b"", "unknown", "HTTP 204"),
    ],
)
@virtual_time
async def test_other_bodies_of_errors(status: int, body: bytes, kind: str, message: str) -> None:
    async with serving(refusing(status, body, location="http://127.0.0.1:1/elsewhere")) as url:
        with pytest.raises(APIError) as refused:
            await collect(from_request(REQUEST, base_url=url))
    assert refused.value.error_type == kind
    assert message in refused.value.message
    assert refused.value.message.isprintable()
    assert refused.value.request_id == ("req_b" if b"req_b" in body else None)
    assert refused.value.retryable is (status >= 500 or status == 429)


@virtual_time
async def test_an_error_whose_body_is_endless_or_never_comes() -> None:
    for ending, body in (("hang", b"{"), ("end", b"x" * MB)):

        async def handle(request: web.BaseRequest, ending: str = ending, body: bytes = body) -> web.StreamResponse:
            response = web.StreamResponse(status=500)
            await response.prepare(request)
            await response.write(body)
            if ending == "hang":
                await asyncio.Event().wait()
            return response

        async with serving(handle) as url:
            with pytest.raises(APIError, match="HTTP 500") as refused:
                await collect(from_request(REQUEST, base_url=url))
        assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("headers", [None, {"authorization": f"Bearer {KEY}"}])
@virtual_time
async def test_a_server_that_quotes_the_key(headers: dict[str, str] | None) -> None:
    body = error_body("authentication_error", f"invalid key: {KEY}", request_id=f"req-{KEY}")
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(f"{record.getMessage()} {record.__dict__}")  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        async with serving(refusing(401, body)) as url:
            source = from_request(REQUEST, base_url=url, headers=headers, api_key=None if headers else KEY)
            with pytest.raises(APIError, match="invalid key") as refused:
                await collect(source)
            outcome = await Pipeline(session(source)).to(RecordingSink()).run()
    finally:
        logging.getLogger().removeHandler(handler)
    shows_no_key(refused.value, source)
    assert KEY not in repr(outcome)
    assert KEY not in "".join(heard)


@virtual_time
async def test_a_password_in_the_url_is_not_shown() -> None:
    source = from_request(REQUEST, base_url="https://me:pass-word@host.example:8443/base/", path="/v1/x?token=t")
    assert source.name == "https://host.example:8443/base/v1/x"
    assert repr(source) == "<HTTPSource https://host.example:8443/base/v1/x>"


@virtual_time
async def test_several_answers_one_session() -> None:
    server = Streamer(TOOLS)
    async with serving(server) as url:
        sources = [from_request(REQUEST, base_url=url) for _ in range(3)]
        stages = decode() | parse_events() | accumulate()
        batches = await collect(SessionSource(sources, lambda _: stages))
    assert sum(isinstance(item, MessageStop) for item in items_of(batches)) == 3
    assert len(server.requests) == 3
