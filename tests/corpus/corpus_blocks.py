"""Deltas and blocks: what a finished block holds (WIRE.md §1, deltas)."""

from __future__ import annotations

from typing import Any

from entry import Answer, Entry
from frames import (
    STOP,
    Part,
    cites,
    closes,
    delta,
    opens,
    opens_text,
    opens_thinking,
    says,
    signs,
    sse,
    start,
    text,
    text_block,
    thinking_block,
    thinks,
    turn,
)

PLACE: dict[str, Any] = {
    "type": "char_location",
    "cited_text": "ein Satz",
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 8,
}
PAGE: dict[str, Any] = {
    "type": "page_location",
    "cited_text": "two",
    "document_index": 1,
    "start_page_number": 2,
    "end_page_number": 3,
}
FOUND: dict[str, Any] = {
    "type": "web_search_result_location",
    "url": "https://example.org/a",
    "title": "A",
    "encrypted_index": "x1",
    "cited_text": "three",
}


def whole(*parts: Part, end: str = "end_turn") -> bytes:
    """A stream of these blocks with a start and a proper end."""
    return sse(start(), *parts, turn(end), STOP)


ENTRIES = (
    Entry(
        name="thinking-then-text",
        data=whole(
            opens_thinking(0), thinks(0, "let me "), thinks(0, "see"), signs(0, "c2ln"), closes(0), says("ok", 1)
        ),
        answers=(Answer(content=[thinking_block("let me see", "c2ln"), text_block("ok")]),),
        rule="§1: thinking_delta appends thinking, signature_delta assigns",
    ),
    Entry(
        name="signature-assigned-twice",
        data=whole(opens_thinking(0), thinks(0, "a"), signs(0, "first"), signs(0, "second"), closes(0), says("ok", 1)),
        answers=(Answer(content=[thinking_block("a", "second"), text_block("ok")]),),
        rule="§1: signature_delta **assigns**",
    ),
    Entry(
        name="signature-only-thinking",
        data=whole(opens_thinking(0), signs(0, "only"), closes(0), says("ok", 1)),
        answers=(Answer(content=[thinking_block("", "only"), text_block("ok")]),),
        rule="FAULTS 24: an empty-text thinking block with a signature is legal and must survive",
    ),
    Entry(
        name="thinking-start-without-signature-key",
        data=whole(
            opens(0, "thinking", thinking=""),
            thinks(0, "a"),
            closes(0),
            opens(1, "thinking", thinking=""),
            thinks(1, "b"),
            signs(1, "s"),
            closes(1),
            says("ok", 2),
        ),
        answers=(Answer(content=[{"type": "thinking", "thinking": "a"}, thinking_block("b", "s"), text_block("ok")]),),
        rule="§1: whole finished blocks as on the wire; no key is made up (EXPECTED.md, content_sha256)",
        covers=("thinking-start-no-signature-key",),
    ),
    Entry(
        name="empty-thinking-deltas",
        data=whole(
            opens_thinking(0),
            thinks(0, ""),
            thinks(0, "", estimated_tokens=12),
            signs(0, "s"),
            closes(0),
            says("ok", 1),
        ),
        answers=(Answer(content=[thinking_block("", "s"), text_block("ok")]),),
        rule="§1: thinking_delta … may be empty and carry `estimated_tokens`",
        covers=("empty-thinking_delta",),
    ),
    Entry(
        name="text-in-the-start-block",
        data=whole(
            opens(0, "text", text="Once "), text(0, "upon"), closes(0), opens(1, "text", text="whole"), closes(1)
        ),
        answers=(Answer(content=[text_block("Once upon"), text_block("whole")]),),
        rule="§0: the start block's own text, thinking and input are kept as a seed (FAULTS 22)",
    ),
    Entry(
        name="thinking-in-the-start-block",
        data=whole(
            opens(0, "thinking", thinking="So ", signature="seed"), thinks(0, "be it"), closes(0), says("ok", 1)
        ),
        answers=(Answer(content=[thinking_block("So be it", "seed"), text_block("ok")]),),
        rule="§0: the start block's own text, thinking and input are kept as a seed (FAULTS 22)",
    ),
    Entry(
        name="empty-text-block",
        data=whole(opens_text(0), closes(0), says("ok", 1)),
        answers=(Answer(content=[text_block(""), text_block("ok")]),),
        rule="§1: each content_block_stop emits one message; only empty UNFINISHED blocks make none",
    ),
    Entry(
        name="text-that-begins-with-a-space",
        data=whole(opens_text(0), text(0, " and"), text(0, " so on "), text(0, "\n"), closes(0)),
        answers=(Answer(content=[text_block(" and so on \n")]),),
        rule="§1: text_delta appends text, untrimmed",
    ),
    Entry(
        name="twins-are-no-overlap",
        data=whole(says("**A**", 0), opens_text(1), text(1, "**"), text(1, "**"), text(1, "B"), closes(1)),
        answers=(Answer(content=[text_block("**A**"), text_block("****B")]),),
        rule="FAULTS 25: no text-overlap heuristics; identity = (message id, index)",
    ),
    Entry(
        name="thinking-text-thinking",
        data=whole(
            opens_thinking(0),
            thinks(0, "a"),
            signs(0, "s0"),
            closes(0),
            opens(1, "redacted_thinking", data="eA=="),
            closes(1),
            says("b", 2),
            opens_thinking(3),
            thinks(3, "c"),
            signs(3, "s3"),
            closes(3),
            says("d", 4),
        ),
        answers=(
            Answer(
                content=[
                    thinking_block("a", "s0"),
                    {"type": "redacted_thinking", "data": "eA=="},
                    text_block("b"),
                    thinking_block("c", "s3"),
                    text_block("d"),
                ]
            ),
        ),
        rule="FAULTS 23: preserve block order and count exactly",
    ),
    Entry(
        name="citations-before-text",
        data=whole(
            opens(0, "text", text="", citations=[]), cites(0, PLACE), cites(0, FOUND), text(0, "cited"), closes(0)
        ),
        answers=(Answer(content=[text_block("cited", citations=[PLACE, FOUND])]),),
        rule="§1: citations_delta appends one citation (real streams send them before the first text)",
        covers=("block_start.citations=list",),
    ),
    Entry(
        name="citations-null-at-start",
        data=whole(opens(0, "text", text="", citations=None), text(0, "a"), cites(0, PAGE), closes(0)),
        answers=(Answer(content=[text_block("a", citations=[PAGE])]),),
        rule="§1: citations_delta appends one citation",
        covers=("block_start.citations=null",),
    ),
    Entry(
        name="citations-null-and-none-comes",
        data=whole(opens(0, "text", text="", citations=None), text(0, "a"), closes(0)),
        answers=(Answer(content=[text_block("a", citations=None)]),),
        rule="§2: content blocks stay the JSON they arrived as",
        covers=("block_start.citations=null",),
    ),
    Entry(
        name="citations-key-missing-at-start",
        data=whole(opens_text(0), text(0, "a"), cites(0, PLACE), text(0, "b"), cites(0, PAGE), closes(0)),
        answers=(Answer(content=[text_block("ab", citations=[PLACE, PAGE])]),),
        rule="§1: citations_delta appends one citation",
    ),
    Entry(
        name="delta-without-type",
        data=whole(opens_text(0), text(0, "a"), delta(0, None, text="lost?"), text(0, "b"), closes(0)),
        answers=(Answer(content=[text_block("ab")]),),
        rule="§1 decided cases: a delta without type is opaque",
        opaque_deltas={None: 1},
    ),
    Entry(
        name="unknown-keys-everywhere",
        data=sse(
            {**start(x_field=[1]), "x_event": True},
            {**opens(0, "text", text="", x_block={"a": None}), "x": 1},
            {**delta(0, "text_delta", text="a", logprob=-0.5), "sequence_number": 3},
            {**closes(0), "x": 2},
            {**turn(x_delta="y"), "x": 3},
            {"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 7, "outputTokenCount": 5}},
        ),
        answers=(Answer(content=[text_block("a", x_block={"a": None})], message={"x_field": [1]}),),
        rule="§2: API payloads are never re-modelled; DESIGN §2: unknown keys stay in the same class",
        covers=("bedrock-metrics",),
        events=6,
    ),
    Entry(
        name="signature-to-a-text-block",
        data=whole(opens_text(0), text(0, "a"), signs(0, "s"), closes(0)),
        answers=(Answer(content=[text_block("a")], unapplied={"signature_delta": 1}),),
        rule="§1: a delta of a kind that its explicitly named block can't hold passes unapplied and is counted",
        covers=("signature_delta-on-text",),
    ),
    Entry(
        name="text-to-a-tool",
        data=whole(
            says("ok", 0),
            opens(1, "tool_use", id="toolu_a", name="look", input={}),
            text(1, "no"),
            delta(1, "input_json_delta", partial_json='{"a":1}'),
            closes(1),
            end="tool_use",
        ),
        answers=(
            Answer(
                content=[text_block("ok"), {"type": "tool_use", "id": "toolu_a", "name": "look", "input": {"a": 1}}],
                stop_reason="tool_use",
                unapplied={"text_delta": 1},
            ),
        ),
        rule="§1: … its explicitly named block can't hold passes unapplied (FAULTS 17: text_delta to a tool_use index)",
    ),
    Entry(
        name="thinking-to-a-text-block",
        data=whole(opens_text(0), text(0, "a"), thinks(0, "hm"), closes(0)),
        answers=(Answer(content=[text_block("a")], unapplied={"thinking_delta": 1}),),
        rule="§1: … its explicitly named block can't hold passes unapplied (FAULTS 17)",
    ),
    Entry(
        name="delta-after-the-stop",
        data=whole(opens_text(0), text(0, "a"), closes(0), cites(0, PAGE), text(0, "late")),
        answers=(Answer(content=[text_block("a")], unapplied={"citations_delta": 1, "text_delta": 1}),),
        rule="§1: a delta to a stopped block passes unapplied and is counted",
        covers=("delta-after-block-stop",),
    ),
)
