"""``retry_with_backoff``: attempts of a cold observable, as an Rx operator (WIRE.md §7)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from turnstream.messages.ids import Clock, IdSource, system_clock
from turnstream.messages.types import QueryItem
from turnstream.operators.resilience.attempts import Attempts
from turnstream.operators.resilience.budget import RetryBudget
from turnstream.operators.resilience.driving import drive
from turnstream.operators.resilience.policy import RetryPolicy
from turnstream.operators.resilience.watchdog import require_scheduler
from turnstream.operators.stage import Operator

if TYPE_CHECKING:
    from reactivex import Observable, abc

__all__ = ["retry_with_backoff"]


def retry_with_backoff(
    policy: RetryPolicy | None = None,
    *,
    scheduler: abc.SchedulerBase | None = None,
    budget: RetryBudget | None = None,
    ids: IdSource | None = None,
    clock: Clock = system_clock,
    chance: Callable[[], float] = random.random,
) -> Operator[QueryItem, QueryItem]:
    """Subscribe again, after a wait, to a source whose answer failed with something that may pass.

    The source is cold: each subscription sends the request anew, through fresh stages (``reactivex.defer``, or an
    observable that does so by itself). It goes behind ``accumulate``, and before what fans out: a ``share`` between the
    two would replay nothing and have every sink see every attempt's end.

    Each attempt begins with a :class:`RequestStart`; whoever sets its ``committed`` keeps the attempt from being tried
    again. What an attempt had finished is tombstoned, then comes an ``api_error`` system message, then the wait. What
    isn't tried again stays as it came, an ``on_error`` too.

    Args:
        policy: how often and after which waits.
        scheduler: the loop's (:class:`turnstream.scheduler.LoopScheduler`).
        budget: shared by the requests to one host; default none.
        ids: makes uuids of the system messages.
        clock: wall-clock seconds of the system messages.
        chance: evenly distributed from 0 to 1, for the jitter.

    Raises:
        TypeError: no scheduler is given.
    """
    timer = require_scheduler(scheduler, "retry_with_backoff")

    def retried(source: Observable[Sequence[QueryItem]]) -> Observable[Sequence[QueryItem]]:
        from reactivex import Observable

        def subscribe(observer: Any, _: Any = None) -> Any:
            attempts = Attempts(retry=policy, budget=budget, ids=ids, clock=clock, chance=chance)
            return drive(observer, attempts, source, lambda decision: source, timer, announce=True)

        return Observable(subscribe)

    return Operator(function=retried, name="retry_with_backoff")
