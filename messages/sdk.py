"""The outer form: what ``--output-format stream-json`` writes (WIRE.md §2, SDK mapping).

Envelope keys are camelCase inside and snake_case outside; keys of payloads (``message``, ``data``, ``attachment``,
``event``, a tool's own output) are nobody's to change. The way out is a privacy gate: of a ``local_command`` only
what it wrote to stdout and stderr passes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from turnstream.messages.codec import from_wire, to_wire
from turnstream.messages.commands import output_of
from turnstream.messages.events import StreamEvent
from turnstream.messages.ids import IdSource, random_ids
from turnstream.messages.jsonvalue import MAX_RECORD_DEPTH, JSONValueError, loads
from turnstream.messages.names import METADATA_NAMES, from_wire_name, to_wire_name
from turnstream.messages.subtypes import SUBTYPE_FIELDS
from turnstream.messages.types import (
    CollapsedReadSearch,
    GroupedToolUse,
    Message,
    OpaqueRecord,
    StreamNote,
    Tombstone,
)
from turnstream.messages.wire_fields import ENVELOPE_KEYS, WIRE_TYPES

__all__ = ["SDK_NAMES", "Report", "from_sdk", "to_sdk"]

Report = Callable[[StreamNote], None]
"""Takes a note about an item that was skipped; a list's ``append`` will do."""

SDK_NAMES: Final[dict[str, str]] = {
    # Spelled in camelCase outside too.
    "isReplay": "isReplay",
    "isSynthetic": "isSynthetic",
    "permissionMode": "permissionMode",
}
"""Inner name → outer name, where they don't follow from each other."""

_INNER: Final = {outer: inner for inner, outer in SDK_NAMES.items()}
_HUMP: Final = re.compile(r"[A-Z]")
_SCORE: Final = re.compile(r"(?<=[a-z0-9])_([a-z])")
_METADATA: Final = frozenset(to_wire_name(name) for name in METADATA_NAMES)
# Types whose outer form always says below which tool use it happened, null for the conversation itself.
_PARENTED: Final = frozenset({"user", "assistant", "stream_event"})
_PARENT: Final = "parent_tool_use_id"
# All that passes of a local command; its content is replaced by its output.
_GATE: Final = ("type", "subtype", "content", "level", "isMeta", "uuid", "timestamp", "sessionId", "parentUuid")
# On a subtype that isn't ours only these keys are renamed: its own may be spelled either way (system/init is).
_ENVELOPE: Final = ENVELOPE_KEYS | {"type", "subtype", "content", "level", "isMeta", "uuid", "timestamp"}
# Beside a message (outside of ==): keys whose outer spelling doesn't follow from the inner one, kept as they came.
_VERBATIM: Final = "sdk"


def to_sdk(
    items: Iterable[Message | StreamEvent],
    *,
    session_id: str | None = None,
    ids: IdSource | None = None,
    report: Report | None = None,
) -> list[dict[str, Any]]:
    """Messages in outer form, in order.

    A bare stream event gets its envelope with a uuid. A record of an unknown type, and the fields of an unknown
    system subtype, pass as they are.

    Args:
        items: messages and stream events; they aren't changed, payloads are shared.
        session_id: given to every item that has none.
        ids: makes uuids for stream events; default random.
        report: told of each line that had to be left out because it is no JSON object.

    Returns:
        The objects. Fewer than ``items`` if there were local commands without output, or bad lines.
    """
    make = ids if ids is not None else random_ids()
    out: list[dict[str, Any]] = []
    for number, item in enumerate(items):
        if isinstance(item, OpaqueRecord) and not isinstance(item.data, dict):
            _note(report, number, item.problem or "not a JSON object")
            continue
        value = _outer(item)
        if value is None:
            continue
        if not isinstance(item, OpaqueRecord):
            if session_id is not None:
                value.setdefault("session_id", session_id)
            if value["type"] == "stream_event" and "uuid" not in value:
                value["uuid"] = make("stream_event")
        out.append(value)
    return out


def from_sdk(values: Iterable[dict[str, Any] | bytes | str], *, report: Report | None = None) -> list[Message]:
    """Messages from their outer form, in order.

    Args:
        values: objects, or lines of JSON. Objects aren't changed, payloads are shared.
        report: told of each line that was skipped, and why.

    Returns:
        The messages. Blank lines and lines that are no JSON object are skipped; a type that isn't ours
        (``result``, ``control_request`` …) is an ``OpaqueRecord``. ``to_sdk`` gives the same objects back.
    """
    out: list[Message] = []
    for number, value in enumerate(values):
        decoded: Any = value
        if isinstance(value, bytes | str):
            if not value.strip():
                continue
            try:
                decoded = loads(value, max_depth=MAX_RECORD_DEPTH)
            except JSONValueError as error:
                _note(report, number, str(error))
                continue
        if isinstance(decoded, dict):
            out.append(_inner(decoded))
        else:
            _note(report, number, "not a JSON object")
    return out


