"""The queue of lines that wait to be written: when each one may go (WIRE.md §3, *When*).

Order is the file's order, so a line waits for all before it. An assistant line waits for its values to
be final: usage and stop_reason are updated in place until the answer's end. No clock and no I/O here;
times are seconds of whatever clock the caller uses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec import UNSET

from turnstream.messages.texts import SYNTHETIC_MODEL
from turnstream.messages.types import AssistantMessage, Message, SystemMessage, UserMessage

__all__ = ["AFTER_END", "AT_LATEST", "Entry", "LazyQueue", "OpenAnswer", "weigh"]

AFTER_END: Final = 0.1
"""Seconds from an answer's end until its lines go."""

AT_LATEST: Final = 5.0
"""Seconds after which a line goes, unless it is the newest of its open answer."""

# What the envelope, ids and usage cost about, bytes.
_FRAME: Final = 600
# Enough to see a large payload; counting every leaf of it isn't the point.
_LEAVES: Final = 4000


class OpenAnswer:
    """One answer of a stream, from its start to its end.

    Attributes:
        message_id: the API's id, None if it has none.
        from_message: opened by a message, not by a ``message_start``.
        has_lines: whether any line of it was queued.
        newest: the last of its lines that is in the queue.
        ended_at: when it ended; None while it is open.
    """

    __slots__ = ("ended_at", "from_message", "has_lines", "message_id", "newest")

    def __init__(self, message_id: str | None, *, from_message: bool = False) -> None:
        self.message_id = message_id
        self.from_message = from_message
        self.has_lines = False
        self.newest: Entry | None = None
        self.ended_at: float | None = None


class Entry:
    """One line to be.

    Attributes:
        message: the chain member that is serialized when its turn comes; None if ``line`` is ready.
        uuid: the member's id, empty for other lines.
        before: the member before it in the chain, as of now.
        line: a ready line with its line end.
        answer: the open answer it belongs to.
        recorded_at: when it was queued.
        weight: about how many bytes it has.
        seq: its number, counted over the queue's life.
        settled: nothing about it changes any more.
    """

    __slots__ = ("answer", "before", "dead", "line", "message", "recorded_at", "seq", "settled", "uuid", "weight")

    def __init__(
        self,
        message: Message | None,
        recorded_at: float,
        *,
        uuid: str = "",
        before: str | None = None,
        line: bytes | None = None,
        answer: OpenAnswer | None = None,
    ) -> None:
        self.message = message
        self.uuid = uuid
        self.before = before
        self.line = line
        self.answer = answer
        self.recorded_at = recorded_at
        self.weight = len(line) if line is not None else weigh(message)
        self.seq = 0
        self.settled = message is None or is_settled(message)
        self.dead = False

    def ripe_at(self) -> float | None:
        """When it may go, provided that all before it have gone; None: at an event that has no time yet."""
        if self.settled:
            return self.recorded_at
        answer = self.answer
        if answer is None:
            # No start was seen, so no end will be: a stop_reason says that the values are final.
            message: Any = self.message
            ended = message.message.get("stop_reason") is not None
            return self.recorded_at + (AFTER_END if ended else AT_LATEST)
        newest = answer.newest is self
        if answer.ended_at is None:
            return None if newest else self.recorded_at + AT_LATEST
        at = answer.ended_at + AFTER_END
        return at if newest else min(at, self.recorded_at + AT_LATEST)


def is_settled(message: Message) -> bool:
    """Whether nobody updates the message in place: only what a stream made is (WIRE.md §1, accumulation)."""
    if not isinstance(message, AssistantMessage):
        return True
    if message.is_aborted_mid_stream or message.is_api_error_message or "raw" in message.__dict__:
        return True
    return message.message.get("model") == SYNTHETIC_MODEL


