"""Stage 4, merge (WIRE.md §4.4; FAULTS.md 23 to 25, 28, 37, 58, 62 to 64)."""

from __future__ import annotations

import random
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from normalizing import (
    answered,
    call,
    contents,
    frozen,
    normalized,
    result,
    said,
    text,
    thought,
    user,
    uuids,
)
from recordings import need

from turnstream.messages import AssistantMessage, UserMessage, decode_line, event_from_wire
from turnstream.operators import accumulate, run_stages
from turnstream.operators.normalize import Repair, merge_turns


def merged(*messages: Any, **options: Any) -> list[Any]:
    return run_stages(messages, merge_turns(**options))


# -- users -----------------------------------------------------------------------------------------------------


def test_what_needs_no_change_comes_out_as_it_is() -> None:
    messages = [user("u1", [text("hi")]), said("a1", "m1", text("yes")), result("r1", "t1")]
    assert all(new is old for new, old in zip(merged(*messages), messages, strict=True))


def test_a_string_becomes_a_text_block() -> None:
    message = user("u1", "hi", permission_mode="plan")
    before = frozen([message])
    (out,) = merged(message)
    assert out.message == {"role": "user", "content": [text("hi")]}
    assert (out.uuid, out.timestamp, out.permission_mode) == ("u1", "time of u1", "plan")
    assert [message] == before


@pytest.mark.parametrize(
    "second", ["plain", [text("plain")], ["plain"]], ids=["string", "blocks", "a string in a list"]
)
def test_fault_64_all_consecutive_user_messages_become_one(second: Any) -> None:
    """The row's reproduction: a result message and a plain message; string or list content."""
    out = merged(said("a1", "m1", call("t1")), result("r1", "t1"), user("u1", second), user("u2", "more"))
    assert uuids(out) == ["a1", "r1"]
    assert contents(out)[1] == [answered("t1"), text("plain"), text("more")]


def test_blocks_stay_apart() -> None:
    assert contents(merged(user("u1", "one"), user("u2", "one"))) == [[text("one"), text("one")]]


def test_fault_63_results_stand_in_the_order_of_their_calls() -> None:
    """The row's reproduction: results arriving reversed."""
    out = merged(
        said("a1", "m1", call("t1"), call("t2")),
        said("a2", "m1", call("t3")),
        result("r3", "t3"),
        result("r2", "t2", "t1"),
    )
    assert contents(out)[1] == [answered("t1"), answered("t2"), answered("t3")]
    assert uuids(out) == ["a1", "r3"]


def test_fault_63_the_preceding_answer_is_all_answers_since_the_last_user_turn() -> None:
    """Different answers in a row are one turn for the API."""
    out = merged(said("a1", "m1", call("t1")), said("b1", "m2", call("t2")), result("r1", "t2"), result("r2", "t1"))
    assert uuids(out) == ["a1", "b1", "r1"]
    assert contents(out)[2] == [answered("t1"), answered("t2")]


def test_fault_62_results_come_first_and_contiguous() -> None:
    out = merged(
        said("a1", "m1", call("t1"), call("t2")),
        user("u1", "queued"),
        result("r1", "t1"),
        user("u2", [text("reminder"), answered("t2"), text("after")], is_meta=True),
    )
    assert contents(out)[1] == [answered("t1"), answered("t2"), text("queued"), text("reminder"), text("after")]


def test_fault_62_words_before_a_result_in_one_message() -> None:
    message = user("u1", [text("here"), answered("t1")])
    before = frozen([message])
    assert contents(merged(said("a1", "m1", call("t1")), message))[1] == [answered("t1"), text("here")]
    assert [message] == before


def test_fault_61_results_that_nobody_asked_for_follow_those_that_were() -> None:
    out = merged(said("a1", "m1", call("t1")), result("r1", "t9"), result("r2", "t1"), result("r3", "t8"))
    assert contents(out)[1] == [answered("t1"), answered("t9"), answered("t8")]


