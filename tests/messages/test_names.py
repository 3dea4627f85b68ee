"""The name table against every envelope key in recorded transcripts (WIRE.md §2)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
import recordings

from turnstream.messages import WIRE_NAMES, from_wire_name, to_wire_name

# Keys of hand-made records in the recordings: misspelt or invented there, kept verbatim, no names of ours.
FOREIGN = {"leafUUID", "timesstamp", "silly"}
# Metadata objects whose keys belong to the envelope; message, data and attachment payloads don't.
METADATA = ("compactMetadata", "microcompactMetadata", "preservedSegment", "hookInfos")
# The irregular ones that WIRE.md names, and what they would be if they were regular.
IRREGULAR = {
    "tool_use_id": "toolUseID",
    "parent_tool_use_id": "parentToolUseID",
    "source_tool_use_id": "sourceToolUseID",
    "source_tool_assistant_uuid": "sourceToolAssistantUUID",
    "cleared_attachment_uuids": "clearedAttachmentUUIDs",
    "compacted_tool_ids": "compactedToolIds",
    "parent_uuid": "parentUuid",
    "logical_parent_uuid": "logicalParentUuid",
}


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def recorded_keys() -> Counter[str]:
    keys: Counter[str] = Counter()

    def metadata(value: Any) -> None:
        if isinstance(value, list):
            for item in value:
                metadata(item)
        elif isinstance(value, dict):
            keys.update(list(value))
            for name in METADATA:
                metadata(value.get(name))

    for path in sorted((recordings.need("names") / "transcripts").rglob("*.jsonl")):
        for line in path.read_bytes().split(b"\n"):
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                metadata(value)
    return keys


def test_every_recorded_envelope_key_is_in_the_table() -> None:
    keys = recorded_keys()
    assert len(keys) > 50, "the recordings weren't read"
    unknown = set(keys) - set(WIRE_NAMES.values())
    assert unknown == FOREIGN


def test_the_table_is_one_to_one() -> None:
    assert len(set(WIRE_NAMES.values())) == len(WIRE_NAMES)


@pytest.mark.parametrize(("python", "wire"), WIRE_NAMES.items())
def test_round_trip(python: str, wire: str) -> None:
    assert to_wire_name(python) == wire
    assert from_wire_name(wire) == python
    assert python == python.lower()
    assert python.isidentifier()


def test_names_outside_of_the_table_stay() -> None:
    for name in ("somethingNew", "snake_case", "", "ünï"):
        assert to_wire_name(name) == name
        assert from_wire_name(name) == name


@pytest.mark.parametrize(("python", "wire"), IRREGULAR.items())
def test_the_irregular_names_are_the_specified_ones(python: str, wire: str) -> None:
    assert to_wire_name(python) == wire


def test_all_others_are_regular_camel_case() -> None:
    odd = {python for python, wire in WIRE_NAMES.items() if camel(python) != wire}
    assert odd == {python for python, wire in IRREGULAR.items() if camel(python) != wire}
