"""Several starts in one stream: next answer, same answer or new attempt (WIRE.md §1, attempts and ends)."""

from __future__ import annotations

from entry import Answer, Entry, marks, notes
from frames import (
    DONE,
    STOP,
    args,
    calls,
    closes,
    fails,
    ndjson,
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

NEW_ATTEMPT = (
    "§1: a message_start with a new id before the last answer's message_stop opens a new attempt: the finished blocks of "
    "the unfinished one are tombstoned, never merged"
)
SECOND = Answer(content=[text_block("second")], message={"id": "msg_b"})

ENTRIES = (
    Entry(
        name="two-answers",
        data=ndjson(
            start("msg_a"),
            says("first"),
            calls(1, '{"n":1}'),
            turn("tool_use", usage={"output_tokens": 3}),
            STOP,
            start("msg_b"),
            says("second"),
            turn("end_turn", usage={"output_tokens": 4}),
            STOP,
        ),
        answers=(
            Answer(
                content=[text_block("first"), tool_block({"n": 1})],
                stop_reason="tool_use",
                message={"id": "msg_a"},
                usage={"input_tokens": 7, "output_tokens": 3},
            ),
            Answer(
                content=[text_block("second")], message={"id": "msg_b"}, usage={"input_tokens": 7, "output_tokens": 4}
            ),
        ),
        rule="§1: a new start is the next answer after `message_stop`; state never leaks (usage of the first stays)",
        covers=(
            "after-message_stop:message_start",
            "after-message_stop:content_block_start",
            "after-message_stop:content_block_delta",
            "after-message_stop:content_block_stop",
            "after-message_stop:message_delta",
            "after-message_stop:message_stop",
            "duplicate-message_start",
            "index-reused",
            "multiple-message_delta",
        ),
        container="ndjson",
        events=15,
    ),
    Entry(
        name="next-answer-with-the-same-id",
        data=sse(start("msg_a"), says("first"), turn(), STOP, start("msg_a"), says("second"), turn(), STOP),
        answers=(Answer(content=[text_block("first")]), Answer(content=[text_block("second")])),
        rule="§1: a new start is the next answer after `message_stop`, whatever its id",
    ),
    Entry(
        name="next-answer-without-message-stop",
        data=sse(start("msg_a"), says("first"), turn(), start("msg_b"), says("second"), turn(), STOP),
        answers=(Answer(content=[text_block("first")], message={"id": "msg_a"}), SECOND),
        rule="§1: if the last answer had all blocks stopped and a stop_reason, a new start is the next answer",
        covers=("duplicate-message_start", "index-reused"),
        notes=notes("no_message_stop"),
    ),
    Entry(
        name="same-start-twice",
        data=sse(start("msg_a"), start("msg_a"), says("first"), turn(), STOP),
        answers=(Answer(content=[text_block("first")], message={"id": "msg_a"}),),
        rule="§1: the same id again with no block between is no attempt",
        covers=("duplicate-message_start",),
        events=7,
        notes=notes("duplicate_message_start"),
    ),
    Entry(
        name="same-id-after-a-block",
        data=sse(start("msg_a"), says("first"), start("msg_a"), says("second"), turn(), STOP),
        answers=(Answer(content=[text_block("second")], message={"id": "msg_a"}, superseded=([text_block("first")],)),),
        rule="§1: the same id again …, after blocks it is one (an attempt)",
        covers=("duplicate-message_start", "index-reused"),
    ),
    Entry(
        name="same-id-after-an-open-block",
        data=sse(start("msg_a"), opens_text(), text(0, "fir"), start("msg_a"), says("second"), turn(), STOP),
        answers=(Answer(content=[text_block("second")], superseded=([],)),),
        rule="§1: the same id again, after blocks it is one (an attempt); unfinished text of a superseded attempt is dropped",
        covers=("duplicate-message_start", "block-restarted-while-open", "overlapping-blocks"),
    ),
    Entry(
        name="new-id-supersedes",
        data=sse(
            start("msg_a"),
            opens_thinking(0),
            thinks(0, "one"),
            signs(0, "s1"),
            closes(0),
            opens_tool(1),
            args(1, '{"v":"Sp'),
            start("msg_b"),
            opens_thinking(0),
            thinks(0, "two"),
            signs(0, "s2"),
            closes(0),
            calls(1, '{"v":', '"x"}', ident="t2"),
            turn("tool_use"),
            STOP,
        ),
        answers=(
            Answer(
                content=[thinking_block("two", "s2"), tool_block({"v": "x"}, "t2")],
                stop_reason="tool_use",
                message={"id": "msg_b"},
                superseded=([thinking_block("one", "s1")],),
            ),
        ),
        rule=NEW_ATTEMPT + " (FAULTS 16)",
        covers=(
            "duplicate-message_start",
            "block-restarted-while-open",
            "index-reused",
            "overlapping-blocks",
            "tool-json-incomplete",
        ),
    ),
    Entry(
        name="new-id-after-half-a-block",
        data=sse(start("msg_a"), opens_text(), text(0, "fir"), start("msg_b"), says("second"), turn(), STOP),
        answers=(Answer(content=[text_block("second")], message={"id": "msg_b"}, superseded=([],)),),
        rule=NEW_ATTEMPT + " (FAULTS 16: start, half a text block, second start with a new id, finish)",
        covers=("duplicate-message_start", "block-restarted-while-open", "overlapping-blocks"),
    ),
    Entry(
        name="new-id-before-any-block",
        data=sse(
            start("msg_a", usage={"input_tokens": 99, "output_tokens": 1}), start("msg_b"), says("second"), turn(), STOP
        ),
        answers=(
            Answer(
                content=[text_block("second")],
                message={"id": "msg_b"},
                usage={"input_tokens": 7, "output_tokens": 5},
                superseded=([],),
            ),
        ),
        rule=NEW_ATTEMPT + "; nothing of the first stays, its usage neither",
        covers=("duplicate-message_start",),
    ),
    Entry(
        name="three-attempts",
        data=sse(
            start("msg_a"),
            says("one"),
            start("msg_b"),
            says("two"),
            says("three", 1),
            start("msg_c"),
            says("four"),
            turn(),
            STOP,
        ),
        answers=(
            Answer(
                content=[text_block("four")],
                message={"id": "msg_c"},
                superseded=([text_block("one")], [text_block("two"), text_block("three")]),
            ),
        ),
        rule=NEW_ATTEMPT,
    ),
    Entry(
        name="last-attempt-fails",
        data=sse(
            start("msg_a"), says("one"), start("msg_b"), says("two"), opens_text(1), text(1, "thr"), fails("api_error")
        ),
        answers=(
            Answer(
                outcome="api_error(api_error)",
                content=[text_block("two")],
                stop_reason=None,
                partial=[text_block("thr")],
                superseded=([text_block("one")],),
            ),
        ),
        rule="§1 decided cases: the file's word is that of the last attempt of each answer",
        covers=("error-midstream", "no-message_stop"),
    ),
    Entry(
        name="start-without-id-after-blocks",
        data=sse(start(None), says("first"), start(None), says("second"), turn(), STOP),
        answers=(Answer(content=[text_block("second")], superseded=([text_block("first")],)),),
        rule="§1: a start without id is judged by position",
    ),
    Entry(
        name="start-without-id-after-an-end",
        data=sse(start(None), says("first"), turn(), STOP, start(None), says("second"), turn(), STOP),
        answers=(Answer(content=[text_block("first")]), Answer(content=[text_block("second")])),
        rule="§1: a start without id is judged by position",
    ),
    Entry(
        name="start-with-content-and-stop-reason",
        data=sse(
            start(
                content=[text_block("whole"), tool_block({"a": 1})],
                stop_reason="tool_use",
                usage={"input_tokens": 3, "output_tokens": 9},
            ),
            STOP,
        ),
        answers=(
            Answer(
                content=[text_block("whole"), tool_block({"a": 1})],
                stop_reason="tool_use",
                usage={"input_tokens": 3, "output_tokens": 9},
            ),
        ),
        rule="§1: a message_start that already holds content and a stop_reason emits that content",
        covers=("no-content-blocks", "no-message_delta"),
    ),
    Entry(
        name="start-with-content-then-eof",
        data=sse(start(content=[text_block("whole")], stop_reason="end_turn")),
        answers=(Answer(content=[text_block("whole")]),),
        rule="§1: … emits that content; all blocks stopped and a stop_reason there counts as complete, noted `no_message_stop`",
        covers=("no-message_stop",),
        notes=notes("no_message_stop"),
    ),
    Entry(
        name="start-without-message",
        data=sse({"type": "message_start"}, says("a"), turn(), STOP),
        answers=(Answer(content=[text_block("a")], marks=marks("synthesized_envelope")),),
        rule="§1: lenient may synthesize an envelope, marked `synthesizedEnvelope`; the start itself was there",
        covers=("start-no-usage",),
    ),
    Entry(
        name="answer-after-an-error",
        data=sse(start("msg_a"), fails(), start("msg_b"), says("second"), turn(), STOP),
        answers=(Answer(outcome="api_error(overloaded_error)", stop_reason=None), SECOND),
        rule="§1: an `error` ends its answer; a new start after it is the next answer",
        covers=("error-midstream",),
    ),
    Entry(
        name="events-after-message-stop",
        data=sse(
            start(), says("a"), turn(), STOP, says("ghost", 1), turn("max_tokens", usage={"output_tokens": 999}), STOP
        ),
        answers=(Answer(content=[text_block("a")], usage={"input_tokens": 7, "output_tokens": 5}),),
        rule="§1: events after `message_stop` or `error` and before a start pass and are counted",
        covers=(
            "after-message_stop:content_block_start",
            "after-message_stop:content_block_delta",
            "after-message_stop:content_block_stop",
            "after-message_stop:message_delta",
            "after-message_stop:message_stop",
        ),
        events=11,
    ),
    Entry(
        name="pings-and-done-after-message-stop",
        data=sse(start(), says("a"), turn(), STOP, {"type": "ping"}, {"type": "pong"}, DONE),
        answers=(Answer(content=[text_block("a")]),),
        rule="§1: events after `message_stop` pass and are counted; `[DONE]` is ignored",
        covers=("[DONE]", "unknown-event:pong"),
        events=8,
        opaque_events={"pong": 1},
    ),
    Entry(
        name="events-after-an-error",
        data=sse(start(), says("a"), fails(), says("ghost", 1), STOP),
        answers=(Answer(outcome="api_error(overloaded_error)", content=[text_block("a")], stop_reason=None),),
        rule="§1: events after `message_stop` or `error` and before a start pass and are counted",
        covers=("error-midstream",),
        events=9,
    ),
)
