"""Counts by word, bounded: what the other side sends must not be able to fill our memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["NO_WORD", "OTHER", "Tally"]

NO_WORD: Final = "(none)"
"""The key of what had no type."""

OTHER: Final = "(other)"
"""The key under which words beyond the limit are counted together."""

_LIMIT: Final = 1_000
_LONGEST: Final = 128


class Tally(dict[str, int]):
    """A counter over words, at most 1,000 of them and each at most 128 characters long.

    Further words share the key :data:`OTHER`; a missing word is :data:`NO_WORD`. Sums stay exact.
    """

    __slots__ = ()

    def add(self, word: object, count: int = 1) -> None:
        """Count ``word`` (any value; what isn't a string is written as one)."""
        if isinstance(word, str) and word in self:
            self[word] += count
            return
        key = word if isinstance(word, str) else NO_WORD if word is None else str(word)
        if len(key) > _LONGEST:
            key = key[:_LONGEST]
        if key not in self and len(self) >= _LIMIT:
            key = OTHER
        self[key] = self.get(key, 0) + count

    def merge(self, other: Mapping[str, int]) -> None:
        """Add all counts of ``other``."""
        for word, count in other.items():
            if word in self:
                self[word] += count
            else:
                self.add(word, count)

    def report(self) -> dict[str, int]:
        """A plain dict, ordered by word, so that equal counts are equal reports."""
        return dict(sorted(self.items()))
