"""``collapse_reads`` and ``uncollapse``, and the whole chain ``for_display`` (WIRE.md §5)."""

from __future__ import annotations

from typing import Any

import pytest
from displaying import (
    NOW,
    answers,
    assistant,
    calls,
    hook,
    in_batches,
    other,
    progress,
    result,
    running,
    same,
    say,
    system,
    text,
    thinks,
    uid,
    use,
    user,
)

from turnstream.messages import CollapsedReadSearch, GroupedToolUse, RequestStart, encode, event_from_wire
from turnstream.messages.jsonvalue import loads
from turnstream.operators import run_batches
from turnstream.operators.display import (
    collapse_reads,
    display_list,
    for_display,
    group_tool_uses,
    uncollapse,
    ungroup,
)


def read(tool: str, path: str = "/f", answer: str = "msg_1") -> Any:
    return use(tool, "Read", answer, file_path=path)


def grep(tool: str, answer: str = "msg_1") -> Any:
    return use(tool, "Grep", answer, pattern="x", path="/src")


def test_a_run_between_texts() -> None:
    run = [read("a", "/f"), result("a"), grep("b"), result("b"), read("c", "/g"), result("c"), read("d", "/f")]
    items = [say("x"), *run, say("y")]
    before, collapsed, after = collapse_reads(items)
    assert same([before, after], [items[0], items[-1]])
    assert isinstance(collapsed, CollapsedReadSearch)
    assert (collapsed.read_count, collapsed.search_count) == (3, 1)
    assert collapsed.files == ["/f", "/g"]
    assert same(collapsed.messages, run)
    assert collapsed.uuid == other("collapsed/use-a/0")
    assert collapsed.timestamp == NOW
    assert same(uncollapse([before, collapsed, after]), items)


def test_a_run_goes_over_answers() -> None:
    items = [read("a"), result("a"), RequestStart(), grep("b", "msg_2"), result("b")]
    start, collapsed = collapse_reads(items)
    assert start is items[2]
    assert (collapsed.read_count, collapsed.search_count) == (1, 1)


def test_what_belongs_to_the_runs_tools_is_in_it() -> None:
    items = [
        read("a"),
        running("a", "PreToolUse"),
        result("a"),
        hook("a", "PostToolUse"),
        progress("x", "mcp_progress", "a"),
        thinks_between := assistant(thinks("hm"), ident="t"),
        read("b"),
        result("b"),
    ]
    (collapsed,) = collapse_reads(items)
    assert same(collapsed.messages, items)
    assert thinks_between in collapsed.messages


def test_thinking_behind_the_last_tool_stays_outside() -> None:
    thought, words = assistant(thinks("hm"), ident="t"), say("x")
    out = collapse_reads([thought, read("a"), read("b"), thought, thought, words])
    assert same([out[0], *out[2:]], [thought, thought, thought, words])


def test_groups_of_such_tools_count_their_uses() -> None:
    items = [read("a", "/f"), result("a"), read("b", "/g"), result("b"), grep("c"), result("c")]
    grouped = group_tool_uses(items)
    (collapsed,) = collapse_reads(grouped)
    assert (collapsed.read_count, collapsed.search_count, collapsed.files) == (2, 1, ["/f", "/g"])
    assert isinstance(collapsed.messages[0], GroupedToolUse)
    assert same(ungroup(uncollapse([collapsed])), items)


@pytest.mark.parametrize(
    "between",
    [
        say("x"),
        user("words"),
        use("z", "Bash", command="cat f"),
        result("other"),
        system(),
        hook("other", "PostToolUse"),
        assistant(calls("p", "Read"), calls("q", "Read")),
        assistant(),
    ],
    ids=["text", "user", "another tool", "another's result", "notice", "another's hook", "not split", "empty"],
)
def test_everything_else_ends_a_run(between: Any) -> None:
    out = collapse_reads([read("a"), read("b"), between, read("c"), grep("d")])
    assert [type(item).__name__ for item in out] == [
        "CollapsedReadSearch",
        type(between).__name__,
        "CollapsedReadSearch",
    ]
    assert out[1] is between


def test_the_next_run_starts_from_nothing() -> None:
    late = result("a")
    out = collapse_reads([read("a", "/f"), grep("b"), say("x"), read("c", "/g"), read("d", "/h"), late, read("e")])
    assert (out[2].read_count, out[2].search_count, out[2].files) == (2, 0, ["/g", "/h"])
    assert out[3] is late
    assert len(out) == 5


