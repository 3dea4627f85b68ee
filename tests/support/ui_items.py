"""What flows into the display, made by hand as WIRE.md §1 says: events, each after what it caused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import frames

from turnstream.messages import (
    AssistantMessage,
    MessageFactory,
    Tombstone,
    event_from_wire,
    seeded_clock,
    seeded_ids,
)


def factory(seed: int = 1) -> MessageFactory:
    return MessageFactory(seeded_ids(seed), seeded_clock())


def events(*parts: Any) -> list[Any]:
    """Events of payloads (lists are flattened)."""
    return [event_from_wire(payload) for payload in frames.flat(parts)]


class Maker:
    """Makes the messages of answers, with ids of its own."""

    def __init__(self, seed: int = 1) -> None:
        self.make = factory(seed)

    def finished(
        self, block: dict[str, Any] | None, index: int | None = 0, ident: str = "msg_a", **fields: Any
    ) -> AssistantMessage:
        """The message of one finished block; None: of an answer without blocks."""
        message = self.make.assistant([block or {}], index=index, is_api_error_message=None, **fields)
        content = [] if block is None else [block]
        message.message |= {"id": ident, "model": "claude-test-1", "content": content, "stop_reason": None}
        return message

    def aborted(self, blocks: Sequence[dict[str, Any]], ident: str = "msg_a", **fields: Any) -> AssistantMessage:
        """What was kept of an answer that broke off."""
        message = self.finished(None, None, ident, is_aborted_mid_stream=True, **fields)
        message.message["content"] = list(blocks)
        return message

    def text(self, *deltas: str, index: int = 0, ident: str = "msg_a") -> list[Any]:
        """A whole text block: start, deltas, message, stop."""
        return [
            *events(frames.opens_text(index), [frames.text(index, delta) for delta in deltas]),
            self.finished(frames.text_block("".join(deltas)), index, ident),
            *events(frames.closes(index)),
        ]

    def thinking(self, *deltas: str, index: int = 0, ident: str = "msg_a") -> list[Any]:
        return [
            *events(frames.opens_thinking(index), [frames.thinks(index, delta) for delta in deltas]),
            *events(frames.signs(index, "sig")),
            self.finished(frames.thinking_block("".join(deltas), "sig"), index, ident),
            *events(frames.closes(index)),
        ]

    def tool(self, value: Any, *fragments: str, index: int = 0, ident: str = "msg_a", name: str = "look") -> list[Any]:
        return [
            *events(frames.opens_tool(index, name=name), [frames.args(index, fragment) for fragment in fragments]),
            self.finished(frames.tool_block(value, name=name), index, ident),
            *events(frames.closes(index)),
        ]

    def answer(self, *blocks: list[Any], ident: str = "msg_a", stop_reason: str = "end_turn") -> list[Any]:
        """A whole answer around items of :meth:`text`, :meth:`thinking`, :meth:`tool`."""
        body = [item for block in blocks for item in block]
        return [*events(frames.start(ident)), *body, *events(frames.turn(stop_reason), frames.STOP)]


def tombstones(items: Iterable[Any]) -> list[Tombstone]:
    return [Tombstone(message=item) for item in items if isinstance(item, AssistantMessage)]


def messages_of(snapshot_or_items: Any) -> list[Any]:
    """The displayed messages of a snapshot, or of taken items."""
    items = getattr(snapshot_or_items, "items", snapshot_or_items)
    return [item.message for item in items]


def texts_of(snapshot: Any) -> list[str]:
    """All text that a snapshot shows, in order: finished blocks, then open ones."""
    out: list[str] = []
    for message in messages_of(snapshot):
        if isinstance(message, AssistantMessage):
            out += [block.get("text") or block.get("thinking") or "" for block in message.message["content"]]
    return out + [block.text for block in snapshot.blocks]
