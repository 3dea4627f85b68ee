"""No training data with a made-up tool result (WIRE.md §2, tool results)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from turnstream.messages import (
    Message,
    MessageFactory,
    Tombstone,
    TrainingDataError,
    decode_line,
    export_training,
    from_wire,
    texts,
)
from turnstream.messages.events import event_from_wire

MAKE = MessageFactory()
FOREIGN = "[Tool result missing due to internal error]"
ASK = {"type": "tool_use", "id": "t1", "name": "n", "input": {}}


def nested(text: str, depth: int) -> Any:
    value: Any = text
    for level in range(depth):
        value = {"k": value} if level % 2 else [value]
    return value


PLACES: dict[str, Callable[[str], Any]] = {
    "text": MAKE.user,
    "inside of a text": lambda text: MAKE.user(f"it said {text}!"),
    "tool result": lambda text: MAKE.tool_result("t1", text, is_error=True),
    "block in a tool result": lambda text: MAKE.tool_result("t1", [{"type": "text", "text": text}]),
    "a tool's own output": lambda text: MAKE.tool_result("t1", "fine", tool_use_result={"stdout": [text]}),
    "tool input": lambda text: MAKE.assistant([{**ASK, "input": {"a": {"b": text}}}]),
    "a key": lambda text: MAKE.assistant([{**ASK, "input": {text: 1}}]),
    "another key of the line": lambda text: from_wire({"type": "user", "message": {"content": "x"}, "odd": [text]}),
    "attachment": lambda text: MAKE.attachment({"type": "memory", "content": text}),
    "progress": lambda text: MAKE.progress("t1", None, {"type": "bash_progress", "output": text}),
    "system": lambda text: MAKE.informational(text),
    "tombstone": lambda text: MAKE.tombstone(MAKE.assistant(text)),
    "unknown record": lambda text: from_wire({"type": "queue-operation", "content": text}),
    "a line that is no JSON": lambda text: decode_line(b'{"type": "user", ' + text.encode()),
    "stream event": lambda text: event_from_wire(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    ),
    "very deep": lambda text: MAKE.attachment({"type": "memory", "content": nested(text, 5000)}),
}


@pytest.mark.parametrize("text", [texts.MISSING_RESULT, FOREIGN])
@pytest.mark.parametrize("place", PLACES)
def test_a_conversation_with_it_anywhere_is_refused(place: str, text: str) -> None:
    conversation = [MAKE.user("hello"), PLACES[place](text), MAKE.assistant("done")]
    with pytest.raises(TrainingDataError) as caught:
        export_training(conversation)
    assert caught.value.index == 1
    assert caught.value.path.startswith("$")
    export_training([MAKE.user("hello"), PLACES[place]("fine"), MAKE.assistant("done")])


def test_the_factorys_missing_results_are_refused() -> None:
    asked = MAKE.assistant([ASK])
    (missing,) = MAKE.missing_results([asked])
    with pytest.raises(
        TrainingDataError, match=r"item 1 .*\$\.message\.content\[0\]\.content|tool_use_result"
    ) as caught:
        export_training([asked, missing])
    assert caught.value.uuid == missing.uuid


def test_what_is_exported_is_speech_in_order() -> None:
    gone = MAKE.assistant("taken back")
    asked = MAKE.assistant([ASK])
    conversation: list[Message] = [
        MAKE.user("hello"),
        gone,
        Tombstone(message=gone),
        MAKE.informational("notice"),
        asked,
        MAKE.tool_result("t1", "out", tool_use_result={"private": 1}),
        MAKE.user("shown only", is_virtual=True),
        MAKE.interruption(),
        MAKE.api_error("too long"),
        MAKE.assistant("bye"),
    ]
    assert export_training(conversation) == [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": [ASK]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "out"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "bye"}]},
    ]
    assert export_training([]) == []


def test_a_tombstone_read_from_a_file_takes_back_by_uuid() -> None:
    gone = MAKE.assistant("taken back")
    read = decode_line(b'{"type":"tombstone","message":{"uuid":"%s"}}' % gone.uuid.encode())
    assert export_training([MAKE.user("hello"), gone, read]) == [{"role": "user", "content": "hello"}]
