"""The first pass: every conversational record of a file by its uuid, without its content (WIRE.md §3).

Time is linear in the file, memory in the number of records.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any, BinaryIO, Final

import msgspec

from turnstream.messages.jsonvalue import MAX_RECORD_DEPTH, JSONValueError, loads
from turnstream.sinks.transcript.reading.heads import (
    ASSISTANT,
    ATTACHMENT,
    SYSTEM,
    USER,
    Head,
    Member,
    decode_head,
    head_of,
)
from turnstream.sinks.transcript.reading.records import BOM, FILLER, MAX_LINE, Record, records_of
from turnstream.sinks.transcript.reading.report import ResumeReport
from turnstream.sinks.transcript.reading.richness import lacks_something

__all__ = ["Index", "build_index"]

_KINDS: Final = {kind: kind for kind in (USER, ASSISTANT, SYSTEM, ATTACHMENT)}
_UNSET: Final = msgspec.UNSET
# Records that say how the session is called, the strongest first.
_TITLES: Final = {"custom-title": ("customTitle", "title"), "ai-title": ("aiTitle", "title"), "summary": ("summary",)}
_LINE_CAP: Final = MAX_LINE + 1
_LF: Final = 0x0A


class Index:
    """What the pass found.

    Attributes:
        members: in the order of the file; of a uuid that occurs more than once the first place, the best content.
        by_uuid: the members that have a uuid.
        passages: uuid of a record that is no member → its type, its parent, and how many members were before it.
        fillers: uuid that a filler took back in place → how many members were before it.
        titles: the last title of each type of title record.
        open_links: indexes of the members whose parent isn't simply the member before.
        noted: indexes of the members that have a subtype or a logical parent; some more than once.
        early: indexes of the results that came before what they answer; more may be named, and some more than once.
        is_mixed: whether there are sidechains, or members that were taken back.
        report: what was found on the way.
    """

    def __init__(self, report: ResumeReport) -> None:
        self.members: list[Member] = []
        self.by_uuid: dict[str, Member] = {}
        self.passages: dict[str, tuple[str, Any, int]] = {}
        self.fillers: dict[str, int] = {}
        self.titles: dict[str, str] = {}
        self.open_links: list[int] = []
        self.noted: list[int] = []
        self.early: list[int] = []
        self.is_mixed = False
        self.report = report


def build_index(file: BinaryIO, report: ResumeReport) -> Index:
    """Read the whole file once.

    Args:
        file: open for binary reading, at its start; a regular file (what a duplicate says is compared by reading
            the earlier record again).
        report: takes in what is found.

    Raises:
        OSError: reading failed.
    """
    return _Builder(file, report).run()


class _Builder:
    def __init__(self, file: BinaryIO, report: ResumeReport) -> None:
        self.file = file
        self.report = report
        self.index = Index(report)
        self.removed: dict[str, tuple[int, int]] = {}
        self.sessions: dict[str, None] = {}

    def run(self) -> Index:
        """The pass. The loop is written out, because its body is what a record costs."""
        index, by_uuid, members = self.index, self.index.by_uuid, self.index.members
        open_links, types = index.open_links, self.report.types
        readline = self.file.readline
        kinds = _KINDS
        counts: defaultdict[str | None, int] = defaultdict(int)
        number = offset = 0
        before: Member | None = None  # the member before, of the main chain
        beside: Member | None = None  # the one before on a sidechain
        session: str | None = None
        while line := readline(_LINE_CAP):
            number += 1
            size = len(line)
            try:
                head = decode_head(line)
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                offset = self._slowly(line, number, offset)
                # What was added there may have moved these.
                before, beside = self._last(False, before), self._last(True, beside)
                continue
            name = head.type
            kind = kinds.get(name)  # type: ignore[arg-type]
            counts[name] += 1
            if (
                kind is None
                or (head.message is None and (kind is USER or kind is ASSISTANT))
                or (head.attachment is None and kind is ATTACHMENT)
            ):
                self._other(head, line, number, offset)
                offset += size
                continue
            uuid = head.uuid or ""
            if uuid in by_uuid:
                self._again(by_uuid[uuid], head, line, number, offset)
                offset += size
                continue
            at = len(members)
            if head.session is not session and head.session != session:
                session = head.session
                if session is not None:
                    self.sessions[session] = None
            parent = head.parent
            side = head.side is True
            last = beside if side else before
            if parent and last is not None and parent == last.uuid:
                up = last.index
                parent = last.uuid  # the same text: hold it once
            else:
                up = -2
                open_links.append(at)
            more = None
            if head.subtype is not None or head.source is not None or head.logical is not None:
                more = (head.subtype, head.logical, head.source)
                self._note(at, head)
            member = Member(
                at,
                number,
                offset,
                size - 1 if line[-1] == _LF else size,
                kind,
                uuid,
                parent,
                side,
                head.message.id if kind is ASSISTANT else None,  # type: ignore[union-attr]
                more,
                up,
            )
            members.append(member)
            if uuid:
                by_uuid[uuid] = member
            if side:
                beside = member
                index.is_mixed = True
            else:
                before = member
            offset += size
        for name, count in counts.items():
            types["(none)" if name is None else name] += count
        self._end(number, offset)
        return index

    def _note(self, at: int, head: Head) -> None:
        index = self.index
        if head.subtype is not None or head.logical is not None:
            index.noted.append(at)
        if head.source is not None and head.source not in index.by_uuid:
            index.early.append(at)

    def _last(self, side: bool, known: Member | None) -> Member | None:
        members = self.index.members
        for at in range(len(members) - 1, known.index if known is not None else -1, -1):
            if members[at].side is side:
                return members[at]
        return known

    # -- lines that aren't simply a record of the chain -----------------------------------------------------

    def _other(self, head: Head, line: bytes, number: int, offset: int) -> None:
        index, kind = self.index, head.type
        if kind == FILLER:
            self.report.fillers += 1
            if head.target:
                index.fillers[head.target] = len(index.members)
        elif kind == "tombstone":
            target = head.target or (head.message.uuid if head.message is not None else None)
            if target:
                self.removed[target] = (number, offset)
        elif kind in _TITLES:
            self._title(kind, line)
        elif kind in _KINDS:
            why = f"a {kind} record without its {'attachment' if kind == ATTACHMENT else 'message'}"
            self.report.add("odd_record", why, line=number, offset=offset, uuid=head.uuid)
        # Its id may be some member's parent: older programs chained progress, newer ones may chain what we don't know.
        if head.uuid and head.parent is not _UNSET and head.uuid not in index.passages:
            index.passages[head.uuid] = (kind or "", head.parent, len(index.members))

    def _title(self, kind: str, line: bytes) -> None:
        try:
            value = loads(line, max_depth=MAX_RECORD_DEPTH)
        except JSONValueError:
            return
        for key in _TITLES[kind]:
            title = value.get(key)
            if isinstance(title, str) and title.strip():
                self.index.titles[kind] = title
                return

    def _again(self, member: Member, head: Head, line: bytes, number: int, offset: int) -> None:
        """A uuid that was there before: the last and richer record counts, in the place of the first."""
        size = len(line) - line.endswith(b"\n")
        earlier = self._read(member)
        keeps = earlier is not None and lacks_something(line[:size], earlier)
        which = "the earlier one has more" if keeps else "this one counts"
        if not keeps:
            member.line, member.offset, member.size = number, offset, size
            kind = _KINDS[head.type]  # type: ignore[index]
            if kind != member.kind:
                member.kind = kind
            member.answer = head.message.id if kind is ASSISTANT and head.message is not None else None
            member.more = _more(head)
            self._note(member.index, head)
            self.index.early.append(member.index)
        self.report.add("duplicate", f"the uuid again; {which}", line=number, offset=offset, uuid=member.uuid)

    def _read(self, member: Member) -> bytes | None:
        try:
            return os.pread(self.file.fileno(), member.size, member.offset)
        except OSError:
            return None

    def _slowly(self, line: bytes, number: int, offset: int) -> int:
        """A line that isn't one record of the usual kind; returns the offset behind it."""
        if len(line) == _LINE_CAP and not line.endswith(b"\n"):
            return self._too_long(line, number, offset)
        ended = line.endswith(b"\n")
        raw = line[:-1] if ended else line
        at = offset
        if at == 0 and raw.startswith(BOM):
            raw = raw[len(BOM) :]
            at = len(BOM)
        records = records_of(raw, line=number, offset=at, ended=ended)
        for record in records:
            if record.problem is not None:
                # A last line without its end is what a crash leaves; anything else isn't.
                kind = "bad_tail" if record is records[-1] and not ended else "bad_line"
                self.report.add(kind, record.problem, line=number, offset=record.offset)
            elif record.value is None:
                self.report.fillers += 1
            else:
                if record.shared:
                    self.report.add(
                        "resynced", "it shares its line", line=number, offset=record.offset, uuid=record.uuid
                    )
                self._take(head_of(record.value), record)
        return offset + len(line)

    def _too_long(self, line: bytes, number: int, offset: int) -> int:
        size = len(line)
        while rest := self.file.readline(1 << 20):
            size += len(rest)
            if rest.endswith(b"\n"):
                break
        why = f"longer than {MAX_LINE // 1024 // 1024} MiB"
        self.report.add("bad_line", why, line=number, offset=offset)
        return offset + size

    def _take(self, head: Head, record: Record) -> None:
        """One record out of a line of several, or with keys of unusual kinds."""
        index = self.index
        kind = _KINDS.get(head.type) if head.type is not None else None
        self.report.types[head.type if head.type is not None else "(none)"] += 1
        if (
            kind is None
            or (head.message is None and kind in (USER, ASSISTANT))
            or (head.attachment is None and kind == ATTACHMENT)
        ):
            self._other(head, record.raw, record.line, record.offset)
            return
        uuid = head.uuid or ""
        if uuid in index.by_uuid:
            self._again(index.by_uuid[uuid], head, record.raw, record.line, record.offset)
            return
        if head.session is not None:
            self.sessions[head.session] = None
        member = Member(
            len(index.members),
            record.line,
            record.offset,
            record.size,
            kind,
            uuid,
            head.parent,
            head.side is True,
            head.message.id if kind == ASSISTANT and head.message is not None else None,
            _more(head),
        )
        self._note(member.index, head)
        index.is_mixed = index.is_mixed or member.side
        index.open_links.append(member.index)
        index.members.append(member)
        if uuid:
            index.by_uuid[uuid] = member

    # -- the end ---------------------------------------------------------------------------------------------

    def _end(self, lines: int, size: int) -> None:
        report, index = self.report, self.index
        report.lines, report.size = lines, size
        report.session_ids = list(self.sessions)
        for target, (line, offset) in self.removed.items():
            member = index.by_uuid.get(target)
            if member is not None:
                member.gone = index.is_mixed = True
                report.add("tombstone", "taken back by this record", line=line, offset=offset, uuid=target)
        if len(self.sessions) > 1:
            names = ", ".join(list(self.sessions)[:3])
            report.add("several_sessions", f"{len(self.sessions)} session ids: {names}")


def _more(head: Head) -> tuple[str | None, str | None, str | None] | None:
    if head.subtype is None and head.source is None and head.logical is None:
        return None
    return head.subtype, head.logical, head.source