def test_an_id_may_come_again_in_a_later_turn() -> None:
    calls = said("a1", "m1", call("t1"), call("t2")), said("b1", "m2", call("t2"), call("t1"))
    out = merged(calls[0], result("r1", "t2", "t1"), calls[1], result("r2", "t1", "t2"))
    assert contents(out)[1] == [answered("t1"), answered("t2")]
    assert contents(out)[3] == [answered("t2"), answered("t1")]


@pytest.mark.parametrize(
    ("metas", "uuid", "meta"),
    [
        ([True, None, None], "u1", None),
        ([None, True, None], "u0", None),
        ([True, True, False], "u2", None),
        ([True, True, True], "u0", True),
    ],
)
def test_uuid_and_time_of_the_first_part_that_is_not_meta(metas: list[Any], uuid: str, meta: Any) -> None:
    (out,) = merged(*(user(f"u{n}", f"part {n}", is_meta=flag) for n, flag in enumerate(metas)))
    assert (out.uuid, out.timestamp) == (uuid, f"time of {uuid}")
    assert bool(out.is_meta) is bool(meta)
    assert contents([out]) == [[text("part 0"), text("part 1"), text("part 2")]]


def test_flags_hold_only_if_they_hold_for_all() -> None:
    summary = user("u1", "summary", is_meta=True, is_compact_summary=True, is_visible_in_transcript_only=True)
    (out,) = merged(summary, user("u2", "go on"))
    assert (out.is_meta, out.is_compact_summary, out.is_visible_in_transcript_only) == (None, None, None)
    (both,) = merged(summary, msgspec.structs.replace(summary, uuid="u3"))
    assert (both.is_meta, both.is_compact_summary, both.is_visible_in_transcript_only) == (True, True, True)


def test_a_tools_own_output_goes_here_too() -> None:
    (out,) = merged(result("r1", "t1", tool_use_result={"stdout": "x"}))
    assert out.tool_use_result is msgspec.UNSET
    (both,) = merged(result("r1", "t1", tool_use_result={"stdout": "x"}), user("u1", "on"))
    assert both.tool_use_result is msgspec.UNSET


@pytest.mark.parametrize("content", [None, "", [], [None], 7, [""], [5, []]])
def test_a_message_without_content_is_left_out_and_parts_nothing(content: Any) -> None:
    log: list[Repair] = []
    empty = said("a2", "m2")
    empty.message["content"] = content
    out = merged(
        user("u1", "one"),
        empty,
        user("u2", content),
        user("u3", "two"),
        said("a1", "m1", text("x")),
        empty,
        said("a3", "m1", text("y")),
        explain=log.append,
    )
    assert contents(out) == [[text("one"), text("two")], [text("x"), text("y")]]
    assert [(repair.stage, repair.uuid) for repair in log] == [("merge", "a2"), ("merge", "u2"), ("merge", "a2")]


def test_what_is_no_block_is_left_out_with_a_word() -> None:
    log: list[Repair] = []
    answer = said("a1", "m1")
    answer.message["content"] = ["words", 5, None, text("more")]
    out = merged(user("u1", [text("hi"), 7, "ho"]), answer, explain=log.append)
    assert contents(out) == [[text("hi"), text("ho")], [text("words"), text("more")]]
    assert [(repair.uuid, repair.what) for repair in log] == [
        ("u1", "dropped 1 item(s) of its content"),
        ("a1", "dropped 1 item(s) of its content"),
    ]


# -- answers ---------------------------------------------------------------------------------------------------


def test_fault_58_messages_of_one_api_id_are_one_answer() -> None:
    """Four lines of one id: the uuid tells records apart, the id says what belongs together."""
    parts = [said(f"a{n}", "m1", block) for n, block in enumerate([thought("hm"), text("a"), text("b"), call("t1")])]
    before = frozen(parts)
    (out,) = merged(*parts)
    assert out.message["content"] == [thought("hm"), text("a"), text("b"), call("t1")]
    assert (out.uuid, out.timestamp, out.message["id"]) == ("a0", "time of a0", "m1")
    assert parts == before


