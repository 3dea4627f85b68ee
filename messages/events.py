"""The events of an API stream: typed, lossless, forward compatible (WIRE.md §1).

Events are the items that flow; there is no wrapper. A known event whose payload holds unknown keys is
built into the same class, with these keys in ``extra`` (whose wire name can't occur in real input), so
that no consumer meets one event in two shapes. Only an unknown ``type`` becomes :class:`UnknownEvent`,
an unknown delta type :class:`UnknownDelta`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

__all__ = [
    "EVENT_CLASSES",
    "CitationsDelta",
    "CompactionDelta",
    "ContentBlockDelta",
    "ContentBlockStart",
    "ContentBlockStop",
    "Delta",
    "ErrorEvent",
    "InputJsonDelta",
    "MessageDelta",
    "MessageStart",
    "MessageStop",
    "Ping",
    "SignatureDelta",
    "StreamEvent",
    "TextDelta",
    "ThinkingDelta",
    "UnknownDelta",
    "UnknownEvent",
    "delta_to_wire",
    "delta_type",
    "event_from_wire",
    "event_to_wire",
    "event_type",
]

# A noncharacter: no JSON of an API has a key like this, and the typed decoder must not invent `extra`.
_EXTRA: Final = "\uffff turnstream extra"


class TextDelta(msgspec.Struct, tag_field="type", tag="text_delta", gc=False, forbid_unknown_fields=True):
    """Appends ``text`` to a text block."""

    text: str
    extra: dict[str, Any] | None = msgspec.field(default=None, name=_EXTRA)


class InputJsonDelta(msgspec.Struct, tag_field="type", tag="input_json_delta", gc=False, forbid_unknown_fields=True):
    """Appends ``partial_json`` (often empty, may end inside an escape) to a tool input."""

    partial_json: str
    extra: dict[str, Any] | None = msgspec.field(default=None, name=_EXTRA)


class ThinkingDelta(msgspec.Struct, tag_field="type", tag="thinking_delta", gc=False, forbid_unknown_fields=True):
    """Appends ``thinking`` (may be empty and carry only ``estimated_tokens``)."""

    thinking: str
    estimated_tokens: int | UnsetType = UNSET
    extra: dict[str, Any] | None = msgspec.field(default=None, name=_EXTRA)


class SignatureDelta(msgspec.Struct, tag_field="type", tag="signature_delta", gc=False, forbid_unknown_fields=True):
    """Assigns (never appends) the signature of a thinking block."""

    signature: str
    extra: dict[str, Any] | None = msgspec.field(default=None, name=_EXTRA)


class CitationsDelta(msgspec.Struct, tag_field="type", tag="citations_delta", forbid_unknown_fields=True):
    """Appends one citation to a text block; real streams send them before the first text."""

    citation: Any
    extra: dict[str, Any] | None = msgspec.field(default=None, name=_EXTRA)


class CompactionDelta(msgspec.Struct, tag_field="type", tag="compaction_delta", forbid_unknown_fields=True):
    """Sets every key it carries on a compaction block; null is a no-op."""

    content: Any = UNSET
    encrypted_content: Any = UNSET
    extra: dict[str, Any] | None = msgspec.field(default=None, name=_EXTRA)


class UnknownDelta(msgspec.Struct):
    """A delta of a type we don't know (or without one); ``raw`` is its whole JSON object."""

    type: str | None
    raw: Any


Delta = TextDelta | InputJsonDelta | ThinkingDelta | SignatureDelta | CitationsDelta | CompactionDelta | UnknownDelta
if TYPE_CHECKING:
    _DeltaField = Delta
else:
    # What the typed decoder accepts; UnknownDelta has no tag and comes from the untyped path only.
    _DeltaField = TextDelta | InputJsonDelta | ThinkingDelta | SignatureDelta | CitationsDelta | CompactionDelta


class MessageStart(msgspec.Struct, tag_field="type", tag="message_start", forbid_unknown_fields=True):
    """Opens an answer; ``message`` is the envelope with empty (or, rarely, whole) content."""

    message: dict[str, Any] | UnsetType = UNSET
    extra: dict[str, Any] | None = msgspec.field(default=None, name=_EXTRA)