class LazyQueue:
    """The queue.

    Attributes:
        weight: about how many bytes wait.
        members: how many chain members wait.
        last: the number of the newest entry, 0 if there never was one.
    """

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._by_uuid: dict[str, Entry] = {}
        self._live = 0
        self.weight = 0
        self.members = 0
        self.last = 0

    def __len__(self) -> int:
        return self._live

    def __iter__(self) -> Iterator[Entry]:
        return (entry for entry in self._entries if not entry.dead)

    def __contains__(self, uuid: object) -> bool:
        return uuid in self._by_uuid

    def add(self, entry: Entry) -> None:
        """Queue one more."""
        self.last += 1
        entry.seq = self.last
        if entry.answer is not None and not entry.settled:
            entry.answer.newest = entry
            entry.answer.has_lines = True
        self._entries.append(entry)
        self._count(entry)

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Queue again, before all others, what could not be written; its values count as final."""
        for entry in reversed(list(entries)):
            entry.settled = True
            self._entries.appendleft(entry)
            self._count(entry)

    def _count(self, entry: Entry) -> None:
        self._live += 1
        self.weight += entry.weight
        if entry.message is not None:
            self.members += 1
            self._by_uuid[entry.uuid] = entry

    def _discount(self, entry: Entry) -> None:
        self._live -= 1
        self.weight -= entry.weight
        if entry.message is not None:
            self.members -= 1
            del self._by_uuid[entry.uuid]

    def drop(self, uuid: str) -> bool:
        """Take a member out; False if it isn't in the queue."""
        entry = self._by_uuid.get(uuid)
        if entry is None:
            return False
        self._discount(entry)
        entry.dead = True
        answer = entry.answer
        if answer is not None and answer.newest is entry:
            answer.newest = next((e for e in reversed(self._entries) if e.answer is answer and not e.dead), None)
        return True

    def head(self) -> Entry | None:
        """The next one to go."""
        entries = self._entries
        while entries and entries[0].dead:
            entries.popleft()
        return entries[0] if entries else None

    def pop(self, now: float, *, forced: int = 0, hastened: int = 0) -> Entry | None:
        """Take the next one, if it may go.

        Args:
            now: seconds.
            forced: entries up to this number go whatever they are.
            hastened: entries up to this number go without waiting for a time, but the newest line of an
                open answer stays (and what is behind it).
        """
        entry = self.head()
        if entry is None:
            return None
        if entry.seq > forced and not entry.settled:
            at = entry.ripe_at()
            if at is None or (at > now and entry.seq > hastened):
                return None
        self._entries.popleft()
        self._discount(entry)
        answer = entry.answer
        if answer is not None:
            # No cycle is left behind, and an entry that is put back is settled.
            entry.answer = None
            if answer.newest is entry:
                answer.newest = None
        return entry

    def due(self, *, member: bool = False) -> float | None:
        """When the next one (with ``member``: the first chain member) may go; None if only an event can tell."""
        entry = self.head()
        if member:
            entry = next((e for e in self if e.message is not None), None)
        return entry.ripe_at() if entry is not None else None


def weigh(message: Any) -> int:
    """About how many bytes the line of ``message`` will have: cheap, and never far below."""
    cls = message.__class__
    if cls is AssistantMessage:
        return _FRAME + _weigh(message.message.get("content"))
    if cls is UserMessage:
        total = _FRAME + _weigh(message.message.get("content"))
        output = message.tool_use_result
        return total if output is UNSET else total + _weigh(output)
    if cls is SystemMessage:
        return _FRAME + _weigh(message.content) + _weigh(message.fields)
    return _FRAME + _weigh(getattr(message, "attachment", None))


def _weigh(payload: Any) -> int:
    total = 0
    stack: list[Any] = [payload]
    leaves = _LEAVES
    while stack and leaves:
        value = stack.pop()
        leaves -= 1
        cls = value.__class__
        if cls is str:
            total += len(value)
        elif cls is dict:
            total += 16 * len(value)
            stack += value.values()
        elif cls is list or cls is tuple:
            stack += value
    # What wasn't looked at counts as a short word each.
    return total + 8 * len(stack)
