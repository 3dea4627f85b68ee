"""``for_display``: a conversation as a display shows it (WIRE.md §5)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import overload

from turnstream.operators.display.collapse import collapse_reads
from turnstream.operators.display.group import group_tool_uses
from turnstream.operators.display.parts import Item
from turnstream.operators.display.reorder import reorder_tool_groups
from turnstream.operators.display.split import split_blocks
from turnstream.operators.stage import Operator, run_stages

__all__ = ["for_display"]


@overload
def for_display() -> Operator[Item, Item]: ...
@overload
def for_display(messages: Iterable[Item], /) -> list[Item]: ...
def for_display(messages: Iterable[Item] | None = None, /) -> Operator[Item, Item] | list[Item]:
    """Split, reorder, group, collapse: ``turnstream normalize --for display``.

    Nothing is dropped; ``for_display(display_list(messages))`` leaves out what no longer stands in the list.

    Args:
        messages: a conversation, oldest first; without it the operator is returned, which holds what
            ``reorder_tool_groups`` does.
    """
    operator = split_blocks() | reorder_tool_groups() | group_tool_uses() | collapse_reads()
    return operator if messages is None else run_stages(messages, operator)
