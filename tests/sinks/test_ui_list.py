"""The displayed list against WIRE.md §5 (list): ticks, boundaries, tombstones, and letting go."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import frames as f
import pytest
from ui_items import Maker, events, factory, messages_of

from turnstream.messages import ResponseFailed, SystemMessage, Tombstone
from turnstream.sinks.ui import HANDED_OUT_LIMIT, UIState

MAKE = factory(2)


def tick(kind: str, parent: str | None = "toolu_1", **data: Any) -> Any:
    return MAKE.progress("p", parent, {"type": kind, **data})


def boundary() -> SystemMessage:
    return MAKE.system("compact_boundary", "Conversation compacted", compactMetadata={"trigger": "auto"})


def shown(state: UIState) -> list[Any]:
    return messages_of(state.snapshot())


def state_of(*items: Any, **options: bool) -> UIState:
    state = UIState(**options)
    state.apply(items)
    return state


# -- progress --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sleep_progress", "bash_progress", "mcp_progress"])
def test_ticks_replace_the_last_item_of_the_same_kind_and_parent(kind: str) -> None:
    ticks = [tick(kind, n=n) for n in range(13_000)]
    state = state_of(*ticks)
    assert shown(state) == [ticks[-1]]


@pytest.mark.parametrize("kind", ["agent_progress", "hook_progress", "skill_progress", "unheard_of", None])
def test_other_progress_is_appended(kind: str | None) -> None:
    items = [tick(kind), tick(kind)]  # type: ignore[arg-type]
    assert shown(state_of(*items)) == items


def test_progress_without_an_object_is_appended() -> None:
    items = [MAKE.progress("p", "t", "words"), MAKE.progress("p", "t", None)]
    assert shown(state_of(*items)) == items


def test_only_the_last_item_is_replaced() -> None:
    one, other, two = tick("bash_progress"), tick("bash_progress", "toolu_2"), tick("bash_progress")
    assert shown(state_of(one, other, two)) == [one, other, two]
    note = MAKE.system("informational", "x")
    assert shown(state_of(one, note, two)) == [one, note, two]
    assert shown(state_of(one, tick("mcp_progress"), two)) != [two]


def test_a_tick_behind_a_tombstoned_item_is_behind_the_one_before() -> None:
    make = Maker()
    one, message, two = tick("bash_progress"), make.finished(f.text_block("x")), tick("bash_progress")
    state = state_of(one, message, Tombstone(message=message), two)
    assert shown(state) == [two]
    assert shown(state_of(message, one, Tombstone(message=message), two)) == [two]


def test_a_tick_of_one_that_was_handed_out_is_an_update() -> None:
    state = UIState(keep=False)
    state.apply([tick("bash_progress")])
    (first,) = state.take_finished()
    state.apply([tick("bash_progress"), tick("bash_progress", n=2)])
    (second,) = state.take_finished()
    assert (first.update, second.update) == (False, True)
    assert second.number == first.number
    assert second.message.data == {"type": "bash_progress", "n": 2}  # type: ignore[union-attr]
    state.apply([tick("bash_progress", "toolu_2")])
    assert [item.update for item in state.take_finished()] == [False]


# -- boundaries ------------------------------------------------------------------------------------------


def test_a_boundary_resets_the_list_to_itself_and_what_follows() -> None:
    before, mark, behind = MAKE.user("before"), boundary(), MAKE.user("behind")
    state = state_of(before, mark, behind)
    assert shown(state) == [mark, behind]
    assert state.snapshot().conversation == mark.uuid


def test_each_boundary_renews_the_conversation() -> None:
    one, two = boundary(), boundary()
    state = state_of(one)
    first = state.conversation
    state.apply([two])
    assert state.conversation != first
    assert shown(state) == [two]


def test_a_boundary_without_uuid_renews_it_too() -> None:
    marks = [SystemMessage(subtype="compact_boundary", uuid="", timestamp="") for _ in range(2)]
    state = state_of(marks[0])
    first = state.conversation
    state.apply([marks[1]])
    assert first
    assert state.conversation != first


def test_full_screen_keeps_one_interval_before() -> None:
    a, one, b, two, c = MAKE.user("a"), boundary(), MAKE.user("b"), boundary(), MAKE.user("c")
    state = state_of(a, one, full_screen=True)
    assert shown(state) == [a, one]
    state.apply([b, two, c])
    assert shown(state) == [one, b, two, c]


def test_a_microcompact_boundary_resets_nothing() -> None:
    a, mark = MAKE.user("a"), MAKE.system("microcompact_boundary", "Context microcompacted")
    assert shown(state_of(a, mark)) == [a, mark]


@pytest.mark.parametrize("keep", [False, True])
def test_what_was_not_taken_before_a_boundary_is_still_handed_out(keep: bool) -> None:
    """A renderer that only appends must print the same, however items are cut into batches."""
    a, mark, b = MAKE.user("a"), boundary(), MAKE.user("b")
    state = UIState(keep=keep)
    assert state.take_finished() == []
    state.apply([a, mark, b])
    assert shown(state) == [mark, b]
    assert messages_of(state.take_finished()) == [a, mark, b]


def test_what_a_boundary_removed_can_be_shown_again() -> None:
    """Compaction attaches each attachment once again behind the summary (WIRE.md §6)."""
    attached, mark = MAKE.attachment({"type": "memory"}), boundary()
    assert shown(state_of(attached, mark, attached)) == [mark, attached]


def test_a_tombstone_reaches_what_waits_from_before_a_boundary() -> None:
    message, mark = Maker().finished(f.text_block("x")), boundary()
    state = UIState(keep=True)
    assert state.take_finished() == []
    state.apply([message, mark, Tombstone(message=message)])
    assert messages_of(state.take_finished()) == [mark]


# -- tombstones ------------------------------------------------------------------------------------------


def test_a_tombstone_removes_its_message() -> None:
    make = Maker()
    one, two, three = (make.finished(f.text_block(text), n) for n, text in enumerate("abc"))
    state = state_of(one, two, three, Tombstone(message=two))
    assert shown(state) == [one, three]
    assert state.retracted == 1
    state.apply([Tombstone(message={"uuid": one.uuid}), Tombstone(message=three)])
    assert shown(state) == []


def test_a_tombstone_for_what_was_never_shown_changes_nothing() -> None:
    message = Maker().finished(f.text_block("x"))
    state = state_of(Tombstone(message=message), Tombstone(message=None), Tombstone(message={"uuid": 3}))
    assert state.snapshot().items == ()
    assert state.take_finished() == []
    assert state.retracted == 0


def test_a_tombstone_before_the_take_leaves_nothing_to_take() -> None:
    message = Maker().finished(f.text_block("x"))
    state = UIState(keep=False)
    state.apply([message, Tombstone(message=message)])
    assert state.take_finished() == []


@pytest.mark.parametrize("keep", [False, True])
def test_a_tombstone_after_the_take_is_handed_out(keep: bool) -> None:
    message = Maker().finished(f.text_block("x"))
    state = UIState(keep=keep)
    state.apply([message])
    state.take_finished()
    assert not state.has_finished
    tombstone = Tombstone(message=message)
    state.apply([tombstone, Tombstone(message=message)])
    assert [(item.kind, item.message) for item in state.take_finished()] == [("retraction", tombstone)]
    assert shown(state) == [], "a retraction is no item of the displayed list"


def test_handed_out_messages_are_remembered_for_a_while() -> None:
    make = Maker()
    messages = [make.finished(f.text_block("x")) for _ in range(HANDED_OUT_LIMIT + 10)]
    state = UIState(keep=False)
    state.apply(messages)
    state.take_finished()
    state.apply([Tombstone(message=message) for message in messages])
    assert len(state.take_finished()) == HANDED_OUT_LIMIT


# -- letting go ------------------------------------------------------------------------------------------


def test_finished_content_is_let_go_once_taken() -> None:
    """Keeping it breaks the memory bound (DESIGN.md §5)."""

    class Content(list[Any]):
        pass

    message = Maker().finished(f.text_block("x"))
    content = Content()
    message.message["content"] = content
    gone = weakref.ref(content)
    state = UIState(keep=False)
    state.apply([message])
    del message, content
    assert gone() is not None
    state.take_finished()
    gc.collect()
    assert gone() is None


def test_kept_items_are_handed_out_once_and_stay_displayed() -> None:
    one, two = MAKE.user("one"), MAKE.user("two")
    state = state_of(one)
    assert messages_of(state.take_finished()) == [one]
    state.apply([two])
    assert messages_of(state.take_finished()) == [two]
    assert shown(state) == [one, two]


def test_equal_messages_without_uuid_are_both_shown() -> None:
    items = [ResponseFailed(error={"type": "x"}), ResponseFailed(error={"type": "x"})]
    assert shown(state_of(*items)) == items


def test_all_else_is_appended_in_order() -> None:
    make = Maker()
    items = [
        MAKE.user("hi"),
        MAKE.attachment({"type": "memory"}),
        make.finished(f.text_block("x")),
        MAKE.tool_result("toolu_1", "out"),
        MAKE.system("turn_duration", durationMs=1),
    ]
    assert shown(state_of(*events(f.start()), *items)) == items
    assert [item.kind for item in state_of(*items).snapshot().items] == [
        "user",
        "attachment",
        "assistant",
        "user",
        "system",
    ]
