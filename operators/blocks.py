"""One content block while it streams: what it takes, how it ends (WIRE.md §1, deltas and tool input)."""

from __future__ import annotations

from typing import Any, Final

from turnstream.messages.events import (
    CitationsDelta,
    CompactionDelta,
    Delta,
    InputJsonDelta,
    SignatureDelta,
    TextDelta,
    ThinkingDelta,
    UnknownDelta,
    delta_to_wire,
)
from turnstream.messages.jsonvalue import JSONValueError, depth_exceeds, dumps, loads
from turnstream.messages.types import AssistantMessage

__all__ = ["KINDS", "OpenBlock"]

# By type: the type, the delta class that a block of it appends, and the key it is appended to.
KINDS: Final[dict[str, tuple[str, type, str]]] = {
    "text": ("text", TextDelta, "text"),
    "thinking": ("thinking", ThinkingDelta, "thinking"),
    "tool_use": ("tool_use", InputJsonDelta, "input"),
    "server_tool_use": ("server_tool_use", InputJsonDelta, "input"),
}
_TAKES: Final[dict[type, str]] = {
    SignatureDelta: "thinking",
    CitationsDelta: "text",
    CompactionDelta: "compaction",
}


class OpenBlock:
    """A content block between its start and its stop.

    Attributes:
        index: its index in the answer, as resolved (missing and reused indexes get a free one).
        block: the content block, seeded from the start event; a copy, the raw event isn't changed.
        takes: the delta class whose text is appended to ``parts``, None if there is none.
        parts: the appended strings, joined once at stop.
        unapplied: the deltas that the block couldn't take, in wire form.
        synthesized: whether no start event opened it.
        message: the message it was emitted as, once it is finished.
    """

    __slots__ = (
        "_citations",
        "block",
        "field",
        "index",
        "invalid",
        "message",
        "open",
        "parts",
        "synthesized",
        "takes",
        "type",
        "unapplied",
        "wire_index",
    )

    def __init__(
        self, index: int, content_block: dict[str, Any], *, synthesized: bool = False, wire_index: int | None = None
    ) -> None:
        self.index = index
        self.wire_index = wire_index
        self.block = block = content_block.copy()
        kind = block.get("type")
        known = KINDS.get(kind) if isinstance(kind, str) else None
        self.type: str | None
        self.takes: type | None
        if known is not None:
            self.type, self.takes, self.field = known
        else:
            self.type = kind if isinstance(kind, str) else None
            takes_input = "input" in block or (self.type or "").endswith("tool_use")
            self.takes, self.field = (InputJsonDelta, "input") if takes_input else (None, "")
        self.parts: list[str] = []
        self._citations: list[Any] | None = None
        self.unapplied: list[Any] = []
        self.invalid = False
        self.open = True
        self.synthesized = synthesized
        self.message: AssistantMessage | None = None
        # What nests too deep for some encoder is kept as its text (WIRE.md §1); flat blocks cost one pass.
        for key, value in block.items():
            if value and (value.__class__ is dict or value.__class__ is list) and depth_exceeds(value):
                block[key] = dumps(value).decode()
                self.invalid = True

    @property
    def is_tool(self) -> bool:
        """Whether it has an input that deltas fill (tool_use, server_tool_use, mcp_tool_use …)."""
        return self.takes is InputJsonDelta

    def can_take(self, delta: Delta) -> bool:
        """Whether a delta of this class belongs to a block of this type."""
        cls = delta.__class__
        return cls is self.takes or (self.type is not None and _TAKES.get(cls) == self.type)

    def apply(self, delta: Delta) -> None:
        """Apply a delta that :meth:`can_take`."""
        match delta:
            case TextDelta():
                self.parts.append(delta.text)
            case ThinkingDelta():
                self.parts.append(delta.thinking)
            case InputJsonDelta():
                self.parts.append(delta.partial_json)
            case SignatureDelta():
                self.block["signature"] = delta.signature
            case CitationsDelta():
                if self._citations is None:
                    # A list of our own, made once: the raw event shares what the start held.
                    held = self.block.get("citations")
                    self._citations = list(held) if isinstance(held, list) else []
                    self.block["citations"] = self._citations
                self._citations.append(delta.citation)
            case CompactionDelta():
                for key, value in delta_to_wire(delta).items():
                    if key != "type" and value is not None:
                        self.block[key] = value
            case UnknownDelta():
                self.refuse(delta)

    def refuse(self, delta: Delta) -> None:
        """Keep a delta that can't be applied; a message that was emitted already gets it too."""
        self.unapplied.append(delta_to_wire(delta))
        if self.message is not None:
            # In place: the answer is still open and the message is ours until its end (WIRE.md §1).
            self.message.unapplied_deltas = self.unapplied

    def is_empty(self) -> bool:
        """Whether neither the start nor a delta brought content (text and thinking blocks).

        A signature is content (thinking whose text isn't shown, FAULTS.md 24), as is a citation.
        """
        block = self.block
        return not (any(self.parts) or block.get(self.field) or block.get("signature") or block.get("citations"))

    def raw_input(self) -> str:
        """The joined fragments of a tool input, else the text of what its start held."""
        raw = "".join(self.parts)
        if not raw and (whole := self.block.get("input")):
            return whole if isinstance(whole, str) else dumps(whole).decode()
        return raw

    def close(self) -> None:
        """Join what was appended; parse a tool input, once."""
        self.open = False
        if self.takes is InputJsonDelta:
            self._close_input()
        elif self.parts:
            seed = self.block.get(self.field)
            self.block[self.field] = (seed if isinstance(seed, str) else "") + "".join(self.parts)
            self.parts = []

    def _close_input(self) -> None:
        raw = "".join(self.parts)
        self.parts = []
        if not raw.strip(" \t\r\n"):
            self.block.setdefault("input", {})
            if self.block["input"] == "":
                self.block["input"] = {}
            return
        try:
            self.block["input"] = loads(raw)
        except JSONValueError:
            # Never repaired, never executed: the text stays as it came (WIRE.md §1, tool input).
            self.block["input"] = raw
            self.invalid = True