class ContentBlockStart(msgspec.Struct, tag_field="type", tag="content_block_start", forbid_unknown_fields=True):
    """Opens block ``index`` (None: missing on the wire)."""

    content_block: dict[str, Any]
    index: int | None = None
    extra: dict[str, Any] | None = msgspec.field(default=None, name=_EXTRA)


class ContentBlockDelta(
    msgspec.Struct, tag_field="type", tag="content_block_delta", gc=False, forbid_unknown_fields=True
):
    """One delta to block ``index`` (None: missing on the wire)."""

    # gc=False is safe: no delta can refer back to its event.
    delta: _DeltaField
    index: int | None = None
    extra: dict[str, Any] | None = msgspec.field(default=None, name=_EXTRA)


class ContentBlockStop(
    msgspec.Struct, tag_field="type", tag="content_block_stop", gc=False, forbid_unknown_fields=True
):
    """Closes block ``index`` (None: missing on the wire)."""

    index: int | None = None
    extra: dict[str, Any] | None = msgspec.field(default=None, name=_EXTRA)


class MessageDelta(msgspec.Struct, tag_field="type", tag="message_delta", forbid_unknown_fields=True):
    """Late news of the answer: stop_reason and others in ``delta``, cumulative ``usage``."""

    delta: dict[str, Any] | UnsetType = UNSET
    usage: dict[str, Any] | UnsetType = UNSET
    context_management: Any = UNSET
    extra: dict[str, Any] | None = msgspec.field(default=None, name=_EXTRA)


class MessageStop(msgspec.Struct, tag_field="type", tag="message_stop", forbid_unknown_fields=True):
    """Ends the answer."""

    extra: dict[str, Any] | None = msgspec.field(default=None, name=_EXTRA)


class Ping(msgspec.Struct, tag_field="type", tag="ping", forbid_unknown_fields=True):
    """Keeps the connection alive; no progress."""

    extra: dict[str, Any] | None = msgspec.field(default=None, name=_EXTRA)


class ErrorEvent(msgspec.Struct, tag_field="type", tag="error", forbid_unknown_fields=True):
    """The API (or a gateway) says that the answer failed; a bare ``{"error": …}`` is one too."""

    error: Any = UNSET
    extra: dict[str, Any] | None = msgspec.field(default=None, name=_EXTRA)


class UnknownEvent(msgspec.Struct):
    """An event of a type we don't know (or without one).

    Attributes:
        type: the JSON's type, else the ``event:`` name, else None.
        raw: the whole payload: a JSON object, or the text if it can't be held without loss.
    """

    type: str | None
    raw: Any


StreamEvent = (
    MessageStart
    | ContentBlockStart
    | ContentBlockDelta
    | ContentBlockStop
    | MessageDelta
    | MessageStop
    | Ping
    | ErrorEvent
    | UnknownEvent
)

EVENT_CLASSES: Final[frozenset[type]] = frozenset(
    {
        MessageStart,
        ContentBlockStart,
        ContentBlockDelta,
        ContentBlockStop,
        MessageDelta,
        MessageStop,
        Ping,
        ErrorEvent,
        UnknownEvent,
    }
)

_DELTAS: Final[dict[str, type[Any]]] = {
    "text_delta": TextDelta,
    "input_json_delta": InputJsonDelta,
    "thinking_delta": ThinkingDelta,
    "signature_delta": SignatureDelta,
    "citations_delta": CitationsDelta,
    "compaction_delta": CompactionDelta,
}
_EVENTS: Final[dict[str, type[Any]]] = {
    "message_start": MessageStart,
    "content_block_start": ContentBlockStart,
    "content_block_delta": ContentBlockDelta,
    "content_block_stop": ContentBlockStop,
    "message_delta": MessageDelta,
    "message_stop": MessageStop,
    "ping": Ping,
    "error": ErrorEvent,
}

_DELTA_FIELDS: Final = {name: frozenset(cls.__struct_fields__) - {"extra"} for name, cls in _DELTAS.items()}
_EVENT_FIELDS: Final = {name: frozenset(cls.__struct_fields__) - {"extra"} for name, cls in _EVENTS.items()}
# What a field must be for the typed class to take it; anything else goes to `extra` as it came.
_FIELD_TYPES: Final[dict[str, type]] = {
    "index": int,
    "message": dict,
    "usage": dict,
    "delta": dict,
    "estimated_tokens": int,
}


