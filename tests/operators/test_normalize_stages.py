"""Stages 1 to 4 together: split by split the same, idempotent, pure, in memory of a turn (WIRE.md §4)."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterator
from typing import Any

import reactivex
from hypothesis import given, settings
from normalizing import (
    SIZES,
    answered,
    attached,
    call,
    contents,
    conversations,
    frozen,
    normalized,
    notice,
    progress,
    result,
    said,
    stages,
    streamed,
    text,
    thought,
    user,
    uuids,
)
from recordings import need

from turnstream.messages import AssistantMessage, Tombstone, UserMessage, decode_line
from turnstream.operators import run_batches
from turnstream.operators.normalize import (
    ConvertContext,
    FilterForAPI,
    MergeTurns,
    ReorderAttachments,
    filter_for_api,
    merge_turns,
    reorder_attachments,
)

MANY = settings(max_examples=400, deadline=None)


@MANY
@given(conversations(), SIZES)
def test_every_split_into_batches_gives_what_the_list_gives(messages: list[Any], sizes: list[int]) -> None:
    assert streamed(messages, sizes, stages()) == normalized(messages)


@MANY
@given(conversations(), SIZES)
def test_each_stage_alone_is_the_same_for_every_split(messages: list[Any], sizes: list[int]) -> None:
    for operator in (filter_for_api(), filter_for_api() | reorder_attachments()):
        assert streamed(messages, sizes, operator) == streamed(messages, [], operator)


@MANY
@given(conversations())
def test_running_it_over_its_own_output_changes_nothing(messages: list[Any]) -> None:
    once = normalized(messages)
    log: list[Any] = []
    twice = normalized(once, log.append)
    assert twice == once
    assert all(new is old for new, old in zip(twice, once, strict=True))
    assert log == []


@MANY
@given(conversations())
def test_what_goes_in_is_never_changed(messages: list[Any]) -> None:
    before = frozen(messages)
    normalized(messages)
    assert messages == before


@MANY
@given(conversations())
def test_what_comes_out_is_users_and_assistants_with_blocks(messages: list[Any]) -> None:
    out = normalized(messages)
    for message in out:
        assert message.__class__ in (UserMessage, AssistantMessage)
        content = message.message["content"]
        assert content
        assert all(isinstance(block, dict) for block in content)
        if message.__class__ is UserMessage:
            kinds = [block.get("type") == "tool_result" for block in content]
            assert kinds == sorted(kinds, reverse=True), "results first, contiguous"
    for left, right in itertools.pairwise(out):
        assert not (left.__class__ is UserMessage and right.__class__ is UserMessage)


@MANY
@given(conversations())
def test_a_log_changes_nothing(messages: list[Any]) -> None:
    log: list[Any] = []
    assert normalized(messages, log.append) == normalized(messages)


def test_a_source_that_breaks_delivers_the_turn_that_was_open() -> None:
    messages = [user("u1", "hi"), said("a1", "m1", text("yes")), attached("x1")]
    out = [item for batch in run_batches([messages], stages(), error=OSError("cut")) for item in batch]
    assert uuids(out) == ["u1", "a1", "x1"]


def test_it_works_as_an_rx_operator() -> None:
    seen: list[Any] = []
    batches = [[user("u1", "hi")], [said("a1", "m1", text("yes"))], [user("u2", "more"), said("a2", "m2", text("so"))]]
    reactivex.from_iterable(batches).pipe(stages()).subscribe(lambda batch: seen.extend(batch))
    assert uuids(seen) == ["u1", "a1", "u2", "a2"]


def test_one_turn_of_everything() -> None:
    """The whole way by hand: a turn with parallel tools, a hook, a notice, a queued command, an API error."""
    messages = [
        user("u1", "look at both"),
        said("a1", "m1", thought("both"), index=0),
        said("a2", "m1", call("t1"), index=1),
        progress("p1"),
        result("r1", "t1", tool_use_result={"stdout": "x"}),
        attached("h1", "hook_additional_context", content=["formatted"], hookName="PostToolUse"),
        said("a3", "m1", call("t2"), index=2),
        said("e1", "err", text("API Error: 529"), model="<synthetic>", is_api_error_message=True),
        result("r2", "t2"),
        attached("q1", "queued_command", prompt="and the third"),
        notice("n1"),
        said("a4", "m2", text("done")),
    ]
    out = normalized(messages)
    assert uuids(out) == ["u1", "a1", "r1", "a4"]
    assert contents(out[:2]) == [[text("look at both")], [thought("both"), call("t1"), call("t2")]]
    turn = out[2].message["content"]
    assert turn[:2] == [answered("t1"), answered("t2")]
    assert [block["type"] for block in turn] == ["tool_result", "tool_result", "text", "text", "text"]
    assert "formatted" in turn[2]["text"]
    assert turn[3] == text("and the third")
    assert "local-command-stdout" in turn[4]["text"]
    assert out[2].timestamp == "time of r1"
    assert out[2].is_meta is None


# -- memory -----------------------------------------------------------------------------------------------


def _long_session(turns: int) -> Iterator[Any]:
    for turn in range(turns):
        yield user(f"u{turn}", f"do {turn}")
        yield attached(f"x{turn}")
        yield said(f"f{turn}", f"f{turn}", text("half"))
        yield Tombstone(message=said(f"f{turn}", f"f{turn}", text("half")))
        for step in range(2):
            name = f"t{turn}.{step}"
            yield said(f"a{name}", f"m{name}", text("looking"), index=0)
            yield said(f"b{name}", f"m{name}", call(name), index=1)
            yield progress(f"p{name}")
            yield result(f"r{name}", name)
        yield notice(f"n{turn}")


def _held(stage: Any) -> int:
    """How many things the stage's containers hold."""
    found = 0
    for name in type(stage).__slots__:
        value = getattr(stage, name)
        if isinstance(value, (list, set, dict)):
            found += len(value)
    return found


