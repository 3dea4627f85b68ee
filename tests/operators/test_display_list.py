"""The rules of the displayed list (WIRE.md §5, list)."""

from __future__ import annotations

from typing import Any

import pytest
from displaying import boundary, in_batches, progress, result, same, say, system, use, user

from turnstream.messages import (
    OpaqueRecord,
    RequestStart,
    ResponseFailed,
    Resync,
    StreamNote,
    Tombstone,
    ToolUseSummary,
    event_from_wire,
)
from turnstream.operators.display import DisplayList, display_list


def tick(ident: str, kind: str = "bash_progress", parent: str = "t") -> Any:
    return progress(ident, kind, parent, ident)


def shown(items: list[Any], **options: Any) -> list[str]:
    return [item.uuid for item in display_list(items, **options)]


def test_messages_are_appended() -> None:
    items = [
        user("x", "1"),
        say("y"),
        use("t"),
        result("t"),
        system(),
        ResponseFailed(error={}),
        OpaqueRecord(type=None),
    ]
    assert same(display_list(items), items)


def test_process_items_arent_listed() -> None:
    items = [
        event_from_wire({"type": "ping"}),
        RequestStart(),
        StreamNote(kind="k", message="m"),
        Resync(),
        ToolUseSummary(summary="s", uuid="u", timestamp="t"),
    ]
    assert display_list(items) == []


@pytest.mark.parametrize("kind", ["sleep_progress", "bash_progress", "mcp_progress"])
def test_a_tick_replaces_the_last_item_of_its_kind_and_parent(kind: str) -> None:
    assert shown([say("x"), *(tick(f"{n}", kind) for n in range(13_000))]) == ["say-x", "12999"]


@pytest.mark.parametrize("kind", ["agent_progress", "hook_progress", "skill_progress", "new_progress"])
def test_other_progress_is_appended(kind: str) -> None:
    assert shown([tick("1", kind), tick("2", kind)]) == ["1", "2"]


def test_a_tick_of_another_kind_or_parent_is_appended() -> None:
    ticks = [tick("1"), tick("2", parent="other"), tick("3"), tick("4", "mcp_progress"), tick("5", "mcp_progress")]
    assert shown(ticks) == ["1", "2", "3", "5"]


def test_only_the_last_item_is_replaced() -> None:
    assert shown([tick("1"), say("x"), tick("2"), tick("3")]) == ["1", "say-x", "3"]


def test_a_tombstone_removes_its_message() -> None:
    gone = say("gone")
    assert shown([say("x"), gone, say("y"), Tombstone(message=gone)]) == ["say-x", "say-y"]
    assert shown([gone, Tombstone(message={"uuid": "say-gone"})]) == []
    assert shown([say("x"), Tombstone(message=gone)]) == ["say-x"]


def test_behind_a_removed_message_the_last_item_is_the_one_before() -> None:
    gone = say("gone")
    assert shown([tick("1"), gone, Tombstone(message=gone), tick("2")]) == ["2"]


def test_a_replaced_tick_is_gone_for_tombstones_too() -> None:
    assert shown([tick("1"), tick("2"), Tombstone(message={"uuid": "1"})]) == ["2"]
    assert shown([tick("1"), tick("2"), Tombstone(message={"uuid": "2"})]) == []


def test_a_boundary_resets_the_list() -> None:
    rest = [boundary("b1"), user("summary", "s1"), say("y")]
    assert shown([say("x"), tick("1"), *rest]) == ["b1", "s1", "say-y"]
    assert shown([say("x"), *rest, boundary("b2"), user("summary", "s2")]) == ["b2", "s2"]


def test_full_screen_keeps_one_interval_before_the_boundary() -> None:
    items = [say("x"), boundary("b1"), say("y"), boundary("b2"), say("z"), boundary("b3"), say("w")]
    assert shown(items[:3], full_screen=True) == ["say-x", "b1", "say-y"]
    assert shown(items[:4], full_screen=True) == ["b1", "say-y", "b2"]
    assert shown(items, full_screen=True) == ["b2", "say-z", "b3", "say-w"]


def test_a_boundary_renews_the_conversation() -> None:
    listed = DisplayList()
    assert listed.conversation is None
    listed.apply([say("x"), boundary("b1")])
    assert listed.conversation == "b1"
    listed.apply([boundary("b2")])
    assert listed.conversation == "b2"
    listed.apply([boundary("")])
    assert listed.conversation not in {"b1", "b2", "", None}


def test_what_comes_twice_is_listed_once() -> None:
    assert shown([say("x"), say("y"), say("x"), boundary("b"), boundary("b")]) == ["b"]
    assert shown([say("x"), say("y"), say("x")]) == ["say-x", "say-y"]


def test_the_operator_gives_the_list_at_the_end() -> None:
    items = [say("x"), tick("1"), tick("2"), boundary("b"), say("y"), tick("3"), tick("4")]
    for places in ([], [2], list(range(8))):
        assert same(in_batches(items, places, display_list()), display_list(items))
        assert same(in_batches(items, places, display_list(full_screen=True)), display_list(items, full_screen=True))
