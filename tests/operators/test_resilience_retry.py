"""``retry_with_backoff`` on a TestScheduler: values, subscriptions, times (WIRE.md §7)."""

from __future__ import annotations

import asyncio
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
from turnstream.operators import Batch
from turnstream.operators.resilience import RetryBudget, RetryPolicy, retry_with_backoff
from turnstream.scheduler import LoopScheduler
from turnstream.testing import record_observable, virtual_time

GOOD = [f.start("good"), f.says("hi"), f.turn(), f.STOP]
HALF = [f.start("half"), f.says("lost"), f.opens_text(1), f.text(1, "more")]


def retry(rig: Rig, policy: RetryPolicy | None = None, **options: Any) -> Any:
    return retry_with_backoff(policy, scheduler=rig.scheduler, chance=lambda: 0.5, **options)


def of(out: list[Any], *kinds: type) -> list[Any]:
    return [item for _, kind, items in out if kind == "N" for item in items if isinstance(item, kinds)]


def test_it_needs_a_scheduler() -> None:
    with pytest.raises(TypeError, match="LoopScheduler"):
        retry_with_backoff()


def test_a_good_answer_is_one_subscription() -> None:
    rig = Rig()
    source = rig.cold(on_next(10, GOOD), on_completed(20))
    out = rig.run(lambda: source.pipe(retry(rig)))
    assert [(time, kind) for time, kind, _ in out] == [(0, "N"), (10, "N"), (20, "C")]
    assert out[0][2] == [RequestStart(attempt=1)]
    assert rig.subscriptions() == [(0, 20)]


def test_an_error_subscribes_again_after_the_wait() -> None:
    rig = Rig()
    broken = rig.cold(on_next(10, HALF), on_error(20, TransportError("reset")))
    good = rig.cold(on_next(10, GOOD), on_completed(20))
    policy = RetryPolicy(initial=100, longest=1000)
    out = rig.run(lambda: rig.in_turn(broken, good).pipe(retry(rig, policy)))
    assert rig.subscriptions() == [(0, 20), (120, 140)]
    assert names(of(out, Tombstone, SystemMessage, RequestStart)) == [
        "RequestStart",
        "Tombstone",
        "SystemMessage",
        "RequestStart",
    ]
    assert [start.attempt for start in of(out, RequestStart)] == [1, 2]
    lost, kept = of(out, AssistantMessage)
    assert [item.message for item in of(out, Tombstone)] == [lost]
    assert not lost.is_aborted_mid_stream
    assert kept.message["id"] == "good"
    assert not of(out, ResponseFailed)
    assert out[-1][:2] == (140, "C")


def test_a_failure_item_lets_go_of_the_source_soon() -> None:
    rig = Rig()
    # after an error event the server goes on with pings for ever
    broken = rig.cold(on_next(10, [*HALF, f.fails()]), on_next(500, [f.PING]), on_next(600, [f.PING]))
    good = rig.cold(on_next(10, GOOD), on_completed(20))
    out = rig.run(lambda: rig.in_turn(broken, good).pipe(retry(rig, RetryPolicy(initial=100, longest=1000))))
    (first, let_go), (again, _) = rig.subscriptions()
    assert (first, again) == (0, let_go + 100)
    assert 10 <= let_go <= 11
    assert out[-1][1] == "C"


def test_retry_after_of_the_error_counts() -> None:
    rig = Rig()
    busy = APIError("busy", error_type="overloaded_error", status=529, retryable=True)
    busy.retry_after = 90  # type: ignore[attr-defined]
    out = rig.run(
        lambda: rig.in_turn(rig.cold(on_error(10, busy)), rig.cold(on_next(10, GOOD), on_completed(20))).pipe(
            retry(rig)
        )
    )
    assert rig.subscriptions() == [(0, 10), (100, 120)]
    assert of(out, SystemMessage)[0].fields["retryInMs"] == 90_000


def test_what_is_given_up_stays_and_so_does_its_error() -> None:
    rig = Rig()
    error = TransportError("reset")
    sources = [rig.cold(on_next(10, HALF), on_error(20, error)) for _ in range(2)]
    policy = RetryPolicy(tries=2, initial=100, longest=1000)
    out = rig.run(lambda: rig.in_turn(*sources).pipe(retry(rig, policy)))
    assert rig.subscriptions() == [(0, 20), (120, 140)]
    assert out[-1] == (140, "E", error)
    assert [failed.outcome for failed in of(out, ResponseFailed)] == ["incomplete(1)"]
    assert [m.is_aborted_mid_stream for m in of(out, AssistantMessage)] == [None, None, True]


