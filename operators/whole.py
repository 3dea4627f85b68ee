"""An answer that came whole in one batch, as every short one does in a replay or behind a fast network.

:func:`read_whole` walks it once, in local variables, and only as long as everything is as a well-formed
stream has it. At the first surprise it gives up without a trace, and the exact path of
:mod:`turnstream.operators.accumulate` takes the answer from its start. Both must come to the same: that
no result depends on chunking is what tests hold them to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from turnstream.messages.events import (
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    InputJsonDelta,
    MessageDelta,
    MessageStop,
    Ping,
    SignatureDelta,
    TextDelta,
    ThinkingDelta,
)
from turnstream.messages.jsonvalue import JSONValueError, depth_exceeds, loads
from turnstream.messages.types import AssistantMessage
from turnstream.operators.answer import ANSWERS_OWN
from turnstream.operators.blocks import KINDS

__all__ = ["AnswerItems", "WholeAnswer", "read_whole"]


class WholeAnswer(msgspec.Struct, eq=False, gc=False):
    """What it comes to.

    Attributes:
        template: the envelope with its final values and no content; its ``id`` is a text that isn't empty.
        blocks: the finished blocks, in order; their indexes are 0, 1, 2 …, their types those of :data:`KINDS`.
        stops: for each the position of its ``content_block_stop`` in the batch.
        sizes: for each about how many bytes what was streamed of it has in memory.
        end: the position of its ``message_stop``.
        streamed: how many characters its deltas brought, signatures excepted.
        pings: how many pings came in between.
        output_is_final: whether a ``message_delta`` said how many output tokens there are.
        messages: what was emitted for the blocks.
    """

    template: dict[str, Any]
    blocks: list[dict[str, Any]]
    stops: list[int]
    sizes: list[int]
    end: int
    streamed: int
    pings: int
    output_is_final: bool
    messages: Sequence[AssistantMessage] = ()


class AnswerItems(list[Any]):
    """The items of a batch that is one answer from its start to its end, nothing of it out of the ordinary.

    A list like any other; a sink may take its sum instead of its items. What another operator makes of it
    is a plain list again.

    Attributes:
        whole: the answer.
    """

    __slots__ = ("whole",)

    whole: WholeAnswer


def read_whole(items: Sequence[Any], start: int) -> WholeAnswer | None:
    """The answer whose ``message_start`` is at ``start``; None if anything about it needs the exact path."""
    first = items[start].message
    if first.__class__ is not dict or first.get("content"):
        return None
    template: dict[str, Any] = first.copy()
    usage: Any = template.get("usage")
    wire_id = template.get("id")
    if usage.__class__ is not dict or wire_id.__class__ is not str or not wire_id:
        return None
    usage = usage.copy()
    blocks: list[dict[str, Any]] = []
    stops: list[int] = []
    sizes: list[int] = []
    streamed = pings = 0
    output_is_final = False
    index = -1  # of the open block, else -1
    takes: Any = None
    field = ""
    block: dict[str, Any] = {}
    parts: list[str] = []
    news: dict[str, Any] | None = None
    tool = False
    event: Any
    at = start
    for event in items[start + 1 :]:
        at += 1
        cls = event.__class__
        if cls is ContentBlockDelta:
            if event.index != index:
                return None
            delta = event.delta
            cls = delta.__class__
            if cls is takes:
                if cls is TextDelta:
                    parts.append(delta.text)
                elif cls is InputJsonDelta:
                    parts.append(delta.partial_json)
                else:
                    parts.append(delta.thinking)
            elif cls is SignatureDelta and takes is ThinkingDelta:
                block["signature"] = delta.signature
            else:
                return None
        elif cls is ContentBlockStart:
            if index >= 0 or event.index != len(blocks) or news is not None:
                return None
            block = event.content_block.copy()
            kind: Any = block.get("type")
            known = KINDS.get(kind) if kind.__class__ is str else None
            if known is None:
                return None
            for value in block.values():
                if value and (value.__class__ is dict or value.__class__ is list) and depth_exceeds(value):
                    return None
            _, takes, field = known
            index = len(blocks)
            parts = []
        elif cls is ContentBlockStop:
            if index < 0 or event.index != index:
                return None
            text = "".join(parts)
            streamed += len(text)
            sizes.append(text.__sizeof__())
            if takes is InputJsonDelta:
                tool = True
                if text.strip(" \t\r\n"):
                    try:
                        block["input"] = loads(text)
                    except JSONValueError:
                        return None
                elif block.get("input", "") == "":
                    block["input"] = {}
            elif parts:
                seed: Any = block.get(field)
                block[field] = seed + text if seed.__class__ is str else text
            blocks.append(block)
            stops.append(at)
            index = -1
            takes = None
        elif cls is MessageDelta:
            if index >= 0:
                return None
            late = event.usage
            if late.__class__ is dict:
                for key, value in late.items():
                    if value is not None:
                        usage[key] = value
                        if key == "output_tokens":
                            output_is_final = True
                    else:
                        usage.setdefault(key, None)
            if news is None:
                news = {}
            delta = event.delta
            if delta.__class__ is dict:
                for key, value in delta.items():
                    if value is not None and key not in ANSWERS_OWN:
                        news[key] = value
            if event.context_management.__class__ is dict:
                news["context_management"] = event.context_management
        elif cls is MessageStop:
            break
        elif cls is Ping:
            pings += 1
        else:
            return None
    else:
        return None
    if index >= 0 or not blocks:
        return None
    template.setdefault("type", "message")
    template.setdefault("role", "assistant")
    template["content"] = []
    template.setdefault("stop_reason", None)
    template.setdefault("stop_sequence", None)
    template["usage"] = usage
    if news:
        template.update(news)
    if not tool and template["stop_reason"] == "tool_use":
        return None
    return WholeAnswer(template, blocks, stops, sizes, at, streamed, pings, output_is_final)
