"""The fixed texts that stand in for speech, and how to tell them from it (WIRE.md §2)."""

from __future__ import annotations

from typing import Final

from turnstream.messages.types import AssistantMessage, UserMessage

__all__ = [
    "CANCELLED",
    "COMPACT_BOUNDARY",
    "FOREIGN_MISSING_RESULT",
    "INTERRUPTED",
    "INTERRUPTED_FOR_TOOL_USE",
    "MICROCOMPACT_BOUNDARY",
    "MISSING_RESULT",
    "NO_CONTENT",
    "NO_RESPONSE_REQUESTED",
    "REJECTED",
    "SYNTHETIC_MODEL",
    "SYNTHETIC_TEXTS",
    "is_synthetic",
]

SYNTHETIC_MODEL: Final = "<synthetic>"
NO_CONTENT: Final = "(no content)"
INTERRUPTED: Final = "[Request interrupted by user]"
INTERRUPTED_FOR_TOOL_USE: Final = "[Request interrupted by user for tool use]"
CANCELLED: Final = "The user does not want to take this action now. Stop here and wait for what the user says next."
REJECTED: Final = "The user declined this tool call, so it did not run. Stop here and wait for what the user says next."
NO_RESPONSE_REQUESTED: Final = "No response requested."
MISSING_RESULT: Final = "No result: the tool call was cut off before it finished."
FOREIGN_MISSING_RESULT: Final = "[Tool result missing due to internal error]"
"""How other writers of the format say that a result is missing: read, never written."""
COMPACT_BOUNDARY: Final = "Conversation compacted"
MICROCOMPACT_BOUNDARY: Final = "Context microcompacted"

# How other writers of the same format say it: read, never written.
_FOREIGN: Final = (
    (
        "The user doesn't want to take this action right now. STOP what you are doing and wait for the user to tell "
        "you how to proceed."
    ),
    (
        "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, "
        "the new_string was NOT written to the file). STOP what you are doing and wait for the user to tell you how "
        "to proceed."
    ),
)

SYNTHETIC_TEXTS: Final[frozenset[str]] = frozenset(
    {INTERRUPTED, INTERRUPTED_FOR_TOOL_USE, CANCELLED, REJECTED, NO_RESPONSE_REQUESTED, *_FOREIGN}
)
"""The texts that stand in for speech, ours and the foreign spellings."""


def is_synthetic(message: UserMessage | AssistantMessage) -> bool:
    """True of a message whose only block is a text of :data:`SYNTHETIC_TEXTS`."""
    text = message.message.get("content")
    if isinstance(text, list) and len(text) == 1 and isinstance(text[0], dict) and text[0].get("type") == "text":
        text = text[0].get("text")
    return isinstance(text, str) and text in SYNTHETIC_TEXTS
