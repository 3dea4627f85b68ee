"""Cold observables of event batches on a TestScheduler, and what came out of an operator when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import accumulating as acc
import reactivex as rx
from reactivex.testing import ReactiveTest, TestScheduler

from turnstream.messages import seeded_clock, seeded_ids
from turnstream.operators import accumulate

on_next, on_error, on_completed = ReactiveTest.on_next, ReactiveTest.on_error, ReactiveTest.on_completed


class Rig:
    """One test: a scheduler, sources that take turns, a record."""

    def __init__(self) -> None:
        self.scheduler = TestScheduler()
        self.made: list[Any] = []

    def cold(self, *messages: Any) -> Any:
        """A cold observable whose batches are payloads, through a fresh ``accumulate``."""
        source = self.scheduler.create_cold_observable(
            *[on_next(m.time, acc.events(*m.value.value)) if m.value.kind == "N" else m for m in messages]
        )
        self.made.append(source)
        # ids of their own: two attempts have different messages
        number = len(self.made)
        return accumulate(ids=seeded_ids(number), clock=seeded_clock())(source)

    def in_turn(self, *sources: Any) -> Any:
        """An observable that gives each subscription the next source."""
        left = list(sources)
        return rx.defer(lambda _: left.pop(0))

    def run(self, make: Callable[[], Any], *, disposed: float = 100_000) -> list[tuple[float, str, Any]]:
        """Subscribe at 200; (time after 200, kind, items or error) of each notification."""
        result = self.scheduler.start(make, disposed=disposed)
        return [
            (
                m.time - 200,
                m.value.kind,
                list(m.value.value) if m.value.kind == "N" else getattr(m.value, "exception", None),
            )
            for m in result.messages
        ]

    def subscriptions(self) -> list[tuple[float, float]]:
        """When each source was subscribed to and let go, after 200."""
        return [(s.subscribe - 200, s.unsubscribe - 200) for source in self.made for s in source.subscriptions]


def names(items: Any) -> list[str]:
    """The items' classes."""
    return [type(item).__name__ for item in items]
