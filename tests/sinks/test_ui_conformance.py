"""The display's sink keeps every promise of a sink (the public conformance kit), and a tee isolates it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from ui_items import Maker, events, messages_of

from turnstream.sinks.ui import PlainRenderer, UISink
from turnstream.tee import Tee
from turnstream.testing import check_sink, run_virtual


def shown(sink: UISink) -> Any:
    """The state at the end: the displayed list, how the last answer ended, what was streamed."""
    snapshot = sink.state.snapshot()
    return (messages_of(snapshot), snapshot.outcome, snapshot.streamed_length, snapshot.blocks)


@pytest.mark.parametrize(
    "factory",
    [
        UISink,
        lambda: UISink(keep=True),
        lambda: UISink(PlainRenderer(io.StringIO())),
        lambda: UISink(PlainRenderer(io.StringIO(), live=True, color=True)),
        lambda: UISink(PlainRenderer(io.StringIO(), live=True), keep=True),
    ],
    ids=["state only", "kept", "plain", "live", "live and kept"],
)
def test_it_keeps_a_sinks_promises(factory: Callable[[], UISink]) -> None:
    run_virtual(check_sink(factory))


def test_what_is_displayed_does_not_depend_on_batches() -> None:
    run_virtual(check_sink(lambda: UISink(keep=True), output=shown))


def test_a_display_that_breaks_does_not_stop_the_others() -> None:
    """FAULTS 83: raising on the third item; the other sink gets everything and the reason is told in-band."""

    class Pipe(io.StringIO):
        def write(self, text: str) -> int:
            if self.tell():
                raise BrokenPipeError("the reader went away")
            return super().write(text)

    make = Maker()
    broken, other = UISink(PlainRenderer(Pipe())), UISink(keep=True)
    other.name = "other"
    tee = Tee([broken, other])
    items = [*make.answer(make.text("a"), make.text("b", index=1), make.text("c", index=2)), *events({"type": "ping"})]
    for item in items:
        tee.on_next([item])
    tee.on_completed()
    assert [block["text"] for m in messages_of(other.state.snapshot()) for block in m.message["content"]] == [*"abc"]
    assert isinstance(tee.errors["ui"].__cause__, BrokenPipeError)
    assert tee.sinks == (other,)
    assert other.state.notes == 1
