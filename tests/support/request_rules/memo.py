"""What was found out about a block, kept between checks.

Checking every prefix of a conversation looks at the same blocks again and again. A ``Memo`` keeps each block's
facts by identity (and the block itself, so that its id isn't given to another), which makes such a run cost a
few dict look-ups a block. Use it only for blocks that nobody changes in place meanwhile.
"""

from __future__ import annotations

from typing import Any


class Memo:
    """Facts by block identity; one for any number of checks."""

    def __init__(self) -> None:
        self.tables: dict[Any, dict[int, Any]] = {}

    def table(self, key: Any) -> dict[int, Any]:
        """The facts found under the same circumstances (role, dialect, …)."""
        found = self.tables.get(key)
        if found is None:
            found = self.tables[key] = {}
        return found

    def __len__(self) -> int:
        return sum(map(len, self.tables.values()))
