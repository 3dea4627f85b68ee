"""``microcompact`` (WIRE.md §6): oversized old results become a placeholder, pairs stay pairs."""

from __future__ import annotations

import copy
import json
from typing import Any

import compacting as c
import pytest
import recordings
from hypothesis import given
from hypothesis import strategies as st

from turnstream.messages import decode_line, encode, split_lines, to_wire
from turnstream.operators import run_batches, run_stages
from turnstream.operators.compaction import (
    CLEARED_RESULT,
    CompactMetadata,
    apply_microcompact,
    clear_old_results,
    estimate_tokens,
    is_microcompact_boundary,
    make_boundary,
    microcompact,
    microcompact_metadata,
)

BIG = "b" * 8_000


def contents(messages: Any) -> list[Any]:
    return [
        block["content"]
        for message in messages
        if hasattr(message, "message") and isinstance(message.message["content"], list)
        for block in message.message["content"]
        if block["type"] == "tool_result"
    ]


def talk_of(*results: Any) -> c.Talk:
    talk = c.Talk()
    talk.prompt("read them")
    for result in results:
        talk.round(result)
    talk.says("done")
    return talk


def test_old_oversized_results_are_cleared_and_the_recent_stay() -> None:
    talk = talk_of(BIG, "small", BIG, BIG)
    before = copy.deepcopy(talk.messages)
    found = microcompact(talk.messages, keep_recent=2, factory=talk.make)
    assert contents(found.messages) == [CLEARED_RESULT, "small", BIG, BIG]
    assert talk.messages == before
    boundary = found.messages[-1]
    assert boundary is found.boundary
    assert found.metadata is not None
    saved = (8_000 - len(CLEARED_RESULT)) // 4
    assert to_wire(boundary)["microcompactMetadata"] == {
        "trigger": "auto",
        "preTokens": estimate_tokens(before),
        "tokensSaved": saved,
        "compactedToolIds": ["toolu_1"],
        "clearedAttachmentUUIDs": [],
    }
    assert estimate_tokens(before) - estimate_tokens(found.messages) in (saved, saved + 1)


def test_what_is_not_cleared_is_shared_and_a_cleared_message_keeps_its_identity() -> None:
    talk = talk_of(BIG, "x")
    cleared = talk.messages[2]
    cleared.tool_use_result = {"stdout": BIG}
    cleared.message["content"][0]["is_error"] = True
    found = microcompact(talk.messages, keep_recent=0)
    changed = [n for n, m in enumerate(found.messages[:-1]) if m is not talk.messages[n]]
    assert changed == [2]
    new: Any = found.messages[2]
    assert (new.uuid, new.timestamp) == (cleared.uuid, cleared.timestamp)
    assert new.tool_use_result == {"stdout": BIG}
    assert new.message["content"][0] == {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": CLEARED_RESULT,
        "is_error": True,
    }


def test_a_result_that_no_answer_followed_is_never_cleared() -> None:
    talk = talk_of(BIG)
    talk.round(BIG, BIG)
    assert contents(microcompact(talk.messages, keep_recent=0).messages) == [CLEARED_RESULT, BIG, BIG]
    # Nor one that came while its own answer was still streaming.
    streaming = c.Talk()
    first, second = streaming.answer(
        *({"type": "tool_use", "id": f"t{n}", "name": "Read", "input": {}} for n in (1, 2))
    )
    messages = [first, streaming.make.tool_result("t1", BIG), second]
    assert microcompact(messages, keep_recent=0).messages == messages


def test_a_placeholder_longer_than_the_result_never_stands_in() -> None:
    talk = talk_of("a" * 39, "a" * 40, "a" * 41)
    assert len(CLEARED_RESULT) == 41
    assert microcompact(talk.messages, keep_recent=0, larger_than=0).boundary is None
    assert microcompact(talk.messages, keep_recent=0, larger_than=1, placeholder="p" * 500).boundary is None
    found = microcompact(talk.messages, keep_recent=0, larger_than=0, placeholder="p" * 40)
    assert contents(found.messages) == ["a" * 39, "a" * 40, "p" * 40]