def test_other_ids_stay_other_answers() -> None:
    assert uuids(merged(said("a1", "m1", text("x")), said("b1", "m2", text("y")))) == ["a1", "b1"]
    assert uuids(merged(said("a1", None, text("x")), said("b1", None, text("y")))) == ["a1", "b1"]
    assert uuids(merged(said("a1", "", text("x")), said("b1", "", text("y")))) == ["a1", "b1"]
    assert uuids(merged(said("a1", "m1", text("x")), said("b1", "m2", text("y")), said("a2", "m1", text("z")))) == [
        "a1",
        "b1",
        "a2",
    ]


def test_an_answer_goes_on_across_its_own_tool_results() -> None:
    """A tool that ran while the answer streamed on (89 of 914 pairs of lines in recorded sessions)."""
    out = merged(
        said("a1", "m1", thought("hm")),
        said("a2", "m1", call("t1")),
        result("r1", "t1"),
        user("h1", [text("<system-reminder>hook</system-reminder>")], is_meta=True),
        said("a3", "m1", call("t2")),
        result("r2", "t2"),
        said("b1", "m2", text("done")),
    )
    assert uuids(out) == ["a1", "r1", "b1"]
    assert contents(out)[0] == [thought("hm"), call("t1"), call("t2")]
    assert contents(out)[1][:2] == [answered("t1"), answered("t2")]


def test_words_of_a_human_end_an_answer() -> None:
    """A gateway that gives every answer the same id must not become one endless answer (fault 29)."""
    out = merged(said("a1", "m1", text("x")), user("u1", "and?"), said("a2", "m1", text("y")))
    assert uuids(out) == ["a1", "u1", "a2"]


def test_unless_the_request_id_says_that_it_went_on() -> None:
    """Fault 62, async inserts: the user typed while the answer came."""
    out = merged(
        said("a1", "m1", thought("hm"), request_id="req_1"),
        user("u1", "wait"),
        said("a2", "m1", call("t1"), request_id="req_1"),
        result("r1", "t1"),
    )
    assert uuids(out) == ["a1", "u1"]
    assert contents(out) == [[thought("hm"), call("t1")], [answered("t1"), text("wait")]]


def test_or_the_usage_that_an_answers_messages_share() -> None:
    one, two = said("a1", "m1", thought("hm")), said("a2", "m1", call("t1"))
    two.message["usage"] = one.message["usage"]
    assert uuids(merged(one, user("u1", "wait"), two)) == ["a1", "u1"]


def test_two_request_ids_are_two_answers() -> None:
    out = merged(said("a1", "m1", text("x"), request_id="req_1"), said("a2", "m1", text("y"), request_id="req_2"))
    assert uuids(out) == ["a1", "a2"]


def test_blocks_are_sorted_by_index() -> None:
    """Fault 23: emission is in stop order; the answer's order is the index's (WIRE.md §1)."""
    out = merged(
        said("a1", "m1", call("t1"), index=2),
        said("a2", "m1", thought("hm"), index=0),
        said("a3", "m1", text("x"), index=1),
    )
    assert contents(out) == [[thought("hm"), text("x"), call("t1")]]


def test_blocks_of_a_resumed_answer_are_sorted_by_block_index() -> None:
    """On the wire only where the order differs; what has none follows all before it."""
    out = merged(
        said("a1", "m1", thought("hm")),
        said("a2", "m1", call("t3"), block_index=3),
        said("a3", "m1", call("t1"), block_index=1),
        said("a4", "m1", call("t4")),
    )
    assert contents(out) == [[thought("hm"), call("t1"), call("t3"), call("t4")]]


