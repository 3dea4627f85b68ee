"""``fall_back`` on a TestScheduler (WIRE.md §7; FAULTS.md 92, 99)."""

from __future__ import annotations

from typing import Any

import frames as f
import pytest
import reactivex as rx
from attempting import Rig, names, on_completed, on_error, on_next
from reactivex import operators as ops

from turnstream.messages import (
    APIError,
    AssistantMessage,
    RequestStart,
    ResponseFailed,
    SystemMessage,
    Tombstone,
    TransportError,
)
from turnstream.operators.resilience import RetryPolicy, fall_back, retry_with_backoff

GOOD = [f.start("good"), f.says("hi"), f.turn(), f.STOP]
HALF = [f.start("half"), f.says("lost"), f.opens_text(1), f.text(1, "more")]
NAME = "a request that doesn't stream"


def of(out: list[Any], *kinds: type) -> list[Any]:
    return [item for _, kind, items in out if kind == "N" for item in items if isinstance(item, kinds)]


def test_it_needs_a_scheduler() -> None:
    with pytest.raises(TypeError, match="LoopScheduler"):
        fall_back(rx.never, NAME)


def test_a_good_answer_needs_none() -> None:
    rig = Rig()
    source = rig.cold(on_next(10, GOOD), on_completed(20))
    asked: list[int] = []

    def other() -> Any:
        asked.append(1)
        return rx.never()

    out = rig.run(lambda: source.pipe(fall_back(other, NAME, scheduler=rig.scheduler)))
    assert [(time, kind) for time, kind, _ in out] == [(10, "N"), (20, "C")]
    assert asked == []


def test_fault_92_what_was_shown_is_taken_back_and_the_switch_is_told() -> None:
    rig = Rig()
    source = rig.cold(on_next(10, HALF), on_error(20, TransportError("reset")))
    other = rig.cold(on_next(10, GOOD), on_completed(20))
    out = rig.run(lambda: source.pipe(fall_back(lambda: other, NAME, scheduler=rig.scheduler)))
    assert rig.subscriptions() == [(0, 20), (20, 40)]
    assert names(of(out, Tombstone, SystemMessage, RequestStart)) == ["Tombstone", "SystemMessage", "RequestStart"]
    (told,) = of(out, SystemMessage)
    assert (told.subtype, told.fields["fallback"]) == ("informational", NAME)
    assert of(out, RequestStart)[0].attempt == 2
    lost, kept = of(out, AssistantMessage)
    assert [item.message for item in of(out, Tombstone)] == [lost]
    assert kept.message["id"] == "good"
    assert out[-1][:2] == (40, "C")


def test_behind_a_retry_it_comes_last() -> None:
    rig = Rig()
    sources = [rig.cold(on_next(10, HALF), on_completed(20)) for _ in range(2)]
    other = rig.cold(on_next(10, GOOD), on_completed(20))
    policy = RetryPolicy(tries=2, initial=100, longest=100)
    out = rig.run(
        lambda: rig.in_turn(*sources).pipe(
            retry_with_backoff(policy, scheduler=rig.scheduler, chance=lambda: 0.5),
            fall_back(lambda: other, NAME, scheduler=rig.scheduler),
        )
    )
    assert [start.attempt for start in of(out, RequestStart)] == [1, 2, 3]
    assert [message.subtype for message in of(out, SystemMessage)] == ["api_error", "informational"]
    # each of the two half answers is taken back once
    gone = [item.message.uuid for item in of(out, Tombstone)]
    assert len(gone) == len(set(gone)) == 2
    assert not of(out, ResponseFailed)
    assert out[-1][1] == "C"


def test_fault_92_committed_does_not_fall_back() -> None:
    rig = Rig()
    source = rig.cold(on_next(10, HALF), on_completed(20))

    def commit(batch: Any) -> None:
        for item in batch:
            if isinstance(item, RequestStart):
                item.committed = True

    out = rig.run(
        lambda: source.pipe(
            retry_with_backoff(RetryPolicy(tries=1), scheduler=rig.scheduler),
            ops.do_action(commit),
            fall_back(rx.never, NAME, scheduler=rig.scheduler),
        )
    )
    assert len(of(out, ResponseFailed)) == 1
    assert not of(out, SystemMessage)


def test_fault_95_a_refusal_does_not_fall_back() -> None:
    rig = Rig()
    error = APIError("no", error_type="authentication_error", status=401)
    source = rig.cold(on_error(20, error))
    out = rig.run(lambda: source.pipe(fall_back(rx.never, NAME, scheduler=rig.scheduler)))
    assert out[-1] == (20, "E", error)
    assert len(of(out, ResponseFailed)) == 1


def test_fault_99_nothing_is_no_answer() -> None:
    rig = Rig()
    source = rig.cold(on_next(10, HALF), on_completed(20))
    other = rig.cold(on_next(10, [f.start("e", content=[], stop_reason=None), f.STOP]), on_completed(20))
    out = rig.run(lambda: source.pipe(fall_back(lambda: other, NAME, scheduler=rig.scheduler)))
    (failed,) = of(out, ResponseFailed)
    assert failed.outcome == "incomplete(0)"


def test_the_other_request_has_its_time() -> None:
    rig = Rig()
    source = rig.cold(on_next(10, HALF), on_completed(20))
    other = rig.cold(on_next(10, HALF))
    out = rig.run(lambda: source.pipe(fall_back(lambda: other, NAME, scheduler=rig.scheduler)))
    assert rig.subscriptions() == [(0, 20), (20, 320)]
    (failed,) = of(out, ResponseFailed)
    assert failed.error["type"] == "stream_idle_timeout"
    assert out[-1][:2] == (320, "E")


def test_dispose_during_the_fallback() -> None:
    rig = Rig()
    source = rig.cold(on_completed(20))
    other = rig.cold(on_next(10, GOOD))
    rig.run(lambda: source.pipe(fall_back(lambda: other, NAME, scheduler=rig.scheduler, timeout=None)), disposed=1000)
    assert rig.subscriptions() == [(0, 20), (20, 800)]


def test_another_request_that_cannot_be_made() -> None:
    rig = Rig()
    source = rig.cold(on_completed(20))

    def other() -> Any:
        raise LookupError("no such model")

    out = rig.run(lambda: source.pipe(fall_back(other, NAME, scheduler=rig.scheduler)))
    assert out[-1][1] == "E"
    assert isinstance(out[-1][2], LookupError)
