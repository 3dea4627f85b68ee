"""What must hold of any conversation on its way to the display, whatever its ids, blocks and order."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from displaying import (
    answers,
    assistant,
    boundary,
    calls,
    cut,
    hook,
    in_batches,
    part,
    progress,
    result,
    running,
    same,
    say,
    system,
    text,
    thinks,
    use,
    user,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstream.messages import (
    AssistantMessage,
    AttachmentMessage,
    CollapsedReadSearch,
    GroupedToolUse,
    ProgressMessage,
    RequestStart,
    Tombstone,
    UserMessage,
    seeded_ids,
)
from turnstream.operators.display import (
    collapse_reads,
    display_list,
    for_display,
    group_tool_uses,
    reorder_tool_groups,
    split_blocks,
    uncollapse,
    ungroup,
)
from turnstream.sinks.ui import UIState

CUTS = st.lists(st.integers(0, 60), max_size=8)
TOOLS = st.sampled_from(["t1", "t2", "t3"])
NAMES = st.sampled_from(["Read", "Read", "Grep", "Bash"])
ANSWERS = st.sampled_from(["msg_1", "msg_1", "msg_2", None])
EVENTS = st.sampled_from(["PreToolUse", "PostToolUse", "PostToolUse", "Stop"])

# -- splitting ---------------------------------------------------------------------------------------------

BLOCKS = st.lists(st.sampled_from([text("x"), text("y"), thinks("x"), calls("t1"), answers("t1")]), max_size=4)
CONTENTS = st.one_of(BLOCKS, BLOCKS, st.sampled_from(["", "words", None]))
KINDS = st.sampled_from(["user", "user", "assistant", "assistant", "system", "progress", "attachment"])

_make = seeded_ids(5)
RANDOM_IDS = [_make() for _ in range(40)]
SEQUENTIAL_IDS = [f"00000000-0000-4000-8000-{n:012x}" for n in range(40)]
PLAIN_IDS = [f"msg-{n}" for n in range(40)]
# Parts of one parent, and parents that differ in their last twelve digits only.
RELATED_IDS = [part(RANDOM_IDS[0], n) for n in range(10)] + [f"{RANDOM_IDS[0][:35]}{n:x}" for n in range(16)]


def message(kind: str, content: Any, ident: str, answer: str | None = "msg_1") -> Any:
    if kind == "user":
        return user(content, ident)
    if kind == "assistant":
        made = assistant(ident=ident, answer=answer)
        made.message["content"] = content
        return made
    if kind == "system":
        return system(ident=ident)
    if kind == "progress":
        return progress("t1", "bash_progress", "t1", ident)
    return AttachmentMessage(attachment={"type": "memory"}, uuid=ident, timestamp="")


def unique(pool: list[str], ordered: bool = False) -> st.SearchStrategy[list[Any]]:
    """Messages whose ids are different ones of ``pool``."""
    pool = list(dict.fromkeys(pool))
    chosen = st.lists(st.sampled_from(range(len(pool))), unique=True, max_size=12)
    return chosen.map(sorted if ordered else list).flatmap(
        lambda places: st.tuples(
            *(st.builds(message, KINDS, CONTENTS, st.just(pool[place]), ANSWERS) for place in places)
        ).map(list)
    )


MIXED = unique([*RANDOM_IDS[:10], *SEQUENTIAL_IDS[:10], *PLAIN_IDS[:5], *RELATED_IDS])
CONVERSATIONS = st.one_of(unique(RANDOM_IDS), unique(SEQUENTIAL_IDS), unique(PLAIN_IDS), unique(RELATED_IDS), MIXED)
# The same id may come again, and there may be none.
ANY_IDS = st.lists(
    st.builds(message, KINDS, CONTENTS, st.sampled_from(["", *RELATED_IDS[:4], *SEQUENTIAL_IDS[:4], "m"]), ANSWERS),
    max_size=12,
)


def ids(items: Sequence[Any]) -> list[str]:
    return [item.uuid for item in items]


def content_of(items: Sequence[Any]) -> list[Any]:
    """Every block, in order, as WIRE.md §5 has it: a string is a text block."""
    out: list[Any] = []
    for item in items:
        if isinstance(item, (UserMessage, AssistantMessage)):
            content = item.message["content"]
            out.extend([text(content)] if isinstance(content, str) else content or [])
        else:
            out.append(item.attachment if isinstance(item, AttachmentMessage) else type(item))
    return out


@given(CONVERSATIONS)
def test_ids_of_parts_are_unique(items: list[Any]) -> None:
    made = ids(split_blocks(items))
    assert len(set(made)) == len(made)


@given(CONVERSATIONS, CONVERSATIONS)
def test_ids_of_a_list_that_was_split_in_part_are_unique(items: list[Any], more: list[Any]) -> None:
    """What was split before goes on with new messages; a compacted list begins with several blocks."""
    split = split_blocks(items)
    known = set(ids(split)) | set(ids(items))
    made = ids(split_blocks([*(m for m in more if m.uuid not in known), *split]))
    assert len(set(made)) == len(made)
    made = ids(split_blocks([*split, *(m for m in more if m.uuid not in known)]))
    assert len(set(made)) == len(made)


@given(st.one_of(unique(RANDOM_IDS), unique(SEQUENTIAL_IDS, ordered=True), unique(PLAIN_IDS)))
def test_other_types_keep_their_uuid(items: list[Any]) -> None:
    out = split_blocks(items)
    others = [item for item in items if not isinstance(item, (UserMessage, AssistantMessage))]
    assert same([item for item in out if not isinstance(item, (UserMessage, AssistantMessage))], others)


@given(unique(RANDOM_IDS))
def test_ids_are_derived_by_the_rule(items: list[Any]) -> None:
    """Random ids never collide, so the rule of WIRE.md §5 is the whole truth about them."""
    wanted: list[str] = []
    deriving = False
    for item in items:
        if not isinstance(item, (UserMessage, AssistantMessage)):
            wanted.append(item.uuid)
            continue
        content = item.message["content"]
        count = len(content) if isinstance(content, list) else 1
        deriving = deriving or count > 1
        wanted += [part(item.uuid, n) for n in range(max(count, 1))] if deriving else [item.uuid]
    assert ids(split_blocks(items)) == wanted


@given(st.one_of(CONVERSATIONS, ANY_IDS), CUTS)
def test_splitting_loses_nothing_and_is_the_same_in_batches(items: list[Any], places: list[int]) -> None:
    out = split_blocks(items)
    assert content_of(out) == content_of(items)
    assert all(
        len(item.message["content"] or []) <= 1 for item in out if isinstance(item, (UserMessage, AssistantMessage))
    )
    assert in_batches(items, places, split_blocks()) == out == split_blocks(items)
    assert same(split_blocks(out), out)


@given(ANY_IDS)
def test_parts_of_messages_with_the_same_id_are_told_apart(items: list[Any]) -> None:
    """From the first message with several blocks on; before it ids stay, whatever they are."""
    sizes = [len(m.message["content"] or []) if isinstance(m, (UserMessage, AssistantMessage)) else 1 for m in items]
    first = next(
        (n for n, size in enumerate(sizes) if size > 1 and items[n].message["content"].__class__ is list), None
    )
    if first is None:
        return
    out = split_blocks(items)
    parts = [m.uuid for m in out[first:] if isinstance(m, (UserMessage, AssistantMessage))]
    assert len(set(parts)) == len(parts)


@given(unique(RANDOM_IDS).filter(bool), st.integers(0, 11))
def test_a_tombstone_removes_the_same_before_splitting_and_behind_it(items: list[Any], which: int) -> None:
    stream = [*items, Tombstone(message=items[which % len(items)])]
    assert content_of(display_list(split_blocks(stream))) == content_of(display_list(stream))


# -- tool groups -------------------------------------------------------------------------------------------

PIECES = st.one_of(
    st.builds(use, TOOLS, NAMES, ANSWERS),
    st.builds(use, TOOLS, NAMES, ANSWERS),
    st.builds(result, TOOLS),
    st.builds(result, TOOLS),
    st.builds(hook, TOOLS, EVENTS),
    st.builds(running, TOOLS, EVENTS),
    st.builds(progress, st.just("p"), st.sampled_from(["bash_progress", "agent_progress"]), TOOLS),
    st.builds(say, st.sampled_from(["x", "y"]), st.sampled_from(["msg_1", "msg_2"])),
    st.builds(lambda words: assistant(thinks(words), ident="think"), st.just("hm")),
    st.builds(user, st.just([text("words")])),
    st.builds(system),
    st.builds(RequestStart),
    st.builds(boundary, st.just("b")),
)
LISTS = st.lists(PIECES, max_size=25)
# Without what passes at once: it stands before a group that it stood in.
SHOWN = st.lists(PIECES.filter(lambda item: not isinstance(item, RequestStart)), max_size=25)


def tool_of(item: Any) -> tuple[str, str] | None:
    """What an item is to which tool, written apart from the code: ``(role, id)``."""
    if isinstance(item, AssistantMessage) and item.message["content"][0]["type"] == "tool_use":
        return "0 use", item.message["content"][0]["id"]
    if isinstance(item, UserMessage) and item.message["content"][0]["type"] == "tool_result":
        return "2 result", item.message["content"][0]["tool_use_id"]
    if isinstance(item, AttachmentMessage):
        event, tool = item.attachment["hookEvent"], item.attachment["toolUseID"]
    elif isinstance(item, ProgressMessage) and item.data["type"] == "hook_progress":
        event, tool = item.data["hookEvent"], item.tool_use_id
    else:
        return None
    role = {"PreToolUse": "1 pre", "PostToolUse": "3 post"}.get(event)
    return None if role is None else (role, str(tool))


def reordered(items: list[Any]) -> list[Any]:
    """The rule as it is said, quadratic: each item to its use, in the order of roles, else where it is."""
    home: dict[int, int] = {}
    for at, item in enumerate(items):
        of = tool_of(item)
        if of is None or of[0] == "0 use":
            continue
        uses = [n for n, other in enumerate(items) if tool_of(other) == ("0 use", of[1])]
        before = [n for n in uses if n < at]
        if uses:
            home[at] = before[-1] if before else uses[0]

    def key(at: int) -> tuple[int, str, int]:
        role = (tool_of(items[at]) or ("", ""))[0]
        return (home.get(at, at), role if at in home else "", at)

    return [items[at] for at in sorted(range(len(items)), key=key)]


@given(LISTS)
def test_reordering_does_what_is_said(items: list[Any]) -> None:
    out = reorder_tool_groups(items)
    assert same(out, reordered(items))
    assert same(reorder_tool_groups(out), out)


@given(LISTS, CUTS, st.booleans())
def test_reordering_keeps_every_item_and_is_the_same_in_batches(
    items: list[Any], places: list[int], within: bool
) -> None:
    out = reorder_tool_groups(items, within_answer=within)
    assert Counter(map(id, out)) == Counter(map(id, items))
    assert same(in_batches(items, places, reorder_tool_groups(within_answer=within)), out)
    assert same(reorder_tool_groups(out, within_answer=within), out)


@given(SHOWN, st.booleans(), CUTS)
def test_groups_come_apart_as_they_were(items: list[Any], reorder: bool, places: list[int]) -> None:
    before = reorder_tool_groups(items) if reorder else items
    out = group_tool_uses(before)
    assert same(ungroup(out), before)
    assert in_batches(before, places, group_tool_uses()) == out
    assert same(group_tool_uses(out), out)
    for group in out:
        if isinstance(group, GroupedToolUse):
            assert len(group.messages) > 1
            assert {m.message["content"][0]["name"] for m in group.messages} == {group.tool_name}
            assert len({m.message["id"] for m in group.messages}) == 1
            tools = {m.message["content"][0]["id"] for m in group.messages}
            assert {r.message["content"][0]["tool_use_id"] for r in group.results} <= tools


@given(SHOWN, st.booleans(), CUTS, st.integers(1, 3))
def test_collapsed_runs_come_apart_as_they_were(
    items: list[Any], grouped: bool, places: list[int], minimum: int
) -> None:
    before = reorder_tool_groups(items)
    if grouped:
        before = group_tool_uses(before)
    out = collapse_reads(before, minimum=minimum)
    assert same(uncollapse(out), before)
    assert in_batches(before, places, collapse_reads(minimum=minimum)) == out
    assert same(collapse_reads(out, minimum=minimum), out)
    for run in out:
        if isinstance(run, CollapsedReadSearch):
            uses = [tool_of(m) for m in ungroup(run.messages)]
            assert run.read_count + run.search_count == sum(role[0] == "0 use" for role in uses if role) >= minimum
            assert not any(isinstance(m, AssistantMessage) and m.uuid.startswith("say") for m in run.messages)


@given(SHOWN)
def test_without_collapsing_a_single_read_every_long_run_is_collapsed(items: list[Any]) -> None:
    """Nothing is left to collapse: no two uses that read stand side by side."""
    out = collapse_reads(reorder_tool_groups(items))
    for first, second in pairwise(out):
        names = [
            m.message["content"][0].get("name") if isinstance(m, AssistantMessage) and m.message["content"] else None
            for m in (first, second)
        ]
        assert not (names[0] in {"Read", "Grep"} and names[1] in {"Read", "Grep"})


@given(LISTS, CUTS)
def test_the_whole_chain_is_the_same_in_batches_and_changes_nothing_twice(items: list[Any], places: list[int]) -> None:
    out = for_display(items)
    assert in_batches(items, places, for_display()) == out
    assert same(for_display(out), out)
    assert Counter(map(id, ungroup(uncollapse(out)))) == Counter(map(id, items))


# -- the list ----------------------------------------------------------------------------------------------

IDENTS = st.sampled_from(["1", "2", "3", "4", ""])
LISTED = st.lists(
    st.one_of(
        st.builds(lambda ident: say("x", ident=ident), IDENTS),
        st.builds(lambda ident: user("x", ident), IDENTS),
        st.builds(
            progress,
            st.just("t"),
            st.sampled_from(["bash_progress", "bash_progress", "mcp_progress", "agent_progress"]),
            st.sampled_from(["p", "q"]),
            st.sampled_from(["5", "6", "7", "8", "1", ""]),
        ),
        st.builds(lambda ident: Tombstone(message={"uuid": ident}), st.sampled_from(["1", "2", "3", "5", "b", "9"])),
        st.builds(boundary, st.sampled_from(["b", "c", "d", ""])),
    ),
    max_size=25,
)


@settings(max_examples=300)
@given(LISTED, st.booleans())
def test_the_list_is_that_of_the_ui(items: list[Any], full_screen: bool) -> None:
    """Two implementations of one rule: this one for lists, the sink's with queues and numbers."""
    state = UIState(full_screen=full_screen)
    state.apply(items)
    assert same(display_list(items, full_screen=full_screen), [entry.message for entry in state.snapshot().items])


