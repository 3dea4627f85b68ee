"""Faults of tools, ends, aborts and release in live runs: real sockets, virtual time (FAULTS.md 84, 91-98, 111)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import aiohttp
import frames as f
import pytest
import trustme
from aiohttp import web
from serving import Streamer, serving
from stalling import WAYS, Drip, Executor, as_it_is, in_attempts, now
from transcripts import records

from turnstream import Pipeline, SinkBase, accumulate, from_request, parse_events, to_async_iterable
from turnstream.messages import (
    AssistantMessage,
    ContentBlockDelta,
    RequestStart,
    ResponseFailed,
    SystemMessage,
    Tombstone,
    UserMessage,
)
from turnstream.operators.resilience import NO_RETRY, RetryPolicy
from turnstream.serve import serve_recordings
from turnstream.sinks.base import Policy
from turnstream.sinks.transcript import TranscriptSink
from turnstream.sinks.ui import UISink
from turnstream.sources import Source, shared_session
from turnstream.sources.base import LiveBatches
from turnstream.sources.http import HTTPSource, decode_answer
from turnstream.sources.resilient import FallBack, ResilientSource, resilient
from turnstream.testing import RecordingSink, virtual_time

REQUEST: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
TOOL = f.sse(f.start("msg_1"), f.says("look"), f.calls(1, '{"path": ', '"a"}'), f.turn("tool_use"), f.STOP)
AGAIN = f.sse(
    f.start("msg_2"),
    f.says("look"),
    [f.opens_tool(1, "toolu_again"), f.args(1, '{"path": "a"}'), f.closes(1)],
    f.turn("tool_use"),
    f.STOP,
)
# the finished text, and half of a tool's input
HALF = [f.sse(f.start("msg_1")), f.sse(*f.says("look")), f.sse(f.opens_tool(1), f.args(1, '{"path": '))]


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)


def asking(url: str, **options: Any) -> ResilientSource:
    def make(start: RequestStart) -> Source[bytes]:
        return from_request(REQUEST, base_url=url)

    return resilient(
        make,
        lambda source: decode_answer(source) | parse_events() | accumulate(),  # type: ignore[arg-type]
        chance=lambda: 0.5,
        **options,
    )


def plain(url: str) -> FallBack:
    return FallBack(lambda start: from_request(REQUEST, base_url=url, stream=False), "a request that doesn't stream")


def of(sink: RecordingSink, *kinds: type) -> list[Any]:
    return [item for item in sink.items if isinstance(item, kinds)]


# -- 84: a watchdog that is always armed --------------------------------------------------------------


@virtual_time(debug=False, max_moves=2_000)
async def test_fault_84_a_tls_peer_that_reads_no_more() -> None:
    """Half-open: who is gone says no goodbye, either; the wait ends all the same when its time is up."""
    authority = trustme.CA()
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(server_side)
    client_side = ssl.create_default_context()
    authority.configure_trust(client_side)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for part in HALF:
            await response.write(part)
        assert request.transport is not None
        request.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()
        return response

    seen: list[tuple[float, str]] = []

    class Sees(SinkBase):
        name = "sees"

        def on_next(self, batch: Sequence[Any], /) -> None:
            seen.extend((now(), item.error["type"]) for item in batch if isinstance(item, ResponseFailed))

    runner = web.ServerRunner(web.Server(handle, handler_cancellation=True), shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_side).start()
        url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=client_side)) as mine:
            began = now()
            await as_it_is(from_request(REQUEST, base_url=url, session=mine)).to(Sees()).run()
    finally:
        await runner.cleanup()
    ((at, kind),) = seen
    assert (at - began, kind) == (pytest.approx(90, abs=1), "stream_idle_timeout")


# -- 91, 92: tools ------------------------------------------------------------------------------------


@virtual_time
async def test_fault_91_dying_inside_the_input_twice_is_one_action() -> None:
    async with serve_recordings([TOOL], fault="cut-after=tool,times=2") as server:
        sink, executor = RecordingSink(), Executor()
        outcome = await Pipeline(asking(server.url)).to(executor, sink).run()
        assert len(server.requests) == 3
    assert (outcome.ok, executor.started) == (True, 1)
    assert not any(message.unfinished_tool_inputs for message in of(sink, AssistantMessage))


@virtual_time
async def test_fault_91_the_tries_are_bounded() -> None:
    async with serve_recordings([TOOL], fault="cut-after=tool") as server:
        sink, executor = RecordingSink(), Executor()
        await Pipeline(asking(server.url, retry=RetryPolicy(tries=2))).to(executor, sink).run()
        assert len(server.requests) == 2
    assert executor.started == 0
    assert len(of(sink, ResponseFailed)) == 1


@virtual_time
async def test_fault_91_a_tool_that_started_is_never_asked_for_again() -> None:
    async with serve_recordings([TOOL, AGAIN], fault="cut-after=blocks,times=1") as server:
        sink, executor = RecordingSink(), Executor()
        await Pipeline(asking(server.url)).to(executor, sink).run()
        assert len(server.requests) == 1
    assert executor.started == 1
    (failed,) = of(sink, ResponseFailed)
    assert [block["type"] for block in failed.kept] == ["text", "tool_use"]
    assert not of(sink, Tombstone, SystemMessage)


@pytest.mark.parametrize("start_tools", [True, False])
@virtual_time
async def test_fault_92_the_same_tool_under_another_id_runs_once(start_tools: bool, tmp_path: Path) -> None:
    """A tool, a stall, a fallback that asks for the same: refused once it ran, else the first one is gone everywhere."""
    out = tmp_path / "t.jsonl"
    sink, ui, executor = RecordingSink(), UISink(keep=True), Executor()
    async with (
        serve_recordings([TOOL], fault="stall-after=blocks") as first,
        serve_recordings([AGAIN]) as other,
    ):
        source = asking(first.url, retry=NO_RETRY, fall_back=[plain(other.url)])
        sinks = [executor] if start_tools else []
        await Pipeline(source).to(*sinks, sink, ui, TranscriptSink(out)).run()
        assert len(other.requests) == (0 if start_tools else 1)
    assert executor.started == (1 if start_tools else 0)
    expected = ["toolu_a" if start_tools else "toolu_again"]
    shown = [item.message for item in ui.state.snapshot().items]
    for messages in (
        [record["message"] for record in records(out) if record["type"] == "assistant"],
        [message.message for message in shown if isinstance(message, AssistantMessage)],
    ):
        blocks = [block for message in messages for block in message["content"]]
        assert [block["id"] for block in blocks if block["type"] == "tool_use"] == expected
        assert len(blocks) == 2
    assert len(of(sink, Tombstone)) == (0 if start_tools else 2)


# -- 93: errors inside of a stream ----------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "requests"), [("overloaded_error", 2), ("rate_limit_error", 2), ("api_error", 2)])
@pytest.mark.parametrize("after", [0, 3])
@virtual_time
async def test_fault_93_the_type_decides_behind_a_200(kind: str, requests: int, after: int) -> None:
    async with serve_recordings([TOOL], fault=f"overloaded-after={after},error-type={kind},times=1") as server:
        sink = RecordingSink()
        assert (await Pipeline(asking(server.url)).to(sink).run()).ok
        assert len(server.requests) == requests
    (waiting,) = of(sink, SystemMessage)
    error = waiting.fields["error"]
    assert (error["type"], error["retryable"]) == (kind, True)
    assert error["requestId"].startswith("req_")


@pytest.mark.parametrize("kind", ["authentication_error", "invalid_request_error", "not_found_error"])
@virtual_time
async def test_fault_95_nor_is_a_refusal_behind_a_200_tried_again(kind: str) -> None:
    async with serve_recordings([TOOL], fault=f"overloaded,error-type={kind}") as server:
        sink = RecordingSink()
        await Pipeline(asking(server.url)).to(sink).run()
        assert len(server.requests) == 1
    assert [failed.outcome for failed in of(sink, ResponseFailed)] == [f"api_error({kind})"]
    assert not of(sink, SystemMessage)


# -- 97: an end before message_stop ----------------------------------------------------------------------


@pytest.mark.parametrize(("ending", "kind"), [("end", "incomplete_stream"), ("abort", "transport_error")])
@pytest.mark.parametrize("way", WAYS)
@virtual_time(max_moves=2_000)
async def test_fault_97_an_end_is_seen_when_it_comes(way: Any, ending: str, kind: str) -> None:
    """A second after the last event: a body that is closed as it should be, and a connection that is reset."""
    server = Drip(*HALF, 1.0, hang=False) if ending == "end" else Streamer(*HALF, ending="abort")
    async with serving(server) as url, shared_session() as session:
        sink = RecordingSink()
        began = now()
        assert not (await way(from_request(REQUEST, base_url=url, session=session)).to(sink).run()).ok
        assert now() - began == pytest.approx(1)
    (failed,) = of(sink, ResponseFailed)
    assert (failed.error["type"], failed.error["retryable"], failed.outcome) == (kind, True, "incomplete(1)")


# -- 98: nothing after the end but the repairs ------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@virtual_time
async def test_fault_98_an_abort_inside_a_tool_input(way: Any) -> None:
    server = Drip(*[step for part in HALF for step in (part, 1.0)], 5.0, f.sse(f.args(1, '"a"}'), f.closes(1)))
    async with serving(server) as url:
        sink = RecordingSink()
        async with way(from_request(REQUEST, base_url=url)).to(sink) as run:
            await asyncio.sleep(4)
            before = len(sink.items)
            run.abort("user")
            outcome = await run
        assert await server.gone == pytest.approx(4)
        await asyncio.sleep(60)
    assert outcome.status == "aborted"
    # what was open is marked, the failure told, the interruption said; and nothing else
    partial, failed, interruption = sink.items[before:]
    assert isinstance(partial, AssistantMessage)
    assert partial.unfinished_tool_inputs == [{"index": 1, "id": "toolu_a", "name": "look", "raw": '{"path": '}]
    assert isinstance(failed, ResponseFailed)
    assert failed.error["type"] == "aborted"
    assert isinstance(interruption, UserMessage)


@pytest.mark.parametrize("way", WAYS)
@virtual_time
async def test_fault_98_dispose_is_silent(way: Any) -> None:
    server = Drip(*[step for part in HALF for step in (part, 1.0)], 5.0, f.sse(f.args(1, '"a"}'), f.closes(1)))
    async with serving(server) as url:
        sink = RecordingSink()
        async with way(from_request(REQUEST, base_url=url)).to(sink) as run:
            await asyncio.sleep(4)
            before = len(sink.items)
            run.dispose()
            outcome = await run
        assert await server.gone == pytest.approx(4)
        await asyncio.sleep(60)
    assert outcome.status == "disposed"
    assert len(sink.items) == before


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", ["abort", "dispose"])
@virtual_time
async def test_fault_98_bytes_of_the_same_turn_come_too_late(way: Any, how: str) -> None:
    """They lie in the socket when the run is broken off, and the loop reads them before the run's task wakes up."""
    runs: list[Any] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for part in (f.sse(f.start("msg_1")), f.sse(f.opens_text()), f.sse(f.text(0, "in time"))):
            await response.write(part)
            await asyncio.sleep(1)
        asyncio.get_running_loop().call_soon(getattr(runs[0], how))
        await response.write(f.sse(f.text(0, "too late")))
        await asyncio.Event().wait()
        return response

    async with serving(handle) as url:
        sink = RecordingSink()
        async with way(from_request(REQUEST, base_url=url)).to(sink) as run:
            runs.append(run)
            outcome = await run
    assert outcome.status == ("aborted" if how == "abort" else "disposed")
    assert [item.delta.text for item in of(sink, ContentBlockDelta)] == ["in time"]
    partials = [m.message["content"][0]["text"] for m in of(sink, AssistantMessage)]
    assert partials == (["in time"] if how == "abort" else [])