def _note(report: Report | None, number: int, why: str) -> None:
    if report is not None:
        report(StreamNote(kind="sdk_line_skipped", message=f"item {number}: {why}"))


# -- out ---------------------------------------------------------------------------------------------


def _outer(item: Any) -> dict[str, Any] | None:
    wire = to_wire(item)
    if isinstance(item, OpaqueRecord):
        return wire if isinstance(wire, dict) else None
    if wire.get("subtype") == "local_command" and wire["type"] == "system":
        output = output_of(wire.get("content"))
        if output is None:
            return None
        wire = {key: wire[key] for key in _GATE if key in wire}
        wire["content"] = output
    verbatim: Any = getattr(item, "__dict__", {}).get(_VERBATIM, ())
    foreign = _is_foreign_subtype(wire)
    out: dict[str, Any] = {}
    for key, value in wire.items():
        if key in verbatim or (foreign and key not in _ENVELOPE):
            out[key] = value
        else:
            out[_out_name(key)] = _renamed(value, _out_name) if key in _METADATA else value
    if wire["type"] in _PARENTED:
        out.setdefault(_PARENT, None)
    if isinstance(item, Tombstone):
        out["message"] = _outer_part(item.message)
    elif isinstance(item, GroupedToolUse | CollapsedReadSearch):
        for key in ("messages", "results"):
            if key in out:
                parts = map(_outer_part, getattr(item, key))
                out[key] = [part for part in parts if part is not None]
    return out


def _outer_part(item: Any) -> Any:
    return _outer(item) if hasattr(item, "__struct_fields__") else item


def _out_name(key: str) -> str:
    outer = SDK_NAMES.get(key)
    if outer is None:
        outer = from_wire_name(key)
        if outer == key:
            outer = _HUMP.sub(lambda hump: f"_{hump[0].lower()}", key)
    # A name that wouldn't come back (a leading capital) stays.
    return outer if _in_name(outer) == key else key


# -- in ----------------------------------------------------------------------------------------------


def _inner(value: dict[str, Any]) -> Message:
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in WIRE_TYPES:
        return from_wire(value)
    foreign = _is_foreign_subtype(value)
    wire: dict[str, Any] = {}
    verbatim: set[str] = set()
    for key, inner in value.items():
        if key == _PARENT and inner is None and kind in _PARENTED:
            continue
        name = _in_name(key)
        renaming = not foreign or name in _ENVELOPE
        renamed = _renamed(inner, _in_name) if name in _METADATA else inner
        if not renaming:
            name, renamed = key, inner
        elif (
            _out_name(name) != key
            or (name != key and name in value)
            or (name in _METADATA and _renamed(renamed, _out_name) != inner)
        ):
            # On the way out it would get another name, or it meets the other spelling here.
            name, renamed = key, inner
            verbatim.add(key)
        wire[name] = renamed
    message = from_wire(wire)
    if isinstance(message, OpaqueRecord):
        return OpaqueRecord(type=message.type, data=value, problem=message.problem)
    if verbatim:
        message.__dict__[_VERBATIM] = frozenset(verbatim)  # pyright: ignore[reportIndexIssue]
    if isinstance(message, Tombstone):
        inner = value.get("message")
        message.message = _inner(inner) if isinstance(inner, dict) else inner
    elif isinstance(message, GroupedToolUse | CollapsedReadSearch):
        for key in ("messages", "results"):
            if key in value:
                setattr(message, key, [_inner(part) if isinstance(part, dict) else part for part in value[key]])
    return message


def _in_name(key: str) -> str:
    inner = _INNER.get(key)
    if inner is not None:
        return inner
    wire = to_wire_name(key)
    return wire if wire != key else _SCORE.sub(lambda score: score[1].upper(), key)


def _renamed(value: Any, name: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {name(key): _renamed(inner, name) for key, inner in value.items()}
    if isinstance(value, list):
        return [_renamed(inner, name) for inner in value]
    return value


def _is_foreign_subtype(value: dict[str, Any]) -> bool:
    subtype = value.get("subtype")
    return value.get("type") == "system" and not (isinstance(subtype, str) and subtype in SUBTYPE_FIELDS)
