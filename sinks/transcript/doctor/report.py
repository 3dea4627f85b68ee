"""What the doctor finds in a transcript, and how it says so."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

__all__ = ["KINDS", "Finding", "Kind", "Report", "Severity"]

Severity = Literal["error", "warning", "info"]
"""``error``: reading the file loses something. ``warning``: other readers may lose something or stumble.
``info``: it costs space or order only."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding.

    Attributes:
        severity: how bad it is.
        meaning: what is wrong, in a few words.
        mends: what :func:`repair` does about it.
    """

    severity: Severity
    meaning: str
    mends: str


KINDS: Final[dict[str, Kind]] = {
    # -- lines (FAULTS.md 20, 21, 44-48)
    "bad-line": Kind("error", "a line is no record", "moved to the file of what was rejected"),
    "torn-tail": Kind("error", "the last line was cut off", "moved to the file of what was rejected"),
    "nearly-json": Kind("error", "a line breaks JSON's rules in a small way", "written as it was meant"),
    "nul-bytes": Kind("error", "NUL bytes stand where lines were lost", "taken out; their places are noted"),
    "interleaved": Kind("error", "a record was torn by another's line", "its pieces are put together again"),
    "shared-line": Kind("warning", "several records stand on one line", "each gets a line of its own"),
    "bom": Kind("warning", "the file begins with a byte-order mark", "taken out"),
    "crlf": Kind("info", "lines end in CR LF", "they end in LF"),
    "unended": Kind("warning", "the last line has no line end", "it gets one"),
    "lone-surrogate": Kind("warning", "text holds half of a surrogate pair", "it becomes U+FFFD"),
    "invalid-utf8": Kind("warning", "bytes are no UTF-8", "they become U+FFFD"),
    "filler": Kind("info", "empty lines and fillers take space", "taken out"),
    "tombstone": Kind("info", "a record was taken back and is still there", "both are taken out, children bridged"),
    "progress-bloat": Kind("info", "progress records take most of the file", "taken out"),
    "oversized": Kind("info", "a tool result is very large", "moved to a side file"),
    # -- ids and repeats (FAULTS.md 41-43)
    "missing-uuid": Kind("error", "a message has no uuid, so nothing can hang on it", "it gets one"),
    "missing-timestamp": Kind("warning", "a message has no time", "it gets its neighbour's"),
    "id-collision": Kind("warning", "records of different types share a uuid", "the later one gets another"),
    "duplicate": Kind(
        "warning", "a message is there more than once", "the last or fuller copy stands in the first's place"
    ),
    "echo": Kind("error", "a turn is there again under another uuid", "the repeat is taken out"),
    "whole-list": Kind("error", "the whole list was recorded again", "the repeat is taken out"),
    "foreign-session": Kind("warning", "lines of another session", "moved to the file of what was rejected"),
    # -- the chain (FAULTS.md 37-40)
    "dangling-parent": Kind("error", "the parent isn't in the file", "hung on the nearest earlier record"),
    "parent-not-member": Kind("error", "the parent is no message", "hung on the nearest earlier message"),
    "progress-in-chain": Kind("error", "the parent is a progress record", "hung on the message before it"),
    "unlinked": Kind("error", "the link to the message before is missing", "hung on the nearest earlier record"),
    "loop": Kind(
        "error", "the chain runs in a circle", "opened where the way up from the newest record comes back to itself"
    ),
    # -- compaction (FAULTS.md 40, 50, 53)
    "boundary-parent": Kind("warning", "a boundary hangs on a message", "it is a root; the parent becomes logical"),
    "boundary-alone": Kind("error", "the summary behind a boundary is missing", "the boundary is taken back"),
    "preserved-segment": Kind("warning", "the kept segment can't be walked", "its mention is taken out"),
    "repeated-attachment": Kind(
        "info", "an attachment was attached again though it was kept", "the repeat is taken out"
    ),
    # -- content (FAULTS.md 45, 54, 57)
    "unsigned-thinking": Kind("warning", "thinking has no good signature: the API refuses it", "taken out"),
    "open-tool-use": Kind("error", "a tool call has no result", "it gets one that says so"),
}
"""Every kind of finding, by name."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        kind: a name of :data:`KINDS`.
        severity: of that kind.
        line: where it is (or begins), from 1.
        offset: of its first byte.
        uuid: of the message concerned.
        message: what is wrong, in words.
        mends: what :func:`repair` does about it; None where it can do nothing.
        count: how many records it is about, where one finding stands for many.
    """

    kind: str
    severity: Severity
    line: int
    offset: int
    uuid: str | None
    message: str
    mends: str | None
    count: int = 1


@dataclass(slots=True)
class Report:
    """What was found in a file, and what was done about it.

    Attributes:
        path: the file.
        findings: what is wrong, in the order of the file.
        lines: how many line ends it has, and a last line without one.
        size: bytes.
        records: JSON objects, fillers excepted.
        messages: members of the conversation.
        types: how often each ``type`` occurs; unknown types are no fault (FAULTS.md 56).
        unheld: lines that are JSON, but more than can be held (too deep, too large a number); they are kept.
        repaired: whether the file was replaced.
        backup: where the original is now; None if the file wasn't touched.
        rejected: where what can't be read is now; None if there was none.
        side_files: the side files that were made.
    """

    path: Path
    findings: list[Finding] = field(default_factory=list)
    lines: int = 0
    size: int = 0
    records: int = 0
    messages: int = 0
    types: Counter[str] = field(default_factory=Counter)
    unheld: int = 0
    repaired: bool = False
    backup: Path | None = None
    rejected: Path | None = None
    side_files: list[Path] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """How many records each kind of finding is about."""
        counts: dict[str, int] = {}
        for finding in self.findings:
            counts[finding.kind] = counts.get(finding.kind, 0) + finding.count
        return counts

    @property
    def worst(self) -> Severity | None:
        """The worst severity; None if nothing was found."""
        found = {finding.severity for finding in self.findings}
        return next((severity for severity in ("error", "warning", "info") if severity in found), None)

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "path": str(self.path),
            "lines": self.lines,
            "bytes": self.size,
            "records": self.records,
            "messages": self.messages,
            "types": dict(self.types),
            "unheld": self.unheld,
            "counts": self.counts,
            "findings": [{name: getattr(finding, name) for name in Finding.__slots__} for finding in self.findings],
            "repaired": self.repaired,
            "backup": str(self.backup) if self.backup is not None else None,
            "rejected": str(self.rejected) if self.rejected is not None else None,
            "side_files": [str(path) for path in self.side_files],
        }


def finding(kind: str, line: int, offset: int, uuid: str | None = None, detail: str = "", *, count: int = 1) -> Finding:
    """A finding of a kind; ``detail`` is said instead of the kind's general words."""
    known = KINDS[kind]
    return Finding(kind, known.severity, line, offset, uuid, detail or known.meaning, known.mends, count)
