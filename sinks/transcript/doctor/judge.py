"""The judgement of the whole: what the records of a file are to one another (FAULTS.md 37-45, 50-59)."""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Final

from turnstream.messages.ids import NAMESPACE, format_timestamp
from turnstream.sinks.transcript.doctor.entries import Entry
from turnstream.sinks.transcript.doctor.foreign import foreign_entries, own_session
from turnstream.sinks.transcript.doctor.links import Links, Passage
from turnstream.sinks.transcript.doctor.repeats import Repeat, find_repeats
from turnstream.sinks.transcript.doctor.report import Finding, finding
from turnstream.sinks.transcript.doctor.survey import Survey
from turnstream.sinks.transcript.reading.richness import lacks_something

__all__ = ["judge"]

_WORDS: Final = {
    "dangling-parent": "its parent {0} isn't in the file",
    "parent-not-member": "its parent {0} is no message of its conversation",
    "progress-in-chain": "its parent {0} is a progress record",
    "unlinked": "it names no parent, though it can't be the first",
    "loop": "the chain from {0} leads back to it",
}


def judge(survey: Survey, read: Callable[[Entry], bytes]) -> None:
    """Add what is wrong with the records as a whole to the survey's report and plan.

    Args:
        survey: of the file, read.
        read: gives an entry's bytes.
    """
    _Judge(survey, read).run()


