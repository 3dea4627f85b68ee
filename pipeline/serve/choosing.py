"""Which recording a request gets: the one it names, or the next in turn."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

from turnstream.serve.api import Refusal
from turnstream.serve.recordings import Recording

__all__ = ["Choice"]


class Choice:
    """The recordings, by name and in turn.

    Args:
        recordings: in order; of two with the same name the first has it.
        once: whether each is given once in turn, then none.

    Attributes:
        unserved: those that no request got yet.
    """

    def __init__(self, recordings: Sequence[Recording], *, once: bool = False) -> None:
        self.recordings = tuple(recordings)
        self.unserved = set(self.recordings)
        self._once = once
        self._turn = 0
        self._by_name: dict[str, Recording] = {}
        # Full names first: a short one takes none away.
        for names in zip(*(tuple(recording.names) for recording in recordings), strict=True):
            for name, recording in zip(names, recordings, strict=True):
                self._by_name.setdefault(name, recording)

    @property
    def short_names(self) -> list[str]:
        """The shortest name by which each can be asked for."""
        return [
            next((n for n in reversed(tuple(each.names)) if self._by_name[n] is each), each.name)
            for each in self.recordings
        ]

    def pick(self, named: str | None, model: str, *, keep_turn: bool = False) -> Recording:
        """The recording of a request.

        Args:
            named: the name that it asks for.
            model: its model; a recording of that name is meant.
            keep_turn: whether the next request in turn gets the same one again.

        Raises:
            Refusal: no recording has that name, or all were given once.
        """
        if named is not None:
            found = self._by_name.get(named) or self._by_name.get(unquote(named))
            if found is None:
                raise Refusal(404, f"no such recording; there are {', '.join(self.short_names)}")
        elif (found := self._by_name.get(model)) is None:
            found = self._in_turn(keep_turn)
        if not keep_turn:
            self.unserved.discard(found)
        return found

    def _in_turn(self, keep_turn: bool) -> Recording:
        if self._once:
            left = [recording for recording in self.recordings if recording in self.unserved]
            if not left:
                raise Refusal(404, "all recordings were served once")
            return left[0]
        found = self.recordings[self._turn]
        if not keep_turn:
            self._turn = (self._turn + 1) % len(self.recordings)
        return found