def event_type(event: StreamEvent) -> str | None:
    """The event's ``type`` on the wire."""
    if isinstance(event, UnknownEvent):
        return event.type
    tag = event.__struct_config__.tag
    return tag if isinstance(tag, str) else None


def delta_type(delta: Delta) -> str | None:
    """The delta's ``type`` on the wire."""
    if isinstance(delta, UnknownDelta):
        return delta.type
    tag = delta.__struct_config__.tag
    return tag if isinstance(tag, str) else None


def _build_delta(value: Any) -> Delta:
    if not isinstance(value, dict):
        return UnknownDelta(None, value)
    kind = value.get("type")
    cls = _DELTAS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        return UnknownDelta(kind if isinstance(kind, str) else None, value)
    if cls is CitationsDelta or cls is CompactionDelta:
        main = None
    else:
        main = cls.__struct_fields__[0]
        if not isinstance(value.get(main), str):
            return UnknownDelta(kind, value)
    if cls is CitationsDelta and "citation" not in value:
        return UnknownDelta(kind, value)
    known, extra = _split(value, _DELTA_FIELDS[cls.__struct_config__.tag])  # pyright: ignore[reportArgumentType]
    delta: Delta = cls(**known, extra=extra or None)
    return delta


def _split(value: dict[str, Any], fields: frozenset[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    known: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for key, item in value.items():
        if key == "type" and isinstance(item, str):
            continue
        wanted = _FIELD_TYPES.get(key)
        if key in fields and (wanted is None or (isinstance(item, wanted) and not isinstance(item, bool))):
            known[key] = item
        else:
            extra[key] = item
    return known, extra


def event_from_wire(payload: dict[str, Any], name: str | None = None) -> StreamEvent:
    """Build an event from its decoded JSON object, whatever unknown keys it holds.

    Args:
        payload: the JSON object; it is not copied and not changed.
        name: the ``event:`` name, used where the object has no ``type`` (WIRE.md §1).

    Raises:
        ValueError: a ``content_block_start`` without its block.
    """
    kind = payload.get("type")
    if not isinstance(kind, str):
        if kind is None and "error" in payload:
            kind = "error"  # a bare {"error": …} is an error event, whatever frame it came in
        else:
            kind = name or None
    cls = _EVENTS.get(kind) if kind is not None else None
    if cls is None:
        return UnknownEvent(kind, payload)
    if cls is ContentBlockDelta:
        fields = _EVENT_FIELDS["content_block_delta"] - {"delta"}
        known, extra = _split(payload, fields)
        extra.pop("delta", None)
        return ContentBlockDelta(delta=_build_delta(payload.get("delta")), extra=extra or None, **known)
    if cls is ContentBlockStart and not isinstance(payload.get("content_block"), dict):
        raise ValueError("content_block_start without content_block")
    known, extra = _split(payload, _EVENT_FIELDS[cls.__struct_config__.tag])  # pyright: ignore[reportArgumentType]
    event: StreamEvent = cls(**known, extra=extra or None)
    return event


def _fields_to_wire(item: msgspec.Struct, kind: str) -> dict[str, Any]:
    out: dict[str, Any] = {"type": kind}
    for field in item.__struct_fields__:
        value = getattr(item, field)
        if field == "extra":
            if value:
                out.update(value)
        elif field == "delta" and isinstance(value, msgspec.Struct):
            out[field] = delta_to_wire(value)  # type: ignore[arg-type]
        elif value is not UNSET and not (value is None and field == "index"):
            out[field] = value
    return out


def delta_to_wire(delta: Delta) -> Any:
    """The delta's JSON object."""
    if isinstance(delta, UnknownDelta):
        return delta.raw
    return _fields_to_wire(delta, str(delta.__struct_config__.tag))


def event_to_wire(event: StreamEvent) -> Any:
    """The event's JSON object: what came, but for white space and the order of keys."""
    if isinstance(event, UnknownEvent):
        return event.raw
    return _fields_to_wire(event, str(event.__struct_config__.tag))
