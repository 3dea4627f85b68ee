"""What a compaction kept as it was: relinked behind its summary (WIRE.md §3, §6; FAULTS.md 51, 52).

The kept messages stand in the file before the boundary, once; their place in the new context is behind the anchor
(the summary). So the first of them gets the anchor as its parent, and what else hangs on the anchor comes behind the
last.
"""

from __future__ import annotations

from typing import NamedTuple

from turnstream.messages.jsonvalue import MAX_RECORD_DEPTH, JSONValueError, loads
from turnstream.operators.compaction.metadata import COMPACT_KEY, CompactMetadata, PreservedSegment
from turnstream.sinks.transcript.reading.content import Lines
from turnstream.sinks.transcript.reading.heads import Member
from turnstream.sinks.transcript.reading.links import Links

__all__ = ["Relinked", "Segments"]


class Relinked(NamedTuple):
    """What became of one boundary's segment: indexes of head, anchor and tail, or why it was left.

    ``problem`` is None if it was relinked.
    """

    boundary: int
    head: int
    anchor: int
    tail: int
    problem: str | None


class Segments:
    """Relinks the segments of boundaries, the oldest boundary first. Changes ``member.up``.

    Attributes:
        done: one entry for each boundary that says that it kept something.
        before: index of a relinked member → the member that it hung on before.
        tails: index of an anchor → index of its segment's tail.
    """

    def __init__(self, links: Links, lines: Lines) -> None:
        self._links = links
        self._lines = lines
        self._children: dict[int, list[int]] | None = None
        self.done: list[Relinked] = []
        self.before: dict[int, int] = {}
        self.tails: dict[int, int] = {}

    def apply(self, boundary: Member) -> None:
        """Relink what ``boundary`` kept, if it says so and it is there."""
        segment = self._segment(boundary)
        if segment is None:
            return
        ends = [self._find(uuid) for uuid in (segment.head_uuid, segment.anchor_uuid, segment.tail_uuid)]
        head, anchor, tail = ends
        problem = None
        if head < 0 or anchor < 0 or tail < 0:
            names = ("headUuid", "anchorUuid", "tailUuid")
            lost = [name for name, at in zip(names, ends, strict=True) if at < 0]
            problem = f"{' and '.join(lost)} {'are' if len(lost) > 1 else 'is'} not in the file"
        else:
            problem = self._check(head, anchor, tail)
        if problem is None:
            self._relink(head, anchor, tail)
        self.done.append(Relinked(boundary.index, head, anchor, tail, problem))

    def _segment(self, boundary: Member) -> PreservedSegment | None:
        try:
            value = loads(self._lines.one(boundary), max_depth=MAX_RECORD_DEPTH)
        except JSONValueError:
            return None
        # Each field of the metadata may be missing, and the metadata itself.
        segment = CompactMetadata.from_wire(value.get(COMPACT_KEY)).preserved_segment
        if segment is None or (segment.head_uuid is None and segment.tail_uuid is None):
            return None
        return segment

    def _find(self, uuid: str | None) -> int:
        return self._links.find(uuid)

    def _check(self, head: int, anchor: int, tail: int) -> str | None:
        """Why the way from the tail doesn't lead to the head, None if it does."""
        members, visited = self._links.members, set[int]()
        at = tail
        while at >= 0 and at not in visited:
            if at == anchor:
                return "its anchor is one of the kept records"
            if at == head:
                return None
            visited.add(at)
            at = members[at].up
        return "the way from tailUuid doesn't lead to headUuid"

    def _relink(self, head: int, anchor: int, tail: int) -> None:
        members = self._links.members
        if self._children is None:
            self._children = self._links.children()
        children = self._children
        others = [at for at in children.get(anchor, ()) if at != head]
        for at in others:
            self.before.setdefault(at, members[at].up)
            members[at].up = tail
            self._links.moved.append(at)
        children.setdefault(tail, []).extend(others)
        self.before.setdefault(head, members[head].up)
        if members[head].up >= 0 and head in children.get(members[head].up, ()):
            children[members[head].up].remove(head)
        members[head].up = anchor
        self._links.moved.append(head)
        children[anchor] = [head]
        self.tails[anchor] = tail
