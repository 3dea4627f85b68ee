"""What transcript tests share: answers as ``accumulate`` makes them, and a look at files with stdlib json."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

from turnstream.messages import (
    AssistantMessage,
    ContentBlockStart,
    ContentBlockStop,
    MessageDelta,
    MessageFactory,
    MessageStart,
    MessageStop,
    ResponseFailed,
    Tombstone,
    seeded_clock,
    seeded_ids,
)

SESSION = "5c0375b4-57a5-4f26-b12d-d022ee4e51b7"
OTHER_SESSION = "0b6b3f2e-1d58-4c3e-9f7e-5a3c1f0d9e77"


class Answer:
    """One answer: its items one by one, all messages sharing one usage, updated in place."""

    def __init__(self, make: MessageFactory, message_id: str = "msg_1") -> None:
        self.make = make
        self.usage: dict[str, Any] = {"input_tokens": 26, "output_tokens": 3}
        self.envelope: dict[str, Any] = {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": "claude-test-1",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }
        self.messages: list[AssistantMessage] = []

    def start(self) -> MessageStart:
        return MessageStart({**self.envelope, "usage": dict(self.usage)})

    def message(self, block: dict[str, Any]) -> AssistantMessage:
        """The message of one finished block, without its events."""
        made = AssistantMessage(
            message={**self.envelope, "content": [block], "usage": self.usage},
            uuid=self.make.ids("assistant"),
            timestamp=self.make.timestamp(),
            request_id="req_1",
            index=len(self.messages),
        )
        self.messages.append(made)
        return made

    def block(self, block: dict[str, Any]) -> list[Any]:
        index = len(self.messages)
        return [ContentBlockStart(block, index), self.message(block), ContentBlockStop(index)]

    def text(self, text: str) -> list[Any]:
        return self.block({"type": "text", "text": text})

    def tool(self, ident: str, name: str = "Read") -> list[Any]:
        return self.block({"type": "tool_use", "id": ident, "name": name, "input": {"n": 1}})

    def delta(self, output_tokens: int = 310, stop_reason: str = "end_turn") -> MessageDelta:
        """The message_delta; like ``accumulate`` it updates what was emitted."""
        self.usage["output_tokens"] = output_tokens
        for message in self.messages:
            message.message["stop_reason"] = stop_reason
        return MessageDelta({"stop_reason": stop_reason}, {"output_tokens": output_tokens})

    def end(self, output_tokens: int = 310, stop_reason: str = "end_turn") -> list[Any]:
        return [self.delta(output_tokens, stop_reason), MessageStop()]

    def fail(self) -> list[Any]:
        return [ResponseFailed(error={"type": "incomplete_stream", "message": "cut"}, outcome="incomplete(1)")]

    def tombstones(self) -> list[Tombstone]:
        return [Tombstone(message=message) for message in self.messages]


def maker(seed: int = 7) -> MessageFactory:
    return MessageFactory(seeded_ids(seed), seeded_clock())


def records(path: Path) -> list[Any]:
    """The file's lines, each parsed by the standard library; the last line must be whole."""
    data = path.read_bytes()
    assert not data or data.endswith(b"\n"), "the last line isn't ended"
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def parents(path: Path) -> dict[str, str | None]:
    """uuid → parentUuid of the chain members, in file order."""
    return {r["uuid"]: r["parentUuid"] for r in records(path) if "parentUuid" in r}


def uuids(path: Path) -> list[str]:
    return [r["uuid"] for r in records(path) if "parentUuid" in r]


class FaultyDevice:
    """Stands in for ``os.write``: writes what the plan allows, call by call.

    A number lets at most that many bytes through; an ``errno`` as a negative number raises. After the
    plan everything goes.
    """

    def __init__(self, *plan: int) -> None:
        self.plan = list(plan)
        self.calls: list[int] = []

    def __call__(self, fd: int, data: memoryview) -> int:
        self.calls.append(len(data))
        if self.plan:
            allowed = self.plan.pop(0)
            if allowed < 0:
                raise OSError(-allowed, os.strerror(-allowed))
            data = data[:allowed]
        return os.write(fd, data)


FULL = -errno.ENOSPC
BROKEN = -errno.EIO
