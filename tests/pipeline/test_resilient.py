"""One request that is tried again and falls back, over real sockets in virtual time (WIRE.md §7; FAULTS.md G)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import frames as f
import pytest
from aiohttp import web
from serving import serving
from stalling import Executor

from turnstream import Pipeline, SinkBase, accumulate, from_request, parse_events
from turnstream.flow.clocks import Clocks
from turnstream.messages import (
    AssistantMessage,
    RequestStart,
    ResponseFailed,
    StreamIdleTimeout,
    SystemMessage,
    Tombstone,
    TransportError,
    UserMessage,
)
from turnstream.operators import Batch
from turnstream.operators.resilience import NO_RETRY, RetryBudget, RetryPolicy
from turnstream.serve import serve_recordings
from turnstream.sources import Source, from_bytes
from turnstream.sources.http import decode_answer
from turnstream.sources.resilient import FallBack, ResilientSource, resilient
from turnstream.testing import RecordingSink, cancel_everywhere, virtual_time

REQUEST: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
ANSWER = f.sse(f.start("msg_1"), f.says("hello"), f.says("world", 1), f.turn(), f.STOP)
TOOL = f.sse(f.start("msg_1"), f.says("look"), f.calls(1, '{"a": 1}'), f.turn("tool_use"), f.STOP)


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)


def stages(source: Any) -> Any:
    return decode_answer(source) | parse_events() | accumulate()


def asking(url: str, *, clocks: Clocks | None = None, stream: bool = True, **options: Any) -> ResilientSource:
    def make(start: RequestStart) -> Source[bytes]:
        return from_request(REQUEST, base_url=url, clocks=clocks)

    return resilient(make, stages, chance=lambda: 0.5, clocks=clocks, **options)


def plain(url: str, name: str = "a request that doesn't stream", **options: Any) -> FallBack:
    return FallBack(lambda start: from_request(REQUEST, base_url=url, stream=False), name, **options)


def of(sink: RecordingSink, *kinds: type) -> list[Any]:
    return [item for item in sink.items if isinstance(item, kinds)]


def texts(sink: RecordingSink) -> list[str]:
    """The texts that stay."""
    gone = {item.message.uuid for item in of(sink, Tombstone)}
    return [block["text"] for m in of(sink, AssistantMessage) if m.uuid not in gone for block in m.message["content"]]


def system(sink: RecordingSink, subtype: str) -> list[SystemMessage]:
    return [item for item in of(sink, SystemMessage) if item.subtype == subtype]


@virtual_time
async def test_a_good_answer_is_one_attempt() -> None:
    async with serve_recordings([ANSWER]) as server:
        source = asking(server.url)
        sink = RecordingSink()
        outcome = await Pipeline(source).to(sink).run()
    assert outcome.ok
    assert (outcome.answers_complete, source.attempts, len(server.requests)) == (1, 1, 1)
    assert [item.attempt for item in of(sink, RequestStart)] == [1]
    assert texts(sink) == ["hello", "world"]


@virtual_time
async def test_fault_88_headers_that_never_come_are_tried_again() -> None:
    loop = asyncio.get_running_loop()
    async with serve_recordings([ANSWER], fault="first-byte-stall,times=1") as server:
        sink = RecordingSink()
        began = loop.time()
        outcome = await Pipeline(asking(server.url)).to(sink).run()
    assert outcome.ok
    # the clock of the first byte, and the first wait
    assert loop.time() - began == pytest.approx(300.5, abs=0.5)
    (waiting,) = system(sink, "api_error")
    assert waiting.fields["error"]["type"] == "stream_idle_timeout"


@virtual_time
async def test_fault_89_a_drop_after_a_text_block() -> None:
    async with serve_recordings([ANSWER], fault="cut-after=5,times=1") as server:
        sink = RecordingSink()
        outcome = await Pipeline(asking(server.url)).to(sink).run()
    assert outcome.ok
    assert (outcome.answers_complete, outcome.answers_failed) == (1, 0)
    assert len(of(sink, Tombstone)) == 1
    assert texts(sink) == ["hello", "world"]
    assert not of(sink, ResponseFailed)


@virtual_time
async def test_fault_94_the_tries_are_counted_and_the_waits_told() -> None:
    loop = asyncio.get_running_loop()
    async with serve_recordings([ANSWER], fault="529") as server:
        sink = RecordingSink()
        began = loop.time()
        source = asking(server.url)
        outcome = await Pipeline(source).to(sink).run()
        assert len(server.requests) == 10
    # 0.5 + 1 + 2 + 4 + 8 + 16 + 32 + 32 + 32
    assert loop.time() - began == pytest.approx(127.5, abs=1)
    assert (outcome.status, outcome.answers_failed) == ("failed", 1)
    told = system(sink, "api_error")
    assert [m.fields["retryInMs"] for m in told] == [500, 1000, 2000, 4000, 8000, 16000, 32000, 32000, 32000]
    assert [m.fields["retryAttempt"] for m in told] == list(range(1, 10))
    assert [item.attempt for item in of(sink, RequestStart)] == list(range(1, 11))
    (failed,) = of(sink, ResponseFailed)
    assert failed.outcome == "api_error(overloaded_error)"
    assert len(source.errors) == 1


@virtual_time
async def test_fault_94_retry_after_is_honoured() -> None:
    loop = asyncio.get_running_loop()
    async with serve_recordings([ANSWER], fault="429=90,times=1") as server:
        sink = RecordingSink()
        began = loop.time()
        assert (await Pipeline(asking(server.url)).to(sink).run()).ok
    assert loop.time() - began == pytest.approx(90, abs=0.5)
    assert system(sink, "api_error")[0].fields["retryInMs"] == 90_000


@pytest.mark.parametrize("status", [400, 401, 403, 404])
@virtual_time
async def test_fault_95_a_refusal_is_one_request(status: int) -> None:
    async with serve_recordings([ANSWER], fault=str(status)) as server:
        sink = RecordingSink()
        outcome = await Pipeline(asking(server.url, fall_back=[plain(server.url)])).to(sink).run()
        assert len(server.requests) == 1
    assert outcome.answers_failed == 1
    assert not of(sink, SystemMessage)


@virtual_time
async def test_fault_97_a_clean_close_is_tried_again() -> None:
    loop = asyncio.get_running_loop()
    async with serve_recordings([ANSWER], fault="eof-after=5,times=1;close-after=5,times=1") as server:
        sink = RecordingSink()
        began = loop.time()
        outcome = await Pipeline(asking(server.url)).to(sink).run()
    # both ends were seen as they came: no clock ran out, and the waits are of 0.5 and 1 s
    assert loop.time() - began == pytest.approx(1.5, abs=0.5)
    assert outcome.ok
    kinds = [m.fields["error"]["type"] for m in system(sink, "api_error")]
    assert kinds == ["incomplete_stream", "transport_error"]
    assert texts(sink) == ["hello", "world"]


@virtual_time
async def test_fault_92_no_fallback_after_a_tool_started() -> None:
    async with serve_recordings([TOOL], fault="stall-after=blocks,only=stream") as server:
        sink, executor = RecordingSink(), Executor()
        source = asking(server.url, retry=NO_RETRY, fall_back=[plain(server.url)])
        outcome = await Pipeline(source).to(executor, sink).run()
        assert len(server.requests) == 1
    assert executor.started == 1
    assert not of(sink, Tombstone, SystemMessage)
    (failed,) = of(sink, ResponseFailed)
    assert [block["type"] for block in failed.kept] == ["text", "tool_use"]
    assert outcome.answers_failed == 1


@virtual_time
async def test_fault_92_a_tool_that_did_not_start_is_taken_back() -> None:
    async with serve_recordings([TOOL], fault="stall-after=blocks,only=stream") as server:
        sink = RecordingSink()
        source = asking(server.url, retry=NO_RETRY, fall_back=[plain(server.url)])
        outcome = await Pipeline(source).to(sink).run()
    assert outcome.ok
    assert len(of(sink, Tombstone)) == 2
    (told,) = system(sink, "informational")
    assert told.fields["fallback"] == "a request that doesn't stream"
    assert [item.attempt for item in of(sink, RequestStart)] == [1, 2]


@virtual_time
async def test_fault_99_an_empty_reply_of_the_fallback_is_an_error() -> None:
    async with serve_recordings([ANSWER], fault="eof-after=5,only=stream;no-content") as server:
        sink = RecordingSink()
        source = asking(server.url, retry=NO_RETRY, fall_back=[plain(server.url)])
        outcome = await Pipeline(source).to(sink).run()
    assert (outcome.status, outcome.answers_complete, outcome.answers_failed) == ("failed", 0, 1)
    (failed,) = of(sink, ResponseFailed)
    assert failed.outcome == "incomplete(0)"


@virtual_time
async def test_a_fallback_that_hangs_is_given_up() -> None:
    loop = asyncio.get_running_loop()
    async with serve_recordings([ANSWER], fault="503,only=stream;first-byte-stall") as server:
        began = loop.time()
        clocks = Clocks.off()
        other = FallBack(
            lambda start: from_request(REQUEST, base_url=server.url, stream=False, clocks=clocks),
            "a request that doesn't stream",
            timeout=300,
        )
        source = asking(server.url, retry=NO_RETRY, fall_back=[other])
        sink = RecordingSink()
        await Pipeline(source).to(sink).run()
    assert loop.time() - began == pytest.approx(300, abs=0.5)
    (failed,) = of(sink, ResponseFailed)
    assert failed.error["type"] == "stream_idle_timeout"
    assert isinstance(source.errors[0][1], StreamIdleTimeout)


@virtual_time
async def test_fault_93_overloaded_after_a_200() -> None:
    async with serve_recordings([ANSWER], fault="overloaded,times=1;overloaded-after=5,times=1") as server:
        sink = RecordingSink()
        outcome = await Pipeline(asking(server.url)).to(sink).run()
    assert outcome.ok
    assert [m.fields["error"]["type"] for m in system(sink, "api_error")] == ["overloaded_error"] * 2
    assert texts(sink) == ["hello", "world"]


@virtual_time(max_moves=2_000)
async def test_pings_alone_are_no_progress() -> None:
    loop = asyncio.get_running_loop()
    async with serve_recordings([ANSWER], fault="pings-after=5,times=1") as server:
        sink = RecordingSink()
        began = loop.time()
        assert (await Pipeline(asking(server.url)).to(sink).run()).ok
    assert loop.time() - began == pytest.approx(600.5, abs=11)
    assert texts(sink) == ["hello", "world"]


def slowly(gap: float, events: int) -> Callable[[web.BaseRequest], Any]:
    """An event every ``gap`` seconds, a ping every 30."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(f.sse(f.start(), f.opens_text()))
        for _ in range(events):
            for _ in range(int(gap // 30)):
                await response.write(f.sse(f.PING))
                await asyncio.sleep(30)
            await response.write(f.sse(f.text(0, "x")))
        await response.write(f.sse(f.closes(), f.turn(), f.STOP))
        await response.write_eof()
        return response

    return handle


@virtual_time(max_moves=20_000)
async def test_progress_every_nine_minutes_is_never_cut_in_24_hours() -> None:
    loop = asyncio.get_running_loop()
    async with serving(slowly(540, 160)) as url:
        began = loop.time()
        source = asking(url)
        outcome = await Pipeline(source).run()
    assert loop.time() - began == pytest.approx(86_400, abs=60)
    assert (outcome.ok, source.attempts) == (True, 1)


class Slow(SinkBase):
    """Is full for an hour after each batch."""

    name = "slow"
    policy = "block"
    stall_timeout = None

    def __init__(self) -> None:
        self.until = 0.0

    def on_next(self, batch: Any, /) -> None:
        self.until = asyncio.get_running_loop().time() + 3600

    def full(self) -> bool:
        return asyncio.get_running_loop().time() < self.until

    async def room(self) -> None:
        await asyncio.sleep(self.until - asyncio.get_running_loop().time())


class Unhurried(Source[bytes]):
    """An event every five seconds after the one before was taken; pings first."""

    name = "unhurried"

    async def batches(self) -> AsyncIterator[Batch[bytes]]:
        for payload in [f.start(), f.PING, f.PING, f.PING, *f.says("hello"), f.turn(), f.STOP]:
            await asyncio.sleep(5)
            yield Batch((f.sse(payload),), asyncio.get_running_loop().time(), None, 1)


@virtual_time
async def test_fault_87_a_consumer_that_pauses_is_no_silence() -> None:
    loop = asyncio.get_running_loop()
    source = resilient(lambda start: Unhurried(), plain_stages)
    began = loop.time()
    outcome = await Pipeline(source).to(Slow()).run()
    assert (outcome.ok, source.attempts) == (True, 1)
    # three pings and an hour after each: nothing but pings for much longer than the clock allows
    assert loop.time() - began > 3 * 3600


@virtual_time
async def test_the_progress_clock_can_be_off() -> None:
    loop = asyncio.get_running_loop()
    async with serving(slowly(3600, 1)) as url:
        began = loop.time()
        source = asking(url, clocks=Clocks(progress=None))
        assert (await Pipeline(source).run()).ok
        assert source.attempts == 1
        assert loop.time() - began > 3500


@virtual_time
async def test_fault_104_three_sinks_see_one_answer() -> None:
    # The retry is inside, the fan-out outside: no sink sees an end of an attempt.
    made: list[Source[bytes]] = []
    staged: list[Source[bytes]] = []

    def make(start: RequestStart) -> Source[bytes]:
        made.append(from_request(REQUEST, base_url=server.url))
        return made[-1]

    def staging(source: Any) -> Any:
        staged.append(source)
        return stages(source)

    async with serve_recordings([ANSWER], fault="cut-after=5,times=1") as server:
        sinks = [RecordingSink(name=f"sink {number}") for number in range(3)]
        outcome = await Pipeline(resilient(make, staging)).to(*sinks).run()
        assert len(server.requests) == 2
    assert outcome.ok
    # a request and stages of its own for each attempt, whoever listens
    assert len(made) == 2
    assert staged == made
    first = sinks[0]
    assert [sink.items for sink in sinks] == [first.items] * 3
    assert texts(first) == ["hello", "world"]


@virtual_time
async def test_fault_98_an_abort_while_it_waits_to_try_again() -> None:
    loop = asyncio.get_running_loop()
    async with serve_recordings([ANSWER], fault="529") as server:
        sink = RecordingSink()
        async with Pipeline(asking(server.url)).to(sink) as run:
            await asyncio.sleep(20)  # in the sixth wait, of 16 s
            run.abort("enough")
            before = loop.time()
            outcome = await run
        assert loop.time() == pytest.approx(before, abs=0.1)
        asked = len(server.requests)
        await asyncio.sleep(60)
        assert len(server.requests) == asked
    assert outcome.status == "aborted"
    assert not of(sink, ResponseFailed)


@virtual_time
async def test_fault_98_an_abort_inside_an_attempt_emits_the_repairs() -> None:
    async with serve_recordings([TOOL], fault="stall-after=blocks") as server:
        sink = RecordingSink()
        async with Pipeline(asking(server.url)).to(sink) as run:
            await asyncio.sleep(10)
            run.abort("user")
            outcome = await run
    assert outcome.status == "aborted"
    assert [failed.error["type"] for failed in of(sink, ResponseFailed)] == ["aborted"]
    # the tool's result and the interruption
    assert len(of(sink, UserMessage)) == 2
    assert not of(sink, Tombstone)


class Breaking(Source[bytes]):
    """Gives some bytes, then raises."""

    name = "breaking"

    def __init__(self, data: bytes, error: Exception) -> None:
        self._data = data
        self._error = error
        self.closed = False

    async def batches(self) -> AsyncIterator[Batch[bytes]]:
        try:
            yield Batch((self._data,), None, None, len(self._data))
            await asyncio.sleep(0)
            raise self._error
        finally:
            self.closed = True


def plain_stages(source: Any) -> Any:
    from turnstream import decode

    return decode() | parse_events() | accumulate()


@virtual_time
async def test_any_source_will_do_and_each_attempt_closes_its_own() -> None:
    made: list[Any] = []

    def make(start: RequestStart) -> Source[bytes]:
        cut = f.sse(f.start(), f.says("half"))
        made.append(Breaking(cut, TransportError("gone")) if start.attempt < 3 else from_bytes(ANSWER))
        assert all(source.closed for source in made[:-1] if isinstance(source, Breaking))
        return made[-1]

    seen: list[str] = []
    sink = RecordingSink()
    source = resilient(make, plain_stages, started=lambda source: seen.append(source.name))
    outcome = await Pipeline(source).to(sink).run()
    assert outcome.ok
    assert len(made) == len(seen) == 3
    assert all(source.closed for source in made[:2])
    assert len(of(sink, Tombstone)) == 2


class GoingOn(Source[bytes]):
    """Sends an error, then pings for ever."""

    name = "going on"

    def __init__(self) -> None:
        self.closed = False

    async def batches(self) -> AsyncIterator[Batch[bytes]]:
        try:
            yield Batch((f.sse(f.start(), f.says("half"), f.fails()),), None, None, 1)
            while True:
                await asyncio.sleep(10)
                yield Batch((f.sse(f.PING),), None, None, 1)
        finally:
            self.closed = True


@virtual_time
async def test_a_source_that_goes_on_after_the_failure_is_let_go_before_the_wait() -> None:
    loop = asyncio.get_running_loop()
    first = GoingOn()

    def make(start: RequestStart) -> Source[bytes]:
        assert first.closed is (start.attempt > 1)
        return first if start.attempt == 1 else from_bytes(ANSWER)

    sink = RecordingSink()
    source = resilient(make, plain_stages, chance=lambda: 0.5)
    async with Pipeline(source).to(sink) as run:
        await asyncio.sleep(0.25)
        assert first.closed
        assert (await run).ok
    assert loop.time() == pytest.approx(0.5, abs=0.1)


@virtual_time
async def test_an_end_after_the_answer_is_no_failure() -> None:
    sink = RecordingSink()
    source = resilient(lambda start: Breaking(ANSWER, TransportError("gone")), plain_stages)
    outcome = await Pipeline(source).to(sink).run()
    assert outcome.ok
    assert source.errors == []
    assert sink.items[-1].kind == "broke_after_end"


@virtual_time
async def test_strict_stages_end_an_attempt_with_their_error() -> None:
    from turnstream import decode

    cut = f.sse(f.start(), f.says("half"), f.text(7, "nowhere"), f.turn(), f.STOP)
    sink = RecordingSink()
    source = resilient(
        lambda start: from_bytes(cut if start.attempt == 1 else ANSWER),
        lambda source: decode() | parse_events() | accumulate(strict=True),
        fall_back=[FallBack(lambda start: from_bytes(ANSWER), "another one", suits=lambda failed: True)],
    )
    outcome = await Pipeline(source).to(sink).run()
    assert outcome.ok
    assert len(of(sink, Tombstone)) == 1
    assert texts(sink) == ["hello", "world"]


@virtual_time
async def test_requests_to_a_host_share_a_budget() -> None:
    budget = RetryBudget(3, per_second=0, per_answer=0)
    async with serve_recordings([ANSWER], fault="529") as server:
        for _ in range(3):
            await Pipeline(asking(server.url, budget=budget)).run()
        # three first attempts and three retries, whosever they were
        assert len(server.requests) == 6


@virtual_time
async def test_a_source_is_one_request() -> None:
    source = resilient(lambda start: from_bytes(ANSWER), plain_stages)
    batches = [batch async for batch in source.batches()]
    assert isinstance(batches[0].items[0], RequestStart)
    with pytest.raises(RuntimeError, match="one request"):
        _ = [batch async for batch in source.batches()]


@virtual_time
async def test_fault_94_a_budget_of_time_ends_it() -> None:
    loop = asyncio.get_running_loop()
    async with serve_recordings([ANSWER], fault="first-byte-stall") as server:
        began = loop.time()
        outcome = await Pipeline(asking(server.url, retry=RetryPolicy(total=600))).run()
        assert len(server.requests) == 2 + 1
    # three times 300 s; a fourth would begin more than 600 s after the first failure
    assert loop.time() - began == pytest.approx(901.5, abs=1)
    assert outcome.answers_failed == 1


class Pinging(Source[bytes]):
    """Nothing but pings."""

    name = "pinging"

    async def batches(self) -> AsyncIterator[Batch[bytes]]:
        while True:
            await asyncio.sleep(200)
            yield Batch((f.sse(f.PING),), None, None, 1)


async def a_request_with_everything() -> None:
    """A break, a stream without progress, a fallback that is too slow, another one."""

    def make(start: RequestStart) -> Source[bytes]:
        return Breaking(f.sse(f.start(), f.says("half")), TransportError("gone")) if start.attempt == 1 else Pinging()

    source = resilient(
        make,
        plain_stages,
        retry=RetryPolicy(tries=2),
        fall_back=[
            FallBack(lambda start: Pinging(), "too slow", timeout=300),
            FallBack(lambda start: from_bytes(ANSWER), "b"),
        ],
    )
    outcome = await Pipeline(source).run()
    assert outcome.ok
    assert source.attempts == 4


def test_cancelled_at_any_step_nothing_is_left() -> None:
    assert cancel_everywhere(a_request_with_everything) > 10
