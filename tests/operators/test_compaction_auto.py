"""``compact`` and ``auto_compact`` (WIRE.md §6): summary first, what is kept as it was, attachments once."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

import compacting as c
import pytest
import recordings
from hypothesis import given
from hypothesis import strategies as st
from request_rules import check_request

from turnstream.messages import (
    APIError,
    AttachmentMessage,
    Tombstone,
    UserMessage,
    decode_line,
    encode,
    split_lines,
    to_wire,
)
from turnstream.operators.compaction import (
    CLEARED_RESULT,
    CompactionError,
    PreservedSegment,
    after_boundary,
    auto_compact,
    compact,
    compact_metadata,
    estimate_tokens,
    is_compact_boundary,
    is_microcompact_boundary,
    is_prompt_too_long,
    rough_tokens,
)
from turnstream.operators.normalize.api import normalize_for_api, request_messages

BIG = "b" * 40_000


def kinds(messages: Any) -> list[str]:
    return [getattr(m, "subtype", None) or type(m).__name__ for m in messages]


def long_talk() -> c.Talk:
    talk = c.Talk()
    talk.attach(c.memory("/a", "m"))
    for _ in range(5):
        talk.prompt("p" * 400)
        talk.round("r" * 400)
        talk.says("s" * 400)
    return talk


def do(messages: Any, summarize: Any = None, **options: Any) -> Any:
    options.setdefault("normalize", c.plain)
    options.setdefault("factory", c.maker(99))
    return c.run(compact(messages, summarize or c.Summarizer(), **options))


def auto(messages: Any, threshold: int, summarize: Any, **options: Any) -> Any:
    options.setdefault("normalize", c.plain)
    options.setdefault("factory", c.maker(99))
    return c.run(auto_compact(threshold, summarize, **options)(messages))


def test_the_result_is_boundary_summary_kept_messages_attachments() -> None:
    talk = long_talk()
    before = copy.deepcopy(talk.messages)
    summarizer = c.Summarizer("what happened")
    result = do(talk.messages, summarizer, keep_recent=3, user_context="mind the tests")
    boundary, summary, *rest = result.messages
    assert talk.messages == before
    kept = talk.messages[-3:]
    assert [m is k for m, k in zip(rest, kept, strict=False)] == [True] * 3
    assert [m.attachment for m in rest[3:]] == [c.memory("/a", "m")]
    assert to_wire(summary) == {
        "type": "user",
        "message": {"role": "user", "content": "what happened"},
        "uuid": summary.uuid,
        "timestamp": summary.timestamp,
        "isMeta": True,
        "isVisibleInTranscriptOnly": True,
        "isCompactSummary": True,
    }
    wire = to_wire(boundary)
    assert wire["logicalParentUuid"] == talk.messages[-1].uuid
    assert wire["compactMetadata"] == {
        "trigger": "manual",
        "preTokens": estimate_tokens(before),
        "userContext": "mind the tests",
        "messagesSummarized": 5 * 4 - 3,
        "preservedSegment": {"headUuid": kept[0].uuid, "anchorUuid": summary.uuid, "tailUuid": kept[-1].uuid},
    }
    assert compact_metadata(boundary) == result.metadata
    # The summarizer got what isn't kept, without the attachment.
    assert summarizer.asked == [before[1:-3]]
    assert (result.kind, result.pre_tokens) == ("full", estimate_tokens(before))
    assert result.post_tokens == estimate_tokens(result.messages) < result.pre_tokens
    # Requests take exactly this from memory that keeps everything.
    assert after_boundary([*talk.messages, *result.messages]) == result.messages


def test_nothing_kept_has_no_preserved_segment() -> None:
    result = do(long_talk().messages, keep_recent=0)
    assert kinds(result.messages) == ["compact_boundary", "UserMessage", "AttachmentMessage"]
    assert "preservedSegment" not in to_wire(result.messages[0])["compactMetadata"]


def test_the_segment_names_chain_members_only() -> None:
    talk = long_talk()
    talk.progress()
    shown = talk.prompt("shown", is_virtual=True)
    result = do(talk.messages, keep_recent=2)
    segment = compact_metadata(result.messages[0]).preserved_segment
    says = talk.messages[-3]
    assert segment == PreservedSegment(head_uuid=says.uuid, anchor_uuid=result.messages[1].uuid, tail_uuid=says.uuid)
    assert shown in result.messages


def test_a_second_compaction_carries_the_first_summary_on() -> None:
    talk = long_talk()
    first = do(talk.messages, c.Summarizer("one"), keep_recent=1)
    more = c.Talk(8)
    more.answers = 50
    more.prompt("more")
    more.says()
    summarizer = c.Summarizer("two")
    memory = [*talk.messages, *first.messages, *more.messages]
    second = do(memory, summarizer, keep_recent=1, factory=c.maker(100))
    assert "one" in [m.message["content"] for m in summarizer.asked[0]]
    assert second.metadata.messages_summarized == 2  # the kept answer and the new prompt; a summary is no message
    assert [m.message["content"] for m in second.messages if isinstance(m, UserMessage)] == ["two"]
    assert [m.attachment for m in second.messages if isinstance(m, AttachmentMessage)] == [c.memory("/a", "m")]


def test_fault_53_an_attachment_in_the_kept_tail_is_there_once_after_compaction() -> None:
    talk = long_talk()
    memory_text = "m" * 20_000
    for _ in range(3):
        talk.attach(c.memory("/CLAUDE.md", memory_text))
        talk.prompt("x" * 4_000)
        talk.says("y" * 4_000)
    kept = talk.attach(c.memory("/CLAUDE.md", memory_text))
    talk.says("z")
    result = do(talk.messages, keep_recent=3)
    attached = [m for m in result.messages if isinstance(m, AttachmentMessage)]
    assert [m.attachment["path"] for m in attached] == ["/CLAUDE.md", "/a"]
    assert attached[0] is kept
    # One copy of the memory, the short summary and three kept messages; nothing else fills the context.
    spoken = sum(
        len(text) for text in ("the summary", "x" * 4_000, "y" * 4_000, "z", memory_text, "/CLAUDE.md", "/a", "m")
    )
    assert rough_tokens(result.messages) == -(-spoken // 4)
    assert rough_tokens(result.messages) < rough_tokens(talk.messages) * 0.35


def test_fault_53_repeats_inside_the_kept_tail_leave_the_newest() -> None:
    talk = long_talk()
    talk.attach(c.memory("/m", "1"))
    talk.prompt()
    newest = talk.attach(c.memory("/m", "2"))
    talk.says()
    result = do(talk.messages, keep_recent=3)
    assert [m for m in result.messages if isinstance(m, AttachmentMessage) and m.attachment["path"] == "/m"] == [newest]


def test_fault_61_compaction_leaves_no_result_without_its_use() -> None:
    talk = c.Talk()
    talk.prompt("x")
    talk.round("1", "2", "3")
    for keep in range(1, 6):
        result = do(talk.messages, keep_recent=keep)
        uses, results = c.pairs(result.messages)
        assert uses == results
        assert kinds(result.messages[2:3]) == ["AssistantMessage"]


def test_what_was_taken_back_is_neither_summarized_nor_kept() -> None:
    talk = long_talk()
    early = talk.messages[1]
    late = talk.says("taken back")
    talk.messages.extend(Tombstone(message=message) for message in (early, late))
    summarizer = c.Summarizer()
    result = do(talk.messages, summarizer, keep_recent=1)
    assert early not in summarizer.asked[0]
    last = talk.messages[-4]
    assert result.messages[2:3] == [last]
    assert to_wire(result.messages[0])["logicalParentUuid"] == last.uuid
    assert compact_metadata(result.messages[0]).preserved_segment.tail_uuid == last.uuid  # type: ignore[union-attr]
    assert "Tombstone" not in kinds(result.messages)


def test_a_queued_command_is_summarized_and_not_ordered_again() -> None:
    talk = c.Talk()
    command = talk.attach({"type": "queued_command", "prompt": "delete it"})
    talk.says()
    seen: list[Any] = []

    def normalize(messages: Any) -> Any:
        seen.extend(messages)
        return c.plain(messages)

    result = do(talk.messages, keep_recent=0, normalize=normalize)
    assert command in seen
    assert kinds(result.messages) == ["compact_boundary", "UserMessage"]


def test_fault_70_media_that_the_api_refuses_do_not_stop_the_compaction_too() -> None:
    """The summarizer gets words for media: a bad picture in the history must not brick /compact."""
    talk = c.Talk()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 99}}
    talk.prompt([{"type": "text", "text": "see"}, image])  # type: ignore[arg-type]
    talk.round([image, {"type": "document", "source": {"type": "base64", "data": "A"}}])
    talk.says()
    before = copy.deepcopy(talk.messages)
    summarizer = c.Summarizer()
    do(talk.messages, summarizer, keep_recent=0)
    assert talk.messages == before
    asked = summarizer.asked[0]
    assert asked[0].message["content"] == [{"type": "text", "text": "see"}, {"type": "text", "text": "[image]"}]
    assert asked[2].message["content"][0]["content"] == [
        {"type": "text", "text": "[image]"},
        {"type": "text", "text": "[document]"},
    ]
    assert asked[1] is talk.messages[1]


def test_nothing_to_summarize_is_a_typed_error() -> None:
    talk = c.Talk()
    talk.attach(c.memory("/a"))
    talk.prompt("first")
    summarizer = c.Summarizer()
    for messages in ([], talk.messages):
        with pytest.raises(CompactionError) as caught:
            do(messages, summarizer)
        assert caught.value.kind == "nothing_to_summarize"
    assert summarizer.asked == []


FAILURES = [
    (OSError("reset"), "summarizer_failed", False),
    (APIError("busy", error_type="overloaded_error", status=529, retryable=True), "summarizer_failed", True),
    (TimeoutError(), "summarizer_failed", False),
    ("", "empty_summary", True),
    (" \n\t", "empty_summary", True),
    (None, "not_a_text", False),
    (b"bytes", "not_a_text", False),
]


@pytest.mark.parametrize(("answer", "kind", "retryable"), FAILURES)
def test_a_failure_of_the_summarizer_is_typed_and_changes_nothing(answer: Any, kind: str, retryable: bool) -> None:
    talk = long_talk()
    before = copy.deepcopy(talk.messages)
    made: list[Any] = []
    factory = c.maker()
    ids = factory.ids
    factory.ids = lambda *scope: made.append(scope) or ids(*scope)  # type: ignore[func-returns-value]
    for start in (
        lambda: do(talk.messages, c.Summarizer(answer), factory=factory),
        lambda: auto(talk.messages, 10, c.Summarizer(answer), factory=factory),
    ):
        with pytest.raises(CompactionError) as caught:
            start()
        assert (caught.value.kind, caught.value.retryable) == (kind, retryable)
        assert caught.value.__cause__ is (answer if isinstance(answer, Exception) else None)
    assert talk.messages == before
    assert made == []


def test_a_cancellation_reaches_the_summarizer_and_changes_nothing() -> None:
    talk = long_talk()
    before = copy.deepcopy(talk.messages)
    steps: list[str] = []

    async def main() -> None:
        started = asyncio.Event()

        async def summarize(messages: Any) -> str:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                steps.append("cleaned up")
            return "never"

        task = asyncio.create_task(auto_compact(10, summarize, normalize=c.plain)(talk.messages))  # type: ignore[arg-type]
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        steps.append("cancelled")
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert steps == ["cleaned up", "cancelled"]
    assert talk.messages == before


def test_messages_that_come_meanwhile_are_not_taken_in() -> None:
    talk = long_talk()
    size = len(talk.messages)

    async def summarize(messages: Any) -> str:
        talk.prompt("meanwhile")
        return "sum"

    result = do(talk.messages, summarize, keep_recent=1)
    late = talk.messages[size:]
    assert [m.message["content"] for m in late] == ["meanwhile"]
    assert late[0] not in result.messages
    assert to_wire(result.messages[0])["logicalParentUuid"] == talk.messages[size - 1].uuid


TOO_LONG = APIError(
    "prompt is too long: 210000 tokens > 200000 maximum", error_type="invalid_request_error", status=400
)


def test_a_prompt_too_long_for_the_summarizer_is_asked_again_shorter() -> None:
    talk = c.Talk()
    talk.messages.append(talk.make.compact_summary("the first part"))
    for _ in range(8):
        talk.round(BIG)
        talk.prompt("go on")
    talk.says()
    summarizer = c.Summarizer(TOO_LONG, TOO_LONG, TOO_LONG, "at last")
    result = do(talk.messages, summarizer, keep_recent=0)
    assert result.messages[1].message["content"] == "at last"
    assert [len(asked) for asked in summarizer.asked] == [26, 26, 12, 6]
    first, second, *_ = summarizer.asked
    assert BIG in json.dumps([m.message for m in first])
    assert BIG not in json.dumps([m.message for m in second])
    for asked in summarizer.asked:
        assert asked[0].message["content"] == "the first part"
        uses, results = c.pairs(asked)
        assert uses == results
    assert result.metadata.messages_summarized == len(summarizer.asked[-1]) - 1


def test_a_prompt_that_stays_too_long_fails_in_the_end() -> None:
    talk = long_talk()
    summarizer = c.Summarizer(*[TOO_LONG] * 4)
    with pytest.raises(CompactionError) as caught:
        do(talk.messages, summarizer)
    assert caught.value.__cause__ is TOO_LONG
    assert len(summarizer.asked) == 4


def test_words_types_and_status_say_that_a_prompt_was_too_long() -> None:
    assert is_prompt_too_long(TOO_LONG)
    assert is_prompt_too_long(APIError("big", error_type="request_too_large"))
    assert is_prompt_too_long(APIError("big", error_type="unknown", status=413))
    assert is_prompt_too_long(RuntimeError("input length and `max_tokens` exceed context limit: 190000 + 20000"))
    assert not is_prompt_too_long(APIError("busy", error_type="overloaded_error", status=529))


def test_below_the_threshold_nothing_happens() -> None:
    talk = long_talk()
    summarizer = c.Summarizer()
    tokens = estimate_tokens(talk.messages)
    result = auto(talk.messages, tokens + 1, summarizer)
    assert (result.kind, result.messages, result.metadata) == ("none", talk.messages, None)
    assert (result.pre_tokens, result.post_tokens) == (tokens, tokens)
    assert auto(talk.messages, tokens, summarizer).kind == "full"
    assert len(summarizer.asked) == 1


def test_a_microcompaction_that_is_enough_asks_no_model() -> None:
    talk = c.Talk()
    for _ in range(6):
        talk.round(BIG)
    talk.says()
    summarizer = c.Summarizer()
    result = auto(talk.messages, 50_000, summarizer, keep_results=3)
    assert (result.kind, summarizer.asked) == ("micro", [])
    assert is_microcompact_boundary(result.messages[-1])
    assert result.metadata.compacted_tool_ids == ["toolu_1", "toolu_2", "toolu_3"]
    assert result.pre_tokens > 60_000
    assert result.post_tokens == estimate_tokens(result.messages) < 50_000
    # The next turn finds it short enough.
    assert auto(result.messages, 50_000, summarizer).kind == "none"


def test_a_microcompaction_that_is_not_enough_is_followed_by_a_summary() -> None:
    talk = c.Talk()
    for _ in range(8):
        talk.round(BIG)
        talk.prompt("x" * 4_000)
    talk.says("end")
    before = copy.deepcopy(talk.messages)
    summarizer = c.Summarizer()
    result = auto(talk.messages, 5_000, summarizer, keep_recent=2, keep_results=0)
    assert (result.kind, result.metadata.trigger) == ("full", "auto")
    assert kinds(result.messages) == ["compact_boundary", "UserMessage", "UserMessage", "AssistantMessage"]
    assert result.metadata.pre_tokens == estimate_tokens(before)
    # The summarizer needn't read what would have been cleared; the conversation itself is as it was.
    asked = json.dumps([m.message for m in summarizer.asked[0]])
    assert BIG not in asked
    assert asked.count(CLEARED_RESULT) == 8
    assert talk.messages == before
    assert auto(result.messages, 5_000, summarizer).kind == "none"


def test_auto_keeps_at_most_half_the_threshold() -> None:
    talk = c.Talk()
    for _ in range(6):
        talk.prompt("x" * 4_000)
    talk.says("end")
    result = auto(talk.messages, 6_000, c.Summarizer(), keep_recent=6)
    assert len(result.messages) == 2 + 3  # two prompts of 1,000 tokens and the answer
    assert rough_tokens(result.messages[2:]) <= 3_000
    assert len(auto(talk.messages, 6_000, c.Summarizer(), keep_recent=6, keep_tokens=10**6).messages) == 2 + 6


def test_where_little_can_be_done_auto_does_not_fail() -> None:
    talk = c.Talk()
    talk.prompt(BIG)
    summarizer = c.Summarizer()
    result = auto(talk.messages, 100, summarizer)
    assert (result.kind, result.messages, summarizer.asked) == ("none", talk.messages, [])
    # A context that is nothing but a long summary isn't summarized over and over.
    alone = [talk.make.compact_summary(BIG)]
    assert auto(alone, 100, summarizer).kind == "none"


def test_the_estimator_is_pluggable() -> None:
    talk = long_talk()
    asked: list[int] = []

    def by_count(messages: Any) -> int:
        asked.append(len(messages))
        return len(messages)

    result = auto(talk.messages, 5, c.Summarizer(), estimate=by_count, keep_recent=1)
    assert (result.pre_tokens, result.post_tokens) == (len(talk.messages), len(result.messages))
    assert auto(talk.messages, 10**6, c.Summarizer(), estimate=by_count).kind == "none"
    assert asked


@pytest.mark.parametrize("threshold", [0, -1])
def test_a_threshold_must_be_positive(threshold: int) -> None:
    with pytest.raises(ValueError, match="threshold"):
        auto_compact(threshold, c.Summarizer())


@given(c.talks(), st.integers(0, 6), st.sampled_from([0, 2_000, float("inf")]))
def test_properties(messages: list[Any], keep: int, budget: float) -> None:
    before = copy.deepcopy(messages)
    failure, result = None, None
    try:
        result = do(messages, keep_recent=keep, keep_tokens=budget)
    except CompactionError as error:
        failure = error.kind
    assert messages == before
    if result is None:
        assert failure == "nothing_to_summarize"
        return
    memory = [*messages, *result.messages]
    boundary, summary, *rest = after_boundary(memory)
    # The slice holds the summary first, then what was kept, as it was and in order.
    assert is_compact_boundary(boundary)
    assert isinstance(summary, UserMessage)
    assert summary.is_compact_summary
    olds = {id(m): n for n, m in enumerate(messages)}
    kept = [m for m in rest if id(m) in olds]
    again = rest[len(kept) :]
    assert all(id(m) in olds for m in rest[: len(kept)])
    assert [olds[id(m)] for m in kept] == sorted(olds[id(m)] for m in kept)
    if kept:
        start = olds[id(kept[0])]
        left_out = [m for m in messages[start:] if id(m) not in {id(k) for k in kept}]
        assert all(isinstance(m, AttachmentMessage) for m in left_out)
    # Each standing attachment exactly once, in its newest form.
    assert all(isinstance(m, AttachmentMessage) for m in again)
    newest = {m.attachment["path"]: m.attachment for m in messages if getattr(m, "attachment", {}).get("path")}
    found = [m.attachment for m in rest if isinstance(m, AttachmentMessage) and "path" in m.attachment]
    assert sorted(map(repr, found)) == sorted(map(repr, newest.values()))
    # The kept tail never begins with, nor holds, a result whose use is summarized.
    uses, results = c.pairs(rest)
    assert not set(results) - set(uses)
    # What was written is read back the same.
    assert decode_line(encode(boundary)) == boundary


def test_everything_from_boundary_to_summary_can_be_made_again_the_same() -> None:
    one, two = (do(long_talk().messages, factory=c.maker(3)) for _ in range(2))
    assert one == two


@pytest.mark.parametrize("name", ["cli__91-b42542f24f-0", "cli__76-62d755ef9f-2", "skills__2d-bbbaf5d2c9-1"])
def test_real_transcripts_are_compacted(name: str) -> None:
    path = recordings.need("compaction of transcripts") / f"transcripts/entire/{name}.jsonl"
    messages: list[Any] = [decode_line(line) for line in split_lines(path.read_bytes()) if line]
    messages = [m for m in messages if not getattr(m, "extra", None) or not m.extra.get("isSidechain")]
    result = do(messages, keep_recent=6)
    assert result.post_tokens < result.pre_tokens
    uses, results = c.pairs(result.messages)
    assert not set(results) - set(uses)
    segment = result.metadata.preserved_segment
    assert {segment.head_uuid, segment.tail_uuid} <= {getattr(m, "uuid", None) for m in messages}
    assert auto(result.messages, result.post_tokens + 1, c.Summarizer()).kind == "none"


def test_the_default_normalizer_makes_a_request_of_what_is_summarized() -> None:
    talk = long_talk()
    talk.progress()
    talk.prompt("last")
    summarizer = c.Summarizer()
    c.run(compact(talk.messages, summarizer, keep_recent=1))
    asked = summarizer.asked[0]
    assert {type(m).__name__ for m in asked} == {"UserMessage", "AssistantMessage"}
    assert all(isinstance(m.message["content"], list) for m in asked)
    uses, results = c.pairs(asked)
    assert uses == results == [f"toolu_{n}" for n in range(1, 6)]


@given(c.talks(), st.integers(0, 6))
def test_the_request_after_compaction_begins_with_the_summary(messages: list[Any], keep: int) -> None:
    summarizer = c.Summarizer("what was said")
    try:
        result = c.run(compact(messages, summarizer, keep_recent=keep))
    except CompactionError:
        assert summarizer.asked == []
        return
    request = request_messages(normalize_for_api([*messages, *result.messages]))
    first = request[0]
    assert first["role"] == "user"
    texts = [block["text"] for block in first["content"] if block["type"] == "text"]
    # Attachments may move up before it (WIRE.md §4, 2), no message does.
    before = texts[: texts.index("what was said")]
    assert all(text == "also this" or text.startswith("<system-reminder>") for text in before)
    uses = [b["id"] for m in request for b in m["content"] if b["type"] == "tool_use"]
    results = [b["tool_use_id"] for m in request for b in m["content"] if b["type"] == "tool_result"]
    assert uses == results
    # Nothing of what the summary stands for comes twice.
    kept = c.pairs(result.messages)[0]
    assert set(uses) <= set(kept)


@pytest.mark.parametrize("name", ["cli__91-b42542f24f-0", "cli__76-62d755ef9f-2", "skills__2d-bbbaf5d2c9-1"])
def test_the_summarizers_request_of_a_real_transcript_keeps_the_rules(name: str) -> None:
    path = recordings.need("compaction of transcripts") / f"transcripts/entire/{name}.jsonl"
    messages: list[Any] = [decode_line(line) for line in split_lines(path.read_bytes()) if line]
    summarizer = c.Summarizer()
    result = c.run(compact(messages, summarizer, keep_recent=6))
    for conversation in (summarizer.asked[0], normalize_for_api(result.messages)):
        # A request without tools can't hold references to any.
        said = request_messages(normalize_for_api(conversation, tools=[]))
        body = {"model": "claude-sonnet-4-5", "max_tokens": 1024, "messages": said}
        assert check_request(body) == []
