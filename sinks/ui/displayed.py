"""The displayed list: what is appended, replaced, taken back, reset, and handed to a renderer (WIRE.md §5, list)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from turnstream.messages.types import ProgressMessage, SystemMessage, Tombstone
from turnstream.operators.display.listed import tick_of
from turnstream.sinks.ui.views import DisplayItem, DisplayMessage, uuid_of

__all__ = ["HANDED_OUT_LIMIT", "DisplayedList"]

HANDED_OUT_LIMIT: Final = 4096
"""How many uuids of handed-out messages are remembered, for tombstones that come later."""


class DisplayedList:
    """Ordered, every operation O(1) amortised.

    Items live in insertion-ordered dicts by number, so that removal needs no search and the dict
    compacts itself. ``_items`` is the displayed list (only with ``keep``); ``_fresh`` what nobody has
    taken yet. A compact boundary resets the first and leaves the second alone: what wasn't shown yet
    must still reach a renderer that only appends.

    Args:
        keep: keep items after they were taken; without it they are let go (the memory bound).
        full_screen: a boundary keeps one interval before it.
    """

    def __init__(self, *, keep: bool, full_screen: bool) -> None:
        self.number = 0
        self.duplicates = 0
        self.retracted = 0
        self._keep = keep
        self._full_screen = full_screen
        self._taker = not keep
        self._items: dict[int, DisplayItem] = {}
        self._fresh: dict[int, DisplayItem] = {}
        self._by_uuid: dict[str, int] = {}
        self._handed: OrderedDict[str, None] = OrderedDict()
        self._boundary = 0
        self._floor = 0  # without keep: displayed are the fresh ones from this number on
        self._tail: tuple[str, str | None] | None = None  # kind and parent, if the last item is a tick
        self._tail_uuid = ""
        self._tail_number = 0
        self._tail_gone = False

    def __len__(self) -> int:
        return len(self._items) if self._keep else len(self._fresh)

    @property
    def fresh(self) -> bool:
        """Whether there is anything to take."""
        return bool(self._fresh) or (not self._taker and bool(self._items))

    def items(self) -> tuple[DisplayItem, ...]:
        """The displayed list: with ``keep`` all of it, else what nobody has taken yet."""
        if self._keep:
            return tuple(self._items.values())
        floor = self._floor
        return tuple(i for i in self._fresh.values() if i.number >= floor and i.message.__class__ is not Tombstone)

    def load(self, items: Iterable[DisplayItem], number: int) -> None:
        """Start from the items of a snapshot."""
        for item in items:
            self._put(item)
            uuid = uuid_of(item.message)
            if uuid:
                self._by_uuid[uuid] = item.number
        self.number = number
        self._tail_gone = True

    def _put(self, item: DisplayItem) -> None:
        if self._keep:
            self._items[item.number] = item
        if self._taker:
            self._fresh[item.number] = item

    def append(self, message: DisplayMessage, uuid: str = "", streams: tuple[int, ...] = ()) -> None:
        """Append ``message``; a uuid that is displayed or was handed out already isn't shown twice."""
        number = self.number + 1
        if uuid:
            if uuid in self._by_uuid or uuid in self._handed:
                self.duplicates += 1
                return
            self._by_uuid[uuid] = number
        self.number = self._tail_number = number
        item = DisplayItem(number, message, streams)
        if self._keep:
            self._items[number] = item
        if self._taker:
            self._fresh[number] = item
        self._tail = None
        self._tail_gone = False

    def pass_by(self, count: int) -> None:
        """Count ``count`` appended messages that nobody will take (see :meth:`discard`)."""
        self.number = self._tail_number = self.number + count
        self._tail = None
        self._tail_gone = False

    def progress(self, message: ProgressMessage) -> None:
        """Append progress, or replace the last item if both are ticks of the same kind and parent."""
        key = tick_of(message)
        if self._tail_gone:
            self._find_tail()
        if key is not None and key == self._tail:
            number = self._tail_number
            before = self._fresh.get(number) if self._taker else self._items.get(number)
            # Not in the queue any more: it was handed out, so the renderer is told that this is an update.
            self._put(DisplayItem(number, message, update=before is None or before.update))
            self._by_uuid.pop(self._tail_uuid, None)
            if message.uuid:
                self._by_uuid[message.uuid] = number
        else:
            last = self.number
            self.append(message, message.uuid)
            if last == self.number:
                return
        self._tail = key
        self._tail_uuid = message.uuid

    def _find_tail(self) -> None:
        """The last item was removed: look which one is last now."""
        self._tail_gone = False
        self._tail = None
        last = next(reversed((self._items if self._keep else self._fresh).values()), None)
        if last is None:
            return
        self._tail_number = last.number
        if isinstance(last.message, ProgressMessage):
            self._tail = tick_of(last.message)
            self._tail_uuid = last.message.uuid

    def remove(self, uuid: str, tombstone: Tombstone) -> None:
        """Take a message back; if it was handed out, the tombstone is handed out too."""
        number = self._by_uuid.pop(uuid, None)
        if number is not None:
            self._items.pop(number, None)
            self._fresh.pop(number, None)
            self._tail_gone = self._tail_gone or number == self._tail_number
            self.retracted += 1
        if uuid in self._handed:
            del self._handed[uuid]
            self.retracted += number is None
            self.number += 1
            self._fresh[self.number] = DisplayItem(self.number, tombstone)

    def boundary(self, message: SystemMessage) -> None:
        """A compact boundary: the list starts anew with it (full screen: with the one before)."""
        uuid = message.uuid
        if uuid and (uuid in self._by_uuid or uuid in self._handed):
            self.duplicates += 1
            return
        first = self._boundary if self._full_screen else self.number + 1
        dropped = []
        for number in self._items:
            if number >= first:
                break
            dropped.append(number)
        for number in dropped:
            old = uuid_of(self._items.pop(number).message)
            if old and number not in self._fresh:
                self._by_uuid.pop(old, None)
        self._floor = first
        self._boundary = self.number + 1
        self.append(message, uuid)

    def discard(self) -> None:
        """Let go of what nobody will take."""
        if self._fresh:
            self._fresh = {}
            self._by_uuid = {}

    def take(self) -> list[DisplayItem]:
        """What came since the last take, in order; without ``keep`` it is let go."""
        if self._taker:
            out = list(self._fresh.values())
            self._fresh = {}
        else:
            self._taker = True
            out = list(self._items.values())
        handed = self._handed
        for item in out:
            uuid = uuid_of(item.message)
            if not uuid:
                continue
            if not self._keep:
                self._by_uuid.pop(uuid, None)
            if item.message.__class__ is not ProgressMessage:
                handed[uuid] = None
        while len(handed) > HANDED_OUT_LIMIT:
            handed.popitem(last=False)
        return out
