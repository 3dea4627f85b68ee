"""Which record a conversation ends with, and the way from there to its root (WIRE.md §3; FAULTS.md 40, 51)."""

from __future__ import annotations

from turnstream.messages.kinds import purpose_of
from turnstream.messages.types import UserMessage
from turnstream.sinks.transcript.reading.content import Lines, message_of
from turnstream.sinks.transcript.reading.heads import USER
from turnstream.sinks.transcript.reading.index import Index
from turnstream.sinks.transcript.reading.links import Links
from turnstream.sinks.transcript.reading.segments import Segments

__all__ = ["Ways"]


class Ways:
    """Walks the links of a file.

    Args:
        index: of the file.
        links: resolved. What compactions kept is relinked in them.
        lines: to read the few records whose content decides.

    Attributes:
        segments: what became of what compactions kept.
        passed: the last record, if it was passed over because the newest boundary beats it, else -1.
    """

    def __init__(self, index: Index, links: Links, lines: Lines) -> None:
        self._index = index
        self._links = links
        self._lines = lines
        self.segments = Segments(links, lines)
        self.passed = -1
        self._walked: tuple[int, list[int], bytearray] | None = None  # the last one: leaf, way, what is on it

    def newest_leaf(self) -> int:
        """The newest leaf in the order of the file, -1 if there is no record; a newer boundary beats it."""
        links = self._links
        last = links.last
        if last < 0:
            return -1
        self.relink(last)
        leaf = self._leaf_of(last) if last not in self.segments.tails else last
        boundaries = links.boundaries
        boundary = boundaries[-1].index if boundaries else -1
        if boundary >= 0 and boundary not in (way := self._way(leaf)) and not self._is_rewound(way, boundary):
            # A straggler: written after the boundary, hanging on what it summarized.
            self.passed, leaf = leaf, self._newest_below(boundary)
        return leaf

    def relink(self, leaf: int) -> None:
        """Put what compactions kept in its place, as far as the way from ``leaf`` can know of it."""
        self._walked = None
        for boundary in self._links.boundaries:
            # A branch that ends before a compaction knows nothing of it.
            if boundary.index <= leaf:
                self.segments.apply(boundary)

    def chain(self, leaf: int, history: bool) -> list[int]:
        """Indexes from the root to the leaf, or to the end of what a compaction kept if that is the leaf's place."""
        if leaf < 0:
            return []
        known = self._walked
        if known is None or known[0] != leaf:
            visited = bytearray(len(self._links.members))
            way = self._links.walk(self.segments.tails.get(leaf, leaf), visited)
            known = self._walked = (leaf, way, visited)
        way = list(known[1])
        if history:
            way += self._history(way[-1], bytearray(known[2]))
        way.reverse()
        return way

    def _history(self, root: int, placed: bytearray) -> list[int]:
        """What came before a boundary, the newest first, as its lines say; what has its place already is passed."""
        members, raw = self._links.members, self.segments.before
        out: list[int] = []
        seen = bytearray(len(members))
        at = self._above(root)
        while at >= 0 and not seen[at]:
            seen[at] = 1
            if not placed[at]:
                placed[at] = 1
                out.append(at)
            at = self._above(at) if members[at].up < 0 else raw.get(at, members[at].up)
        return out

    def _above(self, root: int) -> int:
        """The member that a root follows in time, -1 if it is no boundary."""
        member = self._links.members[root]
        if not member.is_boundary:
            return -1
        at = self._links.find(member.logical)
        if at < 0:
            at = self._links.followed.get(root, -1)
        return at if at >= 0 else self._links.nearest(root)

    def _leaf_of(self, last: int) -> int:
        """The leaf that the last line belongs to: itself, unless lines of its children stand before it."""
        members = self._links.members
        if all(members[at].up != last for at in self._index.open_links):
            return last
        children, seen = self._links.children(), set(self._way(last))
        at = last
        while below := [kid for kid in children.get(at, ()) if kid not in seen]:
            at = below[-1]
            seen.add(at)
        return at

    def _way(self, leaf: int) -> list[int]:
        return self._links.walk(self.segments.tails.get(leaf, leaf), bytearray(len(self._links.members)))

    def _is_rewound(self, way: list[int], boundary: int) -> bool:
        """Whether the user went on before the boundary: a prompt of this branch is newer than it."""
        for at in way:
            if at > boundary and self._links.members[at].kind == USER:
                message = message_of(self._lines.one(self._links.members[at]))
                if isinstance(message, UserMessage) and purpose_of(message) == "prompt":
                    return True
        return False

    def _newest_below(self, top: int) -> int:
        children = self._links.children()
        newest, todo, seen = top, [top], {top}
        while todo:
            for kid in children.get(todo.pop(), ()):
                if kid not in seen:
                    seen.add(kid)
                    todo.append(kid)
                    newest = max(newest, kid)
        return newest
