"""``UISink``: every batch reduced at once, rendering throttled, errors told (FAULTS 78, 79, 83)."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import Any

import frames as f
import pytest
from ui_items import Maker, events, factory, messages_of, texts_of

from turnstream.messages import RequestStart, ResponseFailed
from turnstream.operators.batch import Batch, StreamKey
from turnstream.sinks.base import Sink
from turnstream.sinks.ui import RENDER_INTERVAL, PlainRenderer, UISink, UIState


class FakeTimers:
    """A loop's clock and timers, moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> Any:
        entry = (self.now + delay, callback)
        self.waiting.append(entry)
        return Handle(self, entry)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for entry in [e for e in self.waiting if e[0] <= self.now]:
            self.waiting.remove(entry)
            entry[1]()


class Handle:
    def __init__(self, timers: FakeTimers, entry: Any) -> None:
        self._timers, self._entry = timers, entry

    def cancel(self) -> None:
        if self._entry in self._timers.waiting:
            self._timers.waiting.remove(self._entry)


class Recorder:
    """A renderer that notes what it is asked, and takes what is finished."""

    def __init__(self, live: bool = True) -> None:
        self.live = live
        self.calls: list[tuple[str | None, list[Any], list[str]]] = []
        self.closed = 0

    def render(self, state: UIState, parent: str | None = None) -> None:
        taken = messages_of(state.take_finished())
        self.calls.append((parent, taken, [block.text for block in state.open_blocks]))

    def close(self) -> None:
        self.closed += 1


class Broken(Recorder):
    def render(self, state: UIState, parent: str | None = None) -> None:
        super().render(state, parent)
        if len(self.calls) == 2:
            raise BrokenPipeError


def live_sink(renderer: Any = None, **options: Any) -> tuple[UISink, Recorder, FakeTimers]:
    timers = FakeTimers()
    recorder = renderer or Recorder()
    return UISink(recorder, timers=timers, **options), recorder, timers


def opened(sink: UISink) -> None:
    sink.on_next(Batch(events(f.start(), f.opens_text()), 1.0))


def test_it_is_a_direct_sink() -> None:
    sink = UISink()
    assert isinstance(sink, Sink)
    assert sink.policy == "direct"
    assert not sink.full()


def test_the_reducer_takes_every_batch_at_once_and_its_arrival_time() -> None:
    sink, _, _ = live_sink()
    sink.on_next(Batch(events(f.start(), f.opens_thinking(), f.thinks(0, "a")), 7.0))
    sink.on_next(events(f.thinks(0, "b")))
    thinking = sink.state.snapshot().thinking
    assert thinking is not None
    assert (thinking.text, thinking.started_at) == ("ab", 7.0)


def test_ten_thousand_deltas_are_few_renderings() -> None:
    """FAULTS 79: 10,000 deltas a millisecond apart are 10 s, so at most 30 renderings a second and the ends."""
    sink, recorder, timers = live_sink()
    opened(sink)
    for n in range(10_000):
        sink.on_next(events(f.text(0, f"{n} ")))
        timers.advance(0.001)
    assert len(recorder.calls) <= 10 / RENDER_INTERVAL + 1
    assert len(recorder.calls) >= 250, "it is live all the same"
    sink.on_completed()
    assert sink.renders == len(recorder.calls) <= 10 / RENDER_INTERVAL + 2


def test_a_burst_is_rendered_first_and_last() -> None:
    sink, recorder, timers = live_sink()
    opened(sink)
    for _ in range(50):
        sink.on_next(events(f.text(0, "x")))
    assert len(recorder.calls) == 1, "the first batch at once"
    timers.advance(RENDER_INTERVAL)
    assert [call[2] for call in recorder.calls] == [[""], ["x" * 50]]
    timers.advance(10)
    assert len(recorder.calls) == 2, "nothing new, nothing rendered"
    assert timers.waiting == []


@pytest.mark.parametrize("end", ["on_completed", "on_error", "drain", "aclose"])
def test_ends_render_at_once(end: str) -> None:
    make = Maker()
    sink, recorder, timers = live_sink()
    opened(sink)
    sink.on_next(events(f.text(0, "x")))
    sink.on_next([make.finished(f.text_block("x"))])
    if end == "on_completed":
        sink.on_completed()
    elif end == "on_error":
        sink.on_error(ValueError("broken"))
    else:
        asyncio.run(getattr(sink, end)())
    assert len(recorder.calls) == 2
    assert len(recorder.calls[1][1]) == (2 if end == "on_error" else 1)
    assert timers.waiting == [], "no timer is left behind"


def test_on_error_shows_the_error_after_what_came_before() -> None:
    sink, recorder, _ = live_sink(Recorder(live=False))
    sink.on_next(Maker().answer(Maker().text("kept")))
    sink.on_error(ConnectionError("gone"))
    assert isinstance(recorder.calls[-1][1][-1], ResponseFailed)


