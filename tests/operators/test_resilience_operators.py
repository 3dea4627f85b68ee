"""``require_complete``, ``watch_progress`` and ``abort_on`` (WIRE.md §7; FAULTS.md 98, 99)."""

from __future__ import annotations

from typing import Any

import accumulating as acc
import frames as f
import pytest
import reactivex as rx
from attempting import Rig, on_completed, on_error, on_next
from reactivex import operators as ops
from reactivex.subject import BehaviorSubject, Subject

from turnstream.messages import (
    AbortedError,
    APIError,
    AssistantMessage,
    EmptyStreamError,
    IncompleteStreamError,
    Ping,
    ResponseFailed,
    StreamIdleTimeout,
    TransportError,
    UserMessage,
)
from turnstream.operators import accumulate, run_stages
from turnstream.operators.resilience import abort_on, is_progress, require_complete, watch_progress
from turnstream.testing import record_observable

GOOD = [f.start("good"), f.says("hi"), f.turn(), f.STOP]
PING = [f.PING]


def of(out: list[Any], *kinds: type) -> list[Any]:
    return [item for _, kind, items in out if kind == "N" for item in items if isinstance(item, kinds)]


# -- require_complete --------------------------------------------------------------------------------


def test_a_complete_answer_passes() -> None:
    items = acc.run(*GOOD)
    assert run_stages(items, require_complete()) == items
    without_stop = acc.run(*GOOD[:-1])
    assert run_stages(without_stop, require_complete()) == without_stop


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ([f.start(), f.says("x")], IncompleteStreamError),
        ([f.start(), f.says("x"), f.fails()], APIError),
        ([], EmptyStreamError),
        ([f.start("e", content=[], stop_reason=None), f.STOP], IncompleteStreamError),
        # fault 99: a gateway's 200 that holds no answer
        ([f.start("e", content=[{"type": "text", "text": ""}], stop_reason=None), f.STOP], IncompleteStreamError),
    ],
)
def test_anything_else_is_its_error_after_what_came(parts: list[Any], error: type[Exception]) -> None:
    items = acc.run(*parts)
    with pytest.raises(error) as caught:
        run_stages(items, require_complete())
    # all came before the error
    assert list(caught.value.kept) in (items, [b for m in acc.of(items, ResponseFailed) for b in m.kept])


def test_a_stream_that_stops_inside_an_answer() -> None:
    with pytest.raises(IncompleteStreamError, match="before its answer did"):
        run_stages(acc.events(f.start(), f.opens_text()), require_complete())


def test_an_empty_answer_with_a_stop_reason_is_one() -> None:
    items = acc.run(f.start(), f.turn("end_turn"), f.STOP)
    assert run_stages(items, require_complete()) == items


def test_a_broken_source_breaks_as_it_did() -> None:
    rig = Rig()
    source = rig.cold(on_error(10, TransportError("x"))).pipe(ops.filter(lambda _: False))
    out = rig.run(lambda: source.pipe(require_complete()))
    assert [type(error) for _, kind, error in out if kind == "E"] == [TransportError]


# -- watch_progress ----------------------------------------------------------------------------------


def watched(rig: Rig, *messages: Any, disposed: float = 100_000, **options: Any) -> Any:
    source = rig.scheduler.create_cold_observable(
        *[on_next(m.time, acc.events(*m.value.value)) if m.value.kind == "N" else m for m in messages]
    )
    rig.made.append(source)
    return rig.run(lambda: source.pipe(watch_progress(600, scheduler=rig.scheduler, **options)), disposed=disposed)


def test_it_needs_a_scheduler_and_a_time() -> None:
    with pytest.raises(TypeError, match="LoopScheduler"):
        watch_progress()
    with pytest.raises(ValueError, match="above zero"):
        watch_progress(0, scheduler=Rig().scheduler)


def test_what_is_progress() -> None:
    assert is_progress(acc.events(f.start()))
    assert is_progress(acc.events({"type": "new"}))
    assert is_progress([Ping(), *acc.events(f.text(0, "x"))])
    assert not is_progress([Ping(), Ping()])
    assert not is_progress([])


def test_pings_do_not_count() -> None:
    rig = Rig()
    pings = [on_next(at, PING) for at in range(30, 3000, 30)]
    out = watched(rig, on_next(10, [f.start()]), *pings)
    assert rig.subscriptions() == [(0, 610)]
    time, kind, error = out[-1]
    assert (time, kind) == (610, "E")
    assert isinstance(error, StreamIdleTimeout)
    assert error.retryable


