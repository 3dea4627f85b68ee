"""The display types in wire form (WIRE.md §2, §5)."""

from __future__ import annotations

from typing import Any

import pytest

from turnstream.messages import (
    CollapsedReadSearch,
    GroupedToolUse,
    MessageFactory,
    OpaqueRecord,
    decode_line,
    encode,
    from_wire,
    replace,
    seeded_clock,
    seeded_ids,
    to_wire,
)

MAKE = MessageFactory(seeded_ids(2), seeded_clock())
ASKED = MAKE.assistant([{"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "a"}}])
DONE = MAKE.tool_result("t1", "text", source=ASKED)
GROUP = GroupedToolUse(tool_name="Read", messages=[ASKED], results=[DONE], uuid="g")
RUN = CollapsedReadSearch(read_count=1, search_count=2, files=["a"], messages=[ASKED, DONE], uuid="c", timestamp="t")


def test_their_wire_form() -> None:
    assert to_wire(GROUP) == {
        "type": "grouped_tool_use",
        "toolName": "Read",
        "messages": [to_wire(ASKED)],
        "results": [to_wire(DONE)],
        "uuid": "g",
    }
    assert to_wire(RUN) == {
        "type": "collapsed_read_search",
        "readCount": 1,
        "searchCount": 2,
        "files": ["a"],
        "messages": [to_wire(ASKED), to_wire(DONE)],
        "uuid": "c",
        "timestamp": "t",
    }


@pytest.mark.parametrize("item", [GROUP, RUN])
def test_a_round_trip_keeps_the_whole_messages(item: Any) -> None:
    line = encode(item)
    again = decode_line(line)
    assert again == item
    assert encode(again) == line
    assert replace(again, uuid="new").messages == item.messages


def test_a_group_in_a_group() -> None:
    nested = CollapsedReadSearch(read_count=0, search_count=0, files=[], messages=[GROUP], uuid="n")
    assert decode_line(encode(nested)) == nested


@pytest.mark.parametrize(
    "wire",
    [
        {"type": "grouped_tool_use", "toolName": "Read", "messages": []},
        {"type": "grouped_tool_use", "toolName": 1, "messages": [], "results": []},
        {"type": "collapsed_read_search", "readCount": True, "searchCount": 0, "files": [], "messages": []},
        {"type": "collapsed_read_search", "readCount": 1, "searchCount": 0, "files": [], "messages": {}},
    ],
)
def test_what_is_none_is_kept_as_a_record(wire: dict[str, Any]) -> None:
    record = from_wire(wire)
    assert isinstance(record, OpaqueRecord)
    assert record.data is wire
    assert record.problem


def test_members_that_are_no_objects_stay() -> None:
    group = from_wire({"type": "grouped_tool_use", "toolName": "n", "messages": [1, None], "results": []})
    assert isinstance(group, GroupedToolUse)
    assert to_wire(group)["messages"] == [1, None]
