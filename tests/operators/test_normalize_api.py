"""The whole chain: what a history becomes (WIRE.md §4), and what holds of any history."""

from __future__ import annotations

import copy
import sys
from typing import Any

import conversation_blocks as cb
import conversations as conv
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from normalizing import MODEL, answered, attached, call, notice, result, said, text, thought, user
from request_rules import check_messages
from requesting import blocks, explained, roles, sent, texts

from turnstream.messages import AssistantMessage, MessageFactory, SystemMessage, Tombstone, UserMessage
from turnstream.messages.jsonvalue import scrub_text
from turnstream.messages.texts import NO_RESPONSE_REQUESTED, SYNTHETIC_TEXTS
from turnstream.operators import run_stages
from turnstream.operators.normalize import (
    Repair,
    can_think,
    convert_context,
    filter_for_api,
    merge_turns,
    normalize_for_api,
    reorder_attachments,
    request_messages,
    tombstoned_uuids,
)

MAKE = MessageFactory()
slow = settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def test_a_history_as_it_should_be_passes_as_it_is() -> None:
    history = [
        user("u1", [text("go")]),
        said("a1", "m1", thought("x"), text("see"), call("t1"), model="claude-opus-4-6"),
        result("u2", "t1"),
        said("a2", "m2", text("done"), model="claude-opus-4-6"),
        user("u3", [text("thanks")]),
    ]
    out = normalize_for_api(history, model="claude-opus-4-6", thinking=True)
    assert all(before is after for before, after in zip(history, out, strict=True))
    assert explained(history, model="claude-opus-4-6", thinking=True) == []


def test_only_role_and_content_go_out() -> None:
    history = [user("u1", "go", tool_use_result={"secret": 1}, mcp_meta={"x": 1}), said("a1", "m1", text("x"))]
    out = sent(history)
    assert all(message.keys() == {"role", "content"} for message in out)
    assert request_messages([]) == []


def test_the_slice_from_the_last_boundary_on() -> None:
    boundary = [
        SystemMessage(subtype="compact_boundary", uuid=f"b{n}", timestamp="t", content="Conversation compacted")
        for n in (1, 2)
    ]
    history = [
        user("u1", "old"),
        boundary[0],
        user("u2", "older summary"),
        said("a1", "m1", call("t1")),
        boundary[1],
        MAKE.compact_summary("What happened."),
        result("u3", "t1"),
        user("u4", "and now?"),
    ]
    assert sent(history) == [{"role": "user", "content": [text("What happened."), text("and now?")]}]


def test_fault_74_what_never_was_speech_isnt_sent() -> None:
    history = [
        user("u1", "go"),
        MAKE.assistant("No response requested."),
        MAKE.api_error("API Error: 529"),
        MAKE.assistant("(no content)"),
        said("a1", "m1", text("x")),
        MAKE.interruption(),
        user("u2", "on"),
    ]
    assert texts(sent(history)) == ["go", "x", "on"]


def test_fault_75_a_notice_is_wrapped_and_joins_the_user() -> None:
    history = [user("u1", "go"), said("a1", "m1", text("x")), notice("n1"), user("u2", "on")]
    out = sent(history)
    assert roles(out) == "user assistant user"
    assert texts(out)[-1] == "on"
    assert "<local-command-record>" in texts(out)[2]


def test_fault_62_attachments_and_queued_words_stand_after_the_results() -> None:
    history = [
        user("u1", "go"),
        said("a1", "m1", call("t1"), call("t2")),
        attached("x1"),
        user("u2", "queued words"),
        result("u3", "t2"),
        result("u4", "t1"),
    ]
    out = sent(history)
    assert roles(out) == "user assistant user"
    assert [block["type"] for block in out[2]["content"]] == ["tool_result", "tool_result", "text", "text"]
    assert [block["tool_use_id"] for block in out[2]["content"][:2]] == ["t1", "t2"]


def test_fault_64_consecutive_users_are_one() -> None:
    history = [user("u1", "go"), said("a1", "m1", call("t1")), result("u2", "t1"), user("u3", "plain"), user("u4", [])]
    out = sent(history)
    assert out[2] == {"role": "user", "content": [answered("t1"), text("plain")]}


def test_a_tombstone_takes_back_an_attempt() -> None:
    gone = said("a1", "m1", text("half"))
    history = [user("u1", "go"), gone, Tombstone(message=gone), said("a2", "m2", text("whole")), user("u2", "on")]
    assert texts(sent(history)) == ["go", "whole", "on"]


def test_blocks_with_deltas_that_didnt_apply_arent_sent_back() -> None:
    odd = said("a1", "m1", call("t1"))
    odd.unapplied_deltas = [{"type": "novel_delta"}]
    out = sent([user("u1", "go"), said("a0", "m1", text("x")), odd, result("u2", "t1"), user("u3", "on")])
    assert not blocks(out, "tool_use") + blocks(out, "tool_result")


def test_nothing_to_send() -> None:
    assert normalize_for_api([]) == []
    assert normalize_for_api(iter([MAKE.progress("t1", None, {})])) == []
    assert normalize_for_api([MAKE.interruption()]) == []


