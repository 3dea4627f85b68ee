"""The list that stages 5 and 6 work on: one :class:`Turn` a message, written back only where it changed."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from turnstream.messages import AssistantMessage, UserMessage
from turnstream.messages.ids import derive_uuid

__all__ = ["ASSISTANT", "SYSTEM", "USER", "Block", "Turn", "made_user", "to_messages", "to_turn"]

Block = dict[str, Any]

USER: Final = "user"
ASSISTANT: Final = "assistant"
SYSTEM: Final = "system"


class Turn(msgspec.Struct, gc=False, eq=False):
    """One message of the request while it is being repaired.

    There are many, they live for one call and never form cycles: the collector needn't know them.

    Attributes:
        message: what it was made from.
        role: ``user``, ``assistant`` or ``system``.
        blocks: its content; replaced, never changed in place, for it may be the message's own list.
        changed: whether blocks or role differ from the message's.
    """

    message: UserMessage | AssistantMessage
    role: str
    blocks: list[Block]
    changed: bool = False

    def put(self, blocks: list[Block]) -> None:
        """Give it other blocks."""
        self.blocks = blocks
        self.changed = True


def to_turn(message: UserMessage | AssistantMessage) -> Turn:
    """A turn for a message that went through stage 4, or whose content is a list anyway."""
    inner = message.message
    if message.__class__ is AssistantMessage:
        return Turn(message, ASSISTANT, inner["content"])
    return Turn(message, SYSTEM if inner.get("role") == SYSTEM else USER, inner["content"])


def to_messages(turns: list[Turn]) -> list[UserMessage | AssistantMessage]:
    """The messages again: the same objects where nothing changed, else copies without the line they were read from."""
    out: list[UserMessage | AssistantMessage] = []
    for turn in turns:
        message = turn.message
        if turn.changed:
            inner = {**message.message, "role": turn.role, "content": turn.blocks}
            message = msgspec.structs.replace(message, message=inner)
        out.append(message)
    return out


def made_user(beside: UserMessage | AssistantMessage, part: str, blocks: list[Block]) -> Turn:
    """A user turn that wasn't in the history, with the time of a message beside it and an id derived from it.

    Args:
        beside: the message it stands next to.
        part: says which of the turns made beside it this is; the same one always gets the same id.
        blocks: its content.
    """
    message = UserMessage(
        message={"role": USER, "content": blocks},
        uuid=derive_uuid(f"{beside.uuid}/{part}", 0),
        timestamp=beside.timestamp,
        is_meta=True,
    )
    return Turn(message, USER, blocks)
