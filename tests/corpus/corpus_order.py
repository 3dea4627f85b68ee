"""Indexes and order: interleaved, skipped, missing, reused (WIRE.md §1, events and order)."""

from __future__ import annotations

from entry import Answer, Entry, marks, notes
from frames import (
    DONE,
    STOP,
    Part,
    args,
    calls,
    closes,
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

MISSING = "§1: a missing `index`: a start takes the next free one, a delta or stop means the block opened last"
SYNTHESIZED = (
    "§1: a text or thinking delta whose index is missing or was never opened, and which no open block can take, opens a "
    "synthesized block rather than being lost"
)


def whole(*parts: Part, end: str = "end_turn") -> bytes:
    return sse(start(), *parts, turn(end), STOP)


ENTRIES = (
    Entry(
        name="overlapping-blocks",
        data=whole(
            opens_thinking(0),
            opens_text(1),
            opens_tool(2),
            thinks(0, "p"),
            text(1, "a"),
            args(2, '{"c"'),
            thinks(0, "q"),
            args(2, ":1}"),
            text(1, "b"),
            signs(0, "s"),
            closes(0),
            closes(1),
            closes(2),
            end="tool_use",
        ),
        answers=(
            Answer(content=[thinking_block("pq", "s"), text_block("ab"), tool_block({"c": 1})], stop_reason="tool_use"),
        ),
        rule="§1 order: per block start, deltas, stop (by `index`, which may interleave)",
        covers=("overlapping-blocks",),
    ),
    Entry(
        name="stopped-in-another-order",
        data=whole(
            opens_text(0),
            opens_tool(1),
            opens_text(2),
            text(2, "c"),
            closes(2),
            args(1, "{}"),
            closes(1),
            text(0, "a"),
            closes(0),
            end="tool_use",
        ),
        answers=(
            Answer(
                content=[text_block("a"), tool_block({}), text_block("c")],
                stop_reason="tool_use",
                marks=marks("block_index"),
            ),
        ),
        rule="§1 accumulation: emission is in stop order; merging by message id sorts by index (blockIndex is written "
        "where stop order differs)",
        covers=("overlapping-blocks",),
    ),
    Entry(
        name="index-gap",
        data=whole(says("a", 0), says("b", 2)),
        answers=(Answer(content=[text_block("a"), text_block("b")], indexes=(0, 2)),),
        rule="§1: by `index`, which may skip; never a filler for a skipped index (FAULTS 14: indexes 0,2)",
        covers=("index-gap",),
    ),
    Entry(
        name="only-index-three",
        data=whole(calls(3, '{"a":1}'), end="tool_use"),
        answers=(Answer(content=[tool_block({"a": 1})], indexes=(3,), stop_reason="tool_use"),),
        rule="EXPECTED.md: index is a name, not a position",
        covers=("index-gap",),
    ),
    Entry(
        name="gap-after-which-an-index-is-missing",
        data=whole(says("a", 0), says("b", 2), opens_text(None), text(None, "c"), closes(None)),
        answers=(Answer(content=[text_block("a"), text_block("b"), text_block("c")], indexes=()),),
        rule=MISSING + " (which number is free isn't said: 1 or 3)",
        covers=("index-gap", "index-missing"),
    ),
    Entry(
        name="indexes-missing",
        data=whole(
            opens_text(None),
            text(None, "a"),
            closes(None),
            opens_tool(None),
            args(None, '{"b":'),
            args(None, "2}"),
            closes(None),
            end="tool_use",
        ),
        answers=(Answer(content=[text_block("a"), tool_block({"b": 2})], stop_reason="tool_use"),),
        rule=MISSING,
        covers=("index-missing",),
        notes=notes("index_missing"),
    ),
    Entry(
        name="index-missing-means-the-last-opened",
        data=whole(opens_text(0), opens_thinking(1), thinks(None, "p"), closes(None), text(0, "a"), closes(0)),
        answers=(Answer(content=[text_block("a"), thinking_block("p")]),),
        rule=MISSING,
        covers=("index-missing", "overlapping-blocks"),
    ),
    Entry(
        name="index-reused",
        data=whole(says("a", 0), says("b", 0), says("c", 0)),
        answers=(Answer(content=[text_block("a"), text_block("b"), text_block("c")]),),
        rule="§1 attempts: a start with an index that was used before gets the next free index, marked",
        covers=("index-reused",),
    ),
    Entry(
        name="index-reused-by-tools",
        data=whole(calls(0, '{"n":1}', ident="t1"), calls(0, '{"n":2}', ident="t2"), end="tool_use"),
        answers=(Answer(content=[tool_block({"n": 1}, "t1"), tool_block({"n": 2}, "t2")], stop_reason="tool_use"),),
        rule="§1 attempts: a start with an index that was used before gets the next free index, marked",
        covers=("index-reused",),
    ),
    Entry(
        name="block-restarted-while-open",
        data=whole(opens_text(0), text(0, "a"), opens_text(0), text(0, "b"), closes(0)),
        answers=(Answer(content=[text_block("a"), text_block("b")]),),
        rule="§1 attempts: the next free index, marked; the name then means the newer block, and message_stop finishes the "
        "text still open",
        covers=(
            "block-restarted-while-open",
            "index-reused",
            "overlapping-blocks",
            "block-never-stopped",
            "message_delta-with-open-block",
        ),
        notes=notes("finished_by_message_stop"),
    ),
    Entry(
        name="delta-for-an-unopened-block",
        data=whole(text(0, "a"), text(0, "b"), closes(0)),
        answers=(Answer(content=[text_block("ab")], marks=marks("synthesized_block")),),
        rule=SYNTHESIZED,
        covers=("delta-for-unopened-block",),
        notes=notes("synthesized_block"),
    ),
    Entry(
        name="delta-without-block-and-index",
        data=whole(text(None, "a"), text(None, "b")),
        answers=(Answer(content=[text_block("ab")], marks=marks("synthesized_block")),),
        rule=SYNTHESIZED + "; message_stop finishes text and thinking blocks still open",
        covers=("delta-for-unopened-block", "index-missing", "message_delta-with-open-block"),
        notes=notes("synthesized_block", "finished_by_message_stop"),
    ),
    Entry(
        name="thinking-then-text-without-block-and-index",
        data=whole(thinks(None, "p"), text(None, "a"), text(None, "b")),
        answers=(
            Answer(
                content=[{"type": "thinking", "thinking": "p"}, text_block("ab")],
                indexes=(0, 1),
                marks=marks("synthesized_block"),
            ),
        ),
        rule=SYNTHESIZED + "; message_stop finishes them, in index order",
        covers=("delta-for-unopened-block", "index-missing"),
    ),
    Entry(
        name="unopened-index-but-a-text-is-open",
        data=whole(opens_text(0), text(0, "a"), text(5, "b"), closes(0)),
        answers=(Answer(content=[text_block("ab")]),),
        rule="§1: only a delta which NO open block can take opens a synthesized block; here the open text takes it "
        "(FAULTS 14: delta for 5)",
        covers=("delta-for-unopened-block",),
    ),
    Entry(
        name="fragments-for-an-unopened-block",
        data=whole(says("a", 0), args(4, '{"x":1}')),
        answers=(Answer(content=[text_block("a")], unapplied={"input_json_delta": 1}),),
        rule="§1: a synthesized block is for text and thinking only: a tool can't be made up; the delta passes, counted",
        covers=("delta-for-unopened-block",),
        events=7,
    ),
    Entry(
        name="stop-for-an-unopened-block",
        data=whole(closes(3), says("a", 0), closes(0)),
        answers=(Answer(content=[text_block("a")]),),
        rule="FAULTS 17: stop for a never-opened block; §1 lenient: it passes, nothing is made up",
        events=8,
    ),
    Entry(
        name="finished-by-message-stop",
        data=whole(opens_thinking(0), thinks(0, "p"), opens_text(1), text(1, "a"), opens_text(2)),
        answers=(Answer(content=[thinking_block("p"), text_block("a")]),),
        rule="§1: message_stop finishes text and thinking blocks still open, in index order; empty unfinished blocks make "
        "no message",
        covers=("block-never-stopped", "message_delta-with-open-block", "overlapping-blocks"),
        notes=notes("finished_by_message_stop"),
    ),
    Entry(
        name="deltas-only",
        data=sse(thinks(None, "hm"), text(None, "he"), text(None, "llo")) + DONE,
        answers=(
            Answer(
                outcome="incomplete(0)",
                stop_reason=None,
                partial=[{"type": "thinking", "thinking": "hm"}, text_block("hello")],
                marks=marks("synthesized_envelope", "synthesized_block"),
            ),
        ),
        rule="§1 decided cases: without message_start incomplete(n) whatever else came; under a made-up, marked envelope",
        covers=("[DONE]", "delta-for-unopened-block", "no-message_start", "no-message_stop", "index-missing"),
        events=3,
    ),
)
