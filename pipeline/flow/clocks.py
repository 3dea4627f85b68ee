"""The clocks of a live answer (WIRE.md §7): how long each phase may take, and the one timer that watches a wait.

They run only while a source waits for bytes. Whoever reads slowly, a full sink or a tool stops them, and so does
what several attempts wait for between them; that is why no operator has them, and why the source itself says when it waits.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from turnstream.flow.beside import Listener
from turnstream.messages.errors import StreamIdleTimeout
from turnstream.messages.types import StreamNote

__all__ = ["Clocks", "WaitClock", "timed_out", "warn_of_idle"]

_Word = Literal["connect", "first_byte", "idle", "progress", "total"]

# A loop may call a timer a little early (by its resolution).
_EARLY: Final = 1e-3
# Seconds between two looks while nothing is waited for, at least, however little of the whole is left.
_SOONEST: Final = 0.1
# Turns of the loop from a byte in a socket to the task that waits for it: its callback, its future, with some to spare.
_TURNS: Final = 3

_SAID: Final[dict[str, str]] = {
    "connect": "no connection within {limit:g} s",
    "first_byte": "no byte of an answer came within {limit:g} s",
    "idle": "no byte came for {limit:g} s",
    "progress": "nothing but pings came for {limit:g} s",
    "total": "the answer took more than {limit:g} s",
}


class Clocks(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that the phases of a live answer may take, the same for every host; None turns a clock off.

    Attributes:
        connect: until the connection is made (name, TCP, TLS).
        first_byte: from the request until the first byte of its answer, connecting included.
        idle: between two bytes, whatever they say (a ping, a comment); only while they are waited for.
        idle_warning: the same, for a ``stream_note`` of kind ``idle_warning``; once a wait.
        progress: between two events that aren't pings (comments aren't either).
        total: that are waited for the answer altogether.

    Raises:
        ValueError: a clock that isn't above zero.
    """

    connect: float | None = 10.0
    first_byte: float | None = 300.0
    idle: float | None = 90.0
    idle_warning: float | None = 45.0
    progress: float | None = 600.0
    total: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            limit = getattr(self, name)
            if limit is not None and not 0 < limit < math.inf:
                raise ValueError(f"clock {name} must be above zero, not {limit}; None turns it off")

    @classmethod
    def off(cls) -> Clocks:
        """No clock at all."""
        return cls(connect=None, first_byte=None, idle=None, idle_warning=None, progress=None, total=None)


def timed_out(
    clock: _Word, limit: float, *, received: int | None = None, request_id: str | None = None
) -> StreamIdleTimeout:
    """The error of a clock that ran out; retryable.

    Args:
        clock: which.
        limit: its seconds.
        received: how many bytes of the answer had come.
        request_id: the API's word for the request, if it is known.
    """
    message = _SAID[clock].format(limit=limit)
    if received:
        message += f", after {received} bytes of the answer"
    hint = f"the request was {request_id}" if request_id else None
    return StreamIdleTimeout(message, hint=hint)


def warn_of_idle(name: str, clocks: Clocks, log: logging.Logger, listener: Listener | None) -> Callable[[float], None]:
    """What a :class:`WaitClock` calls for a wait that gets long: it tells the log and the run.

    Args:
        name: of the source.
        clocks: that it is watched by.
        log: where the warning goes.
        listener: the run, if there is one; it gets a ``stream_note`` of kind ``idle_warning``.
    """

    def warn(seconds: float) -> None:
        message = f"no byte has come for {round(seconds, 1):g} s"
        if clocks.idle is not None:
            message += f"; the answer is given up at {clocks.idle:g} s"
        log.warning("%s: %s", name, message)
        if listener is not None:
            listener.tell(StreamNote(kind="idle_warning", message=message))

    return warn


