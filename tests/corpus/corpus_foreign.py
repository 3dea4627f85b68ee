"""What is no answer, or no event: pings, foreign streams, broken payloads (WIRE.md §1, decided cases)."""

from __future__ import annotations

from typing import Any

from entry import Answer, Entry
from frames import (
    DONE,
    PING,
    STOP,
    closes,
    frame,
    opens_text,
    opens_thinking,
    says,
    sse,
    start,
    text,
    text_block,
    thinking_block,
    thinks,
    turn,
)

EOF = (
    "§1: EOF before message_stop is incomplete; finished blocks are kept, unfinished text and thinking are kept as a last "
    "message with isAbortedMidStream and stop_reason null"
)
ONE = [text_block("a")]


def foreign(name: str, data: bytes, **more: Any) -> Entry:
    return Entry(
        name=name,
        data=data,
        answers=(Answer(outcome="not_a_stream", stop_reason=None),),
        rule="§1 decided cases: not_a_stream is a file without any known Anthropic event (OpenAI streams, HTML)",
        **more,
    )


def chat_chunk(**delta: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}
    return frame(
        {"id": "chatcmpl-x", "object": "chat.completion.chunk", "created": 0, "model": "other-1", "choices": [choice]}
    )


ENTRIES = (
    Entry(
        name="only-pings",
        data=sse(PING, PING),
        answers=(Answer(outcome="incomplete(0)", stop_reason=None),),
        rule="§1 decided cases: only pings and unknown events: incomplete(0)",
        covers=("no-message_start", "no-message_stop"),
        events=2,
    ),
    Entry(
        name="a-ping-and-a-pong",
        data=sse(PING, {"type": "pong", "value": "x"}),
        answers=(Answer(outcome="incomplete(0)", stop_reason=None),),
        rule="§1 decided cases: only pings and unknown events: incomplete(0)",
        covers=("unknown-event:pong", "no-message_start", "no-message_stop"),
        events=2,
        opaque_events={"pong": 1},
    ),
    Entry(
        name="unknown-event-inside-an-answer",
        data=sse(start(), {"type": "weather", "sky": "blue"}, says("a"), {"no": "type"}, turn(), STOP),
        answers=(Answer(content=ONE),),
        rule="§1: unknown events pass through and are counted by type",
        events=8,
        opaque_events={"weather": 1, None: 1},
    ),
    Entry(
        name="empty-file",
        data=b"",
        answers=(Answer(outcome="empty", stop_reason=None),),
        rule="§1 decided cases: `empty` is a file without any event",
        events=0,
    ),
    Entry(
        name="only-comments",
        data=b": keepalive\n\n: keepalive\n\nevent: ping\n\n",
        answers=(Answer(outcome="empty", stop_reason=None),),
        rule="§1 decided cases: `empty` is a file without any event",
        covers=("sse-comment", "event-without-data"),
        events=0,
    ),
    foreign(
        "html",
        b"<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head>\n<body>nginx</body></html>\n",
        container="unknown",
        events=0,
    ),
    foreign("openai-chat", chat_chunk(role="assistant", content="") + chat_chunk(content="hi") + chat_chunk() + DONE),
    foreign(
        "openai-chat-with-comments",
        b": PROCESSING\n\n" + chat_chunk(content="hi") + b": PROCESSING\n\n" + chat_chunk() + DONE,
    ),
    foreign(
        "openai-responses",
        sse(
            {"type": "response.created", "sequence_number": 0, "response": {"id": "resp_x", "error": None}},
            {"type": "response.output_text.delta", "sequence_number": 1, "delta": "hi"},
            {"type": "response.completed", "sequence_number": 2, "response": {"id": "resp_x"}},
        ),
    ),
    Entry(
        name="broken-json",
        data=sse(
            start(),
            opens_text(),
            text(0, "a"),
            b'event: content_block_delta\ndata: {"type":"content_block_del\n\n',
            text(0, "b"),
            closes(),
            turn(),
            STOP,
        ),
        answers=(Answer(content=[text_block("ab")]),),
        rule="§1: bad JSON or a non-object: a `stream_note`, counted; decided cases: broken JSON under a known event name is an "
        "EventError (strict: fatal)",
        covers=("unparsable-data",),
        bad_events=1,
    ),
    Entry(
        name="payloads-that-are-no-objects",
        data=sse(
            b"data: null\n\n", start(), b"data: [1]\n\n", says("a"), b'data: "x"\n\n', b"data: 3\n\n", turn(), STOP
        ),
        answers=(Answer(content=ONE),),
        rule="§1: bad JSON or a non-object: a `stream_note`, counted",
        covers=("unparsable-data",),
        bad_events=4,
        events=6,
    ),
    Entry(
        name="two-objects-in-one-payload",
        data=sse(start(), says("a"), frame(b'{"type":"ping"},{"type":"ping"}', name=None), turn(), STOP),
        answers=(Answer(content=ONE),),
        rule="§1: joining payloads with commas alone accepts forgeries (`{…},{…}` in one payload)",
        covers=("unparsable-data",),
        bad_events=1,
        events=6,
    ),
    Entry(
        name="half-an-object-in-two-payloads",
        data=sse(
            start(), says("a"), frame(b'{"type":"ping","x":[1', name=None), frame(b"2]}", name=None), turn(), STOP
        ),
        answers=(Answer(content=ONE),),
        rule="§1: … a half object in two others: alternation alone lets `[1` | `2]}` through",
        covers=("unparsable-data",),
        bad_events=2,
        events=6,
    ),
    Entry(
        name="block-start-without-its-block",
        data=sse(start(), {"type": "content_block_start", "index": 0}, says("a"), turn(), STOP),
        answers=(Answer(content=ONE),),
        rule="§1 decided cases: a content_block_start without content_block … is an EventError",
        bad_events=1,
    ),
    Entry(
        name="broken-json-then-eof",
        data=sse(
            start(),
            opens_thinking(),
            thinks(0, "hm"),
            b'data: {"type":"content_block_delta","index":0,"delta":{"ty\n\n',
        ),
        answers=(Answer(outcome="incomplete(0)", stop_reason=None, partial=[thinking_block("hm")]),),
        rule="§1: counted, lenient; " + EOF,
        covers=("unparsable-data", "block-never-stopped", "no-message_stop"),
        bad_events=1,
    ),
)
