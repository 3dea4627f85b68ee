"""The clocks of a live answer over real sockets on virtual time (WIRE.md §7; FAULTS.md 84–88, 96).

Each run's expected moment is arithmetic on the table of WIRE.md §7: 10, 300, 90 and 45 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import aiohttp
import pytest
from pulling import collect, joined
from serving import TEXT, Streamer, serving
from stalling import EVENTS, WAYS, Drip, Tool, now

from turnstream import Pipeline, SinkBase, accumulate, decode, from_request, parse_events
from turnstream.flow.clocks import Clocks, WaitClock
from turnstream.messages import (
    AssistantMessage,
    ResponseFailed,
    StreamIdleTimeout,
    StreamNote,
    TransportError,
)
from turnstream.serve import serve_recordings
from turnstream.sinks import MetricsSink
from turnstream.sources import SessionSource
from turnstream.testing import RecordingSink, virtual_time

REQUEST: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
DAY = 86_400.0


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def session(*sources: Any) -> SessionSource[bytes, Any]:
    return SessionSource(sources, lambda _: decode() | parse_events() | accumulate(), announce=True)


def kinds(sink: RecordingSink) -> list[str]:
    return [item.kind for item in sink.items if isinstance(item, StreamNote)]


# -- Clocks ------------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_table() -> None:
    clocks = Clocks()
    assert (clocks.connect, clocks.first_byte, clocks.idle, clocks.idle_warning, clocks.progress, clocks.total) == (
        10, 300, 90, 45, 600, None,
    )  # fmt: skip
    assert {getattr(Clocks.off(), name) for name in Clocks.__struct_fields__} == {None}


@pytest.mark.parametrize("name", Clocks.__struct_fields__)
@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf")])
def test_a_clock_is_above_zero_or_off(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        Clocks(**{name: value})


class Watch:
    """A WaitClock and when it did what."""

    def __init__(self, clocks: Clocks, **options: Any) -> None:
        self.warned: list[tuple[float, float]] = []
        self.expired: list[float] = []
        self.clock = WaitClock(
            clocks,
            lambda seconds: self.warned.append((now(), seconds)),
            lambda: self.expired.append(now()),
            **options,
        )
        self.clock.start()


@virtual_time
async def test_one_timer_for_many_waits_and_none_for_those_that_end() -> None:
    loop: Any = asyncio.get_running_loop()
    watch = Watch(Clocks())
    first = loop.pending_timers()
    for _ in range(1000):
        watch.clock.since = now()
        watch.clock.since = None
    assert loop.pending_timers() == first
    assert len(first) == 1
    await asyncio.sleep(DAY)
    assert (watch.warned, watch.expired) == ([], [])
    watch.clock.stop()
    watch.clock.stop()
    assert loop.pending_timers() == []


@pytest.mark.parametrize("begin", [0.0, 1.0, 44.9, 45.0, 46.0, 89.0, 12_345.678])
@virtual_time
async def test_a_wait_is_warned_of_and_ends_on_the_second_whenever_it_began(begin: float) -> None:
    watch = Watch(Clocks())
    await asyncio.sleep(begin)
    watch.clock.since = now()
    await asyncio.sleep(500)
    assert watch.warned == [(pytest.approx(begin + 45), pytest.approx(45))]
    assert watch.expired == [pytest.approx(begin + 90)]
    assert watch.clock.expired == "idle"


@virtual_time
async def test_each_long_wait_is_warned_of_once() -> None:
    watch = Watch(Clocks())
    for _ in range(3):
        watch.clock.since = now()
        await asyncio.sleep(89)
        watch.clock.since = None
        await asyncio.sleep(1)
    assert [at for at, _ in watch.warned] == [45, 135, 225]
    assert watch.expired == []
    watch.clock.stop()


@pytest.mark.parametrize(
    ("clocks", "warned", "expired"),
    [
        (Clocks(idle=None), [45], []),
        (Clocks(idle_warning=None), [], [90]),
        (Clocks(idle=20.0), [], [20]),  # the warning would come too late
        (Clocks(idle=None, idle_warning=None), [], []),
        (Clocks(idle=None, idle_warning=None, total=600.0), [], [600]),
        (Clocks(total=60.0), [45], [60]),
    ],
)
@virtual_time
async def test_each_clock_can_be_off(clocks: Clocks, warned: list[float], expired: list[float]) -> None:
    watch = Watch(clocks)
    watch.clock.since = now()
    await asyncio.sleep(DAY)
    assert ([at for at, _ in watch.warned], watch.expired) == (warned, expired)
    watch.clock.stop()


@virtual_time
async def test_the_total_is_of_waits_only() -> None:
    watch = Watch(Clocks(idle=None, idle_warning=None, total=100.0), waited=10.0)
    for _ in range(4):  # 4 × 20 s waited, 4 × 50 s not
        watch.clock.since = began = now()
        await asyncio.sleep(20)
        watch.clock.since = None
        watch.clock.waited += now() - began
        await asyncio.sleep(50)
    watch.clock.since = now()
    await asyncio.sleep(500)
    assert watch.expired == [4 * 70 + 10]
    assert watch.clock.expired == "total"


@virtual_time
async def test_bytes_that_lie_there_unseen_are_no_silence() -> None:
    """A loop that somebody held up runs its timers before the task that waits sees what came."""
    loop: Any = asyncio.get_running_loop()
    async with serving(Drip(EVENTS[0], 10.0, *EVENTS[1:], hang=False)) as url:
        sink = RecordingSink()
        async with Pipeline(session(from_request(REQUEST, base_url=url))).to(sink) as run:
            # The clock stands at 10 s + something when the bytes are sent, and at 1,000 s when they are read.
            await asyncio.sleep(10)
            loop._set_time(1000.0)
            outcome = await run
    assert outcome.ok
    assert kinds(sink) == []


@virtual_time
async def test_whoever_waits_has_his_turn_before_the_clock_acts() -> None:
    watch = Watch(Clocks())
    watch.clock.since = 0.0
    came = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_at(45.0, came.set_result, None)  # behind the clock's own timer
    await came
    watch.clock.since = now()
    await asyncio.sleep(44)
    assert (watch.warned, watch.expired) == ([], [])
    watch.clock.stop()


# -- faults ------------------------------------------------------------------------------------------


@virtual_time(max_moves=2_000)
async def test_fault_84_a_stream_that_stalls_is_cut_kept_and_told() -> None:
    """Half-open TCP, no read timeout: the byte-idle watchdog is always armed."""
    server = Drip(*EVENTS[:5])
    async with serving(server) as url:
        sink = RecordingSink()
        began = now()
        outcome = await Pipeline(session(from_request(REQUEST, base_url=url))).to(sink).run()
        assert now() - began == pytest.approx(90)
        assert await server.gone - began == pytest.approx(90)  # the response was released at once
    assert outcome.status == "failed"
    (failed,) = [item for item in sink.items if isinstance(item, ResponseFailed)]
    assert failed.error["type"] == "stream_idle_timeout"
    assert failed.error["retryable"] is True
    assert "req_drip" in failed.error["message"]
    assert "90 s" in failed.error["message"]
    # what was open is kept and marked
    (message,) = [item for item in sink.items if isinstance(item, AssistantMessage)]
    assert message.is_aborted_mid_stream
    assert message.message["content"]
    assert failed.outcome == "incomplete(0)"


@virtual_time(max_moves=2_000)
async def test_fault_84_also_outside_of_a_run_and_without_a_session() -> None:
    server = Drip(*EVENTS[:3])
    async with serving(server) as url:
        with pytest.raises(StreamIdleTimeout, match="90 s") as late:
            await collect(from_request(REQUEST, base_url=url))
        assert late.value.retryable
        assert late.value.__cause__ is None
        assert late.value.__context__ is None
        server.gone = asyncio.get_running_loop().create_future()
        sink = RecordingSink()
        stages = decode() | parse_events() | accumulate()
        outcome = await Pipeline(from_request(REQUEST, base_url=url)).through(stages).to(sink).run()
    assert outcome.status == "broken"
    assert isinstance(outcome.error, StreamIdleTimeout)
    assert [item.outcome for item in sink.items if isinstance(item, ResponseFailed)] == ["incomplete(0)"]


@virtual_time(max_moves=2_000)
async def test_fault_84_the_next_answer_of_the_session_is_played() -> None:
    async with serve_recordings([TEXT], fault="stall-after=text,times=1") as server:
        sources = [from_request(REQUEST, base_url=server.url) for _ in range(2)]
        outcome = await Pipeline(session(*sources)).to(RecordingSink()).run()
    assert (outcome.answers_failed, outcome.answers_complete) == (1, 1)
    assert now() == pytest.approx(90)


@pytest.mark.parametrize("way", WAYS)
@virtual_time(max_moves=2_000)
async def test_fault_84_it_counts_from_the_last_byte(way: Any) -> None:
    server = Drip(*[step for event in EVENTS[:5] for step in (event, 1.0)])
    async with serving(server) as url:
        sink = RecordingSink()
        began = now()
        assert not (await way(from_request(REQUEST, base_url=url)).to(sink).run()).ok
        assert now() - began == pytest.approx(4 + 90)
        assert await server.gone - began == pytest.approx(4 + 90)
    assert [item.error["type"] for item in sink.items if isinstance(item, ResponseFailed)] == ["stream_idle_timeout"]


@pytest.mark.parametrize("way", WAYS)
@virtual_time(max_moves=2_000)
async def test_fault_84_a_pause_of_the_consumer_does_not_end_the_watch(way: Any) -> None:
    server = Drip(EVENTS[0], 1.0, EVENTS[1])
    async with serving(server) as url:
        sink = RecordingSink()
        began = now()
        assert not (await way(from_request(REQUEST, base_url=url)).to(Tool(200), sink).run()).ok
        # the second chunk, the pause behind it, and the time that is waited then
        assert await server.gone - began == pytest.approx(1 + 200 + 90)
    assert kinds(sink) == ["idle_warning"]


@virtual_time(max_moves=2_000)
async def test_fault_84_nor_does_one_of_who_asks_for_each_batch() -> None:
    server = Drip(EVENTS[0], 1.0, EVENTS[1])
    async with serving(server) as url:
        began = now()
        stream: Any = from_request(REQUEST, base_url=url).batches()
        for _ in range(2):
            await anext(stream)
            await asyncio.sleep(200)
        with pytest.raises(StreamIdleTimeout):
            await anext(stream)
        # the second chunk has come in the first of two pauses
        assert now() - began == pytest.approx(2 * 200 + 90)


@pytest.mark.parametrize(("sent", "clock"), [((), 300), ((EVENTS[0],), 90)])
@pytest.mark.parametrize("asked", [False, True])
@virtual_time(max_moves=2_000)
async def test_fault_85_whatever_host_it_is(asked: bool, sent: tuple[bytes, ...], clock: float) -> None:
    """No gate by host or path: a gateway under any name has the same clocks."""
    server = Drip(*sent)
    async with serving(server) as url:
        gateway = url.replace("127.0.0.1", "localhost") + "/some/gateway"
        for base, headers in ((gateway, None), (url, {"host": "api.anthropic.com"}), (url, None)):
            source = from_request(REQUEST, base_url=base, headers=headers)
            began = now()
            if asked:
                with pytest.raises(StreamIdleTimeout):
                    await collect(source)
            else:
                outcome = await Pipeline(session(source)).run()
                assert [failed.error["type"] for failed in outcome.failures] == ["stream_idle_timeout"]
            assert now() - began == pytest.approx(clock)


@virtual_time
async def test_fault_86_a_gap_of_95_s_is_warned_of_and_survives_where_the_limit_says_so() -> None:
    """Configurable, per phase, with an off switch; a warning comes before the end."""
    for clocks, status, notes in (
        (Clocks(idle=120.0), "complete", ["idle_warning"]),
        (Clocks(idle=None), "complete", ["idle_warning"]),
        (Clocks.off(), "complete", []),
        (Clocks(idle=200.0, idle_warning=None), "complete", []),
        (Clocks(), "failed", ["idle_warning"]),
    ):
        async with serving(Drip(*EVENTS[:4], 95.0, *EVENTS[4:], hang=False)) as url:
            sink = RecordingSink()
            outcome = await Pipeline(session(from_request(REQUEST, base_url=url, clocks=clocks))).to(sink).run()
            assert (outcome.status, kinds(sink)) == (status, notes)


@virtual_time
async def test_fault_86_the_warning_can_be_off_whenever_the_wait_began() -> None:
    # Looked at 50 s after the first byte, in a wait that is ten seconds old and lasts 48.
    async with serving(Drip(EVENTS[0], 40.0, EVENTS[1], 48.0, *EVENTS[2:], hang=False)) as url:
        sink = RecordingSink()
        source = from_request(REQUEST, base_url=url, clocks=Clocks(idle=50.0, idle_warning=None))
        assert (await Pipeline(session(source)).to(sink).run()).ok
    assert kinds(sink) == []


@pytest.mark.parametrize("way", WAYS)
@virtual_time(max_moves=2_000)
async def test_fault_86_the_total_is_a_clock_of_its_own(way: Any) -> None:
    """A byte every 20 s never lets the idle clock run out; the one for it all does, if it is on."""
    steps = [step for event in EVENTS for step in (event, 20.0)]
    assert 20 * len(EVENTS) > 130
    for total, seconds in ((130.0, 130.0), (None, 20.0 * len(EVENTS))):
        async with serving(Drip(*steps, hang=False)) as url:
            began = now()
            sink = RecordingSink()
            outcome = await way(from_request(REQUEST, base_url=url, clocks=Clocks(total=total))).to(sink).run()
            assert now() - began == pytest.approx(seconds)
            assert outcome.ok is (total is None)
            errors = [item.error for item in sink.items if isinstance(item, ResponseFailed)]
            assert [error["type"] for error in errors] == ([] if total is None else ["stream_idle_timeout"])
            assert all("130 s" in error["message"] for error in errors)


@virtual_time
async def test_fault_86_the_warning_comes_while_it_is_still_silent() -> None:
    seen: list[tuple[float, str]] = []

    class Sees(SinkBase):
        name = "sees"

        def on_next(self, batch: Sequence[Any], /) -> None:
            seen.extend((now(), item.message) for item in batch if isinstance(item, StreamNote))

    async with serving(Drip(EVENTS[0], 50.0, *EVENTS[1:], hang=False)) as url:
        assert (await Pipeline(session(from_request(REQUEST, base_url=url))).to(Sees()).run()).ok
    ((at, message),) = seen
    assert at == pytest.approx(45)
    assert "45 s" in message
    assert "90 s" in message


@virtual_time
async def test_fault_87_the_first_byte_has_a_budget_of_its_own() -> None:
    async with serve_recordings([TEXT], fault="first-byte-stall=200") as server:
        sink = RecordingSink()
        assert (await Pipeline(session(from_request(REQUEST, base_url=server.url))).to(sink).run()).ok
        assert kinds(sink) == []
    async with serving(Drip(200.0, *EVENTS, hang=False)) as url:  # headers at once, then silence
        assert (await Pipeline(session(from_request(REQUEST, base_url=url))).to(sink := RecordingSink()).run()).ok
        assert kinds(sink) == []


@pytest.mark.parametrize("seconds", [600.0, DAY])
@pytest.mark.parametrize("way", WAYS)
@virtual_time
async def test_fault_87_a_tool_or_a_full_sink_stops_the_clocks(way: Any, seconds: float) -> None:
    """The server is silent meanwhile, and for a minute more: that, and the second before, is all that is waited."""
    async with serving(Drip(EVENTS[0], 1.0, EVENTS[1], seconds + 60, *EVENTS[2:], hang=False)) as url:
        sink = RecordingSink()
        source = from_request(REQUEST, base_url=url, clocks=Clocks(total=90.0))
        began = now()
        outcome = await way(source).to(Tool(seconds), sink).run()
    assert outcome.ok
    warned = [batch.at for batch in sink.batches if any(isinstance(item, StreamNote) for item in batch)]
    assert warned == [pytest.approx(began + 1 + seconds + 45)]


@virtual_time
async def test_fault_87_nor_is_a_consumer_cut_that_pauses() -> None:
    """An hour after each event; the next one comes ten seconds later."""
    hour = 3600.0
    async with serving(Drip(*[step for event in EVENTS for step in (event, hour + 10)], hang=False)) as url:
        got = b""
        async for batch in from_request(REQUEST, base_url=url, clocks=Clocks(total=200.0)).batches():  # type: ignore[union-attr]
            got += batch[0]
            await asyncio.sleep(hour)
    assert got == TEXT
    assert now() >= hour * len(EVENTS)


@virtual_time
async def test_fault_88_headers_that_never_come() -> None:
    async with serve_recordings([TEXT], fault="first-byte-stall") as server:
        began = now()
        with pytest.raises(StreamIdleTimeout, match="300 s") as late:
            await collect(from_request(REQUEST, base_url=server.url))
        assert now() - began == pytest.approx(300)
        assert late.value.retryable
        with pytest.raises(StreamIdleTimeout, match="5 s"):
            await collect(from_request(REQUEST, base_url=server.url, clocks=Clocks(first_byte=5.0)))
        with pytest.raises(StreamIdleTimeout, match="more than 7 s"):
            await collect(from_request(REQUEST, base_url=server.url, clocks=Clocks(total=7.0)))


@virtual_time
async def test_fault_88_headers_and_then_nothing() -> None:
    server = Drip()
    async with serving(server) as url:
        with pytest.raises(StreamIdleTimeout, match="300 s") as late:
            await collect(from_request(REQUEST, base_url=url))
        assert await server.gone == pytest.approx(300)
    assert "req_drip" in str(late.value)


class _Deaf(aiohttp.abc.AbstractResolver):
    """A name server that doesn't answer."""

    async def resolve(self, *_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass


@virtual_time
async def test_fault_88_a_connection_that_is_never_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiohttp.connector.DefaultResolver", lambda *_, **__: _Deaf())
    began = now()
    with pytest.raises(TransportError, match="no connection within 10 s") as late:
        await collect(from_request(REQUEST, base_url="http://host.invalid"))
    assert now() - began == pytest.approx(10, abs=1)  # aiohttp rounds it up to a whole second
    assert late.value.retryable


@virtual_time
async def test_fault_88_as_an_answer_of_a_run() -> None:
    async with serve_recordings([TEXT], fault="first-byte-stall") as server:
        sink = RecordingSink()
        outcome = await Pipeline(session(from_request(REQUEST, base_url=server.url))).to(sink).run()
    assert outcome.status == "failed"
    (failed,) = outcome.failures
    assert failed.error["type"] == "stream_idle_timeout"
    assert failed.error["retryable"] is True


@virtual_time
async def test_fault_96_an_answer_that_takes_longer_than_aiohttps_300_s() -> None:
    steps = [step for event in EVENTS for step in (event, 40.0)]
    assert 40 * len(EVENTS) > 360
    async with serving(Drip(*steps, hang=False)) as url:
        began = now()
        assert joined(await collect(from_request(REQUEST, base_url=url))) == TEXT
        assert now() - began > 360


@virtual_time
async def test_fault_96_so_does_one_that_is_handed_over() -> None:
    steps = [step for event in EVENTS for step in (event, 40.0)]
    async with serving(Drip(*steps, hang=False)) as url:
        began = now()
        assert (await Pipeline(session(from_request(REQUEST, base_url=url))).run()).ok
        assert now() - began > 360


@pytest.mark.parametrize("own", [False, True])
@virtual_time(max_moves=2_000)
async def test_fault_96_connecting_keeps_its_limit(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """No limit for the answer is none for the connection: nobody answers there (also in a session of one's own)."""

    async def connects(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", connects)
    began = now()
    async with aiohttp.ClientSession() as mine:
        source = from_request(REQUEST, base_url="http://127.0.0.1:9", session=mine if own else None)
        with pytest.raises(TransportError, match="no connection within 10 s") as late:
            await collect(source)
    assert now() - began == pytest.approx(10, abs=1)  # aiohttp rounds it up to a whole second
    assert late.value.retryable


@virtual_time
async def test_progress_every_nine_minutes_with_pings_between_is_not_cut_in_24_hours() -> None:
    need = int(DAY / 540) + 1
    delta = next(event for event in EVENTS if b"text_delta" in event)
    at = EVENTS.index(delta)
    body = b"".join([*EVENTS[:at], *[delta] * need, *EVENTS[at:]])
    async with serve_recordings([body], fault="slow=540,keepalive=40") as server:
        sink = RecordingSink()
        outcome = await Pipeline(session(from_request(REQUEST, base_url=server.url))).to(sink).run()
    assert outcome.ok
    assert kinds(sink) == []
    assert now() >= DAY


@virtual_time
async def test_comments_are_bytes_too() -> None:
    steps = [step for _ in range(20) for step in (b": keepalive\n\n", 80.0)]
    async with serving(Drip(EVENTS[0], *steps, *EVENTS[1:], hang=False)) as url:
        assert (await Pipeline(session(from_request(REQUEST, base_url=url))).to(RecordingSink()).run()).ok


# -- what a source tells beside its batches ---------------------------------------------------------------


@virtual_time
async def test_metrics_learn_of_the_first_byte_that_is_no_event() -> None:
    steps = [b": hello\n\n", 3.0, *EVENTS]
    async with serving(Drip(2.0, *steps, hang=False)) as url:
        metrics = MetricsSink()
        assert (await Pipeline(session(from_request(REQUEST, base_url=url))).to(metrics).run()).ok
    (answer,) = metrics.report()["answers"]
    assert answer["first_byte_ms"] == pytest.approx(2000)
    assert answer["first_event_ms"] == pytest.approx(5000)


@virtual_time
async def test_a_sink_whose_first_byte_raises_is_lost_alone() -> None:
    class Ill(SinkBase):
        name = "ill"

        def on_next(self, batch: Sequence[Any], /) -> None:
            pass

        def first_byte(self, at: float) -> None:
            raise RuntimeError("ill")

    async with serving(Streamer(TEXT)) as url:
        sink = RecordingSink()
        outcome = await Pipeline(session(from_request(REQUEST, base_url=url))).to(Ill(), sink).run()
    assert list(outcome.sink_errors) == ["ill"]
    assert outcome.answers_complete == 1
    assert kinds(sink) == ["sink_detached"]


@virtual_time
async def test_an_abort_stops_the_clocks() -> None:
    loop: Any = asyncio.get_running_loop()
    async with serving(Drip(*EVENTS[:3])) as url:
        async with Pipeline(session(from_request(REQUEST, base_url=url))).to(RecordingSink()) as run:
            await asyncio.sleep(20)
            run.abort("enough")
            outcome = await run
        assert outcome.status == "aborted"
        assert now() < 45
        await asyncio.sleep(0)
        assert not [timer for timer in loop.pending_timers() if "_look" in repr(timer)]
