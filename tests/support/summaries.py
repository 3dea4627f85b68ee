"""What a run's items say, as rows that can be held against EXPECTED.tsv and the corpus.

Everything is derived from emitted items alone; nothing is read from the bytes or from our operators' state.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from quirks import words

from turnstream.messages import (
    AssistantMessage,
    ContentBlockDelta,
    ContentBlockStart,
    ErrorEvent,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    ResponseFailed,
    StreamNote,
    Tombstone,
    UnknownDelta,
    UnknownEvent,
)
from turnstream.messages.events import EVENT_CLASSES

# Block types that the API documents; another one is opaque (EXPECTED.tsv, opaque_blocks).
KNOWN_BLOCKS = words(
    "text thinking redacted_thinking tool_use server_tool_use mcp_tool_use mcp_tool_result compaction fallback "
    "container_upload tool_result image document search_result"
)
TOOLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
# Notes that say: one payload was no event.
BAD_EVENT = frozenset({"event_error", "unterminated_event"})
# Notes that say: a delta wasn't applied; their message begins with its type.
UNAPPLIED = frozenset({"delta_after_stop", "delta_mismatch", "delta_unapplied"})

TOKENS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


@dataclass
class Row:
    """One answer, or one superseded attempt."""

    outcome: str | None = None
    superseded: bool = False
    blocks: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    partial: list[dict[str, Any]] = field(default_factory=list)
    unfinished: list[dict[str, Any]] = field(default_factory=list)
    unapplied: Counter[str | None] = field(default_factory=Counter)
    noted_unapplied: Counter[str | None] = field(default_factory=Counter)
    invalid: int = 0
    marks: set[str] = field(default_factory=set)
    messages: list[AssistantMessage] = field(default_factory=list)
    tombstoned: list[AssistantMessage] = field(default_factory=list)
    events: int = 0
    pings: int = 0
    opaque_events: Counter[str | None] = field(default_factory=Counter)
    opaque_deltas: Counter[str | None] = field(default_factory=Counter)
    opaque_blocks: Counter[str | None] = field(default_factory=Counter)
    error_type: str | None = None
    notes: Counter[str] = field(default_factory=Counter)
    failed: ResponseFailed | None = None
    start: dict[str, Any] | None = None
    wire_usage: dict[str, Any] = field(default_factory=dict)
    wire_stop_reason: Any = None
    blocks_opened: int = 0
    ended: bool = False

    @property
    def content(self) -> list[dict[str, Any]]:
        return [block for _, block in self.blocks]

    @property
    def indexes(self) -> tuple[int, ...]:
        return tuple(index for index, _ in self.blocks)

    @property
    def whole(self) -> list[AssistantMessage]:
        """The messages that hold finished content (or none at all)."""
        return [m for m in self.messages if not m.is_aborted_mid_stream]

    @property
    def usage(self) -> dict[str, Any]:
        """What the messages say; what the passed events say where no message came."""
        return self.messages[-1].message["usage"] if self.messages else self.wire_usage

    @property
    def stop_reason(self) -> Any:
        return self.whole[-1].message["stop_reason"] if self.whole else self.wire_stop_reason


def summarize(items: Iterable[Any]) -> list[Row]:
    """The rows of a run: superseded attempts stand before the answer that replaced them."""
    walk = _Walk()
    for item in items:
        walk.take(item)
    return walk.finish()


class _Walk:
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.row = Row()
        self.tombstoned = False

    def take(self, item: Any) -> None:
        row = self.row
        if item.__class__ in EVENT_CLASSES:
            self._event(item)
        elif isinstance(item, AssistantMessage):
            self._message(item)
        elif isinstance(item, Tombstone):
            row.tombstoned.append(item.message)
            self.tombstoned = True
        elif isinstance(item, ResponseFailed):
            row.failed = item
            row.outcome = item.outcome
            row.ended = True
        elif isinstance(item, StreamNote):
            row.notes[item.kind] += 1
            if item.kind in UNAPPLIED:
                row.noted_unapplied[item.message.split()[0]] += 1
            if item.kind == "no_message_stop":
                row.outcome = "complete"
                row.ended = True

    def _event(self, event: Any) -> None:
        if isinstance(event, MessageStart):
            self._start(event)
        row = self.row
        row.events += 1
        if isinstance(event, Ping):
            row.pings += 1
        elif isinstance(event, UnknownEvent):
            row.opaque_events[event.type] += 1
        elif isinstance(event, ContentBlockStart):
            row.blocks_opened += 1
            kind = event.content_block.get("type")
            if kind not in KNOWN_BLOCKS and not str(kind).endswith("_tool_result"):
                row.opaque_blocks[kind] += 1
        elif isinstance(event, ContentBlockDelta):
            if isinstance(event.delta, UnknownDelta):
                row.opaque_deltas[event.delta.type] += 1
        elif isinstance(event, MessageDelta):
            if not row.ended:
                self._news(event)
        elif isinstance(event, MessageStop):
            if not row.ended:
                row.outcome = "complete"
                row.ended = True
        elif isinstance(event, ErrorEvent):
            error = event.error
            kind = error.get("type") if isinstance(error, dict) else None
            row.error_type = row.error_type or kind or "unknown"

    def _start(self, event: MessageStart) -> None:
        message = event.message if isinstance(event.message, dict) else {}
        row = self.row
        if row.ended:
            self._next(Row())
        elif row.start is not None or row.events:  # else its whole content came just before it
            same = row.start is not None and row.start.get("id") == message.get("id")
            if self.tombstoned or row.blocks_opened or not same:
                self._supersede()
        row = self.row
        row.start = message
        self.tombstoned = False
        for key, value in (message.get("usage") or {}).items():
            if value is not None or key not in row.wire_usage:
                row.wire_usage[key] = value
        row.wire_stop_reason = message.get("stop_reason") or row.wire_stop_reason

    def _supersede(self) -> None:
        self.row.superseded = True
        self.row.outcome = f"superseded({len(self.row.tombstoned)})"
        self._next(Row())
        self.tombstoned = False

    def _next(self, row: Row) -> None:
        self.rows.append(self.row)
        self.row = row

    def _news(self, event: MessageDelta) -> None:
        row = self.row
        if isinstance(event.usage, dict):
            row.wire_usage.update({k: v for k, v in event.usage.items() if v is not None})
        if isinstance(event.delta, dict) and event.delta.get("stop_reason") is not None:
            row.wire_stop_reason = event.delta["stop_reason"]

    def _message(self, message: AssistantMessage) -> None:
        row = self.row
        # What a start holds already is emitted before it, so a message may belong to the next answer.
        if row.ended:
            self._next(Row())
        elif row.start is not None and row.start.get("id") not in (None, message.message["id"]):
            self._supersede()
        self.row.messages.append(message)

    def finish(self) -> list[Row]:
        if self.row.outcome or self.row.events or self.row.messages or self.row.notes:
            self._next(Row())
        for row in self.rows:
            _fill(row)
        return self.rows


def _fill(row: Row) -> None:
    """Read the messages only now: they are updated in place until their answer's end."""
    for message in row.messages:
        content = message.message["content"]
        if message.is_aborted_mid_stream:
            row.partial += content
        elif message.index is not None:
            assert len(content) == 1, "one AssistantMessage holds one block"
            row.blocks.append((message.index, content[0]))
        else:
            assert content == [], "a message without block index holds no finished block"
        row.unfinished += message.unfinished_tool_inputs or []
        row.unapplied.update(d.get("type") for d in message.unapplied_deltas or [] if isinstance(d, dict))
        row.invalid += bool(message.invalid_tool_input)
        row.marks |= {
            name
            for name in ("synthesized_envelope", "synthesized_block", "invalid_tool_input", "block_index")
            if getattr(message, name) is not None
        }
    row.blocks.sort(key=lambda pair: pair[0])
    # An opaque delta is counted as opaque, not as unapplied.
    row.unapplied -= row.opaque_deltas
    # A block that stays empty makes no message that could carry its deltas: the note alone tells.
    row.unapplied |= row.noted_unapplied


