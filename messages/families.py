"""The families of items: what is kept, what only drives a display, what is made for it (WIRE.md §2, DESIGN.md §2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from turnstream.messages import events as e
from turnstream.messages import types as t

if TYPE_CHECKING:
    from typing import assert_never

__all__ = ["Family", "family_of"]

Family = Literal["result", "process", "display", "unknown"]
"""``result``: kept, sent and shown · ``process``: drives a display and is gone · ``display``: made for it only ·
``unknown``: passed through."""


def family_of(item: t.Message | e.StreamEvent) -> Family:
    """The family an item belongs to. What we don't know is ``unknown``, never an error.

    The ``match`` is exhaustive for a type checker, so it is also the pattern for consumers of a ``QueryItem``.
    """
    match item:
        case t.UserMessage() | t.AssistantMessage() | t.SystemMessage() | t.AttachmentMessage():
            return "result"
        case t.ProgressMessage() | t.StreamEventMessage() | t.RequestStart() | t.Tombstone() | t.ToolUseSummary():
            return "process"
        case t.ResponseFailed() | t.StreamNote() | t.Resync():
            return "process"
        case e.MessageStart() | e.ContentBlockStart() | e.ContentBlockDelta() | e.ContentBlockStop():
            return "process"
        case e.MessageDelta() | e.MessageStop() | e.Ping() | e.ErrorEvent() | e.UnknownEvent():
            return "process"
        case t.GroupedToolUse() | t.CollapsedReadSearch():
            return "display"
        case t.OpaqueRecord():
            return "unknown"
        case _:
            if TYPE_CHECKING:
                assert_never(item)
            return "unknown"
