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
from turnstream.messages.wire_fields import (
    ACCEPTS,
    CLASSES,
    DEFAULTS,
    ENVELOPE_KEYS,
    GROUPS,
    IDENTIFIED,
    IDENTITY,
    INTERNAL,
    NESTED,
    NULLABLE,
    REQUIRED,
    TYPE_OF,
)

__all__ = ["decode_line", "encode", "from_wire", "replace", "split_lines", "to_wire"]

_OPTIONAL: Final[dict[type, dict[str, tuple[str, tuple[type, ...]]]]] = {}


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
    cls = CLASSES.get(kind) if isinstance(kind, str) else None
    if cls is None:
        return t.OpaqueRecord(type=kind if isinstance(kind, str) else None, data=value)
    for _, wire, wanted in REQUIRED[cls]:
        item = value.get(wire)
        if not isinstance(item, wanted) or (wanted is int and isinstance(item, bool)):
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
        if system and key not in ENVELOPE_KEYS:
            rest[key] = item
        else:
            extra[key] = item
    if cls is t.ToolUseSummary and "preceding_tool_use_ids" not in known:
        older = extra.get("toolUseIds")
        if isinstance(older, list):
            known["preceding_tool_use_ids"] = extra.pop("toolUseIds")
    if cls in IDENTIFIED:
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
    elif cls in GROUPS:
        for name in NESTED.intersection(known):
            known[name] = [from_wire(inner) if isinstance(inner, dict) else inner for inner in known[name]]
    message: t.Message = cls(**known, extra=extra or None)  # type: ignore[assignment]
    return message


def _fields_of(cls: type[msgspec.Struct]) -> dict[str, tuple[str, tuple[type, ...]]]:
    table = _OPTIONAL.get(cls)
    if table is None:
        table = {
            to_wire_name(name): (name, ACCEPTS.get(name, ())) for name in cls.__struct_fields__ if name not in INTERNAL
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
    group = type(item) in GROUPS
    out: dict[str, Any] = {"type": TYPE_OF[type(item)]}
    for name in item.__struct_fields__:
        if name in INTERNAL:
            continue
        value = getattr(item, name)
        if value is UNSET or (value is None and name not in NULLABLE):
            continue
        if name in DEFAULTS and value == DEFAULTS[name] and (name in IDENTITY or _is_foreign(item, name)):
            continue
        if name == "event" and type(value) in EVENT_CLASSES:
            value = event_to_wire(value)  # pyright: ignore[reportArgumentType]
        elif name == "message" and isinstance(value, msgspec.Struct):
            value = to_wire(value)  # type: ignore[arg-type]
        elif group and name in NESTED:
            value = [to_wire(inner) if isinstance(inner, msgspec.Struct) else inner for inner in value]  # type: ignore[arg-type]
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
    # By getattr: a look into __dict__ makes one for each message, which stays.
    template = getattr(message, "raw", None) or getattr(message, "template", None)
    if getattr(copy, "raw", None) is not None:
        del copy.raw  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    if template is not None and not isinstance(message, t.OpaqueRecord):
        copy.__dict__["template"] = template  # pyright: ignore[reportIndexIssue]
    return copy
