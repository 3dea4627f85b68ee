"""How large things may get, and what stands in the file for what is larger (WIRE.md §3, byte guards).

A session that grows without bound can't be opened any more. The limits are far above what a conversation
needs; what exceeds one is replaced by a record that keeps its place in the chain and says how much is
missing, it is counted, and the next ``drain`` reports it: nothing disappears unseen.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from turnstream.messages.errors import TranscriptError
from turnstream.messages.jsonvalue import MAX_RECORD_DEPTH, JSONValueError, dumps, loads

__all__ = ["LEFT_OUT", "Budget", "Guard", "Limits", "TranscriptLimitError", "clipped", "stand_in"]

Guard = Literal["record", "session"]
"""Which limit was exceeded."""

LEFT_OUT: Final = "leftOut"
"""The key by which a stand-in is known: ``{"bytes": of the record, "limit": …, "guard": "record"}``."""

# What is left of a long text, characters; longer values of other keys go.
_PREVIEW: Final = 2000
# Whatever else a record holds, these are what it is.
_ENVELOPE: Final = frozenset({"type", "subtype", "uuid", "parentUuid", "logicalParentUuid", "sessionId", "timestamp"})
_MEDIA: Final = frozenset({"image", "document", "redacted_thinking"})


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How large things may get, bytes; None is no limit.

    Attributes:
        record: one line.
        session: the transcript with the side files that were written for it. What comes when it is full is
            written as stand-ins, so that the chain goes on.
        tool_result: a tool's result; what is larger goes to a side file, the line keeps a preview and a
            reference.
    """

    record: int | None = 64 * 1024 * 1024
    session: int | None = 4 * 1024 * 1024 * 1024
    tool_result: int | None = 256 * 1024

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"the limit {name} must not be negative, it is {value}")


class Budget:
    """What of the limits is left.

    Args:
        limits: the limits.

    Attributes:
        used: bytes of the session so far.
    """

    def __init__(self, limits: Limits) -> None:
        self._record = limits.record
        self._session = limits.session
        self.used = 0

    def largest(self) -> float:
        """Bytes that a line may have now."""
        largest = float("inf") if self._record is None else self._record
        return largest if self._session is None else min(largest, self._session - self.used)

    def group(self, most: int) -> int:
        """Bytes to write at once, ``most`` at most: the next group sees what is left then."""
        left = most if self._session is None else self._session - self.used
        return left if 0 < left < most else most

    def takes(self, size: int) -> bool:
        """Whether side files of ``size`` bytes still fit into the session."""
        return self._session is None or self.used + size <= self._session

    def exceeded(self, size: int) -> tuple[Guard, int]:
        """Which limit a line of ``size`` bytes exceeds, and that limit."""
        if self._record is not None and size > self._record:
            return "record", self._record
        return "session", self._session or 0


class TranscriptLimitError(TranscriptError):
    """A record was larger than a limit; a stand-in is in the file.

    Attributes:
        guard: which limit.
        size: bytes of the record.
        limit: bytes.
        uuid: of the record, None if it has none.
    """

    def __init__(
        self, message: str, *, guard: Guard, size: int, limit: int, uuid: str | None = None, **where: Any
    ) -> None:
        super().__init__(message, **where)
        self.guard = guard
        self.size = size
        self.limit = limit
        self.uuid = uuid


def clipped(text: str, room: int, where: str = "left out") -> str:
    """The first ``room`` characters of a text and how many are missing; a shorter one as it is."""
    if len(text) <= room:
        return text
    gap = "\n" if room else ""
    return f"{text[:room]}{gap}[{len(text) - room:,} {'more ' if room else ''}characters {where}]"


def stand_in(line: bytes, *, limit: int, guard: Guard) -> bytes:
    """What is written instead of a line.

    It has the record's envelope, its place in the chain, an answer's id, model, usage and stop_reason, the
    ids of tool calls and results; of texts the beginning (with a full session: nothing).

    Args:
        line: with its line end.
        limit: bytes.
        guard: which limit that is.
    """
    room = _PREVIEW if guard == "record" else 0
    mark = {LEFT_OUT: {"bytes": len(line), "limit": limit, "guard": guard}}
    try:
        record = loads(line, max_depth=MAX_RECORD_DEPTH)
    except JSONValueError:
        record = None
    if not isinstance(record, dict):
        return dumps({"type": "left-out", **mark}) + b"\n"
    out: dict[str, Any] = {}
    for key, value in record.items():
        if key == "message" and isinstance(value, dict):
            out[key] = _message(value, room)
        elif key == "content" and isinstance(value, str):
            out[key] = clipped(value, room)
        elif key in _ENVELOPE or _is_small(value):
            out[key] = value
        elif key == "attachment":
            kind = value.get("type") if isinstance(value, dict) else None
            out[key] = {"type": kind} if isinstance(kind, str) else {}
    shorter = dumps({**out, **mark}) + b"\n"
    return shorter if len(shorter) < len(line) else line


def _is_small(value: Any) -> bool:
    return len(dumps(value)) <= _PREVIEW


def _message(message: dict[str, Any], room: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in message.items():
        if key == "content":
            out[key] = _content(value, room)
        elif _is_small(value):
            out[key] = value
    return out


def _content(content: Any, room: int) -> Any:
    if isinstance(content, str):
        return clipped(content, room)
    if not isinstance(content, list):
        return content if _is_small(content) else ""
    blocks: list[Any] = []
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_use":
            small = _is_small(block.get("input")) and room > 0
            blocks.append(block if small else {**block, "input": {LEFT_OUT: "the tool's input"}})
        elif kind == "tool_result":
            blocks.append({**block, "content": clipped(_text_of(block.get("content")), room)})
        elif kind == "text" and isinstance(block.get("text"), str):
            blocks.append({"type": "text", "text": clipped(block["text"], room)})
        elif kind == "thinking":
            # Clipped it isn't what was signed.
            blocks.append({"type": kind, "thinking": clipped(str(block.get("thinking") or ""), room)})
        elif kind in _MEDIA or not _is_small(block):
            blocks.append({"type": "text", "text": f"[{kind or 'a block'} left out]"})
        else:
            blocks.append(block)
    # Pairs of calls and results stay; of a flood of others the beginning.
    kept = [b for b in blocks if isinstance(b, dict) and b.get("type") in ("tool_use", "tool_result")]
    if len(kept) < len(blocks) and not _is_small(blocks):
        first = blocks[:8]
        rest = [block for block in blocks[8:] if any(block is one for one in kept)]
        dropped = len(blocks) - len(first) - len(rest)
        if dropped:
            rest.append({"type": "text", "text": f"[{dropped:,} more blocks left out]"})
        return [*first, *rest]
    return blocks


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (block.get("text") if isinstance(block, dict) else None for block in content)
    return "\n".join(text for text in texts if isinstance(text, str))
