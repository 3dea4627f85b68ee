"""Halves of surrogate pairs: never in an item, never lost when the other half follows (WIRE.md §1, tool input)."""

from __future__ import annotations

from entry import Answer, Entry
from frames import (
    PING,
    STOP,
    closes,
    frame,
    opens_text,
    opens_thinking,
    opens_tool,
    sse,
    start,
    text,
    text_block,
    thinking_block,
    tool_block,
    turn,
)

RULE = (
    "§1: a high surrogate at the end of a delta is held back and put before the next delta of its block (so no item "
    "ever holds half a pair), a lone one becomes U+FFFD"
)


def raw(index: int, kind: str, key: str, escaped: str) -> bytes:
    """A delta whose JSON string is written as given, escapes and all."""
    return frame(
        f'{{"type":"content_block_delta","index":{index},"delta":{{"type":"{kind}","{key}":"{escaped}"}}}}'.encode(),
        name="content_block_delta",
    )


def says_raw(*escaped: str) -> list[bytes]:
    return [raw(0, "text_delta", "text", words) for words in escaped]


def text_entry(name: str, parts: list[bytes], words: str, rule: str = RULE) -> Entry:
    data = sse(start(), opens_text(0), *parts, closes(0), turn(), STOP)
    return Entry(name=name, data=data, answers=(Answer(content=[text_block(words)]),), rule=rule)


def tool_entry(name: str, parts: list[bytes], value: object, rule: str = RULE) -> Entry:
    data = sse(start(), opens_tool(0), *parts, closes(0), turn("tool_use"), STOP)
    return Entry(
        name=name, data=data, answers=(Answer(content=[tool_block(value)], stop_reason="tool_use"),), rule=rule
    )


ENTRIES = (
    text_entry("escaped-pair", says_raw("a\\ud83d\\ude00b"), "a😀b", "JSON: an escaped pair is one character"),
    text_entry("pair-over-two-deltas", says_raw("a\\ud83d", "\\ude00b"), "a😀b"),
    text_entry("pair-with-an-empty-delta-between", says_raw("a\\ud83d", "", "\\ude00b"), "a😀b"),
    text_entry("pairs-in-a-row", says_raw("\\ud83d", "\\ude00\\ud83d", "\\ude01"), "😀😁"),
    text_entry("lone-high-at-the-end", says_raw("a\\ud83d"), "a\ufffd"),
    text_entry("lone-high-inside", says_raw("a\\ud83db"), "a\ufffdb"),
    text_entry("lone-low", says_raw("a\\ude00b"), "a\ufffdb"),
    text_entry("high-then-other-text", says_raw("a\\ud83d", "b"), "a\ufffdb"),
    text_entry("high-after-high", says_raw("\\ud83d", "\\ud83d", "\\ude00"), "\ufffd😀"),
    text_entry("low-first", says_raw("\\ude00\\ud83d", "\\ude00"), "\ufffd😀"),
    Entry(
        name="pair-with-a-ping-between",
        data=sse(start(), opens_text(0), says_raw("\\ud83d"), PING, says_raw("\\ude00"), closes(0), turn(), STOP),
        answers=(Answer(content=[text_block("😀")]),),
        rule=RULE,
        events=8,
    ),
    Entry(
        name="pair-with-another-block-between",
        data=sse(
            start(),
            opens_text(0),
            opens_text(1),
            says_raw("a\\ud83d"),
            text(1, "b"),
            says_raw("\\ude00"),
            closes(0),
            closes(1),
            turn(),
            STOP,
        ),
        answers=(Answer(content=[text_block("a😀"), text_block("b")]),),
        rule=RULE + " (ITS block: another block's delta between doesn't matter)",
        covers=("overlapping-blocks",),
    ),
    Entry(
        name="pair-in-thinking",
        data=sse(
            start(),
            opens_thinking(0),
            raw(0, "thinking_delta", "thinking", "hm \\ud83d"),
            raw(0, "thinking_delta", "thinking", "\\ude00"),
            raw(0, "signature_delta", "signature", "s"),
            closes(0),
            opens_text(1),
            text(1, "ok"),
            closes(1),
            turn(),
            STOP,
        ),
        answers=(Answer(content=[thinking_block("hm 😀", "s"), text_block("ok")]),),
        rule=RULE,
    ),
    tool_entry(
        "pair-of-fragments",
        [
            raw(0, "input_json_delta", "partial_json", '{\\"a\\":\\"\\ud83d'),
            raw(0, "input_json_delta", "partial_json", '\\ude00\\"}'),
        ],
        {"a": "😀"},
    ),
    tool_entry(
        "pair-escaped-inside-the-fragments",
        [
            raw(0, "input_json_delta", "partial_json", '{\\"a\\":\\"\\\\ud83d'),
            raw(0, "input_json_delta", "partial_json", '\\\\ude00\\"}'),
        ],
        {"a": "😀"},
        "§1: input_json_delta … may end inside an escape; fragments are joined, then parsed once",
    ),
    tool_entry(
        "escape-cut-in-the-middle",
        [raw(0, "input_json_delta", "partial_json", p) for p in ('{\\"a\\":\\"x\\\\', "u00", "e9\\\\", '\\\\n\\"}')],
        {"a": "xé\\n"},
        "§1: input_json_delta … may end inside an escape",
    ),
    tool_entry(
        "lone-surrogate-in-a-tool-input",
        [raw(0, "input_json_delta", "partial_json", '{\\"a\\":\\"x\\\\ud99cy\\",\\"b\\":1}')],
        {"a": "x\ufffdy", "b": 1},
        "§1: a lone one becomes U+FFFD (FAULTS 20: tool delta with escaped lone high surrogate); the event isn't lost",
    ),
    Entry(
        name="half-a-pair-when-the-stream-ends",
        data=sse(start(), opens_text(0), says_raw("a\\ud83d")),
        answers=(Answer(outcome="incomplete(0)", stop_reason=None, partial=[text_block("a\ufffd")]),),
        rule=RULE,
        covers=("block-never-stopped", "no-message_stop"),
    ),
)
