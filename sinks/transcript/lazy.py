"""The queue of lines that wait to be written: when each one may go (WIRE.md §3, *When*).

Order is the file's order, so a line waits for all before it. An assistant line waits for its values to
be final: usage and stop_reason are updated in place until the answer's end. No clock and no I/O here;
times are seconds of whatever clock the caller uses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from msgspec import UNSET, Struct

from turnstream.messages.texts import SYNTHETIC_MODEL
from turnstream.messages.types import AssistantMessage, Message, SystemMessage, UserMessage

__all__ = ["AFTER_END", "AT_LATEST", "FRAME", "RENDERED", "Entry", "LazyQueue", "OpenAnswer", "weigh"]

AFTER_END: Final = 0.1
"""Seconds from an answer's end until its lines go."""

AT_LATEST: Final = 5.0
"""Seconds after which a line goes, unless it is the newest of its open answer."""

# What the envelope, ids and usage cost about, bytes.
FRAME: Final = 600
# Enough to see a large payload; counting every leaf of it isn't the point.
_LEAVES: Final = 4000


class OpenAnswer(Struct, eq=False):
    """One answer of a stream, from its start to its end.

    Attributes:
        message_id: the API's id, None if it has none.
        from_message: opened by a message, not by a ``message_start``.
        has_lines: whether any line of it was queued.
        newest: the last of its lines that is in the queue.
        ended_at: when it ended; None while it is open.
    """

    message_id: str | None
    from_message: bool = False
    has_lines: bool = False
    newest: Entry | None = None
    ended_at: float | None = None


class Entry(Struct, eq=False):
    """One line to be. A Struct because some are made per answer, at a quarter of a class's time.

    Attributes:
        message: the chain member that is serialized when its turn comes; None if ``line`` is ready.
        uuid: the member's id, empty for other lines. With neither message nor line: whose line in the file is
            taken out.
        before: the member before it in the chain, as of now.
        line: a ready line with its line end.
        answer: the open answer it belongs to; only what isn't settled belongs to one.
        recorded_at: when it was queued.
        weight: about how many bytes it has; this and what follows is the queue's to set.
        seq: its number, counted over the queue's life.
        settled: nothing about it changes any more.
        dead: taken out of the queue.
        plain: ``line`` is the end of the line, behind the parent, and ``message`` is :data:`RENDERED`.
    """

    message: Message | None
    recorded_at: float
    uuid: str = ""
    before: str | None = None
    line: bytes | None = None
    answer: OpenAnswer | None = None
    weight: int = 0
    seq: int = 0
    settled: bool = False
    dead: bool = False
    plain: bool = False

    @property
    def erases(self) -> bool:
        """Whether it takes out a line that is in the file, instead of being one."""
        return self.message is None and self.line is None

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


def is_settled(message: Any) -> bool:
    """Whether nobody updates the message in place: only what a stream made is (WIRE.md §1, accumulation)."""
    if message.__class__ is not AssistantMessage:
        return True
    if message.is_aborted_mid_stream or message.is_api_error_message:
        return True
    # By getattr: a look into __dict__ makes one for each message, which stays.
    if getattr(message, "raw", None) is not None:
        return True
    return message.message.get("model") == SYNTHETIC_MODEL


RENDERED: Final = AssistantMessage(message={}, uuid="", timestamp="")
"""Stands for a member whose line is made but for its parent: that is smaller than the message, which goes."""


