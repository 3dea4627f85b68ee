"""``split_blocks``: one block per message, with ids that are the same every time (WIRE.md §5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, overload

from msgspec import UNSET, structs

from turnstream.messages.codec import replace
from turnstream.messages.identity import uuid_of
from turnstream.messages.types import AssistantMessage, Tombstone, UserMessage
from turnstream.operators.display.part_ids import PartIds
from turnstream.operators.display.parts import Item
from turnstream.operators.stage import Fault, Operator, lift, run_stages

__all__ = ["NormalizedMessage", "SplitBlocks", "split_blocks"]

NormalizedMessage = UserMessage | AssistantMessage
"""A user or assistant message whose content is a list of one block (of none where it had none)."""


class SplitBlocks:
    """The stage: every message with several blocks becomes as many messages, at once.

    Ids stay until the first message with several blocks; from then on those of user and assistant messages
    are derived (:class:`PartIds` says how). A string becomes a text block. Everything else passes with its
    own uuid; only where a derived id is that very uuid (made-up ids can do that) it gets one of its own.
    A tombstone becomes one for each part of its message.

    A message that has one block already passes as the same object. Parts are new messages that share the
    envelope; what says something about one block goes to that block's part: a tool's own output to the
    results, a pasted image's id to its image, what was left over of an answer to its last part.

    Memory: the ids of the messages that came, about 150 bytes each; no message is held.
    """

    def __init__(self) -> None:
        self._ids = PartIds()
        self._deriving = False
        # Messages whose ids changed → the ids of their parts.
        self._renamed: dict[str, str | list[str]] = {}

    def feed(self, batch: Sequence[Item], /) -> Sequence[Item | Fault]:
        """Take one batch."""
        out: list[Any] = []
        changed = False
        for item in batch:
            if isinstance(item, (UserMessage, AssistantMessage)):
                parts = self._split(item)
                if parts is None:
                    out.append(item)
                else:
                    out.extend(parts)
                    changed = True
            elif isinstance(item, Tombstone) and self._renamed:
                out.extend(self._tombstones(item))
                changed = True
            else:
                uuid = getattr(item, "uuid", None)
                if isinstance(uuid, str) and not self._ids.stays(uuid):
                    out.append(replace(item, uuid=self._ids.other(uuid, 0)))
                    changed = True
                else:
                    out.append(item)
        return out if changed else batch

    def flush(self) -> Sequence[Item | Fault]:
        """Nothing is held."""
        return ()

    def fail(self, error: Exception, /) -> Sequence[Item | Fault]:
        """Nothing is held."""
        return ()

    def _split(self, message: NormalizedMessage) -> list[NormalizedMessage] | None:
        """The message's parts; None if it stays as it is."""
        content: Any = message.message.get("content")
        text = content.__class__ is str
        if text:
            content = [{"type": "text", "text": content}]
        elif content.__class__ is not list:
            content = ()
        count = len(content)
        own = message.uuid
        family = (message.__class__, message.message.get("id") or message.timestamp)
        if count > 1:
            self._deriving = True
        if not self._deriving:
            self._ids.note(own, family)
            return [_changed(message, message={**message.message, "content": content})] if text else None
        ids = self._ids.parts(own, max(count, 1), family)
        if own and ids != [own]:
            self._renamed[own] = ids if count > 1 else ids[0]
        if count > 1:
            return _parts(message, content, ids)
        if text:
            return [_changed(message, uuid=ids[0], message={**message.message, "content": content})]
        return None if ids[0] == own else [_changed(message, uuid=ids[0])]

    def _tombstones(self, tombstone: Tombstone) -> list[Tombstone]:
        ids = self._renamed.get(uuid_of(tombstone.message))
        if ids is None:
            return [tombstone]
        if isinstance(ids, str):
            ids = [ids]
        return [Tombstone(message=_with_uuid(tombstone.message, uuid), extra=tombstone.extra) for uuid in ids]


def _parts(message: NormalizedMessage, content: Sequence[Any], ids: Sequence[str]) -> list[NormalizedMessage]:
    last = len(content) - 1
    types = [block.get("type") if isinstance(block, dict) else None for block in content]
    out: list[NormalizedMessage] = []
    images = iter(message.image_paste_ids or ()) if isinstance(message, UserMessage) else iter(())
    for at, block in enumerate(content):
        changes: dict[str, Any] = {"uuid": ids[at], "message": {**message.message, "content": [block]}}
        if isinstance(message, UserMessage):
            if message.tool_use_result is not UNSET and types[at] != "tool_result" and (at or "tool_result" in types):
                changes["tool_use_result"] = UNSET
            if message.image_paste_ids is not None:
                pasted = next(images, None) if types[at] == "image" else None
                changes["image_paste_ids"] = None if pasted is None else [pasted]
        elif at != last:
            # What the answer couldn't use comes behind its blocks.
            changes["unapplied_deltas"] = changes["unfinished_tool_inputs"] = None
        out.append(_changed(message, **changes))
    return out


def _changed(message: NormalizedMessage, /, **changes: Any) -> NormalizedMessage:
    """A changed copy. One of a message that was never read needs no ``__dict__``, which ``replace`` gives to both."""
    if getattr(message, "raw", None) is None and getattr(message, "template", None) is None:
        return structs.replace(message, **changes)
    return replace(message, **changes)


def _with_uuid(message: Any, uuid: str) -> Any:
    """The tombstone's message under another uuid; an opaque record's object is taken out of it."""
    if isinstance(message, (UserMessage, AssistantMessage)):
        return replace(message, uuid=uuid)
    return {"uuid": uuid}


@overload
def split_blocks() -> Operator[Item, Item]: ...
@overload
def split_blocks(messages: Iterable[Item], /) -> list[Item]: ...
def split_blocks(messages: Iterable[Item] | None = None, /) -> Operator[Item, Item] | list[Item]:
    """One block per message, with deterministic ids (WIRE.md §5).

    Args:
        messages: a conversation, oldest first; without it the operator is returned.

    Returns:
        The split list, or the operator, which says the same however its input is cut into batches and holds
        no message. Splitting a split list changes nothing.
    """
    operator: Operator[Item, Item] = lift(SplitBlocks, "split_blocks")
    return operator if messages is None else run_stages(messages, operator)
