"""The conformance kit for sinks: what a pipeline relies on, checked (DESIGN.md §5)."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, get_args

import msgspec
import orjson

from turnstream.operators.batch import Batch, StreamKey
from turnstream.sinks.base import Policy
from turnstream.testing.driving import SinkDriver, which
from turnstream.testing.leftovers import Leftovers
from turnstream.testing.samples import awkward_items, sample_items
from turnstream.testing.virtual_loop import VirtualLoop

__all__ = ["check_sink"]

_SYNC: Final = ("on_next", "on_error", "on_completed", "full", "statistics")
_ASYNC: Final = ("room", "drain", "aclose")
_SNAKE: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*\Z")
_ENDS: Final[tuple[tuple[str, ...], ...]] = (
    (),
    ("on_error",),
    ("on_error", "on_error"),
    ("on_error", "on_completed"),
    ("on_completed", "on_error"),
)


async def check_sink(
    factory: Callable[[], Any],
    *,
    items: Iterable[Any] | None = None,
    output: Callable[[Any], Any] | None = None,
    patience: float = 30.0,
) -> None:
    """Check that the sinks ``factory`` makes keep every promise of ``turnstream.sinks.base.Sink``.

    It makes some sixty sinks, one after another, feeds them items (whole sessions and awkward
    items, in batches of several sizes and kinds), ends them in every way, and looks at what is left.
    Run it in any loop where nothing else works meanwhile; on a ``VirtualLoop`` it also lets an hour pass after ``aclose``.

    Checked: attributes and policy · no coroutine function where the pipeline doesn't await ·
    ``on_next`` returns None, doesn't wait, neither keeps nor changes what it is given, raises on nothing ·
    plain lists, tuples, empty batches, unknown items, lone surrogates · any end, twice · ``drain`` and
    ``aclose`` at any time, twice, at once · no task, thread, timer or file left · nothing said after
    ``aclose`` · statistics that are JSON, in snake_case.

    Args:
        factory: makes a fresh sink (or returns an awaitable of one); sinks must not share output.
        items: what to feed instead of :func:`sample_items`; copied for each sink.
        output: what a closed sink has produced, as something comparable. If given, it may not depend on
            where batches end, nor change after ``aclose``.
        patience: seconds of loop time that an awaited method may take.

    Raises:
        AssertionError: a promise is broken; the text says which, and on which item.
    """
    kit = _Kit(factory, list(items) if items is not None else None, output, patience)
    try:
        await kit.check()
    finally:
        await kit.clean_up()


class _Kit(SinkDriver):
    def __init__(
        self, factory: Callable[[], Any], items: list[Any] | None, output: Callable[[Any], Any] | None, patience: float
    ) -> None:
        super().__init__(factory, patience)
        self.items = items
        self.output = output

    async def check(self) -> None:
        await self.check_shape()
        await self.check_idle_life()
        outputs = {
            "one item a batch": await self.check_life([[item] for item in self.fresh()]),
            "all in one list": await self.check_life([self.fresh()]),
            "batches of seven": await self.check_life([Batch(p, None, None, 900) for p in _cut(self.fresh(), 7)]),
            "tuples of three": await self.check_life([tuple(part) for part in _cut(self.fresh(), 3)]),
            "empty batches between": await self.check_life([batch for item in self.fresh() for batch in _padded(item)]),
        }
        if self.output is not None:
            (first, expected), *rest = outputs.items()
            for how, found in rest:
                if found != expected:
                    self.fail(f"output depends on where batches end: {how!r} differs from {first!r}")
        # Live: arrival times, and the stream of a sub-agent between.
        keys = (None, StreamKey(None, "toolu_agent"))
        live = zip(*(_cut(self.fresh(), 5) for _ in keys), strict=True)
        await self.check_life(
            [Batch(p, 2.0 + n, k, 80) for n, pair in enumerate(live) for p, k in zip(pair, keys, strict=True)]
        )
        for number in range(len(awkward_items())):
            await self.check_life([[awkward_items()[number]]], ends=())
        # … and in the middle of an answer, too.
        begun = self.fresh()[:8]
        await self.check_life([begun, *([item] for item in awkward_items())])
        for ends in _ENDS:
            items = self.fresh()
            await self.check_life([items[: len(items) // 2]], ends=ends)

    # -- single promises

    async def check_shape(self) -> None:
        sink = await self.open()
        for name in ("name", "policy", "wants_deltas", *_SYNC, *_ASYNC):
            if not hasattr(sink, name):
                self.fail(f"has no {name!r}", sink)
        if not isinstance(sink.name, str) or not sink.name:
            self.fail(f"name must be a non-empty string, not {sink.name!r}", sink)
        self.name = sink.name
        if sink.policy not in get_args(Policy):
            self.fail(f"policy must be one of {', '.join(get_args(Policy))}, not {sink.policy!r}")
        for name in (*_SYNC, *_ASYNC):
            method = getattr(sink, name)
            if not callable(method):
                self.fail(f"{name} must be a method")
            if name in _SYNC and _is_coroutine_function(method):
                self.fail(f"{name} is a coroutine function, which is never awaited; make it a plain method")
        if await self.open() is sink:
            self.fail("the factory must make a fresh sink at each call")
        await self.close_all()

    async def check_idle_life(self) -> None:
        """Nothing ever comes; also warms up what is made once, before leftovers are counted."""
        for awaited in (("drain", "drain", "aclose"), ("room", "aclose", "aclose"), ("aclose", "drain", "aclose")):
            sink = await self.open()
            if self.call(sink, "full"):
                self.fail("full() is true before any item")
            for name in awaited:
                self.check_statistics(sink)
                await self.wait_for(sink, name)
            self.check_statistics(sink)
            self.open_sinks.remove(sink)

    async def check_life(self, batches: list[Sequence[Any]], ends: tuple[str, ...] = ("on_completed",) * 2) -> Any:
        """A sink's whole life: batches, an end (or none: an abort), drained and closed; returns its output."""
        before = Leftovers()
        sink = await self.open()
        given = [item for batch in batches for item in batch]
        as_it_was = copy.deepcopy(given)
        number = 0
        for batch in batches:
            self.feed(sink, batch, number)
            number += len(batch)
            if self.call(sink, "full"):
                await self.wait_for(sink, "room")
                if self.call(sink, "full"):
                    self.fail("full() is still true after room() returned")
        self.check_statistics(sink)
        for end in ends:
            self.call(sink, end, *([RuntimeError("the run broke")] if end == "on_error" else []))
        await self.wait_for(sink, "drain")
        await self.wait_for(sink, "drain")
        if self.call(sink, "full"):
            self.fail("full() is still true after drain() returned")
        # Two at once, as a pipeline that is cancelled while it closes.
        await asyncio.gather(self.wait_for(sink, "aclose"), self.wait_for(sink, "aclose"))
        await self.wait_for(sink, "aclose")
        await self.check_closed(sink, before)
        self.check_unchanged(given, as_it_was)
        self.open_sinks.remove(sink)
        return self.said(sink)[1]

    async def check_closed(self, sink: Any, before: Leftovers) -> None:
        for _ in range(3):  # a transport closes in a later turn of the loop
            await asyncio.sleep(0)
        if left := before.since():
            self.fail(f"aclose() left {', '.join(left)}")
        said = self.said(sink)
        if isinstance(asyncio.get_running_loop(), VirtualLoop):
            await asyncio.sleep(3600)
        if self.said(sink) != said:
            self.fail("statistics or output changed after aclose()")
        with suppress(Exception):  # a closed sink may refuse; it may not come to life again
            sink.on_next([])
            sink.on_next([awkward_items()[0]])
        if left := before.since():
            self.fail(f"on_next() after aclose() started {', '.join(left)}")

    def said(self, sink: Any) -> tuple[Any, Any]:
        return self.check_statistics(sink), None if self.output is None else self.output(sink)

    def check_unchanged(self, given: list[Any], as_it_was: list[Any]) -> None:
        for number, (item, original) in enumerate(zip(given, as_it_was, strict=True)):
            if item != original or _attributes(item) != _attributes(original):
                self.fail(f"an item was changed; it belongs to other sinks too ({which([item], number)})")

    def check_statistics(self, sink: Any) -> Mapping[str, Any]:
        found = self.call(sink, "statistics")
        if not isinstance(found, Mapping):
            self.fail(f"statistics() must return a mapping, not {type(found).__name__}")
        for key in found:
            if not isinstance(key, str) or not _SNAKE.match(key):
                self.fail(f"statistics() keys must be snake_case, not {key!r}")
        try:
            orjson.dumps(dict(found))
            json.dumps(dict(found), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise AssertionError(f"{self.name}: statistics() must be JSON-able: {error}") from error
        return copy.deepcopy(dict(found))

    def fresh(self) -> list[Any]:
        return sample_items() if self.items is None else copy.deepcopy(self.items)


def _cut(items: list[Any], size: int) -> list[list[Any]]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def _padded(item: Any) -> tuple[Sequence[Any], ...]:
    return [], [item], (), Batch([]), Batch((), 2.0)


def _attributes(item: Any) -> Any:
    # Fields that `==` doesn't compare: a message's line, and what somebody hung on it.
    return getattr(item, "__dict__", None) if isinstance(item, msgspec.Struct) else None


def _is_coroutine_function(method: Any) -> bool:
    while isinstance(method, functools.partial):
        method = method.func
    candidates: tuple[Any, ...] = (method, getattr(method, "__call__", None))  # noqa: B004
    return any(inspect.iscoroutinefunction(c) or inspect.isasyncgenfunction(c) for c in candidates)
