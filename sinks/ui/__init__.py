"""The display: one reducer for the state, thin renderers for the looks (WIRE.md §5, DESIGN.md §5)."""

from turnstream.sinks.ui.displayed import HANDED_OUT_LIMIT
from turnstream.sinks.ui.plain import PlainRenderer
from turnstream.sinks.ui.sink import RENDER_INTERVAL, Renderer, Timers, UISink
from turnstream.sinks.ui.state import UIState
from turnstream.sinks.ui.terminal import safe
from turnstream.sinks.ui.views import (
    BlockView,
    DisplayItem,
    ItemKind,
    Mode,
    OpenBlock,
    Snapshot,
    ThinkingView,
    ToolEntry,
)

__all__ = [
    "HANDED_OUT_LIMIT",
    "RENDER_INTERVAL",
    "BlockView",
    "DisplayItem",
    "ItemKind",
    "Mode",
    "OpenBlock",
    "PlainRenderer",
    "Renderer",
    "Snapshot",
    "ThinkingView",
    "Timers",
    "ToolEntry",
    "UISink",
    "UIState",
    "safe",
]
