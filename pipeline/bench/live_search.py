"""The highest number of streams that keep up: what "keeping up" is, and how the number is looked for."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["DELAY_LIMIT", "FULL", "QUICK", "RATE", "Probe", "Probing", "Search"]

RATE: Final = 50.0
"""Events a second of each of many streams."""

DELAY_LIMIT: Final = 0.1
"""Seconds: the 99th percentile of delays up to which many streams are said to keep up."""

_SHARE: Final = 0.9
"""Of the events that must have come, for a number of streams to hold: those that never come have no delay."""


class Probe(msgspec.Struct, frozen=True):
    """One number of streams, tried.

    Attributes:
        p99: of the delays, seconds; infinite if not all began.
        share: of the events that must have come.
        server: the 99th percentile of the server's own lateness, seconds.
    """

    p99: float
    share: float
    server: float

    @property
    def holds(self) -> bool:
        """Whether all came in time."""
        return self.p99 <= DELAY_LIMIT and self.share >= _SHARE


class Probing(msgspec.Struct, frozen=True):
    """How the highest number of streams is looked for.

    Attributes:
        start: the first number.
        factor: the next is so many times as many, until one doesn't hold.
        halvings: then how often the gap between held and not held is halved (geometrically).
        most: no more than these.
        tries: how often a number may fail before it is believed: something else on the machine fails it, too.
        settle: seconds after the last stream began and before delays count.
        window: seconds for which they count.
        within: seconds for all to begin.
    """

    start: int = 50
    factor: float = 2.0
    halvings: int = 2
    most: int = 3_200
    tries: int = 2
    settle: float = 0.8
    window: float = 2.0
    within: float = 8.0


FULL: Final = Probing()
QUICK: Final = Probing(start=150, factor=3.0, halvings=0, most=450, tries=1, settle=0.3, window=0.7, within=3.0)


class Search:
    """Looks for the highest number that holds; it is told, and says what to try next.

    Attributes:
        held: the highest that held, 0 if none.
        failed: the lowest that failed, None if none.
    """

    def __init__(self, probing: Probing) -> None:
        self.held = 0
        self.failed: int | None = None
        self._probing = probing
        self._halvings = 0
        self._tried = 0
        self._next: int | None = probing.start

    @property
    def next(self) -> int | None:
        """What to try; None when the search is over."""
        return self._next

    def tell(self, holds: bool) -> None:
        """Whether :attr:`next` held."""
        assert self._next is not None
        if holds:
            self.held = self._next
        else:
            self._tried += 1
            if self._tried < self._probing.tries:
                return
            self.failed = self._next
        self._tried = 0
        self._next = self._choose()

    def _choose(self) -> int | None:
        if self.failed is None:
            more = min(int(self.held * self._probing.factor), self._probing.most)
            return more if more > self.held else None
        if self._halvings == self._probing.halvings or not self.held:
            return None
        self._halvings += 1
        between = round((self.held * self.failed) ** 0.5)
        return between if self.held < between < self.failed else None
