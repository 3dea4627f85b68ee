"""Composition: source → operators → sinks, as one run with one outcome (DESIGN.md §4).

async with Pipeline(source).through(decode_sse() | parse_events() | accumulate()).to(ui, transcript) as run:
    outcome = await run
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from turnstream.messages.errors import SinkError
from turnstream.operators.stage import Operator
from turnstream.run import Run, RunOutcome
from turnstream.sinks.base import Sink
from turnstream.sources.base import Source

if TYPE_CHECKING:
    from reactivex import Observable

__all__ = ["Pipeline"]

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")
W = TypeVar("W")


class Pipeline(Generic[T]):
    """A source, the operators on it and the sinks; nothing happens before it is entered.

    Immutable: ``through`` and ``to`` return a new one.

    Args:
        source: where it begins.
    """

    def __init__(self, source: Source[T]) -> None:
        self._source: Source[Any] = source
        self._operators: tuple[Any, ...] = ()
        self._sinks: tuple[Sink, ...] = ()
        self._options: dict[str, Any] = {}
        self._run: Run | None = None

    def _copy(self) -> Pipeline[Any]:
        copy: Pipeline[Any] = Pipeline(self._source)
        copy._operators = self._operators
        copy._sinks = self._sinks
        copy._options = dict(self._options)
        return copy

    @overload
    def through(self, first: Operator[T, U], /) -> Pipeline[U]: ...
    @overload
    def through(self, first: Operator[T, U], second: Operator[U, V], /) -> Pipeline[V]: ...
    @overload
    def through(self, first: Operator[T, U], second: Operator[U, V], third: Operator[V, W], /) -> Pipeline[W]: ...
    @overload
    def through(self, first: Callable[[Observable[Sequence[T]]], Observable[Sequence[U]]], /) -> Pipeline[U]: ...
    def through(self, *operators: Callable[[Any], Any]) -> Pipeline[Any]:
        """Add operators: lifted stages, or any function from Observable to Observable of batches."""
        copy = self._copy()
        copy._operators += operators
        return copy

    def to(
        self,
        *sinks: Sink,
        on_sink_error: Literal["detach", "fail"] | None = None,
        drain_timeout: float | None = None,
        stall_timeout: float | None = None,
    ) -> Pipeline[T]:
        """Add sinks.

        Args:
            sinks: each gets every batch.
            on_sink_error: ``detach`` (default) goes on without a sink that raised or hung; ``fail`` ends the run.
            drain_timeout: seconds that draining and closing the sinks may take at the end (default 30), all at once.
            stall_timeout: seconds that a full sink may hold the source without progress (default 30): as long as
                its ``statistics()`` stay the same. A sink's own attribute ``stall_timeout`` goes before it, None
                there means for ever; a sink that reports a ``device_error`` may take its time.

        Raises:
            SinkError: what isn't a sink, or whose ``on_next`` is a coroutine function.
        """
        for sink in sinks:
            if not isinstance(sink, Sink):
                hint = "wrap it: buffered(sink)" if hasattr(sink, "take") else None
                raise SinkError(
                    f"{type(sink).__name__} is no sink: see turnstream.sinks.Sink", sink=type(sink).__name__, hint=hint
                )
            if inspect.iscoroutinefunction(sink.on_next):
                raise SinkError(
                    f"on_next of sink {sink.name!r} is a coroutine function, which nobody awaits; make it a plain function",
                    sink=sink.name,
                )
        names = [sink.name for sink in (*self._sinks, *sinks)]
        if len(set(names)) != len(names):
            raise SinkError("two sinks have the same name", sink=next(n for n in names if names.count(n) > 1))
        copy = self._copy()
        copy._sinks += sinks
        if on_sink_error is not None:
            copy._options["on_sink_error"] = on_sink_error
        if drain_timeout is not None:
            copy._options["drain_timeout"] = drain_timeout
        if stall_timeout is not None:
            copy._options["stall_timeout"] = stall_timeout
        return copy

    async def __aenter__(self) -> Run:
        if self._run is not None:
            raise RuntimeError("a pipeline object runs once; compose a new one for the next run")
        self._run = Run(self._source, self._operators, self._sinks, **self._options)
        self._run.start()
        return self._run

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._run is not None
        if isinstance(error, asyncio.CancelledError):
            # The owner's task was cancelled: what is open is kept and marked before the run ends.
            self._run.abort("cancelled")
        await self._run.aclose()

    async def run(self) -> RunOutcome:
        """Enter, wait for the end, leave."""
        async with self as run:
            return await run
