"""``map_async``: a coroutine function on every item, a few calls at once, the source held meanwhile."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from turnstream.flow.credits import announce
from turnstream.messages.errors import TurnstreamError
from turnstream.operators.batch import Batch, StreamKey
from turnstream.operators.stage import Operator

if TYPE_CHECKING:
    from reactivex import Observable

__all__ = ["map_async"]

A = TypeVar("A")
B = TypeVar("B")

_numbers: Final = itertools.count(1)
_PENDING: Final = object()


class _Slot:
    """One item on its way: its call, then its result."""

    __slots__ = ("at", "item", "key", "result")

    def __init__(self, item: Any, at: float | None, key: StreamKey | None) -> None:
        self.item = item
        self.at = at
        self.key = key
        self.result: Any = _PENDING


class _Calls:
    """One subscription: the calls that are out, what waits for one, and what is done but not yet due."""

    def __init__(self, observer: Any, function: Callable[[Any], Any], max_in_flight: int, ordered: bool) -> None:
        self._observer = observer
        self._function = function
        self._max = max_in_flight
        self._ordered = ordered
        self._loop = asyncio.get_running_loop()
        self._backlog: deque[_Slot] = deque()
        self._due: deque[_Slot] = deque()  # in order; unordered: only what is done
        self._tasks: dict[asyncio.Task[Any], _Slot] = {}
        self._cancelled: list[asyncio.Task[Any]] = []
        self._owed = 0  # bytes that no emission has counted yet, as in lift
        self._last_key: StreamKey | None = None
        self._end: tuple[Exception | None] | None = None
        self._fault: Exception | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._starting = False
        self.done = False

    # -- the source

    def on_next(self, batch: Sequence[Any]) -> None:
        if self.done or self._end is not None:
            return
        at: float | None = None
        key: StreamKey | None = None
        if isinstance(batch, Batch):
            at, key = batch.at, batch.key
            self._owed += batch.weight
        self._last_key = key
        for item in batch:
            slot = _Slot(item, at, key)
            self._backlog.append(slot)
            if self._ordered:
                self._due.append(slot)
        self._go_on()

    def on_error(self, error: Exception) -> None:
        self._ended(error)

    def on_completed(self) -> None:
        self._ended(None)

    def _ended(self, error: Exception | None) -> None:
        # Results that are out still come, the end behind them: nothing that was taken in is lost.
        if self._end is None:
            self._end = (error,)
            self._go_on()

    # -- the calls

    def _go_on(self) -> None:
        """Start what may start, emit what is due, end if all is done."""
        if self._starting:
            return  # an observer fed the source from inside
        self._starting = True
        try:
            while not self.done:
                while self._backlog and len(self._tasks) < self._max and self._fault is None:
                    self._call(self._backlog.popleft())
                if not self._emit():
                    break
        finally:
            self._starting = False
        if not self.done and self._end is not None and not self._backlog and not self._tasks and not self._due:
            self._finish(self._end[0])
        if self._waiters and not self.full():
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _call(self, slot: _Slot) -> None:
        try:
            result = self._function(slot.item)
        except Exception as error:  # noqa: BLE001 - the function's fault ends the stream, in its turn
            self._failed(slot, error)
            return
        if not isinstance(result, Awaitable):
            self._resolved(slot, result)
            return
        task = self._loop.create_task(_await(result), name=f"turnstream-map-async-{next(_numbers)}")
        self._tasks[task] = slot
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        slot = self._tasks.pop(task, None)
        if slot is None:
            if not task.cancelled():
                task.exception()  # disposed of: nobody asks for it any more
            return
        if task.cancelled():
            self._failed(slot, TurnstreamError("a call of map_async was cancelled"))
        elif (error := task.exception()) is not None:
            self._failed(slot, error if isinstance(error, Exception) else TurnstreamError(repr(error)))
        else:
            self._resolved(slot, task.result())
        self._go_on()

    def _resolved(self, slot: _Slot, result: Any) -> None:
        slot.result = result
        slot.item = None
        if not self._ordered:
            self._due.append(slot)

    def _failed(self, slot: _Slot, error: Exception) -> None:
        """Nothing new is started; in order, what comes before the failed item still arrives."""
        if self._ordered:
            index = self._due.index(slot)
            while len(self._due) > index:
                self._due.pop()
            for task, other in list(self._tasks.items()):
                if other not in self._due:
                    self._cancel(task)
        else:
            for task in list(self._tasks):
                self._cancel(task)
        self._backlog.clear()
        self._fault = error
        self._end = (error,)

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        task.cancel()
        self._cancelled = [other for other in self._cancelled if not other.done()]
        self._cancelled.append(task)

    # -- what comes out

    def _emit(self) -> bool:
        """Emit what is due; whether anything was."""
        emitted = False
        due = self._due
        while due and due[0].result is not _PENDING and not self.done:
            first = due.popleft()
            results = [first.result]
            while due and due[0].result is not _PENDING and due[0].at == first.at and due[0].key == first.key:
                results.append(due.popleft().result)
            weight, self._owed = self._owed, 0
            emitted = True
            try:
                self._observer.on_next(Batch(tuple(results), first.at, first.key, weight))
            except Exception as error:  # noqa: BLE001 - here nobody else would hear of it
                self.dispose()
                self._observer.on_error(error)
        return emitted

    def _finish(self, error: Exception | None) -> None:
        self.done = True
        if self._owed:
            weight, self._owed = self._owed, 0
            self._observer.on_next(Batch((), None, self._last_key, weight))
        if error is None:
            self._observer.on_completed()
        else:
            self._observer.on_error(error)

    # -- credits

    def full(self) -> bool:
        return not self.done and (len(self._tasks) >= self._max or bool(self._backlog) or self._fault is not None)

    async def room(self) -> None:
        while self.full():
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def dispose(self) -> None:
        """Cancel the calls; nothing more comes out."""
        if self.done and not self._tasks:
            return
        self.done = True
        self._backlog.clear()
        self._due.clear()
        for task in list(self._tasks):
            self._cancel(task)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def aclose(self) -> None:
        self.dispose()
        late = [task for task in self._cancelled if not task.done()]
        if late:
            await asyncio.wait(late)


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def map_async(
    function: Callable[[A], Awaitable[B] | B], max_in_flight: int = 4, *, ordered: bool = True
) -> Operator[A, B]:
    """Map each item through a coroutine function, at most ``max_in_flight`` calls at once.

    In a run it is credit-aware: while that many calls are out, or items of a batch wait for one, the source
    isn't read on. The end of the source comes behind the last result. A call that raises ends the stream with its
    error, behind the results before it; disposing cancels the calls. Batches keep their time and key; what
    is done together leaves together.

    Args:
        function: called with each item, in order. It may return a value instead of an awaitable; that item
            costs no task: ``lambda item: translate(item) if isinstance(item, AssistantMessage) else item``.
        max_in_flight: calls that may be out at once.
        ordered: results come in the order of the items; False: as they are done.

    Raises:
        ValueError: ``max_in_flight`` is below 1.
        RuntimeError: (on subscription) no event loop is running.
    """
    if max_in_flight < 1:
        raise ValueError(f"max_in_flight must be at least 1, not {max_in_flight}")

    def operator(source: Observable[Sequence[A]]) -> Observable[Sequence[B]]:
        from reactivex import Observable
        from reactivex.disposable import CompositeDisposable, Disposable

        def subscribe(observer: Any, scheduler: Any = None) -> Any:
            calls = _Calls(observer, function, max_in_flight, ordered)
            announce(calls)
            subscription = source.subscribe(calls.on_next, calls.on_error, calls.on_completed, scheduler=scheduler)
            return CompositeDisposable(subscription, Disposable(calls.dispose))

        return Observable(subscribe)

    return Operator(function=operator, name="map_async")
