"""Who hangs on whom: parents that aren't there, links that are missing, circles (FAULTS.md 37-39).

The same rules as when the file is read, so that a mended file reads as the broken one did.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from turnstream.sinks.transcript.doctor.entries import Entry, Segment

__all__ = ["Link", "Links", "Passage"]


class Passage(NamedTuple):
    """What a parent may be that is no member.

    Attributes:
        parent: what it hangs on itself.
        ordinal: where it stands.
        kind: which finding a child of it is; empty if the cause is told already.
    """

    parent: str | None
    ordinal: int
    kind: str


class Link(NamedTuple):
    """A parent that must change.

    Attributes:
        entry: whose.
        parent: the new one.
        kind: the finding's kind; empty if something else that was found is the cause.
    """

    entry: Entry
    parent: str | None
    kind: str


class Links:
    """The chain as it should be.

    Args:
        members: what stays, in the order of the file; uuids are set and unique.
        passages: what isn't or won't be a member, by uuid.
        moved: for a uuid that was shared: from which ordinal on it means another one.

    After this ``entry.up`` is each member's parent.

    Attributes:
        by_uuid: the members.
        changes: by ordinal, members whose parent isn't what the file says.
    """

    def __init__(
        self,
        members: Sequence[Entry],
        passages: Mapping[str, Passage],
        moved: Mapping[str, tuple[int, str]],
    ) -> None:
        self.members = members
        self.by_uuid = {entry.uuid: entry for entry in members if entry.uuid is not None}
        self.changes: dict[int, Link] = {}
        self._passages = passages
        self._moved = moved
        self._through: dict[tuple[bool, str], tuple[str | None, int, str]] = {}
        self._alone = all(entry.side for entry in members)  # a sub-agent's own file
        self._places: dict[str | None, list[int]] = {}
        self._uuids: dict[str | None, list[str]] = {}
        for entry in members:
            assert entry.uuid is not None
            self._places.setdefault(self._branch(entry), []).append(entry.ordinal)
            self._uuids.setdefault(self._branch(entry), []).append(entry.uuid)
        self._link()
        self._open_circles()

    def _branch(self, entry: Entry) -> str | None:
        return None if self._alone else entry.branch

    def nearest(self, entry: Entry, ordinal: int | None = None) -> str | None:
        """The member before ``entry`` (or before an earlier place) on its branch."""
        branch = self._branch(entry)
        at = bisect_left(self._places[branch], entry.ordinal if ordinal is None else min(ordinal, entry.ordinal))
        return self._uuids[branch][at - 1] if at else None

    def _link(self) -> None:
        flat_until = self._flat_until()
        for entry in self.members:
            self._set(entry, *self._parent(entry, entry.ordinal < flat_until))

    def _flat_until(self) -> int:
        """Up to which line no parent of the main chain is in the file: there its order is the chain (as resume has it)."""
        members = [entry for entry in self.members if self._alone or not entry.side]
        unlinked = False
        for count, entry in enumerate(members):
            if entry.parent in self.by_uuid or entry.parent in self._passages:
                return entry.ordinal if unlinked and count > 1 else 0
            unlinked = unlinked or (entry.kind == "assistant" and entry.parent is None)
        return members[-1].ordinal + 1 if len(members) > 1 else 0

    def _parent(self, entry: Entry, flat: bool) -> tuple[str | None, str]:
        if entry.boundary:
            return None, "boundary-parent"
        parent = entry.parent
        if parent is None:
            return self._root(entry, flat)
        moved = self._moved.get(parent)
        if moved is not None and entry.ordinal > moved[0]:
            # The record that got another id may have been taken out since.
            return (moved[1] if moved[1] in self.by_uuid else self._past(entry, moved[1])[0]), ""
        other = self.by_uuid.get(parent)
        if other is not None and self._fits(entry, other):
            return parent, ""
        return self._past(entry, parent)

    def _fits(self, entry: Entry, parent: Entry) -> bool:
        """A sub-agent's chain may begin at the main one, but not the other way round."""
        return entry.side or not parent.side

    def _root(self, entry: Entry, flat: bool) -> tuple[str | None, str]:
        before = self.nearest(entry)
        if before is None:
            return None, ""
        begins = entry.kind == "user" and not entry.results
        behind_boundary = entry.summary and self.by_uuid[before].boundary
        if begins and entry.linked and not behind_boundary and (entry.side or not flat):
            return None, ""
        return before, "unlinked"

    def _past(self, entry: Entry, uuid: str) -> tuple[str | None, str]:
        """The nearest member behind something that is none, and what that is."""
        kind: str | None = None
        found: str | None = None
        place = entry.ordinal
        visited: set[str] = set()
        here: str | None = uuid
        while here is not None and here not in visited:
            known = self._through.get((entry.side, here))
            if known is not None:
                found, place = known[0], min(place, known[1])
                kind = known[2] if kind is None else kind
                break
            visited.add(here)
            passage = self._passages.get(here)
            if passage is None:
                other = self.by_uuid.get(here)
                if other is None:
                    kind = "dangling-parent" if kind is None else kind
                    break
                if self._fits(entry, other):
                    found = here
                    break
                passage = Passage(other.parent, other.ordinal, "parent-not-member")
            kind = passage.kind if kind is None else kind
            place = min(place, passage.ordinal)
            here = passage.parent
        kind = kind or ""
        # The way is gone once: a long run of records that are no members costs each child of it one step.
        for passed in visited:
            if passed in self._passages:
                self._through[(entry.side, passed)] = (found, place, self._passages[passed].kind)
        return (found if found is not None else self.nearest(entry, place)), kind

    def _set(self, entry: Entry, parent: str | None, kind: str) -> None:
        entry.up = parent
        if parent != entry.parent:
            self.changes[entry.ordinal] = Link(entry, parent, kind)
        else:
            self.changes.pop(entry.ordinal, None)

    def _open_circles(self) -> None:
        """A circle is opened where the way up from the newest record comes back to itself, as it is on reading."""
        done: set[str] = set()
        for entry in reversed(self.members):
            path: list[str] = []
            on_path: set[str] = set()
            first = entry.ordinal
            here: str | None = entry.uuid
            while here is not None and here not in done:
                if here in on_path:
                    last = self.by_uuid[path[-1]]
                    # What stands before all of them can't be one of them; whatever comes, the way must end.
                    before = self.nearest(last, first)
                    here = None if before in on_path else before
                    self._set(last, here, "loop")
                    continue
                path.append(here)
                on_path.add(here)
                first = min(first, self.by_uuid[here].ordinal)
                here = self.by_uuid[here].up
            done.update(path)

    def segment(self, segment: Segment) -> list[str] | None:
        """The members that a compaction kept, the last first; None if the way from tail to head can't be gone."""
        head, anchor, here = segment.head, segment.anchor, segment.tail
        if head not in self.by_uuid or anchor not in self.by_uuid:
            return None
        path: list[str] = []
        while here is not None and here in self.by_uuid and here != anchor:
            path.append(here)
            if here == head:
                return path
            here = self.by_uuid[here].up
        return None
