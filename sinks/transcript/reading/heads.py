"""What the first pass reads of a record: who it is and on whom it hangs (WIRE.md §3).

The rest of a line is skipped at the decoder's speed and read again only if the record is on the chain.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = ["ASSISTANT", "ATTACHMENT", "BOUNDARY", "SYSTEM", "USER", "Head", "Member", "decode_head", "head_of"]

USER: Final = "user"
ASSISTANT: Final = "assistant"
SYSTEM: Final = "system"
ATTACHMENT: Final = "attachment"

BOUNDARY: Final = "compact_boundary"


class _Message(msgspec.Struct, gc=False):
    id: str | None = None
    uuid: str | None = None


class _Object(msgspec.Struct, gc=False):
    """Any JSON object; nothing of it is read."""


class Head(msgspec.Struct, gc=False):
    """The keys that matter. ``parent`` is UNSET where the line has no such key, None where it is null."""

    type: str | None = None
    uuid: str | None = None
    parent: str | msgspec.UnsetType | None = msgspec.field(default=msgspec.UNSET, name="parentUuid")
    side: bool | None = msgspec.field(default=None, name="isSidechain")
    message: _Message | None = None
    session: str | None = msgspec.field(default=None, name="sessionId")
    subtype: str | None = None
    attachment: _Object | None = None
    logical: str | None = msgspec.field(default=None, name="logicalParentUuid")
    source: str | None = msgspec.field(default=None, name="sourceToolAssistantUUID")
    target: str | None = msgspec.field(default=None, name="targetUuid")


decode_head: Final = msgspec.json.Decoder(Head).decode
"""Reads a line's head. Raises msgspec.MsgspecError, UnicodeError or RecursionError where :func:`head_of` must help."""


def head_of(value: dict[str, Any]) -> Head:
    """The head of a record that was read in full; a key with a value of another kind counts as absent."""

    def text(key: str) -> str | None:
        item = value.get(key)
        return item if isinstance(item, str) else None

    message = value.get("message")
    head = Head(
        type=text("type"),
        uuid=text("uuid"),
        side=value.get("isSidechain") is True,
        session=text("sessionId"),
        subtype=text("subtype"),
        attachment=_Object() if isinstance(value.get("attachment"), dict) else None,
        logical=text("logicalParentUuid"),
        source=text("sourceToolAssistantUUID"),
        target=text("targetUuid"),
    )
    if isinstance(message, dict):
        ident, uuid = message.get("id"), message.get("uuid")
        head.message = _Message(
            ident if isinstance(ident, str) else None,
            uuid if isinstance(uuid, str) else None,
        )
    if "parentUuid" in value:
        head.parent = text("parentUuid")
    return head


class Member(msgspec.Struct, gc=False):
    """A conversational record in the index: where its line is, and its links. Its content isn't held.

    Attributes:
        index: its place in the order of the file, from 0.
        line: its line's number, from 1.
        offset: of its first byte.
        size: bytes without the line end.
        kind: ``user``, ``assistant``, ``system`` or ``attachment``.
        uuid: empty where it has none.
        parent: as the line says; UNSET where it says nothing.
        side: whether it belongs to a sidechain.
        answer: the API message's id of an assistant record.
        more: subtype, logical parent, source; for the few that have any.
        up: index of the member that it hangs on, -1 for a root, -2 as long as that isn't known.
        gone: whether a tombstone took it back, or it can't be read.
    """

    index: int
    line: int
    offset: int
    size: int
    kind: str
    uuid: str
    parent: str | msgspec.UnsetType | None
    side: bool
    answer: str | None
    more: tuple[str | None, str | None, str | None] | None
    up: int = -2
    gone: bool = False

    @property
    def subtype(self) -> str | None:
        """Of a system record."""
        return self.more[0] if self.more is not None else None

    @property
    def logical(self) -> str | None:
        """What a boundary follows in time (``logicalParentUuid``)."""
        return self.more[1] if self.more is not None else None

    @property
    def source(self) -> str | None:
        """The assistant record whose call a result answers (``sourceToolAssistantUUID``)."""
        return self.more[2] if self.more is not None else None

    @property
    def is_boundary(self) -> bool:
        """Whether it is a ``compact_boundary``."""
        return self.more is not None and self.kind == SYSTEM and self.more[0] == BOUNDARY