def test_what_emptied_messages_leave_behind_is_merged() -> None:
    """Two parts of one answer around a user message of which nothing is left."""
    parts = [said("a1", "m1", text("one"), index=0), said("a2", "m1", text("two"), index=1)]
    out = sent([user("u1", "go"), parts[0], user("u2", [text("  ")]), parts[1], user("u3", "on")])
    assert out[1] == {"role": "assistant", "content": [text("one"), text("two")]}


def test_thinking_before_a_stand_in_for_speech_says_nothing_more() -> None:
    """However many of such answers there are: taking out one makes another the last."""
    many = [
        (user(f"u{n}", f"{n}"), said(f"a{n}", f"m{n}", thought("hm"), text(NO_RESPONSE_REQUESTED))) for n in range(20)
    ]
    history = [message for pair in many for message in pair]
    out = normalize_for_api(history)
    assert texts(request_messages(out)) == [str(n) for n in range(20)]
    assert normalize_for_api(out) == out


def test_explaining_says_who_what_and_why() -> None:
    log = explained([user("u1", [text(""), text("x")]), said("a1", "m1", call("t1"))])
    assert all(isinstance(repair, Repair) and repair.what and repair.why for repair in log)
    assert {(repair.stage, repair.uuid) for repair in log} == {("repair", "u1"), ("repair", "a1")}


# -- any history ------------------------------------------------------------------------------------------


@slow
@given(conv.conversations(), conv.options())
def test_pure_and_idempotent(items: list[Any], options: dict[str, Any]) -> None:
    before = copy.deepcopy(items)
    out = normalize_for_api(items, **options)
    assert items == before
    assert normalize_for_api(out, **options) == out
    assert normalize_for_api(items, **options, explain=lambda repair: None) == out


def _other_role(s: Any) -> None:
    """A message of another role, as newer models and other programs have them."""
    entry = s.user(s.one("be brief", [text("Be brief.")], [text(" ")], [], [text("x"), {"type": "image"}]))
    entry.message["role"] = s.one("system", "system", "tool", None)


def _error(s: Any) -> None:
    s.items.append(s.make.api_error(s.draw(_REFUSALS)))


def _server_side(s: Any) -> None:
    """Server calls, results and calls that their code makes, in any order."""
    caller = {"type": "code_execution_20250825", "tool_id": s.one("srvtoolu_1", "srvtoolu_2", "x")}
    made = {**call(f"toolu_c{s.count}"), "caller": caller}
    kinds = [cb.server_blocks.map(lambda each: each[0]), cb.server_blocks.map(lambda each: each[-1]), st.just(made)]
    s.assistant(s.draw(st.lists(st.one_of(*kinds), min_size=1, max_size=5)), f"msg_s{s.one(0, s.count)}", cb.MODEL, {})
    s.items[-1].message["stop_reason"] = s.one("pause_turn", None)
    if s.one(True, False):
        s.user([answered(made["id"])])
    s.open.clear()


_REFUSALS = st.one_of(
    st.builds(
        lambda n, block, inner: f"messages.{n}.content.{block}{inner}.image.source.base64.data: too large",
        st.integers(0, 8),
        st.integers(0, 4),
        st.sampled_from(["", ".tool_result.content.0"]),
    ),
    st.sampled_from(
        ["Could not process image", "The PDF specified was not valid.", "Request exceeds the maximum size"]
    ),
)
_MOVES = (*conv.MOVES, _other_role, _other_role, _error, _error, _server_side, _server_side)


@slow
@given(conv.conversations(moves=_MOVES), conv.options(), st.one_of(st.none(), _REFUSALS), st.booleans())
def test_refusals_other_roles_and_server_tools(
    items: list[Any], options: dict[str, Any], refused: str | None, newest: bool
) -> None:
    """Pure, idempotent and never refused with these too."""
    if newest:
        options = {**options, "model": "claude-opus-4-8"}
    before = copy.deepcopy(items)
    out = normalize_for_api(items, refused=refused, **options)
    assert items == before
    assert normalize_for_api(out, refused=refused, **options) == out
    if out:
        checked = {**options, "thinking": options["thinking"] and can_think(out, options["model"])}
        assert check_messages(request_messages(out), **checked) == []


@slow
@given(conv.conversations(), conv.options())
def test_all_that_changed_is_explained(items: list[Any], options: dict[str, Any]) -> None:
    """Without a word from stages 5 and 6 their output is what stage 4 put out."""
    log: list[Repair] = []
    out = normalize_for_api(items, **options, explain=log.append)
    if not any(repair.stage in ("strip", "repair") for repair in log):
        start = max(
            (at for at, item in enumerate(items) if getattr(item, "subtype", None) == "compact_boundary"), default=0
        )
        kept = items[start:]
        before = filter_for_api(None, tombstoned_uuids(kept)) | reorder_attachments()
        assert out == run_stages(kept, before | convert_context() | merge_turns())
    assert {repair.stage for repair in log} <= {"filter", "reorder", "convert", "merge", "strip", "repair"}


