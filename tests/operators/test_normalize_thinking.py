"""Thinking in a request: what may be sent back, and where it may stand (WIRE.md §4, FAULTS.md 22-24, 57, 68, 69)."""

from __future__ import annotations

from typing import Any

import pytest
from normalizing import MODEL, answered, call, result, said, text, thought, user
from requesting import blocks, explained, roles, sent

from turnstream.operators.normalize import can_think, normalize_for_api

REDACTED = {"type": "redacted_thinking", "data": "ZGF0YQ=="}
NEW = "claude-opus-4-6"


def answer(*content: Any, model: str | None = MODEL) -> list[Any]:
    return [user("u1", "go"), said("a1", "m1", *content, model=model), user("u2", "on"), said("a2", "m2", text("x"))]


def kinds(message: dict[str, Any]) -> list[str]:
    return [block["type"] for block in message["content"]]


@pytest.mark.parametrize(
    "bad",
    [
        {"type": "thinking", "thinking": "Let me"},
        {"type": "thinking", "thinking": "Let me", "signature": ""},
        {"type": "thinking", "thinking": "Let me", "signature": None},
        {"type": "thinking", "signature": "c2ln"},
        {"type": "thinking", "thinking": None, "signature": "c2ln"},
        {"type": "redacted_thinking"},
        {"type": "redacted_thinking", "data": ""},
    ],
)
def test_fault_68_unsigned_thinking_is_dropped(bad: dict[str, Any]) -> None:
    history = answer(bad, thought("kept"), text("so"))
    assert sent(history)[1]["content"] == [thought("kept"), text("so")]
    assert any(repair.what.startswith("dropped") and "thinking" in repair.what for repair in explained(history))


def test_fault_57_thinking_written_before_its_signature_came() -> None:
    history = [*answer(), said("a3", "m3", {"type": "thinking", "thinking": "", "signature": ""}), user("u3", "?")]
    assert not blocks(sent(history), "thinking")


def test_fault_68_thinking_cut_off_is_dropped_though_it_has_a_signature() -> None:
    cut = said("a1", "m1", thought("Let m"), text("half"), is_aborted_mid_stream=True)
    out = sent([user("u1", "go"), cut, user("u2", "on"), said("a2", "m2", text("x"))])
    assert out[1]["content"] == [text("half")]


def test_fault_24_thinking_without_text_is_legal() -> None:
    history = answer(thought(""), text("so"))
    assert sent(history)[1]["content"] == [thought(""), text("so")]


def test_fault_22_thinking_without_its_text_is_dropped_and_the_rest_stays() -> None:
    assert sent(answer({"type": "thinking", "signature": "c2ln"}, text("so")))[1]["content"] == [text("so")]


def test_fault_23_order_and_number_of_blocks_are_kept() -> None:
    content = [thought("one"), REDACTED, text("a"), thought("two"), call("t1")]
    history = [user("u1", "go"), said("a1", "m1", *content, model=NEW), result("u2", "t1")]
    assert sent(history, model=NEW, thinking=True)[1]["content"] == content


@pytest.mark.parametrize("foreign", [thought("by another"), REDACTED])
def test_fault_69_another_models_thinking_is_dropped(foreign: dict[str, Any]) -> None:
    history = answer(foreign, text("so"), model="claude-opus-4-1-20250805")
    assert sent(history, model=MODEL)[1]["content"] == [text("so")]
    assert sent(history, model="claude-opus-4-1")[1]["content"] == [foreign, text("so")]
    assert sent(history)[1]["content"] == [foreign, text("so")]  # unknown: nothing says that it is another's


def test_fault_69_two_models_by_turns() -> None:
    history = [user("u1", "go")]
    for number in range(4):
        model = MODEL if number % 2 else "claude-opus-4-5"
        history += [
            said(f"a{number}", f"m{number}", thought(str(number)), text("x"), model=model),
            user(f"v{number}", "on"),
        ]
    out = sent(history, model=MODEL, thinking=True)
    assert [block["thinking"] for block in blocks(out, "thinking")] == ["1", "3"]


def test_a_lone_surrogate_makes_thinking_unsendable() -> None:
    """Its signature is for the text as it was."""
    assert sent(answer(thought("cut \ud83d"), text("so")))[1]["content"] == [text("so")]


def test_a_cache_mark_is_taken_off_thinking() -> None:
    marked = {**thought("x"), "cache_control": {"type": "ephemeral"}, "index": 0}
    assert sent(answer(marked, text("so")))[1]["content"] == [thought("x"), text("so")]


def test_an_answer_doesnt_end_with_thinking() -> None:
    assert sent(answer(text("so"), thought("x"), REDACTED), model=NEW)[1]["content"] == [text("so")]
    history = [user("u1", "go"), said("a1", "m1", thought("x"))]
    assert roles(sent(history, thinking=True)) == "user"


