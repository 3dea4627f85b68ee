"""A session: several answers, each through a fresh chain of stages, as one source of items."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from turnstream.messages.errors import TurnstreamError
from turnstream.operators.batch import Batch
from turnstream.operators.stage import Chain, Fault, Operator
from turnstream.sources.base import Source

__all__ = ["SessionSource", "in_turn"]

A = TypeVar("A")
B = TypeVar("B")


class SessionSource(Source[B], Generic[A, B]):
    """Plays sources one after the other, each through fresh stages, so no state leaks.

    A source that breaks is the failure of its answer, an item; the next source is played all the same.

    Attributes:
        errors: what broke, by source name, in order: source errors and stage faults.
    """

    def __init__(
        self,
        sources: Iterable[Source[A]],
        operator: Callable[[Source[A]], Operator[A, B]],
        *,
        name: str = "session",
        started: Callable[[Source[A]], None] | None = None,
        finished: Callable[[Source[A]], None] | None = None,
    ) -> None:
        self._sources = sources
        self._operator = operator
        self._chain: Chain | None = None
        self._started = started
        self._finished = finished
        self.name = name
        self.errors: list[tuple[str, Exception]] = []

    async def batches(self) -> AsyncIterator[Batch[B]]:  # type: ignore[override]
        for source in self._sources:
            if self._started is not None:
                self._started(source)
            self._chain = chain = self._operator(source).chain()
            end: Exception | None = None
            stream = source.batches()
            # Bytes that caused nothing yet count with the next batch, so that sums don't depend on chunking.
            weight = 0
            try:
                if isinstance(stream, AsyncIterator):
                    async for batch in stream:
                        items = self._good(chain.feed(batch.items), source)  # type: ignore[attr-defined]
                        weight += batch.weight  # type: ignore[attr-defined]
                        if items:
                            yield Batch(items, batch.at, batch.key, weight)  # type: ignore[attr-defined]
                            weight = 0
                        if chain.broken:
                            break
                else:
                    for batch in stream:
                        items = self._good(chain.feed(batch.items), source)
                        weight += batch.weight
                        # Also an empty one: the run lets the loop and the sinks breathe between batches.
                        yield Batch(items, batch.at, batch.key, weight)
                        weight = 0
                        if chain.broken:
                            break
            except (OSError, TurnstreamError) as error:
                end = error
                self.errors.append((source.name, error))
            finally:
                close: Any = getattr(stream, "aclose", None)
                if close is not None:
                    await close()
            if not chain.broken:
                last = self._good(chain.flush() if end is None else chain.fail(end), source)
                if last or weight:
                    yield Batch(last, None, None, weight)
            self._chain = None
            if self._finished is not None:
                self._finished(source)

    def _good(self, items: Sequence[Any], source: Source[A]) -> Sequence[Any]:
        chain = self._chain
        if chain is not None and chain.broken and items and items[-1].__class__ is Fault:
            self.errors.append((source.name, items[-1].error))
            return items[:-1]
        return items

    def interrupt(self, error: Exception) -> Sequence[Any]:
        """The run breaks off: the open answer's chain says what it still holds."""
        chain = self._chain
        self._chain = None
        if chain is None or chain.broken:
            return ()
        items = chain.fail(error)
        return items[:-1] if items and items[-1].__class__ is Fault else items


def in_turn(
    sources: Iterable[Source[A]], operator: Callable[[Source[A]], Operator[A, B]], *, name: str = "session"
) -> SessionSource[A, B]:
    """One session of several answers: each source in turn through a fresh ``operator(source)``."""
    return SessionSource(sources, operator, name=name)
