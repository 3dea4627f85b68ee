"""``display_list``: what stands in a display's list: appended, replaced, taken back, reset (WIRE.md §5, list)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, overload

from turnstream.messages.identity import uuid_of
from turnstream.messages.types import (
    AssistantMessage,
    AttachmentMessage,
    CollapsedReadSearch,
    GroupedToolUse,
    OpaqueRecord,
    ProgressMessage,
    ResponseFailed,
    SystemMessage,
    Tombstone,
    UserMessage,
)
from turnstream.operators.display.parts import Item
from turnstream.operators.stage import Fault, Operator, lift, run_stages

__all__ = ["TICKS", "DisplayList", "display_list", "tick_of"]

TICKS: Final = frozenset({"sleep_progress", "bash_progress", "mcp_progress"})
"""Progress that replaces the last item of the same kind and parent; 13,000 of it were seen in a session."""

_LISTED: Final = frozenset(
    {
        AssistantMessage,
        UserMessage,
        SystemMessage,
        AttachmentMessage,
        ProgressMessage,
        ResponseFailed,
        OpaqueRecord,
        GroupedToolUse,
        CollapsedReadSearch,
    }
)


def tick_of(message: ProgressMessage) -> tuple[str, str | None] | None:
    """Kind and parent of a tick, None for progress that is always appended."""
    data = message.data
    kind = data.get("type") if isinstance(data, dict) else None
    return (kind, message.parent_tool_use_id) if isinstance(kind, str) and kind in TICKS else None


class DisplayList:
    """The list, changed in place: O(1) amortised an item. As a stage it gives the list at the end.

    - A compact boundary starts the list anew (``full_screen`` keeps one interval before it).
    - sleep, bash and mcp progress replace the last item if that is progress of the same kind and parent.
    - A tombstone removes its message.
    - A message whose uuid stands in the list already isn't listed twice.
    - Everything else that is shown is appended; stream events and other process items aren't.

    Memory: the list.

    Args:
        full_screen: a compact boundary keeps what came since the one before it.

    Attributes:
        conversation: uuid of the compact boundary that the list starts with, None before any.
    """

    def __init__(self, *, full_screen: bool = False) -> None:
        self.conversation: str | None = None
        self._full_screen = full_screen
        # By a number that counts up: removal needs no search, and a dict keeps the order.
        self._items: dict[int, Item] = {}
        self._by_uuid: dict[str, int] = {}
        self._number = 0
        self._boundary = 0

    def items(self) -> list[Item]:
        """What the list holds now, in order."""
        return list(self._items.values())

    def apply(self, items: Iterable[Item]) -> None:
        """Take items, in order."""
        for item in items:
            cls = item.__class__
            if cls is Tombstone:
                uuid = uuid_of(item.message)  # type: ignore[union-attr]
                number = self._by_uuid.pop(uuid, None)
                if number is not None:
                    del self._items[number]
            elif cls in _LISTED:
                self._add(item)

    def _add(self, item: Any) -> None:
        cls = item.__class__
        uuid = getattr(item, "uuid", "")
        if cls is ProgressMessage and self._replaces(item):
            number, last = next(reversed(self._items.items()))
            self._by_uuid.pop(uuid_of(last), None)
            self._items[number] = item
            if uuid:
                self._by_uuid[uuid] = number
            return
        if cls is SystemMessage and item.subtype == "compact_boundary":
            if uuid and uuid in self._by_uuid:
                return
            self._reset(uuid)
        number = self._number + 1
        if uuid and self._by_uuid.setdefault(uuid, number) != number:
            return
        self._number = number
        self._items[number] = item

    def _replaces(self, item: ProgressMessage) -> bool:
        tick = tick_of(item)
        if tick is None or not self._items:
            return False
        last = next(reversed(self._items.values()))
        return isinstance(last, ProgressMessage) and tick_of(last) == tick

    def _reset(self, uuid: str) -> None:
        first = self._boundary if self._full_screen else self._number + 1
        gone = []
        for number in self._items:
            if number >= first:
                break
            gone.append(number)
        for number in gone:
            self._by_uuid.pop(uuid_of(self._items.pop(number)), None)
        self._boundary = self._number + 1
        self.conversation = uuid or f"compacted-{self._boundary}"

    # -- as a stage ----------------------------------------------------------------------------------

    def feed(self, batch: Sequence[Item], /) -> Sequence[Item | Fault]:
        """Take one batch; nothing is final before the end."""
        self.apply(batch)
        return ()

    def flush(self) -> Sequence[Item | Fault]:
        """The list."""
        return [*self.items()]

    def fail(self, error: Exception, /) -> Sequence[Item | Fault]:
        """The list."""
        return self.flush()


@overload
def display_list(*, full_screen: bool = False) -> Operator[Item, Item]: ...
@overload
def display_list(messages: Iterable[Item], /, *, full_screen: bool = False) -> list[Item]: ...
def display_list(
    messages: Iterable[Item] | None = None, /, *, full_screen: bool = False
) -> Operator[Item, Item] | list[Item]:
    """What a display's list holds after ``messages`` (WIRE.md §5, list; :class:`DisplayList` has the rules).

    It goes before ``split_blocks``: tombstones name messages by the uuids they came with.

    Args:
        messages: what came, oldest first; without it the operator is returned, which gives the list at the end.
        full_screen: a compact boundary keeps one interval before it.
    """
    operator: Operator[Item, Item] = lift(lambda: DisplayList(full_screen=full_screen), "display_list")
    return operator if messages is None else run_stages(messages, operator)
