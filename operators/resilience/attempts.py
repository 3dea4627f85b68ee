"""The attempts of one request: what passes, what is taken back, what comes next (WIRE.md §1, §7). No I/O, no clock."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import msgspec

from turnstream.messages.events import MessageStart, MessageStop
from turnstream.messages.factories import MessageFactory
from turnstream.messages.ids import Clock, IdSource, system_clock
from turnstream.messages.types import (
    AssistantMessage,
    QueryItem,
    RequestStart,
    ResponseFailed,
    StreamNote,
    Tombstone,
)
from turnstream.operators.failures import error_object, outcome_of
from turnstream.operators.resilience.budget import RetryBudget
from turnstream.operators.resilience.policy import NO_RETRY, RetryPolicy, may_fall_back, may_pass

__all__ = ["Attempts", "Decision", "Switch"]

_log = logging.getLogger("turnstream.resilience")

Action = Literal["done", "retry", "fall_back", "close", "give_up"]

_ENDS: Final = frozenset(
    {AssistantMessage, ResponseFailed, MessageStart, MessageStop, RequestStart, StreamNote, Tombstone}
)
# A thinking block goes back to the API only with its signature (WIRE.md §4, repair).
_SIGNED: Final = "signature"


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request falls back to.

    Attributes:
        name: names the switch, in the informational message and its field ``fallback``.
        retry: how often it is tried; once, unless given.
        suits: whether it may help against a failure; default :func:`may_fall_back`.
    """

    name: str
    retry: RetryPolicy = NO_RETRY
    suits: Callable[[ResponseFailed], bool] = may_fall_back


class Decision(msgspec.Struct, frozen=True):
    """What comes after an attempt.

    Attributes:
        action: ``done`` (the answer is complete); ``retry`` after ``delay``; ``fall_back`` at once, to ``switch``;
            ``close`` (it failed, but a tool runs: go on from what is kept); ``give_up``.
        items: to be emitted now, before any wait.
        delay: seconds.
        switch: number of the switch to fall back to, from 0.
        failed: how the attempt failed, None if it didn't.
    """

    action: Action
    items: tuple[Any, ...] = ()
    delay: float = 0.0
    switch: int | None = None
    failed: ResponseFailed | None = None


