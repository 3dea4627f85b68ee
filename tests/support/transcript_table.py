"""What must come out of a transcript, by a program that shares neither code nor method with the reader.

``python transcript_table.py FOLDER`` prints a row for each transcript under FOLDER (TSV). Stdlib ``json`` on the whole
file; links are pairs in sets; nobody walks a chain: what belongs to the conversation is the least set that contains
the leaf and is closed under these relations (WIRE.md §3), found by adding until nothing is added::

    kept(p)  if kept(c) and parent(c, p)                   the chain
    kept(s)  if kept(a) and answer(a) = answer(s)          lines of one answer, whatever hangs on what
    kept(r)  if kept(a) and asks(a, t) and answers(r, t)   each tool call's result
    kept(o)  if kept(b) and around(b, o)                   attachments and notices on tool calls and results

``around``: an attachment or a system record that hangs on a tool call, on a result, or on another such one. Results hang
on the message that asked, so what came between a result and the next one ends there; a branch that anybody left begins
with words.

``parent`` is what a line says, except that

- records that are no members (progress and others) stand for their own parents, as do members that were taken back
  (found by pointer doubling); where that ends before any member, the nearest member before them counts (*bridged*);
- a parent that isn't in the file is replaced by the nearest member before (*missing*);
- a line whose parent is null begins a conversation only if it is a boundary, a prompt, or the first; else, and for one
  that says nothing of a parent, the nearest member before counts (*orphans*);
- where no line's parent is in the file at all, the order of the file counts (*flat*).

Of a preserved segment (compaction that keeps messages) head and the anchor's other children are linked as the boundary
says, if a line of parents leads from its tail to its head.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

MEMBERS = ("user", "assistant", "system", "attachment")
Pairs = set[tuple[str, str]]


@dataclass
class Row:
    """One transcript. Members are named by uuid, ``line N`` where they have none.

    Attributes:
        records: how many JSON objects.
        bad: pieces that are none: (line from 1, offset), blank lines aside.
        fillers: records that only hold a place.
        members: name → record: of several with one uuid the one that says most.
        first: the first member of the main chain (in a sidechain's file: the first).
        leaf: the newest: what the next line hangs on (with a preserved segment the summary, which stands before it).
        kept: what resume must hold of the file's members.
        order: pairs of kept members of which the first must stand before the second.
        missing: members of ``kept`` whose parent isn't in the file.
        bridged: members of ``kept`` whose parent is no member, or was taken back.
        orphans: members of ``kept`` without a parent that don't begin a conversation.
        flat: whether the order of the file is the chain.
        boundary: the newest boundary in ``kept``.
        results: how many tool results belong to kept tool calls.
        beside: how many of these hang beside the chain of the leaf.
        open_calls: kept tool calls without a result in the file.
        duplicates: uuids that occur more than once.
        forks: how many members several members hang on.
    """

    records: int = 0
    bad: list[tuple[int, int]] = field(default_factory=list)
    fillers: int = 0
    members: dict[str, dict[str, Any]] = field(default_factory=dict)
    first: str | None = None
    leaf: str | None = None
    kept: set[str] = field(default_factory=set)
    order: Pairs = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    bridged: set[str] = field(default_factory=set)
    orphans: set[str] = field(default_factory=set)
    flat: bool = False
    boundary: str | None = None
    results: int = 0
    beside: int = 0
    open_calls: set[str] = field(default_factory=set)
    duplicates: set[str] = field(default_factory=set)
    forks: int = 0

    @property
    def begins(self) -> str:
        """What the conversation begins with: ``first`` message, ``boundary``, or ``nothing``."""
        if not self.kept:
            return "nothing"
        return "boundary" if self.boundary else "first" if self.first in self.kept else "later"


@dataclass
class _Lines:
    """The file's lines, sorted by what they are."""

    members: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)  # name → place, record
    passages: dict[str, tuple[int, Any]] = field(default_factory=dict)  # uuid of another record → place, parent
    gone: dict[str, int] = field(default_factory=dict)  # uuid of what was taken back → place


