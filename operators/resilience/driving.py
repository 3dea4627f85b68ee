"""What the Rx forms share: one subscription after the other, as :class:`Attempts` decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from turnstream.operators.batch import Batch
from turnstream.operators.resilience.attempts import Attempts, Decision

if TYPE_CHECKING:
    from reactivex import Observable

__all__ = ["drive"]


def drive(
    observer: Any,
    attempts: Attempts,
    first: Observable[Any],
    following: Callable[[Decision], Observable[Any]],
    scheduler: Any,
    *,
    announce: bool,
) -> Any:
    """Subscribe to ``first``, then to what follows on each decision that goes on.

    Args:
        observer: gets batches of items.
        attempts: fresh.
        first: the first attempt.
        following: the observable of the next attempt.
        scheduler: for the waits, and for what comes soon.
        announce: whether the first attempt begins with its :class:`RequestStart` (further ones always do).

    Returns:
        The disposable of it all.
    """
    from reactivex.disposable import CompositeDisposable, Disposable, SerialDisposable, SingleAssignmentDisposable

    source = SerialDisposable()
    waiting = SerialDisposable()
    disposed = False

    def now() -> float:
        return float(scheduler.to_seconds(scheduler.now))

    def subscribe(observable: Observable[Any], tell: bool) -> None:
        # A retry from inside a subscription that is still being made must not be overwritten by it.
        mine = SingleAssignmentDisposable()
        soon = SerialDisposable()
        source.disposable = CompositeDisposable(mine, soon)
        ended = over = False

        def on_next(batch: Any) -> None:
            nonlocal over
            if ended or over:
                return
            if batch.__class__ is Batch:
                items = attempts.feed(batch.items)
                if items is batch.items:
                    observer.on_next(batch)
                elif items or batch.weight:
                    observer.on_next(Batch(items, batch.at, batch.key, batch.weight))
            else:
                items = attempts.feed(batch)
                if items:
                    observer.on_next(items)
            if attempts.over:
                over = True
                # Not at once: if the source broke, its error is right behind the failure.
                soon.disposable = scheduler.schedule(lambda *_: end(None))

        def end(error: Exception | None) -> None:
            nonlocal ended
            if ended or disposed:
                return
            ended = True
            soon.dispose()
            mine.dispose()
            decide(error)

        if tell:
            start: Sequence[Any] = (attempts.begin(),)
            observer.on_next(Batch(start))
            if disposed:
                return
        else:
            attempts.begin()
        mine.disposable = observable.subscribe(on_next, end, lambda: end(None), scheduler=scheduler)

    def decide(error: Exception | None) -> None:
        decision = attempts.ended(now(), error=error, retry_after=getattr(error, "retry_after", None))
        if decision.items:
            observer.on_next(Batch(decision.items))
        if disposed:
            return
        if decision.action in ("retry", "fall_back"):
            try:
                observable = following(decision)
            except Exception as broken:  # noqa: BLE001 - the caller's
                observer.on_error(broken)
                return
            if decision.delay > 0:
                waiting.disposable = scheduler.schedule_relative(decision.delay, lambda *_: subscribe(observable, True))
            else:
                subscribe(observable, True)
        elif error is None or decision.action == "done":
            observer.on_completed()
        else:
            observer.on_error(error)

    def stop() -> None:
        nonlocal disposed
        disposed = True

    subscribe(first, announce)
    return CompositeDisposable(Disposable(stop), source, waiting)
