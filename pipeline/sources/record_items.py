"""Records of a transcript as the items that flow: what each line says, and whose it is (WIRE.md §3).

Lines of three forms may be mixed in one file: a transcript's, items as ``replay --output items`` prints them, and
the outer form of ``stream-json``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from turnstream.messages.codec import from_wire
from turnstream.messages.sdk import from_sdk
from turnstream.messages.types import OpaqueRecord, StreamEventMessage, StreamNote, Tombstone
from turnstream.operators.batch import StreamKey
from turnstream.sinks.transcript.reading.content import fast_message
from turnstream.sinks.transcript.reading.records import BOM, MAX_LINE, Record, records_of

__all__ = ["LineItems", "is_outer_form", "items_of", "key_of", "seconds_of"]

_NOTHING: Final[tuple[Any, ...]] = ()


def is_outer_form(value: dict[str, Any]) -> bool:
    """Whether a record is a line of ``stream-json``: its envelope is in snake_case."""
    if "sessionId" in value or "parentUuid" in value:
        return False
    return "session_id" in value or "parent_tool_use_id" in value


def items_of(record: Record) -> Sequence[Any]:
    """What a record is as items: none for a filler, a note and the bytes for what is no record, else one.

    A message keeps its line (``raw_of``). An event comes out of its envelope, as it flows in a run. The line that
    takes back another one (``tombstones="append"``) is a :class:`Tombstone` with the uuid it names.
    """
    value = record.value
    if value is None:
        return _NOTHING if record.is_filler else _unreadable(record)
    if record.is_filler:
        return _NOTHING
    if is_outer_form(value):
        return [_inside(message) for message in from_sdk([value])]
    if value.get("type") == "tombstone" and "message" not in value and isinstance(value.get("targetUuid"), str):
        return (Tombstone(message={"uuid": value["targetUuid"]}),)
    message: Any = fast_message(value) or from_wire(value)
    message.__dict__["raw"] = record.raw
    return (_inside(message),)


def _inside(message: Any) -> Any:
    """Bare events flow inside; sub-agents' keep their envelope, which says whose they are."""
    if message.__class__ is StreamEventMessage and message.parent_tool_use_id is None:
        return message.event
    return message


def _unreadable(record: Record) -> Sequence[Any]:
    problem = f"line {record.line}: {record.problem}"
    note = StreamNote(kind="bad_record", message=problem, byte_offset=record.offset)
    if not record.raw:
        return (note,)  # too long to be held
    opaque = OpaqueRecord(type=None, problem=record.problem)
    opaque.__dict__["raw"] = record.raw  # pyright: ignore[reportIndexIssue]
    return (note, opaque)


def key_of(item: Any) -> StreamKey | None:
    """Whose stream an item belongs to: None for the conversation, a key for each of its sub-agents."""
    extra = getattr(item, "extra", None) or {}
    parent = item.parent_tool_use_id if item.__class__ is StreamEventMessage else extra.get("parentToolUseID")
    if not isinstance(parent, str):
        if extra.get("isSidechain") is not True:
            return None
        agent = extra.get("agentId")
        parent = agent if isinstance(agent, str) else "sidechain"
    session = extra.get("sessionId")
    return StreamKey(session if isinstance(session, str) else None, parent)


def seconds_of(item: Any) -> float | None:
    """When an item was recorded, seconds since the epoch; None where it doesn't say."""
    timestamp = getattr(item, "timestamp", None)
    if timestamp is None and item.__class__ is OpaqueRecord and isinstance(item.data, dict):
        timestamp = item.data.get("timestamp")
    if not isinstance(timestamp, str) or not timestamp:
        return None
    try:
        at = datetime.fromisoformat(timestamp)
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


class LineItems:
    """The stage of :func:`turnstream.sources.decode_transcript`: bytes in, items out; lines end at LF only."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._size = 0  # of the rest
        self._line = 0
        self._offset = 0
        self._skipping = 0  # bytes of a line that is too long, passed over so far

    def feed(self, batch: Sequence[bytes], /) -> Sequence[Any]:
        """The items of the lines that end in these bytes."""
        out: list[Any] = []
        for data in batch:
            lines = bytes(data).split(b"\n")
            for end in lines[:-1]:
                self._take(end)
                out += self._line_end(ended=True)
            self._take(lines[-1])
        return out

    def flush(self) -> Sequence[Any]:
        """The items of a last line without its end."""
        return self._line_end(ended=False) if self._size or self._skipping else _NOTHING

    def fail(self, error: Exception, /) -> Sequence[Any]:
        """The source broke: what came of the last line is no record."""
        return self.flush()

    def _take(self, piece: bytes) -> None:
        if self._skipping or self._size + len(piece) > MAX_LINE:
            self._skipping += self._size + len(piece)
            self._rest, self._size = [], 0
        elif piece:
            self._rest.append(piece)
            self._size += len(piece)

    def _line_end(self, *, ended: bool) -> Sequence[Any]:
        self._line += 1
        offset = self._offset
        size = self._skipping or self._size
        self._offset += size + ended
        if self._skipping:
            self._skipping = 0
            problem = f"longer than {MAX_LINE // 1024 // 1024} MiB"
            return _unreadable(Record(line=self._line, offset=offset, raw=b"", problem=problem, size=size))
        raw = self._rest[0] if len(self._rest) == 1 else b"".join(self._rest)
        self._rest, self._size = [], 0
        if self._line == 1 and raw.startswith(BOM):
            raw = raw[len(BOM) :]
            offset += len(BOM)
        out: list[Any] = []
        for record in records_of(raw, line=self._line, offset=offset, ended=ended):
            out += items_of(record)
        return out
