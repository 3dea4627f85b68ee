"""Between batches and single items: ``each``, ``batched``, ``coalesce`` (DESIGN.md §3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from turnstream.messages.events import ContentBlockDelta, InputJsonDelta, TextDelta, ThinkingDelta
from turnstream.messages.types import QueryItem
from turnstream.operators.batch import Batch
from turnstream.operators.stage import Fault, Operator, lift

if TYPE_CHECKING:
    from reactivex import Observable

__all__ = ["batched", "coalesce", "each", "merge_deltas"]

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")


@overload
def each(first: Callable[[Observable[A]], Observable[B]], /) -> Operator[A, B]: ...
@overload
def each(
    first: Callable[[Observable[A]], Observable[B]], second: Callable[[Observable[B]], Observable[C]], /
) -> Operator[A, C]: ...
@overload
def each(
    first: Callable[[Observable[A]], Observable[B]],
    second: Callable[[Observable[B]], Observable[C]],
    third: Callable[[Observable[C]], Observable[D]],
    /,
) -> Operator[A, D]: ...
def each(*operators: Callable[[Observable[Any]], Observable[Any]]) -> Operator[Any, Any]:
    """Run ordinary Rx operators on the items of each batch and close the batch again.

    What they emit while a batch is fed to them leaves as one batch with its time and key; what they
    emit later (timers, completion) leaves as a batch of its own. The operators keep their state over
    batches. Time needs the loop's scheduler, as everywhere.
    """

    def function(source: Observable[Sequence[Any]]) -> Observable[Sequence[Any]]:
        from reactivex import Observable
        from reactivex.disposable import CompositeDisposable
        from reactivex.subject import Subject

        def subscribe(observer: Any, scheduler: Any = None) -> Any:
            subject: Any = Subject()
            collected: list[Any] | None = None  # what comes out while a batch is fed, None between batches
            at: float | None = None
            key: Any = None  # of the last batch
            owed = 0  # bytes that caused nothing yet, as in lift

            def take(item: Any) -> None:
                if collected is not None:
                    collected.append(item)
                else:
                    observer.on_next(Batch((item,), None, key))

            def on_next(batch: Sequence[Any]) -> None:
                nonlocal collected, at, key, owed
                if isinstance(batch, Batch):
                    at, key = batch.at, batch.key
                    owed += batch.weight
                else:
                    at = None
                collected = []
                try:
                    for item in batch:
                        subject.on_next(item)
                finally:
                    give()
                    collected = None

            def give(*, end: bool = False) -> None:
                nonlocal collected, owed
                if collected or (end and owed):
                    items, weight = collected or (), owed
                    owed = 0
                    if collected is not None:
                        collected = []
                    observer.on_next(Batch(items, at if items else None, key, weight))

            out: Any = subject
            for operator in operators:
                out = operator(out)

            # An operator such as take() ends inside a batch: what it emitted there goes first.
            def on_error(error: Exception) -> None:
                give(end=True)
                observer.on_error(error)

            def on_completed() -> None:
                give(end=True)
                observer.on_completed()

            return CompositeDisposable(
                out.subscribe(take, on_error, on_completed, scheduler=scheduler),
                source.subscribe(on_next, subject.on_error, subject.on_completed, scheduler=scheduler),
            )

        return Observable(subscribe)

    return Operator(function=function, name="each")


def batched() -> Callable[[Observable[A]], Observable[Sequence[A]]]:
    """Wrap a stream of single items: each becomes a batch of one."""

    def function(source: Observable[A]) -> Observable[Sequence[A]]:
        from reactivex import operators as ops

        def wrap(item: A) -> Sequence[A]:
            return Batch((item,))

        return source.pipe(ops.map(wrap))

    return function


class _Coalescer:
    """Merges adjacent deltas of one block and one kind within a batch."""

    def feed(self, batch: Sequence[QueryItem], /) -> Sequence[QueryItem | Fault]:
        return merge_deltas(batch)

    def flush(self) -> Sequence[QueryItem | Fault]:
        return ()

    def fail(self, error: Exception, /) -> Sequence[QueryItem | Fault]:
        return ()


def merge_deltas(items: Sequence[QueryItem]) -> Sequence[QueryItem]:
    """Merge adjacent deltas of one block and one kind; ``items`` itself if there are none.

    Deltas with unknown keys (or token estimates) stay apart, so nothing is lost.
    """
    out: list[Any] = []
    parts: list[str] = []
    last: Any = None
    changed = False
    for item in items:
        if item.__class__ is ContentBlockDelta and item.extra is None:  # pyright: ignore[reportAttributeAccessIssue]
            text = _appended(item.delta)  # pyright: ignore[reportAttributeAccessIssue]
            if text is not None:
                if (
                    last is not None
                    and last.index == item.index  # pyright: ignore[reportAttributeAccessIssue]
                    and last.delta.__class__ is item.delta.__class__  # pyright: ignore[reportAttributeAccessIssue]
                ):
                    parts.append(text)
                    changed = True
                    continue
                _close(out, last, parts)
                last = item
                parts = [text]
                continue
        _close(out, last, parts)
        last = None
        out.append(item)
    _close(out, last, parts)
    return out if changed else items


def _appended(delta: Any) -> str | None:
    """The text a delta appends, None for one that can't be merged without loss."""
    match delta:
        case TextDelta(extra=None):
            return delta.text
        case InputJsonDelta(extra=None):
            return delta.partial_json
        case ThinkingDelta(extra=None) if delta.estimated_tokens is msgspec.UNSET:
            return delta.thinking
    return None


def _close(out: list[Any], last: Any, parts: list[str]) -> None:
    if last is None:
        return
    if len(parts) == 1:
        out.append(last)
        return
    delta = last.delta
    out.append(ContentBlockDelta(delta=delta.__class__("".join(parts)), index=last.index))


def coalesce() -> Operator[QueryItem, QueryItem]:
    """Merge adjacent deltas of one block within each batch: fewer items, the same text.

    Deltas with unknown keys (or token estimates) stay apart, so nothing is lost.
    """
    return lift(_Coalescer, "coalesce")
