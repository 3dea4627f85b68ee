"""``reorder_tool_groups`` (WIRE.md §5)."""

from __future__ import annotations

import pytest
from displaying import (
    answers,
    boundary,
    hook,
    in_batches,
    progress,
    result,
    running,
    same,
    say,
    system,
    use,
    user,
)

from turnstream.messages import RequestStart, event_from_wire
from turnstream.operators import run_batches
from turnstream.operators.display import reorder_tool_groups


def test_use_pre_hooks_result_post_hooks() -> None:
    a, b = use("a"), use("b")
    result_a, result_b = result("a"), result("b")
    pre_a, pre_b = running("a", "PreToolUse"), hook("b", "PreToolUse")
    post_a, post_b = hook("a", "PostToolUse"), running("b", "PostToolUse")
    out = reorder_tool_groups([a, b, pre_a, pre_b, result_b, result_a, post_b, post_a])
    assert same(out, [a, pre_a, result_a, post_a, b, pre_b, result_b, post_b])


def test_a_hook_that_was_recorded_before_the_result_comes_behind_it() -> None:
    """As in real transcripts: the progress of a post-hook comes before the result's own line."""
    a, post, got = use("a"), running("a", "PostToolUse"), result("a")
    assert same(reorder_tool_groups([a, post, got]), [a, got, post])


@pytest.mark.parametrize(
    "kind", ["hook_success", "hook_system_message", "hook_additional_context", "hook_cancelled", "hook_new_kind"]
)
def test_every_kind_of_hook(kind: str) -> None:
    a, got = use("a"), result("a")
    pre, post = hook("a", "PreToolUse", kind), hook("a", "PostToolUse", kind)
    assert same(reorder_tool_groups([a, post, got, pre]), [a, pre, got, post])


def test_several_hooks_keep_their_order() -> None:
    a, got = use("a"), result("a")
    hooks = [hook("a", "PostToolUse", f"hook_{n}") for n in range(3)]
    assert same(reorder_tool_groups([a, hooks[0], hooks[1], got, hooks[2]]), [a, got, *hooks])


def test_a_failed_tools_hook_is_a_post_hook() -> None:
    a, got, failed = use("a"), result("a"), hook("a", "PostToolUseFailure")
    assert same(reorder_tool_groups([a, failed, got]), [a, got, failed])


def test_hooks_of_other_events_stay_in_place() -> None:
    a, got, stop = use("a"), result("a"), hook("a", "Stop")
    assert same(reorder_tool_groups([a, stop, got]), [a, got, stop])
    assert same(reorder_tool_groups([stop, a, got]), [stop, a, got])


def test_attachments_that_are_no_hooks_stay_in_place() -> None:
    a, got, other = use("a"), result("a"), hook("a", "PreToolUse", "memory")
    assert same(reorder_tool_groups([a, got, other]), [a, got, other])


def test_progress_that_is_no_hooks_stays_in_place() -> None:
    a, got, tick = use("a"), result("a"), progress("p", "bash_progress", "a")
    assert same(reorder_tool_groups([a, tick, got]), [a, got, tick])


def test_a_group_without_its_use_stays_in_place() -> None:
    items = [say("x"), result("a"), system(), hook("a", "PreToolUse"), hook("a", "PostToolUse"), say("y")]
    assert same(reorder_tool_groups(items), items)


def test_everything_else_keeps_its_order() -> None:
    a, got = use("a"), result("a")
    note, words, line = system(ident="1"), say("x"), user("hello", "2")
    assert same(reorder_tool_groups([note, a, words, line, got]), [note, a, got, words, line])


def test_a_hook_may_come_as_late_as_it_likes() -> None:
    a, got, late = use("a"), result("a"), hook("a", "PostToolUse")
    words, line = say("x", "msg_2"), user("next", "n")
    assert same(reorder_tool_groups([a, got, words, line, late]), [a, got, late, words, line])


