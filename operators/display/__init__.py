"""Normalization for the display (WIRE.md §5): pure, deterministic, linear; each a list function and an operator."""

from turnstream.operators.display.chain import for_display
from turnstream.operators.display.collapse import classify_tool, collapse_reads, uncollapse
from turnstream.operators.display.group import group_tool_uses, ungroup
from turnstream.operators.display.listed import DisplayList, display_list, tick_of
from turnstream.operators.display.reorder import reorder_tool_groups
from turnstream.operators.display.split import NormalizedMessage, split_blocks

__all__ = [
    "DisplayList",
    "NormalizedMessage",
    "classify_tool",
    "collapse_reads",
    "display_list",
    "for_display",
    "group_tool_uses",
    "reorder_tool_groups",
    "split_blocks",
    "tick_of",
    "uncollapse",
    "ungroup",
]
