"""The default estimator: the last answer's usage plus characters / 4 since (WIRE.md §6)."""

from __future__ import annotations

from typing import Any

import compacting as c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstream.messages import Tombstone, from_wire, zero_usage
from turnstream.operators.compaction import (
    CompactionError,
    CompactMetadata,
    MicrocompactMetadata,
    PreservedSegment,
    apply_microcompact,
    borders,
    compact,
    estimate_tokens,
    make_boundary,
    make_microcompact_boundary,
    microcompact,
    rough_tokens,
    usage_tokens,
)
from turnstream.operators.compaction.estimate import characters

USAGE = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 200,
    "cache_read_input_tokens": 3000,
    "output_tokens": 40_000,
}
TOTAL = 43_210
KEYS = ("type", "id", "tool_use_id", "name", "content", "source", "input", "path", "hookEvent")
HOSTILE = st.sampled_from(
    [None, True, 7, -1, 1.5, "", "tool_use", "tool_result", "document", "image", "x", [], ["x"], [[]], {}, {"type": []}]
)


def test_without_usage_four_characters_are_a_token() -> None:
    talk = c.Talk()
    talk.prompt("12345678")
    talk.says("1234")
    assert estimate_tokens(talk.messages) == 3
    talk.prompt("1")  # begun tokens count
    assert estimate_tokens(talk.messages) == 4
    assert estimate_tokens([]) == 0


def test_the_last_answers_usage_counts_with_what_came_since() -> None:
    talk = c.Talk()
    talk.prompt("x" * 4_000)
    talk.says("y" * 4_000, usage={"input_tokens": 1, "output_tokens": 1})
    talk.prompt("z" * 4_000)
    talk.says("!", usage=USAGE)
    assert estimate_tokens(talk.messages) == TOTAL
    talk.prompt("w" * 400)
    assert estimate_tokens(talk.messages) == TOTAL + 100


def test_usage_keys_may_be_missing_or_null() -> None:
    talk = c.Talk()
    made = talk.says(usage={"input_tokens": 5, "cache_read_input_tokens": None, "output_tokens": 2, "new": 9})
    assert usage_tokens(made) == 7
    made.message["usage"] = None
    assert usage_tokens(made) == 0


def test_what_is_never_sent_weighs_nothing() -> None:
    talk = c.Talk()
    talk.prompt("x" * 4)
    talk.progress()
    talk.prompt("shown only" * 50, is_virtual=True)
    talk.messages.append(talk.make.api_error("overloaded " * 50))
    talk.messages.append(talk.make.system("turn_duration", "y" * 100))
    gone = talk.says("z" * 400)
    talk.messages.append(Tombstone(message=gone))
    assert estimate_tokens(talk.messages) == 1
    talk.messages.append(talk.make.system("local_command", "<local-command-stdout>ab</local-command-stdout>"))
    assert estimate_tokens(talk.messages) == 1 + len("<local-command-stdout>ab</local-command-stdout>") // 4 + 1


@pytest.mark.parametrize("count", [int("9" * 4300), -1, 1.5, True, "7"])
def test_a_usage_that_is_no_count_of_tokens_is_none(count: Any) -> None:
    talk = c.Talk()
    talk.prompt("12345678")
    talk.says("1234", usage={"input_tokens": count, "cache_read_input_tokens": count})
    assert estimate_tokens(talk.messages) == 3


def test_a_synthetic_answer_has_no_usage_that_counts() -> None:
    talk = c.Talk()
    talk.says(usage=USAGE)
    talk.messages.append(talk.make.assistant("No response requested.", usage={"input_tokens": 1}))
    zero = talk.says("abcd", usage=zero_usage())
    assert usage_tokens(zero) == 0
    assert estimate_tokens(talk.messages) == TOTAL + 1


def test_results_that_came_while_the_answer_streamed_are_not_in_its_usage() -> None:
    talk = c.Talk()
    shared = dict(USAGE)
    first, second = talk.answer(
        *({"type": "tool_use", "id": f"t{n}", "name": "Read", "input": {"path": "x" * 100}} for n in (1, 2)),
        usage=shared,
    )
    result = talk.make.tool_result("t1", "r" * 4_000)
    assert estimate_tokens([first, result, second]) == TOTAL + 1_000
    assert estimate_tokens([first, second, result]) == TOTAL + 1_000


def test_an_unfinished_answers_output_is_guessed_from_its_characters() -> None:
    talk = c.Talk()
    made = talk.says("x" * 4_000, usage={"input_tokens": 100, "output_tokens": 3})
    made.message["stop_reason"] = None
    assert estimate_tokens(talk.messages) == 100 + 1_000
    made.message["stop_reason"] = "end_turn"
    assert estimate_tokens(talk.messages) == 103


