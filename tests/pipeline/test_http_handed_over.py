"""Live batches are handed over the moment they arrive: what a user relies on all the same (DESIGN.md §4)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import aiohttp
import pytest
import trustme
from aiohttp import web
from pulling import joined
from serving import KEY, TEXT, TOOLS, Streamer, serving

from turnstream import Clocks, Pipeline, SinkBase, accumulate, decode_sse, from_request, parse_events
from turnstream.flow.clocks import WaitClock
from turnstream.messages import (
    AssistantMessage,
    ErrorEvent,
    MessageStart,
    MessageStop,
    Ping,
    ResponseFailed,
    TransportError,
)
from turnstream.operators import Batch
from turnstream.operators.resilience import NO_RETRY
from turnstream.operators.stage import Operator, lift
from turnstream.sources import SessionSource, resilient, shared_session
from turnstream.sources.base import LiveBatches
from turnstream.sources.http.tap import Tap
from turnstream.sources.resilient import _Attempt, _Watched
from turnstream.testing import RecordingSink, run_virtual, virtual_time

REQUEST: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
EVENTS = [block + b"\n\n" for block in TEXT.split(b"\n\n") if block]

_said: ContextVar[str] = ContextVar("said", default="nothing")


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)


def stages() -> Operator[bytes, Any]:
    return decode_sse() | parse_events() | accumulate()


class Slowly(Streamer):
    """Waits a second between two pieces, so that each is read alone."""

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append((request.path, {}, await request.read()))
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        try:
            await response.prepare(request)
            for piece in self.body:
                await response.write(piece)
                await asyncio.sleep(1)
            if self.ending == "hang":
                await asyncio.Event().wait()
        except (ConnectionError, asyncio.CancelledError):
            self.gone.set()
            raise
        return response


class Looking(SinkBase):
    """Calls a function for each batch."""

    name = "looking"

    def __init__(self, look: Callable[[Batch[Any]], None]) -> None:
        self.look = look

    def on_next(self, batch: Sequence[Any], /) -> None:
        assert isinstance(batch, Batch)
        self.look(batch)


def in_session(source: Any) -> SessionSource[bytes, Any]:
    return SessionSource([source], lambda _: stages())


def in_attempts(source: Any) -> Any:
    return resilient(lambda start: source, lambda _: stages(), retry=NO_RETRY)


def as_it_is(source: Any) -> Any:
    return source


WAYS = pytest.mark.parametrize("way", [as_it_is, in_session, in_attempts])


def pipeline(way: Any, source: Any) -> Pipeline[Any]:
    whole = Pipeline(way(source))
    return whole.through(stages()) if way is as_it_is else whole


@WAYS
@virtual_time
async def test_no_task_has_to_wake_up_for_an_event(way: Any) -> None:
    """A sink is called from the loop itself, in the turn in which the bytes came."""
    tasks: list[Any] = []
    sink = RecordingSink()
    async with serving(Slowly(*EVENTS)) as url:
        looking = Looking(lambda batch: tasks.append(asyncio.current_task()))
        outcome = await pipeline(way, from_request(REQUEST, base_url=url)).to(looking, sink).run()
    assert (outcome.ok, outcome.bytes) == (True, len(TEXT))
    assert tasks.count(None) >= len(EVENTS) - 2


@WAYS
@virtual_time
async def test_sinks_run_in_the_context_of_who_started_the_run(way: Any) -> None:
    heard: list[str] = []
    started: list[asyncio.Task[None]] = []

    async def later() -> None:
        heard.append(_said.get())

    def look(batch: Batch[Any]) -> None:
        heard.append(_said.get())
        started.append(asyncio.ensure_future(later()))

    async with serving(Slowly(*EVENTS)) as url, shared_session() as shared:
        # The connection is made in another context.
        await Pipeline(from_request(REQUEST, base_url=url, session=shared)).run()
        _said.set("something")
        await pipeline(way, from_request(REQUEST, base_url=url, session=shared)).to(Looking(look)).run()
        await asyncio.gather(*started)
    assert len(heard) >= 2 * len(EVENTS)
    assert set(heard) == {"something"}


@virtual_time
async def test_an_operator_that_raises_ends_the_run_and_the_request() -> None:
    def raising(source: Any) -> Any:
        from reactivex import operators as ops

        def look(batch: Any) -> Any:
            if any(isinstance(item, MessageStop) for item in batch):
                raise LookupError("no")
            return batch

        return source.pipe(ops.do_action(look))

    server = Slowly(*EVENTS, ending="hang")
    async with serving(server) as url:
        whole = Pipeline(from_request(REQUEST, base_url=url)).through(stages()).through(raising)
        outcome = await whole.to(RecordingSink()).run()
        assert outcome.status == "broken"
        assert isinstance(outcome.error, LookupError)
        await server.gone.wait()


@WAYS
@pytest.mark.parametrize("how", ["abort", "dispose"])
@virtual_time
async def test_a_sink_may_end_the_run_from_inside(way: Any, how: str) -> None:
    server = Slowly(*EVENTS, ending="hang")
    batches = 0
    async with serving(server) as url:
        runs: list[Any] = []

        def look(batch: Batch[Any]) -> None:
            nonlocal batches
            batches += 1
            if batches == 4:
                getattr(runs[0], how)()

        async with pipeline(way, from_request(REQUEST, base_url=url)).to(Looking(look)) as run:
            runs.append(run)
            outcome = await run
        assert outcome.status == ("aborted" if how == "abort" else "disposed")
        assert batches == (5 if how == "abort" else 4)  # with what keeps and marks the open block
        await server.gone.wait()


@WAYS
@virtual_time
async def test_a_sink_that_is_lost_may_be_the_end(way: Any) -> None:
    server = Slowly(*EVENTS, ending="hang")

    def look(batch: Batch[Any]) -> None:
        if batch.weight:  # the request is out
            raise LookupError("no")

    async with serving(server) as url:
        whole = pipeline(way, from_request(REQUEST, base_url=url)).to(Looking(look), on_sink_error="fail")
        outcome = await whole.run()
        assert not outcome.ok
        assert isinstance(outcome.sink_errors["looking"].__cause__, LookupError)
        await server.gone.wait()


@WAYS
@virtual_time
async def test_the_connection_serves_the_next_request(way: Any) -> None:
    peers: list[Any] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        peers.append(request.transport.get_extra_info("peername"))
        return await Slowly(*EVENTS)(request)

    async with serving(handle) as url, shared_session() as shared:
        for _ in range(3):
            sink = RecordingSink()
            source = from_request(REQUEST, base_url=url, session=shared)
            assert (await pipeline(way, source).to(sink).run()).ok
    assert len(set(peers)) == 1


@WAYS
@virtual_time(debug=False)
async def test_large_chunks_come_in_pieces_and_the_loop_gets_its_turns(way: Any) -> None:
    delta = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}}\n\n'
    head, _ = TEXT.split(b"event: content_block_delta", 1)
    tail = b"event: content_block_stop" + TEXT.split(b"event: content_block_stop", 1)[1]
    body = head + delta % (b"x" * 900) * 3_000 + tail
    weights: list[int] = []
    turns = 0
    # Time doesn't pass while somebody spins, so the server doesn't wait either.
    async with serving(Streamer(head, body[len(head) : -len(tail)], tail)) as url:

        async def others() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1 if weights else 0

        other = asyncio.ensure_future(others())
        source = from_request(REQUEST, base_url=url)
        outcome = await pipeline(way, source).to(Looking(lambda batch: weights.append(batch.weight))).run()
        other.cancel()
    assert (outcome.ok, sum(weights)) == (True, len(body))
    assert max(weights) <= 2 * 64 * 1024  # an event that was cut counts with the piece that ends it
    assert turns >= len(body) // (64 * 1024)


@WAYS
@virtual_time
async def test_a_body_that_cannot_be_unpacked_is_told_at_once(way: Any) -> None:
    """The server goes on: nothing but the body itself says that it is broken."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"content-type": "text/event-stream", "content-encoding": "deflate"})
        await response.prepare(request)
        packer = zlib.compressobj()
        await response.write(packer.compress(TEXT[:400]) + packer.flush(zlib.Z_SYNC_FLUSH))
        await asyncio.sleep(1)
        await response.write(b"\xff" * 100)
        await asyncio.Event().wait()
        return response

    sink = RecordingSink()
    async with serving(handle) as url:
        loop = asyncio.get_running_loop()
        began = loop.time()
        outcome = await pipeline(way, from_request(REQUEST, base_url=url)).to(sink).run()
        assert loop.time() - began < 30
    assert not outcome.ok
    assert isinstance(outcome.error, TransportError)


