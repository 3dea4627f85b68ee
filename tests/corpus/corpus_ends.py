"""How a stream ends, and what it is at all (WIRE.md §1, attempts and ends, outcome vocabulary, decided cases)."""

from __future__ import annotations

from typing import Any

from entry import Answer, Entry, marks, notes
from frames import (
    DONE,
    STOP,
    args,
    calls,
    opens_text,
    opens_thinking,
    opens_tool,
    says,
    signs,
    sse,
    start,
    text,
    text_block,
    thinking_block,
    thinks,
    tool_block,
    turn,
)

NO_START = "§1: no message_start at all … is incomplete; decided cases: its blocks are emitted under a made-up, marked envelope"
EOF = (
    "§1: EOF before message_stop is incomplete; finished blocks are kept, unfinished text and thinking are kept as a last "
    "message with isAbortedMidStream and stop_reason null"
)
ONE = [text_block("a")]


def ended(stop_reason: str, *covers: str, rule: str = "§1: stop_reason is an open set") -> Entry:
    return Entry(
        name=f"stop-reason-{stop_reason}",
        data=sse(start(), says("a"), turn(stop_reason), STOP),
        answers=(Answer(content=ONE, stop_reason=stop_reason),),
        rule=rule,
        covers=covers,
    )


def foreign(name: str, data: bytes, **more: Any) -> Entry:
    return Entry(
        name=name,
        data=data,
        answers=(Answer(outcome="not_a_stream", stop_reason=None),),
        rule="§1 decided cases: not_a_stream is a file without any known Anthropic event (OpenAI streams, HTML)",
        **more,
    )


