"""Who hangs on whom: the chain of ``parentUuid`` (WIRE.md §3)."""

from __future__ import annotations

__all__ = ["Chain"]


class Chain:
    """The chain members that are in the file or in the queue, and the pointer to the last one.

    Each member is remembered with the member before it, so that the pointer can go back, and children
    find a valid parent, when one is taken out. Only what is written, or queued to be, is ever a member:
    nothing can hang on a line that doesn't come.
    """

    def __init__(self) -> None:
        self._before: dict[str, str | None] = {}
        self._removed: dict[str, str | None] = {}
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

    def resolve(self, uuid: str | None) -> str | None:
        """The nearest valid member at or before ``uuid``."""
        if uuid in self._before:
            return uuid
        visited: set[str] = set()
        # A file read from elsewhere may hold a loop.
        while uuid is not None and uuid in self._removed and uuid not in visited:
            visited.add(uuid)
            uuid = self._removed[uuid]
        return uuid if uuid in self._before else None
