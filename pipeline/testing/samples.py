"""Items as a pipeline delivers them to its sinks: well formed ones, and awkward ones.

Made fresh at each call, with seeded ids and clock. They keep the order that ``accumulate`` promises
(WIRE.md §1, order, accumulation, attempts and ends).
"""

from __future__ import annotations

from typing import Any

from turnstream.messages import (
    AssistantMessage,
    CitationsDelta,
    CollapsedReadSearch,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    ErrorEvent,
    GroupedToolUse,
    InputJsonDelta,
    MessageDelta,
    MessageFactory,
    MessageStart,
    MessageStop,
    OpaqueRecord,
    Ping,
    RequestStart,
    ResponseFailed,
    Resync,
    SignatureDelta,
    StreamNote,
    TextDelta,
    ThinkingDelta,
    ToolUseSummary,
    UnknownDelta,
    UnknownEvent,
    UserMessage,
    seeded_clock,
    seeded_ids,
)

__all__ = ["awkward_items", "sample_items"]

_MODEL = "claude-sample-1"


class _Answer:
    """Builds one answer's items; all its messages share one usage dict, as ``accumulate`` makes them."""

    def __init__(self, make: MessageFactory, message_id: str, **usage: Any) -> None:
        self.make = make
        self.usage: dict[str, Any] = {"input_tokens": 25, "output_tokens": 1, **usage}
        self.envelope = {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": _MODEL,
            "stop_reason": None,
            "stop_sequence": None,
        }
        self.messages: list[AssistantMessage] = []
        self.items: list[Any] = [MessageStart({**self.envelope, "content": [], "usage": dict(self.usage)})]

    def message(self, content: list[Any], index: int | None = None, **fields: Any) -> AssistantMessage:
        message = AssistantMessage(
            message={**self.envelope, "content": content, "usage": self.usage},
            uuid=self.make.ids("assistant"),
            timestamp=self.make.timestamp(),
            request_id="req_sample",
            index=index,
            **fields,
        )
        self.messages.append(message)
        return message

    def block(self, index: int, start: dict[str, Any], deltas: list[Any], finished: dict[str, Any]) -> None:
        self.items.append(ContentBlockStart(start, index))
        self.items.extend(ContentBlockDelta(delta, index) for delta in deltas)
        self.items += [self.message([finished], index), ContentBlockStop(index)]

    def text(self, index: int, *parts: str) -> None:
        whole = {"type": "text", "text": "".join(parts)}
        self.block(index, {"type": "text", "text": ""}, [TextDelta(part) for part in parts], whole)

    def delta(self, stop_reason: str, **usage: Any) -> None:
        self.usage.update(usage)
        for message in self.messages:
            message.message["stop_reason"] = stop_reason
        self.items.append(MessageDelta({"stop_reason": stop_reason, "stop_sequence": None}, dict(usage)))


def sample_items(seed: int = 0) -> list[Any]:
    """One session: every item type, and every way for an answer to end."""
    make = MessageFactory(seeded_ids(seed), seeded_clock())
    items: list[Any] = [
        make.system("informational", "Sample session"),
        make.user("Read notes.txt and tell me what it says. 📄"),
        make.attachment({"type": "memory", "content": "The user likes short answers."}),
        RequestStart(attempt=1),
    ]
    items += _tool_answer(make)
    asked = next(item for item in reversed(items) if isinstance(item, AssistantMessage))
    items += [
        make.progress("toolu_1", None, {"type": "bash_progress", "output": "…"}),
        make.tool_result("toolu_1", "two lines\nof text", source=asked, tool_use_result={"lines": 2}),
        ToolUseSummary(
            summary="Read one file", uuid=make.ids(), timestamp=make.timestamp(), preceding_tool_use_ids=["toolu_1"]
        ),
        GroupedToolUse(tool_name="read", messages=(asked,), results=(), uuid=make.ids(), timestamp=make.timestamp()),
        CollapsedReadSearch(read_count=1, search_count=0, files=("a.py",), messages=(asked,), uuid=make.ids()),
        make.system("api_error", level="error", error="overloaded", retryInMs=500.0, retryAttempt=1, maxRetries=10),
        RequestStart(attempt=2),
    ]
    items += _superseded_and_failed(make)
    items += [
        make.system("compact_boundary", "Conversation compacted", compactMetadata={"trigger": "auto", "preTokens": 9}),
        make.compact_summary("The user asked for notes.txt."),
        RequestStart(attempt=1),
    ]
    items += _other_ends(make)
    items += [
        make.system("turn_duration", durationMs=1234, messageCount=7),
        make.interruption(),
        make.api_error("The request was too large.", api_error="prompt_too_long"),
        Resync(),
    ]
    return items


def _tool_answer(make: MessageFactory) -> list[Any]:
    """Thinking, cited text, a tool with input in pieces; ends by message_stop."""
    answer = _Answer(make, "msg_1", cache_read_input_tokens=100)
    answer.items.append(Ping())
    answer.block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        [ThinkingDelta("A file. "), ThinkingDelta("Read it."), ThinkingDelta("", 8), SignatureDelta("c2lnbmVk")],
        {"type": "thinking", "thinking": "A file. Read it.", "signature": "c2lnbmVk"},
    )
    citation = {"type": "char_location", "cited_text": "notes", "document_index": 0}
    answer.block(
        1,
        {"type": "text", "text": ""},
        [CitationsDelta(citation), TextDelta("I'll read "), TextDelta("it: naïve "), TextDelta("👩‍👩‍👧\u2028ok")],
        {"type": "text", "text": "I'll read it: naïve 👩‍👩‍👧\u2028ok", "citations": [citation]},
    )
    answer.block(
        2,
        {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}},
        [InputJsonDelta(""), InputJsonDelta('{"path": "no'), InputJsonDelta('tes.txt"}')],
        {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "notes.txt"}},
    )
    answer.delta("tool_use", output_tokens=61, output_tokens_details={"thinking_tokens": 8})
    return [*answer.items, MessageStop()]