class _Judge:
    def __init__(self, survey: Survey, read: Callable[[Entry], bytes]) -> None:
        self.survey = survey
        self.plan = survey.plan
        self.read = read
        self.findings: list[Finding] = []
        self.passages: dict[str, Passage] = {}
        self.moved: dict[str, tuple[int, str]] = {}
        entries = survey.entries
        self.members = [entry for entry in entries if entry.member and entry.ordinal not in self.plan.drop]
        self.others = [entry for entry in entries if not entry.member]

    def run(self) -> None:
        """All rules, in the order in which one builds on the other."""
        self._other_records()
        self._tombstones()
        self._repeats()
        self._hollow()
        self._ids()
        self._timestamps()
        self._foreign()
        self._boundaries()
        links = self._chain()
        self._segments(links)
        self._open_calls()
        report = self.survey.report
        report.messages = len(self.members)
        report.findings = sorted([*report.findings, *self.findings], key=lambda found: (found.offset, found.kind))

    def _tell(self, kind: str, entry: Entry, detail: str = "", *, count: int = 1) -> None:
        self.findings.append(finding(kind, entry.line, entry.offset, entry.uuid, detail, count=count))

    def _take_out(self, entry: Entry, instead: str | None, kind: str = "") -> None:
        """Take a record out of the file; what hangs on it is hung on ``instead``, or on what is before that."""
        self.plan.drop.add(entry.ordinal)
        if entry.uuid is not None:
            self.passages.setdefault(entry.uuid, Passage(instead, entry.ordinal, kind))

    # -- ids --------------------------------------------------------------------------------------------------

    def _other_records(self) -> None:
        """Records that aren't members: what hangs on one is bridged, and none may have a member's id."""
        if not self.others:
            return
        mine = {entry.uuid for entry in self.members}
        for entry in self.others:
            if entry.target is not None and entry.kind != "tombstone":  # a filler
                self.passages.setdefault(entry.target, Passage(None, entry.ordinal, "dangling-parent"))
            if entry.uuid is None:
                continue
            if entry.uuid in mine:
                self._tell("id-collision", entry, f"a {entry.kind or 'nameless'} record has a message's uuid")
                self.plan.uuids[entry.ordinal] = _made("collision", entry)
                continue
            kind = "progress-in-chain" if entry.kind == "progress" else "parent-not-member"
            self.passages.setdefault(entry.uuid, Passage(entry.parent, entry.ordinal, kind))

    def _tombstones(self) -> None:
        if not any(entry.kind == "tombstone" for entry in self.others):
            return
        by_uuid = {entry.uuid: entry for entry in self.members}
        gone: set[str] = set()
        for entry in self.others:
            if entry.kind == "tombstone" and entry.target is not None:
                self._tell("tombstone", entry, f"{entry.target} was taken back by a record behind it")
                self.plan.drop.add(entry.ordinal)
                gone.add(entry.target)
                target = by_uuid.get(entry.target)
                if target is not None:
                    self._take_out(target, target.parent)
        # Every copy of it: a tombstone takes back the message.
        for member in self.members:
            if member.uuid in gone:
                self.plan.drop.add(member.ordinal)
        self.members = [entry for entry in self.members if entry.uuid not in gone]

    def _ids(self) -> None:
        for entry in self.members:
            if entry.uuid is None:
                self._tell("missing-uuid", entry)
                entry.uuid = self.plan.uuids[entry.ordinal] = _made("uuid", entry)

    def _timestamps(self) -> None:
        if all(entry.time is not None for entry in self.members):
            return
        known = next((entry.time for entry in self.members if entry.time is not None), self.survey.changed)
        for entry in self.members:
            if entry.time is None:
                self._tell("missing-timestamp", entry)
                self.plan.stamps[entry.ordinal] = format_timestamp(known)
            else:
                known = entry.time

    # -- repeats ----------------------------------------------------------------------------------------------

    def _repeats(self) -> None:
        repeats = find_repeats(self.members)
        first_of_all = repeats.kept[0] if repeats.kept else None
        for run in repeats.runs:
            if len(run) > 1 and run[0].first is first_of_all:
                words = f"the first {len(run)} messages were recorded again"
                self._tell("whole-list", run[0].entry, words, count=len(run))
            else:
                for repeat in run:
                    self._tell("duplicate" if repeat.same_id else "echo", repeat.entry, _which(repeat))
            for repeat in run:
                self._merge(repeat)
        self.members = repeats.kept
        for entry in repeats.collisions:
            self._tell("id-collision", entry, "another type's message has its uuid")
            old, new = entry.uuid, _made("collision", entry)
            assert old is not None
            self.plan.uuids[entry.ordinal] = entry.uuid = new
            self.moved[old] = (entry.ordinal, new)

    def _merge(self, repeat: Repeat) -> None:
        """The better copy stands in the first one's place; the other is taken out."""
        entry, first, same_id = repeat
        plan = self.plan
        plan.drop.add(entry.ordinal)
        if not same_id and entry.uuid is not None:
            self.passages.setdefault(entry.uuid, Passage(first.uuid, entry.ordinal, ""))
        if entry.whole == first.whole:
            return
        source = plan.lines.get(entry.ordinal) or self.read(entry)
        earlier = plan.lines.get(first.ordinal) or self.read(first)
        if lacks_something(source, earlier):
            return
        plan.lines[first.ordinal] = source
        # The place in the chain stays the first one's: a copy may hang on what came after it.
        plan.parents[first.ordinal] = first.parent
        if not same_id and first.uuid is not None:
            plan.uuids[first.ordinal] = first.uuid
        for name in ("answer", "attachment", "calls", "message", "results", "segment", "summary", "time"):
            setattr(first, name, getattr(entry, name))
        first.whole = entry.whole

    def _hollow(self) -> None:
        """Of a message that is nothing but bad thinking nothing would be left: it goes, as it does on reading."""
        for entry in self.members:
            if entry.hollow:
                self._take_out(entry, entry.parent)
        self.members = [entry for entry in self.members if not entry.hollow]

    # -- sessions ---------------------------------------------------------------------------------------------

    def _foreign(self) -> None:
        """Lines of another session that have nothing to do with this one's (FAULTS.md 59)."""
        own = own_session(self.members, self.survey.name)
        foreign = foreign_entries(self.members, self.others, own) if own is not None else []
        if not foreign:
            return
        for session, count in Counter(entry.session for entry in foreign).items():
            first = next(entry for entry in foreign if entry.session == session)
            self._tell("foreign-session", first, f"{count} lines of session {session}, this is {own}", count=count)
        for entry in foreign:
            self.plan.reject[entry.ordinal] = f"of session {entry.session}"
            assert entry.uuid is not None
            self.passages.setdefault(entry.uuid, Passage(None, entry.ordinal, "dangling-parent"))
        gone = {entry.ordinal for entry in foreign}
        self.members = [entry for entry in self.members if entry.ordinal not in gone]

    # -- compaction -------------------------------------------------------------------------------------------

    def _boundaries(self) -> None:
        main = [entry for entry in self.members if not entry.side] or self.members
        newest = next((at for at in range(len(main) - 1, -1, -1) if main[at].boundary), None)
        if newest is None:
            return
        boundary = main[newest]
        if boundary.segment is None and not any(entry.summary for entry in main[newest:]):
            self._tell("boundary-alone", boundary)
            self._take_out(boundary, boundary.parent or boundary.logical)
            self.members = [entry for entry in self.members if entry is not boundary]

    def _segments(self, links: Links) -> None:
        """Kept segments that can't be walked; attachments that were attached again though they are in one."""
        newest: set[bytes] | None = None
        for entry in self.members:
            if entry.boundary:
                newest = None
                if entry.segment is not None:
                    path = links.segment(entry.segment)
                    if path is None:
                        self._tell("preserved-segment", entry)
                        self.plan.segments.add(entry.ordinal)
                    else:
                        kept = [links.by_uuid[uuid].attachment for uuid in path]
                        newest = {attachment for attachment in kept if attachment is not None}
            elif newest and entry.attachment in newest and not entry.side:
                self._tell("repeated-attachment", entry)
                assert entry.uuid is not None
                self._take_out(entry, entry.up)
        if self.plan.drop.isdisjoint(entry.ordinal for entry in self.members):
            return
        self.members = [entry for entry in self.members if entry.ordinal not in self.plan.drop]
        self._plan_links(Links(self.members, self.passages, self.moved))

    # -- the chain --------------------------------------------------------------------------------------------

    def _chain(self) -> Links:
        links = Links(self.members, self.passages, self.moved)
        for link in links.changes.values():
            kind, entry = link.kind, link.entry
            if kind == "boundary-parent":
                assert entry.parent is not None
                self._tell(kind, entry, f"the boundary hangs on {entry.parent}")
                if entry.logical is None:
                    self.plan.logicals[entry.ordinal] = entry.parent
            elif kind:
                self._tell(kind, entry, _WORDS[kind].format(entry.parent or entry.uuid))
        self._plan_links(links)
        return links

    def _plan_links(self, links: Links) -> None:
        parents = self.plan.parents
        for link in links.changes.values():
            parents[link.entry.ordinal] = link.parent

    # -- tool calls -------------------------------------------------------------------------------------------

    def _open_calls(self) -> None:
        answered = {call for entry in self.members for call in entry.results}
        asking = [entry for entry in self.members if not answered.issuperset(entry.calls)]
        last = {(entry.branch, entry.answer): entry for entry in asking}
        if asking:
            # Behind the last line of their answer, as if they had come.
            for entry in self.members:
                if entry.answer is not None and (entry.branch, entry.answer) in last:
                    last[(entry.branch, entry.answer)] = entry
        for entry in asking:
            calls = [call for call in entry.calls if call not in answered]
            self._tell("open-tool-use", entry, f"no result for {', '.join(calls)}", count=len(calls))
            self.plan.results[entry.ordinal] = [(call, missing_uuid(entry, call)) for call in calls]
            behind = last[(entry.branch, entry.answer)] if entry.answer is not None else entry
            self.plan.behind.setdefault(behind.ordinal, []).append(entry.ordinal)


def missing_uuid(asker: Entry, call: str) -> str:
    """The uuid that reading gives to the result that it makes up."""
    return str(uuid.uuid5(NAMESPACE, f"{asker.uuid}/{call}/missing-result"))


def _made(what: str, entry: Entry) -> str:
    """A uuid that is always the same for the same record of the same file."""
    seed = f"{what}\0{entry.uuid}\0{entry.ordinal}".encode("utf-8", "surrogatepass") + entry.whole
    return str(uuid.UUID(bytes=hashlib.blake2b(seed, digest_size=16).digest(), version=4))


def _which(repeat: Repeat) -> str:
    same = "the same" if repeat.entry.whole == repeat.first.whole else "another version"
    if repeat.same_id:
        return f"{same} of what line {repeat.first.line} holds"
    return f"line {repeat.first.line} again, under another uuid"