@WAYS
@virtual_time(debug=False)
async def test_over_tls(way: Any) -> None:
    authority = trustme.CA()
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(server_side)
    client_side = ssl.create_default_context()
    authority.configure_trust(client_side)
    runner = web.ServerRunner(web.Server(Slowly(*EVENTS)))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_side).start()
        url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=client_side)) as mine:
            for _ in range(2):
                source = from_request(REQUEST, base_url=url, session=mine)
                outcome = await pipeline(way, source).to(RecordingSink()).run()
                assert (outcome.ok, outcome.bytes) == (True, len(TEXT))
    finally:
        await runner.cleanup()


@virtual_time
async def test_a_failure_in_the_stream_ends_the_attempt_though_the_server_keeps_the_line_open() -> None:
    head = b"".join(EVENTS[:4])
    overloaded = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    server = Slowly(head, overloaded, ending="hang")
    async with serving(server) as url:

        def make(start: Any) -> Any:
            return from_request(REQUEST, base_url=url if start.attempt == 1 else good)

        async with serving(Slowly(*EVENTS)) as good:
            loop = asyncio.get_running_loop()
            began = loop.time()
            outcome = await Pipeline(resilient(make, lambda _: stages())).to(RecordingSink()).run()
            assert outcome.ok
            assert loop.time() - began < 60  # no clock had to run out
            await server.gone.wait()


