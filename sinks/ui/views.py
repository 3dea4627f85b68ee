"""What the display is made of: open blocks, finished items, and the immutable view of both."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from turnstream.messages.events import InputJsonDelta, TextDelta, ThinkingDelta
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

__all__ = [
    "BlockView",
    "DisplayItem",
    "DisplayMessage",
    "Fate",
    "ItemKind",
    "Mode",
    "OpenBlock",
    "Snapshot",
    "ThinkingView",
    "ToolEntry",
]

Mode = Literal["requesting", "thinking", "responding", "tool-input", "tool-use"]
"""What the model does right now (WIRE.md §5, router); None stands for idle."""

ItemKind = Literal["assistant", "user", "system", "attachment", "progress", "group", "error", "retraction", "opaque"]

DeltaClass = type[Any]

Fate = Literal["superseded", "retracted", "incomplete"]

DisplayMessage = (
    AssistantMessage
    | UserMessage
    | SystemMessage
    | AttachmentMessage
    | ProgressMessage
    | GroupedToolUse
    | CollapsedReadSearch
    | ResponseFailed
    | Tombstone
    | OpaqueRecord
)

_KINDS: Final[dict[type, ItemKind]] = {
    AssistantMessage: "assistant",
    UserMessage: "user",
    SystemMessage: "system",
    AttachmentMessage: "attachment",
    ProgressMessage: "progress",
    GroupedToolUse: "group",
    CollapsedReadSearch: "group",
    ResponseFailed: "error",
    Tombstone: "retraction",
    OpaqueRecord: "opaque",
}


class DisplayItem(msgspec.Struct, frozen=True):
    """One entry of the displayed list.

    Attributes:
        number: counts up over the state's life and never repeats; order of the list.
        message: what to show. It is shared, not copied: usage and stop_reason of an open answer's
            messages still change in place (WIRE.md §1), content doesn't.
        streams: for each content block of ``message`` the serial of the streamed block that it
            supersedes, 0 where nothing was streamed; empty for what never streams.
        update: whether it stands for the item of the same number that was handed out before (progress).
    """

    number: int
    message: DisplayMessage
    streams: tuple[int, ...] = ()
    update: bool = False

    @property
    def kind(self) -> ItemKind:
        """What it is; a renderer dispatches on it."""
        return _KINDS[type(self.message)]


# What a block of a known type appends, the key of its seed, and the mode that its start means.
_KNOWN: Final[dict[str, tuple[type | None, str, Mode | None]]] = {
    "text": (TextDelta, "text", "responding"),
    "thinking": (ThinkingDelta, "thinking", "thinking"),
    "redacted_thinking": (None, "", "thinking"),
    "tool_use": (InputJsonDelta, "", "tool-input"),
    "server_tool_use": (InputJsonDelta, "", "tool-input"),
    "mcp_tool_use": (InputJsonDelta, "", "tool-input"),
}


class OpenBlock(msgspec.Struct):
    """A streamed block that no finished message has superseded yet.

    Attributes:
        serial: counts up over the state's life, so that a renderer knows a block again.
        index: its index in the answer.
        type: the content block's type, ``""`` where it has none.
        block: the start event's content block; shared, never changed.
        takes: the delta class that is appended, None if there is none.
        mode: what the model does while it streams, None for results and unknown types.
        parts: the seed of the start block (if it has one) and what was streamed; joined on demand only.
        since: arrival time of its start, monotonic seconds; None without a clock.
        seeded: whether ``parts[0]`` is the seed, which wasn't streamed.
        closed: whether its stop came (the finished message may still be held by ``settle``).
        until: arrival time of its end, None while it is open or without a clock.
        fate: what became of it, None while it is shown. ``retracted``: a new attempt replaced it;
            ``incomplete``: its answer ended and nothing took its place.
    """

    serial: int
    index: int
    type: str
    block: dict[str, Any]
    takes: DeltaClass | None
    mode: Mode | None
    parts: list[str]
    since: float | None = None
    seeded: bool = False
    closed: bool = False
    until: float | None = None
    fate: Fate | None = None

    @classmethod
    def start(cls, serial: int, index: int, block: dict[str, Any], since: float | None) -> OpenBlock:
        """The block that a start event opens."""
        kind = block.get("type")
        if not isinstance(kind, str):
            kind = ""
        takes, key, mode = _KNOWN.get(kind) or _unknown(kind, block)
        seed = block.get(key) if key else None
        if seed and isinstance(seed, str):
            return cls(serial, index, kind, block, takes, mode, [seed], since, True)
        return cls(serial, index, kind, block, takes, mode, [], since)

    @property
    def is_tool(self) -> bool:
        """tool_use, server_tool_use, mcp_tool_use …: it has an entry in the snapshot's ``tools``."""
        return self.mode == "tool-input"

    @property
    def is_thinking(self) -> bool:
        """Thinking, or redacted thinking (which has no text)."""
        return self.mode == "thinking"

    def thought(self) -> ThinkingView:
        """The view of a thinking block; joins it."""
        text = self.text if self.takes is ThinkingDelta else None
        return ThinkingView(text=text, streaming=not self.closed, started_at=self.since, ended_at=self.until)

    @property
    def text(self) -> str:
        """Text, thinking or raw input so far. Joins: O(length)."""
        return "".join(self.parts)

    def streamed(self) -> int:
        """How many characters deltas brought (the seed isn't counted)."""
        # join is four times as fast as summing the lengths of small parts.
        return len("".join(self.parts)) - (len(self.parts[0]) if self.seeded else 0)

    def view(self) -> BlockView:
        """An immutable copy."""
        return BlockView(
            serial=self.serial,
            index=self.index,
            type=self.type,
            text=self.text,
            content_block=self.block,
            streamed=self.streamed(),
            closed=self.closed,
            since=self.since,
            until=self.until,
        )

    @classmethod
    def from_view(cls, view: BlockView) -> OpenBlock:
        """The block that ``view`` was made from, with its text in at most two parts."""
        block = cls.start(view.serial, view.index, view.content_block, view.since)
        seed = block.text
        if len(view.text) > len(seed):
            block.parts.append(view.text[len(seed) :])
        block.closed = view.closed
        block.until = view.until
        return block


