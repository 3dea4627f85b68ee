"""One run of a pipeline: the pump that pulls the source, and what its owner may do meanwhile (DESIGN.md §4)."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextvars import Context, copy_context
from typing import Any, Final, Literal

import msgspec

from turnstream.closing import GRACE, close_all, statistics_of
from turnstream.flow.beside import LISTENER
from turnstream.flow.credits import Credits, collecting
from turnstream.flow.patience import STALL_TIMEOUT, wait_for_room
from turnstream.messages.errors import AbortedError, TurnstreamError
from turnstream.messages.types import ResponseFailed
from turnstream.operators.batch import Batch
from turnstream.operators.outcomes import OutcomeTracker
from turnstream.operators.stage import Head, Operator
from turnstream.sinks.base import Sink, SinkBase
from turnstream.sources.base import CHUNK_SIZE, LiveBatches, Source, Taker
from turnstream.sources.session import SessionSource
from turnstream.tee import Tee

__all__ = ["Run", "RunOutcome", "RunStatus"]

_log = logging.getLogger("turnstream.run")

_SMALL: Final = 4096  # bytes of a batch that isn't counted against the loop's turns where it is handed over

RunStatus = Literal["complete", "failed", "broken", "aborted", "disposed"]


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended.

    Attributes:
        status: ``complete``; ``failed`` (an answer failed, or a sink was lost); ``broken`` (the source or
            the pipeline itself broke: ``error``); ``aborted``; ``disposed``.
        answers_complete: how many answers were complete.
        answers_failed: how many failed.
        failures: the failure items (the first hundred).
        error: what ended the stream (or the first source of a session that broke) early, None if all completed.
        sink_errors: by sink name, why a sink was detached or could not be drained.
        reason: the owner's word for an abort.
        batches: batches delivered; ``items`` likewise; ``bytes`` that caused them.
        statistics: each sink's own, by name.
    """

    status: RunStatus
    answers_complete: int = 0
    answers_failed: int = 0
    failures: tuple[ResponseFailed, ...] = ()
    error: Exception | None = None
    sink_errors: Mapping[str, Exception] = {}
    reason: str | None = None
    batches: int = 0
    items: int = 0
    bytes: int = 0
    statistics: Mapping[str, Mapping[str, Any]] = {}

    @property
    def ok(self) -> bool:
        """Whether all came, and all arrived."""
        return self.status == "complete"


class _Outcomes(SinkBase):
    """Watches the answers' ends for the outcome."""

    name = "outcome"
    wants_deltas = False

    def __init__(self) -> None:
        self.tracker = OutcomeTracker()

    def on_next(self, batch: Sequence[Any], /) -> None:
        self.tracker.feed(batch.items if isinstance(batch, Batch) else batch)


