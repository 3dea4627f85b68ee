"""What a boundary says about itself: ``compactMetadata`` and ``microcompactMetadata`` (WIRE.md §6).

Every field is optional when read; a key that isn't known, or a known one with a value that its field
can't take (null too), is kept in ``extra`` and written back. So ``to_wire(from_wire(value)) == value``
for every JSON object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from turnstream.messages import SystemMessage, replace, to_wire_name

__all__ = [
    "CompactMetadata",
    "MicrocompactMetadata",
    "PreservedSegment",
    "compact_metadata",
    "microcompact_metadata",
    "with_metadata",
]

COMPACT_KEY: Final = "compactMetadata"
MICROCOMPACT_KEY: Final = "microcompactMetadata"


class _Wired(msgspec.Struct, kw_only=True, frozen=True):
    extra: dict[str, Any] | None = None

    def to_wire(self) -> dict[str, Any]:
        """The JSON object; what is None is left out, ``extra`` comes last and never overwrites a field."""
        out: dict[str, Any] = {}
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name == "extra" or value is None:
                continue
            out[to_wire_name(name)] = value.to_wire() if isinstance(value, PreservedSegment) else value
        for key, value in (self.extra or {}).items():
            out.setdefault(key, value)
        return out


class PreservedSegment(_Wired, kw_only=True, frozen=True):
    """Messages that were kept as they are: in the file they stand before the boundary.

    ``head_uuid`` and ``tail_uuid`` are the first and the last of them, ``anchor_uuid`` is the message
    that the first follows in the new context (the summary).
    """

    head_uuid: str | None = None
    anchor_uuid: str | None = None
    tail_uuid: str | None = None

    @classmethod
    def from_wire(cls, value: Any) -> PreservedSegment:
        """Read it; anything but a JSON object is an empty one."""
        return _read(cls, value)


class CompactMetadata(_Wired, kw_only=True, frozen=True):
    """What a ``compact_boundary`` says.

    Attributes:
        trigger: ``auto`` or ``manual`` (an open set).
        pre_tokens: tokens of the context before.
        user_context: what the user asked the summary to heed.
        messages_summarized: how many user and assistant messages the summary stands for.
        preserved_segment: what was kept as it is.
    """

    trigger: str | None = None
    pre_tokens: int | float | None = None
    user_context: str | None = None
    messages_summarized: int | None = None
    preserved_segment: PreservedSegment | None = None

    @classmethod
    def from_wire(cls, value: Any) -> CompactMetadata:
        """Read it; anything but a JSON object is an empty one."""
        return _read(cls, value)


class MicrocompactMetadata(_Wired, kw_only=True, frozen=True):
    """What a ``microcompact_boundary`` says.

    Attributes:
        trigger: ``auto`` (an open set).
        pre_tokens: tokens of the context before.
        tokens_saved: tokens that the clearing freed.
        compacted_tool_ids: the tool_use ids whose results were cleared, in order.
        cleared_attachment_uuids: the attachments that were left out.
    """

    trigger: str | None = None
    pre_tokens: int | float | None = None
    tokens_saved: int | float | None = None
    compacted_tool_ids: list[Any] | None = None
    cleared_attachment_uuids: list[Any] | None = None

    @classmethod
    def from_wire(cls, value: Any) -> MicrocompactMetadata:
        """Read it; anything but a JSON object is an empty one."""
        return _read(cls, value)


_ACCEPTS: Final[dict[str, tuple[type, ...]]] = {
    "trigger": (str,),
    "pre_tokens": (int, float),
    "user_context": (str,),
    "messages_summarized": (int,),
    "preserved_segment": (dict,),
    "head_uuid": (str,),
    "anchor_uuid": (str,),
    "tail_uuid": (str,),
    "tokens_saved": (int, float),
    "compacted_tool_ids": (list,),
    "cleared_attachment_uuids": (list,),
}

_M = TypeVar("_M", bound=_Wired)


def _read(cls: type[_M], value: Any) -> _M:
    if not isinstance(value, Mapping):
        return cls()
    names = {to_wire_name(name): name for name in cls.__struct_fields__ if name != "extra"}
    known: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for key, item in value.items():
        name = names.get(key)
        # A bool is an int to Python, not to JSON.
        if name is None or isinstance(item, bool) or not isinstance(item, _ACCEPTS[name]):
            extra[key] = item
        else:
            known[name] = PreservedSegment.from_wire(item) if name == "preserved_segment" else item
    return cls(**known, extra=extra or None)


def compact_metadata(boundary: SystemMessage) -> CompactMetadata:
    """What a compact boundary says; empty where it says nothing (fault 52: no metadata is no error)."""
    return CompactMetadata.from_wire(boundary.fields.get(COMPACT_KEY))


def microcompact_metadata(boundary: SystemMessage) -> MicrocompactMetadata:
    """What a microcompact boundary says; empty where it says nothing."""
    return MicrocompactMetadata.from_wire(boundary.fields.get(MICROCOMPACT_KEY))


def with_metadata(boundary: SystemMessage, metadata: CompactMetadata | MicrocompactMetadata) -> SystemMessage:
    """A copy of ``boundary`` that says ``metadata``; the line it was read from stays as the template."""
    key = COMPACT_KEY if isinstance(metadata, CompactMetadata) else MICROCOMPACT_KEY
    return replace(boundary, fields={**boundary.fields, key: metadata.to_wire()})
