"""The records of a transcript, one after the other, whatever a crash or a second writer made of its lines (WIRE.md §3).

A line is a record; a line that is none is yielded with its problem; where two records (or half of one and another)
came to stand on one line, each is found again. Nothing is thrown away: the records' bytes in order, each with the
line end that follows it, are the file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final

import msgspec

from turnstream.messages.jsonvalue import MAX_RECORD_DEPTH, JSONValueError, depth_exceeds, loads
from turnstream.sinks.transcript.reading.resync import Piece, split_line

__all__ = [
    "BOM",
    "FILLER",
    "MAX_LINE",
    "Record",
    "RecordReport",
    "decode_record",
    "is_filler_type",
    "open_binary",
    "read_records",
    "records_of",
]

FILLER: Final = "tombstone-filler"
"""The ``type`` of the record that stands where a line was taken back in place."""

MAX_LINE: Final = 256 * 1024 * 1024
"""Bytes; a longer line is reported and passed over: a file without line ends must not fill the memory."""

BOM: Final = b"\xef\xbb\xbf"

_decode: Final = msgspec.json.Decoder().decode
# Fewer bytes than this can't nest deeper than a record may.
_SHALLOW: Final = 2 * MAX_RECORD_DEPTH
# From so many bytes on it is quicker to look at the containers of a usual value than at all of its text.
_LONG: Final = 2048
_FEW: Final = 128
_CONTAINERS: Final = frozenset((dict, list))
_NO_BRACKETS: Final = bytes(sorted(set(range(256)) - set(b"[{")))


class Record(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    r"""One record, or a piece of the file that is none.

    Attributes:
        line: the line's number, from 1. Several records may share it.
        offset: of the record's first byte in the file.
        raw: its bytes without the line end; empty for a line over ``MAX_LINE``.
        value: the JSON object; None for what isn't one.
        problem: why it is no record, in words; None if it is one, and for empty lines.
        ended: whether a line end follows: ``raw + b"\n"``, joined over all records, is the file.
        size: bytes in the file without the line end; differs from ``len(raw)`` only over ``MAX_LINE``.
        shared: whether other records or pieces stand on the same line.
    """

    line: int
    offset: int
    raw: bytes
    value: dict[str, Any] | None = None
    problem: str | None = None
    ended: bool = True
    size: int = 0
    shared: bool = False

    @property
    def is_filler(self) -> bool:
        """Whether there is nothing here to read: an empty line, spaces, a byte-order mark, the filler of a tombstone."""
        if self.value is None:
            return self.problem is None
        return is_filler_type(self.value.get("type"))

    @property
    def type(self) -> str | None:
        """The record's ``type``, None if it has none."""
        kind = self.value.get("type") if self.value is not None else None
        return kind if isinstance(kind, str) else None

    @property
    def uuid(self) -> str | None:
        """The record's ``uuid``, None if it has none (an empty one is none)."""
        uuid = self.value.get("uuid") if self.value is not None else None
        return uuid if isinstance(uuid, str) and uuid else None


RecordReport = Callable[[Record], None]
"""Is told of each record that has a problem."""


def is_filler_type(kind: Any) -> bool:
    """Whether ``kind`` is the type of a filler."""
    return isinstance(kind, str) and kind == FILLER


def open_binary(source: str | os.PathLike[str] | BinaryIO) -> contextlib.AbstractContextManager[BinaryIO]:
    """The bytes of a path, or of an open file, which stays open.

    Raises:
        OSError: it can't be opened.
    """
    if isinstance(source, (str, os.PathLike)):
        return open(source, "rb", buffering=1 << 18)
    return contextlib.nullcontext(source)


