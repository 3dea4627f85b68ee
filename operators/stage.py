"""Stages (logic without Rx and I/O) and the operators they are lifted to (DESIGN.md §3).

An :class:`Operator` is callable, so it works in ``Observable.pipe``; ``a | b`` composes typed, and
neighbours made of stages fuse into one Rx hop. :func:`run_stages` runs the same stages without Rx.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast, overload

import msgspec

from turnstream.operators.batch import Batch

if TYPE_CHECKING:
    from reactivex import Observable

__all__ = ["Chain", "Fault", "Head", "Observing", "Operator", "Stage", "lift", "run_batches", "run_stages"]

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
A_contra = TypeVar("A_contra", contravariant=True)
B_co = TypeVar("B_co", covariant=True)


class Fault(msgspec.Struct, frozen=True):
    """The last item a stage returns when it can't go on; ``lift`` turns it into ``on_error``.

    It is delivered after the items that came before it, so nothing is lost.
    """

    error: Exception


class Stage(Protocol[A_contra, B_co]):
    """Decode/flush logic that holds all its state; made fresh for every use. It never raises.

    What it returns may be its argument (when nothing changed), never something it mutates later.
    When it can't go on (strict mode, or broken itself) it returns a list whose last item is a
    :class:`Fault`; then it is not called again.
    """

    def feed(self, batch: Sequence[A_contra], /) -> Sequence[B_co | Fault]:
        """Take the items of one batch, return what they cause."""
        ...

    def flush(self) -> Sequence[B_co | Fault]:
        """The source completed: return what is still held."""
        ...

    def fail(self, error: Exception, /) -> Sequence[B_co | Fault]:
        """The source broke: return what is open, marked."""
        ...


_NOTHING: Final[tuple[Any, ...]] = ()
_SHORT_CUT: Final = 3  # stages it goes past
_TWICE: Final = 2
_EAGER: Final = frozenset({list, tuple})


class Chain:
    """Several stages as one: each feeds the next directly.

    Attributes:
        broken: a stage faulted.
        last: the last stage.
        short_cut: what the first three stages know how to do for a single chunk in one step (see
            :mod:`turnstream.operators.shortcut`); None if they don't, and before the second batch.
    """

    __slots__ = ("_fed", "_feeds", "_stages", "broken", "last", "short_cut")

    def __init__(self, stages: Sequence[Stage[Any, Any]]) -> None:
        self._stages = tuple(stages)
        self._feeds = tuple([stage.feed for stage in stages])
        self._fed = 0  # times, up to two
        self.last: Any = self._stages[-1] if stages else None
        self.broken = False
        self.short_cut: Callable[[Any], Sequence[Any] | None] | None = None

    def feed(self, batch: Sequence[Any], /) -> Sequence[Any]:
        """Run one batch through all stages."""
        cut = self.short_cut
        if cut is None:
            if self._fed < _TWICE:
                # What came whole in one chunk never needs it.
                self._fed += 1
                if self._fed == _TWICE:
                    self._find_short_cut()
        elif len(batch) == 1:
            try:
                taken = cut(batch[0])
            except Exception as error:  # noqa: BLE001 - whatever the third stage raises
                return self._crashed(_SHORT_CUT - 1, error)
            if taken is not None:
                if taken and taken[-1].__class__ is Fault:
                    return self._fault(_SHORT_CUT - 1, taken)
                return taken if len(self._stages) == _SHORT_CUT else self._through(_SHORT_CUT, list(taken))
        items = batch
        feeds = self._feeds
        feed: Any = None
        try:
            for feed in feeds:
                items = feed(items)
                # Only a list can end in a Fault; asking lazy sequences for their length or last item costs.
                if items.__class__ in _EAGER:
                    if not items:
                        return _NOTHING
                    if items[-1].__class__ is Fault:
                        return self._fault(feeds.index(feed), items)
        except Exception as error:  # noqa: BLE001 - whatever a stage raises
            return self._crashed(feeds.index(feed), error)
        return items

    def _find_short_cut(self) -> None:
        stages = self._stages
        offer: Any = getattr(stages[_SHORT_CUT - 1], "short_cut", None) if len(stages) >= _SHORT_CUT else None
        if offer is not None:
            self.short_cut = offer(*stages[: _SHORT_CUT - 1])

    def flush(self) -> Sequence[Any]:
        """The source completed: flush from the first stage to the last."""
        number = 0
        held: Sequence[Any] = _NOTHING
        try:
            for stage in self._stages:
                held = stage.flush()
                if held:
                    break
                number += 1
            else:
                return _NOTHING  # as a rule nobody holds anything
            last = [*held]
        except Exception as crash:  # noqa: BLE001 - whatever a stage raises
            return self._fail_from(number + 1, crash)
        out = list(self._through(number + 1, last))
        if not (out and out[-1].__class__ is Fault):
            self._end(number + 1, None, out)
        return out

    def fail(self, error: Exception, /) -> Sequence[Any]:
        """The source broke: fail from the first stage to the last."""
        out: list[Any] = []
        self._end(0, error, out)
        return out

    def _end(self, first: int, error: Exception | None, out: list[Any]) -> None:
        """End the stages from ``first`` on; what they held goes through those after them, into ``out``."""
        for number in range(first, len(self._stages)):
            stage = self._stages[number]
            try:
                held = stage.flush() if error is None else stage.fail(error)
                if not held:
                    continue
                last = [*held]
            except Exception as crash:  # noqa: BLE001 - whatever a stage raises
                # What the stages before it held has already gone through; those after it still end.
                out.extend(self._fail_from(number + 1, error or crash))
                return
            if error is not None and last and last[-1].__class__ is Fault:
                last.pop()  # the first cause counts
            out.extend(self._through(number + 1, last))
            if out and out[-1].__class__ is Fault:
                return

    def _through(self, number: int, items: list[Any]) -> Sequence[Any]:
        """Feed ``items`` to the stages from ``number`` on; a Fault at their end ends those stages too."""
        fault: Fault | None = None
        if items and items[-1].__class__ is Fault:
            fault = items.pop()
        current: Sequence[Any] = items
        for at in range(number, len(self._stages)):
            if not current:
                break
            try:
                current = self._stages[at].feed(current)
            except Exception as crash:  # noqa: BLE001 - whatever a stage raises
                return self._crashed(at, crash)
            if current.__class__ is list and current and current[-1].__class__ is Fault:
                return self._fault(at, current)
        if fault is None:
            return current
        return [*current, *self._fail_from(number, fault.error)]

    def _fault(self, number: int, items: Sequence[Any]) -> Sequence[Any]:
        self.broken = True
        error = items[-1].error
        before = self._through(number + 1, list(items[:-1]))
        if before and before[-1].__class__ is Fault:
            return before
        return [*before, *self._fail_from(number + 1, error)]

    def _fail_from(self, number: int, error: Exception) -> list[Any]:
        """The source of stage ``number`` broke: let the rest say what they hold, then the Fault.

        It is this error's, whatever goes wrong after it: the first cause counts, as it does in Rx.
        """
        self.broken = True
        out = list(Chain(self._stages[number:]).fail(error))
        if out and out[-1].__class__ is Fault:
            out.pop()
        out.append(Fault(error))
        return out

    def _crashed(self, number: int, error: Exception) -> list[Any]:
        return self._fail_from(number + 1, error)


_Maker = Callable[[], Stage[Any, Any]]
_Hop = tuple[_Maker, ...] | Callable[[Any], Any]  # makers, or a function on observables


class Operator(Generic[A_contra, B_co]):
    """A function from ``Observable[Sequence[A]]`` to ``Observable[Sequence[B]]``.

    Made by :func:`lift` from a stage maker, or from any function on observables.
    ``a | b`` composes; neighbours made of stages fuse, however the pipe is bracketed.
    """

    __slots__ = ("_hops", "name")

    def __init__(
        self,
        makers: tuple[_Maker, ...] = (),
        function: Callable[[Observable[Any]], Observable[Any]] | None = None,
        name: str = "operator",
    ) -> None:
        # What the source goes through: functions, and between them the makers of one fused chain each.
        self._hops: tuple[_Hop, ...] = (makers,) if function is None else (function,)
        self.name = name

    def __or__(self, other: Operator[B_co, C]) -> Operator[A_contra, C]:
        first, second = self._hops, other._hops
        left, right = first[-1], second[0]
        out: Operator[A_contra, C] = Operator(name=f"{self.name} | {other.name}")
        if isinstance(left, tuple) and isinstance(right, tuple):
            out._hops = (*first[:-1], left + right, *second[1:])
        else:
            out._hops = first + second
        return out

    def __repr__(self) -> str:
        return f"<Operator {self.name}>"

    @property
    def fused(self) -> bool:
        """Whether this is made of stages only (one Rx hop, or none with :func:`run_stages`)."""
        return len(self._hops) == 1 and isinstance(self._hops[0], tuple)

    def chain(self) -> Chain:
        """A fresh chain of the operator's stages.

        Raises:
            TypeError: if the operator isn't made of stages only.
        """
        makers = self._hops[0]
        if len(self._hops) > 1 or not isinstance(makers, tuple):
            raise TypeError(f"{self.name} isn't made of stages only; subscribe to it instead")
        return Chain([make() for make in makers])

    def __call__(self, source: Observable[Sequence[A_contra]]) -> Observable[Sequence[B_co]]:
        """What comes out when ``source`` goes in; nothing is subscribed yet."""
        out: Observable[Any] = source
        for hop in self._hops:
            out = _lifted(hop, out) if isinstance(hop, tuple) else hop(out)
        return out


def lift(make: Callable[[], Stage[A, B]], name: str | None = None) -> Operator[A, B]:
    """An operator from a stage maker; each subscription gets a stage of its own.

    A batch keeps its arrival time, key and weight; a batch that causes nothing isn't passed on.
    ``on_error`` first delivers what the stage still held (``fail``), then the error.
    """
    return Operator((make,), name=name or str(getattr(make, "__name__", "stage")))


def _lifted(makers: tuple[_Maker, ...], source: Observable[Any]) -> Observable[Any]:
    from reactivex import Observable

    def subscribe(observer: Any, scheduler: Any = None) -> Any:
        head = Head(Chain([make() for make in makers]), observer)
        return source.subscribe(head.on_next, head.on_error, head.on_completed, scheduler=scheduler)

    return Observable(subscribe)


class Observing(Protocol):
    """Anything with an observer's three functions: reactivex's observers, ours, a sink."""

    def on_next(self, batch: Any, /) -> None:
        """One batch."""

    def on_error(self, error: Exception, /) -> None:
        """The end: it broke."""

    def on_completed(self) -> None:
        """The end: it is complete."""


class Head:
    """The observer in front of a chain: it feeds batches through and hands on what comes out.

    A lifted operator subscribes one to its source; a run whose operators are all stages pushes into
    one directly. A batch keeps its arrival time, key and weight; one that causes nothing isn't passed on.

    Attributes:
        on_next: takes one batch.
        on_error: the source broke: delivers what the chain still holds, then the error.
        on_completed: the source completed: delivers what the chain still holds.
    """

    __slots__ = ("on_completed", "on_error", "on_next")

    on_next: Callable[[Sequence[Any]], None]
    on_error: Callable[[Exception], None]
    on_completed: Callable[[], None]

    def __init__(self, chain: Chain, observer: Observing) -> None:
        # A last stage that says what its last batch held (accumulate does) spares sinks the look.
        last = chain.last
        tells = hasattr(last, "plain")
        # Closures: state in cells costs half of what attributes do, once per chunk.
        feed = chain.feed
        on_next_out = observer.on_next
        on_error_out = observer.on_error
        on_completed_out = observer.on_completed
        done = False
        last_key: Any = None
        # Bytes that caused nothing yet count with the next batch, so that sums don't depend on chunking.
        owed = 0

        def deliver(items: Sequence[Any], at: float | None, key: Any, weight: int) -> None:
            nonlocal done
            if items and items[-1].__class__ is Fault:
                done = True
                if len(items) > 1 or weight:
                    on_next_out(Batch(items[:-1], at, key, weight))
                on_error_out(items[-1].error)
            elif items or weight:
                on_next_out(Batch(items, at, key, weight))

        def on_next(batch: Sequence[Any]) -> None:
            nonlocal last_key, owed
            if done:
                return
            if batch.__class__ is Batch:
                items = feed(batch.items)  # pyright: ignore[reportAttributeAccessIssue]
                last_key = batch.key  # pyright: ignore[reportAttributeAccessIssue]
                weight = batch.weight + owed  # pyright: ignore[reportAttributeAccessIssue]
                if not items:
                    owed = weight
                    return
                owed = 0
                if not chain.broken:
                    on_next_out(Batch(items, batch.at, last_key, weight, tells and last.plain))  # pyright: ignore[reportAttributeAccessIssue]
                else:
                    deliver(items, batch.at, last_key, weight)  # pyright: ignore[reportAttributeAccessIssue]
            else:
                deliver(feed(batch), None, None, 0)

        def on_error(error: Exception) -> None:
            if done:
                return
            items = list(chain.fail(error))
            # The source's own error goes on, unless what was still held made a later stage fault.
            if items and items[-1].__class__ is Fault:
                error = items.pop().error
            if items or owed:
                on_next_out(Batch(items, None, last_key, owed))
            on_error_out(error)

        def on_completed() -> None:
            if done:
                return
            deliver(chain.flush(), None, last_key, owed)
            if not done:
                on_completed_out()

        self.on_next = on_next
        self.on_error = on_error
        self.on_completed = on_completed


def run_batches(
    batches: Iterable[Sequence[A]], operator: Operator[A, B], *, error: Exception | None = None
) -> Iterator[Sequence[B]]:
    """Run batches through an operator's stages without Rx, lazily, one result a batch and the flush.

    Args:
        batches: what the source emits, in order.
        operator: made of stages only; fresh ones are used.
        error: if given, the source breaks with it after the last batch instead of completing.

    Raises:
        Exception: a stage's fault, after the items before it were yielded; ``error`` isn't raised.
    """
    chain = operator.chain()
    for batch in batches:
        yield from _checked(chain.feed(batch))
    yield from _checked(chain.flush() if error is None else chain.fail(error), ignore=error)


def _checked(items: Sequence[Any], ignore: Exception | None = None) -> Iterator[Sequence[Any]]:
    if items and items[-1].__class__ is Fault:
        if len(items) > 1:
            yield items[:-1]
        if items[-1].error is not ignore:
            raise items[-1].error
    elif items:
        yield items


@overload
def run_stages(items: Iterable[A], first: Operator[A, B], /) -> list[B]: ...
@overload
def run_stages(items: Iterable[A], first: Operator[A, B], second: Operator[B, C], /) -> list[C]: ...
@overload
def run_stages(
    items: Iterable[A], first: Operator[A, B], second: Operator[B, C], third: Operator[C, D], /
) -> list[D]: ...
@overload
def run_stages(
    items: Iterable[A],
    first: Operator[A, B],
    second: Operator[B, C],
    third: Operator[C, D],
    fourth: Operator[D, E],
    /,
) -> list[E]: ...
@overload
def run_stages(
    items: Iterable[A],
    first: Operator[A, B],
    second: Operator[B, C],
    third: Operator[C, D],
    fourth: Operator[D, E],
    fifth: Operator[E, F],
    /,
) -> list[F]: ...
def run_stages(items: Iterable[Any], *operators: Operator[Any, Any]) -> list[Any]:
    """Run items through stages without Rx: one batch, then the flush; returns all that comes out.

    More than five operators: compose them with ``|``.

    Raises:
        Exception: a stage's fault; what came before it is in the error's ``kept`` where it has one.
    """
    whole = operators[0]
    for operator in operators[1:]:
        whole = whole | operator
    out: list[Any] = []
    try:
        for batch in run_batches([cast("Sequence[Any]", list(items))], whole):
            out.extend(batch)
    except Exception as error:
        if hasattr(error, "kept") and not error.kept:  # pyright: ignore[reportAttributeAccessIssue]
            error.kept = out  # pyright: ignore[reportAttributeAccessIssue]
        raise
    return out
