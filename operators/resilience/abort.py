"""``abort_on``: a signal breaks a stream off, and what is open is kept, marked and answered (WIRE.md §7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from turnstream.messages.errors import AbortedError
from turnstream.operators.stage import Operator

if TYPE_CHECKING:
    from reactivex import Observable

__all__ = ["abort_on"]

A = TypeVar("A")
B = TypeVar("B")


def abort_on(
    signal: Observable[Any], through: Operator[A, B] | None = None, *, reason: str = "aborted"
) -> Operator[A, B]:
    """At the signal's first item, let go of the source and end the stream.

    With ``through`` (as a rule ``accumulate()``, or the whole chain of stages) the stages learn of the abort: what is
    open is kept and marked, every tool_use gets a result, the interruption is told; then the stream **completes**.
    Without it the stream ends with :class:`AbortedError`, for stages that come later. After the signal nothing else of
    the source is delivered. A signal that completes or breaks without an item aborts nothing.

    Args:
        signal: subscribed together with the source; a string it emits is the reason.
        through: stages inside of which the abort happens.
        reason: the owner's word, where the signal gives none.
    """

    def abortable(source: Observable[Sequence[A]]) -> Observable[Sequence[A]]:
        from reactivex import Observable
        from reactivex.disposable import CompositeDisposable, SingleAssignmentDisposable

        def subscribe(observer: Any, scheduler: Any = None) -> Any:
            inner = SingleAssignmentDisposable()
            watching = SingleAssignmentDisposable()
            over = False

            def abort(word: Any) -> None:
                nonlocal over
                if not over:
                    over = True
                    watching.dispose()
                    inner.dispose()
                    observer.on_error(AbortedError(word if isinstance(word, str) and word else reason))

            def end(tell: Any, *what: Any) -> None:
                nonlocal over
                if not over:
                    over = True
                    watching.dispose()
                    tell(*what)

            def on_next(batch: Any) -> None:
                if not over:
                    observer.on_next(batch)

            watching.disposable = signal.subscribe(abort, lambda _: None, scheduler=scheduler)
            if not over:
                inner.disposable = source.subscribe(
                    on_next,
                    lambda error: end(observer.on_error, error),
                    lambda: end(observer.on_completed),
                    scheduler=scheduler,
                )
            return CompositeDisposable(inner, watching)

        return Observable(subscribe)

    if through is None:
        return Operator(function=abortable, name="abort_on")
    stages = through

    def completing(source: Observable[Sequence[A]]) -> Observable[Sequence[B]]:
        from reactivex import Observable

        def subscribe(observer: Any, scheduler: Any = None) -> Any:
            def on_error(error: Exception) -> None:
                if isinstance(error, AbortedError):
                    observer.on_completed()
                else:
                    observer.on_error(error)

            return stages(abortable(source)).subscribe(
                observer.on_next, on_error, observer.on_completed, scheduler=scheduler
            )

        return Observable(subscribe)

    return Operator(function=completing, name=f"abort_on({stages.name})")
