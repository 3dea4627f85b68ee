"""Lines of another session that have nothing to do with the file's own (FAULTS.md 59)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from turnstream.sinks.transcript.doctor.entries import Entry
from turnstream.sinks.transcript.layout import is_session_id

__all__ = ["foreign_entries", "own_session"]


def own_session(members: Sequence[Entry], name: str) -> str | None:
    """The session that the file's name says, else the one of most of its messages; None if there is only one."""
    sessions = Counter(entry.session for entry in members if entry.session is not None)
    if len(sessions) < 2:
        return None
    stem = name.removesuffix(".jsonl")
    if is_session_id(stem) and stem in sessions:
        return stem
    return sessions.most_common(1)[0][0]


def foreign_entries(members: Sequence[Entry], others: Sequence[Entry], own: str) -> list[Entry]:
    """The members that no chain of parents links with a message of the session ``own``, directly or not.

    A session that went on under another id hangs together: it is one. Empty if nothing else would be left.
    """
    groups = _Groups()
    for entry in (*members, *others):
        if entry.uuid is not None:
            groups.add(entry.uuid)
    for entry in (*members, *others):
        if entry.uuid is not None:
            for other in (entry.parent, entry.logical):
                if other is not None and other in groups:
                    groups.join(entry.uuid, other)
    ours = {groups.of(e.uuid) for e in members if e.uuid is not None and e.session in (own, None)}
    foreign = [e for e in members if e.uuid is not None and groups.of(e.uuid) not in ours]
    return foreign if len(foreign) < len(members) else []


class _Groups:
    """Records that are linked, directly or not (union-find)."""

    def __init__(self) -> None:
        self._up: dict[str, str] = {}

    def __contains__(self, uuid: str) -> bool:
        return uuid in self._up

    def add(self, uuid: str) -> None:
        self._up.setdefault(uuid, uuid)

    def of(self, uuid: str) -> str:
        up = self._up
        root = uuid
        while up[root] != root:
            root = up[root]
        while up[uuid] != root:
            up[uuid], uuid = root, up[uuid]
        return root

    def join(self, one: str, other: str) -> None:
        self._up[self.of(one)] = self.of(other)