def test_only_thinking_between_two_users() -> None:
    history = [user("u1", "go"), said("a1", "m1", thought("x")), user("u2", "on")]
    assert sent(history) == [{"role": "user", "content": [text("go"), text("on")]}]


# -- thinking off -----------------------------------------------------------------------------------------


def test_thinking_off_the_last_answer_has_none() -> None:
    history = [
        *answer(thought("old"), text("so"))[:3],
        said("a2", "m2", thought("new"), text("x"), call("t1")),
        result("u3", "t1"),
    ]
    out = sent(history)
    assert kinds(out[1]) == ["thinking", "text"]
    assert kinds(out[3]) == ["text", "tool_use"]
    allowed = sent([user("u1", "go"), said("a1", "m1", thought("x"), text("so"))], prefill="allow")
    assert kinds(allowed[1]) == ["text"]


def test_where_the_last_answer_is_gone_the_one_before_it_is_the_last() -> None:
    history = [*answer(thought("old"), text("so"))[:3], said("a2", "m2", thought("new"))]
    assert not blocks(sent(history), "thinking")


# -- thinking on ------------------------------------------------------------------------------------------


def loop(*first: Any, model: str = MODEL) -> list[Any]:
    return [user("u1", "go"), said("a1", "m1", *first, call("t1"), model=model), result("u2", "t1")]


def test_thinking_on_a_loop_that_leads_with_it_is_left_alone() -> None:
    history = loop(thought("x"))
    out = normalize_for_api(history, thinking=True, model=MODEL)
    assert out[1] is history[1]
    assert can_think(out, MODEL)


def test_thinking_on_a_loop_that_doesnt_lead_with_it_goes_on_without() -> None:
    """The thinking was unsigned, or the turn began without: the caller has to leave it off, and is told."""
    for history in (loop(), loop({"type": "thinking", "thinking": "x"}), loop(text("well"), thought("x"))):
        out = normalize_for_api(history, thinking=True, model=MODEL)
        assert not can_think(out, MODEL)
        assert not blocks([message.message for message in out], "thinking")
    assert can_think(normalize_for_api(loop(), thinking=True, model=NEW), NEW)
    assert not can_think(normalize_for_api(loop(), thinking=True))


def test_the_loop_begins_after_the_users_last_words() -> None:
    more = [said("a2", "m2", call("t2")), result("u3", "t2")]
    assert can_think(normalize_for_api([*loop(thought("x")), *more], thinking=True, model=MODEL), MODEL)
    between = [*loop(thought("x")), user("u4", "and"), *more]
    assert not can_think(normalize_for_api(between, thinking=True, model=MODEL), MODEL)
    beside = [*loop(thought("x")), user("u4", "and")]
    assert can_think(normalize_for_api(beside, thinking=True, model=MODEL), MODEL)


def test_thinking_on_a_new_turn_may_always_think() -> None:
    for history in ([], [user("u1", "go")], [*loop(), said("a2", "m2", text("x")), user("u3", "on")]):
        assert can_think(normalize_for_api(history, thinking=True, model=MODEL), MODEL)
    ended = normalize_for_api([user("u1", "go"), said("a1", "m1", text("x"))], thinking=True, prefill="allow")
    assert ended[-1].message["role"] == "user"  # thinking takes no prefill
    assert can_think(ended)


def test_thinking_on_before_4_6_an_answer_leads_with_it_or_has_none() -> None:
    history = answer(text("well"), thought("x"), text("so"), model=None)
    history[1].message["model"] = MODEL
    assert kinds(sent(history, thinking=True, model=MODEL)[1]) == ["text", "text"]
    assert kinds(sent(history, thinking=False, model=MODEL)[1]) == ["text", "thinking", "text"]
    history[1].message["model"] = NEW
    assert kinds(sent(history, thinking=True, model=NEW)[1]) == ["text", "thinking", "text"]


def test_a_run_of_answers_is_judged_as_one() -> None:
    history = [
        user("u1", "go"),
        said("a1", "m1", text("half"), is_aborted_mid_stream=True),
        said("a2", "m2", thought("x"), text("so")),
        user("u2", "on"),
    ]
    assert not blocks(sent(history, thinking=True, model=MODEL), "thinking")
    assert blocks(sent(history, thinking=True, model=MODEL, dialect="bedrock"), "thinking")  # parted there


def test_a_paused_turn_thinks_if_it_leads_with_it() -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    for first, allowed in ((thought("x"), True), (text("x"), False)):
        history = [user("u1", "go"), said("a1", "m1", first, search)]
        assert can_think(normalize_for_api(history, thinking=True, model=MODEL), MODEL) is allowed


def test_thinking_is_never_moved_or_joined() -> None:
    content = [thought("a"), thought("b"), text("so"), call("t1")]
    out = sent([user("u1", "go"), said("a1", "m1", *content), user("u2", [answered("t1")])], thinking=True, model=MODEL)
    assert out[1]["content"] == content