@settings(max_examples=200, deadline=None)
@given(st.permutations(range(6)), st.lists(st.booleans(), min_size=6, max_size=6))
def test_fault_23_thinking_is_never_moved_from_where_the_model_put_it(order: list[int], results: list[bool]) -> None:
    blocks: list[dict[str, Any]] = [
        thought("one", "s1"),
        {"type": "redacted_thinking", "data": "xx"},
        text("words"),
        thought("two", "s2"),
        call("t4"),
        call("t5"),
    ]
    messages: list[Any] = []
    for at in order:
        messages.append(said(f"a{at}", "m1", blocks[at], index=at))
        if at >= 4 and results[at]:
            messages.append(result(f"r{at}", f"t{at}"))
    out = merged(*messages)
    content = out[0].message["content"]
    assert content == blocks
    assert all(new is old for new, old in zip(content, blocks, strict=True))


def test_as_accumulate_gives_interleaved_blocks() -> None:
    """Two tools open at once, the second stops first; a tool's result arrives in between."""
    wire: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "m1", "model": "x", "content": [], "usage": {"output_tokens": 1}}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "t0", "name": "L", "input": {}},
        },
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "t1", "name": "L", "input": {}},
        },
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    items = [
        item
        for item in run_stages([event_from_wire(event) for event in wire], accumulate())
        if isinstance(item, AssistantMessage)
    ]
    assert [item.message["content"][0]["id"] for item in items] == ["t1", "t0"]
    out = merged(items[0], result("r1", "t1"), items[1], result("r0", "t0"))
    assert [block["id"] for block in out[0].message["content"]] == ["t0", "t1"]
    assert contents(out)[1] == [answered("t0"), answered("t1")]
    assert out[0].message["stop_reason"] == "tool_use"
    assert out[0].message["usage"]["output_tokens"] == 9


def test_fault_28_the_last_parts_usage_and_stop_reason_count() -> None:
    one, two = said("a1", "m1", text("x")), said("a2", "m1", text("y"))
    one.message.update(usage={"output_tokens": 2}, stop_reason=None)
    two.message.update(usage={"output_tokens": 310}, stop_reason="end_turn")
    (out,) = merged(one, two)
    assert (out.message["usage"], out.message["stop_reason"]) == ({"output_tokens": 310}, "end_turn")


# -- repeated blocks -------------------------------------------------------------------------------------------


def test_fault_42_a_replayed_line_collapses() -> None:
    log: list[Repair] = []
    parts = [said("a1", "m1", thought("hm")), said("a2", "m1", call("t1", path="x"))]
    out = merged(*parts, *parts, explain=log.append)
    assert contents(out) == [[thought("hm"), call("t1", path="x")]]
    assert [repair.what for repair in log] == ["dropped a repeated thinking block", "dropped a repeated tool_use block"]


def test_cumulative_lines_collapse() -> None:
    """A writer whose every line holds all blocks so far."""
    blocks = [thought("hm"), text("a"), call("t1")]
    out = merged(*(said(f"a{n}", "m1", *blocks[: n + 1]) for n in range(3)))
    assert contents(out) == [blocks]


def test_equal_blocks_are_equal_whatever_the_order_of_keys() -> None:
    backwards = dict(reversed(list(call("t1", path="x").items())))
    assert contents(merged(said("a1", "m1", call("t1", path="x")), said("a2", "m1", backwards))) == [
        [call("t1", path="x")]
    ]


def test_fault_25_an_answer_may_say_the_same_twice() -> None:
    """Identity is (message id, index), never the text: two indexes are two blocks, as are two in one message."""
    assert contents(merged(said("a1", "m1", text("x"), index=0), said("a2", "m1", text("x"), index=1))) == [
        [text("x"), text("x")]
    ]
    assert contents(merged(said("a1", "m1", text("x"), text("x")))) == [[text("x"), text("x")]]
    assert contents(merged(said("a1", "m1", text("x"), text("x")), said("a2", "m1", call("t1")))) == [
        [text("x"), text("x"), call("t1")]
    ]
    assert contents(merged(said("a1", "m1", text("x"), index=0), said("a2", "m1", text("x"), index=0))) == [[text("x")]]


