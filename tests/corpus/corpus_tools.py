"""Tool inputs: joined, parsed once at the block's stop, never repaired, never executed (WIRE.md §1, tool input)."""

from __future__ import annotations

from typing import Any

from entry import Answer, Entry, marks
from frames import (
    STOP,
    Part,
    args,
    calls,
    closes,
    opens,
    opens_tool,
    sse,
    start,
    tool_block,
    turn,
)

PARSED_ONCE = "§1 tool input: fragments go to a list and are parsed once, at block stop"
RAW = "§1 tool input: invalid JSON keeps the raw string as `input`, marked `invalidToolInput`; never repaired"
DEEP_OK = '{"a":' + "[" * 199 + "]" * 199 + "}"
DEEP_RAW = '{"a":' + "[" * 200 + "]" * 200 + "}"
LONG = "7" * 4300


def used(*parts: Part, end: str = "tool_use") -> bytes:
    return sse(start(), *parts, turn(end), STOP)


def parsed(name: str, fragments: list[str], value: Any, rule: str, *covers: str) -> Entry:
    """A tool whose fragments parse to ``value``."""
    answer = Answer(content=[tool_block(value)], stop_reason="tool_use")
    return Entry(name=name, data=used(calls(0, *fragments)), answers=(answer,), rule=rule, covers=covers)


def kept_raw(name: str, fragments: list[str], rule: str = RAW, *covers: str) -> Entry:
    """A tool whose fragments can't be held as JSON: the joined text stays, marked."""
    answer = Answer(
        content=[tool_block("".join(fragments))], stop_reason="tool_use", invalid=1, marks=marks("invalid_tool_input")
    )
    return Entry(name=name, data=used(calls(0, *fragments)), answers=(answer,), rule=rule, covers=covers)


def nested(levels: int) -> dict[str, Any]:
    value: Any = []
    for _ in range(levels - 2):
        value = [value]
    return {"a": value}


