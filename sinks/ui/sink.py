"""``UISink``: the reducer takes every batch at once, only rendering is throttled (FAULTS 78, 79)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from turnstream.messages.jsonvalue import scrub_text
from turnstream.operators.batch import Batch, StreamKey
from turnstream.operators.whole import AnswerItems
from turnstream.sinks.base import SinkBase
from turnstream.sinks.ui.state import UIState

__all__ = ["RENDER_INTERVAL", "Renderer", "Timers", "UISink"]

RENDER_INTERVAL: Final = 1 / 30
"""Seconds between two renderings of a live display."""


class Renderer(Protocol):
    """What shows a state. It takes the finished items (``state.take_finished()``), so one per sink."""

    @property
    def live(self) -> bool:
        """Whether it shows open blocks; if not it is only asked when something is finished."""
        ...

    def render(self, state: UIState, parent: str | None = None) -> None:
        """Show what is new in ``state``; ``parent`` is the tool use that a sub-agent answers."""
        ...

    def close(self) -> None:
        """Nothing more comes: leave the display in order. Idempotent."""
        ...


class Timers(Protocol):
    """The part of an event loop that rendering needs."""

    def time(self) -> float:
        """Monotonic seconds."""
        ...

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Any:
        """Call back in ``delay`` seconds; the handle has ``cancel()``."""
        ...


class UISink(SinkBase):
    """Shows a run. Policy ``direct``: it never makes the source wait.

    A live renderer is asked at most once per ``interval``; another one whenever something is finished.
    :meth:`on_completed`, :meth:`on_error`, :meth:`drain` and :meth:`aclose` render the rest at once. A
    renderer that raised (a broken pipe), also in a timer, isn't asked again: each later call raises the
    same error, ``aclose`` only if nobody was told yet. A sub-agent's batches (``key.parent_tool_use_id``)
    have a state of their own.

    Args:
        renderer: shows the states; None: there is only :attr:`state`, for front ends that take snapshots.
        keep: keep what was finished after it was shown. Without it and without a renderer, finished items
            are let go at once.
        interval: seconds between two renderings of a live renderer.
        timers: a loop; default the one that runs at the first batch. Without any, nothing is rendered
            between batches.

    Attributes:
        state: of the main stream.
        states: of sub-agents, by the tool use they answer.
    """

    name = "ui"

    def __init__(
        self,
        renderer: Renderer | None = None,
        *,
        keep: bool = False,
        interval: float = RENDER_INTERVAL,
        timers: Timers | None = None,
    ) -> None:
        self.state = UIState(keep=keep)
        self.states: dict[str, UIState] = {}
        self.renders = 0
        self.batches = 0
        self._keep = keep
        self._renderer = renderer
        self._live = renderer is not None and renderer.live
        self._interval = interval
        self._timers = timers
        self._timer: Any = None
        self._due: float | None = None  # the next rendering isn't before
        self._dirty: dict[str | None, None] = {}  # an ordered set: None is the main stream
        self._error: Exception | None = None
        self._told = False
        self._closed = False

    # -- the stream ----------------------------------------------------------------------------------

    def on_next(self, batch: Sequence[Any], /) -> None:
        """Take one batch; O(1) an item.

        Raises:
            Exception: what the renderer raised, now or before.
        """
        if self._closed:
            return
        self.batches += 1
        state = self.state
        parent: str | None = None
        carrier: Any = batch
        if (
            carrier.__class__ is Batch
            and carrier.plain
            and self._renderer is None
            and carrier.key is None
            and state.takes_one(carrier.items)
        ):
            return
        if carrier.__class__ is Batch:
            key: StreamKey | None = carrier.key
            if key is not None and key.parent_tool_use_id is not None:
                state = self._state_of(key.parent_tool_use_id)
                parent = key.parent_tool_use_id
            items = carrier.items
            if items.__class__ is AnswerItems and not state.answering:
                state.take_whole(items.whole, carrier.at, shown=self._keep or self._renderer is not None)
            else:
                state.apply(items, carrier.at)
            if carrier.plain and self._renderer is None:
                return  # nothing was finished
        else:
            state.apply(batch)
        if self._renderer is None:
            if not self._keep:
                state.discard_finished()
            return
        if self._error is not None:
            self._raise()
        if self._timer is not None:
            self._dirty[parent] = None
        elif self._live or state.has_finished:
            self._dirty[parent] = None
            self._ask()

    def on_error(self, error: Exception, /) -> None:
        """The run broke: the error is shown unless the failure of its answer just was."""
        if self._closed:
            return
        for state in self.states.values():
            state.end()
        self.state.fail(error)
        self._flush()

    def on_completed(self) -> None:
        """The run is complete; an answer still open is marked incomplete."""
        if self._closed:
            return
        for state in (self.state, *self.states.values()):
            state.end()
        self._flush()

    async def drain(self) -> None:
        """Render what isn't shown yet, at once."""
        if not self._closed:
            self._flush()

    async def aclose(self) -> None:
        """Render the rest and close the renderer; nothing that comes later is taken. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._error is None or not self._told:
            self._flush()
        if self._renderer is not None and self._error is None:
            self._renderer.close()

    def statistics(self) -> Mapping[str, Any]:
        """Counters of the main stream's state and of rendering."""
        state = self.state
        return {
            "batches": self.batches,
            "renders": self.renders,
            "finished_items": state.finished,
            "retracted": state.retracted,
            "duplicates": state.duplicates,
            "blocks_opened": state.blocks_opened,
            "blocks_closed": state.blocks_closed,
            "notes": state.notes,
            "streamed_length": state.streamed_length,
            # The word may hold what a server said; lone surrogates are no JSON.
            "outcome": scrub_text(state.outcome) if state.outcome is not None else None,
        }

    def _state_of(self, parent: str) -> UIState:
        state = self.states.get(parent)
        if state is None:
            state = self.states[parent] = UIState(keep=self._keep)
        return state

    # -- rendering -----------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Render now, or when the interval is over; only a live display waits."""
        timers = self._timers
        if not self._live:
            self._render()
            return
        if timers is None:
            try:
                timers = self._timers = asyncio.get_running_loop()
            except RuntimeError:
                # No loop, no time: a live display is shown at its ends only, the rest when finished.
                if any(state.has_finished for state in (self.state, *self.states.values())):
                    self._render()
                return
        now = timers.time()
        if self._due is None or now >= self._due:
            self._render()
            self._due = now + self._interval
        else:
            self._timer = timers.call_later(self._due - now, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        timers = self._timers
        if timers is not None:
            self._due = timers.time() + self._interval
        try:
            self._render()
        except Exception:  # noqa: BLE001
            # Not the loop's business: the next call raises it, so that the run hears of it.
            self._told = False

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._error is not None:
            self._raise()
        self._dirty |= dict.fromkeys((None, *self.states))
        self._render()

    def _render(self) -> None:
        renderer = self._renderer
        if renderer is None:
            return
        self.renders += 1
        dirty, self._dirty = self._dirty, {}
        try:
            for parent in dirty:
                renderer.render(self.state if parent is None else self.states[parent], parent)
        except Exception as error:
            self._error = error
            self._told = True
            raise

    def _raise(self) -> None:
        error = self._error
        assert error is not None
        self._told = True
        raise error
