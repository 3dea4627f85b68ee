"""``group_tool_uses`` and ``ungroup`` (WIRE.md §5)."""

from __future__ import annotations

from typing import Any

import pytest
from displaying import NOW, assistant, calls, hook, in_batches, other, result, running, same, say, use, user

from turnstream.messages import GroupedToolUse, RequestStart, StreamNote, event_from_wire, from_wire, to_wire
from turnstream.operators.display import group_tool_uses, reorder_tool_groups, ungroup


def test_consecutive_uses_of_one_tool_in_one_answer() -> None:
    a, b, c = use("a", "Read"), use("b", "Read"), use("c", "Read")
    got = [result("a"), result("b"), result("c")]
    words = say("x")
    items = [words, a, got[0], b, got[1], c, got[2]]
    first, grouped = group_tool_uses(items)
    assert first is words
    assert isinstance(grouped, GroupedToolUse)
    assert grouped.tool_name == "Read"
    assert same(grouped.messages, [a, b, c])
    assert same(grouped.results, got)
    assert grouped.timestamp == NOW
    assert same(ungroup([first, grouped]), items)


def test_the_uuid_is_derived_from_the_first_use_and_stays_when_the_group_grows() -> None:
    uses = [use("a"), use("b"), use("c")]
    (short,), (long,) = group_tool_uses(uses[:2]), group_tool_uses(uses)
    assert short.uuid == long.uuid == other("grouped/use-a/0")


def test_a_list_that_wasnt_reordered_comes_apart_as_it_was() -> None:
    items = [use("a"), use("b"), result("b"), result("a")]
    (grouped,) = group_tool_uses(items)
    assert same(grouped.messages, items[:2])
    assert same(grouped.results, items[2:])
    assert same(ungroup([grouped]), items)


def test_a_group_read_from_the_wire_comes_apart_in_order() -> None:
    items = [use("a"), use("b"), result("b"), result("a")]
    (grouped,) = group_tool_uses(items)
    read = from_wire(to_wire(grouped))
    assert ungroup([read]) == reorder_tool_groups(items)


def test_a_foreign_group_loses_nothing() -> None:
    foreign = GroupedToolUse(tool_name="X", messages=[say("x"), use("a")], results=[result("b"), result("a")], uuid="g")
    assert [item.uuid for item in ungroup([foreign])] == ["say-x", "use-a", "result-a", "result-b"]


@pytest.mark.parametrize(
    "items",
    [
        [use("a"), result("a")],
        [use("a", "Read"), use("b", "Grep")],
        [use("a"), use("b", answer="msg_2")],
        [use("a", answer=None), use("b", answer=None)],
        [use("a"), say("x"), use("b")],
        [use("a"), user("words"), use("b")],
        [use("a"), result("other"), use("b")],
        [use("a"), hook("a", "PostToolUse"), use("b")],
        [use("a"), running("a", "PreToolUse"), use("b")],
        [use("a"), RequestStart(), use("b")],
        [use("a"), use("a")],
        [result("a"), result("b")],
        [assistant(calls("a"), calls("b"))],
        [use("a", None), use("b", None)],
        [use("a", ["x"]), use("b", ["x"])],
    ],
    ids=[
        "one use",
        "two tools",
        "two answers",
        "no answer's id",
        "a text between",
        "a user's words between",
        "another's result between",
        "a hook between",
        "a running hook between",
        "a request between",
        "one id twice",
        "results only",
        "not split",
        "no name",
        "an odd name",
    ],
)
def test_what_isnt_grouped(items: list[Any]) -> None:
    assert same(group_tool_uses(items), items)


def test_runs_of_several_tools() -> None:
    items = [use("a", "X"), use("b", "X"), use("c", "Y"), use("d", "Y"), use("e", "X")]
    out = group_tool_uses(items)
    assert [getattr(item, "tool_name", None) for item in out] == ["X", "Y", None]
    assert same(ungroup(out), items)


def test_results_behind_the_run_stay_behind_it() -> None:
    items = [use("a"), use("b"), result("a"), say("x"), result("b")]
    out = group_tool_uses(items)
    assert len(out) == 3
    assert same(out[1:], items[3:])
    assert same(ungroup(out), items)


def test_stream_events_and_notes_pass_at_once_and_end_nothing() -> None:
    a, b = use("a"), use("b")
    stop = event_from_wire({"type": "content_block_stop", "index": 0})
    note = StreamNote(kind="k", message="m")
    out = group_tool_uses([a, stop, note, b])
    assert same(out[:2], [stop, note])
    assert same(out[2].messages, [a, b])


def test_grouping_again_changes_nothing() -> None:
    once = group_tool_uses([use("a"), use("b"), result("a"), say("x"), use("c"), use("d")])
    assert same(group_tool_uses(once), once)


def test_an_operator_says_what_the_list_function_says() -> None:
    items = [say("x"), use("a"), result("a"), use("b"), result("b"), say("y"), use("c"), use("d", "Read")]
    for places in ([], [2], [2, 3, 6], list(range(9))):
        assert in_batches(items, places, group_tool_uses()) == group_tool_uses(items)


def test_the_operator_holds_no_more_than_the_open_run() -> None:
    from turnstream.operators import run_batches

    words, a, b, line = say("x"), use("a"), use("b"), say("y")
    out = [list(batch) for batch in run_batches([[words], [a], [b], [line]], group_tool_uses())]
    assert same(out[0], [words])
    assert [type(item).__name__ for item in out[1]] == ["GroupedToolUse", "AssistantMessage"]
