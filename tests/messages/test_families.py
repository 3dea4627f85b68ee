"""Every item has a family (WIRE.md §2)."""

from __future__ import annotations

from typing import get_args

import msgspec

from turnstream.messages import (
    CollapsedReadSearch,
    GroupedToolUse,
    Message,
    ModelItem,
    OpaqueRecord,
    QueryItem,
    StreamEvent,
    family_of,
    from_wire,
    to_wire,
)
from turnstream.messages.types import RESULT_TYPES


def test_every_type_has_the_family_the_specification_says() -> None:
    display = {GroupedToolUse, CollapsedReadSearch}
    for cls in {*get_args(Message), *get_args(StreamEvent)}:
        item = cls(**{field.name: None for field in msgspec.structs.fields(cls) if field.required})
        if cls in RESULT_TYPES:
            assert family_of(item) == "result"
        elif cls in display:
            assert family_of(item) == "display"
        elif cls is OpaqueRecord:
            assert family_of(item) == "unknown"
        else:
            assert family_of(item) == "process", cls


def test_a_query_gives_everything_but_what_is_made_for_a_display() -> None:
    everything = {*get_args(Message), *get_args(StreamEvent)}
    assert everything - set(get_args(QueryItem)) == {GroupedToolUse, CollapsedReadSearch}
    assert set(get_args(ModelItem)) < set(get_args(QueryItem))


def test_what_is_no_item_is_unknown() -> None:
    assert family_of(object()) == "unknown"  # type: ignore[arg-type]


def test_fault_56_invented_types_are_records_of_an_unknown_family() -> None:
    for kind in ("mode", "atis-latch", "cost-state", "file-history-delta", "ai-title"):
        record = from_wire({"type": kind, "odd": [1]})
        assert family_of(record) == "unknown"
        assert to_wire(record) == {"type": kind, "odd": [1]}
    odd = {"type": "user", "message": {"content": "x"}, "toolUseResult": [[3]]}
    assert to_wire(from_wire(odd)) == odd
