"""Where a conversation goes on in more than one way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from turnstream.cli.reading import is_sidechain
from turnstream.messages.kinds import holds_result
from turnstream.messages.types import AssistantMessage, AttachmentMessage, UserMessage

__all__ = ["Forks"]


@dataclass
class _Member:
    line: int
    parent: str | None
    answer: str | None
    result: bool
    hook: bool
    sidechain: bool


class Forks:
    """Looks at ``parentUuid`` of chain members.

    A record with several children is a fork only if these are different continuations. The results of a
    call and the next block of the same answer are one: parallel calls are written so. Hooks that ran for a
    call stand beside it.
    """

    def __init__(self) -> None:
        self._members: dict[str, _Member] = {}

    def add(self, message: Any, line: int) -> None:
        """Take in a user, assistant, system or attachment message; of the same uuid the last one counts."""
        if not message.uuid:
            return
        parent = (message.extra or {}).get("parentUuid")
        answer = message.message.get("id") if isinstance(message, AssistantMessage) else None
        self._members[message.uuid] = _Member(
            line,
            parent if isinstance(parent, str) else None,
            answer if isinstance(answer, str) else None,
            isinstance(message, UserMessage) and holds_result(message.message.get("content")),
            isinstance(message, AttachmentMessage) and isinstance(message.attachment.get("toolUseID"), str),
            is_sidechain(message),
        )

    def report(self) -> list[dict[str, Any]]:
        """Each fork: the record's line and uuid, and how many ways go on from it."""
        ways: dict[str, int] = {}
        within: set[str] = set()
        for uuid, member in self._members.items():
            parent = self._members.get(member.parent) if member.parent is not None else None
            if parent is None or member.parent is None or member.hook or member.sidechain != parent.sidechain:
                continue
            if member.parent == uuid:  # its own parent: no way on
                continue
            if member.result or (member.answer is not None and member.answer == parent.answer):
                within.add(member.parent)
            else:
                ways[member.parent] = ways.get(member.parent, 0) + 1
        found = [
            {"line": self._members[uuid].line, "uuid": uuid, "branches": count + (uuid in within)}
            for uuid, count in ways.items()
            if count + (uuid in within) > 1
        ]
        return sorted(found, key=lambda fork: fork["line"])