class WaitClock:
    """Watches the waits of one stream, each from :attr:`since` until that is None again.

    One timer for all of them: it is set once, and when it fires it looks how old the present wait is and sets
    itself for the rest. So a chunk costs its owner two stores and a look at the loop's time, no timer.

    Args:
        clocks: ``idle``, ``idle_warning`` and ``total`` count.
        warn: called with the seconds of a wait that got as long as ``idle_warning``.
        expire: called once when a clock has run out; it ends the wait.
        waited: seconds that were waited for the stream before.

    Attributes:
        since: when the present wait began (the loop's time), None while nothing is waited for.
        expired: which clock ran out, None if none did.
        waited: seconds that ended waits took.
    """

    __slots__ = (
        "_clocks",
        "_expire",
        "_handle",
        "_loop",
        "_shortest",
        "_time",
        "_warn",
        "_warned",
        "expired",
        "since",
        "waited",
    )

    def __init__(
        self,
        clocks: Clocks,
        warn: Callable[[float], None],
        expire: Callable[[], None],
        *,
        waited: float = 0.0,
    ) -> None:
        self.since: float | None = None
        self.expired: Literal["idle", "total"] | None = None
        self.waited = waited
        self._clocks = clocks
        self._warn = warn
        self._expire = expire
        self._warned: float | None = None  # the wait that was warned of, by its beginning
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        limits = [limit for limit in (clocks.idle_warning, clocks.idle, clocks.total) if limit is not None]
        self._shortest = min(limits, default=None)
        self._handle: asyncio.Handle | None = None

    @property
    def counts(self) -> bool:
        """Whether ``waited`` is looked at."""
        return self._clocks.total is not None

    def begin(self) -> None:
        """A wait begins."""
        self.since = self._time()

    def end(self) -> float:
        """The wait, if there is one, is over; returns the loop's time."""
        now = self._time()
        if self.since is not None:
            self.waited += now - self.since
            self.since = None
        return now

    def start(self) -> None:
        """Begin to watch."""
        if self._shortest is not None and self._handle is None:
            self._handle = self._loop.call_at(self._loop.time() + self._shortest, self._look)

    def stop(self) -> None:
        """Watch no longer; idempotent."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _look(self) -> None:
        """When the present wait was too long, or would be."""
        since = self.since
        if since is None:
            # Whatever wait begins from now on is younger than this at the next look.
            assert self._shortest is not None
            self._handle = self._loop.call_at(self._loop.time() + self._rest(self._shortest), self._look)
        elif self._next(since)[0] - self._loop.time() < _EARLY:
            # A loop that somebody held up runs its timers before whoever waits has seen what lies there: his turn first.
            self._handle = self._loop.call_soon(self._act, since, _TURNS)
        else:
            self._handle = self._loop.call_at(self._next(since)[0], self._look)

    def _act(self, since: float, turns: int) -> None:
        if self.since != since:
            self._look()
            return
        if turns:
            self._handle = self._loop.call_soon(self._act, since, turns - 1)
            return
        what = self._next(since)[1]
        if what == "idle" or what == "total":
            self._handle = None
            self.expired = what
            self._expire()
            return
        if what == "warning":
            self._warned = since
            self._warn(self._loop.time() - since)
        if self._handle is not None:  # unless the warning stopped it
            self._look()

    def _next(self, since: float) -> tuple[float, Literal["idle", "total", "warning", "nothing"]]:
        """When a wait from ``since`` on calls for something, and for what."""
        clocks = self._clocks
        when = math.inf
        what: Literal["idle", "total", "warning", "nothing"] = "nothing"
        if clocks.idle is not None:
            when, what = since + clocks.idle, "idle"
        if clocks.total is not None and (end := since + max(clocks.total - self.waited, 0.0)) < when:
            when, what = end, "total"
        if clocks.idle_warning is not None and self._warned != since and (end := since + clocks.idle_warning) < when:
            when, what = end, "warning"
        if what == "nothing":
            assert self._shortest is not None
            when = self._loop.time() + self._shortest
        return when, what

    def _rest(self, shortest: float) -> float:
        """Seconds until the next look while nothing is waited for."""
        total = self._clocks.total
        return shortest if total is None else max(min(shortest, total - self.waited), _SOONEST)
