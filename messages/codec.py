"""Messages to and from their wire form (WIRE.md §2).

``decode_line`` never raises and never loses a byte: a line that is no JSON object, or whose type we
don't model, is an :class:`OpaqueRecord`. What was read keeps its line and ``encode`` writes it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET

from turnstream.messages import types as t
from turnstream.messages.events import (
    EVENT_CLASSES,
    StreamEvent,
    event_from_wire,
    event_to_wire,
)
from turnstream.messages.jsonvalue import MAX_RECORD_DEPTH, JSONValueError, dumps, loads
from turnstream.messages.names import to_wire_name

__all__ = ["decode_line", "encode", "from_wire", "replace", "split_lines", "to_wire"]

_CLASSES: Final[dict[str, type[msgspec.Struct]]] = {
    "user": t.UserMessage,
    "assistant": t.AssistantMessage,
    "system": t.SystemMessage,
    "attachment": t.AttachmentMessage,
    "progress": t.ProgressMessage,
    "stream_event": t.StreamEventMessage,
    "stream_request_start": t.RequestStart,
    "tombstone": t.Tombstone,
    "response_failed": t.ResponseFailed,
    "stream_note": t.StreamNote,
    "resync": t.Resync,
    "tool_use_summary": t.ToolUseSummary,
}
_TYPE_OF: Final = {cls: name for name, cls in _CLASSES.items()}

# Fields that are UNSET when absent, so that None is a value: a tool's own output may be null.
_NULLABLE: Final = frozenset({"content", "tool_use_result", "mcp_meta", "origin", "error"})
# Defaults that are neither None nor UNSET. An empty uuid or timestamp means that there was none.
_IDENTITY: Final = frozenset({"uuid", "timestamp"})
_DEFAULTS: Final[dict[str, Any]] = {
    "uuid": "",
    "timestamp": "",
    "attempt": 1,
    "kept": [],
    "outcome": "incomplete(0)",
    "preceding_tool_use_ids": [],
}
# Fields that never go to the wire as they are.
_INTERNAL: Final = frozenset({"extra", "index", "committed", "fields"})

_OPTIONAL: Final[dict[type, dict[str, tuple[str, tuple[type, ...]]]]] = {}
_REQUIRED: Final[dict[type, tuple[tuple[str, str, type], ...]]] = {
    t.UserMessage: (("message", "message", dict),),
    t.AssistantMessage: (("message", "message", dict),),
    t.SystemMessage: (),
    t.AttachmentMessage: (("attachment", "attachment", dict),),
    t.ProgressMessage: (),
    t.StreamEventMessage: (("event", "event", dict),),
    t.RequestStart: (),
    t.Tombstone: (),
    t.ResponseFailed: (("error", "error", dict),),
    t.StreamNote: (("kind", "kind", str), ("message", "message", str)),
    t.Resync: (),
    t.ToolUseSummary: (("summary", "summary", str),),
}
# A field not named here takes any value.
_ACCEPTS: Final[dict[str, tuple[type, ...]]] = {
    "uuid": (str,),
    "timestamp": (str,),
    "request_id": (str,),
    "api_error": (str,),
    "api_error_status": (int,),
    "error_details": (str,),
    "level": (str,),
    "permission_mode": (str,),
    "source_tool_assistant_uuid": (str,),
    "source_tool_use_id": (str,),
    "tool_use_id": (str,),
    "parent_tool_use_id": (str,),
    "outcome": (str,),
    "kind": (str,),
    "summary": (str,),
    "subtype": (str,),
    "is_meta": (bool,),
    "is_visible_in_transcript_only": (bool,),
    "is_virtual": (bool,),
    "is_compact_summary": (bool,),
    "is_api_error_message": (bool,),
    "is_aborted_mid_stream": (bool,),
    "invalid_tool_input": (bool,),
    "synthesized_envelope": (bool,),
    "synthesized_block": (bool,),
    "block_index": (int,),
    "attempt": (int,),
    "event_number": (int,),
    "byte_offset": (int,),
    "ttft_ms": (int, float),
    "kept": (list,),
    "image_paste_ids": (list,),
    "unapplied_deltas": (list,),
    "unfinished_tool_inputs": (list,),
    "preceding_tool_use_ids": (list,),
}


def split_lines(data: bytes) -> Iterator[bytes]:
    """The lines of a JSONL file, split at LF only; joined by LF they are ``data`` again."""
    start = 0
    while True:
        end = data.find(b"\n", start)
        if end < 0:
            yield data[start:]
            return
        yield data[start:end]
        start = end + 1


def decode_line(line: bytes) -> t.Message:
    """Read one line of a transcript or of NDJSON in inner wire form.

    Args:
        line: the bytes without their line end (a CR stays part of the line).

    Returns:
        The message, with the line in ``raw``. Never raises.
    """
    message: t.Message
    try:
        value = loads(line, max_depth=MAX_RECORD_DEPTH)
    except JSONValueError as error:
        message = t.OpaqueRecord(type=None, problem=str(error))
    else:
        if isinstance(value, dict):
            message = from_wire(value)
        else:
            message = t.OpaqueRecord(type=None, data=value, problem="not a JSON object")
    message.__dict__["raw"] = line  # pyright: ignore[reportIndexIssue]
    return message


def from_wire(value: dict[str, Any]) -> t.Message:
    """Build a message from its decoded JSON object; the object is not copied and not changed.

    A key that the model doesn't know, or whose value it can't take, is kept in ``extra``.
    """
    kind = value.get("type")
    cls = _CLASSES.get(kind) if isinstance(kind, str) else None
    if cls is None:
        return t.OpaqueRecord(type=kind if isinstance(kind, str) else None, data=value)
    for _, wire, wanted in _REQUIRED[cls]:
        if not isinstance(value.get(wire), wanted):
            return t.OpaqueRecord(type=kind, data=value, problem=f"{kind} without {wire}")
    table = _fields_of(cls)
    known: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    system = cls is t.SystemMessage
    for key, item in value.items():
        if key == "type":
            continue
        entry = table.get(key)
        if entry is not None:
            name, accepts = entry
            if not accepts or (isinstance(item, accepts) and not (isinstance(item, bool) and bool not in accepts)):
                known[name] = item
                continue
        if system and key not in _ENVELOPE:
            rest[key] = item
        else:
            extra[key] = item
    if cls is t.ToolUseSummary and "preceding_tool_use_ids" not in known:
        older = extra.get("toolUseIds")
        if isinstance(older, list):
            known["preceding_tool_use_ids"] = extra.pop("toolUseIds")
    if cls in _IDENTIFIED:
        known.setdefault("uuid", "")
        known.setdefault("timestamp", "")
    if system:
        known.setdefault("subtype", None)
        known["fields"] = rest
    elif cls is t.ProgressMessage:
        known.setdefault("data", None)
    elif cls is t.StreamEventMessage:
        try:
            known["event"] = event_from_wire(known["event"])
        except ValueError:
            return t.OpaqueRecord(type=kind, data=value, problem="an event that can't be read")
    elif cls is t.Tombstone:
        inner = known.get("message")
        known["message"] = from_wire(inner) if isinstance(inner, dict) else inner
    message: t.Message = cls(**known, extra=extra or None)  # type: ignore[assignment]
    return message


_IDENTIFIED: Final = frozenset(
    {t.UserMessage, t.AssistantMessage, t.SystemMessage, t.AttachmentMessage, t.ProgressMessage, t.ToolUseSummary}
)
# Keys of a transcript line's envelope; on a system message everything else belongs to its subtype.
_ENVELOPE: Final = frozenset(
    to_wire_name(name)
    for name in (
        "parent_uuid",
        "logical_parent_uuid",
        "is_sidechain",
        "user_type",
        "cwd",
        "session_id",
        "version",
        "git_branch",
        "agent_id",
        "team_name",
        "slug",
        "entrypoint",
        "prompt_id",
        "message",
        "workspace",
        "agent",
    )
)


def _fields_of(cls: type[msgspec.Struct]) -> dict[str, tuple[str, tuple[type, ...]]]:
    table = _OPTIONAL.get(cls)
    if table is None:
        table = {
            to_wire_name(name): (name, _ACCEPTS.get(name, ()))
            for name in cls.__struct_fields__
            if name not in _INTERNAL
        }
        _OPTIONAL[cls] = table
    return table


def to_wire(item: t.Message | StreamEvent) -> Any:
    """The item's JSON object in inner wire form, made from its fields (a kept line isn't looked at).

    A bare stream event gets its ``stream_event`` envelope. Unknown envelope values are left out, not
    null. Nested payloads are shared, not copied.
    """
    if type(item) in EVENT_CLASSES:
        return {"type": "stream_event", "event": event_to_wire(item)}  # type: ignore[arg-type]
    if isinstance(item, t.OpaqueRecord):
        return item.data
    out: dict[str, Any] = {"type": _TYPE_OF[type(item)]}
    for name in item.__struct_fields__:
        if name in _INTERNAL:
            continue
        value = getattr(item, name)
        if value is UNSET or (value is None and name not in _NULLABLE):
            continue
        if name in _DEFAULTS and value == _DEFAULTS[name] and (name in _IDENTITY or _is_foreign(item, name)):
            continue
        if name == "event" and type(value) in EVENT_CLASSES:
            value = event_to_wire(value)  # pyright: ignore[reportArgumentType]
        elif name == "message" and isinstance(value, msgspec.Struct):
            value = to_wire(value)  # type: ignore[arg-type]
        out[to_wire_name(name)] = value
    # A foreign value of a known key is in there too; a field that was set since then goes before it.
    more: list[dict[str, Any] | None] = [item.fields] if isinstance(item, t.SystemMessage) else []
    for keys in (*more, item.extra):  # type: ignore[union-attr]
        if keys:
            out.update(keys if out.keys().isdisjoint(keys) else {k: v for k, v in keys.items() if k not in out})
    return out


def _is_foreign(item: Any, name: str) -> bool:
    """Whether the line had a value under this name that the field can't take, and the field wasn't set since."""
    return bool(item.extra) and to_wire_name(name) in item.extra


def encode(item: t.Message | StreamEvent) -> bytes:
    """One line of JSON without its line end: the line it was read from if it wasn't replaced.

    Compact, non-ASCII as is, lone surrogates as U+FFFD. Never raises for what ``decode_line`` returned.
    """
    kept: dict[str, Any] | None = getattr(item, "__dict__", None)
    if kept:
        raw = kept.get("raw")
        if raw is not None:
            return bytes(raw)
        template = kept.get("template")
        if template is not None:
            return dumps(_merge(template, item))
    return dumps(to_wire(item))


def _merge(template: bytes, item: t.Message | StreamEvent) -> Any:
    wire = to_wire(item)
    original = loads(template, max_depth=MAX_RECORD_DEPTH)
    before = to_wire(from_wire(original))
    for key, value in wire.items():
        # Compared as JSON: to Python 1, 1.0 and True are the same.
        if key not in before or (before[key] is not value and dumps(before[key]) != dumps(value)):
            original[key] = value
    for key in before:
        if key not in wire:
            original.pop(key, None)
    return original


_M = TypeVar("_M", bound=msgspec.Struct)


def replace(message: _M, /, **changes: Any) -> _M:
    """A changed copy of a message that was read (WIRE.md §2: what was read is changed only through this).

    The copy has no line of its own; the old one stays as the template for unknown keys and key order.
    Give whole new payloads: what is nested in the old message is shared with the copy.
    """
    copy = msgspec.structs.replace(message, **changes)
    kept = message.__dict__
    copy.__dict__.pop("raw", None)  # pyright: ignore[reportAttributeAccessIssue]
    template = kept.get("raw") or kept.get("template")
    if template is not None and not isinstance(message, t.OpaqueRecord):
        copy.__dict__["template"] = template  # pyright: ignore[reportIndexIssue]
    return copy
