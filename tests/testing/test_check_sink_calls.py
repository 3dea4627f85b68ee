"""check_sink: one sink for each promise about attributes and calls that is broken, and what is said of it."""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from turnstream.messages import (
    AssistantMessage,
    ContentBlockDelta,
    MessageDelta,
    Resync,
    TextDelta,
    UnknownEvent,
    UserMessage,
)
from turnstream.operators.batch import Batch
from turnstream.sinks.base import SinkBase
from turnstream.testing import check_sink, run_virtual, virtual_time


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


@faulty(r"NotASink: has no 'name'")
class NotASink:
    pass


@faulty(r"NoDrain: has no 'drain'")
class NoDrain:
    name = "no drain"
    policy = "direct"
    wants_deltas = True
    on_next = on_error = on_completed = full = statistics = room = lambda self: None


@faulty(r"EmptyName: name must be a non-empty string, not ''")
class EmptyName(Good):
    name = ""


@faulty(r"good: policy must be one of direct, block, .*, not 'lossy'")
class OddPolicy(Good):
    policy = "lossy"  # type: ignore[assignment]


@faulty(r"good: drain must be a method")
class DrainIsNoMethod(Good):
    drain = None  # type: ignore[assignment]


@faulty(r"good: on_next is a coroutine function, which is never awaited")
class AsyncOnNext(Good):
    async def on_next(self, batch: Sequence[Any], /) -> None:  # type: ignore[override]
        pass


@faulty(r"good: on_completed is a coroutine function")
class AsyncOnCompleted(Good):
    async def on_completed(self) -> None:  # type: ignore[override]
        pass


@faulty(r"good: on_error is a coroutine function")
class PartialOfAsync(Good):
    def __init__(self) -> None:
        super().__init__()

        async def on_error(reason: str, error: Exception) -> None:
            pass

        self.on_error = functools.partial(on_error, "because")  # type: ignore[method-assign]


@faulty(r"good: on_next\(\) returned an awaitable, which is never awaited")
class HiddenCoroutine(Good):
    def on_next(self, batch: Sequence[Any], /) -> Any:
        return asyncio.sleep(0)


@faulty(r"good: on_next\(\) must return None, not 1")
class Returns(Good):
    def on_next(self, batch: Sequence[Any], /) -> Any:
        return 1


@faulty(r"good: aclose\(\) must be awaitable")
class SyncAclose(Good):
    def aclose(self) -> Any:
        pass


@faulty(r"good: full\(\) must return a bool, not 0")
class FullCounts(Good):
    def full(self) -> Any:
        return 0


@faulty(r"good: full\(\) is true before any item")
class BornFull(Good):
    def full(self) -> bool:
        return True


@faulty(r"good: full\(\) is still true after room\(\) returned")
class RoomLies(Good):
    def full(self) -> bool:
        return self.count > 3


@faulty(
    r"good: on_next must not block: it calls time\.sleep at .*test_check_sink_calls\.py:\d+ \(item 1, SystemMessage"
)
class Sleeps(Good):
    def on_next(self, batch: Sequence[Any], /) -> None:
        time.sleep(0)


@faulty(r"good: on_next must not block: it calls os\.fsync at ")
class Syncs(Good):
    def on_next(self, batch: Sequence[Any], /) -> None:
        try:
            os.fsync(1_000_000)
        except OSError:
            pass


@faulty(r"good: on_next keeps the batch")
class KeepsTheList(Good):
    def on_next(self, batch: Sequence[Any], /) -> None:
        self.last = batch


@faulty(r"good: on_next keeps the batch")
class KeepsTheItemsOfABatch(Good):
    def on_next(self, batch: Sequence[Any], /) -> None:
        self.last = batch.items if isinstance(batch, Batch) else None


@faulty(r"good: on_next changed the batch \(item 1, ")
class EmptiesTheList(Good):
    def on_next(self, batch: Sequence[Any], /) -> None:
        if isinstance(batch, list):
            batch.clear()


@faulty(r"good: an item was changed; it belongs to other sinks too \(item \d+, AssistantMessage")
class ChangesAMessage(Good):
    def on_next(self, batch: Sequence[Any], /) -> None:
        for item in batch:
            if isinstance(item, AssistantMessage):
                item.message["content"] = []


@faulty(r"good: an item was changed; .* \(item \d+, UserMessage")
class MarksAMessage(Good):
    def on_next(self, batch: Sequence[Any], /) -> None:
        for item in batch:
            if isinstance(item, UserMessage):
                item.__dict__["seen"] = True


@faulty(r"good: an item was changed")
class ChangesALittleLater(Good):
    def on_next(self, batch: Sequence[Any], /) -> None:
        self.items = [item for item in batch if isinstance(item, MessageDelta)]

    async def aclose(self) -> None:
        for item in getattr(self, "items", ()):
            item.usage = {}


@faulty(r"good: on_next raised AttributeError\(.*'at'.*\) on item 1, SystemMessage")
class NeedsArrivalTimes(Good):
    def on_next(self, batch: Any, /) -> None:
        self.at = batch.at


@faulty(r"good: on_next raised TypeError\(.*\) on items 1 to 7$")
class NeedsTimesOnBatches(Good):
    def on_next(self, batch: Sequence[Any], /) -> None:
        if isinstance(batch, Batch):
            self.at = 1.0 + batch.at  # type: ignore[operator]


@faulty(r"good: on_next raised IndexError\(.*\) on an empty batch")
class NeedsAnItem(Good):
    def on_next(self, batch: Sequence[Any], /) -> None:
        self.newest = type(batch[-1])


@faulty(r"good: on_next raised KeyError\('brand_new_event'\) on item 1, UnknownEvent")
class KnowsAllEvents(Good):
    def on_next(self, batch: Sequence[Any], /) -> None:
        for item in batch:
            if isinstance(item, UnknownEvent):
                raise KeyError(item.type)


@faulty(r"good: on_next raised NotImplementedError\(\) on item \d+, Resync")
class KnowsNoResync(Good):
    def on_next(self, batch: Sequence[Any], /) -> None:
        if any(isinstance(item, Resync) for item in batch):
            raise NotImplementedError


@faulty(r"good: on_next raised UnicodeEncodeError\(.*surrogates not allowed'\) on item 1, ContentBlockDelta")
class WritesStrictly(Good):
    def on_next(self, batch: Sequence[Any], /) -> None:
        for item in batch:
            if isinstance(item, ContentBlockDelta) and isinstance(item.delta, TextDelta):
                self.text = item.delta.text.encode()


@pytest.mark.parametrize(("cls", "message"), FAULTY, ids=[cls.__name__ for cls, _ in FAULTY])
def test_a_broken_promise_is_named(cls: type[Any], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        run_virtual(check_sink(cls))


@virtual_time
async def test_waiting_for_whatever_else_is_found_by_the_time_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnstream.testing.blocking.LIMIT", 0.005)

    class WaitsForALock(Good):
        def on_next(self, batch: Sequence[Any], /) -> None:
            threading.Event().wait(0.05)

    with pytest.raises(AssertionError, match=r"on_next must not block: it waited \d+\.\d s \(item 1, "):
        await check_sink(WaitsForALock)


@virtual_time
async def test_a_profiler_that_runs_already_stays() -> None:
    seen: list[str] = []

    def profiler(frame: Any, event: str, arg: Any) -> None:
        seen.append(event)

    sys.setprofile(profiler)
    try:
        await check_sink(Good)
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
    assert seen