@pytest.mark.parametrize("way", [in_session, in_attempts])
@virtual_time
async def test_a_key_that_an_error_in_the_stream_quotes_goes_no_further(way: Any) -> None:
    refused = b'event: error\ndata: {"type":"error","error":{"type":"authentication_error","message":"no: %s","by":["%s"]}}\n\n'
    told = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}}\n\n'
    key = KEY.encode()
    sink = RecordingSink()
    async with serving(Slowly(*EVENTS[:3], told % key, refused % (key, key))) as url:
        outcome = await pipeline(way, from_request(REQUEST, base_url=url, api_key=KEY)).to(sink).run()
    assert not outcome.ok
    (failed,) = outcome.failures
    assert failed.error["message"] == "no: [redacted]"
    assert KEY not in repr([item.error for item in sink.items if isinstance(item, ResponseFailed | ErrorEvent)])
    # what the model writes is the owner's, and may be meant for a file of his
    (message,) = [item for item in sink.items if isinstance(item, AssistantMessage)]
    assert KEY in message.message["content"][0]["text"]


@virtual_time
async def test_who_asks_gets_every_batch_and_a_taker_those_that_come_while_he_asks() -> None:
    async with serving(Slowly(*EVENTS)) as url:
        asked = [batch async for batch in from_request(REQUEST, base_url=url).batches()]
        assert joined(asked) == TEXT
        taken: list[Batch[bytes]] = []

        def take(batch: Batch[bytes]) -> bool:
            taken.append(batch)
            return len(taken) % 3 != 0

        stream = from_request(REQUEST, base_url=url).batches()
        assert isinstance(stream, LiveBatches)
        stream.hand_to(take)
        given = [batch async for batch in stream]
    assert joined(given[:1]) + joined(taken) == TEXT
    assert [batch for batch in given[1:] if batch.items or batch.weight] == []
    assert len(given) - 1 == len(taken) // 3


@virtual_time
async def test_a_taker_that_raises_is_told_by_who_asks() -> None:
    def take(batch: Batch[bytes]) -> bool:
        raise LookupError("no")

    server = Slowly(*EVENTS, ending="hang")
    async with serving(server) as url:
        stream = from_request(REQUEST, base_url=url).batches()
        stream.hand_to(take)
        with pytest.raises(LookupError):
            _ = [batch async for batch in stream]
        await server.gone.wait()


@virtual_time
async def test_tools_come_through_whatever_way() -> None:
    found = []
    for way in (as_it_is, in_session, in_attempts):
        sink = RecordingSink()
        async with serving(Slowly(*[block + b"\n\n" for block in TOOLS.split(b"\n\n") if block])) as url:
            assert (await pipeline(way, from_request(REQUEST, base_url=url)).to(sink).run()).ok
        found.append([item.message["content"] for item in sink.items if isinstance(item, AssistantMessage)])
    assert found[0] == found[1] == found[2]
    assert [block["type"] for content in found[0] for block in content].count("tool_use") == 2


