"""How an operator that waits holds the source: the run asks it as it asks a sink (DESIGN.md §4).

Operators push synchronously, so one that has enough can't say so by returning late. Instead it announces
:class:`Credits` when it is subscribed to; the run collects them, and reads on only when all have room.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

__all__ = ["Credits", "announce", "collecting"]


class Credits(Protocol):
    """What an operator with work of its own lets the run see of it."""

    def full(self) -> bool:
        """Whether the source should wait."""
        ...

    async def room(self) -> None:
        """Return once it is no longer full."""
        ...

    async def aclose(self) -> None:
        """Cancel what is under way and return when that has ended. Idempotent."""
        ...


_collected: Final[ContextVar[list[Credits] | None]] = ContextVar("turnstream_credits", default=None)


def announce(credits: Credits) -> None:
    """Tell whoever subscribes (a run) of an operator's credits; called while it is subscribed to.

    Outside of a run nobody listens: then nothing holds the source.
    """
    collected = _collected.get()
    if collected is not None:
        collected.append(credits)


@contextmanager
def collecting() -> Iterator[list[Credits]]:
    """Collect what is announced inside: subscribe in the block, then ask the list."""
    collected: list[Credits] = []
    token = _collected.set(collected)
    try:
        yield collected
    finally:
        _collected.reset(token)
