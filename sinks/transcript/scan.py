"""What a file already holds, as far as a writer that goes on with it must know."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, Final

import msgspec

from turnstream.messages.jsonvalue import JSONValueError, loads
from turnstream.sinks.transcript.chain import Chain
from turnstream.sinks.transcript.fillers import FILLER_TYPE, is_filler
from turnstream.sinks.transcript.lines import CHAIN_TYPES

__all__ = ["Existing", "Head", "head_of", "scan"]


class Head(msgspec.Struct):
    """The keys of a record that matter here; everything else is skipped at the decoder's speed."""

    type: Any = None
    uuid: Any = None
    parent: Any = msgspec.field(default=None, name="parentUuid")
    logical: Any = msgspec.field(default=None, name="logicalParentUuid")
    sidechain: Any = msgspec.field(default=None, name="isSidechain")
    session: Any = msgspec.field(default=None, name="sessionId")
    title: Any = msgspec.field(default=None, name="customTitle")
    target: Any = msgspec.field(default=None, name="targetUuid")


_decode: Final = msgspec.json.Decoder(Head).decode


class Existing:
    """The result.

    Attributes:
        chain: its members, the pointer at the last one in file order.
        session_id: of the last conversational record that has one.
        session_ids: all that occur.
        title: the last custom title.
        ended: whether the last line has its line end.
        records: how many lines are JSON objects.
        bad_lines: how many aren't.
        fillers: how many lines are fillers.
        size: bytes.
    """

    def __init__(self) -> None:
        self.chain = Chain()
        self.session_id: str | None = None
        self.session_ids: set[str] = set()
        self.title: str | None = None
        self.ended = True
        self.records = 0
        self.bad_lines = 0
        self.fillers = 0
        self.size = 0


def scan(
    file: BinaryIO | Iterable[bytes],
    *,
    sidechain: bool = False,
    note: Callable[[str, int], None] | None = None,
) -> Existing:
    """Read the lines once, in order; what can't be read is counted and skipped.

    Args:
        file: lines with their line ends (a binary file).
        sidechain: whether members of sidechains move the pointer (in a sub-agent's own file).
        note: is told each member's uuid and the offset of its line.
    """
    found = Existing()
    chain = found.chain
    last: str | None = None
    offset = 0
    for line in file:
        start = offset
        offset += len(line)
        found.ended = line.endswith(b"\n")
        if not line.strip():
            found.fillers += is_filler(line)
            continue
        head = head_of(line)
        if head is None:
            if is_filler(line):
                found.fillers += 1  # its write was broken off
            else:
                found.bad_lines += 1
            continue
        found.records += 1
        # Other records share the ids' name space: only conversational types are members.
        if head.type in CHAIN_TYPES and isinstance(head.uuid, str) and head.uuid:
            before = head.parent if isinstance(head.parent, str) else head.logical
            if not isinstance(before, str) or not chain.seen(before):
                before = last  # a parent that isn't here is bridged to the nearest earlier record
            if not chain.seen(head.uuid):
                chain.add(head.uuid, before)
            if note is not None:
                note(head.uuid, start)
            if sidechain or head.sidechain is not True:
                last = chain.pointer = head.uuid
            if isinstance(head.session, str):
                found.session_id = head.session
                found.session_ids.add(head.session)
        elif head.type == "custom-title" and isinstance(head.title, str):
            found.title = head.title
        elif head.type == "tombstone" and isinstance(head.target, str):
            chain.remove(head.target)
        elif head.type == FILLER_TYPE:
            found.fillers += 1
            if isinstance(head.target, str):
                chain.forget(head.target, last)
    found.size = offset
    return found


def head_of(line: bytes) -> Head | None:
    """The head of a line; None if it is no JSON object."""
    try:
        return _decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        pass
    try:
        value = loads(line)
    except JSONValueError:
        return None
    try:
        return msgspec.convert(value, Head)
    except msgspec.ValidationError:
        return None
