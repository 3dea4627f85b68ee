"""What is to be done to the records of a file, by their ordinal."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Plan"]


@dataclass(slots=True)
class Plan:
    """Edits. What isn't named keeps its bytes.

    Attributes:
        drop: taken out (the original file holds them).
        reject: moved to the file of what was rejected, and why.
        lines: stands there instead.
        parents, logicals, uuids, stamps: values of that key.
        segments: boundaries whose preserved segment is no longer mentioned.
        results: calls of this record that get a result: (id, uuid of the result).
        behind: ordinals of records whose results come behind this one.
        changed: whether a fault needs the file written anew though nothing else is planned.
    """

    drop: set[int] = field(default_factory=set)
    reject: dict[int, str] = field(default_factory=dict)
    lines: dict[int, bytes] = field(default_factory=dict)
    parents: dict[int, str | None] = field(default_factory=dict)
    logicals: dict[int, str] = field(default_factory=dict)
    uuids: dict[int, str] = field(default_factory=dict)
    stamps: dict[int, str] = field(default_factory=dict)
    segments: set[int] = field(default_factory=set)
    results: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    behind: dict[int, list[int]] = field(default_factory=dict)
    changed: bool = False