def test_media_are_cleared_and_what_does_more_than_tell_stays() -> None:
    image = [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A"}}]
    reference = [{"type": "text", "text": BIG}, {"type": "tool_reference", "tool_name": "Grep"}]
    talk = talk_of(image, reference, None, 7, [BIG])
    found = microcompact(talk.messages, keep_recent=0)
    assert contents(found.messages) == [CLEARED_RESULT, reference, None, 7, [BIG]]


def test_options_limit_what_is_cleared() -> None:
    talk = c.Talk()
    talk.round(BIG, name="Read")
    talk.round(BIG, name="Bash")
    talk.says()
    assert contents(microcompact(talk.messages, keep_recent=0, tools=["Bash"]).messages) == [BIG, CLEARED_RESULT]
    assert microcompact(talk.messages, keep_recent=0, larger_than=2_000).boundary is None
    assert microcompact(talk.messages, keep_recent=0, at_least=10_000).messages is talk.messages
    assert microcompact(talk.messages, keep_recent=0, at_least=3_900).boundary is not None


def test_nothing_before_the_last_boundary_is_touched() -> None:
    talk = talk_of(BIG)
    talk.messages.append(make_boundary(CompactMetadata(), talk.messages))
    talk.messages.extend(talk_of(BIG).messages)
    assert contents(microcompact(talk.messages, keep_recent=0).messages) == [BIG, CLEARED_RESULT]


def test_a_replaced_oversized_attachment_is_left_out() -> None:
    talk = c.Talk()
    old = talk.attach(c.memory("/a", BIG))
    other = talk.attach(c.memory("/b", BIG))
    small = talk.attach(c.memory("/c", "x"))
    talk.says()
    talk.messages.extend(c.Talk(9).messages)
    newer = [talk.attach(c.memory(path, "new")) for path in ("/a", "/c")]
    found = microcompact(talk.messages)
    assert found.metadata is not None
    assert found.metadata.cleared_attachment_uuids == [old.uuid]
    assert found.metadata.compacted_tool_ids == []
    assert [m for m in found.messages if hasattr(m, "attachment")] == [other, small, *newer]
    assert found.metadata.tokens_saved == (8_000 + len("/a")) // 4
    assert apply_microcompact([*talk.messages, found.boundary]) == found.messages  # type: ignore[list-item]


@given(c.talks(), st.integers(0, 4), st.sampled_from([0, 10, 1_000]))
def test_properties(messages: list[Any], keep: int, larger: int) -> None:
    before = copy.deepcopy(messages)
    found = microcompact(messages, keep_recent=keep, larger_than=larger, factory=c.maker(1))
    # Pure; the pairing of tool_use and tool_result is as it was.
    assert messages == before
    assert c.pairs(found.messages) == c.pairs(before)
    # Idempotent.
    assert microcompact(found.messages, keep_recent=keep, larger_than=larger).boundary is None
    # The recent results stay, no result has grown, all messages but left-out attachments are there.
    old, new = contents(before), contents(found.messages)
    assert new[len(new) - keep :] == old[len(old) - keep :] if keep else True
    for then, now in zip(old, new, strict=True):
        assert now == then or (now == CLEARED_RESULT and len(json.dumps(then)) > len(json.dumps(now)))
    metadata = microcompact_metadata(found.boundary) if found.boundary is not None else None
    gone = set(metadata.cleared_attachment_uuids or ()) if metadata is not None else set()
    assert [m.uuid for m in found.messages if not is_microcompact_boundary(m)] == [  # type: ignore[union-attr]
        m.uuid for m in before if m.uuid not in gone
    ]
    if metadata is not None:
        cleared = [ident for ident, then, now in zip(c.pairs(before)[1], old, new, strict=True) if then != now]
        assert metadata.compacted_tool_ids == cleared
        # What a file kept is cleared again by what the boundary says.
        assert apply_microcompact([*messages, found.boundary]) == list(found.messages)


@given(c.talks(), st.integers(1, 5))
def test_the_operator_is_the_list_function_whatever_the_batches(messages: list[Any], size: int) -> None:
    expected = list(microcompact(messages, keep_recent=1, factory=c.maker(1)).messages)
    operator = clear_old_results(keep_recent=1, factory=c.maker(1))
    batches = [messages[at : at + size] for at in range(0, len(messages), size)]
    assert [item for batch in run_batches(batches, operator) for item in batch] == expected
    assert run_stages(messages, clear_old_results(keep_recent=1, factory=c.maker(1))) == expected


def test_a_broken_source_gives_what_came_unchanged() -> None:
    messages = talk_of(BIG).messages
    operator = clear_old_results(keep_recent=0)
    assert [i for batch in run_batches([messages], operator, error=OSError("cut")) for i in batch] == messages


@pytest.mark.parametrize("name", ["cli__91-b42542f24f-0", "cli__76-62d755ef9f-2", "skills__2d-bbbaf5d2c9-1"])
def test_real_transcripts_are_shortened_and_keep_their_pairs(name: str) -> None:
    path = recordings.need("microcompaction of transcripts") / f"transcripts/entire/{name}.jsonl"
    lines = [line for line in split_lines(path.read_bytes()) if line]
    messages: list[Any] = [decode_line(line) for line in lines]
    found = microcompact(messages)
    assert found.metadata is not None
    assert found.metadata.tokens_saved
    assert c.pairs(found.messages) == c.pairs(messages)
    assert [encode(m) for m in messages] == lines
    assert microcompact(found.messages).boundary is None
    changed = [(old, new) for old, new in zip(messages, found.messages, strict=False) if new is not old]
    assert changed
    for old, new in changed:
        was, now = json.loads(encode(old)), json.loads(encode(new))
        assert list(was) == list(now)
        assert {key for key in was if was[key] != now[key]} == {"message"}
        assert len(encode(new)) < len(encode(old))