def table(data: bytes) -> Row:
    """The row of one transcript's bytes."""
    row = Row()
    lines = _read(data, row)
    taken = {uuid: lines.members.pop(uuid) for uuid in list(lines.gone) if uuid in lines.members}
    for uuid, (place, record) in taken.items():
        lines.passages[uuid] = (place, record.get("parentUuid"))
    for uuid, place in lines.gone.items():
        lines.passages.setdefault(uuid, (place, None))
    members = row.members = {name: record for name, (_, record) in lines.members.items()}
    if not members:
        return row
    place = {name: at for name, (at, _) in lines.members.items()}
    main = {name for name, r in members.items() if r.get("isSidechain") is not True} or set(members)
    row.first = min(main, key=place.__getitem__)
    links = _links(lines, main, row)
    links, anchors = _segments(links, members, place)
    inner = {parent for child, parent in links if child in main}
    leaves = (main - inner) or main
    newest = max((n for n in main if _is_boundary(members[n])), key=place.__getitem__, default=None)
    if newest is not None:
        # The newest boundary beats a leaf that hangs on what was before it.
        behind = _close({newest}, {(p, c) for c, p in links})
        leaves = (leaves & behind) or leaves
    row.leaf = max(leaves, key=place.__getitem__)
    last = max(main, key=place.__getitem__)
    start, row.leaf = row.leaf, last if last in anchors else row.leaf
    row.forks = sum(count > 1 for count in Counter(p for c, p in links if c in main).values())
    chain = _close({start}, links)
    whole = links | _siblings(members) | _answers(members) | _around(members, links)
    row.kept = _close({start}, whole) & main
    row.order = {(p, c) for c, p in links if c in row.kept and p in row.kept}
    for some in (row.missing, row.bridged, row.orphans):
        some &= row.kept
    boundaries = [n for n in row.kept if _is_boundary(members[n])]
    row.boundary = max(boundaries, key=place.__getitem__, default=None)
    asked = {call for name in row.kept for call in _asks(members[name])}
    results = {name: _results(members[name]) & asked for name in row.kept}
    row.results = sum(map(len, results.values()))
    row.beside = sum(len(found) for name, found in results.items() if name not in chain)
    row.open_calls = asked - set().union(*results.values())
    return row


def _read(data: bytes, row: Row) -> _Lines:
    out = _Lines()
    offset = 0
    for number, line in enumerate(data.split(b"\n"), 1):
        here, offset = offset, offset + len(line) + 1
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            row.bad.append((number, here))
            continue
        row.records += 1
        kind, uuid = record.get("type"), record.get("uuid")
        if kind in ("tombstone-filler", "tombstone"):
            row.fillers += kind == "tombstone-filler"
            # What a filler stands for was where the filler is.
            out.gone.setdefault(record["targetUuid"], number)
        elif kind in MEMBERS and _has_payload(record):
            name = uuid or f"line {number}"
            if name in out.members:
                row.duplicates.add(name)
                place, before = out.members[name]
                out.members[name] = (place, before if _says_less(record, before) else record)
            else:
                out.members[name] = (number, record)
        elif uuid:
            out.passages[uuid] = (number, record.get("parentUuid"))
    return out


def _has_payload(record: dict[str, Any]) -> bool:
    key = {"user": "message", "assistant": "message", "attachment": "attachment"}.get(record["type"])
    return key is None or isinstance(record.get(key), dict)


def _says_less(new: dict[str, Any], old: dict[str, Any]) -> bool:
    def leaves(value: Any, at: tuple[Any, ...] = ()) -> set[tuple[Any, ...]]:
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        return {at} | {
            leaf for key, item in items if item not in (None, "", [], {}) for leaf in leaves(item, (*at, key))
        }

    return leaves(new) < leaves(old)


def _links(lines: _Lines, main: set[str], row: Row) -> Pairs:
    """(child, parent) of all members."""
    place = {name: at for name, (at, _) in lines.members.items()}
    in_order = sorted(place, key=place.__getitem__)

    def nearest(name: str, at: int) -> str | None:
        same = [n for n in in_order if (n in main) == (name in main) and place[n] < at]
        return same[-1] if same else None

    known = {*lines.members, *lines.passages}
    row.flat = len(main) > 1 and not any(lines.members[n][1].get("parentUuid") in known for n in main)
    if row.flat:
        ordered = [n for n in in_order if n in main]
        pairs = {(c, p) for p, c in pairwise(ordered) if not _is_boundary(lines.members[c][1])}
        row.missing |= {n for n in ordered if lines.members[n][1].get("parentUuid")}
        return pairs
    # Pointer doubling: after n rounds each stands for what is 2ⁿ records before it; with the earliest place passed.
    stands = {uuid: (parent, at) for uuid, (at, parent) in lines.passages.items()}
    for _ in range(len(stands).bit_length() + 1):
        stands = {
            uuid: (stands[parent][0], min(at, stands[parent][1])) if parent in stands else (parent, at)
            for uuid, (parent, at) in stands.items()
        }
    pairs = set()
    for name, (at, record) in lines.members.items():
        parent = record.get("parentUuid")
        if not parent:
            silent = "parentUuid" not in record
            begins = _is_boundary(record) or name == row.first or (record["type"] == "user" and not _results(record))
            if silent or not begins:
                parent = nearest(name, at)
                if parent:
                    row.orphans.add(name)
        elif parent not in lines.members:
            if parent in stands:
                row.bridged.add(name)
                parent, earliest = stands[parent]
                at = min(at, earliest)
            else:
                row.missing.add(name)
            if parent not in lines.members:
                parent = nearest(name, at)
        if parent and parent != name:
            pairs.add((name, parent))
    return pairs


