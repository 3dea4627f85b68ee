"""Who hangs on whom: the chain of ``parentUuid`` (WIRE.md §3)."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Bridge", "Chain"]


class Bridge(NamedTuple):
    """A line that may hang on a member which was taken out.

    Attributes:
        uuid: of the line.
        olds: what its ``parentUuid`` may name: members that were taken out.
        new: what it must name instead.
    """

    uuid: str
    olds: tuple[str, ...]
    new: str | None


class Chain:
    """The chain members that are in the file or in the queue, and the pointer to the last one.

    Each member is remembered with the member before it, so that the pointer can go back, and children
    find a valid parent, when one is taken out. Only what is written, or queued to be, is ever a member:
    nothing can hang on a line that doesn't come.
    """

    def __init__(self) -> None:
        self._before: dict[str, str | None] = {}
        self._removed: dict[str, str | None] = {}
        # Tool results hang on the message that asked, which needn't be the member before them.
        self._asked: dict[str, str] = {}
        self._pointer: str | None = None

    def __len__(self) -> int:
        return len(self._before)

    def __contains__(self, uuid: object) -> bool:
        return uuid in self._before

    @property
    def pointer(self) -> str | None:
        """The last member that is still valid; None for an empty chain."""
        return self.resolve(self._pointer)

    @pointer.setter
    def pointer(self, uuid: str | None) -> None:
        self._pointer = uuid

    def seen(self, uuid: str) -> bool:
        """Whether ``uuid`` is a member or was one: it is not written again."""
        return uuid in self._before or uuid in self._removed

    def add(self, uuid: str, before: str | None) -> None:
        """Make ``uuid`` a member behind ``before`` (any uuid that was a member, or None). The pointer stays."""
        self._before[uuid] = before

    def append(self, uuid: str) -> str | None:
        """Make ``uuid`` a member behind the pointer, and move the pointer to it; returns the member before it."""
        before = self._pointer
        if before not in self._before:
            before = self.resolve(before)
        self._before[uuid] = before
        self._pointer = uuid
        return before

    def remove(self, uuid: str) -> bool:
        """Take a member out; what hangs on it hangs on the member before it from now on.

        Returns:
            Whether it was a member.
        """
        if uuid not in self._before:
            return False
        self._removed[uuid] = self._before.pop(uuid)
        return True

    def hang(self, uuid: str, parent: str) -> None:
        """Note that the line of ``uuid`` names another parent than the member before it."""
        self._asked[uuid] = parent

    def forget(self, uuid: str, before: str | None) -> None:
        """``uuid`` was a member behind ``before`` and was taken out: all that is known of it is that."""
        if not self.remove(uuid):
            self._removed.setdefault(uuid, before)

    def behind(self, uuid: str) -> set[str]:
        """The members that came after ``uuid``, itself included; empty if it is none."""
        found: set[str] = set()
        if uuid in self._before:
            for member in reversed(self._before):
                found.add(member)
                if member == uuid:
                    break
        return found

    def bridges(self, removed: set[str]) -> list[Bridge]:
        """The members whose lines may hang on one of ``removed``, which were taken out."""
        found: list[Bridge] = []
        before, asked = self._before, self._asked
        # What hangs on a member came after it, so also after the one before it.
        first = {self.resolve(uuid) for uuid in removed}
        for uuid in reversed(before):
            parent = asked.get(uuid, before[uuid]) if asked else before[uuid]
            if parent not in before and parent in self._removed:
                olds = self._path(parent)
                if not removed.isdisjoint(olds):
                    found.append(Bridge(uuid, olds, self.resolve(parent)))
            first.discard(uuid)
            if not first:
                break
        return found

    def _path(self, uuid: str | None) -> tuple[str, ...]:
        """The removed members from ``uuid`` back to the nearest valid one."""
        path: dict[str, None] = {}
        while uuid is not None and uuid in self._removed and uuid not in path:
            path[uuid] = None
            uuid = self._removed[uuid]
        return tuple(path)

    def resolve(self, uuid: str | None) -> str | None:
        """The nearest valid member at or before ``uuid``."""
        if uuid in self._before:
            return uuid
        path = self._path(uuid)  # without end if a file read from elsewhere holds a loop
        if path:
            uuid = self._removed[path[-1]]
        return uuid if uuid in self._before else None