def test_each_stage_holds_no_more_than_a_turn_of_100_000_messages() -> None:
    chain = [FilterForAPI(), ReorderAttachments(), ConvertContext(), MergeTurns()]
    most = [0, 0, 0, 0]
    out = fed = 0
    for message in _long_session(7_700):
        fed += 1
        items: Any = [message]
        for number, stage in enumerate(chain):
            items = stage.feed(items)
            most[number] = max(most[number], _held(stage))
        out += len(items)
    assert fed > 100_000
    # Four messages come of a turn: the human with the last result before, two answers, the result between.
    assert out > 7_700 * 4 - 10
    # A turn has 13 messages at most; with its neighbour's first ones.
    assert max(most) <= 20, most


def test_memory_over_100_000_messages_stays_that_of_a_turn() -> None:
    chain = stages().chain()

    def run(turns: int) -> None:
        for message in _long_session(turns):
            chain.feed([message])

    run(100)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        run(7_700)
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # One message is about 1 KB: 100,000 would be 100 MB.
    assert now - before < 200_000
    assert peak - before < 300_000


# -- recorded sessions ------------------------------------------------------------------------------------


def test_recorded_sessions_split_alike_and_stay() -> None:
    folder = need("normalization of recorded sessions") / "transcripts"
    files = sorted(folder.rglob("*.jsonl"))
    assert files
    for path in files:
        messages = [decode_line(line) for line in path.read_bytes().splitlines() if line.strip()]
        before = frozen(messages)
        once = normalized(messages)
        assert streamed(messages, [7] * (len(messages) // 7), stages()) == once, path.name
        assert normalized(once) == once, path.name
        assert messages == before, path.name
        roles = [message.__class__ for message in once]
        assert all(a is not UserMessage or b is not UserMessage for a, b in itertools.pairwise(roles))


def test_no_tool_result_of_a_recorded_session_is_lost() -> None:
    folder = need("tool results of recorded sessions") / "transcripts"
    for path in sorted(folder.rglob("*.jsonl")):
        messages = [decode_line(line) for line in path.read_bytes().splitlines() if line.strip()]
        into = sorted(repr(block) for m in messages if isinstance(m, UserMessage) for block in _results(m))
        came = sorted(repr(block) for m in normalized(messages) if isinstance(m, UserMessage) for block in _results(m))
        assert came == into, path.name


def _results(message: Any) -> list[Any]:
    content = message.message.get("content")
    blocks = content if isinstance(content, list) else []
    return [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_result"]


def test_stages_can_be_used_one_by_one() -> None:
    merged = MergeTurns().feed([user("u1", "a"), user("u2", "b"), said("a1", "m1", text("c"))])
    assert uuids(merged) == ["u1"]
    assert contents(merged) == [[text("a"), text("b")]]
    assert merge_turns().name == "merge_turns"