class Attempts:
    """One request's attempts, in order: ``begin``, ``feed`` …, ``ended``; again as long as that says so.

    What ``accumulate`` emits is fed; all of it passes but the end of a bad answer: its partial message and its failure
    are held back until it is decided whether they stay. Once :attr:`over`, nothing more need be fed.

    Args:
        retry: of the first kind of request.
        switches: what it falls back to, in order; each at most once.
        budget: shared with the other requests to the host.
        ids: makes uuids of the messages.
        clock: wall-clock seconds of the messages.
        chance: evenly distributed from 0 to 1, for the jitter.

    Attributes:
        number: of the attempt, from 1; 0 before the first.
        start: the attempt's item; its ``committed`` is the tool executor's.
        over: the attempt failed; what it still sends is of no use.
    """

    def __init__(
        self,
        *,
        retry: RetryPolicy | None = None,
        switches: Sequence[Switch] = (),
        budget: RetryBudget | None = None,
        ids: IdSource | None = None,
        clock: Clock = system_clock,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._retry = retry if retry is not None else RetryPolicy()
        self._switches = tuple(switches)
        self._next_switch = 0
        self._budget = budget
        self._make = MessageFactory(ids, clock)
        self._chance = chance
        self._tries = 0  # of this kind of request
        self._failing_since: float | None = None
        self.number = 0
        self.start = RequestStart()
        self._reset()

    def _reset(self) -> None:
        self.over = False
        self._complete = False
        self._open = False
        self._stopped = False  # a message_stop came; a failure behind it may take it back
        self._shown: list[AssistantMessage] = []
        self._held: list[Any] = []
        self._failed: ResponseFailed | None = None

    def begin(self) -> RequestStart:
        """The next attempt; returns the item to emit before its request goes out."""
        self.number += 1
        self._tries += 1
        self._reset()
        self.start = RequestStart(attempt=self.number)
        return self.start

    def feed(self, items: Sequence[QueryItem], /) -> Sequence[QueryItem]:
        """Take items of the attempt, return those that pass now."""
        if self.over:
            return ()
        if self._held:
            items = [*self._held, *items]
            self._held = []
        elif len(items) == 1:
            if items[0].__class__ not in _ENDS:
                return items
        elif _ENDS.isdisjoint(map(type, items)):
            return items
        for position, item in enumerate(items):
            cls = item.__class__
            if cls in _ENDS:
                self._look_at(item, cls)
                if self.over:
                    return self._cut(items, position)
        if items and _is_partial(items[-1]):
            # Its failure is the next item.
            self._held = [items[-1]]
            return items[:-1]
        return items

    def _look_at(self, item: Any, cls: type) -> None:
        if self._stopped:
            self._stopped = False
            self._complete = not (cls is ResponseFailed and _takes_back(item))
        if cls is AssistantMessage:
            if not self._complete and not _is_partial(item):
                self._shown.append(item)
        elif cls is MessageStart:
            self._open = True
        elif cls is MessageStop:
            # Also without a start: what came then is no answer, and says so behind it.
            self._stopped, self._open = self._open and not self._complete, False
        elif cls is Tombstone:
            self._shown = [message for message in self._shown if message is not item.message]
        elif cls is StreamNote:
            if item.kind == "no_message_stop":
                self._complete = True
        elif cls is RequestStart:
            # Of attempts that somebody made before us.
            self._reset()
            self.start = item
            self.number = item.attempt
        elif not self._complete:
            # A further answer of the same response stands for itself.
            self._failed = item
            self.over = True

    def _cut(self, items: Sequence[Any], end: int) -> Sequence[Any]:
        """Hold the failure back, with the partial message and the message_stop that are its own."""
        first = end
        while first > 0 and _is_of_the_end(items[first - 1]):
            first -= 1
        self._held = list(items[first:])
        return list(items[:first])

    def ended(self, now: float, *, error: Exception | None = None, retry_after: float | None = None) -> Decision:
        """The attempt is at its end, and all that its stages held was fed.

        Args:
            now: monotonic seconds.
            error: what broke it, if that was an exception.
            retry_after: seconds that the server asked for.
        """
        failed = self._failed
        if failed is None and error is not None and not (self._complete or self._stopped):
            # Strict stages, or none that make failures of errors.
            failed = ResponseFailed(error=error_object(error), outcome=outcome_of(error, len(self._shown)))
            self._held.append(failed)
        if failed is None:
            if self._budget is not None:
                self._budget.answered(now)
            return Decision("done", (*self._held, *self._afterwards(error)))
        if failed.error.get("type") == "aborted":
            return self._give_up(failed)  # with the repairs that came behind it
        if self.start.committed:
            return self._close(failed)
        if self._failing_since is None:
            self._failing_since = now
        return self._again(failed, now, retry_after) or self._fall_back(failed) or self._give_up(failed)

    def interrupted(self, items: Sequence[Any]) -> Sequence[Any]:
        """The owner breaks the attempt off: what is held back, then what the stages still held (their repairs)."""
        held, self._held = self._held, []
        self.over = True
        return [*held, *items] if held else items

    def _afterwards(self, error: Exception | None) -> tuple[Any, ...]:
        """What broke when the answer was there already is no failure of it."""
        if error is None:
            return ()
        return (StreamNote(kind="broke_after_end", message=f"the answer is complete, but then: {error}"),)

    def _close(self, failed: ResponseFailed) -> Decision:
        """A tool has started: the answer ends at its last finished block."""
        unsigned = [message for message in self._shown if _is_unsigned_thinking(message)]
        kept = [message for message in self._shown if not _is_unsigned_thinking(message)]
        failed = msgspec.structs.replace(
            failed, kept=[block for message in kept for block in message.message.get("content", ())]
        )
        _log.info("attempt %d failed after a tool had started: %s", self.number, failed.outcome)
        stop = [item for item in self._held if item.__class__ is MessageStop]
        return Decision("close", (*stop, *map(_tombstone, unsigned), failed), failed=failed)

    def _again(self, failed: ResponseFailed, now: float, retry_after: float | None) -> Decision | None:
        retry = self._retry
        if self._tries >= retry.tries or not may_pass(failed):
            return None
        delay = retry.delay(self._tries, self._chance(), retry_after)
        since = now if self._failing_since is None else self._failing_since
        if retry.total is not None and now + delay - since > retry.total:
            return None
        if self._budget is not None and not self._budget.take(now):
            _log.warning("attempt %d isn't tried again: the retry budget of its host is used up", self.number)
            return None
        _log.info("attempt %d failed, again in %.3f s: %s", self.number, delay, failed.outcome)
        waiting = self._make.api_retry(
            failed.error, retry_in_ms=delay * 1000, retry_attempt=self._tries, max_retries=retry.retries
        )
        return Decision("retry", (*map(_tombstone, self._shown), waiting), delay=delay, failed=failed)

    def _fall_back(self, failed: ResponseFailed) -> Decision | None:
        for number in range(self._next_switch, len(self._switches)):
            switch = self._switches[number]
            if switch.suits(failed):
                break
        else:
            return None
        self._next_switch = number + 1
        self._retry = switch.retry
        tries, self._tries = self._tries, 0
        self._failing_since = None
        _log.info("attempt %d failed, falling back to %s: %s", self.number, switch.name, failed.outcome)
        told = self._make.system(
            "informational",
            f"{_times(tries)} ({failed.error.get('type')}: {failed.error.get('message')}); going on with {switch.name}",
            level="warning",
            fallback=switch.name,
        )
        return Decision("fall_back", (*map(_tombstone, self._shown), told), switch=number, failed=failed)

    def _give_up(self, failed: ResponseFailed) -> Decision:
        return Decision("give_up", tuple(self._held), failed=failed)


def _is_of_the_end(item: Any) -> bool:
    return item.__class__ is MessageStop or _is_partial(item)


def _is_partial(item: Any) -> bool:
    return item.__class__ is AssistantMessage and bool(item.is_aborted_mid_stream)


def _takes_back(failed: ResponseFailed) -> bool:
    """Whether a failure right behind a message_stop is that answer's own, not that of something after it."""
    kind = failed.error.get("type")
    return kind == "incomplete_stream" or failed.outcome == f"protocol_error({kind})"


def _is_unsigned_thinking(message: AssistantMessage) -> bool:
    content = message.message.get("content")
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(b, dict) and b.get("type") == "thinking" and not b.get(_SIGNED) for b in content)
    )


def _tombstone(message: AssistantMessage) -> Tombstone:
    return Tombstone(message=message)


def _times(tries: int) -> str:
    return "The request failed" if tries == 1 else f"The request failed {tries} times"