ENTRIES = (
    parsed(
        "tool-in-fragments",
        ["", '{"a"', ": ", "1", "", ', "b": "c', 'd"', "}"],
        {"a": 1, "b": "cd"},
        PARSED_ONCE + " (FAULTS 12)",
        "empty-partial_json",
    ),
    parsed(
        "placeholder-then-deltas",
        ["{", '"x":1}'],
        {"x": 1},
        "§1: a placeholder `{}` in the start block is dropped when deltas come (FAULTS 13)",
    ),
    parsed(
        "one-empty-delta",
        [""],
        {},
        "§1: the empty string at stop is `{}` (FAULTS 13: no-arg tool)",
        "tool-input-empty-all-deltas",
        "empty-partial_json",
    ),
    parsed(
        "only-empty-deltas", ["", "", ""], {}, "§1: the empty string at stop is `{}`", "tool-input-empty-all-deltas"
    ),
    parsed("empty-object-in-a-delta", ["{}"], {}, PARSED_ONCE),
    Entry(
        name="whole-input-in-the-start",
        data=used(
            opens_tool(0, input={"sql": "select 1"}, caller={"type": "code_execution_20250825", "tool_id": "st_1"}),
            closes(0),
        ),
        answers=(
            Answer(
                content=[
                    tool_block({"sql": "select 1"}, caller={"type": "code_execution_20250825", "tool_id": "st_1"})
                ],
                stop_reason="tool_use",
            ),
        ),
        rule="§1: no delta keeps the start's input (FAULTS 13)",
        covers=("full-input-in-block_start", "tool-without-json-delta"),
    ),
    Entry(
        name="placeholder-and-no-delta",
        data=used(opens_tool(0), closes(0)),
        answers=(Answer(content=[tool_block({})], stop_reason="tool_use"),),
        rule="§1: no delta keeps the start's input",
        covers=("tool-without-json-delta",),
    ),
    Entry(
        name="whole-input-in-the-start-and-an-empty-delta",
        data=used(opens_tool(0, input={"a": 1}), args(0, ""), closes(0)),
        answers=(Answer(content=[tool_block({"a": 1})], stop_reason="tool_use"),),
        rule="§1: a PLACEHOLDER `{}` is dropped when deltas come; §0: the start block's own input is kept as a seed. "
        "An empty delta brings no input that could replace a whole one",
        covers=("full-input-in-block_start", "empty-partial_json", "tool-input-empty-all-deltas"),
    ),
    Entry(
        name="no-input-key-and-no-delta",
        data=used(opens_tool(0, input=...), closes(0)),
        answers=(Answer(content=[tool_block({})], stop_reason="tool_use"),),
        rule="§1 decided cases: a tool_use start without `input` and without delta is `{}`",
        covers=("no-input-key-in-block_start", "tool-without-json-delta"),
    ),
    Entry(
        name="no-input-key-then-deltas",
        data=used(opens_tool(0, input=...), args(0, '{"q":'), args(0, "true}"), closes(0)),
        answers=(Answer(content=[tool_block({"q": True})], stop_reason="tool_use"),),
        rule=PARSED_ONCE,
        covers=("no-input-key-in-block_start",),
    ),
    Entry(
        name="tool-without-id",
        data=used(opens(0, "tool_use", name="look"), args(0, "{}"), closes(0)),
        answers=(Answer(content=[{"type": "tool_use", "name": "look", "input": {}}], stop_reason="tool_use"),),
        rule="§1 lenient: never a made-up id on the wire block",
        covers=("foreign-tool-id", "no-input-key-in-block_start"),
    ),
    Entry(
        name="foreign-tool-id",
        data=used(calls(0, '{"a":1}', ident="call_9-x.y")),
        answers=(Answer(content=[tool_block({"a": 1}, "call_9-x.y")], stop_reason="tool_use"),),
        rule="§2: content blocks stay the JSON they arrived as",
        covers=("foreign-tool-id",),
    ),
    Entry(
        name="server-and-mcp-tools",
        data=used(
            opens(0, "server_tool_use", id="srvtoolu_a", name="web_search", input={}),
            args(0, '{"query":"x"}'),
            closes(0),
            opens(1, "web_search_tool_result", tool_use_id="srvtoolu_a", content=[]),
            closes(1),
            opens(2, "mcp_tool_use", id="mcptoolu_a", name="echo", server_name="s", input={}),
            args(2, '{"n":2}'),
            closes(2),
            opens(3, "mcp_tool_result", tool_use_id="mcptoolu_a", is_error=False, content=[]),
            closes(3),
            end="end_turn",
        ),
        answers=(
            Answer(
                content=[
                    {"type": "server_tool_use", "id": "srvtoolu_a", "name": "web_search", "input": {"query": "x"}},
                    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_a", "content": []},
                    {"type": "mcp_tool_use", "id": "mcptoolu_a", "name": "echo", "server_name": "s", "input": {"n": 2}},
                    {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_a", "is_error": False, "content": []},
                ]
            ),
        ),
        rule="§1: input_json_delta appends for every kind of tool block",
    ),
    Entry(
        name="three-tools-in-a-row",
        data=used(calls(0, '{"n":0}', ident="t0"), calls(1, '{"n":1}', ident="t1"), calls(2, ident="t2")),
        answers=(
            Answer(
                content=[tool_block({"n": 0}, "t0"), tool_block({"n": 1}, "t1"), tool_block({}, "t2")],
                stop_reason="tool_use",
            ),
        ),
        rule=PARSED_ONCE + ", state per block",
    ),
    parsed(
        "big-integers",
        ['{"id":123456789012345678901234567890,"k":-98765432109876', '5432109,"j":18446744073709551616}'],
        {"id": 123456789012345678901234567890, "k": -987654321098765432109, "j": 2**64},
        "§1 measured traps: orjson turns integers over 64 bits into floats; long digit runs go to a decoder that keeps them",
    ),
    parsed(
        "integer-of-4300-digits",
        ['{"n":' + LONG + "}"],
        {"n": int(LONG)},
        "§1: integers OVER 4,300 digits stay raw; 4,300 are read",
    ),
    kept_raw("integer-of-4301-digits", ['{"n":' + LONG + "7}"], "§1: integers over 4,300 digits stay raw and marked"),
    parsed(
        "small-float",
        ['{"x":1e-07,"y":0.1,"z":1.5E+3,"w":-0.0}'],
        {"x": 1e-07, "y": 0.1, "z": 1500.0, "w": -0.0},
        PARSED_ONCE,
    ),
    kept_raw(
        "one-e-400",
        ['{"x":1e', "400}"],
        "§1: non-finite numbers (stdlib reads `1e400` as infinity) stay raw and marked",
    ),
    kept_raw("minus-one-e-400", ['{"x":[-1e400]}'], "§1: non-finite numbers stay raw and marked"),
    kept_raw("nan", ['{"x":NaN}'], "§1: non-finite numbers stay raw and marked"),
    kept_raw("infinity", ['{"x":-Infinity}'], "§1: non-finite numbers stay raw and marked"),
    parsed("two-hundred-levels", [DEEP_OK], nested(200), "§1: DEEPER than 200 levels stays raw; 200 are read"),
    kept_raw("two-hundred-and-one-levels", [DEEP_RAW], "§1: deeper than 200 levels stay raw and marked"),
    kept_raw(
        "thousands-of-levels",
        ["[" * 5000, "]" * 5000],
        "§1 measured traps: stdlib json recurses to death near 1,000, orjson stops at 1,024",
    ),
    parsed(
        "brackets-in-strings-are-no-levels",
        ['{"a":"' + "[{" * 300 + '"}'],
        {"a": "[{" * 300},
        "§1: levels are containers, not characters",
    ),
    kept_raw("tool-input-no-json", ["not json"], RAW, "tool-json-incomplete"),
    kept_raw(
        "tool-input-cut-but-stopped", ['{"path":"a.txt","text":"half'], RAW + " (FAULTS 18)", "tool-json-incomplete"
    ),
    kept_raw("tool-input-with-a-comma-too-many", ['{"a":1,}'], RAW),
    kept_raw("two-objects-glued", ["{}", '{"x":1}'], RAW + ' (FAULTS 13: `{}{"x":1}`)'),
    Entry(
        name="one-bad-tool-of-two",
        data=used(calls(0, "{bad", ident="t0"), calls(1, '{"n":1}', ident="t1")),
        answers=(
            Answer(
                content=[tool_block("{bad", "t0"), tool_block({"n": 1}, "t1")],
                stop_reason="tool_use",
                invalid=1,
                marks=marks("invalid_tool_input"),
            ),
        ),
        rule=RAW,
        covers=("tool-json-incomplete",),
    ),
)
