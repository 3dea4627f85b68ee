"""The same answers in other containers (WIRE.md §1, events; decided cases: a container has the outcome of what it holds)."""

from __future__ import annotations

from entry import Answer, Entry
from frames import (
    STOP,
    calls,
    dump,
    ndjson,
    opens_text,
    says,
    start,
    text,
    text_block,
    tool_block,
    turn,
    wrapped,
)

WHOLE = [start(), says("a"), calls(1, '{"n":', "1}"), turn("tool_use"), STOP]
ANSWER = Answer(
    content=[text_block("a"), tool_block({"n": 1})],
    stop_reason="tool_use",
    usage={"input_tokens": 7, "output_tokens": 5},
    message={"id": "msg_a", "model": "claude-test-1"},
)
CONTAINERS = "§1 decided cases: containers have the outcome of what they hold"
PLAIN = (
    "§1: if the response isn't an event stream (one JSON message from a gateway), decode what came into the same items"
)
MESSAGE = {
    "id": "msg_a",
    "type": "message",
    "role": "assistant",
    "model": "claude-test-1",
    "stop_sequence": None,
    "content": [text_block("a"), tool_block({"n": 1})],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 7, "output_tokens": 5},
}

ENTRIES = (
    Entry(name="ndjson", data=ndjson(WHOLE), answers=(ANSWER,), rule=CONTAINERS, container="ndjson", events=10),
    Entry(
        name="ndjson-crlf-and-blank-lines",
        data=b"\r\n" + ndjson(WHOLE).replace(b"\n", b"\r\n\r\n"),
        answers=(ANSWER,),
        rule=CONTAINERS,
        container="ndjson",
        events=10,
    ),
    Entry(
        name="ndjson-without-final-newline",
        data=ndjson(WHOLE).rstrip(b"\n"),
        answers=(ANSWER,),
        rule=CONTAINERS,
        container="ndjson",
        events=10,
    ),
    Entry(
        name="ndjson-cut",
        data=ndjson(start(), opens_text(), text(0, "half"))[:-9],
        answers=(Answer(outcome="incomplete(0)", stop_reason=None),),
        rule=CONTAINERS + "; a cut last line is no event",
        covers=("no-message_stop", "block-never-stopped"),
        container="ndjson",
        events=2,
        bad_events=1,
    ),
    Entry(
        name="wrapped-ndjson",
        data=wrapped(WHOLE),
        answers=(ANSWER,),
        rule="§1: NDJSON also comes in wrappers ({Type, Data} with the payload as a string)",
        container="ndjson",
        events=10,
    ),
    Entry(
        name="plain-json-message", data=dump(MESSAGE), answers=(ANSWER,), rule=PLAIN + " (FAULTS 8)", container="json"
    ),
    Entry(
        name="plain-json-message-indented",
        data=b"\n " + dump(MESSAGE).replace(b',"', b',\n  "') + b"\n",
        answers=(ANSWER,),
        rule=PLAIN,
        container="json",
    ),
    Entry(
        name="plain-json-error",
        data=b'{"type":"error","error":{"type":"not_found_error","message":"no such model"}}',
        answers=(Answer(outcome="api_error(not_found_error)", stop_reason=None),),
        rule=PLAIN,
        container="json",
    ),
)
