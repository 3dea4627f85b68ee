"""Deltas that found no block: told by messages, by notes, or by both (WIRE.md §1, deltas)."""

from __future__ import annotations

from collections.abc import Iterable

from turnstream.messages.types import AssistantMessage
from turnstream.sinks.metrics.tally import Tally

__all__ = ["Unapplied"]


class Unapplied:
    """Counts by type what one answer's blocks couldn't take.

    ``accumulate`` adds such deltas to messages in place until the answer's end, so the messages are read
    only then. A block that stays empty makes no message that could carry its deltas: there the note alone
    tells. Deltas of unknown types are opaque instead, though messages carry them too.
    """

    __slots__ = ("_found", "_noted", "_opaque")

    def __init__(self) -> None:
        self._found: Tally | None = None
        self._noted: Tally | None = None
        self._opaque: Tally | None = None

    def count(self, message: AssistantMessage) -> None:
        """Read ``message``: it doesn't change any more."""
        self._found = _counted(self._found, message)

    def opaque(self, kind: str | None) -> None:
        """A delta of a type nobody knows came."""
        if self._opaque is None:
            self._opaque = Tally()
        self._opaque.add(kind)

    def noted(self, kind: str) -> None:
        """A note says that a delta of this type found no block."""
        if self._noted is None:
            self._noted = Tally()
        self._noted.add(kind)

    def settle(self) -> None:
        """The answer ended, all its messages were counted: the notes have nothing more to add."""
        self._found = self.so_far(())
        self._noted = self._opaque = None

    def so_far(self, messages: Iterable[AssistantMessage]) -> Tally | None:
        """The counts, those of ``messages`` included, which may still change; None if there are none."""
        found = self._found
        for message in messages:
            found = _counted(Tally(found or ()), message)
        if found is None and self._noted is None:
            return None
        found, noted, opaque = found or Tally(), self._noted or Tally(), self._opaque or Tally()
        out = Tally()
        for kind in sorted(found.keys() | noted.keys()):
            count = max(found.get(kind, 0) - opaque.get(kind, 0), noted.get(kind, 0))
            if count > 0:
                out[kind] = count
        return out or None


def _counted(tally: Tally | None, message: AssistantMessage) -> Tally:
    out = tally if tally is not None else Tally()
    for delta in message.unapplied_deltas or ():
        out.add(delta.get("type") if isinstance(delta, dict) else None)
    return out
