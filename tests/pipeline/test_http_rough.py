"""Servers, networks and clients that misbehave, and what must not come of it (WIRE.md §7; FAULTS.md 84, 111)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import frames as f
import pytest
from pulling import joined
from serving import KEY, TEXT
from wire_client import STREAM

from turnstream import Pipeline, accumulate, decode, from_request, parse_events
from turnstream.flow.clocks import Clocks
from turnstream.messages import StreamIdleTimeout, StreamNote, TransportError
from turnstream.operators import Batch
from turnstream.operators.resilience import NO_RETRY
from turnstream.record import record_proxy
from turnstream.serve import serve_recordings
from turnstream.sources import SessionSource, Source
from turnstream.sources.http import shared_session
from turnstream.sources.resilient import resilient
from turnstream.testing import RecordingSink, virtual_time

REQUEST: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
MB = 1_000_000
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)


@contextlib.asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[str]:
    """A bare TCP server."""
    tasks: set[asyncio.Task[Any]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await answer(reader, writer)
        except (ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, limit=16 * MB)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)
        await server.wait_closed()


async def request_of(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    return head, await reader.readexactly(length)


def transports_to(url: str) -> list[Any]:
    """The client's open ones."""
    gc.collect()
    port = int(url.rpartition(":")[2])
    return [
        each
        for each in gc.get_objects()
        if isinstance(each, asyncio.Transport) and (each.get_extra_info("peername") or (0, 0))[1] == port
        if getattr(each, "_sock", None) is not None
    ]


@virtual_time
async def test_a_request_of_megabytes_goes_out_whole_and_without_a_warning() -> None:
    came: list[tuple[bytes, bytes]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(await request_of(reader))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(TEXT) + TEXT)
        await writer.drain()

    request = {**REQUEST, "messages": [{"role": "user", "content": "é" * 2 * MB}]}
    async with answering(answer) as url:
        source = from_request(request, base_url=url)
        for _ in range(2):
            assert joined([batch async for batch in source.batches()]) == TEXT
    for head, body in came:
        assert b"transfer-encoding" not in head.lower()
        assert head.lower().count(b"content-type: application/json") == 1
        assert json.loads(body) == {**request, "stream": True}


@pytest.mark.parametrize("how", ["clock", "abort", "dispose", "shared"])
@virtual_time
async def test_a_request_that_the_server_does_not_read_is_let_go_of(how: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    request = {**REQUEST, "messages": [{"role": "user", "content": "H" * 20 * MB}]}
    async with answering(answer) as url, contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(shared_session()) if how == "shared" else None
        source = from_request(request, base_url=url, session=session, clocks=Clocks(first_byte=30))
        async with Pipeline(source).through(decode()) as run:
            await asyncio.sleep(10)
            assert transports_to(url)
            if how == "abort":
                run.abort("enough")
            elif how == "dispose":
                run.dispose()
            outcome = await run
        await asyncio.sleep(0)
        assert not transports_to(url)
    assert isinstance(outcome.error, StreamIdleTimeout) == (how in ("clock", "shared"))


@virtual_time
async def test_half_a_head_is_not_quoted() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nset-cookie: session=of-the-server\r\n")
        await writer.drain()

    async with answering(answer) as url:
        outcome = await Pipeline(from_request(REQUEST, base_url=url)).through(decode()).run()
    assert isinstance(outcome.error, TransportError)
    assert outcome.error.retryable
    assert str(outcome.error).startswith("the connection broke before the answer came: the server closed it")


@virtual_time
async def test_a_key_that_comes_back_in_headers() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        key = KEY.encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; for=%b\r\nrequest-id: %b\r\n"
            b"anthropic-ratelimit-requests-reset: %b\r\nanthropic-ratelimit-requests-limit: 5\r\n"
            b"content-length: %d\r\n\r\n%b" % (key, key, key, len(TEXT), TEXT)
        )
        await writer.drain()

    sink = RecordingSink()
    async with answering(answer) as url:
        source = from_request(REQUEST, base_url=url, api_key=KEY)
        await Pipeline(source).through(decode() | parse_events() | accumulate()).to(sink).run()
    (note,) = [item for item in sink.items if isinstance(item, StreamNote)]
    assert source.rate_limits == {"requests": {"reset": "[redacted]", "limit": 5}}
    assert KEY not in f"{note} {source.content_type} {source.request_id}"


@pytest.mark.parametrize("host", ["a..b", f"{'a' * 64}.invalid"])
@virtual_time
async def test_a_host_name_that_cannot_be_one(host: str) -> None:
    outcome = await Pipeline(from_request(REQUEST, base_url=f"http://{host}")).through(decode()).run()
    assert isinstance(outcome.error, TransportError)
    assert not outcome.error.retryable


# -- a flood of comments -----------------------------------------------------------------------------

COMMENTS = b": keepalive\n\n" * 5000
PIECES = 64


class Flood(Source[bytes]):
    """Comments that never have to be waited for, as out of a compressed answer."""

    name = "flood"

    async def batches(self) -> AsyncIterator[Batch[bytes]]:
        for _ in range(PIECES):
            yield Batch((COMMENTS,), 0.0, None, len(COMMENTS))


def stages(source: Any) -> Any:
    return decode() | parse_events() | accumulate()


@pytest.mark.parametrize("kind", ["resilient", "session"])
@virtual_time
async def test_a_flood_of_comments_leaves_the_loop_its_turns(kind: str) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    source: Source[Any]
    if kind == "resilient":
        source = resilient(lambda start: Flood(), stages, retry=NO_RETRY)
    else:
        source = SessionSource([Flood()], stages)
    counting = asyncio.create_task(count())
    outcome = await Pipeline(source).run()
    counting.cancel()
    # At least every 64 KiB, and each piece is nearly that.
    assert turns >= PIECES * len(COMMENTS) // (128 * 1024)
    assert outcome.bytes == PIECES * len(COMMENTS)


def test_fault_10_a_flood_of_comments_is_no_progress() -> None:
    async def flooded() -> Any:
        # Its own time counts; whatever the machine, to look through a piece takes longer than this.
        clocks = Clocks(progress=1e-9)
        return await Pipeline(resilient(lambda start: Flood(), stages, retry=NO_RETRY, clocks=clocks)).run()

    outcome = asyncio.run(flooded())
    (failed,) = outcome.failures
    assert failed.error["type"] == "stream_idle_timeout"


# -- clients of our servers ---------------------------------------------------------------------------

LONG = f.sse(f.start("msg_1"), *(f.says("x" * MB, index) for index in range(20)), f.turn(), f.STOP)


@pytest.mark.parametrize("kind", ["serve", "record"])
@virtual_time
async def test_a_client_that_reads_nothing_is_cut_off_at_the_end(kind: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(serve_recordings([LONG]))
        url = server.url
        ended = stack
        if kind == "record":
            ended = await stack.enter_async_context(contextlib.AsyncExitStack())
            proxy = await ended.enter_async_context(record_proxy(url, grace=1))
            url = proxy.url
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        body = json.dumps(STREAM).encode()
        writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        await asyncio.sleep(10)
        mine = [
            each
            for each in gc.get_objects()
            if isinstance(each, asyncio.Transport)
            and (each.get_extra_info("sockname") or (0, 0))[1] == int(port)
            and each.get_write_buffer_size()
        ]
        assert mine
        await ended.aclose()
        assert not any(each.get_write_buffer_size() for each in mine)
        assert all(getattr(each, "_sock", None) is None for each in mine)
        mine.clear()
        writer.transport.abort()
        await asyncio.sleep(0)