def _superseded_and_failed(make: MessageFactory) -> list[Any]:
    """An attempt that a new start supersedes, and one that an error event cuts off."""
    first = _Answer(make, "msg_2")
    first.text(0, "The file ", "says")
    first.items.append(ContentBlockStart({"type": "text", "text": ""}, 1))
    tombstones = [make.tombstone(message) for message in first.messages]
    second = _Answer(make, "msg_3")
    second.text(0, "It says hello.")
    second.items += [ContentBlockStart({"type": "text", "text": ""}, 1), ContentBlockDelta(TextDelta("And th"), 1)]
    tool = {"type": "tool_use", "id": "toolu_2", "name": "Bash", "input": {}}
    second.items += [ContentBlockStart(tool, 2), ContentBlockDelta(InputJsonDelta('{"com'), 2)]
    partial = second.message(
        [{"type": "text", "text": "And th"}],
        is_aborted_mid_stream=True,
        unfinished_tool_inputs=[{"index": 2, "id": "toolu_2", "name": "Bash", "raw": '{"com'}],
    )
    error = {"type": "overloaded_error", "message": "Overloaded"}
    failed = ResponseFailed(
        error={**error, "status": None, "requestId": "req_sample", "retryable": True},
        kept=[{"type": "text", "text": "It says hello."}, {"type": "text", "text": "And th"}],
        outcome="api_error(overloaded_error)",
        event_number=9,
        byte_offset=812,
    )
    return [*first.items, *tombstones, *second.items, ErrorEvent(error), partial, failed]


def _other_ends(make: MessageFactory) -> list[Any]:
    """An answer without blocks, and one that ends without message_stop."""
    empty = _Answer(make, "msg_4")
    empty.delta("end_turn", output_tokens=2)
    empty.items += [empty.message([]), MessageStop()]
    empty.messages[0].message["stop_reason"] = "end_turn"
    noted = _Answer(make, "msg_5")
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "notes"}}
    noted.block(
        0, {"type": "redacted_thinking", "data": "ZGF0YQ=="}, [], {"type": "redacted_thinking", "data": "ZGF0YQ=="}
    )
    noted.block(1, search, [], search)
    noted.text(2, "Hello.")
    noted.delta("end_turn", output_tokens=12)
    return [*empty.items, RequestStart(), *noted.items, StreamNote(kind="no_message_stop", message="no message_stop")]


def awkward_items(seed: int = 1) -> list[Any]:
    """Items that a sink must survive, each by itself: unknown, out of order, with holes, hard to write.

    All of them can come out of a stream or a file that someone else wrote (WIRE.md §1 and §2).
    """
    make = MessageFactory(seeded_ids(seed), seeded_clock())
    lone = "half \ud83d of a pair \udc00"
    deep: Any = "bottom"
    for _ in range(150):
        deep = [deep]
    unlike = _Answer(make, "msg_awkward")
    return [
        # unknown
        UnknownEvent("brand_new_event", {"type": "brand_new_event", "x": 1}),
        UnknownEvent(None, "no JSON at all"),
        OpaqueRecord(type="future-record", data={"type": "future-record", "x": [1]}),
        OpaqueRecord(type=None, problem="not JSON"),
        StreamNote(kind="brand_new_kind", message="something lenient"),
        Resync(),
        make.system("brand_new_subtype", fields_of_it={"x": 1}),
        ContentBlockStart({"type": "brand_new_block", "x": 1}, 40),
        ContentBlockStart({}, 41),
        ContentBlockDelta(UnknownDelta("brand_new_delta", {"type": "brand_new_delta"}), 40),
        ContentBlockDelta(UnknownDelta(None, 7), None),
        # out of order, with holes
        ContentBlockDelta(TextDelta("never opened"), 99),
        ContentBlockDelta(InputJsonDelta("{"), None),
        ContentBlockStop(98),
        ContentBlockStop(None),
        MessageStart(),
        MessageStart({}),
        MessageDelta(),
        MessageDelta({}, {"output_tokens": None, "brand_new_tokens": 3}),
        MessageStop(),
        ErrorEvent(),
        ErrorEvent("just a string"),
        AssistantMessage(message={}, uuid="", timestamp=""),
        AssistantMessage(message={"role": "assistant", "content": "a string", "usage": None}, uuid="u", timestamp="t"),
        UserMessage(message={"content": [None, 3, {"no": "type"}]}, uuid="", timestamp="not a time"),
        ResponseFailed(error={}),
        make.tombstone(unlike.message([{"type": "text", "text": "never delivered"}])),
        # hard to write
        ContentBlockDelta(TextDelta(lone), 0),
        UnknownEvent("odd", {"type": "odd", lone: lone}),
        make.user(lone),
        make.tool_result("toolu_9", lone, tool_use_result={lone: lone}),
        unlike.message([{"type": "text", "text": lone}], 0),
        unlike.message([{"type": "tool_use", "id": lone, "name": lone, "input": {"big": 2**70, "deep": deep}}], 1),
        unlike.message([{"type": "tool_use", "id": "t", "name": "n", "input": '{"cut'}], 2, invalid_tool_input=True),
        make.progress("toolu_9", lone, {"type": lone}),
        make.attachment({"type": lone}),
        StreamNote(kind="note", message=lone),
        OpaqueRecord(type=lone, data={"type": lone}),
        ResponseFailed(error={"type": lone, "message": lone}, outcome=f"api_error({lone})"),
    ]
