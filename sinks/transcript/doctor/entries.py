"""What the doctor remembers of each record: enough to judge the whole, nothing of its text."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from turnstream.messages.jsonvalue import dumps
from turnstream.operators.compaction import attachment_identity
from turnstream.operators.compaction.metadata import CompactMetadata
from turnstream.operators.normalize.thinking import THINKING, why_not_sent
from turnstream.sinks.transcript.lines import CHAIN_TYPES
from turnstream.sinks.transcript.reading.mending import is_whole_signature

__all__ = ["Entry", "entry_of", "good_thinking"]

_NO_IDS: Final = frozenset({"uuid", "parentUuid", "logicalParentUuid", "sessionId", "session_id"})


class Segment(NamedTuple):
    """What a compaction kept: the uuids that its boundary names."""

    head: str | None
    anchor: str | None
    tail: str | None


class Entry:
    """One record that has a ``uuid`` or ought to have one.

    Attributes:
        ordinal: which of the records it is, in the order of the file, from 0.
        line, offset, size: where its bytes are.
        kind: its ``type``.
        member: whether it is of a conversational type, and has its payload.
        uuid, parent, logical: as they stand in the record; None if they aren't there.
        up: the parent that it shall have.
        said: how many of the human's words were before it.
        place: which of the messages it is that are no repeats.
        linked: whether the record has the key ``parentUuid``.
        side: whether it is a sub-agent's.
        branch: whose chain it belongs to: None, or the sub-agent's id.
        session: its ``sessionId``.
        time: seconds since the epoch; None without a readable timestamp.
        whole: a digest of all but its ids.
        message: a digest of what it says (and of the answer that says it).
        answer: the answer it is a block of: ``message.id``.
        unique: whether its payload can occur once only (a tool call, a result, signed thinking).
        spoken: whether it is words of the human: a user message that is neither results nor meta.
        calls, results: ids of its tool calls, and of those that it answers.
        boundary: whether it is a compact_boundary.
        segment: what that boundary kept, None for nothing.
        hollow: whether it holds nothing but thinking that the API doesn't take back.
        summary: whether it is a compaction's summary.
        attachment: a digest of its attachment; None if there may be many of it.
        target: the uuid that a tombstone takes back.
    """

    __slots__ = (
        "answer",
        "attachment",
        "boundary",
        "branch",
        "calls",
        "hollow",
        "kind",
        "line",
        "linked",
        "logical",
        "member",
        "message",
        "offset",
        "ordinal",
        "parent",
        "place",
        "results",
        "said",
        "segment",
        "session",
        "side",
        "size",
        "spoken",
        "summary",
        "target",
        "time",
        "unique",
        "up",
        "uuid",
        "whole",
    )

    ordinal: int
    line: int
    offset: int
    size: int
    kind: str
    member: bool
    uuid: str | None
    up: str | None
    said: int
    place: int
    parent: str | None
    logical: str | None
    linked: bool
    side: bool
    branch: str | None
    session: str | None
    time: float | None
    whole: bytes
    message: bytes
    answer: str | None
    unique: bool
    spoken: bool
    calls: tuple[str, ...]
    results: tuple[str, ...]
    boundary: bool
    segment: Segment | None
    hollow: bool
    summary: bool
    attachment: bytes | None
    target: str | None


def entry_of(
    value: dict[str, Any],
    *,
    ordinal: int,
    line: int,
    offset: int,
    size: int,
    before: Entry | None = None,
    names: dict[str, str] | None = None,
) -> Entry:
    """What is to be remembered of a record.

    Args:
        value: the record.
        ordinal: its place.
        line: its line.
        offset: of its first byte.
        size: its bytes.
        before: the entry before it: what they have in common is held once.
        names: texts that many records share, each held once.
    """
    names = {} if names is None else names
    get = value.get
    entry = Entry()
    entry.ordinal, entry.line, entry.offset, entry.size = ordinal, line, offset, size
    entry.kind = kind = _shared(names, get("type")) or ""
    entry.member = member = kind in CHAIN_TYPES and _has_payload(kind, value)
    entry.uuid = _text(get("uuid"))
    entry.parent = _text(get("parentUuid"))
    if before is not None and entry.parent == before.uuid:
        entry.parent = before.uuid
    entry.up, entry.said, entry.place = None, 0, -1
    entry.logical = _text(get("logicalParentUuid"))
    entry.linked = "parentUuid" in value
    entry.side = get("isSidechain") is True
    entry.branch = (_shared(names, get("agentId")) or "") if entry.side else None
    entry.session = _shared(names, get("sessionId"))
    entry.time = _time(_text(get("timestamp")))
    entry.target = _text(get("targetUuid")) if kind == "tombstone" else None
    entry.answer = entry.segment = entry.attachment = None
    entry.boundary = entry.hollow = entry.summary = entry.unique = entry.spoken = False
    entry.calls = entry.results = ()
    entry.whole = entry.message = b""
    if not member:
        return entry
    entry.whole = _digest({key: item for key, item in value.items() if key not in _NO_IDS})
    if kind == "system":
        entry.boundary = get("subtype") == "compact_boundary"
        if entry.boundary:
            entry.segment = _segment(get("compactMetadata"))
        return entry
    if kind == "attachment":
        payload = get("attachment")
        if isinstance(payload, dict):
            identity = attachment_identity(payload)
            if identity is not None:
                entry.attachment = _digest([repr(identity), payload])
            entry.message = _digest(payload)
        return entry
    payload = get("message")
    content = payload.get("content") if isinstance(payload, dict) else None
    entry.message = _digest(content)
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    if kind == "assistant":
        entry.answer = _text(payload.get("id")) if isinstance(payload, dict) else None
        if entry.answer is not None:
            if before is not None and entry.answer == before.answer:
                entry.answer = before.answer
            entry.message = _digest([entry.answer, content])
        entry.hollow = bool(blocks) and content == blocks and not any(map(good_thinking, blocks))
        entry.calls = tuple(b["id"] for b in blocks if b.get("type") == "tool_use" and _text(b.get("id")))
        entry.unique = bool(entry.calls) or any(b.get("type") == "thinking" and b.get("signature") for b in blocks)
    else:
        entry.summary = get("isCompactSummary") is True
        entry.results = tuple(
            b["tool_use_id"] for b in blocks if b.get("type") == "tool_result" and _text(b.get("tool_use_id"))
        )
        entry.unique = bool(entry.results)
        entry.spoken = not entry.results and bool(content) and get("isMeta") is not True and not entry.summary
    return entry


def good_thinking(block: Any) -> bool:
    """Whether a content block is no thinking, or thinking that the API takes back (FAULTS.md 57)."""
    if not isinstance(block, dict) or block.get("type") not in THINKING:
        return True
    if why_not_sent(block) is not None:
        return False
    return block["type"] != "thinking" or is_whole_signature(block["signature"])


def _has_payload(kind: str, value: dict[str, Any]) -> bool:
    """A conversational type in an odd shape is kept, but is no message (FAULTS.md 56)."""
    if kind == "system":
        return True
    return isinstance(value.get("attachment" if kind == "attachment" else "message"), dict)


def _shared(names: dict[str, str], value: Any) -> str | None:
    text = _text(value)
    return names.setdefault(text, text) if text is not None else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _time(stamp: str | None) -> float | None:
    if stamp is None:
        return None
    try:
        time = datetime.fromisoformat(stamp)
        return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _segment(metadata: Any) -> Segment | None:
    segment = CompactMetadata.from_wire(metadata).preserved_segment
    if segment is None or (segment.head_uuid is None and segment.tail_uuid is None):
        return None
    return Segment(segment.head_uuid, segment.anchor_uuid, segment.tail_uuid)


def _digest(value: Any) -> bytes:
    return hashlib.blake2b(dumps(value), digest_size=16).digest()