@given(LISTED, st.booleans(), CUTS)
def test_the_list_is_the_same_in_batches(items: list[Any], full_screen: bool, places: list[int]) -> None:
    batches = cut(items, places)
    assert sum(map(len, batches)) == len(items)
    whole = display_list(items, full_screen=full_screen)
    assert same(in_batches(items, places, display_list(full_screen=full_screen)), whole)


# -- growth ------------------------------------------------------------------------------------------------


def turns(count: int) -> list[Any]:
    """About ``count`` messages: turns with text, three tools at once, hooks, ticks, a boundary now and then."""
    out: list[Any] = []
    number = 0
    while len(out) < count:
        number += 1
        tools = [f"t{number}-{n}" for n in range(3)]
        out.append(user("go on", f"u{number}"))
        out.append(
            assistant(
                text("yes"),
                *(calls(t, "Read", file_path=f"/{t}") for t in tools),
                ident=f"a{number}",
                answer=f"m{number}",
            )
        )
        out.extend(running(t, "PostToolUse") for t in tools)
        out.extend(progress("p", "bash_progress", tools[0], f"p{number}-{n}") for n in range(3))
        out.extend(result(t) for t in reversed(tools))
    return out[:count]


def steps(function: Callable[[list[Any]], Any], items: list[Any]) -> int:
    """How many calls ``function`` makes: work that no clock blurs."""
    calls_made = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls_made
        calls_made += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function(items)
    finally:
        sys.setprofile(before)
    return calls_made


@pytest.mark.parametrize(
    "function",
    [split_blocks, reorder_tool_groups, group_tool_uses, collapse_reads, display_list, for_display],
    ids=lambda function: function.__name__,
)
def test_work_grows_with_the_number_of_messages_only(function: Callable[[list[Any]], Any]) -> None:
    """At most 1.3 times as many calls a message for ten times as many messages."""
    few, many = turns(1_000), turns(10_000)
    if function is not split_blocks:
        few, many = split_blocks(few), split_blocks(many)
    assert steps(function, many) / len(many) <= 1.3 * steps(function, few) / len(few)


def test_the_worst_ids_are_linear_too() -> None:
    """All messages have the same id, none, or sequential ones: each collides with all before it."""
    for make in (lambda n: "same", lambda n: "", lambda n: f"00000000-0000-4000-8000-{n:012x}"):
        few, many = ([user([text("x"), text("y")], make(n)) for n in range(size)] for size in (300, 3_000))
        assert steps(split_blocks, many) / len(many) <= 1.3 * steps(split_blocks, few) / len(few)