# -- what broke once ---------------------------------------------------------------------------------------


class FullForTurns(RecordingSink):
    """Lossless; full after each batch, for some turns of the loop."""

    def __init__(self, turns: int) -> None:
        super().__init__()
        self._turns = turns
        self._full = False

    def on_next(self, batch: Sequence[Any], /) -> None:
        super().on_next(batch)
        self._full = True

    def full(self) -> bool:
        return self._full

    async def room(self) -> None:
        for _ in range(self._turns):
            await asyncio.sleep(0)
        self._full = False


@asynccontextmanager
async def over_tls(*pieces: bytes) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    """A server whose answers end with their connection, and a session that trusts it."""
    authority = trustme.CA()
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(server_side)
    client_side = ssl.create_default_context()
    authority.configure_trust(client_side)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=server_side)
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=client_side)) as mine:
            yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", mine
    finally:
        server.close()
        await server.wait_closed()


@WAYS
@virtual_time(debug=False)
async def test_tls_answers_that_end_with_their_connection(way: Any, caplog: pytest.LogCaptureFixture) -> None:
    """TLS lets go of its protocol a turn before it says that the connection is lost."""
    for pieces in (EVENTS, [TEXT], [TEXT[:700], TEXT[700:]]):
        async with over_tls(*pieces) as (url, mine):
            for turns in range(12):
                source = from_request(REQUEST, base_url=url, session=mine)
                outcome = await pipeline(way, source).to(FullForTurns(turns)).run()
                assert (outcome.ok, outcome.error, outcome.bytes) == (True, None, len(TEXT)), turns
    assert caplog.records == []


@virtual_time
async def test_an_abort_in_the_turn_in_which_a_flood_is_noticed_is_an_abort() -> None:
    """Both end a wait by cancelling the task; the one isn't to be taken for the other."""
    loop: Any = asyncio.get_running_loop()
    ping = b'event: ping\ndata: {"type":"ping"}\n\n'
    server = Slowly(b"".join(EVENTS[:3]), *[ping] * 50, ending="hang")
    runs: list[Any] = []

    class Working:
        """Takes its time for a ping, as somebody who computes."""

        def feed(self, batch: Sequence[Any]) -> Sequence[Any]:
            if any(isinstance(item, Ping) for item in batch):
                loop._set_time(loop.time() + 700)
            return batch

        def flush(self) -> Sequence[Any]:
            return ()

        def fail(self, error: Exception) -> Sequence[Any]:
            return ()

    def look(batch: Batch[Any]) -> None:
        if any(isinstance(item, Ping) for item in batch):
            runs[0].abort("enough")

    # With a session of somebody else nothing is awaited on the way out, so the timer comes too late to cancel as well.
    async with serving(server) as url, shared_session() as shared:
        source = resilient(
            lambda start: from_request(REQUEST, base_url=url, session=shared, clocks=Clocks.off()),
            lambda _: stages() | lift(Working),
        )
        async with Pipeline(source).to(Looking(look)) as run:
            runs.append(run)
            outcome = await run
    assert (outcome.status, source.attempts, len(server.requests)) == ("aborted", 1, 1)


@virtual_time(debug=False)
async def test_nothing_is_pushed_behind_what_made_an_operator_raise() -> None:
    """It would be a hole in what the sinks get."""
    delta = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}}\n\n'
    calls: list[int] = []

    def raising(source: Any) -> Any:
        from reactivex import create

        def subscribe(observer: Any, scheduler: Any = None) -> Any:
            def on_next(batch: Any) -> None:
                calls.append(batch.weight)
                if len(calls) == 2:
                    raise LookupError("no")
                observer.on_next(batch)

            return source.subscribe(on_next, observer.on_error, observer.on_completed)

        return create(subscribe)

    server = Slowly(b"".join(EVENTS[:3]), delta % (b"x" * 900) * 2_000, ending="hang")
    async with serving(server) as url:
        whole = Pipeline(from_request(REQUEST, base_url=url)).through(stages()).through(raising)
        outcome = await whole.to(RecordingSink()).run()
    assert isinstance(outcome.error, LookupError)
    assert calls[2:] in ([], [0])  # what was still held when it ended


