"""Where a conversation may be cut, and which attachments say the same (WIRE.md §6; fault 53)."""

from __future__ import annotations

from typing import Any

import compacting as c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstream.messages import AssistantMessage
from turnstream.operators.compaction import attachment_identity, attachments_again, borders, without_repeats
from turnstream.operators.compaction.segments import choose_cut


def cuts(talk: c.Talk) -> list[int]:
    return [position for position, allowed in enumerate(borders(talk.messages)) if allowed]


def test_never_between_a_use_and_its_result() -> None:
    talk = c.Talk()
    talk.prompt()  # 0
    talk.round("a", "b")  # 1 2 | 3 4
    talk.says()  # 5
    assert cuts(talk) == [0, 1, 5, 6]


def test_never_inside_an_answer_whatever_came_between_its_blocks() -> None:
    talk = c.Talk()
    talk.prompt()
    first, second = talk.answer({"type": "text", "text": "a"}, {"type": "text", "text": "b"})
    talk.messages[1:] = [first, talk.make.attachment({"type": "x"}), second]
    assert cuts(talk) == [0, 1, 4]


def test_answers_whose_ids_repeat_in_later_turns_are_apart() -> None:
    talk = c.Talk()
    for _ in range(2):
        talk.prompt()
        talk.answers = 0
        talk.says()
    assert cuts(talk) == [0, 1, 2, 3, 4]


def test_never_behind_a_use_whose_result_is_still_to_come() -> None:
    talk = c.Talk()
    talk.prompt()
    talk.uses(2)
    assert cuts(talk) == [0, 1]
    talk.result("toolu_1")
    assert cuts(talk) == [0, 1]
    talk.result("toolu_2")
    assert cuts(talk) == [0, 1, 5]


def test_a_use_that_will_never_have_a_result_holds_nothing() -> None:
    talk = c.Talk()
    talk.uses(1)
    talk.prompt("never mind")
    assert cuts(talk) == [0, 1, 2]


def test_ids_that_repeat_in_later_turns_pair_with_the_nearest_use() -> None:
    talk = c.Talk()
    for _ in range(2):
        talk.tools = 0
        talk.round("r")
        talk.prompt()
    assert cuts(talk) == [0, 2, 3, 5, 6]


def test_a_result_without_use_begins_nothing() -> None:
    talk = c.Talk()
    talk.result("toolu_gone")
    talk.prompt()
    assert cuts(talk) == [1, 2]


@pytest.mark.parametrize(
    ("keep", "expected"), [(0, 7), (1, 6), (2, 3), (3, 3), (4, 2), (5, 1), (6, 1), (7, 1), (100, 1)]
)
def test_at_least_so_many_messages_are_kept(keep: int, expected: int) -> None:
    talk = c.Talk()
    talk.prompt()  # 0
    talk.says()  # 1
    talk.prompt()  # 2
    talk.round("a")  # 3 4
    talk.attach({"type": "x"})  # 5: not counted; it hangs behind the round
    talk.says()  # 6
    assert [p for p, ok in enumerate(borders(talk.messages)) if ok] == [0, 1, 2, 3, 5, 6, 7]
    assert choose_cut(talk.messages, keep) == expected


def test_fewer_are_kept_than_asked_if_they_are_too_heavy() -> None:
    talk = c.Talk()
    for _ in range(4):
        talk.prompt("x" * 4_000)
    talk.says("y" * 4)
    assert choose_cut(talk.messages, 4) == 1
    assert choose_cut(talk.messages, 4, budget=2_500) == 2
    assert choose_cut(talk.messages, 4, budget=1) == 4
    assert choose_cut(talk.messages, 4, budget=0) == 5


def test_a_prompt_without_answer_is_always_kept() -> None:
    talk = c.Talk()
    talk.prompt("x")
    talk.round("r")
    talk.attach({"type": "x"})
    talk.prompt("and now?")
    assert choose_cut(talk.messages, 0, budget=0) == 4
    talk.says()
    talk.attach({"type": "queued_command", "prompt": "and this"})
    talk.attach({"type": "x"})
    assert choose_cut(talk.messages, 0, budget=0) == 6
    only = c.Talk()
    only.prompt("first")
    assert choose_cut(only.messages, 0) is None


