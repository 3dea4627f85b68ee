"""What a sink is whose work takes time: a coroutine a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

__all__ = ["AsyncSink"]


class AsyncSink(Protocol):
    """A sink that awaits: a socket, a database, a slow terminal. Give it to :func:`turnstream.flow.buffered`.

    Two more methods are used where they exist:

    - ``async def resync(self, snapshot)``: the queue overflowed (policy ``conflate`` with ``state=``); what
      was shown so far is to be replaced by the snapshot, which holds everything up to now.
    - ``async def ended(self, error)``: the last call; ``error`` is what broke the run, None if it is complete.
    """

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    async def take(self, batch: Sequence[Any], /) -> None:
        """Take one batch; the next one comes when this has returned.

        What it raises detaches the sink: it gets nothing more, and nobody else is touched.
        """
        ...

    async def aclose(self) -> None:
        """Release everything. Called once, however the run ended, also after ``take`` raised or was cancelled."""
        ...
