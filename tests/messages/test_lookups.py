"""MessageLookups against a plain model that looks through the whole list for each question (WIRE.md §2)."""

from __future__ import annotations

from typing import Any

import pytest
import recordings
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstream.messages import (
    AssistantMessage,
    AttachmentMessage,
    Message,
    MessageFactory,
    MessageLookups,
    ProgressMessage,
    SystemMessage,
    Tombstone,
    UserMessage,
    decode_line,
)

MAKE = MessageFactory()
IDS = ["a", "b", "c", "d"]
EVENTS = ["PreToolUse", "PostToolUse", "Stop"]
ENDS = {
    "hook_success",
    "hook_cancelled",
    "hook_blocking_error",
    "hook_non_blocking_error",
    "hook_error_during_execution",
}


def call(ident: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": ident, "name": "n", "input": {}}


def answer(ident: str, *blocks: dict[str, Any]) -> AssistantMessage:
    message = MAKE.assistant(list(blocks))
    message.message["id"] = ident
    return message


def hook(tool_use_id: str, event: str) -> ProgressMessage:
    return MAKE.progress(tool_use_id, tool_use_id, {"type": "hook_progress", "hookEvent": event, "hookName": event})


def hook_end(tool_use_id: str, event: str, kind: str = "hook_success") -> AttachmentMessage:
    return MAKE.attachment({"type": kind, "toolUseID": tool_use_id, "hookEvent": event})


def answers(lookups: MessageLookups, ids: list[str]) -> dict[str, Any]:
    """All that can be asked."""
    out: dict[str, Any] = {"count": lookups.normalized_count, "unresolved": sorted(lookups.unresolved())}
    for ident in ids:
        out[ident] = (
            set(lookups.siblings(ident)),
            lookups.progress(ident),
            lookups.latest_progress(ident),
            lookups.running_hooks(ident),
            lookups.result(ident),
            lookups.result_block(ident),
            lookups.tool_use(ident),
            lookups.asked_by(ident),
            lookups.is_resolved(ident),
            lookups.is_errored(ident),
        )
    return out


def naive(messages: list[Message], ids: list[str]) -> dict[str, Any]:
    """The same from the rules alone: for each question through the whole list (ids used by one answer only)."""
    gone = {m.message.uuid for m in messages if isinstance(m, Tombstone)}
    rest = [m for m in messages if not isinstance(m, Tombstone) and m.uuid not in gone]  # type: ignore[union-attr]
    blocks = [
        (m, b)
        for m in rest
        if isinstance(m, UserMessage | AssistantMessage)
        for b in (m.message["content"] if isinstance(m.message["content"], list) else [])
    ]
    out: dict[str, Any] = {}
    out["count"] = sum(
        len(m.message["content"]) or 1
        if isinstance(m, UserMessage | AssistantMessage) and isinstance(m.message["content"], list)
        else 1
        for m in rest
    )
    resolved = {b["tool_use_id"] for _, b in blocks if b["type"] == "tool_result"}
    uses = {b["id"]: (m, b) for m, b in blocks if b["type"] == "tool_use"}
    out["unresolved"] = sorted(set(uses) - resolved)
    for ident in ids:
        asked, use = uses.get(ident, (None, None))
        siblings = {i for i, (m, _) in uses.items() if asked is not None and m.message["id"] == asked.message["id"]}
        progress = [m for m in rest if isinstance(m, ProgressMessage) and m.parent_tool_use_id == ident]
        running = {}
        for event in EVENTS:
            count = sum(1 for m in progress if m.data.get("hookEvent") == event)
            for m in rest:
                if isinstance(m, AttachmentMessage) and m.attachment["type"] in ENDS:
                    if (m.attachment["toolUseID"], m.attachment["hookEvent"]) == (ident, event):
                        count -= 1
            if count > 0 and not (event == "PreToolUse" and ident in resolved):
                running[event] = count
        result = [(m, b) for m, b in blocks if b["type"] == "tool_result" and b["tool_use_id"] == ident]
        last, block = result[-1] if result else (None, None)
        out[ident] = (
            siblings,
            progress,
            progress[-1] if progress else None,
            running,
            last,
            block,
            use,
            asked,
            ident in resolved,
            bool(block and block.get("is_error")),
        )
    return out


# Tool uses belong to one answer each, so that "the later one counts" needs no rule here; a case of its own below.
OWNER = {"a": "msg_1", "b": "msg_1", "c": "msg_2", "d": "msg_3"}


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    messages: list[Message] = []
    asked: set[str] = set()
    for _ in range(draw(st.integers(0, 14))):
        ident = draw(st.sampled_from(IDS))
        match draw(st.integers(0, 8)):
            case 0 | 1 if ident not in asked:
                asked.add(ident)
                messages.append(answer(OWNER[ident], call(ident)))
            case 2:
                done = draw(st.lists(st.sampled_from(IDS), min_size=1, max_size=2, unique=True))
                results = [{"type": "tool_result", "tool_use_id": i, "is_error": draw(st.booleans())} for i in done]
                messages.append(MAKE.user(results))
            case 3:
                messages.append(MAKE.progress("x", ident, {"type": "bash_progress"}))
            case 4:
                messages.append(hook(ident, draw(st.sampled_from(EVENTS))))
            case 5:
                kind = draw(st.sampled_from([*sorted(ENDS), "hook_additional_context"]))
                messages.append(hook_end(ident, draw(st.sampled_from(EVENTS)), kind))
            case 6:
                messages.append(MAKE.user(draw(st.sampled_from(["text", [{"type": "text", "text": "x"}] * 3]))))
            case 7:
                messages.append(MAKE.informational("notice"))
            case _:
                pass
    return messages


@settings(max_examples=150, deadline=None)
@given(conversations())
def test_one_pass_agrees_with_looking_through_everything(messages: list[Message]) -> None:
    assert answers(MessageLookups(messages), IDS) == naive(messages, IDS)


@settings(max_examples=100, deadline=None)
@given(conversations())
def test_adding_one_by_one_equals_a_rebuild_after_each(messages: list[Message]) -> None:
    grown = MessageLookups()
    for number, message in enumerate(messages, 1):
        grown.add(message)
        rebuilt = MessageLookups(messages[:number])
        assert answers(grown, IDS) == answers(rebuilt, IDS) == naive(messages[:number], IDS)


@settings(max_examples=100, deadline=None)
@given(conversations(), st.data())
def test_a_tombstone_takes_its_message_out(messages: list[Message], data: st.DataObject) -> None:
    speech = [m for m in messages if isinstance(m, AssistantMessage)]
    if speech:
        gone = data.draw(st.sampled_from(speech))
        messages = [*messages, Tombstone(message=gone)]
    assert answers(MessageLookups(messages), IDS) == naive(messages, IDS)


def test_siblings_are_in_order_and_include_itself() -> None:
    lookups = MessageLookups([answer("m", call("b"), call("a")), answer("m", call("c")), answer("n", call("d"))])
    assert lookups.siblings("a") == lookups.siblings("c") == ("b", "a", "c")
    assert lookups.siblings("d") == ("d",)
    assert lookups.siblings("unknown") == ()


def test_the_later_result_counts() -> None:
    failed, fine = MAKE.tool_result("a", "no", is_error=True), MAKE.tool_result("a", "yes")
    lookups = MessageLookups([answer("m", call("a")), failed])
    assert (lookups.result("a"), lookups.is_errored("a")) == (failed, True)
    lookups.add(fine)
    assert (lookups.result("a"), lookups.is_errored("a")) == (fine, False)


def test_an_id_used_again_by_a_later_answer_starts_anew() -> None:
    again = answer("m2", call("a"))
    lookups = MessageLookups(
        [answer("m1", call("a"), call("b")), hook("a", "PreToolUse"), MAKE.tool_result("a", "x"), again]
    )
    assert not lookups.is_resolved("a")
    assert lookups.asked_by("a") is again
    assert lookups.siblings("a") == ("a",)
    assert lookups.siblings("b") == ("b",)
    assert lookups.progress("a") == []


def test_the_same_message_again_changes_nothing() -> None:
    messages: list[Message] = [
        answer("m", call("a")),
        hook("a", "PostToolUse"),
        MAKE.tool_result("a", "x"),
        hook_end("b", "Stop"),
    ]
    once, twice = MessageLookups(messages), MessageLookups([*messages, *messages])
    assert answers(once, IDS) == answers(twice, IDS)


def test_a_stop_hook_summary_ends_the_stop_hooks() -> None:
    messages: list[Message] = [hook("h", "Stop"), hook("h", "Stop"), hook("h", "SessionStart")]
    lookups = MessageLookups(messages)
    assert lookups.running_hooks("h") == {"Stop": 2, "SessionStart": 1}
    lookups.add(MAKE.stop_hook_summary([], tool_use_id="h"))
    assert lookups.running_hooks("h") == {"SessionStart": 1}


def test_server_tools_are_resolved_by_blocks_of_an_assistant_message() -> None:
    use = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    other = {**use, "id": "s2"}
    good = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    bad = {
        "type": "web_search_tool_result",
        "tool_use_id": "s2",
        "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"},
    }
    lookups = MessageLookups([answer("m", use, other), answer("m", good, bad)])
    assert lookups.result_block("s1") == good
    assert (lookups.is_errored("s1"), lookups.is_errored("s2")) == (False, True)
    assert list(lookups.unresolved()) == []


