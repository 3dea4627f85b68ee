"""The ways in which a conversation went on: ``forks`` (WIRE.md §3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from turnstream.messages.types import AssistantMessage, AttachmentMessage, SystemMessage, UserMessage
from turnstream.sinks.transcript.reading.content import Lines, message_of
from turnstream.sinks.transcript.reading.heads import ASSISTANT, USER, Member
from turnstream.sinks.transcript.reading.links import Links

__all__ = ["Fork", "find_forks"]

_LONGEST = 200


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """One branch.

    Attributes:
        leaf: uuid of its last record; ``resume(path, leaf=…)`` takes it.
        parent: uuid of the record where it leaves a newer branch; None for the newest one, and for one that shares
            nothing with newer ones.
        messages: how many records lie on the way from its root to its leaf.
        timestamp: of its last record.
        text: the beginning of its first prompt after ``parent``, else of its last words; one line.
        line: number of the leaf's line.
    """

    leaf: str
    parent: str | None
    messages: int
    timestamp: str
    text: str
    line: int


def find_forks(
    links: Links,
    lines: Lines,
    taken: Sequence[int],
    is_result: Callable[[Member], bool],
    *,
    with_taken: bool = False,
) -> list[Fork]:
    """The branches beside one.

    Args:
        links: of the file.
        lines: to read what a branch says.
        taken: indexes of the branch that was taken, its root first, history included.
        is_result: whether a user member holds a tool's result; asked for few.
        with_taken: put the branch that was taken first.

    Returns:
        The newest first. What hangs beside a branch and is no talk of its own (the other results of parallel calls,
        the output of hooks) is none.
    """
    members = links.members
    if not taken or (len(taken) == len(members) and not with_taken):
        return []
    covered = bytearray(len(members))
    for at in taken:
        covered[at] = 1
    trunk = _Trunk(members, taken)
    found = [_fork(links, lines, list(reversed(taken)), None, trunk.depth(taken[-1]))] if with_taken else []
    for at in reversed(_ends(links, covered)):
        if covered[at]:
            continue
        way: list[int] = []
        up = at
        while up >= 0 and not covered[up]:
            covered[up] = 1
            way.append(up)
            up = members[up].up
        own = _is_talk([members[one] for one in way], trunk, is_result)
        trunk.add(way[::-1])
        if own:
            found.append(_fork(links, lines, way, up if up >= 0 else None, trunk.depth(at)))
    return found


def _ends(links: Links, covered: bytearray) -> list[int]:
    """Indexes of the members with a uuid on which nothing hangs, and that aren't covered, in the file's order."""
    members, inner = links.members, bytearray(covered)
    for at in links.live:
        up = members[at].up
        if up >= 0:
            inner[up] = 1
    out = []
    at = inner.find(0)
    while at >= 0:
        if members[at].uuid and links.belongs(members[at]):
            out.append(at)
        at = inner.find(0, at + 1)
    return out


class _Trunk:
    """What is known of the members on the branches found so far. Nothing is looked up before it is asked for."""

    def __init__(self, members: Sequence[Member], taken: Sequence[int]) -> None:
        self._members = members
        self._ways = [taken]  # the root's end of each first
        self._deep = 0  # how many of them are in _depth
        self._said = 0  # how many of them are in _answers
        self._depth: dict[int, int] = {}
        self._answers: set[str] = set()

    def add(self, way: Sequence[int]) -> None:
        """One branch more, its beginning first."""
        self._ways.append(way)

    def depth(self, at: int) -> int:
        """How many records lie on the way from its root to a member."""
        depth, members = self._depth, self._members
        for way in self._ways[self._deep :]:
            for one in way:
                depth[one] = depth.get(members[one].up, 0) + 1
        self._deep = len(self._ways)
        return depth[at]

    def holds(self, answer: str) -> bool:
        """Whether an answer has a block there."""
        members = self._members
        for way in self._ways[self._said :]:
            self._answers.update(one for at in way if (one := members[at].answer))
        self._said = len(self._ways)
        return answer in self._answers


def _is_talk(way: Sequence[Member], trunk: _Trunk, is_result: Callable[[Member], bool]) -> bool:
    """Whether a branch says anything of its own."""
    return any(
        (member.kind == ASSISTANT and not (member.answer and trunk.holds(member.answer)))
        or (member.kind == USER and not is_result(member))
        for member in way
    )


def _fork(links: Links, lines: Lines, way: Sequence[int], parent: int | None, messages: int) -> Fork:
    members = links.members
    leaf: Any = message_of(lines.one(members[way[0]]))
    text = ""
    for at in reversed(way):
        if members[at].kind == USER and (text := _text_of(message_of(lines.one(members[at])))):
            break
    return Fork(
        leaf=members[way[0]].uuid,
        parent=members[parent].uuid or None if parent is not None else None,
        messages=messages,
        timestamp=getattr(leaf, "timestamp", ""),
        text=text or _text_of(leaf),
        line=members[way[0]].line,
    )


def _text_of(message: Any) -> str:
    """The beginning of what a message says in words."""
    if isinstance(message, (UserMessage, AssistantMessage)):
        if isinstance(message, UserMessage) and message.is_meta:
            return ""
        content = message.message.get("content")
        if isinstance(content, list):
            content = next(
                (b["text"] for b in content if isinstance(b, dict) and isinstance(b.get("text"), str) and b["text"]), ""
            )
    elif isinstance(message, SystemMessage):
        content = message.content
    elif isinstance(message, AttachmentMessage):
        content = message.attachment.get("type")
    else:
        content = None
    text = " ".join(content[: 4 * _LONGEST].split()) if isinstance(content, str) else ""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
