"""Who hangs on whom: each member's parent, found or bridged (WIRE.md §3; FAULTS.md 38-41)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from turnstream.sinks.transcript.reading.heads import ASSISTANT, USER, Member
from turnstream.sinks.transcript.reading.index import Index

__all__ = ["Bridge", "Links"]

_UNSET = msgspec.UNSET


class Bridge(NamedTuple):
    """Why a member doesn't simply hang on the parent that its line names."""

    kind: str
    why: str


class Links:
    """The members of one chain's kind (the main chain; in a sub-agent's own file all) and their parents.

    After this ``member.up`` is the index of the member that it hangs on, -1 for a root.

    Args:
        index: of the file. Its members are changed.
        is_result: whether a user member holds a tool's result (it can't begin a conversation); asked for few.

    Attributes:
        members: all of the index, those of other chains too.
        live: indexes of those of the chain's kind that weren't taken back, in the order of the file.
        bridges: index of a member → why its parent is another than it names.
        boundaries: the compact boundaries, the oldest first.
        moved: indexes of the members that may hang on another one than the last one before them.
        early: as in the index.
        flat_until: before this member no line's parent is in the file, so that the order of the file is the chain.
        first: index of the first member of the chain's kind, -1 if there is none.
    """

    def __init__(self, index: Index, is_result: Callable[[Member], bool]) -> None:
        self._index = index
        self._is_result = is_result
        self.members = members = index.members
        self.bridges: dict[int, Bridge] = {}
        self.followed: dict[int, int] = {}  # by boundary: what it follows, if its line hangs it on that
        self.live: Sequence[int] = range(len(members))
        self._all = not members
        if index.is_mixed:
            live = [member.index for member in members if not (member.side or member.gone)]
            # A sub-agent's own file is all sidechain.
            self._all = not live
            self.live = live or [member.index for member in members if not member.gone]
        self.boundaries = [
            member for at in sorted(set(index.noted)) if (member := members[at]).is_boundary and self.belongs(member)
        ]
        self.moved: list[int] = []
        self.early = index.early
        self.first = self.live[0] if self.live else -1
        self.flat_until = 0
        self._before: list[int] | None = None
        self._through: dict[str, int] = {}  # uuid that was passed → the member it led to
        self._resolve()

    def belongs(self, member: Member) -> bool:
        """Whether it is a member of this chain's kind that wasn't taken back."""
        return not member.gone and (self._all or not member.side)

    def find(self, uuid: str | None) -> int:
        """The index of the member of this chain's kind with this uuid, -1 if there is none."""
        member = self._index.by_uuid.get(uuid) if uuid is not None else None
        return member.index if member is not None and self.belongs(member) else -1

    @property
    def last(self) -> int:
        """Index of the last member in the order of the file, -1 if there is none."""
        return self.live[-1] if self.live else -1

    def nearest(self, index: int) -> int:
        """The nearest member of the chain before ``index`` in the order of the file; -1 if there is none."""
        if not self._index.is_mixed:
            return min(index, len(self.members)) - 1
        before = self._before
        if before is None:
            # Asked for again and again, so each place is looked at once.
            before, last = [], -1
            for member in self.members:
                before.append(last)
                if self.belongs(member):
                    last = member.index
            before.append(last)
            self._before = before
        return before[min(index, len(before) - 1)]

    # -- resolving -------------------------------------------------------------------------------------------

    def _resolve(self) -> None:
        members = self.members
        wanted = self._index.open_links
        if self._all or self._index.report.of("tombstone"):
            # The first pass took the chains apart, and didn't know who is gone.
            wanted = [at for at in range(len(members)) if members[at].up < 0 or members[members[at].up].gone]
        self.moved.extend(wanted)
        self.flat_until = self._flat_until()
        for at in wanted:
            member = members[at]
            if self.belongs(member):
                member.up = self._parent(member)
        for boundary in self.boundaries:
            # A new root, whatever its line says (FAULTS 40): that is what it follows in time.
            if boundary.up >= 0:
                self.followed[boundary.index] = boundary.up
                boundary.up = -1
            self.bridges.pop(boundary.index, None)

    def _flat_until(self) -> int:
        """Before which member the order of the file is the chain: no line there has its parent in the file.

        All of the file, or its beginning, which another program wrote without links; there at least one answer, which
        can't begin a conversation, names no parent.
        """
        index = self._index
        unlinked = count = 0
        for at in self.live:
            member = self.members[at]
            parent = member.parent
            if member.up >= 0 or (
                isinstance(parent, str)
                and (parent in index.by_uuid or parent in index.passages or parent in index.fillers)
            ):
                return at if unlinked and count > 1 else 0
            count += 1
            unlinked += member.kind == ASSISTANT and not isinstance(parent, str)
        return len(self.members) if count > 1 else 0

    def _parent(self, member: Member) -> int:
        """The member that ``member`` hangs on; what is unusual about it is kept in ``bridges``."""
        nearest = member.index  # bridging looks before this place
        parent = member.parent
        if parent is _UNSET:
            return self._bridge(
                member, nearest, None if member.index < self.flat_until else "no_parent", "its line names no parent"
            )
        if parent is None:
            return self._root(member)
        seen: dict[str, None] = {}
        up = self._follow(member, parent, seen)
        # A long chain of progress may have many members at its end: it is walked once.
        self._through.update(dict.fromkeys(seen, up))
        return up

    def _follow(self, member: Member, parent: str | msgspec.UnsetType | None, seen: dict[str, None]) -> int:
        """Go up from ``parent`` until a member of the chain; what is passed on the way is put into ``seen``."""
        index, nearest = self._index, member.index
        passed: str | None = None
        while isinstance(parent, str):
            if parent in seen:
                return self._bridge(member, nearest, "loop", "the records it hangs on run in a circle")
            other = index.by_uuid.get(parent)
            if other is not None and self.belongs(other):
                if other is member:
                    return self._bridge(member, nearest, "loop", "it hangs on itself")
                if passed is not None:
                    self.bridges[member.index] = Bridge(passed, f"it hung on {_NAMES[passed]}")
                return other.index
            seen[parent] = None
            if other is not None:
                passed = passed or ("tombstone_bridged" if other.gone else "sidechain_bridged")
                nearest = min(nearest, other.index)
                parent = other.parent
            elif parent in index.passages:
                kind, above, place = index.passages[parent]
                passed = passed or ("progress_bridged" if kind == "progress" else "other_bridged")
                nearest = min(nearest, place)
                known = self._through.get(parent)
                if known is not None and known != member.index:
                    self.bridges[member.index] = Bridge(passed, f"it hung on {_NAMES[passed]}")
                    return known
                parent = above
            elif parent in index.fillers:
                passed = passed or "tombstone_bridged"
                nearest = min(nearest, index.fillers[parent])
                break
            elif passed is None:
                return self._bridge(member, nearest, "dangling_parent", f"its parent {parent} isn't in the file")
            else:
                break
        # What it hung on ends before any member: the nearest one before that.
        kind = passed or "dangling_parent"
        return self._bridge(member, nearest, kind, f"it hung on {_NAMES.get(kind, 'nothing')}")

    def _root(self, member: Member) -> int:
        """``parentUuid`` is null: a boundary or a prompt begins a chain; anything else can't."""
        if member.is_boundary or member.index == self.first:
            return -1
        if member.index < self.flat_until:
            return self.nearest(member.index)
        if member.kind == USER and not self._is_result(member):
            return -1
        return self._bridge(
            member, member.index, "lost_root", f"a record ({member.kind}) that can't begin a conversation has no parent"
        )

    def _bridge(self, member: Member, before: int, kind: str | None, why: str) -> int:
        at = self.nearest(before)
        if kind is not None and not (kind == "no_parent" and at < 0):
            self.bridges[member.index] = Bridge(kind, why)
        return at

    # -- walking ---------------------------------------------------------------------------------------------

    def children(self) -> dict[int, list[int]]:
        """Index → the members that hang on it, in the order of the file. O(n), made anew each time."""
        out: dict[int, list[int]] = {}
        for at in self.live:
            up = self.members[at].up
            if up >= 0:
                out.setdefault(up, []).append(at)
        return out

    def walk(self, leaf: int, visited: bytearray) -> list[int]:
        """From a member to its root, the leaf first.

        Args:
            leaf: index of the member to begin with.
            visited: one byte for each member; those that are set count as circles, and what is walked gets set.
        """
        members, out = self.members, list[int]()
        at = least = leaf
        while at >= 0:
            if visited[at]:
                # A circle: the nearest earlier member that wasn't there yet.
                member = members[out[-1]] if out else members[at]
                at = self._unvisited(least, visited)
                if out:
                    self.bridges[member.index] = Bridge("loop", "the parents run in a circle")
                    member.up = at
                continue
            visited[at] = 1
            out.append(at)
            least = min(least, at)
            at = members[at].up
        return out

    def _unvisited(self, index: int, visited: bytearray) -> int:
        at = self.nearest(index)
        while at >= 0 and visited[at]:
            at = self.nearest(at)
        return at


_NAMES = {
    "progress_bridged": "a progress record",
    "other_bridged": "a record that isn't part of the chain",
    "sidechain_bridged": "a sub-agent's record",
    "tombstone_bridged": "a record that was taken back",
}