def test_fault_25_blocks_that_overlap_are_not_glued() -> None:
    out = merged(said("a1", "m1", text("A **B")), said("a2", "m1", text("B** C")))
    assert contents(out) == [[text("A **B"), text("B** C")]]


def test_one_call_id_with_two_inputs_stays_two_blocks() -> None:
    """What to do with colliding ids is the repair stage's business."""
    assert len(contents(merged(said("a1", "m1", call("t1", n=1)), said("a2", "m1", call("t1", n=2))))[0]) == 2


def test_marks_of_single_blocks_do_not_pass_to_the_answer() -> None:
    whole = said("a1", "m1", thought("hm"), index=0)
    half = said("a2", "m1", text("half"), is_aborted_mid_stream=True, unfinished_tool_inputs=[{"index": 2}])
    for parts in ([whole, half], [half, whole]):
        (out,) = merged(*parts)
        assert (out.is_aborted_mid_stream, out.unfinished_tool_inputs, out.index) == (None, None, None)
        assert len(out.message["content"]) == 2


def test_the_answers_request_id_is_the_first_that_is_known() -> None:
    (out,) = merged(said("a1", "m1", text("x")), said("a2", "m1", text("y"), request_id="req_1"))
    assert out.request_id == "req_1"


def test_an_invalid_tool_input_stays_to_be_seen_in_the_block() -> None:
    raw = {"type": "tool_use", "id": "t1", "name": "Look", "input": '{"path": "x'}
    (out,) = merged(said("a1", "m1", text("x")), said("a2", "m1", raw, invalid_tool_input=True))
    assert out.message["content"][1] is raw


# -- at length -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parts of one answer", "equal blocks", "users", "results"])
def test_long_turns_take_work_in_proportion(kind: str) -> None:
    """Counted in calls, not in time: no block is looked at more often in a long turn than in a short one."""

    def make(count: int) -> list[Any]:
        if kind == "parts of one answer":
            return [said(f"a{n}", "m1", call(f"t{n}")) for n in range(count)]
        if kind == "equal blocks":
            return [said(f"a{n}", "m1", text("same"), index=n) for n in range(count)]
        if kind == "users":
            return [user(f"u{n}", "words") for n in range(count)]
        order = list(range(count))
        random.Random(1).shuffle(order)
        return [said("a1", "m1", *(call(f"t{n}") for n in range(count))), *(result(f"r{n}", f"t{n}") for n in order)]

    assert _calls(make(4_000)) / _calls(make(1_000)) < 4.5


def _calls(items: list[Any]) -> int:
    count = 0

    def tally(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += 1

    sys.setprofile(tally)
    try:
        merged(*items)
    finally:
        sys.setprofile(None)
    return count


# -- recorded sessions -------------------------------------------------------------------------------------------


def test_fault_37_every_block_of_recorded_answers_is_there_once_and_in_order() -> None:
    """Each distinct block of each API id, in the order of the lines."""
    folder = need("answers of recorded sessions") / "transcripts"
    for path in sorted(folder.rglob("*.jsonl")):
        messages = [decode_line(line) for line in path.read_bytes().splitlines() if line.strip()]
        said_by: dict[str, list[Any]] = {}
        for message in messages:
            if isinstance(message, AssistantMessage) and message.message.get("model") not in (None, "<synthetic>"):
                blocks = said_by.setdefault(message.message.get("id") or message.uuid, [])
                blocks += [block for block in message.message["content"] if block not in blocks]
        got: dict[str, list[Any]] = {}
        for message in normalized(messages):
            if not isinstance(message, UserMessage):
                got.setdefault(message.message.get("id") or message.uuid, []).extend(message.message["content"])
        assert got == said_by, path.name


def test_equal_blocks_nested_deeper_than_repr_goes() -> None:
    deep: Any = "x"
    for _ in range(20_000):
        deep = [deep]
    block = call("t1", value=deep)
    out = normalized([user("u1", "go"), said("a1", "m1", block), said("a2", "m1", block), said("a3", "m1", call("t1"))])
    assert [len(content) for content in contents(out)] == [1, 2]