def test_progress_every_nine_minutes_is_enough() -> None:
    rig = Rig()
    events = [on_next(540 * n, [f.text(0, "x")]) for n in range(1, 161)]
    out = watched(rig, *events, on_completed(86_400.5))
    assert out[-1][:2] == (86_400.5, "C")
    assert len(out) == 161


def test_nothing_at_all_and_dispose() -> None:
    rig = Rig()
    assert [(time, kind) for time, kind, _ in watched(rig)] == [(600, "E")]
    rig = Rig()
    assert watched(rig, disposed=500) == []
    assert rig.subscriptions() == [(0, 300)]


def test_the_end_stops_the_clock() -> None:
    rig = Rig()
    assert [(time, kind) for time, kind, _ in watched(rig, on_completed(10))] == [(10, "C")]
    rig = Rig()
    assert [(time, kind) for time, kind, _ in watched(rig, on_error(10, TransportError("x")))] == [(10, "E")]


def test_fault_87_while_it_is_paused_it_begins_anew() -> None:
    rig = Rig()
    out = watched(rig, on_next(10, [f.start()]), paused=lambda: rig.scheduler.clock < 200 + 1000)
    # looked at 600 (paused), at 1200 (no longer); 600 s from the look at 600
    assert [time for time, kind, _ in out if kind == "E"] == [1200]


def test_without_a_limit_it_is_not_there() -> None:
    rig = Rig()
    out = rig.run(lambda: rig.cold(on_next(5000, GOOD), on_completed(9000)).pipe(watch_progress(None)))
    assert out[-1][:2] == (9000, "C")


def test_what_is_open_is_kept_when_it_stands_before_accumulate() -> None:
    rig = Rig()
    source = rig.scheduler.create_cold_observable(on_next(10, acc.events(f.start(), f.opens_text(), f.text(0, "half"))))
    out = rig.run(lambda: source.pipe(watch_progress(600, scheduler=rig.scheduler), accumulate()))
    (partial,) = of(out, AssistantMessage)
    assert partial.is_aborted_mid_stream
    assert [failed.error["type"] for failed in of(out, ResponseFailed)] == ["stream_idle_timeout"]


# -- abort_on ----------------------------------------------------------------------------------------


def test_fault_98_after_the_signal_come_the_repairs_and_nothing_else() -> None:
    source: Any = Subject()
    signal: Any = Subject()
    out = record_observable(source.pipe(abort_on(signal, accumulate())))
    source.on_next(acc.events(f.start(), f.calls(0, "{}"), f.opens_tool(1, "toolu_b"), f.args(1, '{"half')))
    signal.on_next("the user")
    source.on_next(acc.events(f.args(1, '"}'), f.closes(1), f.STOP))
    source.on_completed()
    assert out.completed
    failed = out.items[[type(item) for item in out.items].index(ResponseFailed)]
    assert (failed.error["type"], failed.error["message"]) == ("aborted", "aborted: the user")
    partial = [item for item in out.items if isinstance(item, AssistantMessage)][-1]
    assert partial.unfinished_tool_inputs is not None
    # one result for the finished tool, then the interruption
    assert [type(item) for item in out.items[-2:]] == [UserMessage, UserMessage]
    assert not source.observers
    assert not signal.observers


def test_without_stages_it_is_an_error() -> None:
    source: Any = Subject()
    signal: Any = Subject()
    out = record_observable(source.pipe(abort_on(signal, reason="enough")))
    signal.on_next(1)
    assert isinstance(out.error, AbortedError)
    assert out.error.reason == "enough"


def test_a_signal_that_ends_without_an_item_aborts_nothing() -> None:
    source: Any = Subject()
    for signal in (rx.empty(), rx.throw(ValueError("x"))):
        out = record_observable(source.pipe(abort_on(signal, accumulate())))
        source.on_next(acc.events(*GOOD))
        assert not out.ended
        assert out.items
        out.dispose()


def test_a_signal_that_is_there_already_subscribes_to_nothing() -> None:
    subscribed: list[int] = []
    source = rx.defer(lambda _: subscribed.append(1) or rx.never())  # type: ignore[func-returns-value]
    out = record_observable(source.pipe(abort_on(BehaviorSubject(None))))
    assert isinstance(out.error, AbortedError)
    assert subscribed == []


def test_the_ends_of_the_source_pass_and_the_signal_is_let_go() -> None:
    signal: Any = Subject()
    for end, ended in ((rx.empty(), "completed"), (rx.throw(TransportError("x")), "error")):
        out = record_observable(end.pipe(abort_on(signal, require_complete() if ended == "error" else accumulate())))
        assert out.ended
        assert not signal.observers
    out = record_observable(rx.never().pipe(abort_on(signal)))
    out.dispose()
    assert not signal.observers
