"""What a live source tells its run beside its batches: when its answer began to come, and notes.

A source is of bytes, so an item can't go the way of its batches; and while it waits nothing goes that way at all.
The run listens in the context of its pump, however deep the source is in sessions and attempts.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Protocol

__all__ = ["LISTENER", "Listener"]


class Listener(Protocol):
    """Who hears it: the run."""

    def tell(self, item: Any, /) -> None:
        """An item for the sinks, at once, between two batches; no operator sees it."""
        ...

    def tell_first_byte(self, at: float, /) -> None:
        """The first byte of an answer came, at ``at`` (monotonic seconds); its batch follows."""
        ...


LISTENER: ContextVar[Listener | None] = ContextVar("turnstream_listener", default=None)
"""The run in whose pump this code runs, None outside of one."""