def test_only_what_follows_the_boundary_counts() -> None:
    talk = c.Talk()
    talk.says(usage=USAGE)
    talk.messages.append(make_boundary(CompactMetadata(), talk.messages, factory=talk.make))
    talk.prompt("12345678", is_compact_summary=True)
    assert estimate_tokens(talk.messages) == 2


def test_the_usage_of_a_kept_message_is_older_than_the_compaction() -> None:
    """Else every turn after a compaction would compact again."""
    talk = c.Talk()
    kept = talk.says("1234", usage=USAGE)
    segment = PreservedSegment(head_uuid=kept.uuid, anchor_uuid="s", tail_uuid=kept.uuid)
    for metadata in (CompactMetadata(preserved_segment=segment), CompactMetadata()):
        boundary = make_boundary(metadata, talk.messages, factory=talk.make)
        summary = talk.make.compact_summary("12345678")
        assert estimate_tokens([boundary, summary, kept]) == 3
        after = c.Talk(8)
        after.make = talk.make
        after.says("x", usage={"input_tokens": 500, "output_tokens": 5})
        assert estimate_tokens([boundary, summary, kept, *after.messages]) == 505


def test_what_a_microcompaction_saved_is_taken_off_until_the_next_answer() -> None:
    talk = c.Talk()
    talk.round("r")
    talk.says(usage=USAGE)
    metadata = MicrocompactMetadata(tokens_saved=3_210, compacted_tool_ids=["toolu_1"])
    talk.messages.append(make_microcompact_boundary(metadata))
    assert estimate_tokens(talk.messages) == TOTAL - 3_210
    talk.says(usage={"input_tokens": 77, "output_tokens": 1})
    assert estimate_tokens(talk.messages) == 78


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"type": "text", "text": "abc"}, 3),
        ({"type": "thinking", "thinking": "abcd", "signature": "s" * 900}, 4),
        ({"type": "redacted_thinking", "data": "d" * 900}, 0),
        ({"type": "image", "source": {"type": "base64", "data": "A" * 10**6}}, 6_400),
        ({"type": "document", "source": {"type": "base64", "data": "A" * 10}}, 12_000),
        ({"type": "document", "source": {"type": "base64", "data": "A" * 300_000}}, 36_000),
        ({"type": "document", "source": {"type": "text", "data": "abcde"}}, 5),
        ({"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "/a", "n": 12}}, 4 + 2 + 4),
        ({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "ab"}]}, 2),
        ("abc", 3),
        (None, 0),
    ],
)
def test_characters_of_contents(block: Any, expected: int) -> None:
    assert characters(block) == expected
    assert characters([block, block]) == 2 * expected


def test_deep_contents_are_weighed_too() -> None:
    deep: Any = "x"
    for _ in range(5_000):
        deep = [deep]
    assert characters(deep) == 1


@given(c.talks())
def test_without_usage_the_estimate_is_the_sum_of_the_characters(messages: list[Any]) -> None:
    assert estimate_tokens(messages) == rough_tokens(messages)


def test_what_a_microcompaction_saved_behind_the_usage_is_not_taken_off_twice() -> None:
    """Two results were cleared, one of them stands behind the usage and is short in the list already."""
    talk = c.Talk()
    talk.round("r")
    talk.says(usage=USAGE)
    talk.round("c" * 40)  # an answer without usage, its result cleared
    talk.says("")
    metadata = MicrocompactMetadata(tokens_saved=2_000, compacted_tool_ids=["toolu_1", "toolu_2"])
    talk.messages.append(make_microcompact_boundary(metadata))
    uses = len("Read") + 4  # the name and one number
    assert estimate_tokens(talk.messages) == TOTAL - 1_000 + -(-(40 + uses) // 4)


@given(st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, HOSTILE)), max_size=6), HOSTILE, HOSTILE)
def test_no_content_is_too_odd(blocks: list[Any], usage: Any, ident: Any) -> None:
    """Records of others hold anything; what reads them never raises."""
    talk = c.Talk()
    talk.prompt("x")
    for block in blocks:
        made = talk.answer(block, usage=usage)[0]
        made.message.update(id=ident, stop_reason=ident)
        talk.prompt([block, ident])
        talk.attach(block)
    micro = from_wire(
        {
            "type": "system",
            "subtype": "microcompact_boundary",
            "microcompactMetadata": {"compactedToolIds": [ident], "tokensSaved": usage},
        }
    )
    messages: list[Any] = [*talk.messages, micro]
    assert estimate_tokens(messages) >= 0
    assert len(borders(messages)) == len(messages) + 1
    found = microcompact(messages, keep_recent=0, larger_than=0, tools={"Read"})
    assert len(apply_microcompact(found.messages)) == len(found.messages)
    try:
        c.run(compact(messages, c.Summarizer(), keep_recent=1, normalize=c.plain))
    except CompactionError:
        assert not blocks