def _segments(links: Pairs, members: dict[str, dict[str, Any]], place: dict[str, int]) -> tuple[Pairs, set[str]]:
    """Links as they are once what a compaction preserved stands behind its anchor, and the anchor."""
    anchors: set[str] = set()
    boundaries = sorted((n for n, r in members.items() if _is_boundary(r)), key=place.__getitem__)
    for name in boundaries[-1:]:
        segment = (members[name].get("compactMetadata") or {}).get("preservedSegment")
        if not isinstance(segment, dict):
            continue
        head, anchor, tail = (segment.get(key) for key in ("headUuid", "anchorUuid", "tailUuid"))
        if {head, anchor, tail} <= set(members) and head in _close({tail}, links):
            others = {c for c, p in links if p == anchor and c != head}
            links = {(c, p) for c, p in links if c != head and c not in others}
            links |= {(head, anchor), *((other, tail) for other in others)}
            anchors.add(anchor)
    return links, anchors


def _close(start: set[str], pairs: Pairs) -> set[str]:
    found = set(start)
    while more := {b for a, b in pairs if a in found and b not in found}:
        found |= more
    return found


def _siblings(members: dict[str, dict[str, Any]]) -> Pairs:
    answers: dict[Any, list[str]] = defaultdict(list)
    for name, record in members.items():
        ident = _message(record).get("id")
        if record["type"] == "assistant" and ident:
            answers[ident, record.get("isSidechain") is True].append(name)
    return {(a, b) for names in answers.values() for a in names for b in names if a != b}


def _answers(members: dict[str, dict[str, Any]]) -> Pairs:
    by: dict[str, list[str]] = defaultdict(list)
    for name, record in members.items():
        for call in _results(record):
            by[call].append(name)
    return {(name, result) for name, record in members.items() for call in _asks(record) for result in by[call]}


def _around(members: dict[str, dict[str, Any]], links: Pairs) -> Pairs:
    silent = {n for n, r in members.items() if r["type"] in ("attachment", "system") and not _is_boundary(r)}
    tools = {n for n, r in members.items() if _asks(r) or _results(r)}
    at_tools = tools | (silent & _close(tools, {(p, c) for c, p in links if c in silent}))
    return {(p, c) for c, p in links if c in silent and p in at_tools}


def _is_boundary(record: dict[str, Any]) -> bool:
    return record["type"] == "system" and record.get("subtype") == "compact_boundary"


def _message(record: dict[str, Any]) -> dict[str, Any]:
    message = record.get("message")
    return message if isinstance(message, dict) else {}


def _blocks(record: dict[str, Any]) -> list[dict[str, Any]]:
    content = _message(record).get("content")
    return [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []


def _asks(record: dict[str, Any]) -> set[str]:
    if record["type"] != "assistant":
        return set()
    return {b["id"] for b in _blocks(record) if b.get("type") == "tool_use" and b.get("id")}


def _results(record: dict[str, Any]) -> set[str]:
    if record["type"] != "user":
        return set()
    return {b["tool_use_id"] for b in _blocks(record) if b.get("type") == "tool_result" and b.get("tool_use_id")}


COLUMNS = (
    "file", "records", "bad", "members", "begins", "kept", "flat", "missing", "bridged", "orphans", "results", "beside",
    "open", "forks",
)  # fmt: skip


def cells(name: str, row: Row) -> list[str]:
    """A row as text."""
    values = (
        name, row.records, len(row.bad), len(row.members), row.begins, len(row.kept), row.flat, len(row.missing),
        len(row.bridged), len(row.orphans), row.results, row.beside, len(row.open_calls), row.forks,
    )  # fmt: skip
    return [str(value) for value in values]


def main(folder: str) -> None:
    print(*COLUMNS, sep="\t")
    for path in sorted(Path(folder).rglob("*.jsonl")):
        print(*cells(path.relative_to(folder).as_posix(), table(path.read_bytes())), sep="\t")


if __name__ == "__main__":
    main(sys.argv[1])
