"""Conflation: fewer items that come to the same display (DESIGN.md §4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnstream.messages.events import ContentBlockDelta, ContentBlockStart, MessageStart
from turnstream.messages.types import AssistantMessage
from turnstream.operators.bridge import merge_deltas

__all__ = ["conflate"]


def conflate(items: Sequence[Any]) -> Sequence[Any]:
    """Drop the deltas that a finished message replaces, and merge adjacent ones of one block.

    Args:
        items: of one stream, in order.

    Returns:
        ``items`` itself if nothing could be done.
    """
    return merge_deltas(_without_replaced(items))


def _without_replaced(items: Sequence[Any]) -> Sequence[Any]:
    """Leave out the deltas whose block's message comes later: it holds the whole block."""
    finished: set[int] = set()
    kept: list[Any] = []
    for item in reversed(items):
        cls = item.__class__
        if cls is ContentBlockDelta:
            if item.index in finished:
                continue
        elif cls is AssistantMessage:
            # What was kept of an answer that broke off has no index: it may be less than its deltas.
            if item.index is not None and item.is_aborted_mid_stream is not True:
                finished.add(item.index)
        elif cls is ContentBlockStart:
            finished.discard(item.index)
        elif cls is MessageStart:
            finished.clear()
        kept.append(item)
    if len(kept) == len(items):
        return items
    kept.reverse()
    return kept
