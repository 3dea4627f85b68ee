"""The first pass over a transcript: what is wrong with its lines, and what its records are (FAULTS.md 20, 21, 44-48)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from turnstream.messages.jsonvalue import MAX_RECORD_DEPTH, JSONValueError, UnheldValueError, loads
from turnstream.sinks.transcript.doctor.entries import Entry, entry_of, good_thinking
from turnstream.sinks.transcript.doctor.oversized import Oversized
from turnstream.sinks.transcript.doctor.plan import Plan
from turnstream.sinks.transcript.doctor.report import Finding, Report, finding
from turnstream.sinks.transcript.doctor.splice import nearly_json, without_invalid_utf8, without_lone_surrogates
from turnstream.sinks.transcript.reading.records import BOM, FILLER, Record, read_records

__all__ = ["Survey", "is_blank", "is_torn_filler"]

_FILLER: Final = b'{"type":"%b"' % FILLER.encode()
_REJOIN: Final = 16 * 1024 * 1024
"""Bytes; a larger piece of a line isn't held to wait for the rest of it."""
_BLOAT_BYTES: Final = 1 << 20
_BLOAT_RECORDS: Final = 1000
"""Progress records are bloat from one of these on, if they are more than half of the file (FAULTS.md 46, 47)."""


class Survey:
    """Reads the file once.

    Args:
        path: of the file.
        transcript: the path that the file has or will have: of it are the session's name and its side files.

    Attributes:
        name: the transcript's file name.
        changed: when the file was changed, seconds since the epoch.
        report: counts, and findings of lines.
        plan: what is to be done about these.
        entries: every record that may have to do with the chain, in the order of the file.
    """

    def __init__(self, path: Path, transcript: Path) -> None:
        self.path = path
        self.name = transcript.name
        self.changed = os.stat(path).st_mtime
        self._oversized = Oversized(transcript)
        self.report = Report(path)
        self.plan = Plan()
        self.entries: list[Entry] = []
        self._names: dict[str, str] = {}
        self._findings: list[Finding] = []
        self._once: dict[str, tuple[int, int, int]] = {}  # kind → first line, its offset, how many
        self._line: list[tuple[int, Record]] = []  # what stands on the present line
        self._torn: tuple[int, Record, bool] | None = None  # a piece whose rest may come, and whether it was told
        self._progress: list[int] = []
        self._progress_bytes = 0
        self._progress_at: tuple[int, int] = (0, 0)
        self._last: Record | None = None

    def read(self) -> Survey:
        """Read it all.

        Raises:
            OSError: it can't be read.
        """
        report = self.report
        for ordinal, record in enumerate(read_records(self.path)):
            if self._line and self._line[0][1].line != record.line:
                self._end_line()
            self._line.append((ordinal, record))
            self._last = record
            if record.problem is not None:
                self._bad(ordinal, record)
            elif record.is_filler:
                self._filler(ordinal, record)
            else:
                self._record(ordinal, record)
        self._end_line()
        last = self._last
        if last is not None:
            report.lines = last.line
            report.size = last.offset + last.size + last.ended
            if not last.ended and last.value is not None:
                self._findings.append(finding("unended", last.line, last.offset, last.uuid))
                self.plan.changed = True
        self._bloat()
        for kind, (line, offset, count) in self._once.items():
            self._findings.append(finding(kind, line, offset, count=count))
        report.findings = sorted(self._findings, key=lambda found: (found.offset, found.kind))
        self.entries.sort(key=lambda entry: entry.ordinal)
        return self

    # -- what a record is ---------------------------------------------------------------------------------

    def _record(self, ordinal: int, record: Record) -> None:
        value = record.value
        assert value is not None
        report = self.report
        report.records += 1
        kind = value.get("type")
        report.types[kind if isinstance(kind, str) else ""] += 1
        entry = entry_of(
            value,
            ordinal=ordinal,
            line=record.line,
            offset=record.offset,
            size=record.size,
            before=self.entries[-1] if self.entries else None,
            names=self._names,
        )
        self.entries.append(entry)
        raw = record.raw
        if raw.endswith(b"\r"):
            self._count("crlf", record)
        if without_lone_surrogates(raw) is not raw:
            self._tell("lone-surrogate", record)
        if without_invalid_utf8(raw) is not raw:
            self._tell("invalid-utf8", record)
        if kind == "progress":
            if not self._progress:
                self._progress_at = (record.line, record.offset)
            self._progress.append(ordinal)
            self._progress_bytes += record.size
        elif kind == "assistant":
            message = value.get("message")
            content = message.get("content") if isinstance(message, dict) else None
            if isinstance(content, list) and not all(map(good_thinking, content)):
                self._tell("unsigned-thinking", record)
        elif self._oversized.concerns(record.raw, kind):
            self._tell("oversized", record, f"a tool result makes the line {record.size:,} bytes long")

    def _filler(self, ordinal: int, record: Record) -> None:
        if record.raw == BOM and record.offset == 0:
            self._tell("bom", record)
        else:
            self._count("filler", record)
        self.plan.drop.add(ordinal)

    # -- what is none -------------------------------------------------------------------------------------

    def _bad(self, ordinal: int, record: Record) -> None:
        raw = record.raw
        plan = self.plan
        if is_torn_filler(raw):
            self._count("filler", record)
            plan.drop.add(ordinal)
        elif raw and is_blank(raw):
            self._tell("nul-bytes", record, f"{len(raw):,} NUL bytes: what stood here was never written")
            plan.reject[ordinal] = "NUL bytes"
        elif _is_unheld(raw):
            self.report.unheld += 1
        elif (whole := nearly_json(raw)) is not None:
            plan.lines[ordinal] = whole
            value = loads(whole, max_depth=MAX_RECORD_DEPTH)
            good = Record(line=record.line, offset=record.offset, raw=whole, value=value, size=record.size)
            self._tell("nearly-json", good, f"nearly JSON: {record.problem}")
            self._record(ordinal, good)
        elif self._rejoins(ordinal, record):
            pass
        else:
            assert record.problem is not None
            plan.reject[ordinal] = record.problem
            self._pend(ordinal, record)

    def _pend(self, ordinal: int, record: Record) -> None:
        """Hold a piece: the rest of it may stand behind what tore it."""
        self._unpend()
        self._torn = (ordinal, record, False)
        if not record.raw.lstrip().startswith(b"{") or record.size > _REJOIN:
            self._unpend()

    def _unpend(self) -> None:
        """The piece stays a piece."""
        if self._torn is None:
            return
        _, record, _ = self._torn
        self._torn = None
        tail = not record.ended and record is self._last and not record.shared
        words = f"the last line was cut off: {record.problem}" if tail else f"no record: {record.problem}"
        self._findings.append(finding("torn-tail" if tail else "bad-line", record.line, record.offset, None, words))

    def _rejoins(self, ordinal: int, record: Record) -> bool:
        """Whether this piece and the one before it are a record that another line tore (FAULTS.md 45)."""
        if self._torn is None:
            return False
        first, piece, _ = self._torn
        if record.line - piece.line > 1:
            return False
        raw = piece.raw + record.raw
        try:
            value = loads(raw, max_depth=MAX_RECORD_DEPTH)
        except JSONValueError:
            return False
        if not isinstance(value, dict):
            return False
        self._torn = None
        plan = self.plan
        del plan.reject[first]
        plan.drop.add(ordinal)
        plan.lines[first] = raw
        joined = Record(line=piece.line, offset=piece.offset, raw=raw, value=value, size=len(raw))
        self._tell("interleaved", joined)
        self._record(first, joined)
        return True

    def _end_line(self) -> None:
        """A line is over: did it hold more than one record?"""
        line, self._line = self._line, []
        values = [record for _, record in line if record.value is not None]
        if len(values) > 1:
            first = values[0]
            self._tell("shared-line", first, f"{len(values)} records stand on one line", count=len(values))
        if self._torn is not None and line and line[0][1].line > self._torn[1].line:
            self._unpend()

    # -- the end ------------------------------------------------------------------------------------------

    def _bloat(self) -> None:
        self._unpend()
        count, size = len(self._progress), self._progress_bytes
        of_bytes = size >= _BLOAT_BYTES and size * 2 > self.report.size
        of_records = count >= _BLOAT_RECORDS and count * 2 > self.report.records
        if of_bytes or of_records:
            line, offset = self._progress_at
            words = f"{count:,} progress records take {size:,} of {self.report.size:,} bytes"
            self._findings.append(finding("progress-bloat", line, offset, None, words, count=count))
            self.plan.drop.update(self._progress)

    def _tell(self, kind: str, record: Record, detail: str = "", *, count: int = 1) -> None:
        self._findings.append(finding(kind, record.line, record.offset, record.uuid, detail, count=count))

    def _count(self, kind: str, record: Record) -> None:
        line, offset, count = self._once.get(kind, (record.line, record.offset, 0))
        self._once[kind] = (line, offset, count + 1)


def is_blank(raw: bytes) -> bool:
    """Whether these bytes are NUL (and spaces) only: space that a file system gave and nobody filled."""
    return not raw.strip(b"\0 \t\r")


def is_torn_filler(raw: bytes) -> bool:
    """Whether a line that is no JSON was to become a filler."""
    return raw.startswith(_FILLER)


def _is_unheld(raw: bytes) -> bool:
    try:
        loads(raw, max_depth=MAX_RECORD_DEPTH)
    except UnheldValueError:
        return True
    except JSONValueError:
        pass
    return False
