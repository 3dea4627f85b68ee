"""check_sink: one sink for each promise about ends, leftovers and statistics that is broken."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from turnstream.sinks.base import SinkBase
from turnstream.testing import check_sink, run_virtual


class Good(SinkBase):
    """The least that works; the faulty ones below differ from it in one thing."""

    name = "good"

    def __init__(self) -> None:
        self.count = 0

    def on_next(self, batch: Sequence[Any], /) -> None:
        self.count += len(batch)

    def statistics(self) -> Mapping[str, Any]:
        return {"items": self.count}


FAULTY: list[tuple[type[Any], str]] = []


def faulty(message: str) -> Callable[[type[Any]], type[Any]]:
    def add(cls: type[Any]) -> type[Any]:
        FAULTY.append((cls, message))
        return cls

    return add


@faulty(r"good: on_completed\(\) raised RuntimeError\('twice'\)")
class CompletesOnce(Good):
    done = False

    def on_completed(self) -> None:
        if self.done:
            raise RuntimeError("twice")
        self.done = True


@faulty(r"good: on_completed\(\) raised RuntimeError\('after an error'\)")
class CompletesOnlyWithoutError(Good):
    broken = False

    def on_error(self, error: Exception, /) -> None:
        self.broken = True

    def on_completed(self) -> None:
        if self.broken:
            raise RuntimeError("after an error")


@faulty(r"good: drain\(\) raised AttributeError")
class DrainNeedsAnItem(Good):
    def on_next(self, batch: Sequence[Any], /) -> None:
        self.newest = 1

    async def drain(self) -> None:
        self.newest += 1


@faulty(r"good: drain\(\) raised RuntimeError\('again'\)")
class DrainsOnce(Good):
    drained = False

    async def drain(self) -> None:
        if self.drained:
            raise RuntimeError("again")
        self.drained = True


@faulty(r"good: drain\(\) did not return within 30 s")
class DrainHangs(Good):
    async def drain(self) -> None:
        if self.count:
            await asyncio.Event().wait()


@faulty(r"good: aclose\(\) raised RuntimeError\('again'\)")
class ClosesOnce(Good):
    closed = False

    async def aclose(self) -> None:
        if self.closed:
            raise RuntimeError("again")
        self.closed = True


@faulty(r"good: aclose\(\) raised RuntimeError\('both'\)")
class ClosesOneAtATime(Good):
    closing = False

    async def aclose(self) -> None:
        if self.closing:
            raise RuntimeError("both")
        self.closing = True
        await asyncio.sleep(1)
        self.closing = False


@faulty(r"good: aclose\(\) let the CancelledError of a task of its own out")
class LetsItsCancellationOut(Good):
    async def aclose(self) -> None:
        task = asyncio.ensure_future(asyncio.sleep(100))
        await asyncio.sleep(0)
        task.cancel()
        await task


class LeavesSomething(Good):
    """What is left is ended by a second chance that the kit doesn't know of."""

    left: list[Callable[[], Any]] = []


@faulty(r"good: aclose\(\) left task 'left over'")
class LeavesATask(LeavesSomething):
    def on_next(self, batch: Sequence[Any], /) -> None:
        task = asyncio.create_task(asyncio.sleep(10**9), name="left over")
        self.left.append(task.cancel)


@faulty(r"good: aclose\(\) left timer <TimerHandle")
class LeavesATimer(LeavesSomething):
    def on_next(self, batch: Sequence[Any], /) -> None:
        self.left.append(asyncio.get_running_loop().call_later(5, print).cancel)


@faulty(r"good: aclose\(\) left thread 'left over'")
class LeavesAThread(LeavesSomething):
    def on_next(self, batch: Sequence[Any], /) -> None:
        done = threading.Event()
        thread = threading.Thread(target=done.wait, name="left over")
        thread.start()
        self.left += [done.set, thread.join]


@faulty(r"good: aclose\(\) left 1 open file descriptor")
class LeavesAFile(LeavesSomething):
    def __init__(self) -> None:
        super().__init__()
        descriptor = os.open(os.devnull, os.O_RDONLY)
        self.left.append(lambda: os.close(descriptor))


@faulty(r"good: on_next\(\) after aclose\(\) started task 'reborn'")
class ComesToLifeAgain(LeavesSomething):
    closed = False

    def on_next(self, batch: Sequence[Any], /) -> None:
        if self.closed:
            task = asyncio.create_task(asyncio.sleep(1), name="reborn")
            self.left.append(task.cancel)

    async def aclose(self) -> None:
        self.closed = True


@faulty(r"good: statistics\(\) must return a mapping, not int")
class CountsOnly(Good):
    def statistics(self) -> Any:
        return self.count


@faulty(r"good: statistics\(\) keys must be snake_case, not 'itemCount'")
class CamelCase(Good):
    def statistics(self) -> Mapping[str, Any]:
        return {"itemCount": self.count}


@faulty(r"good: statistics\(\) must be JSON-able: .*set")
class NotJSON(Good):
    def statistics(self) -> Mapping[str, Any]:
        return {"seen": {self.count}}


@faulty(r"good: statistics\(\) must be JSON-able: .*not JSON compliant")
class NotANumber(Good):
    def statistics(self) -> Mapping[str, Any]:
        return {"items_per_s": float("nan")}


@faulty(r"good: statistics\(\) must be JSON-able: .*")
class CountsByLoneSurrogate(Good):
    def __init__(self) -> None:
        super().__init__()
        self.by_kind: dict[str, int] = {}

    def on_next(self, batch: Sequence[Any], /) -> None:
        for item in batch:
            if kind := getattr(item, "type", None):
                self.by_kind[kind] = 1

    def statistics(self) -> Mapping[str, Any]:
        return {"by_kind": self.by_kind}


@faulty(r"good: statistics or output changed after aclose\(\)")
class CountsTime(Good):
    def statistics(self) -> Mapping[str, Any]:
        return {"now_s": asyncio.get_running_loop().time()}


@pytest.mark.parametrize(("cls", "message"), FAULTY, ids=[cls.__name__ for cls, _ in FAULTY])
def test_a_broken_promise_is_named(cls: type[Any], message: str) -> None:
    async def main() -> None:
        try:
            await check_sink(cls)
        finally:
            for end in LeavesSomething.left:
                end()
            LeavesSomething.left.clear()

    with pytest.raises(AssertionError, match=message):
        run_virtual(main())