def test_what_came_before_its_use_moves_behind_it() -> None:
    got, a = result("a"), use("a")
    assert same(reorder_tool_groups([got, a]), [a, got])


def test_a_repeated_id_belongs_to_the_nearest_use_before() -> None:
    one, two = use("a"), use("a", answer="msg_2")
    first, second = result("a", "r1"), result("a", "r2")
    words = say("x")
    assert same(reorder_tool_groups([one, words, first, two, second]), [one, first, words, two, second])


def test_a_use_without_a_result() -> None:
    a, b, got = use("a"), use("b"), result("b")
    assert same(reorder_tool_groups([a, b, got]), [a, b, got])


def test_messages_with_several_blocks_stay_where_they_are() -> None:
    several = user([answers("a"), answers("b")], "several")
    items = [use("a"), use("b"), several]
    assert same(reorder_tool_groups(items), items)


@pytest.mark.parametrize("value", [None, 3, "", [], {}])
def test_ids_of_another_kind_are_no_ids(value: object) -> None:
    a, got, tail = use("a"), result("a"), hook("a", "PreToolUse")
    a.message["content"][0]["id"] = value
    got.message["content"][0]["tool_use_id"] = value
    tail.attachment["toolUseID"] = value
    assert same(reorder_tool_groups([a, tail, got]), [a, tail, got])


# -- within an answer --------------------------------------------------------------------------------------


def test_within_answer_lets_go_when_the_next_begins() -> None:
    """The operator says each answer as soon as the next one begins, not at the end."""
    a, b, got_a, got_b = use("a"), use("b"), result("a"), result("b")
    batches = [[a], [b], [got_b], [got_a], [RequestStart()], [say("x", "msg_2")]]
    out = [list(batch) for batch in run_batches(batches, reorder_tool_groups(within_answer=True))]
    assert same(out[0], [a, got_a, b, got_b, batches[4][0]])
    assert same(out[1], batches[5])
    assert len(out) == 2


@pytest.mark.parametrize(
    "next_one",
    [
        say("x", "msg_2"),
        use("b", answer="msg_2"),
        user("a human's words", "h"),
        boundary("b"),
        RequestStart(),
        event_from_wire({"type": "message_start", "message": {"id": "msg_2"}}),
    ],
    ids=lambda item: type(item).__name__,
)
def test_within_answer_what_comes_later_stays_in_place(next_one: object) -> None:
    a, got = use("a"), result("a")
    items = [a, next_one, got]
    assert same(reorder_tool_groups(items, within_answer=True), items)  # type: ignore[arg-type]


def test_within_answer_goes_on_over_what_belongs_to_it() -> None:
    a, got = use("a"), result("a")
    between = [say("x"), system(), user("a reminder", "m", is_meta=True), result("other")]
    assert same(reorder_tool_groups([a, *between, got], within_answer=True), [a, got, *between])


def test_within_answer_stream_events_pass_at_once() -> None:
    a = use("a")
    ping = event_from_wire({"type": "ping"})
    start = event_from_wire({"type": "message_start", "message": {"id": "msg_1"}})
    assert same(reorder_tool_groups([a, ping, start, result("x")], within_answer=True)[:3], [ping, start, a])


def test_an_operator_says_what_the_list_function_says() -> None:
    items = [say("1"), use("a"), use("b"), result("b"), hook("a", "PreToolUse"), result("a"), say("2", "msg_2")]
    for places in ([], [1], [2, 3, 5], list(range(8))):
        assert same(in_batches(items, places, reorder_tool_groups()), reorder_tool_groups(items))
        within = reorder_tool_groups(within_answer=True)
        assert same(in_batches(items, places, within), reorder_tool_groups(items, within_answer=True))


def test_a_source_that_breaks_still_says_what_was_held() -> None:
    a, b, got = use("a"), use("b"), result("a")
    for operator in (reorder_tool_groups(), reorder_tool_groups(within_answer=True)):
        out = [item for batch in run_batches([[a, b, got]], operator, error=OSError()) for item in batch]
        assert same(out, [a, got, b])
