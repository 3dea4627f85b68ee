"""``resilient``: a request that is tried again, and falls back, as one source of items (WIRE.md §7; docs/faults.md)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec

from turnstream.flow.clocks import Clocks
from turnstream.messages.errors import StreamIdleTimeout
from turnstream.messages.ids import Clock, IdSource, system_clock
from turnstream.messages.types import QueryItem, RequestStart, ResponseFailed
from turnstream.operators.batch import Batch, StreamKey
from turnstream.operators.resilience import NO_RETRY, Attempts, RetryBudget, RetryPolicy, Switch, may_fall_back
from turnstream.operators.resilience.fallback import FALLBACK_SECONDS, took_too_long
from turnstream.operators.resilience.watchdog import is_progress, no_progress
from turnstream.operators.stage import Chain, Fault, Operator
from turnstream.sources.base import CHUNK_SIZE, Hand, LiveBatches, Source, Taker
from turnstream.sources.hushing import hush, quiet_of
from turnstream.sources.session import SessionSource

__all__ = ["FALLBACK_SECONDS", "FallBack", "Make", "ResilientSource", "resilient"]

T = TypeVar("T")

Make = Callable[[RequestStart], Source[bytes]]
"""Makes the source of one attempt."""

# A loop may call a timer a little early (by its resolution).
_EARLY: Final = 1e-3


class FallBack(msgspec.Struct, frozen=True):
    """Another request, for when the first kind failed.

    Attributes:
        make: makes its source.
        name: names the switch for people: ``a request that doesn't stream``, ``model …``.
        retry: how often it is tried; once, unless given.
        timeout: seconds that are waited for its answer in all; None for no limit.
        suits: which failures it may help against.
    """

    make: Make
    name: str
    retry: RetryPolicy = NO_RETRY
    timeout: float | None = None
    suits: Callable[[ResponseFailed], bool] = may_fall_back


class ResilientSource(SessionSource[bytes, QueryItem]):
    """One answer, whatever it takes; made by :func:`resilient`.

    Attributes:
        attempts: how many were made.
        errors: what broke in the end, if it did; what was tried again is only told by items.
    """

    def __init__(
        self,
        make: Make,
        operator: Callable[[Source[bytes]], Operator[bytes, QueryItem]],
        *,
        core: Attempts,
        fall_back: Sequence[FallBack],
        clocks: Clocks,
        name: str,
        started: Callable[[Source[bytes]], None] | None,
    ) -> None:
        super().__init__((), operator, name=name, started=started)
        self._make = make
        self._core = core
        self._fall_back = tuple(fall_back)
        self._clocks = clocks
        self._used = False

    @property
    def attempts(self) -> int:
        """How many attempts were made so far."""
        return self._core.number

    async def batches(self) -> AsyncIterator[Batch[QueryItem]]:
        """The request goes out with the first batch, each attempt's :class:`RequestStart`.

        Raises:
            RuntimeError: it was iterated before.
        """
        stream = LiveBatches(self._attempt_all)
        try:
            async for batch in stream:
                yield batch
        finally:
            await stream.aclose()

    def runs(self) -> Iterator[LiveBatches[QueryItem]]:
        """One live stream."""
        yield LiveBatches(self._attempt_all)

    async def _attempt_all(self, hand: Hand) -> AsyncGenerator[Batch[QueryItem], None]:
        if self._used:
            raise RuntimeError("a resilient source is one request; make a new one for the next")
        self._used = True
        loop = asyncio.get_running_loop()
        core = self._core
        make, timeout = self._make, None
        while True:
            start = core.begin()
            yield Batch((start,), loop.time())
            source = make(start)
            if self._started is not None:
                self._started(source)
            self._chain = chain = self._operator(source).chain()
            # What is iterated here is closed here, so that no response outlives its attempt.
            stream = _Watched(source, self._clocks.progress, timeout)
            quiet = quiet_of(source)
            attempt = _Attempt(chain, core, stream, hand.taker, quiet)
            error: Exception | None = None
            try:
                while (taken := await stream.take(hand, attempt.take)) is not None:
                    if not (taken.items or taken.weight):
                        yield Batch((), taken.at)  # somebody further on has enough for now
                    elif (batch := attempt.step(taken)) is not None:
                        yield batch
                    if attempt.over:
                        break
            except Exception as broken:  # noqa: BLE001 - whatever breaks an attempt, it is judged
                error = broken
            finally:
                await stream.aclose()
            error = error or attempt.fault
            if not chain.broken:
                rest: Sequence[Any] = chain.flush() if error is None else chain.fail(error)
                rest, fault = _without_fault(rest)
                error = error or fault
                passed = core.feed(hush(rest, quiet))
                if passed or attempt.weight:
                    yield Batch(passed, None, attempt.key, attempt.weight)
            # A failure may end an answer before its source does, so the source is asked, not only its error.
            wanted = getattr(error, "retry_after", None)
            if wanted is None:
                wanted = getattr(source, "retry_after", None)
            decision = core.ended(loop.time(), error=error, retry_after=wanted)
            self._chain = None
            if decision.action in ("close", "give_up") and error is not None:
                self.errors.append((source.name, error))
            if decision.items:
                yield Batch(decision.items, loop.time())
            if decision.action == "retry":
                await asyncio.sleep(decision.delay)
            elif decision.switch is not None:
                switch = self._fall_back[decision.switch]
                make, timeout = switch.make, switch.timeout
            else:
                return

    def interrupt(self, error: Exception) -> Sequence[Any]:
        """The run breaks off: what the open attempt still holds; between two attempts, nothing."""
        chain, self._chain = self._chain, None
        if chain is None:
            return ()
        items = () if chain.broken else _without_fault(chain.fail(error))[0]
        return self._core.interrupted(items)


class _Attempt:
    """What one attempt's bytes become.

    Attributes:
        weight: bytes that caused nothing yet; ``key`` of the last batch.
        fault: of a stage.
    """

    def __init__(
        self,
        chain: Chain,
        core: Attempts,
        stream: _Watched,
        taker: Taker | None,
        quiet: Callable[[str], str] | None,
    ) -> None:
        self._quiet = quiet
        self._chain = chain
        self._core = core
        self._stream = stream
        self._taker = taker
        self._tells: Any = chain.last if hasattr(chain.last, "plain") else None
        self.weight = 0
        self.key: StreamKey | None = None
        self.fault: Exception | None = None

    @property
    def over(self) -> bool:
        """Whether what still comes is of no use."""
        return self._core.over or self._chain.broken

    def step(self, taken: Batch[bytes]) -> Batch[QueryItem] | None:
        """One batch of bytes; None if there is nothing to pass on."""
        items: Sequence[Any] = self._chain.feed(taken.items)
        if self._chain.broken:
            items, self.fault = _without_fault(items)
        if items and is_progress(items):
            self._stream.progress()
        else:
            self._stream.no_progress()
        plain = self._tells is not None and self._tells.plain and not self._chain.broken
        passed = self._core.feed(items if plain else hush(items, self._quiet))
        self.weight = weight = self.weight + taken.weight
        self.key = taken.key
        # A flood of comments gives nothing to pass on; the run lets the loop breathe between batches.
        if not passed and weight < CHUNK_SIZE:
            return None
        self.weight = 0
        return Batch(passed, taken.at, taken.key, weight, plain and passed is items)

    def take(self, taken: Batch[bytes]) -> bool:
        """The same where batches are handed over."""
        stream = self._stream
        stream.came()
        batch = self.step(taken)
        more = batch is None or self._taker is None or self._taker(batch)
        stream.waits()
        return more and not self.over and not stream.expired


class _Watched:
    """The batches of one source, and the clocks that only an attempt has: of progress, and for a whole fallback.

    They run only while the source is waited for. One timer, set anew only when it is due; what ends a wait is a
    cancellation of the task that waits, as in ``asyncio.timeout``.
    """

    def __init__(self, source: Source[bytes], progress: float | None, total: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._source = source
        self._stream: Any = None
        self._limits = (progress, total)
        self._stuck = 0.0  # seconds waited since there was progress
        self._waited = 0.0
        self._since: float | None = None
        self._taken = 0.0  # when the last batch came
        self._task: asyncio.Task[Any] | None = None
        self._expired: StreamIdleTimeout | None = None
        self._cancelled = False  # the task, by the timer: a flood runs its clock out without
        self._timer: asyncio.TimerHandle | None = None

    @property
    def expired(self) -> bool:
        """Whether a clock ran out."""
        return self._expired is not None

    async def take(self, hand: Hand, taker: Taker) -> Batch[bytes] | None:
        """The next batch that isn't handed over, None at the end; the first one opens the source."""
        if self._expired is not None:
            raise self._expired
        if self._stream is None:
            self._stream = self._source.batches()
            if hand.taker is not None and isinstance(self._stream, LiveBatches):
                self._stream.hand_to(taker, hand.context)
            if hasattr(self._stream, "__anext__"):
                self._set_timer()
        if not hasattr(self._stream, "__anext__"):
            ready: Any = self._stream
            batch: Batch[bytes] | None = next(ready, None)
            return batch
        self._task = task = asyncio.current_task()
        cancels = 0 if task is None else task.cancelling()
        self.waits()
        try:
            batch = await self._stream.__anext__()
            return batch
        except StopAsyncIteration:
            return None
        except asyncio.CancelledError:
            # A cancellation that came from elsewhere at the same time goes on.
            if self._cancelled and self._expired is not None and task is not None and task.uncancel() <= cancels:
                raise self._expired from None
            raise
        finally:
            self.came()

    def waits(self) -> None:
        """A wait begins."""
        self._since = self._loop.time()

    def came(self) -> None:
        """It is over."""
        self._taken = now = self._loop.time()
        if self._since is not None:
            waited = now - self._since
            self._since = None
            self._stuck += waited
            self._waited += waited

    def progress(self) -> None:
        """Something came that gets the answer on."""
        self._stuck = 0.0

    def no_progress(self) -> None:
        """What came doesn't. The time that it cost counts, too: a flood never has to be waited for."""
        self._stuck += self._loop.time() - self._taken
        progress = self._limits[0]
        if progress is not None and self._stuck > progress:
            self._expired = no_progress(progress)

    async def aclose(self) -> None:
        """Let go of the response, and stop the clocks."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        close: Any = getattr(self._stream, "aclose", None)
        if close is not None:
            await close()
        elif hasattr(self._stream, "close"):
            self._stream.close()

    def _set_timer(self) -> None:
        waiting = 0.0 if self._since is None else self._loop.time() - self._since
        progress, total = self._limits
        left = [limit - used - waiting for limit, used in ((progress, self._stuck), (total, self._waited)) if limit]
        if left:
            # While nothing is waited for, there is no hurry: a wait that begins later ends later.
            soonest = 0.0 if self._since is not None else 1.0
            self._timer = self._loop.call_later(max(min(left), soonest), self._look)

    def _look(self) -> None:
        self._timer = None
        if self._since is not None and self._task is not None:
            waiting = self._loop.time() - self._since
            progress, total = self._limits
            if total is not None and self._waited + waiting > total - _EARLY:
                self._expired = took_too_long(self._source.name, total)
            elif progress is not None and self._stuck + waiting > progress - _EARLY:
                self._expired = no_progress(progress)
            if self._expired is not None:
                self._cancelled = True
                self._task.cancel()
                return
        self._set_timer()


def _without_fault(items: Sequence[Any]) -> tuple[Sequence[Any], Exception | None]:
    if items and items[-1].__class__ is Fault:
        return items[:-1], items[-1].error
    return items, None


def resilient(
    make: Make,
    operator: Callable[[Source[bytes]], Operator[bytes, QueryItem]],
    *,
    retry: RetryPolicy | None = None,
    fall_back: Sequence[FallBack] = (),
    clocks: Clocks | None = None,
    budget: RetryBudget | None = None,
    ids: IdSource | None = None,
    clock: Clock = system_clock,
    chance: Callable[[], float] = random.random,
    name: str = "request",
    started: Callable[[Source[bytes]], None] | None = None,
) -> ResilientSource:
    """One request as a source of items: tried again, then replaced by another one, by the rules of docs/faults.md.

        resilient(lambda start: from_request(request), decode_answer_and_the_rest, retry=RetryPolicy(tries=4))

    Each attempt begins with a :class:`RequestStart`, whose ``committed`` a tool executor sets before it starts a tool,
    and runs through fresh stages. Nothing is sent before the run starts.

    Args:
        make: makes the source of an attempt; called after its ``RequestStart`` was delivered.
        operator: makes an attempt's stages, up to ``accumulate``; as :class:`SessionSource` takes it.
        retry: how often and after which waits; default :class:`RetryPolicy`, ``NO_RETRY`` for one attempt.
        fall_back: other requests, in order, each at most once.
        clocks: its ``progress`` counts here; the others are the source's (``from_request(clocks=…)``).
        budget: shared by the requests to one host (:func:`host_budget`); default none.
        ids: makes uuids of the system messages.
        clock: wall-clock seconds of the system messages.
        chance: evenly distributed from 0 to 1, for the jitter.
        name: what reports call it.
        started: called with the source of each attempt.
    """
    switches = [Switch(name=other.name, retry=other.retry, suits=other.suits) for other in fall_back]
    core = Attempts(retry=retry, switches=switches, budget=budget, ids=ids, clock=clock, chance=chance)
    return ResilientSource(
        make,
        operator,
        core=core,
        fall_back=fall_back,
        clocks=clocks if clocks is not None else Clocks(),
        name=name,
        started=started,
    )
