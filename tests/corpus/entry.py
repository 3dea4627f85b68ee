"""What a corpus entry is: bytes of a stream we made up, and what must come out, by WIRE.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Counts = dict[str | None, int]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer that must come out. What is None isn't specified and isn't compared.

    Attributes:
        outcome: the word of WIRE.md §1; one that ends in ``(`` is compared as a prefix.
        content: the finished blocks, sorted by index, whole.
        indexes: their indexes; None: 0, 1, 2 …; an empty tuple: unspecified.
        stop_reason: the last one that wasn't null.
        usage: the whole usage object at the end.
        message: other keys of the API message.
        partial: content of the message that keeps what was unfinished; None: there is no such message.
        unfinished: ``unfinishedToolInputs`` of that message.
        invalid: how many tool inputs are marked invalid.
        unapplied: deltas that weren't applied, by type.
        marks: envelope marks that some message of the answer bears.
        superseded: what attempts before it had finished, one list of blocks an attempt.
    """

    outcome: str = "complete"
    content: list[Any] = field(default_factory=list)
    indexes: tuple[int, ...] | None = None
    stop_reason: str | None = "end_turn"
    usage: dict[str, Any] | None = None
    message: dict[str, Any] = field(default_factory=dict)
    partial: list[Any] | None = None
    unfinished: list[dict[str, Any]] = field(default_factory=list)
    invalid: int = 0
    unapplied: Counts = field(default_factory=dict)
    marks: frozenset[str] = frozenset()
    superseded: tuple[list[Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A stream and what must come out of it.

    Attributes:
        name: unique, says the kind.
        data: the bytes.
        answers: what must come out, in order.
        rule: the section and words of WIRE.md (or the row of FAULTS.md) that say so.
        covers: quirk tokens of the recordings' index that this entry shows.
        container: sse, ndjson, json (one message or error object) or unknown (to be sniffed).
        events: how many events must pass; None: not compared.
        bad_events: payloads that are no event, each a note.
        opaque_events: unknown events by type; likewise deltas and blocks.
        notes: kinds of notes that must be there (only words that WIRE.md or EXPECTED.md fix).
    """

    name: str
    data: bytes
    answers: tuple[Answer, ...]
    rule: str
    covers: tuple[str, ...] = ()
    container: str = "sse"
    events: int | None = None
    bad_events: int = 0
    opaque_events: Counts = field(default_factory=dict)
    opaque_deltas: Counts = field(default_factory=dict)
    opaque_blocks: Counts = field(default_factory=dict)
    notes: frozenset[str] = frozenset()


def notes(*kinds: str) -> frozenset[str]:
    return frozenset(kinds)


marks = notes