class Full(SinkBase):
    """Has no room from the ``error`` event on."""

    name = "full"
    policy: Policy = "block"
    stall_timeout = None

    def __init__(self) -> None:
        self.waiting = asyncio.Event()

    def on_next(self, batch: Sequence[Any], /) -> None:
        if any(item.__class__.__name__ == "ErrorEvent" for item in batch):
            self.waiting.set()

    def full(self) -> bool:
        return self.waiting.is_set()

    async def room(self) -> None:
        await asyncio.Event().wait()


@virtual_time
async def test_fault_98_an_abort_before_a_failure_is_judged_tells_it() -> None:
    """It was held back for the decision whether to try again; now there is none."""
    server = Drip(f.sse(f.start("msg_1"), f.opens_text(), f.text(0, "half")), 1.0, f.sse(f.fails()))
    async with serving(server) as url:
        sink, full = RecordingSink(), Full()
        async with Pipeline(asking(url)).to(full, sink) as run:
            await full.waiting.wait()
            await asyncio.sleep(1)
            run.abort("user")
            await run
    assert [failed.error["type"] for failed in of(sink, ResponseFailed)] == ["overloaded_error"]
    (partial,) = of(sink, AssistantMessage)
    assert partial.is_aborted_mid_stream
    assert not of(sink, Tombstone, SystemMessage)


# -- 111: whoever leaves lets go --------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("way", WAYS)
@virtual_time
async def test_fault_111_leaving_after_two_items_lets_go_of_the_response(
    way: Any, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whoever reads it, when the block is left: not when somebody collects it."""
    opened: list[LiveBatches[Any]] = []
    closed: list[LiveBatches[Any]] = []
    close = LiveBatches.aclose

    class Counting(HTTPSource):
        def batches(self) -> LiveBatches[bytes]:
            stream = super().batches()
            opened.append(stream)
            return stream

    async def closing(self: LiveBatches[Any]) -> None:
        await close(self)
        closed.append(self)

    monkeypatch.setattr(LiveBatches, "aclose", closing)
    server = Drip(*[step for part in HALF for step in (part, 1.0)])
    async with serving(server) as url, shared_session() as session:
        source = from_request(REQUEST, base_url=url, session=session if shared else None)
        source.__class__ = Counting
        taken = 2 if way is not in_attempts else 3  # its RequestStart comes before
        began = now()
        async with aclosing(to_async_iterable(way(source))) as items:
            async for _ in items:
                taken -= 1
                if not taken:
                    break
        (stream,) = opened
        assert stream in closed
        left = now()
        assert await server.gone == left
        assert left - began < 3
