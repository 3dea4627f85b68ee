"""What a sink is (DESIGN.md §5), and a base with the defaults."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

__all__ = ["Policy", "Sink", "SinkBase"]

# A library says nothing on its own: who wants the records of turnstream.* sets up handlers.
logging.getLogger("turnstream").addHandler(logging.NullHandler())

Policy = Literal["direct", "block", "conflate", "drop_oldest", "drop_newest"]
"""How a sink takes batches that come faster than it works.

``direct``: it is called at once and must not block. The others are for sinks that need time:
``block`` is lossless (the source waits), ``conflate`` merges what can be merged, ``drop_*`` count what
they drop.
"""


@runtime_checkable
class Sink(Protocol):
    """Where a stream ends: an observer of batches that can be drained and closed.

    All methods are called on the run's event loop. ``on_next`` is synchronous and must return soon; it
    must neither keep nor change the batch. After ``on_error`` or ``on_completed`` no batch comes.
    """

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    @property
    def policy(self) -> Policy:
        """How it takes batches."""
        ...

    @property
    def wants_deltas(self) -> bool:
        """Whether it is called for batches that hold nothing but deltas to an open block."""
        ...

    def on_next(self, batch: Sequence[Any], /) -> None:
        """Take one batch."""
        ...

    def on_error(self, error: Exception, /) -> None:
        """The run broke; what came before stays valid."""
        ...

    def on_completed(self) -> None:
        """The run is complete."""
        ...

    def full(self) -> bool:
        """Whether the source should wait before it reads on (lossless sinks with a queue)."""
        ...

    async def room(self) -> None:
        """Return once the sink is no longer full."""
        ...

    async def drain(self) -> None:
        """Return once everything taken so far has arrived where it belongs.

        Raises:
            TurnstreamError: it can't arrive; what was kept is in the error.
        """
        ...

    async def aclose(self) -> None:
        """Drain, then release everything. Idempotent."""
        ...

    def statistics(self) -> Mapping[str, Any]:
        """Counters, JSON-able, snake_case."""
        ...


class SinkBase:
    """The defaults: direct, never full, nothing to drain."""

    name: str = "sink"
    policy: Policy = "direct"
    wants_deltas: bool = True

    def on_next(self, batch: Sequence[Any], /) -> None:
        """Take one batch."""
        raise NotImplementedError

    def on_error(self, error: Exception, /) -> None:
        """The run broke."""

    def on_completed(self) -> None:
        """The run is complete."""

    def full(self) -> bool:
        """Never full."""
        return False

    async def room(self) -> None:
        """There is always room."""

    async def drain(self) -> None:
        """Nothing to drain."""

    async def aclose(self) -> None:
        """Nothing to release."""

    def statistics(self) -> Mapping[str, Any]:
        """No counters."""
        return {}
