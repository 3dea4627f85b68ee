"""What normalization did and why: one :class:`Repair` a step (WIRE.md §4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Explain", "Repair"]


@dataclass(frozen=True)
class Repair:
    """One thing that a stage dropped, moved or changed.

    Attributes:
        stage: the stage's name: ``filter``, ``reorder``, ``convert``, ``merge``, ``strip``, ``repair``.
        uuid: the uuid of the message it was done to, None where it has none.
        what: what was done, in words for a human: ``dropped the message``.
        why: the rule behind it.
    """

    stage: str
    uuid: str | None
    what: str
    why: str


Explain = Callable[[Repair], None]
"""Takes each repair as it is made; pass ``list.append`` of a list of yours."""