def _speech(item: Any) -> list[str]:
    """The texts that somebody said in a message: blank ones are nobody's, as those that stand in for speech."""
    content = item.message.get("content")
    if isinstance(content, str):
        content = [content]
    found = []
    for block in content if isinstance(content, list) else []:
        said_ = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else block
        if isinstance(said_, str) and said_.strip() and said_ not in SYNTHETIC_TEXTS:
            found.append(scrub_text(said_).strip())
    return found


def _heard(items: list[Any]) -> tuple[list[str], dict[Any, list[tuple[Any, str]]]]:
    """What must be in the request: the user's words in order, and each answer's with their index."""
    start = max(
        (at for at, item in enumerate(items) if getattr(item, "subtype", None) == "compact_boundary"), default=0
    )
    kept = items[start:]
    taken = set()
    for item in kept:
        if isinstance(item, Tombstone):
            taken.add(item.message["uuid"] if isinstance(item.message, dict) else item.message.uuid)
    users: list[str] = []
    answers: dict[Any, list[tuple[Any, str]]] = {}
    for item in kept:
        if not isinstance(item, (UserMessage, AssistantMessage)) or item.is_virtual or item.uuid in taken:
            continue
        words = _speech(item)
        if isinstance(item, UserMessage):
            if not item.is_meta:
                users += words
        elif not item.is_api_error_message and item.message.get("model") not in (None, "", "<synthetic>"):
            if not item.unapplied_deltas:
                answers.setdefault(item.message.get("id"), []).extend((item.index, word) for word in words)
    return users, answers


def _in_order(wanted: list[str], found: list[str]) -> bool:
    left = iter(found)
    return all(any(word == other for other in left) for word in wanted)


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(conv.conversations(), conv.options())
def test_nothing_that_was_said_is_lost(items: list[Any], options: dict[str, Any]) -> None:
    """Every text that isn't blank, synthetic, virtual, meta or incomplete is in the request, in order."""
    out = normalize_for_api(items, **options)
    users, answers = _heard(items)
    assert _in_order(users, [word for each in out if isinstance(each, UserMessage) for word in _speech(each)])
    for api_id, parts in answers.items():
        mine = [
            word
            for each in out
            if isinstance(each, AssistantMessage) and each.message.get("id") == api_id
            for word in _speech(each)
        ]
        words = [word for _, word in parts]
        assert set(words) <= set(mine)
        # An answer sorted by index, and without repetition, keeps its order.
        indexes = [index for index, _ in parts]
        if None not in indexes and indexes == sorted(indexes) and len(set(words)) == len(words):
            assert _in_order(words, mine)


def test_the_property_of_losing_nothing_can_fail() -> None:
    assert not _in_order(["a", "b"], ["b", "a"])
    assert _heard([user("u", ["x", text(" y ")]), said("a", "m", text("z"), index=0)]) == (
        ["x", "y"],
        {"m": [(0, "z")]},
    )


# -- growth -----------------------------------------------------------------------------------------------


def session(turns: int) -> list[Any]:
    """A session with every kind of repair in each turn."""
    out: list[Any] = []
    for n in range(turns):
        mark = {"cache_control": {"type": "ephemeral"}}
        out += [
            user(f"u{n}", [{**text("go"), **mark}, text("")]),
            said(f"a{n}", f"m{n}", {"type": "thinking", "thinking": "x"}, text("see"), index=0),
            said(f"b{n}", f"m{n}", call("t", n=n), {**call(f"t{n}"), "input": "{"}, index=2),
            result(f"v{n}", "t", "lost"),
            MAKE.api_error("Could not process image"),
            user(f"w{n}", [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]),
            said(f"c{n}", f"n{n}", text(" ")),
        ]
    return out


def _calls(history: list[Any], **options: Any) -> int:
    """How many Python functions are called, which is what grows if anything does."""
    count = 0

    def counting(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counting)
    try:
        normalize_for_api(history, **options)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("options", [{}, {"dialect": "bedrock", "thinking": True, "model": MODEL, "prefill": "allow"}])
def test_work_grows_with_the_history_and_no_faster(options: dict[str, Any]) -> None:
    one, ten = _calls(session(30), **options), _calls(session(300), **options)
    assert ten < 10.5 * one


def test_many_errors_and_many_images_are_no_square() -> None:
    def history(size: int) -> list[Any]:
        shown = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
        images = [
            user(f"u{n}", [{**shown, "source": {**shown["source"], "url": f"https://e.com/{n}"}}]) for n in range(size)
        ]
        return [*images, *[MAKE.api_error("Could not process image") for _ in range(size)], user("last", "so?")]

    assert _calls(history(1000)) < 10.5 * _calls(history(100))
    assert not blocks(sent(history(30)), "image")


def test_many_calls_of_one_id_are_no_square() -> None:
    def history(size: int) -> list[Any]:
        return [user("u", "go"), said("a", "m", *[call("t", n=n) for n in range(size)]), result("v", *["t"] * size)]

    assert _calls(history(1000)) < 10.5 * _calls(history(100))
