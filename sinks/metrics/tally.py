"""Counts by word, bounded: what the other side sends must not be able to fill our memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["LONGEST", "NO_WORD", "OTHER", "Tally", "count_word"]

NO_WORD: Final = "(none)"
"""The key of what had no type."""

OTHER: Final = "(other)"
"""The key under which words beyond the limit are counted together."""

_LIMIT: Final = 1_000
LONGEST: Final = 128
"""How many characters of a word are kept."""


def count_word(counts: dict[str, int], word: object, count: int = 1) -> None:
    """Count ``word`` in ``counts`` within the bounds of :class:`Tally`.

    Args:
        counts: changed in place; a plain dict where there is one per answer: it holds nothing but words
            and numbers, so the garbage collector never looks into it.
        word: any value; what isn't a string is written as one.
        count: how often it came.
    """
    if isinstance(word, str) and word in counts:
        counts[word] += count
        return
    key = word if isinstance(word, str) else NO_WORD if word is None else str(word)
    if len(key) > LONGEST:
        key = key[:LONGEST]
    if key not in counts and len(counts) >= _LIMIT:
        key = OTHER
    counts[key] = counts.get(key, 0) + count


class Tally(dict[str, int]):
    """A counter over words, at most 1,000 of them and each at most 128 characters long.

    Further words share the key :data:`OTHER`; a missing word is :data:`NO_WORD`. Sums stay exact.
    """

    __slots__ = ()

    def add(self, word: object, count: int = 1) -> None:
        """Count ``word`` (any value; what isn't a string is written as one)."""
        count_word(self, word, count)

    def merge(self, other: Mapping[str, int]) -> None:
        """Add all counts of ``other``."""
        for word, count in other.items():
            if word in self:
                self[word] += count
            else:
                count_word(self, word, count)

    def report(self) -> dict[str, int]:
        """A plain dict, ordered by word, so that equal counts are equal reports."""
        return dict(sorted(self.items()))
