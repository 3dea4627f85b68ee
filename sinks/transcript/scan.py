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
    agent: Any = msgspec.field(default=None, name="agentId")
    session: Any = msgspec.field(default=None, name="sessionId")
    title: Any = msgspec.field(default=None, name="customTitle")
    target: Any = msgspec.field(default=None, name="targetUuid")


BOM: Final = b"\xef\xbb\xbf"

_decode: Final = msgspec.json.Decoder(Head).decode


class Existing:
    """The result.

    Attributes:
        chain: its members, the pointer at the last one in file order; a copy of one that was there is none.
        sidechain: whether it holds members of sidechains only: it is a sub-agent's own file.
        agent_id: of the last conversational record that has one.
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
        self.sidechain = False
        self.agent_id: str | None = None
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

    What counts as held is what a reader finds, also behind a byte-order mark, and on a line of several records: what
    isn't held would be written again, and what follows would hang on that.

    Args:
        file: lines with their line ends (a binary file).
        sidechain: whether members of sidechains move the pointer (in a sub-agent's own file).
        note: is told each member's uuid and the offset of its line.
    """
    found = Existing()
    chain = found.chain
    last: str | None = None
    beside: str | None = None  # the last member of a sidechain
    offset = 0
    for line in file:
        start = offset
        offset += len(line)
        found.ended = line.endswith(b"\n")
        if not line.strip():
            found.fillers += is_filler(line)
            continue
        head = head_of(line)
        if head is not None:
            found.records += 1
            heads = [head]
        elif is_filler(line):
            found.fillers += 1  # its write was broken off
            continue
        else:
            heads = _heads_of(line, start)
            if len(heads) == 1 and start == 0 and line.startswith(BOM):
                found.records += 1
            else:
                found.bad_lines += 1
        for head in heads:
            # Other records share the ids' name space: only conversational types are members.
            if head.type in CHAIN_TYPES:
                if isinstance(head.session, str):
                    found.session_id = head.session
                    found.session_ids.add(head.session)
                if not isinstance(head.uuid, str) or not head.uuid:
                    continue
                before = head.parent if isinstance(head.parent, str) else head.logical
                if not isinstance(before, str) or not chain.seen(before):
                    before = last  # a parent that isn't here is bridged to the nearest earlier record
                if note is not None:
                    note(head.uuid, start)
                if chain.seen(head.uuid):
                    continue  # a copy stands in the place of the first
                chain.add(head.uuid, before)
                if sidechain or head.sidechain is not True:
                    last = chain.pointer = head.uuid
                else:
                    beside = head.uuid
                if isinstance(head.agent, str):
                    found.agent_id = head.agent
            elif head.type == "custom-title" and isinstance(head.title, str):
                found.title = head.title
            elif head.type == "tombstone" and isinstance(head.target, str):
                chain.remove(head.target)
            elif head.type == FILLER_TYPE:
                found.fillers += 1
                if isinstance(head.target, str):
                    chain.forget(head.target, last)
    if last is None and beside is not None:
        found.sidechain = True
        chain.pointer = beside
    found.size = offset
    return found


def _heads_of(line: bytes, offset: int) -> list[Head]:
    """The heads of what a reader finds on a line that isn't one record."""
    # Few files have such a line.
    from turnstream.sinks.transcript.reading.records import records_of

    raw = line.removesuffix(b"\n")
    if offset == 0:
        raw = raw.removeprefix(BOM)
    found = (_converted(record.value) for record in records_of(raw) if record.value is not None)
    return [head for head in found if head is not None]


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
    return _converted(value)


def _converted(value: Any) -> Head | None:
    try:
        return msgspec.convert(value, Head)
    except msgspec.ValidationError:
        return None
