"""The compact boundary: where a context starts again (WIRE.md §6).

The boundary is a mark, not a deletion: memory and file keep everything before it; requests take the
slice that starts with the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeGuard, TypeVar

from turnstream.messages import (
    AssistantMessage,
    AttachmentMessage,
    MessageFactory,
    QueryItem,
    SystemMessage,
    Tombstone,
    UserMessage,
)
from turnstream.messages.identity import tombstoned_uuids
from turnstream.operators.compaction.metadata import (
    COMPACT_KEY,
    MICROCOMPACT_KEY,
    CompactMetadata,
    MicrocompactMetadata,
)
from turnstream.operators.stage import Fault, Operator, lift

__all__ = [
    "COMPACT_BOUNDARY",
    "MICROCOMPACT_BOUNDARY",
    "BoundarySlice",
    "after_boundary",
    "boundary_slice",
    "chain_uuid",
    "is_compact_boundary",
    "is_microcompact_boundary",
    "make_boundary",
    "make_microcompact_boundary",
    "without_tombstoned",
]

T = TypeVar("T")

COMPACT_BOUNDARY: Final = "compact_boundary"
"""The subtype of the message before which everything is summarized."""

MICROCOMPACT_BOUNDARY: Final = "microcompact_boundary"
"""The subtype of the message that says which old tool results were cleared; it starts no slice."""


def is_compact_boundary(item: Any) -> TypeGuard[SystemMessage]:
    """True of a ``compact_boundary`` system message (not of a microcompact one)."""
    return isinstance(item, SystemMessage) and item.subtype == COMPACT_BOUNDARY


def is_microcompact_boundary(item: Any) -> TypeGuard[SystemMessage]:
    """True of a ``microcompact_boundary`` system message."""
    return isinstance(item, SystemMessage) and item.subtype == MICROCOMPACT_BOUNDARY


def after_boundary(messages: Iterable[T]) -> list[T]:
    """The messages from the last compact boundary on, the boundary included; all when there is none.

    O(n), one pass, in memory of the slice when ``messages`` is an iterator. Nothing is copied or changed.
    """
    out: list[T] = []
    for message in messages:
        if is_compact_boundary(message):
            out.clear()
        out.append(message)
    return out


def without_tombstoned(messages: Sequence[T]) -> Sequence[T]:
    """The messages without those that a tombstone among them takes back, and without these tombstones."""
    if not any(isinstance(item, Tombstone) for item in messages):
        return messages
    gone = tombstoned_uuids(messages)
    return [item for item in messages if not isinstance(item, Tombstone) and getattr(item, "uuid", None) not in gone]


def chain_uuid(item: Any) -> str | None:
    """The uuid of a message that a transcript's chain holds, else None.

    Chain members are user, assistant, system and attachment messages; never progress, process or
    virtual ones (WIRE.md §3).
    """
    if isinstance(item, (UserMessage, AssistantMessage)):
        return None if item.is_virtual else item.uuid or None
    if isinstance(item, (SystemMessage, AttachmentMessage)):
        return item.uuid or None
    return None


def last_chain_uuid(messages: Sequence[Any]) -> str | None:
    """The uuid of the last chain member, None if there is none."""
    return next((uuid for uuid in map(chain_uuid, reversed(messages)) if uuid), None)


def make_boundary(
    metadata: CompactMetadata, before: Sequence[QueryItem], *, factory: MessageFactory | None = None
) -> SystemMessage:
    """A compact boundary behind ``before``.

    Its content is ``Conversation compacted``, level info, isMeta false; ``logicalParentUuid`` names the
    last chain member of ``before`` and is absent if there is none. It is a new root of the chain, so it
    has no parent (fault 40): the transcript writes ``parentUuid`` null.
    """
    make = factory if factory is not None else MessageFactory()
    boundary = make.compact_boundary(logical_parent_uuid=last_chain_uuid(before))
    boundary.fields[COMPACT_KEY] = metadata.to_wire()
    return boundary


def make_microcompact_boundary(
    metadata: MicrocompactMetadata, *, factory: MessageFactory | None = None
) -> SystemMessage:
    """A microcompact boundary: content ``Context microcompacted``, level info; it keeps its parent in the chain."""
    make = factory if factory is not None else MessageFactory()
    boundary = make.microcompact_boundary()
    boundary.fields[MICROCOMPACT_KEY] = metadata.to_wire()
    return boundary


class BoundarySlice:
    """The stage: holds what came since the last boundary and lets it go at the end. Memory: that slice."""

    def __init__(self) -> None:
        self._held: list[QueryItem] = []

    def feed(self, batch: Sequence[QueryItem], /) -> Sequence[QueryItem | Fault]:
        """Take one batch; nothing comes out, for a later boundary may make it obsolete."""
        held = self._held
        for item in batch:
            if item.__class__ is SystemMessage and is_compact_boundary(item):
                # A new list: the old one may still be somebody's.
                held = self._held = []
            held.append(item)
        return ()

    def flush(self) -> Sequence[QueryItem | Fault]:
        """The end: the slice."""
        held, self._held = self._held, []
        return held

    def fail(self, error: Exception, /) -> Sequence[QueryItem | Fault]:
        """The source broke: the slice as far as it came."""
        return self.flush()


def boundary_slice() -> Operator[QueryItem, QueryItem]:
    """:func:`after_boundary` as an operator, for finite sources: everything comes out at the source's end."""
    return lift(BoundarySlice, "boundary_slice")
