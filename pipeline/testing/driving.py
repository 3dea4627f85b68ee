"""Using a sink as a pipeline does, with every surprise turned into an AssertionError that says it."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

from turnstream.operators.batch import Batch
from turnstream.testing.blocking import Blocked, call_watched

__all__ = ["SinkDriver", "which"]

# Only CPython frees (and counts) at once.
_COUNTS: Final = sys.implementation.name == "cpython"


class SinkDriver:
    """Opens, feeds, awaits and closes sinks; remembers those that are open.

    Args:
        factory: makes a fresh sink, or returns an awaitable of one.
        patience: seconds of loop time that an awaited method may take.
    """

    def __init__(self, factory: Callable[[], Any], patience: float) -> None:
        self.factory = factory
        self.patience = patience
        self.name = "sink"
        self.open_sinks: list[Any] = []

    async def open(self) -> Any:
        """A fresh sink."""
        sink = self.factory()
        if inspect.isawaitable(sink):
            sink = await sink
        self.open_sinks.append(sink)
        return sink

    def call(self, sink: Any, name: str, *arguments: Any) -> Any:
        """Call a method that is not awaited."""
        try:
            result = getattr(sink, name)(*arguments)
        except Exception as error:
            raise AssertionError(f"{self.name}: {name}() raised {error!r}") from error
        if name == "full":
            if not isinstance(result, bool):
                self.fail(f"full() must return a bool, not {result!r}")
        elif name != "statistics":
            self.check_result(name, result)
        return result

    def check_result(self, name: str, result: Any) -> None:
        """Nothing may come back; an awaitable would never be awaited and what it does be lost without a word."""
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            self.fail(f"{name}() returned an awaitable, which is never awaited")
        if result is not None:
            self.fail(f"{name}() must return None, not {result!r}")

    async def wait_for(self, sink: Any, name: str) -> None:
        """Await a method, within ``patience``."""
        limit = asyncio.timeout(self.patience)
        try:
            async with limit:
                waiting = getattr(sink, name)()
                if not inspect.isawaitable(waiting):
                    self.fail(f"{name}() must be awaitable (async def), not return {waiting!r}")
                await waiting
        except AssertionError:
            raise
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            self.fail(f"{name}() let the CancelledError of a task of its own out")
        except Exception as error:
            if limit.expired():
                self.fail(f"{name}() did not return within {self.patience:g} s")
            raise AssertionError(f"{self.name}: {name}() raised {error!r}") from error

    def feed(self, sink: Any, batch: Sequence[Any], number: int) -> None:
        """Deliver one batch; ``number`` items came before it."""
        held = (batch, batch.items) if isinstance(batch, Batch) else (batch,)
        members = list(batch)
        counts = [sys.getrefcount(part) for part in held]
        try:
            result = call_watched(sink.on_next, batch)
        except Blocked as blocked:
            self.fail(f"on_next must not block: {blocked} ({which(members, number)})")
        except Exception as error:
            raise AssertionError(f"{self.name}: on_next raised {error!r} on {which(members, number)}") from error
        self.check_result("on_next", result)
        # A tuple may be kept: nobody can change it, and constants have counts of their own.
        kept = [sys.getrefcount(part) for part in held] > counts
        if kept and _COUNTS and members and not isinstance(batch, tuple):
            self.fail(f"on_next keeps the batch; keep its items or a copy ({which(members, number)})")
        if len(batch) != len(members) or any(a is not b for a, b in zip(batch, members, strict=True)):
            self.fail(f"on_next changed the batch ({which(members, number)})")

    def fail(self, what: str, sink: Any = None) -> NoReturn:
        """Say that a promise is broken, with the sink's name (its class where it may have none)."""
        raise AssertionError(f"{self.name if sink is None else type(sink).__name__}: {what}")

    async def close_all(self) -> None:
        """Close the sinks that are open; this may fail."""
        while self.open_sinks:
            await self.wait_for(self.open_sinks[-1], "aclose")
            self.open_sinks.pop()

    async def clean_up(self) -> None:
        """After a failure: close what can be closed, so that a broken sink doesn't leave its files open."""
        while self.open_sinks:
            sink = self.open_sinks.pop()
            try:
                with suppress(Exception):  # the failure that is under way says more
                    async with asyncio.timeout(self.patience):
                        await sink.aclose()
            except asyncio.CancelledError:
                if _is_cancelled():
                    raise


def which(items: Sequence[Any], number: int) -> str:
    """Names the items of a batch that ``number`` items came before."""
    if len(items) == 1:
        return f"item {number + 1}, {items[0]!r:.200}"
    return f"items {number + 1} to {number + len(items)}" if items else "an empty batch"


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