def test_a_failure_item_that_is_given_up_completes() -> None:
    rig = Rig()
    source = rig.cold(on_next(10, HALF), on_completed(20))
    out = rig.run(lambda: source.pipe(retry(rig, RetryPolicy(tries=1))))
    assert out[-1][:2] == (20, "C")
    assert [failed.outcome for failed in of(out, ResponseFailed)] == ["incomplete(1)"]


def test_empty_is_tried_again() -> None:
    rig = Rig()
    sources = [rig.cold(on_completed(5)), rig.cold(on_next(10, GOOD), on_completed(20))]
    out = rig.run(lambda: rig.in_turn(*sources).pipe(retry(rig, RetryPolicy(initial=100, longest=100))))
    assert rig.subscriptions() == [(0, 5), (105, 125)]
    assert of(out, SystemMessage)[0].fields["error"]["type"] == "empty_stream"


def test_never_and_dispose() -> None:
    rig = Rig()
    source = rig.cold()
    out = rig.run(lambda: source.pipe(retry(rig)), disposed=1000)
    assert [(time, kind) for time, kind, _ in out] == [(0, "N")]
    assert rig.subscriptions() == [(0, 800)]


def test_dispose_while_it_waits() -> None:
    rig = Rig()
    sources = [rig.cold(on_completed(5)), rig.cold(on_next(10, GOOD))]
    policy = RetryPolicy(initial=500, longest=500)
    out = rig.run(lambda: rig.in_turn(*sources).pipe(retry(rig, policy)), disposed=300)
    assert rig.subscriptions() == [(0, 5)]
    assert out[-1][0] == 5


def test_committed_is_closed() -> None:
    rig = Rig()
    source = rig.cold(on_next(10, [f.start(), f.calls(0, "{}"), f.opens_text(1), f.text(1, "x")]), on_completed(20))

    def commit(batch: Any) -> None:
        for item in batch:
            if isinstance(item, RequestStart):
                item.committed = True

    out = rig.run(lambda: source.pipe(retry(rig), ops.do_action(commit)))
    assert rig.subscriptions() == [(0, 20)]
    assert not of(out, Tombstone)
    (failed,) = of(out, ResponseFailed)
    assert [block["type"] for block in failed.kept] == ["tool_use"]


def test_a_budget_is_shared_by_subscriptions() -> None:
    rig = Rig()
    budget = RetryBudget(1, per_second=0, per_answer=0)
    sources = [rig.cold(on_completed(5)) for _ in range(3)]
    operator = retry(rig, RetryPolicy(initial=10, longest=10), budget=budget)
    rig.run(lambda: rx.concat(rig.in_turn(sources[0], sources[1]).pipe(operator), sources[2].pipe(operator)))
    assert len(rig.subscriptions()) == 3
    assert budget.refused == 2


@virtual_time
async def test_fault_104_the_retry_is_inside_the_share() -> None:
    """Three sinks on one hot stream; the source is made anew for each attempt, once for all of them."""
    subscribed: list[float] = []
    loop = asyncio.get_running_loop()

    def attempt(_: Any) -> Any:
        from accumulating import events

        from turnstream.operators import accumulate

        subscribed.append(loop.time())
        good = len(subscribed) == 2
        batches = rx.of(Batch(tuple(events(*(GOOD if good else HALF)))))
        return accumulate()(batches if good else rx.concat(batches, rx.throw(TransportError("reset"))))

    scheduler = LoopScheduler()
    shared = rx.defer(attempt).pipe(retry_with_backoff(scheduler=scheduler, chance=lambda: 0.5), ops.publish())
    sinks = [record_observable(shared, scheduler=scheduler) for _ in range(3)]
    shared.connect(scheduler)
    for sink in sinks:
        await sink.finished()
    assert subscribed == [0.0, 0.5]
    assert all(sink.completed and sink.error is None for sink in sinks)
    assert [sink.items for sink in sinks] == [sinks[0].items] * 3
    assert [start.attempt for start in sinks[0].items if isinstance(start, RequestStart)] == [1, 2]
    assert len(sinks[0].threads) == 1