def test_a_renderer_that_is_not_live_is_asked_only_for_what_is_finished() -> None:
    make = Maker()
    sink, recorder, timers = live_sink(Recorder(live=False))
    opened(sink)
    for _ in range(100):
        sink.on_next(events(f.text(0, "x")))
    assert recorder.calls == []
    message = make.finished(f.text_block("x"))
    sink.on_next([message])
    assert recorder.calls == [(None, [message], [])]
    assert timers.waiting == []


def test_without_a_loop_a_live_renderer_shows_what_is_finished() -> None:
    make = Maker()
    recorder = Recorder()
    sink = UISink(recorder)
    opened(sink)
    sink.on_next(events(f.text(0, "x")))
    assert recorder.calls == []
    sink.on_next([make.finished(f.text_block("x"))])
    assert len(recorder.calls) == 1


def test_the_running_loop_is_the_timer() -> None:
    recorder = Recorder()

    async def run() -> None:
        sink = UISink(recorder, interval=1000.0)
        opened(sink)
        sink.on_next(events(f.text(0, "x")))
        assert len(recorder.calls) == 1
        await sink.aclose()

    asyncio.run(run())
    assert [call[2] for call in recorder.calls] == [[""], ["x"]]
    assert recorder.closed == 1


def test_aclose_closes_the_renderer_once() -> None:
    sink, recorder, _ = live_sink()

    async def run() -> None:
        await sink.aclose()
        await sink.aclose()

    asyncio.run(run())
    assert recorder.closed == 1


# -- errors ----------------------------------------------------------------------------------------------


def test_what_a_renderer_raises_reaches_the_caller() -> None:
    """FAULTS 83: the fan-out isolates the sink; the sink hides nothing, and its state stays right."""
    sink, recorder, timers = live_sink(Broken())
    opened(sink)
    sink.on_next(events(f.text(0, "a")))
    timers.advance(RENDER_INTERVAL)  # raises in the timer
    with pytest.raises(BrokenPipeError):
        sink.on_next(events(f.text(0, "b")))
    with pytest.raises(BrokenPipeError):
        asyncio.run(sink.drain())
    assert texts_of(sink.state.snapshot()) == ["ab"]
    assert len(recorder.calls) == 2, "a broken renderer isn't asked again"
    asyncio.run(sink.aclose())


def test_aclose_tells_what_nobody_was_told() -> None:
    sink, _, timers = live_sink(Broken())
    opened(sink)
    sink.on_next(events(f.text(0, "a")))
    timers.advance(RENDER_INTERVAL)
    with pytest.raises(BrokenPipeError):
        asyncio.run(sink.aclose())
    asyncio.run(sink.aclose())


def test_a_broken_pipe_propagates_at_once_when_rendering_in_on_next() -> None:
    class Pipe(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    make = Maker()
    sink = UISink(PlainRenderer(Pipe()))
    with pytest.raises(BrokenPipeError):
        sink.on_next(make.answer(make.text("x")))


# -- keys and memory -------------------------------------------------------------------------------------


def test_sub_agents_have_states_of_their_own() -> None:
    make = Maker()
    sink, recorder, _ = live_sink(Recorder(live=False))
    main, sub = StreamKey("s"), StreamKey("s", "toolu_1")
    sink.on_next(Batch(events(f.start("msg_a"), f.opens_text(), f.text(0, "main ")), key=main))
    sink.on_next(Batch(events(f.start("msg_b"), f.opens_text(), f.text(0, "sub")), key=sub))
    sink.on_next(Batch(events(f.text(0, "text")), key=main))
    assert texts_of(sink.state.snapshot()) == ["main text"]
    assert texts_of(sink.states["toolu_1"].snapshot()) == ["sub"]
    message = make.finished(f.text_block("sub"), ident="msg_b")
    sink.on_next(Batch([message], key=sub))
    assert recorder.calls == [("toolu_1", [message], [])]
    sink.on_completed()
    assert sink.states["toolu_1"].outcome == "incomplete(1)", "one block was finished"


@pytest.mark.parametrize(("keep", "count"), [(True, 2), (False, 0)])
def test_without_a_renderer_finished_items_are_kept_only_if_asked(keep: bool, count: int) -> None:
    make = Maker()
    sink = UISink(keep=keep)
    sink.on_next([RequestStart(), *make.answer(make.text("a"), make.text("b", index=1))])
    assert len(sink.state.snapshot().items) == count
    assert sink.state.outcome == "complete"
    assert sink.state.finished == 2


def test_statistics_are_plain_counters() -> None:
    make = Maker()
    sink = UISink(keep=True)
    sink.on_next([*make.answer(make.thinking("ab"), make.text("cde", index=1)), factory(5).user("hi")])
    assert sink.statistics() == {
        "batches": 1,
        "renders": 0,
        "finished_items": 3,
        "retracted": 0,
        "duplicates": 0,
        "blocks_opened": 2,
        "blocks_closed": 2,
        "notes": 0,
        "streamed_length": 5,
        "outcome": "complete",
    }
