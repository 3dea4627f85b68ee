"""Messages that are there more than once: the same uuid again, or the same turn under another (FAULTS.md 42, 43)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from turnstream.sinks.transcript.doctor.entries import Entry

__all__ = ["Repeat", "Repeats", "find_repeats"]

_ECHO: Final = 2.0
"""Seconds; a human doesn't say the same thing twice so soon, and rewinding to say it again takes longer, too."""


_NEAR: Final = 16
"""Words of the human that may stand between."""


class Repeat(NamedTuple):
    """A message that is there already.

    Attributes:
        entry: the later one.
        first: the one before it.
        same_id: whether they share the uuid.
    """

    entry: Entry
    first: Entry
    same_id: bool


class Repeats(NamedTuple):
    """The result.

    Attributes:
        kept: the members that are no repeats, in the order of the file.
        runs: repeats that follow one another as their originals do.
        collisions: members of another type than the one that had their uuid first.
    """

    kept: list[Entry]
    runs: list[list[Repeat]]
    collisions: list[Entry]


def find_repeats(members: Sequence[Entry]) -> Repeats:
    """Tell repeats from messages.

    The same uuid and type is a repeat. Under another uuid it is one if it can't be anything else: a tool call,
    a result or signed thinking that is there already; the same block of the same answer with the human's words
    between; all of it at the same time, unless all that stands between is of that answer and that time (blocks that
    came in one piece may say the same: ". " between citations); the human's words twice within two seconds at the same place, or before
    an answer that is a repeat.
    """
    by_uuid: dict[str, Entry] = {}
    by_key: dict[bytes | tuple[str, bytes], Entry] = {}
    spoken: deque[Entry] = deque(maxlen=_NEAR)
    kept: list[Entry] = []
    found: dict[int, Repeat] = {}
    collisions: list[Entry] = []
    said = 0
    before: Entry | None = None
    burst = 0  # where the blocks of one answer with one time begin that stand before this record
    for entry in members:
        entry.said = said
        if before is None or (entry.answer, entry.time) != (before.answer, before.time):
            burst = entry.ordinal
        first = by_uuid.get(entry.uuid) if entry.uuid is not None else None
        if first is not None and first.kind != entry.kind:
            collisions.append(entry)
            first = None
        same_id = first is not None
        key = _key(entry)
        if first is None and key is not None:
            twin = by_key.get(key)
            if twin is not None and _is_echo(entry, twin, burst):
                first = twin
        if first is None and _is_spoken(entry):
            first = next((words for words in spoken if _is_doubled(entry, words)), None)
        if first is None:
            if entry.uuid is not None:
                by_uuid.setdefault(entry.uuid, entry)
            if key is not None:
                by_key.setdefault(key, entry)
            if _is_spoken(entry):
                spoken.append(entry)
            entry.place = len(kept)
            kept.append(entry)
        else:
            found[entry.ordinal] = Repeat(entry, first, same_id)
            if before is not None and before.spoken and before.ordinal not in found and entry.kind == "assistant":
                words_before = kept[first.place - 1] if first.place > 0 else None
                # The human's words before an answer that is a repeat are one, if they stood before it, too.
                if words_before is not None and words_before.spoken and words_before.message == before.message:
                    if words_before is not before:
                        found[before.ordinal] = Repeat(before, words_before, False)
        said += _is_spoken(entry)
        before = entry
    repeated = [repeat for _, repeat in sorted(found.items())]
    if len(kept) != len(members) - len(repeated):
        kept = [entry for entry in kept if entry.ordinal not in found]
    return Repeats(kept, _runs(members, repeated, kept), collisions)


def _is_spoken(entry: Entry) -> bool:
    return entry.spoken and not entry.side


def _key(entry: Entry) -> bytes | tuple[str, bytes] | None:
    """By what an echo of it would be found; None if there may be others like it."""
    if (entry.kind == "assistant" and entry.answer is not None) or entry.results:
        key = entry.message
    elif _is_spoken(entry) and entry.time is not None:
        key = entry.whole
    else:
        return None
    return key if entry.branch is None else (entry.branch, key)


def _is_echo(entry: Entry, first: Entry, burst: int) -> bool:
    if entry.kind != first.kind:
        return False
    if entry.kind != "assistant" or entry.unique:
        return True
    if entry.time is not None and entry.time == first.time:
        return first.ordinal < burst or entry.parent == first.parent
    return entry.said > first.said and not entry.side


def _is_doubled(entry: Entry, first: Entry) -> bool:
    """Whether the human's words are those from just before, at the same place."""
    if entry.message != first.message or entry.time is None or first.time is None:
        return False
    return entry.parent in (first.parent, first.uuid) and abs(entry.time - first.time) <= _ECHO


def _runs(members: Sequence[Entry], repeated: list[Repeat], kept: list[Entry]) -> list[list[Repeat]]:
    if not repeated:
        return []
    place = {entry.ordinal: index for index, entry in enumerate(kept)}
    position = {entry.ordinal: index for index, entry in enumerate(members)}
    runs: list[list[Repeat]] = []
    last: Repeat | None = None
    for repeat in repeated:
        if (
            last is not None
            and position[repeat.entry.ordinal] == position[last.entry.ordinal] + 1
            and place[repeat.first.ordinal] == place[last.first.ordinal] + 1
        ):
            runs[-1].append(repeat)
        else:
            runs.append([repeat])
        last = repeat
    return runs
