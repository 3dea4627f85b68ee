"""Boundary metadata, read and written (WIRE.md §6; fault 52): every field optional, unknown keys kept."""

from __future__ import annotations

import json
from typing import Any

import recordings
from hypothesis import given
from hypothesis import strategies as st

from turnstream.messages import SystemMessage, decode_line, encode, raw_of, split_lines, to_wire
from turnstream.operators.compaction import (
    CompactMetadata,
    MicrocompactMetadata,
    PreservedSegment,
    apply_microcompact,
    compact_metadata,
    is_compact_boundary,
    is_microcompact_boundary,
    make_boundary,
    microcompact_metadata,
    with_metadata,
)

KNOWN = [
    "trigger",
    "preTokens",
    "userContext",
    "messagesSummarized",
    "preservedSegment",
    "headUuid",
    "anchorUuid",
    "tailUuid",
    "tokensSaved",
    "compactedToolIds",
    "clearedAttachmentUUIDs",
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
segments = st.dictionaries(st.sampled_from(KNOWN) | st.text(max_size=6), json_values, max_size=5)
objects = st.dictionaries(st.sampled_from(KNOWN) | st.text(max_size=6), json_values | segments, max_size=8)

words = st.none() | st.text(max_size=8)
counts = st.none() | st.integers(0, 10**9)
typed_segments = st.builds(PreservedSegment, head_uuid=words, anchor_uuid=words, tail_uuid=words)
typed = st.builds(
    CompactMetadata,
    trigger=words,
    pre_tokens=counts,
    user_context=words,
    messages_summarized=counts,
    preserved_segment=st.none() | typed_segments,
    extra=st.none() | st.dictionaries(st.text("xyz", min_size=1), json_values, min_size=1, max_size=2),
)
typed_micro = st.builds(
    MicrocompactMetadata,
    trigger=words,
    pre_tokens=counts,
    tokens_saved=counts,
    compacted_tool_ids=st.none() | st.lists(st.text(max_size=3), max_size=3),
    cleared_attachment_uuids=st.none() | st.lists(st.text(max_size=3), max_size=3),
)


@given(objects)
def test_any_object_is_written_as_it_was_read(value: dict[str, Any]) -> None:
    for cls in (CompactMetadata, MicrocompactMetadata, PreservedSegment):
        before = json.dumps(value, sort_keys=True)
        # As JSON: to Python 1, 1.0 and True are equal.
        assert json.dumps(cls.from_wire(value).to_wire(), sort_keys=True) == before  # type: ignore[attr-defined]
        assert json.dumps(value, sort_keys=True) == before


@given(typed)
def test_compact_metadata_is_read_as_it_was_written(metadata: CompactMetadata) -> None:
    assert CompactMetadata.from_wire(json.loads(json.dumps(metadata.to_wire()))) == metadata


@given(typed_micro)
def test_microcompact_metadata_is_read_as_it_was_written(metadata: MicrocompactMetadata) -> None:
    assert MicrocompactMetadata.from_wire(json.loads(json.dumps(metadata.to_wire()))) == metadata


@given(json_values.filter(lambda value: not isinstance(value, dict)))
def test_what_is_no_object_reads_as_empty(value: Any) -> None:
    assert CompactMetadata.from_wire(value) == CompactMetadata()
    assert MicrocompactMetadata.from_wire(value) == MicrocompactMetadata()


def test_the_wire_spelling_is_irregular() -> None:
    whole = {
        "trigger": "manual",
        "preTokens": 174247,
        "userContext": "mind the tests",
        "messagesSummarized": 41,
        "preservedSegment": {"headUuid": "h", "anchorUuid": "a", "tailUuid": "t"},
    }
    metadata = CompactMetadata.from_wire(whole)
    assert metadata == CompactMetadata(
        trigger="manual",
        pre_tokens=174247,
        user_context="mind the tests",
        messages_summarized=41,
        preserved_segment=PreservedSegment(head_uuid="h", anchor_uuid="a", tail_uuid="t"),
    )
    assert metadata.to_wire() == whole
    micro = {"compactedToolIds": ["t1"], "clearedAttachmentUUIDs": ["u1"], "tokensSaved": 5}
    assert MicrocompactMetadata.from_wire(micro).extra is None
    assert MicrocompactMetadata.from_wire(micro).to_wire() == micro


def test_a_value_that_its_field_cannot_take_is_kept_apart_until_the_field_is_set() -> None:
    metadata = CompactMetadata.from_wire({"trigger": 7, "preTokens": True, "messagesSummarized": None, "new": 1})
    assert (metadata.trigger, metadata.pre_tokens, metadata.messages_summarized) == (None, None, None)
    assert metadata.extra == {"trigger": 7, "preTokens": True, "messagesSummarized": None, "new": 1}
    assert CompactMetadata(trigger="auto", extra=metadata.extra).to_wire()["trigger"] == "auto"


def test_changed_metadata_keep_the_line_as_a_template() -> None:
    line = (
        b'{"zz":1,"type":"system","subtype":"compact_boundary","uuid":"b","timestamp":"t",'
        b'"compactMetadata":{"trigger":"auto","later":[1]}}'
    )
    boundary = decode_line(line)
    assert isinstance(boundary, SystemMessage)
    metadata = compact_metadata(boundary)
    assert metadata.extra == {"later": [1]}
    changed = with_metadata(boundary, CompactMetadata(trigger="manual", extra=metadata.extra))
    assert raw_of(boundary) == line
    assert encode(changed) == line.replace(b'"auto"', b'"manual"')
    made = make_boundary(CompactMetadata(), [])
    again = with_metadata(made, MicrocompactMetadata(trigger="auto"))
    assert to_wire(again)["microcompactMetadata"] == {"trigger": "auto"}
    assert "microcompactMetadata" not in to_wire(made)


def real_boundaries() -> list[Any]:
    found = []
    for path in sorted((recordings.need("compaction boundaries") / "transcripts").rglob("*.jsonl")):
        for line in split_lines(path.read_bytes()):
            if b"compact_boundary" in line:
                message = decode_line(line)
                if is_compact_boundary(message) or is_microcompact_boundary(message):
                    found.append(message)
    return found


def test_real_boundaries_are_read_and_written_the_same() -> None:
    boundaries = real_boundaries()
    assert sum(map(is_compact_boundary, boundaries)) == 2
    assert sum(map(is_microcompact_boundary, boundaries)) == 1
    for boundary in boundaries:
        raw = raw_of(boundary)
        assert raw is not None
        wire = json.loads(raw)
        metadata: Any
        if is_compact_boundary(boundary):
            metadata, theirs = compact_metadata(boundary), wire["compactMetadata"]
            assert (metadata.trigger, metadata.pre_tokens) == ("auto", theirs["preTokens"])
        else:
            metadata, theirs = microcompact_metadata(boundary), wire["microcompactMetadata"]
            assert metadata.compacted_tool_ids == theirs["compactedToolIds"]
            assert (metadata.pre_tokens, metadata.tokens_saved) == (60888, 21091)
            assert metadata.cleared_attachment_uuids == []
        assert metadata.extra is None
        assert json.dumps(metadata.to_wire()) == json.dumps(theirs)
        assert encode(boundary) == raw
        assert encode(with_metadata(boundary, metadata)) == raw


def test_a_real_microcompaction_whose_results_are_not_in_the_file_changes_nothing() -> None:
    path = recordings.need("a microcompacted transcript") / "transcripts/entire/cli__76-62d755ef9f-2.jsonl"
    lines = [line for line in split_lines(path.read_bytes()) if line]
    messages: list[Any] = [decode_line(line) for line in lines]
    again = apply_microcompact(messages)
    assert all(new is old for new, old in zip(again, messages, strict=True))
