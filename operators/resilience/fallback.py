"""``fall_back``: another request where the first kind failed, as an Rx operator (WIRE.md §7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from turnstream.messages.errors import StreamIdleTimeout
from turnstream.messages.ids import Clock, IdSource, system_clock
from turnstream.messages.types import QueryItem, ResponseFailed
from turnstream.operators.resilience.attempts import Attempts, Switch
from turnstream.operators.resilience.driving import drive
from turnstream.operators.resilience.policy import NO_RETRY, may_fall_back
from turnstream.operators.resilience.watchdog import require_scheduler
from turnstream.operators.stage import Operator

if TYPE_CHECKING:
    from reactivex import Observable, abc

__all__ = ["FALLBACK_SECONDS", "fall_back", "took_too_long"]

FALLBACK_SECONDS: Final = 300.0
"""Seconds that a request that doesn't stream may take."""


def took_too_long(name: str, seconds: float) -> StreamIdleTimeout:
    """The error of a fallback that didn't answer in time."""
    return StreamIdleTimeout(f"{name} gave no answer within {seconds:g} s")


def fall_back(
    other: Callable[[], Observable[Sequence[QueryItem]]],
    name: str,
    *,
    scheduler: abc.SchedulerBase | None = None,
    timeout: float | None = FALLBACK_SECONDS,
    suits: Callable[[ResponseFailed], bool] = may_fall_back,
    ids: IdSource | None = None,
    clock: Clock = system_clock,
) -> Operator[QueryItem, QueryItem]:
    """Once, in place of a failed answer that isn't committed, the answer of another request.

    What was shown is tombstoned, one informational message with a field ``fallback`` names the switch, a
    :class:`RequestStart` follows, then what ``other()`` gives; that runs through stages of its own, with a fresh
    accumulator. Goes behind ``retry_with_backoff``.

    Args:
        other: makes the other request's observable of batches; called only if it is needed.
        name: what it is, for people: ``a request that doesn't stream``, ``model …``.
        scheduler: the loop's (:class:`turnstream.scheduler.LoopScheduler`).
        timeout: seconds that the other request may take in all; None for one that streams.
        suits: which failures it may help against.
        ids: makes the message's uuid.
        clock: wall-clock seconds of the message.

    Raises:
        TypeError: no scheduler is given.
    """
    timer = require_scheduler(scheduler, "fall_back")

    def falling(source: Observable[Sequence[QueryItem]]) -> Observable[Sequence[QueryItem]]:
        from reactivex import Observable

        def subscribe(observer: Any, _: Any = None) -> Any:
            attempts = Attempts(retry=NO_RETRY, switches=[Switch(name=name, suits=suits)], ids=ids, clock=clock)

            def following(_: Any) -> Observable[Any]:
                return other() if timeout is None else _limited(other(), timeout, timer, name)

            return drive(observer, attempts, source, following, timer, announce=False)

        return Observable(subscribe)

    return Operator(function=falling, name="fall_back")


def _limited(source: Observable[Any], seconds: float, scheduler: Any, name: str) -> Observable[Any]:
    """The source, but after so long an error."""
    from reactivex import Observable
    from reactivex.disposable import CompositeDisposable, SingleAssignmentDisposable

    def subscribe(observer: Any, _: Any = None) -> Any:
        inner = SingleAssignmentDisposable()
        timer = SingleAssignmentDisposable()

        def late(*_: Any) -> None:
            inner.dispose()
            observer.on_error(took_too_long(name, seconds))

        timer.disposable = scheduler.schedule_relative(seconds, late)
        inner.disposable = source.subscribe(observer, scheduler=scheduler)
        return CompositeDisposable(inner, timer)

    return Observable(subscribe)