def test_a_summary_alone_is_nothing_to_summarize() -> None:
    talk = c.Talk()
    talk.messages.append(talk.make.compact_summary("before"))
    assert choose_cut(talk.messages, 0) is None
    talk.attach(c.memory("/a"))
    assert choose_cut(talk.messages, 0) is None
    talk.says()
    assert choose_cut(talk.messages, 0) == 3


@given(c.talks(), st.integers(0, 6), st.sampled_from([0, 50, 3_000, float("inf")]))
def test_a_cut_never_parts_a_use_from_its_result_nor_an_answer(messages: list[Any], keep: int, budget: float) -> None:
    cut = choose_cut(messages, keep, budget)
    if cut is None:
        return
    head, tail = messages[:cut], messages[cut:]
    head_uses, head_results = c.pairs(head)
    tail_uses, tail_results = c.pairs(tail)
    assert not set(head_uses) & set(tail_results)
    assert not set(tail_uses) & set(head_results)
    ids = [{m.message["id"] for m in part if isinstance(m, AssistantMessage)} for part in (head, tail)]
    assert not ids[0] & ids[1]


def test_identity_of_attachments() -> None:
    same = [
        ({"type": "nested_memory", "path": "/a", "content": 1}, {"type": "nested_memory", "path": "/a", "content": 2}),
        ({"type": "edited_text_file", "filename": "f", "snippet": "1"}, {"type": "edited_text_file", "filename": "f"}),
        ({"type": "date_change", "newDate": "2026-01-01"}, {"type": "date_change", "newDate": "2026-01-02"}),
        ({"type": "skill_listing", "content": "- a"}, {"content": "- a", "type": "skill_listing"}),
        ({"type": "odd", "uuid": "1", "x": 1}, {"type": "odd", "uuid": "1", "x": 2}),
        ({"x": 1}, {"x": 1}),
    ]
    for one, other in same:
        assert attachment_identity(one) == attachment_identity(other) is not None
    different = [
        ({"type": "nested_memory", "path": "/a"}, {"type": "nested_memory", "path": "/b"}),
        ({"type": "nested_memory", "path": "/a"}, {"type": "file", "path": "/a"}),
        ({"type": "deferred_tools_delta", "addedNames": ["a"]}, {"type": "deferred_tools_delta", "addedNames": ["b"]}),
        ({"type": ["odd"], "x": 1}, {"type": None, "x": 2}),
    ]
    for one, other in different:
        assert attachment_identity(one) != attachment_identity(other)


def test_a_command_and_the_output_of_a_calls_hook_are_conversation() -> None:
    assert attachment_identity({"type": "queued_command", "prompt": "do it"}) is None
    hook = {"type": "hook_additional_context", "hookName": "h", "content": ["c"], "toolUseID": "t1"}
    assert attachment_identity({**hook, "hookEvent": "PostToolUse"}) is None
    standing = attachment_identity({**hook, "hookEvent": "SessionStart"})
    assert standing is not None
    assert attachment_identity({**hook, "hookEvent": "SessionStart", "toolUseID": "t2"}) == standing


def test_the_newest_of_each_identity_is_attached_again_as_a_new_message() -> None:
    talk = c.Talk()
    talk.attach(c.memory("/a", "old"))
    talk.attach(c.memory("/b"))
    newer = talk.attach(c.memory("/a", "new"))
    newer.extra = {"parentUuid": "p", "cwd": "/w"}
    talk.attach(c.memory("/c"))
    kept = [talk.make.attachment(c.memory("/c", "kept"))]
    again = attachments_again(talk.messages, kept, factory=talk.make)
    assert [m.attachment for m in again] == [c.memory("/b"), c.memory("/a", "new")]
    assert not {m.uuid for m in again} & {m.uuid for m in talk.messages}
    assert again[1].extra == {"cwd": "/w"}
    assert newer.extra == {"parentUuid": "p", "cwd": "/w"}


def test_repeats_among_the_kept_leave_the_last() -> None:
    talk = c.Talk()
    for content in ("1", "2"):
        talk.attach(c.memory("/a", content))
        talk.attach({"type": "queued_command", "prompt": "same"})
    assert without_repeats(talk.messages) == talk.messages[1:]
