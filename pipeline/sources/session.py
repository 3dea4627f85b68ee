"""A session: several answers, each through a fresh chain of stages, as one source of items."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from turnstream.messages.types import RequestStart
from turnstream.operators.batch import Batch, StreamKey
from turnstream.operators.stage import Chain, Fault, Operator
from turnstream.sources.base import CHUNK_SIZE, Hand, LiveBatches, Source
from turnstream.sources.hushing import hush, quiet_of

__all__ = ["SessionSource", "in_turn"]

A = TypeVar("A")
B = TypeVar("B")


class SessionSource(Source[B], Generic[A, B]):
    """Plays sources one after the other, each through fresh stages, so no state leaks.

    A source that breaks is the failure of its answer, an item; the next source is played all the same.

    Args:
        sources: taken one by one, when it is their turn.
        operator: called for each source; must be made of stages only.
        name: what reports call the session.
        announce: emit a :class:`RequestStart` when a source is opened (its time is when the request
            went out; for sources that have times); a function says for which.
        started: called when a source is opened.
        finished: called when all of a source was delivered.

    Attributes:
        errors: what broke, by source name, in order: source errors and stage faults.
    """

    def __init__(
        self,
        sources: Iterable[Source[A]],
        operator: Callable[[Source[A]], Operator[A, B]],
        *,
        name: str = "session",
        announce: bool | Callable[[Source[A]], bool] = False,
        started: Callable[[Source[A]], None] | None = None,
        finished: Callable[[Source[A]], None] | None = None,
    ) -> None:
        self._sources = sources
        self._operator = operator
        self._chain: Chain | None = None
        self._announce = announce
        self._started = started
        self._finished = finished
        self.name = name
        self.errors: list[tuple[str, Exception]] = []

    async def batches(self) -> AsyncIterator[Batch[B]]:
        """Play the sources, each through a chain of its own."""
        for run in self.runs():
            if isinstance(run, AsyncIterator):
                try:
                    async for batch in run:
                        yield batch
                finally:
                    await _close(run)
            else:
                try:
                    for batch in run:
                        yield batch
                finally:
                    run.close()

    def runs(self) -> Iterator[Generator[Batch[B], None, None] | LiveBatches[B]]:
        """The batches, in pieces: a plain generator for a run of sources that are ready, one for each live source.

        A consumer closes each before it takes the next.
        """
        sources = iter(self._sources)
        while True:
            live: list[tuple[Source[A], AsyncIterator[Batch[A]]]] = []
            yield self._play(sources, live)
            if not live:
                return
            yield LiveBatches(partial(self._play_live, *live[0]))

    def _open(self, source: Source[A]) -> tuple[Chain, list[Batch[Any]]]:
        if self._started is not None:
            self._started(source)
        self._chain = chain = self._operator(source).chain()
        announce = self._announce
        if not (announce(source) if callable(announce) else announce):
            return chain, []
        return chain, [Batch((RequestStart(),), asyncio.get_running_loop().time())]

    def _play(
        self, sources: Iterator[Source[A]], live: list[tuple[Source[A], AsyncIterator[Batch[A]]]]
    ) -> Generator[Batch[B], None, None]:
        """Play the sources that are ready, up to one that isn't, which goes into ``live``."""
        for source in sources:
            stream: Any
            try:
                stream = source.batches()
            except Exception as cause:  # noqa: BLE001 - whatever breaks one source, the next is played
                stream = _raising(cause)
            if hasattr(stream, "__anext__"):
                live.append((source, stream))
                return
            chain, first = self._open(source)
            if first:
                yield from first
            feed = chain.feed
            last = chain.last
            tells = hasattr(last, "plain")
            end: Exception | None = None
            # Bytes that caused nothing yet count with the next batch, so that sums don't depend on chunking.
            weight = 0
            key: StreamKey | None = None
            try:
                for batch in stream:
                    items = feed(batch.items)
                    weight += batch.weight
                    key = batch.key
                    if chain.broken:
                        items = self._good(items, source)
                    # Also an empty one: the run lets the loop and the sinks breathe between batches.
                    yield Batch(items, batch.at, key, weight, tells and last.plain)
                    weight = 0
                    if chain.broken:
                        break
            except Exception as error:  # noqa: BLE001 - whatever breaks one source, the next is played
                end = error
                self.errors.append((source.name, error))
            finally:
                # A generator has it; a source may give any iterator.
                if hasattr(stream, "close"):
                    stream.close()
            rest = self._end(source, chain, end)
            if rest or weight:
                yield Batch(rest, None, key, weight)
            self._over(source)

    async def _play_live(
        self, source: Source[A], stream: AsyncIterator[Batch[A]], hand: Hand
    ) -> AsyncGenerator[Batch[B], None]:
        chain, first = self._open(source)
        last = chain.last
        tells = hasattr(last, "plain")
        quiet = quiet_of(source)
        for batch in first:
            yield batch
        end: Exception | None = None
        weight = 0
        key: StreamKey | None = None

        def step(taken: Batch[A]) -> Batch[B] | None:
            nonlocal weight, key
            items = chain.feed(taken.items)
            weight += taken.weight
            key = taken.key
            plain = False
            if chain.broken:
                items = self._good(items, source)
            elif tells:
                plain = last.plain
            if not plain:
                items = hush(items, quiet)
            # A flood of comments makes no item; the run lets the loop breathe between batches.
            if not items and weight < CHUNK_SIZE:
                return None
            batch = Batch(items, taken.at, key, weight, plain)
            weight = 0
            return batch

        def take(taken: Batch[A]) -> bool:
            batch = step(taken)
            more = batch is None or taker is None or taker(batch)
            return more and not chain.broken

        taker = hand.taker
        if taker is not None and isinstance(stream, LiveBatches):
            stream.hand_to(take, hand.context)
        try:
            async for taken in stream:
                if not (taken.items or taken.weight):
                    yield Batch((), taken.at)  # somebody further on has enough for now
                elif (made := step(taken)) is not None:
                    yield made
                if chain.broken:
                    break
        except Exception as error:  # noqa: BLE001 - whatever breaks one source, the next is played
            end = error
            self.errors.append((source.name, error))
        finally:
            await _close(stream)
        rest = self._end(source, chain, end)
        if rest or weight:
            yield Batch(rest, None, key, weight)
        self._over(source)

    def _end(self, source: Source[A], chain: Chain, end: Exception | None) -> Sequence[Any]:
        """What the chain still holds."""
        if chain.broken:
            return ()
        return hush(self._good(chain.flush() if end is None else chain.fail(end), source), quiet_of(source))

    def _over(self, source: Source[A]) -> None:
        self._chain = None
        if self._finished is not None:
            self._finished(source)

    def _good(self, items: Sequence[Any], source: Source[A]) -> Sequence[Any]:
        chain = self._chain
        if chain is not None and chain.broken and items and items[-1].__class__ is Fault:
            error = items[-1].error
            if not (self.errors and self.errors[-1][1] is error):
                self.errors.append((source.name, error))
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


async def _close(stream: Any) -> None:
    """Let go of what a source's iterator holds open, now and not at garbage collection."""
    if hasattr(stream, "aclose"):
        await stream.aclose()
    elif hasattr(stream, "close"):
        stream.close()


def _raising(error: Exception) -> Generator[Any, None, None]:
    raise error
    yield


def in_turn(
    sources: Iterable[Source[A]], operator: Callable[[Source[A]], Operator[A, B]], *, name: str = "session"
) -> SessionSource[A, B]:
    """One session of several answers: each source in turn through a fresh ``operator(source)``."""
    return SessionSource(sources, operator, name=name)