class LazyQueue:
    """The queue.

    Attributes:
        weight: about how many bytes wait.
        members: how many chain members wait.
        last: the number of the newest entry, 0 if there never was one.
        quiet_until: if not 0, then only time can let the next one go, and not before this. Set by who
            looked (:meth:`watch`); 0 again as soon as another one may be the next.
    """

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._dead = 0
        self.weight = 0
        self.members = 0
        self.last = 0
        self.quiet_until = 0.0

    def __len__(self) -> int:
        return len(self._entries) - self._dead

    def __iter__(self) -> Iterator[Entry]:
        return (entry for entry in self._entries if not entry.dead)

    def add(self, entry: Entry) -> None:
        """Queue one more."""
        self.last = entry.seq = self.last + 1
        message = entry.message
        if message is None:
            entry.settled = True
            weight = len(entry.line or b"")
        else:
            answer = entry.answer
            if answer is None:
                entry.settled = message.__class__ is not AssistantMessage or is_settled(message)
            else:
                answer.newest = entry
                answer.has_lines = True
            weight = weigh(message)
            self.members += 1
        entry.weight = weight
        self.weight += weight
        self._entries.append(entry)

    def add_ended(self, entry: Entry) -> None:
        """Queue a message of an answer that is over, so that none of its lines waits for another; its weight is known."""
        self.last = entry.seq = self.last + 1
        self.members += 1
        self.weight += entry.weight
        self._entries.append(entry)

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Queue again, before all others, what could not be written; its values count as final."""
        for entry in reversed(list(entries)):
            entry.settled = True
            self._entries.appendleft(entry)
            self.weight += entry.weight
            self.members += entry.message is not None
        self.quiet_until = 0.0

    def drop(self, uuid: str) -> bool:
        """Take a member out; False if it isn't in the queue."""
        # Searched from the end: rare, and it is among the newest. An index would cost every line.
        entry = next((e for e in reversed(self._entries) if e.uuid == uuid and not e.dead), None)
        if entry is None or entry.message is None:
            return False
        self.members -= 1
        self.weight -= entry.weight
        entry.dead = True
        self._dead += 1
        self.quiet_until = 0.0
        answer = entry.answer
        if answer is not None and answer.newest is entry:
            answer.newest = next((e for e in reversed(self._entries) if e.answer is answer and not e.dead), None)
        return True

    def cancel(self, uuid: str) -> None:
        """The line that was to be taken out of the file never came there."""
        entry = next((e for e in reversed(self._entries) if e.uuid == uuid and e.erases and not e.dead), None)
        if entry is not None:
            entry.dead = True
            self._dead += 1

    def take_erasures(self) -> list[Entry]:
        """Take those next ones that take lines out of the file: they go together."""
        taken: list[Entry] = []
        while (entry := self.head()) is not None and entry.erases:
            taken.append(self._entries.popleft())
        return taken

    def head(self) -> Entry | None:
        """The next one to go."""
        entries = self._entries
        while entries:
            entry = entries[0]
            if not entry.dead:
                return entry
            entries.popleft()
            self._dead -= 1
        return None

    def ready(self, now: float, forced: int = 0, hastened: int = 0) -> Iterator[Entry]:
        """Take one after the other, as far as they may go.

        Args:
            now: seconds.
            forced: entries up to this number go whatever they are.
            hastened: entries up to this number go without waiting for a time, but the newest line of an
                open answer stays (and what is behind it).
        """
        entries = self._entries
        self.quiet_until = 0.0
        while entries:
            entry = entries[0]
            if entry.dead:
                entries.popleft()
                self._dead -= 1
                continue
            if entry.seq > forced and not entry.settled:
                at = entry.ripe_at()
                if at is None or (at > now and entry.seq > hastened):
                    return
            entries.popleft()
            self.weight -= entry.weight
            if entry.message is not None:
                self.members -= 1
            answer = entry.answer
            if answer is not None:
                # No cycle is left behind, and an entry that is put back is settled.
                entry.answer = None
                if answer.newest is entry:
                    answer.newest = None
            yield entry

    def pop(self, now: float) -> Entry | None:
        """Take the next one, if it may go by itself."""
        return next(self.ready(now), None)

    def watch(self, due: float) -> None:
        """Remember that the next one goes at ``due``, if no event can make that earlier: its answer is over."""
        answer = self._entries[0].answer
        if answer is not None and answer.ended_at is not None:
            self.quiet_until = due

    def due(self, *, member: bool = False) -> float | None:
        """When the next one (with ``member``: the first chain member) may go; None if only an event can tell."""
        entry = self.head()
        if member:
            entry = next((e for e in self if e.message is not None), None)
        return entry.ripe_at() if entry is not None else None


def weigh(message: Any) -> int:
    """About how many bytes ``message`` holds, and its line will have: cheap, and never far below.

    Memory, not characters: a text with one emoji takes four bytes a character.
    """
    cls = message.__class__
    if cls is AssistantMessage:
        content = message.message.get("content")
        if content.__class__ is list and len(content) == 1:
            content = content[0]  # what `accumulate` makes
            if content.__class__ is dict:
                text = content.get("text")
                if text.__class__ is str and len(content) == 2:
                    return FRAME + text.__sizeof__()
                return FRAME + _weigh_block(content)
        return FRAME + _weigh(content)
    if cls is UserMessage:
        content = message.message.get("content")
        if content.__class__ is list and len(content) == 1 and content[0].__class__ is dict:
            total = FRAME + _weigh_block(content[0])
        else:
            total = FRAME + _weigh(content)
        output = message.tool_use_result
        if output is UNSET:
            return total
        return total + (_weigh_block(output) if output.__class__ is dict else _weigh(output))
    if cls is SystemMessage:
        total = FRAME if message.content is UNSET else FRAME + _weigh(message.content)
        return total + _weigh_block(message.fields) if message.fields else total
    attachment: Any = getattr(message, "attachment", None)
    return FRAME + (_weigh_block(attachment) if attachment.__class__ is dict else 0)


def _weigh_block(block: dict[Any, Any]) -> int:
    """:meth:`_weigh` for what is most often weighed: a few keys, most of them texts."""
    total = 0
    for value in block.values():
        cls = value.__class__
        if cls is str:
            total += value.__sizeof__()
        elif cls is dict and len(value) < 16:
            for inner in value.values():
                cls = inner.__class__
                if cls is str:
                    total += inner.__sizeof__()
                elif cls is dict or cls is list or cls is tuple:
                    total += _weigh(inner)
        elif cls is dict or cls is list or cls is tuple:
            total += _weigh(value)
    return total


def _weigh(payload: Any) -> int:
    cls = payload.__class__
    if isinstance(payload, str):
        return payload.__sizeof__()
    if cls is not dict and cls is not list and cls is not tuple:
        return 0
    total = 0
    leaves = _LEAVES
    stack: list[Any] = [payload]
    while stack and leaves > 0:
        container = stack.pop()
        count = len(container)
        values: Iterable[Any] = container
        if container.__class__ is dict:
            total += 16 * count
            values = container.values()
        if count > leaves:
            # What isn't looked at counts as a short word each.
            total += 8 * (count - leaves)
            values = islice(values, leaves)
        leaves -= count
        for value in values:
            cls = value.__class__
            if cls is str:
                total += value.__sizeof__()
            elif cls is dict or cls is list or cls is tuple:
                stack.append(value)
    return total + 8 * len(stack)