class Run:
    """One run of a pipeline; await it for its :class:`RunOutcome`. Made by entering a pipeline."""

    def __init__(
        self,
        source: Source[Any],
        operators: Sequence[Any],
        sinks: Sequence[Sink],
        *,
        on_sink_error: Literal["detach", "fail"] = "detach",
        drain_timeout: float = 30.0,
        stall_timeout: float = STALL_TIMEOUT,
    ) -> None:
        self._source = source
        self._operators = operators
        self._outcomes = _Outcomes()
        self._tee = Tee([self._outcomes, *sinks], fatal=on_sink_error == "fail", on_stop=self._on_stop)
        self._all_sinks = tuple(sinks)
        self._drain_timeout = drain_timeout
        self._stall_timeout = stall_timeout
        self._abort: AbortedError | None = None
        self._disposed = False
        self._source_error: Exception | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pump: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[RunOutcome] | None = None
        self._observer: Any = None
        self._subscription: Any = None
        self._context: Context | None = None  # the pump's
        self._credits: list[Credits] = []
        self._fulls: tuple[Callable[[], bool], ...] = ()
        self._budget = CHUNK_SIZE  # bytes until the loop gets a turn
        self._pulling = False
        self._stopped = False
        self._end_told = False
        self._over = asyncio.Event()
        self._lost: dict[str, Exception] = {}

    # -- the pump --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Subscribe and begin to pull; called by entering the pipeline."""
        self._loop = loop = asyncio.get_running_loop()
        # In the pump's context, and in that of what operators start: how a live source is heard beside its batches.
        listening = LISTENER.set(self._tee)
        with collecting() as self._credits:
            self._observer, self._subscription = self._connect()
        self._fulls = (
            *(sink.full for sink in self._all_sinks if type(sink).full is not SinkBase.full),
            *(credits.full for credits in self._credits),
        )
        self._context = copy_context()
        self._pump = loop.create_task(self._pull(), name="turnstream-pump", context=self._context)
        LISTENER.reset(listening)

    def _connect(self) -> tuple[Any, Any]:
        """Attach everything, then nothing flows until the pump pushes."""
        tee = self._tee
        operators = self._operators
        if all(isinstance(operator, Operator) and operator.fused for operator in operators):
            # Stages only: one chain, pushed into directly. Rx would add two hops a chunk and no meaning.
            if not operators:
                return tee, None
            whole = operators[0]
            for operator in operators[1:]:
                whole = whole | operator
            return Head(whole.chain(), tee), None
        from reactivex import Observable
        from reactivex.disposable import Disposable

        heads: list[Any] = []

        def subscribe(observer: Any, scheduler: Any = None) -> Any:
            heads.append(observer)
            return Disposable()

        stream: Any = Observable(subscribe)
        for operator in operators:
            stream = operator(stream)
        subscription = stream.subscribe(tee.on_next, tee.on_error, tee.on_completed)
        if len(heads) != 1:
            raise TurnstreamError(f"the operators subscribed {len(heads)} times to the source; once is right")
        return heads[0], subscription

    async def _pull(self) -> None:
        self._pulling = True
        try:
            if isinstance(self._source, SessionSource):
                for stream in self._source.runs():
                    await self._pull_all(stream)
                    if self._tee.done or self._tee.fatal_error is not None:
                        break
            else:
                await self._pull_all(self._source.batches())
        except asyncio.CancelledError:
            if self._abort is None and not self._disposed and not self._stopped:
                self._abort = AbortedError("cancelled")
        except Exception as error:  # noqa: BLE001 - whatever breaks the source ends the run, told
            self._source_error = error
        self._pulling = False
        self._end_stream()
        if not self._tee.done:
            await self._settle()

    async def _pull_all(self, stream: Iterator[Batch[Any]] | AsyncIterator[Batch[Any]]) -> None:
        """Push all batches of one stream, and close it however that ends: its response, its file."""
        try:
            live: Any = stream
            if hasattr(live, "__anext__"):
                await self._pull_live(live)
            else:
                await self._pull_ready(live)
        finally:
            close: Any = getattr(stream, "aclose", None) or getattr(stream, "close", None)
            if close is not None:
                with contextlib.suppress(Exception):
                    closing = close()
                    if inspect.isawaitable(closing):
                        await closing

    async def _pull_live(self, stream: AsyncIterator[Batch[Any]]) -> None:
        push = self._observer.on_next
        tee = self._tee
        if isinstance(stream, LiveBatches):
            stream.hand_to(self._taker(), self._context)
        async for batch in stream:
            if batch.weight or batch.items:
                push(batch)
            self._budget -= batch.weight or 64
            if self._budget <= 0:
                # What is already there comes without a wait; then nobody else would get a turn.
                self._budget = CHUNK_SIZE
                await asyncio.sleep(0)
            if self._any_full():
                await self._wait_for_room()
            if tee.done or tee.fatal_error is not None:
                return

    def _taker(self) -> Taker:
        """Pushes what a live source hands over while the pump waits for it; whatever takes time is the pump's."""
        push = self._observer.on_next
        tee = self._tee

        def take(batch: Batch[Any]) -> bool:
            try:
                push(batch)
            except asyncio.CancelledError:
                self._stop_pump()
                return False
            except Exception as error:  # noqa: BLE001 - an operator that raises ends the run, told
                self._source_error = error
                self._stopped = True
                self._stop_pump()
                return False
            if batch.weight > _SMALL:  # what is small came in a turn of its own
                self._budget -= batch.weight
                if self._budget <= 0:
                    return False
            if tee.done or tee.fatal_error is not None:
                return False
            try:
                for full in self._fulls:
                    if full():
                        return False
            except (Exception, asyncio.CancelledError):  # noqa: BLE001 - the pump looks again, and lets go of that sink
                return False
            return True

        return take

    def _stop_pump(self) -> None:
        assert self._pump is not None
        self._pump.cancel()

    async def _pull_ready(self, stream: Iterator[Batch[Any]]) -> None:
        """A source that never waits: the loop gets its turn at least every 64 KiB."""
        push = self._observer.on_next
        tee = self._tee
        budget = self._budget
        try:
            for batch in stream:
                push(batch)
                budget -= batch.weight or 64
                if budget <= 0:
                    budget = CHUNK_SIZE
                    await asyncio.sleep(0)
                if self._any_full():
                    await self._wait_for_room()
                if tee.done or tee.fatal_error is not None:
                    return
        finally:
            self._budget = budget  # a session's answers may all be shorter

    def _any_full(self) -> bool:
        """Whether the source has to wait; a sink whose ``full()`` raises is lost, the run goes on."""
        for full in self._fulls:
            try:
                if full():
                    return True
            except Exception as error:  # noqa: BLE001 - a sink's fault is never another's
                self._fulls = tuple(other for other in self._fulls if other is not full)
                self._tee.detach(full.__self__, error)  # type: ignore[attr-defined]
        return False

    async def _wait_for_room(self) -> None:
        for sink in self._tee.sinks:
            if sink.name not in self._tee.errors:
                try:
                    if not sink.full():
                        continue
                    await wait_for_room(sink, self._stall_timeout)
                except asyncio.CancelledError as error:
                    if self._pump is None or self._pump.cancelling():
                        raise
                    self._tee.detach(sink, error)  # its own, let out of something it awaited
                except Exception as error:  # noqa: BLE001 - a sink's fault is never another's
                    self._tee.detach(sink, error)
        for credits in self._credits:
            while credits.full():
                await credits.room()

    def _on_stop(self) -> None:
        """The stream ended, or is to end, without the source: a lost sink that is fatal, an operator's timer."""
        self._over.set()
        pump = self._pump
        if self._pulling and pump is not None and asyncio.current_task() is not pump:
            self._stopped = True
            pump.cancel()

    def _end_stream(self) -> None:
        """Tell the operators and sinks how the source ended. Once."""
        if self._end_told:
            return
        self._end_told = True
        if self._disposed:
            self._tee.close()
            return
        error = self._abort or self._tee.fatal_error or self._source_error
        try:
            if error is None:
                self._observer.on_completed()
            else:
                items = self._source.interrupt(error)
                if items:
                    self._observer.on_next(Batch(tuple(items)))
                self._observer.on_error(error)
        except Exception as broken:  # noqa: BLE001 - an operator that raises; the sinks still learn the end
            self._tee.on_error(error or broken)

    async def _settle(self) -> None:
        """Operators that take time still hold something; only a run that is whole waits for all of it."""
        error: Exception | None = None
        while not self._tee.done:
            error = self._abort or self._tee.fatal_error or self._source_error
            try:
                async with asyncio.timeout(self._drain_timeout if error is not None else None):
                    await self._over.wait()
            except TimeoutError:
                break
            except asyncio.CancelledError:
                if error is not None:
                    break  # cancelled a second time
                if self._abort is None and not self._disposed:
                    self._abort = AbortedError("cancelled")
        if not self._tee.done:
            if self._subscription is not None:
                self._subscription.dispose()
            self._tee.on_error(error or TurnstreamError("the operators never ended the stream"))

    # -- what its owner may do ---------------------------------------------------------------------------

    def emit(self, *items: Any) -> None:
        """Bring items into the run (user input, tool results …); they reach every sink, in order.

        From inside a sink: when the current batch has reached all. From a timer or another task of the loop: at once,
        between two batches. They don't pass through the operators.

        Raises:
            RuntimeError: the run has ended or hasn't begun, or this isn't its loop's thread.
        """
        loop = self._loop
        if loop is None or self._tee.done:
            raise RuntimeError(f"the run has {'not begun' if loop is None else 'ended'}; nothing can be emitted")
        self._check_thread("emit_threadsafe() instead of emit()")
        self._tee.on_next(Batch(tuple(items), loop.time()))

    def emit_threadsafe(self, *items: Any) -> concurrent.futures.Future[None]:
        """As :meth:`emit`, from any thread.

        Returns:
            Done when the sinks have the items; it raises what :meth:`emit` would.

        Raises:
            RuntimeError: the run hasn't begun, or its loop is closed.
        """
        if self._loop is None:
            raise RuntimeError("the run has not begun; nothing can be emitted")
        emitted: concurrent.futures.Future[None] = concurrent.futures.Future()

        def emit() -> None:
            if not emitted.set_running_or_notify_cancel():
                return
            try:
                self.emit(*items)
            except BaseException as error:  # noqa: BLE001 - it is the caller's to hear
                emitted.set_exception(error)
            else:
                emitted.set_result(None)

        self._loop.call_soon_threadsafe(emit)
        return emitted

    def _check_thread(self, instead: str) -> None:
        if asyncio._get_running_loop() is not self._loop:
            raise RuntimeError(f"a run belongs to its loop's thread: call {instead}")

    def abort(self, reason: str = "aborted") -> None:
        """Stop reading; emit the repair records (what is open is kept, marked and answered) and complete.

        Idempotent, also after the end. Await the run for its outcome.

        Raises:
            RuntimeError: this isn't the loop's thread.
        """
        if self._abort is None and not self._disposed and self._pump is not None and not self._pump.done():
            self._check_thread("loop.call_soon_threadsafe(run.abort, reason)")
            self._abort = AbortedError(reason)
            self._pump.cancel()

    def dispose(self) -> None:
        """Stop at once: nothing more is delivered; sinks keep what they have. Idempotent.

        Raises:
            RuntimeError: this isn't the loop's thread.
        """
        if not self._disposed and self._pump is not None and not self._pump.done():
            self._check_thread("loop.call_soon_threadsafe(run.dispose)")
            self._disposed = True
            if asyncio.current_task() is not self._pump:
                self._pump.cancel()  # else a sink is being called; the pump looks when it returns
            self._tee.close()

    def statistics(self) -> dict[str, Any]:
        """Counters now: batches, items and bytes delivered, answers, each sink's own."""
        tracker = self._outcomes.tracker
        return {
            "batches": self._tee.batches,
            "items": self._tee.items,
            "bytes": self._tee.weight,
            "answers_complete": tracker.complete,
            "answers_failed": tracker.failed,
            "sinks": {sink.name: statistics_of(sink) for sink in self._all_sinks},
            "detached": sorted(self._tee.errors),
        }

    def __await__(self) -> Generator[Any, None, RunOutcome]:
        return self._wait().__await__()

    async def _wait(self) -> RunOutcome:
        assert self._pump is not None
        try:
            await asyncio.wait([self._pump])
        except asyncio.CancelledError:
            # One cancellation: what is open is kept and marked, then the cancel goes on.
            self.abort("cancelled")
            await self._finish()
            raise
        return await self._finish()

    async def aclose(self) -> None:
        """Dispose of what still runs, drain and close the sinks. Idempotent."""
        if self._abort is None:
            self.dispose()
        await self._finish()

    async def _finish(self) -> RunOutcome:
        """Drain and close, once; a second cancel doesn't stop it, the deadline does."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._shut_down(), name="turnstream-close")
        cancelled = False
        while not self._closing.done():
            try:
                await asyncio.wait([self._closing])
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError
        return self._closing.result()

    async def _shut_down(self) -> RunOutcome:
        assert self._pump is not None
        # It has ended or was cancelled; operators may hold it for their time, a source by swallowing the cancel.
        await asyncio.wait([self._pump], timeout=self._drain_timeout + GRACE)
        if not self._pump.done():
            _log.warning("source %s goes on although it was cancelled; it is left to itself", self._source.name)
        self._end_stream()
        if self._subscription is not None:
            self._subscription.dispose()
        if not self._tee.done:
            self._tee.on_error(self._abort or TurnstreamError("the run was closed before it ended"))
        self._outcomes.tracker.finish()
        self._lost = await close_all(self._all_sinks, self._credits, self._drain_timeout)
        return self._outcome()

    def _outcome(self) -> RunOutcome:
        tee = self._tee
        tracker = self._outcomes.tracker
        errors: dict[str, Exception] = {**tee.errors, **{k: v for k, v in self._lost.items() if k not in tee.errors}}
        # A session goes on with the next source; that one broke is told all the same.
        lost = self._source.errors if isinstance(self._source, SessionSource) else []
        broken = lost[0][1] if lost else None
        status: RunStatus
        if self._disposed:
            status = "disposed"
        elif self._abort is not None:
            status = "aborted"
        elif tee.error is not None:
            status = "broken"
        elif tracker.failed or errors or broken is not None:
            status = "failed"
        else:
            status = "complete"
        return RunOutcome(
            status=status,
            answers_complete=tracker.complete,
            answers_failed=tracker.failed,
            failures=tuple(tracker.failures),
            error=None if self._abort is not None else (tee.error or broken),
            sink_errors=errors,
            reason=self._abort.reason if self._abort is not None else None,
            batches=tee.batches,
            items=tee.items,
            bytes=tee.weight,
            statistics={sink.name: statistics_of(sink) for sink in self._all_sinks},
        )