def test_a_single_use_is_shown_as_it_is_unless_asked() -> None:
    items = [say("x"), read("a"), result("a"), say("y")]
    assert same(collapse_reads(items), items)
    assert [getattr(item, "read_count", None) for item in collapse_reads(items, minimum=1)] == [None, 1, None]


def test_which_tools_read_is_the_callers_to_say() -> None:
    def classify(name: str, given: Any) -> Any:
        return "read" if name == "Bash" and given.get("command", "").startswith("cat ") else None

    items = [use("a", "Bash", command="cat f"), use("b", "Bash", command="cat g"), use("c", "Bash", command="rm g")]
    out = collapse_reads(items, classify=classify)
    assert (out[0].read_count, out[0].files) == (2, [])
    assert out[1] is items[2]
    assert same(collapse_reads(items), items)


@pytest.mark.parametrize("given", [None, "x", [], {"file_path": 3}, {"file_path": None, "path": ["/f"]}])
def test_inputs_of_another_kind_count_without_a_file(given: Any) -> None:
    items = [read("a"), read("b")]
    for item in items:
        item.message["content"][0]["input"] = given
    (collapsed,) = collapse_reads(items)
    assert (collapsed.read_count, collapsed.files) == (2, [])


def test_stream_events_pass_at_once() -> None:
    ping = event_from_wire({"type": "ping"})
    out = collapse_reads([read("a"), ping, read("b")])
    assert out[0] is ping
    assert len(out) == 2


def test_collapsing_again_changes_nothing() -> None:
    once = collapse_reads([read("a"), grep("b"), assistant(thinks("hm")), say("x"), read("c"), read("d")])
    assert same(collapse_reads(once), once)


def test_an_operator_says_what_the_list_function_says() -> None:
    items = [say("x"), read("a"), result("a"), assistant(thinks("h")), grep("b"), assistant(thinks("i")), say("y")]
    for places in ([], [2], [2, 3, 6], list(range(9))):
        assert in_batches(items, places, collapse_reads()) == collapse_reads(items)


def test_a_source_that_breaks_still_says_what_was_held() -> None:
    out = [item for batch in run_batches([[read("a"), grep("b")]], collapse_reads(), error=OSError()) for item in batch]
    assert [type(item).__name__ for item in out] == ["CollapsedReadSearch"]


# -- the chain ---------------------------------------------------------------------------------------------


def conversation() -> list[Any]:
    return [
        user("what does it do?", uid("1")),
        assistant(
            thinks("look"),
            text("I'll look."),
            calls("a", "Read", file_path="/f"),
            calls("b", "Read", file_path="/g"),
            calls("c", "Grep", pattern="x"),
            ident=uid("2"),
        ),
        hook("a", "PostToolUse"),
        user([answers("c"), answers("b"), answers("a")], uid("3")),
        assistant(text("It does nothing."), ident=uid("4"), answer="msg_2"),
    ]


def test_for_display_splits_reorders_groups_and_collapses() -> None:
    out = for_display(conversation())
    assert [loads(encode(item))["type"] for item in out] == [
        "user",
        "assistant",
        "assistant",
        "collapsed_read_search",
        "assistant",
    ]
    collapsed = out[3]
    assert (collapsed.read_count, collapsed.search_count, collapsed.files) == (2, 1, ["/f", "/g"])
    # The hook's output stands between the two reads, so they are no group.
    kinds = [type(item).__name__ for item in collapsed.messages]
    assert kinds == [
        "AssistantMessage",
        "UserMessage",
        "AttachmentMessage",
        "AssistantMessage",
        "UserMessage",
        "AssistantMessage",
        "UserMessage",
    ]


def test_for_display_as_an_operator() -> None:
    items = conversation()
    for places in ([], [1, 3], list(range(6))):
        assert in_batches(items, places, for_display()) == for_display(items)


def test_for_display_of_what_stands_in_the_list() -> None:
    ticks = [progress(None, "bash_progress", "z", f"t{n}") for n in range(3)]
    items = [*conversation(), *ticks]
    assert [item.uuid for item in for_display(display_list(items))][-2:] == [f"{uid('4')[:24]}{0:012x}", "t2"]
