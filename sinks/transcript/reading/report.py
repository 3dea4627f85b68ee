"""What resume says about a file beside its messages (WIRE.md §3)."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec

__all__ = ["DAMAGE", "KINDS", "Finding", "ResumeReport"]

KINDS: Final = {
    # lines
    "bad_line": "a line, or a piece of one, that is no record: skipped",
    "bad_tail": "the file ends within a record: skipped",
    "resynced": "a record found again on a line that holds others or a piece of one",
    "odd_record": "a conversational type without its payload: kept in the file, not part of the chain",
    "changed": "the file was changed while it was read: left out",
    # who is there
    "duplicate": "a uuid again: the later record counts unless it lacks what the earlier one has",
    "tombstone": "a record was taken back",
    "several_sessions": "the lines name more than one session",
    # links of the chain
    "dangling_parent": "the parent isn't in the file: bridged to the nearest earlier record",
    "no_parent": "the line doesn't say its parent: the record before it",
    "lost_root": "parentUuid null where no conversation can begin: bridged to the nearest earlier record",
    "flat_file": "no line's parent is in the file: its order is the chain",
    "progress_bridged": "the parent is a progress record: bridged through",
    "other_bridged": "the parent is a record of a type that isn't in the chain: bridged through",
    "sidechain_bridged": "the parent is a sub-agent's record: bridged through",
    "tombstone_bridged": "the parent was taken back: the record before that one",
    "loop": "the parents run in a circle: cut, and bridged to the nearest earlier record",
    # the leaf
    "boundary_first": "the last line hangs on what was before the newest compaction: not taken as the leaf",
    # compaction
    "segment_relinked": "what a compaction kept stands behind its summary",
    "segment_left": "what a compaction kept can't be found as its boundary says: left where it is",
    "repeated_attachment": "an attachment that says the same as a later one: left out after a compaction",
    # siblings
    "sibling_restored": "a block of an answer that stood beside the chain",
    "result_restored": "a tool's result that stood beside the chain",
    "attachment_restored": "an attachment or a notice that hung on a call or a result beside the chain",
    # mending
    "thinking_dropped": "thinking without its whole signature",
    "message_dropped": "nothing is left of a message",
    "result_made": "a tool call without a result got an error as its result",
    "side_file_missing": "a result's side file isn't there: the preview stands for it",
    "side_file_loaded": "a result was loaded from its side file",
}
"""Every kind of finding, and what it means."""

DAMAGE: Final = frozenset(
    {"bad_line", "bad_tail", "odd_record", "changed", "dangling_parent", "lost_root", "loop", "segment_left"}
)
"""Kinds that say that the file isn't as its writer meant it; ``resume(strict=True)`` refuses these."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One thing that was bridged, mended or skipped.

    Attributes:
        kind: one of ``KINDS``.
        why: in words, with what was done.
        line: number of the line it is about, from 1; 0 if it is about the file.
        offset: of the first byte concerned.
        uuid: of the record concerned.
        target: uuid of the record that it was bridged to, or that took its place.
    """

    kind: str
    why: str
    line: int = 0
    offset: int = 0
    uuid: str | None = None
    target: str | None = None

    def __str__(self) -> str:
        where = f"line {self.line}, byte {self.offset}: " if self.line else ""
        return f"{where}{self.kind}: {self.why}"

    def to_json(self) -> dict[str, Any]:
        """The finding as a JSON object without the keys that say nothing."""
        return {key: value for key, value in msgspec.structs.asdict(self).items() if value not in (None, 0)}


class ResumeReport:
    """The findings in the order in which they came up, and what the file holds.

    Lines that can't be read, duplicates and tombstones are reported wherever they stand; links, siblings and mending
    only for the chain that was resumed.

    Attributes:
        findings: everything that was bridged, mended or skipped.
        types: how many records of each type the file holds (duplicates and what was taken back too; a record without
            a type counts as ``(none)``).
        lines: how many lines it has, an unfinished last one included.
        size: bytes read.
        fillers: how many lines only fill the place of something.
        session_ids: all that occur, in order.
    """

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.types: Counter[str] = Counter()
        self.lines = 0
        self.size = 0
        self.fillers = 0
        self.session_ids: list[str] = []

    def add(
        self,
        kind: str,
        why: str,
        *,
        line: int = 0,
        offset: int = 0,
        uuid: str | None = None,
        target: str | None = None,
    ) -> None:
        """Say one thing more."""
        self.findings.append(Finding(kind=kind, why=why, line=line, offset=offset, uuid=uuid, target=target))

    def of(self, *kinds: str) -> list[Finding]:
        """The findings of these kinds."""
        return [finding for finding in self.findings if finding.kind in kinds]

    @property
    def counts(self) -> Counter[str]:
        """How many findings of each kind there are."""
        return Counter(finding.kind for finding in self.findings)

    @property
    def damage(self) -> list[Finding]:
        """The findings that say that the file is broken."""
        return [finding for finding in self.findings if finding.kind in DAMAGE]

    def holds(self) -> str:
        """What the file holds, in words: ``2 user, 1 summary; 1 bad line``."""
        parts = [f"{count} {name}" for name, count in self.types.most_common()]
        bad = len(self.of("bad_line", "bad_tail"))
        text = ", ".join(parts) if parts else "no record"
        return f"{text}; {bad} bad line{'s' if bad != 1 else ''}" if bad else text

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return {
            "lines": self.lines,
            "bytes": self.size,
            "fillers": self.fillers,
            "types": dict(self.types),
            "sessionIds": self.session_ids,
            "counts": dict(self.counts),
            "findings": [finding.to_json() for finding in self.findings],
        }