def test_a_tombstone_read_from_a_file_names_its_message_by_uuid() -> None:
    asked = answer("m", call("a"))
    lookups = MessageLookups([asked, Tombstone(message={"uuid": asked.uuid})])
    assert lookups.tool_use("a") is None
    assert lookups.normalized_count == 0
    lookups.add(Tombstone(message=None))
    assert lookups.normalized_count == 0
    read = decode_line(b'{"type":"tombstone","message":{"uuid":"%s"}}' % asked.uuid.encode())
    assert MessageLookups([asked, read]).normalized_count == 0


@pytest.mark.parametrize(
    "content",
    [None, 5, {}, [None, "x", {"type": "tool_use"}, {"type": "tool_result"}], [{"type": ["tool_use"]}, {"type": {}}]],
)
def test_odd_content_is_taken(content: Any) -> None:
    message = UserMessage(message={"content": content}, uuid="u", timestamp="")
    odd = AssistantMessage(message={"content": content}, uuid="a", timestamp="")
    hook = AttachmentMessage(attachment={"type": ["hook_success"]}, uuid="", timestamp="")
    lookups = MessageLookups([message, odd, hook, ProgressMessage(data=None, uuid="", timestamp="")])
    assert list(lookups.unresolved()) == []
    lookups.add(Tombstone(message=odd))
    lookups.add(Tombstone(message=message))
    assert lookups.normalized_count == 2


def test_recorded_sessions_agree_with_the_plain_model_on_results() -> None:
    folder = recordings.need("lookups") / "transcripts"
    tools = 0
    for path in sorted(folder.rglob("*.jsonl")):
        messages = [decode_line(line) for line in path.read_bytes().split(b"\n")]
        lookups = MessageLookups(messages)
        for message in messages:
            if not isinstance(message, UserMessage):
                continue
            content = message.message.get("content")
            for block in content if isinstance(content, list) else ():
                if isinstance(block, dict) and block.get("type") == "tool_result":
                    tools += 1
                    assert lookups.is_resolved(block["tool_use_id"])
    assert tools > 800


def test_systems_count_as_one_and_strings_too() -> None:
    messages: list[Message] = [MAKE.user("x"), MAKE.informational("y"), answer("m", call("a"), call("b"))]
    assert isinstance(messages[1], SystemMessage)
    assert MessageLookups(messages).normalized_count == 4
    empty = AssistantMessage(message={"content": []}, uuid="e", timestamp="")
    assert MessageLookups([empty]).normalized_count == 1