def _unknown(kind: str, block: dict[str, Any]) -> tuple[type | None, str, Mode | None]:
    """As ``accumulate`` sees it: server tools to come, and whatever else has an input, take its fragments."""
    if kind.endswith("tool_use"):
        return InputJsonDelta, "", "tool-input"
    return (InputJsonDelta if "input" in block else None), "", None


class BlockView(msgspec.Struct, frozen=True):
    """An open block at one moment; ``text`` is joined (text, thinking, or raw tool input)."""

    serial: int
    index: int
    type: str
    text: str
    content_block: dict[str, Any]
    streamed: int = 0
    closed: bool = False
    since: float | None = None
    until: float | None = None


class ToolEntry(msgspec.Struct, frozen=True):
    """A tool call whose input still streams (WIRE.md §5): never parsed, never executed from here."""

    index: int
    content_block: dict[str, Any]
    unparsed_tool_input: str


class ThinkingView(msgspec.Struct, frozen=True):
    """The thinking of the answer that is shown.

    Attributes:
        text: what was thought so far; None for redacted thinking.
        streaming: whether it still goes on.
        started_at: arrival time of its start, monotonic seconds; None without a clock.
        ended_at: arrival time of its end, None while it streams or without a clock.
    """

    text: str | None
    streaming: bool
    started_at: float | None = None
    ended_at: float | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """The display at one moment. Nothing in it changes later but in-place updates of an open answer.

    A late joiner, or a consumer that got a ``resync``, takes one and goes on from there with
    :meth:`turnstream.sinks.ui.UIState.restore`: no delta is ever replayed.

    Attributes:
        mode: what the model does, None for idle.
        message_id: id of the open answer, None if it has none or none is open.
        answering: whether an answer is open.
        blocks: the open blocks in index order.
        tools: the tool calls whose input streams, in index order.
        thinking: the current or last thinking.
        streamed_length: characters that deltas brought so far, signatures excepted, over the state's life.
        items: the displayed list.
        outcome: the word of the answer that ended last (WIRE.md §1), None while one is open or before any.
        conversation: uuid of the boundary that the conversation starts with, None before any compaction.
        used: block indexes that the open answer has used.
        finished: finished messages of the open answer.
        awaiting: whether what comes before the next start belongs to no answer (one has ended).
        serial: serials given to blocks so far.
        number: numbers given to items so far.
    """

    mode: Mode | None = None
    message_id: str | None = None
    answering: bool = False
    blocks: tuple[BlockView, ...] = ()
    tools: tuple[ToolEntry, ...] = ()
    thinking: ThinkingView | None = None
    streamed_length: int = 0
    items: tuple[DisplayItem, ...] = ()
    outcome: str | None = None
    conversation: str | None = None
    used: frozenset[int] = frozenset()
    finished: int = 0
    awaiting: bool = False
    serial: int = 0
    number: int = 0

    @property
    def incomplete(self) -> bool:
        """Whether the answer that ended last did so other than well: what is shown of it may be cut off."""
        return self.outcome is not None and self.outcome != "complete"


def uuid_of(message: object) -> str:
    """A message's uuid, ``""`` if it has none (failures, opaque records); also of one in wire form."""
    uuid = message.get("uuid") if isinstance(message, dict) else getattr(message, "uuid", None)
    return uuid if isinstance(uuid, str) else ""