ENTRIES = (
    *(
        ended(reason)
        for reason in ("max_tokens", "refusal", "pause_turn", "model_context_window_exceeded", "compaction", "xyzzy")
    ),
    ended("error", rule="§1 decided cases: a foreign stop_reason such as `error` is complete"),
    Entry(
        name="complete-without-message-stop",
        data=sse(start(), says("a"), turn()),
        answers=(Answer(content=ONE),),
        rule="§1: all blocks stopped and a stop_reason there counts as complete, noted `no_message_stop`",
        covers=("no-message_stop",),
        notes=notes("no_message_stop"),
    ),
    Entry(
        name="tool-answer-ended-by-done",
        data=sse(start(), calls(0, '{"a":1}'), turn("tool_use"), DONE),
        answers=(Answer(content=[tool_block({"a": 1})], stop_reason="tool_use"),),
        rule="§1: all blocks stopped and a stop_reason there counts as complete; `[DONE]` is ignored",
        covers=("[DONE]", "no-message_stop"),
        notes=notes("no_message_stop"),
    ),
    Entry(
        name="no-block-but-a-stop-reason",
        data=sse(start(), turn("stop_sequence", stop_sequence="x"), STOP),
        answers=(Answer(content=[], stop_reason="stop_sequence"),),
        rule="§1: an answer without blocks emits, at message_stop, one AssistantMessage with content `[]`",
        covers=("no-content-blocks",),
    ),
    Entry(
        name="no-block-and-no-message-stop",
        data=sse(start(), turn("max_tokens")),
        answers=(Answer(content=[], stop_reason="max_tokens"),),
        rule="§1: all (no) blocks stopped and a stop_reason there counts as complete",
        covers=("no-content-blocks", "no-message_stop"),
        notes=notes("no_message_stop"),
    ),
    Entry(
        name="message-stop-without-message-delta",
        data=sse(start(), says("a"), STOP),
        answers=(Answer(content=ONE, stop_reason=None, usage={"input_tokens": 7, "output_tokens": 1}),),
        rule="§1 decided cases: message_stop without any message_delta is complete with stop_reason null if there is a finished block",
        covers=("no-message_delta",),
    ),
    Entry(
        name="start-and-stop-only",
        data=sse(start(), STOP),
        answers=(Answer(outcome="incomplete(0)", stop_reason=None),),
        rule="§1 decided cases: … else incomplete(0)",
        covers=("no-content-blocks", "no-message_delta"),
    ),
    Entry(
        name="usage-but-nothing-answered",
        data=sse(start(), turn(None), STOP),
        answers=(Answer(outcome="incomplete(0)", stop_reason=None, usage={"input_tokens": 7, "output_tokens": 5}),),
        rule="§1: a start but neither finished block nor stop_reason is incomplete",
        covers=("no-content-blocks", "stop_reason-null-in-delta"),
    ),
    Entry(
        name="null-stop-reason-with-a-block",
        data=sse(start(), says("a"), turn(None), STOP),
        answers=(Answer(content=ONE, stop_reason=None),),
        rule="§1: only neither finished block NOR stop_reason is incomplete",
        covers=("stop_reason-null-in-delta",),
    ),
    Entry(
        name="lone-start",
        data=sse(start()),
        answers=(Answer(outcome="incomplete(0)", stop_reason=None),),
        rule="§1: a start but neither finished block nor stop_reason",
        covers=("no-content-blocks", "no-message_delta", "no-message_stop"),
    ),
    Entry(
        name="eof-after-a-block",
        data=sse(start(), says("a"), says("b", 1)),
        answers=(Answer(outcome="incomplete(2)", content=[text_block("a"), text_block("b")], stop_reason=None),),
        rule=EOF,
        covers=("no-message_delta", "no-message_stop"),
    ),
    Entry(
        name="eof-inside-text",
        data=sse(start(), says("a"), opens_text(1), text(1, "ha"), text(1, "lf")),
        answers=(Answer(outcome="incomplete(1)", content=ONE, stop_reason=None, partial=[text_block("half")]),),
        rule=EOF,
        covers=("block-never-stopped", "no-message_stop"),
    ),
    Entry(
        name="eof-inside-thinking",
        data=sse(start(), opens_thinking(), thinks(0, "hm"), signs(0, "s")),
        answers=(Answer(outcome="incomplete(0)", stop_reason=None, partial=[thinking_block("hm", "s")]),),
        rule=EOF,
        covers=("block-never-stopped", "no-message_stop"),
    ),
    Entry(
        name="eof-in-an-empty-block",
        data=sse(start(), opens_text()),
        answers=(Answer(outcome="incomplete(0)", stop_reason=None, partial=None),),
        rule="§1: empty unfinished blocks make no message",
        covers=("block-never-stopped", "no-message_stop"),
    ),
    Entry(
        name="eof-with-three-blocks-open",
        data=sse(
            start(), opens_text(0), opens_thinking(1), opens_tool(2), text(0, "t"), thinks(1, "p"), args(2, '{"a"')
        ),
        answers=(
            Answer(
                outcome="incomplete(0)",
                stop_reason=None,
                partial=[text_block("t"), thinking_block("p")],
                unfinished=[{"index": 2, "id": "toolu_a", "name": "look", "raw": '{"a"'}],
            ),
        ),
        rule=EOF + "; its raw text stays in that envelope as `unfinishedToolInputs`",
        covers=("overlapping-blocks", "block-never-stopped", "tool-json-incomplete", "no-message_stop"),
    ),
    Entry(
        name="stop-reason-but-a-block-is-open-at-eof",
        data=sse(start(), says("a"), opens_text(1), text(1, "half"), turn()),
        answers=(Answer(outcome="incomplete(1)", content=ONE, partial=[text_block("half")]),),
        rule="§1: only ALL blocks stopped and a stop_reason counts as complete; EXPECTED.md: stop_reason is the last non-null "
        "on the wire, also when incomplete",
        covers=("message_delta-with-open-block", "block-never-stopped", "no-message_stop"),
    ),
    Entry(
        name="no-message-start",
        data=sse(says("a"), calls(1, '{"a":1}'), turn("tool_use"), STOP),
        answers=(
            Answer(
                outcome="incomplete(2)",
                content=[text_block("a"), tool_block({"a": 1})],
                stop_reason="tool_use",
                marks=marks("synthesized_envelope"),
            ),
        ),
        rule=NO_START + " (FAULTS 15)",
        covers=("no-message_start", "block-before-message_start"),
        events=8,
    ),
    Entry(
        name="no-message-start-and-no-end",
        data=sse(opens_text(None), text(None, "ha"), turn()),
        answers=(Answer(outcome="incomplete(0)", partial=[text_block("ha")], marks=marks("synthesized_envelope")),),
        rule=NO_START,
        covers=(
            "no-message_start",
            "block-before-message_start",
            "index-missing",
            "block-never-stopped",
            "no-message_stop",
            "message_delta-with-open-block",
        ),
    ),
    Entry(
        name="blocks-before-the-start",
        data=sse(says("early"), start(), says("a"), turn(), STOP),
        answers=(Answer(content=ONE, superseded=([text_block("early")],)),),
        rule="§1: a message_start with a new id before the last answer's message_stop opens a new attempt: what came before "
        "is an unfinished answer under a made-up envelope, its finished blocks are tombstoned, never merged",
        covers=("block-before-message_start",),
    ),
)
