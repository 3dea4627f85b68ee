"""The progress clock: a stream that is alive but gets nowhere is broken off (WIRE.md §7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from turnstream.messages.errors import StreamIdleTimeout
from turnstream.messages.events import Ping
from turnstream.messages.types import StreamNote
from turnstream.operators.batch import Batch
from turnstream.operators.stage import Operator

if TYPE_CHECKING:
    from reactivex import Observable, abc

__all__ = ["PROGRESS_SECONDS", "is_progress", "no_progress", "require_scheduler", "watch_progress"]

T = TypeVar("T")

PROGRESS_SECONDS: Final = 600.0
"""Seconds without any event but pings, after which a stream is given up."""

_NO_PROGRESS: Final = frozenset({Ping, StreamNote})


def is_progress(items: Sequence[Any]) -> bool:
    """Whether a batch holds more than pings (comments and lines that nobody can read make no item, or a note)."""
    if len(items) == 1:
        return items[0].__class__ not in _NO_PROGRESS
    return any(item.__class__ not in _NO_PROGRESS for item in items)


def no_progress(seconds: float) -> StreamIdleTimeout:
    """The error of a stream that got nowhere for so long."""
    return StreamIdleTimeout(
        f"no event but pings for {seconds:g} s", hint="the connection lives, but nothing comes; send it again"
    )


def require_scheduler(scheduler: Any, name: str) -> Any:
    """The scheduler, which every timed operator must be given.

    Raises:
        TypeError: there is none: Rx would fall back to threads and another clock.
    """
    if scheduler is None:
        raise TypeError(f"{name} takes time: give it the loop's scheduler, scheduler=LoopScheduler()")
    return scheduler


def watch_progress(
    seconds: float | None = PROGRESS_SECONDS,
    *,
    scheduler: abc.SchedulerBase | None = None,
    paused: Callable[[], bool] | None = None,
) -> Operator[T, T]:
    """A stream that for so long gives no event but pings ends with :class:`StreamIdleTimeout`.

    Goes behind ``parse_events`` and before ``accumulate``, so that what is open is kept. One timer, set anew only when
    it is due, so a batch costs one look at the clock.

    Args:
        seconds: how long; None never.
        scheduler: the loop's (:class:`turnstream.scheduler.LoopScheduler`).
        paused: asked when the time is up: True if the consumer or a tool holds the stream (the time begins anew).

    Raises:
        TypeError: no scheduler is given.
        ValueError: ``seconds`` isn't above zero.
    """
    if seconds is None:
        return Operator(function=lambda source: source, name="watch_progress")
    if not seconds > 0:
        raise ValueError(f"seconds must be above zero, not {seconds}")
    clock: Any = require_scheduler(scheduler, "watch_progress")
    limit: float = seconds

    def watched(source: Observable[Sequence[T]]) -> Observable[Sequence[T]]:
        from reactivex import Observable
        from reactivex.disposable import CompositeDisposable, SerialDisposable

        def subscribe(observer: Any, _: Any = None) -> Any:
            timer = SerialDisposable()
            inner = SerialDisposable()
            last = clock.to_seconds(clock.now)
            over = False

            def set_timer(wait: float) -> None:
                timer.disposable = clock.schedule_relative(wait, look)

            def look(*_: Any) -> None:
                nonlocal over, last
                if over:
                    return
                now = clock.to_seconds(clock.now)
                if paused is not None and paused():
                    last = now
                # Less than a microsecond is what times as datetimes lose.
                left = last + limit - now
                if left > 1e-5:
                    set_timer(left)
                    return
                over = True
                inner.dispose()
                observer.on_error(no_progress(limit))

            def on_next(batch: Any) -> None:
                nonlocal last
                if over:
                    return
                if is_progress(batch.items if batch.__class__ is Batch else batch):
                    last = clock.to_seconds(clock.now)
                observer.on_next(batch)

            def end(tell: Callable[..., None], *what: Any) -> None:
                nonlocal over
                if not over:
                    over = True
                    timer.dispose()
                    tell(*what)

            set_timer(limit)
            inner.disposable = source.subscribe(
                on_next,
                lambda error: end(observer.on_error, error),
                lambda: end(observer.on_completed),
                scheduler=clock,
            )
            return CompositeDisposable(timer, inner)

        return Observable(subscribe)

    return Operator(function=watched, name="watch_progress")
