"""Tool results that make a file hard to open: they go to side files (FAULTS.md 48)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from turnstream.messages.codec import decode_line, encode
from turnstream.messages.jsonvalue import dumps
from turnstream.messages.types import UserMessage
from turnstream.sinks.transcript.guards import Limits
from turnstream.sinks.transcript.sidefiles import SideFile, Spiller

__all__ = ["Oversized"]

_LIMIT: Final = Limits().tool_result or 0


class Oversized:
    """Finds large results, by the writer's own limit, and takes them out of their lines.

    Args:
        transcript: whose side files they become.
    """

    def __init__(self, transcript: Path) -> None:
        self._spiller = Spiller(transcript, _LIMIT, dumps)

    def concerns(self, raw: bytes, kind: Any) -> bool:
        """Whether a line holds a result that is too large."""
        return kind == "user" and len(raw) > _LIMIT and bool(self.spilled(raw)[1])

    def spilled(self, raw: bytes) -> tuple[bytes, list[SideFile]]:
        """The line without its large results, and the files for them; the line itself and none if it has none."""
        message = decode_line(raw)
        if not isinstance(message, UserMessage):
            return raw, []
        smaller, files = self._spiller.spill(message)
        return (encode(smaller), files) if files else (raw, [])
