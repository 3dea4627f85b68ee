"""Messages for the display's stages, made by hand, with ids that a test can read."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from turnstream.messages import (
    AssistantMessage,
    AttachmentMessage,
    ProgressMessage,
    SystemMessage,
    UserMessage,
)
from turnstream.operators import run_batches
from turnstream.operators.stage import Operator

NOW = "2026-01-01T00:00:00.000Z"
# WIRE.md §2: a fixed namespace of ours. Written out here, because ids that were handed out hang on it.
OURS = uuid.uuid5(uuid.NAMESPACE_DNS, "turnstream")


def uid(letter: str) -> str:
    """A uuid of one digit: ``uid("a")``."""
    return f"{letter * 8}-{letter * 4}-4{letter * 3}-8{letter * 3}-{letter * 12}"


def part(parent: str, index: int) -> str:
    """WIRE.md §2: the first 24 characters of the parent and the index as 12 hex digits."""
    return parent[:24] + format(index, "012x")


def other(name: str) -> str:
    """WIRE.md §2, on collision: uuid5 of our namespace and ``parent/index``."""
    return str(uuid.uuid5(OURS, name))


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def thinks(words: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": "sig"}


def calls(tool: str, name: str = "Bash", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": tool, "name": name, "input": given}


def answers(tool: str, content: str = "done") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": tool, "content": content}


def user(content: Any, ident: str = "u", **fields: Any) -> UserMessage:
    return UserMessage(message={"role": "user", "content": content}, uuid=ident, timestamp=NOW, **fields)


def assistant(*content: Any, ident: str = "a", answer: str | None = "msg_1", **fields: Any) -> AssistantMessage:
    message = {"type": "message", "role": "assistant", "model": "m", "content": list(content), "usage": {}}
    if answer is not None:
        message["id"] = answer
    return AssistantMessage(message=message, uuid=ident, timestamp=NOW, **fields)


def use(tool: str, name: str = "Bash", answer: str | None = "msg_1", **given: Any) -> AssistantMessage:
    return assistant(calls(tool, name, **given), ident=f"use-{tool}", answer=answer)


def result(tool: str, ident: str | None = None) -> UserMessage:
    return user([answers(tool)], ident or f"result-{tool}")


def say(words: str, answer: str = "msg_1", ident: str | None = None) -> AssistantMessage:
    return assistant(text(words), ident=ident or f"say-{words}", answer=answer)


def hook(tool: str, event: str, kind: str = "hook_success") -> AttachmentMessage:
    data = {"type": kind, "toolUseID": tool, "hookEvent": event, "hookName": event}
    return AttachmentMessage(attachment=data, uuid=f"{kind}-{event}-{tool}", timestamp=NOW)


def progress(
    tool: str | None, kind: str, parent: str | None = None, ident: str | None = None, **data: Any
) -> ProgressMessage:
    return ProgressMessage(
        data={"type": kind, **data},
        uuid=ident or f"{kind}-{tool}",
        timestamp=NOW,
        tool_use_id=tool,
        parent_tool_use_id=parent,
    )


def running(tool: str, event: str) -> ProgressMessage:
    return progress(tool, "hook_progress", tool, f"running-{event}-{tool}", hookEvent=event)


def system(subtype: str = "informational", ident: str = "s") -> SystemMessage:
    return SystemMessage(subtype=subtype, uuid=ident, timestamp=NOW, content="words")


def boundary(ident: str) -> SystemMessage:
    return system("compact_boundary", ident)


def cut(items: Sequence[Any], places: Sequence[int]) -> list[list[Any]]:
    """``items`` as batches that end at ``places`` (taken modulo)."""
    at = sorted({place % (len(items) + 1) for place in places})
    return [list(items[a:b]) for a, b in zip([0, *at], [*at, len(items)], strict=True)]


def in_batches(items: Sequence[Any], places: Sequence[int], operator: Operator[Any, Any]) -> list[Any]:
    """What the operator says when ``items`` come cut at ``places``."""
    return [item for batch in run_batches(cut(items, places), operator) for item in batch]


def same(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Whether both hold the very same objects in the same order."""
    return [*map(id, left)] == [*map(id, right)]