def read_records(
    source: str | os.PathLike[str] | BinaryIO,
    *,
    start: int = 0,
    report: RecordReport | None = None,
) -> Iterator[Record]:
    """The records of a transcript in the order of the file; memory: one line.

    Lines end at LF only. Values are read without loss (integers of any size); lone surrogates become U+FFFD in
    ``value``, ``raw`` keeps them.

    Args:
        source: a path, or a file open for binary reading, which is read from where it stands.
        start: the offset of a line to begin at; lines are numbered from there. With an open file only the offsets
            are counted from it.
        report: is called for each record with a problem, just before it is yielded.

    Raises:
        OSError: it can't be opened or read.
    """
    with open_binary(source) as file:
        if start and isinstance(source, (str, os.PathLike)):
            file.seek(start)
        offset = start
        number = 0
        while line := file.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE and not line.endswith(b"\n"):
                record = _too_long(file, line, number, offset)
                offset = record.offset + record.size + record.ended
                if report is not None:
                    report(record)
                yield record
                continue
            ended = line.endswith(b"\n")
            raw = line[:-1] if ended else line
            if offset == 0 and raw.startswith(BOM):
                yield Record(line=number, offset=0, raw=BOM, ended=False, size=len(BOM), shared=True)
                raw = raw[len(BOM) :]
                at = len(BOM)
            else:
                at = offset
            for record in records_of(raw, line=number, offset=at, ended=ended):
                if report is not None and record.problem is not None:
                    report(record)
                yield record
            offset += len(line)


def records_of(raw: bytes, *, line: int = 1, offset: int = 0, ended: bool = True) -> list[Record]:
    """The records of one line, usually one.

    Args:
        raw: the line without its line end.
        line: its number.
        offset: of its first byte.
        ended: whether a line end follows.
    """
    try:
        value = decode_record(raw)
    except JSONValueError as error:
        return _pieces(raw, line, offset, ended, str(error))
    if isinstance(value, dict):
        return [Record(line=line, offset=offset, raw=raw, value=value, ended=ended, size=len(raw))]
    return [Record(line=line, offset=offset, raw=raw, problem="not a JSON object", ended=ended, size=len(raw))]


def decode_record(raw: bytes) -> Any:
    """:func:`turnstream.messages.jsonvalue.loads` for a line: of most, the depth needn't be looked for in the text.

    Raises:
        JSONValueError: broken, or nothing that a value of ours holds.
    """
    try:
        value = _decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return loads(raw, max_depth=MAX_RECORD_DEPTH)
    size = len(raw)
    if size < _SHALLOW:
        return value
    if size < _LONG:
        # Brackets in texts count, too, so more than this says nothing yet; the value does.
        few = len(raw.translate(None, _NO_BRACKETS)) <= MAX_RECORD_DEPTH
    else:
        few = value.__class__ is dict and _has_few(value)
    if not few and depth_exceeds(value, MAX_RECORD_DEPTH):
        return loads(raw, max_depth=MAX_RECORD_DEPTH)  # says so
    return value


def _has_few(value: dict[str, Any]) -> bool:
    """Whether an object holds so few containers that it can't be too deep; of large lists that isn't looked for."""
    found: list[Any] = [value]
    add = found.append
    for item in found:
        if item.__class__ is dict:
            item = item.values()
        elif len(item) > _FEW or len(found) > _FEW:
            return False
        for one in item:
            if one.__class__ in _CONTAINERS:
                add(one)  # and is looked into in its turn
    return len(found) <= MAX_RECORD_DEPTH


def _pieces(raw: bytes, line: int, offset: int, ended: bool, problem: str) -> list[Record]:
    if not raw.strip():
        return [Record(line=line, offset=offset, raw=raw, ended=ended, size=len(raw))]
    pieces = split_line(raw) or [Piece(raw, None)]
    last = len(pieces) - 1
    records = []
    for index, piece in enumerate(pieces):
        bad = piece.value is None and bool(piece.raw.strip())
        records.append(
            Record(
                line=line,
                offset=offset,
                raw=piece.raw,
                value=piece.value,
                problem=(problem if not last else "a piece of a record") if bad else None,
                ended=ended and index == last,
                size=len(piece.raw),
                shared=last > 0,
            )
        )
        offset += len(piece.raw)
    return records


def _too_long(file: BinaryIO, line: bytes, number: int, offset: int) -> Record:
    """Pass over the rest of a line that is over the cap."""
    size, ended = len(line), False
    while not ended and (rest := file.readline(1 << 20)):
        ended = rest.endswith(b"\n")
        size += len(rest) - ended
    problem = f"longer than {MAX_LINE // 1024 // 1024} MiB"
    return Record(line=number, offset=offset, raw=b"", problem=problem, ended=ended, size=size)