@pytest.mark.parametrize("full", [False, True])
@WAYS
@virtual_time(debug=False)
async def test_a_session_that_its_owner_closes_is_told_as_a_lost_connection(way: Any, full: bool) -> None:
    class Closed(RecordingSink):
        shut = False

        def full(self) -> bool:
            return self.shut

        async def room(self) -> None:
            while self.shut:
                await asyncio.sleep(1)

    sink = Closed()
    async with serving(Slowly(*EVENTS[:5], ending="hang")) as url:
        shared = shared_session()
        source = from_request(REQUEST, base_url=url, session=shared, clocks=Clocks.off())
        async with pipeline(way, source).to(sink) as run:
            await asyncio.sleep(3.5)
            sink.shut = full
            await asyncio.sleep(3)
            await shared.close()
            await asyncio.sleep(3)
            sink.shut = False
            outcome = await run
    assert isinstance(outcome.error, TransportError)
    assert outcome.error.retryable


@pytest.mark.parametrize("turns", [0, 2])
@WAYS
@virtual_time
async def test_a_context_variable_lives_from_one_batch_to_the_next(way: Any, turns: int) -> None:
    """As tracers need it: attached at an answer's start, its token given back at its end."""
    seen: list[str] = []

    class Span(FullForTurns):
        token: Any = None

        def on_next(self, batch: Sequence[Any], /) -> None:
            super().on_next(batch)
            for item in batch:
                if isinstance(item, MessageStart):
                    self.token = _said.set("open")
                elif isinstance(item, MessageStop):
                    _said.reset(self.token)
                seen.append(_said.get())

        def full(self) -> bool:
            return bool(self._turns) and super().full()

    async with serving(Slowly(*EVENTS)) as url:
        outcome = await pipeline(way, from_request(REQUEST, base_url=url)).to(Span(turns)).run()
    assert outcome.ok
    assert seen.count("open") >= len(EVENTS) - 2


@WAYS
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_stream_leaves_nothing_for_the_garbage_collector(way: Any, cancelled: bool) -> None:
    """Its text would stay in memory until that runs."""
    kinds = (Tap, WaitClock, aiohttp.ClientResponse, _Attempt, _Watched)

    async def run() -> None:
        server = Slowly(*EVENTS[:6], ending="hang") if cancelled else Slowly(*EVENTS)
        async with serving(server) as url:
            whole = pipeline(way, from_request(REQUEST, base_url=url))
            if not cancelled:
                assert (await whole.to(RecordingSink()).run()).ok
                return
            async with whole.to(RecordingSink()) as run:
                await asyncio.sleep(4.5)
                run.abort("enough")
                await run

    def there() -> list[Any]:
        return [found for found in gc.get_objects() if isinstance(found, kinds)]

    gc.collect()
    gc.disable()
    try:
        before = set(map(id, kept := there()))  # of other tests, which pytest holds
        run_virtual(run(), debug=False)
        assert [found for found in there() if id(found) not in before] == []
        del kept
    finally:
        gc.enable()


@WAYS
def test_an_answer_that_is_given_up_leaves_nothing_at_all(way: Any) -> None:
    """aiohttp raises one object for all responses that were closed, and a traceback holds what its frames hold."""

    def there() -> list[Any]:
        gc.collect()
        return [found for found in gc.get_objects() if isinstance(found, (Tap, WaitClock, aiohttp.ClientResponse))]

    async def run() -> None:
        async with serving(Slowly(*EVENTS[:5], ending="hang")) as url:
            outcome = await pipeline(way, from_request(REQUEST, base_url=url)).to(RecordingSink()).run()
            assert not outcome.ok

    before = set(map(id, kept := there()))  # of other tests, which pytest holds
    for _ in range(3):
        run_virtual(run(), debug=False)
    assert [found for found in there() if id(found) not in before] == []
    del kept


@virtual_time(debug=False)
async def test_a_sinks_own_cancellation_in_full_is_no_lost_connection() -> None:
    class Odd(RecordingSink):
        def full(self) -> bool:
            if len(self.items) >= 5:
                raise asyncio.CancelledError
            return False

    async with serving(Slowly(*EVENTS, ending="hang")) as url:
        outcome = await Pipeline(from_request(REQUEST, base_url=url)).through(stages()).to(Odd()).run()
    assert outcome.status == "aborted"
