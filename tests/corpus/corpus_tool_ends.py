"""How a tool block ends: unfinished, cut, contradicting the stop_reason (WIRE.md §1, tool input and ends)."""

from __future__ import annotations

from entry import Answer, Entry, marks
from frames import (
    STOP,
    Part,
    args,
    calls,
    closes,
    opens,
    opens_tool,
    says,
    sse,
    start,
    text_block,
    thinks,
    tool_block,
    turn,
)

RAW = "§1 tool input: invalid JSON keeps the raw string as `input`, marked `invalidToolInput`; never repaired"


def used(*parts: Part, end: str = "tool_use") -> bytes:
    return sse(start(), *parts, turn(end), STOP)


ENTRIES = (
    Entry(
        name="eof-right-after-the-tool-start",
        data=sse(start(), opens_tool(0)),
        answers=(
            Answer(
                outcome="incomplete(0)",
                stop_reason=None,
                partial=[],
                unfinished=[{"index": 0, "id": "toolu_a", "name": "look", "raw": ""}],
            ),
        ),
        rule="FAULTS 19: empty ⇒ {} only if content_block_stop was seen; §1: an unfinished tool_use is never emitted as one, "
        "its raw text stays as `unfinishedToolInputs` [{index, id, name, raw}]",
        covers=("block-never-stopped", "no-message_stop"),
    ),
    Entry(
        name="eof-inside-a-tool-input",
        data=sse(start(), says("Writing.", 0), opens_tool(1), args(1, '{"path":"a.txt",'), args(1, '"text":"hal')),
        answers=(
            Answer(
                outcome="incomplete(1)",
                content=[text_block("Writing.")],
                stop_reason=None,
                partial=[],
                unfinished=[{"index": 1, "id": "toolu_a", "name": "look", "raw": '{"path":"a.txt","text":"hal'}],
            ),
        ),
        rule="§1: an unfinished tool_use is never emitted as one, its raw text stays (FAULTS 18)",
        covers=("block-never-stopped", "tool-json-incomplete", "no-message_stop"),
    ),
    Entry(
        name="max-tokens-with-an-open-tool",
        data=used(says("Writing.", 0), opens_tool(1), args(1, '{"text":"hal'), end="max_tokens"),
        answers=(
            Answer(
                content=[text_block("Writing.")],
                stop_reason="max_tokens",
                partial=[],
                unfinished=[{"index": 1, "id": "toolu_a", "name": "look", "raw": '{"text":"hal'}],
            ),
        ),
        rule="§1: message_stop finishes text and thinking blocks still open; a tool_use still open stays unfinished "
        "(FAULTS 18: stop_reason max_tokens); EXPECTED.md: raw text kept",
        covers=("block-never-stopped", "message_delta-with-open-block", "tool-json-incomplete"),
    ),
    Entry(
        name="max-tokens-with-a-stopped-cut-tool",
        data=used(calls(0, '{"text":"hal'), end="max_tokens"),
        answers=(
            Answer(
                content=[tool_block('{"text":"hal')],
                stop_reason="max_tokens",
                invalid=1,
                marks=marks("invalid_tool_input"),
            ),
        ),
        rule=RAW + " (FAULTS 18; §8: tools of that answer don't run)",
        covers=("tool-json-incomplete",),
    ),
    Entry(
        name="tool-use-without-a-tool-block",
        data=used(says("I will look.", 0)),
        answers=(Answer(outcome="protocol_error(", content=[text_block("I will look.")], stop_reason="tool_use"),),
        rule="§1: `tool_use` with no tool block is a protocol error that may be retried",
    ),
    Entry(
        name="tool-use-with-an-unfinished-tool-only",
        data=used(says("I will look.", 0), opens_tool(1), args(1, '{"a":')),
        answers=(
            Answer(
                outcome="protocol_error(",
                content=[text_block("I will look.")],
                stop_reason="tool_use",
                partial=[],
                unfinished=[{"index": 1, "id": "toolu_a", "name": "look", "raw": '{"a":'}],
            ),
        ),
        rule="§1: `tool_use` with no (finished) tool block is a protocol error; an unfinished one is never emitted as one",
        covers=("block-never-stopped", "message_delta-with-open-block"),
    ),
    Entry(
        name="end-turn-with-a-tool-block",
        data=used(calls(0, '{"a":1}'), end="end_turn"),
        answers=(Answer(content=[tool_block({"a": 1})], stop_reason="end_turn"),),
        rule="§1: stop_reason is an open set; only tool_use WITHOUT a tool is an error",
    ),
    Entry(
        name="thinking-to-a-tool",
        data=used(opens_tool(0), thinks(0, "hm"), args(0, "{}"), closes(0)),
        answers=(Answer(content=[tool_block({})], stop_reason="tool_use", unapplied={"thinking_delta": 1}),),
        rule="§1: a delta of a kind that its explicitly named block can't hold passes unapplied and is counted",
    ),
    Entry(
        name="fragments-to-a-text-block",
        data=used(says("a", 0), opens(1, "text", text="b"), args(1, '{"x":1}'), closes(1), end="end_turn"),
        answers=(Answer(content=[text_block("a"), text_block("b")], unapplied={"input_json_delta": 1}),),
        rule="§1: a delta of a kind that its explicitly named block can't hold passes unapplied and is counted",
        covers=("input_json_delta-on-text",),
    ),
)