def sha(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def canonical(value: Any) -> str:
    """EXPECTED.md's canonical JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def counts(counter: Counter[str | None]) -> str:
    return ",".join(f"{kind}:{count}" for kind, count in sorted(counter.items(), key=str)) or "-"


def columns(row: Row) -> dict[str, str]:
    """The row in EXPECTED.tsv's columns and spelling, those that items can show."""
    content = row.content
    kinds = [block.get("type") for block in content]
    texts = [block["text"] for block in content if block.get("type") == "text"]
    thinking = [block["thinking"] for block in content if block.get("type") == "thinking"]
    tools = [block.get("input") for block in content if block.get("type") in TOOLS]
    open_texts = "".join(block["text"] for block in row.partial if block.get("type") == "text")
    open_thinking = "".join(block["thinking"] for block in row.partial if block.get("type") == "thinking")
    envelope = row.messages[0].message if row.messages and "synthesized_envelope" not in row.marks else row.start or {}
    out = {
        "outcome": row.outcome or "-",
        "message_id": envelope.get("id") or "-",
        "model": envelope.get("model") or "-",
        "blocks": str(len(content)),
        "block_types": ",".join(map(str, kinds)) or "-",
        "indexes": ",".join(map(str, row.indexes)) or "-",
        "text_sha256": sha("".join(texts)) if texts else "-",
        "thinking_sha256": sha("".join(thinking)) if thinking else "-",
        "tools": str(len(tools)),
        "tools_sha256": sha(canonical(tools)) if tools else "-",
        "content_sha256": sha(canonical(content)),
        "stop_reason": str(row.stop_reason) if row.stop_reason is not None else "-",
        "events": str(row.events),
        "pings": str(row.pings),
        "bad_events": str(sum(row.notes[kind] for kind in BAD_EVENT)),
        "opaque_events": counts(row.opaque_events),
        "opaque_deltas": counts(row.opaque_deltas),
        "opaque_blocks": counts(row.opaque_blocks),
        "invalid_tool_inputs": str(row.invalid),
        "unapplied_deltas": counts(row.unapplied),
        "error_type": row.error_type or "-",
        "open_text_sha256": sha(open_texts) if open_texts else "-",
        "open_thinking_sha256": sha(open_thinking) if open_thinking else "-",
        "open_raw_input_sha256": sha("".join(tool["raw"] for tool in row.unfinished)) if row.unfinished else "-",
    }
    for key in TOKENS:
        value = row.usage.get(key)
        out[key] = "-" if value is None else str(value)
    return out
