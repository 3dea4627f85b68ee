"""The boundary slice and how boundaries are made (WIRE.md §6)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import compacting as c
from hypothesis import given
from hypothesis import strategies as st

from turnstream.messages import (
    SystemMessage,
    decode_line,
    encode,
    from_wire,
    to_wire,
)
from turnstream.operators import run_batches, run_stages
from turnstream.operators.compaction import (
    CompactMetadata,
    MicrocompactMetadata,
    after_boundary,
    boundary_slice,
    compact,
    compact_metadata,
    estimate_tokens,
    is_compact_boundary,
    is_microcompact_boundary,
    make_boundary,
    make_microcompact_boundary,
    microcompact_metadata,
)

make = c.maker()
BOUNDARY = make_boundary(CompactMetadata(trigger="auto"), [], factory=make)
MICRO = make_microcompact_boundary(MicrocompactMetadata(trigger="auto"), factory=make)


def test_without_boundary_the_slice_is_everything() -> None:
    messages = [make.user("a"), MICRO, make.user("b")]
    assert after_boundary(messages) == messages
    assert after_boundary([]) == []


def test_the_slice_starts_with_the_last_boundary() -> None:
    second = make_boundary(CompactMetadata(), [], factory=make)
    last = make.user("c")
    messages = [make.user("a"), BOUNDARY, make.user("b"), second, last]
    found = after_boundary(iter(messages))
    assert found == [second, last]
    assert found[0] is second
    assert after_boundary(found) == found


def test_a_microcompact_boundary_starts_no_slice() -> None:
    assert not is_compact_boundary(MICRO)
    assert is_microcompact_boundary(MICRO)
    assert after_boundary([BOUNDARY, MICRO]) == [BOUNDARY, MICRO]


@given(st.lists(st.sampled_from(["user", "boundary", "micro"]), max_size=20), st.lists(st.integers(0, 20), max_size=4))
def test_the_operator_is_the_list_function_whatever_the_batches(kinds: list[str], cuts: list[int]) -> None:
    items: list[Any] = [{"user": make.user("x"), "boundary": BOUNDARY, "micro": MICRO}[kind] for kind in kinds]
    places = sorted({0, len(items), *(cut for cut in cuts if cut <= len(items))})
    batches = [items[a:b] for a, b in pairwise(places)]
    expected = items
    for position, kind in enumerate(kinds):
        if kind == "boundary":
            expected = items[position:]
    assert after_boundary(items) == expected
    assert [item for batch in run_batches(batches, boundary_slice()) for item in batch] == expected
    assert run_stages(items, boundary_slice()) == expected


def test_a_broken_source_still_gives_the_slice() -> None:
    items = [make.user("a"), BOUNDARY, make.user("b")]
    out = [item for batch in run_batches([items], boundary_slice(), error=OSError("cut")) for item in batch]
    assert out == items[1:]


def test_the_boundary_has_the_fixed_words() -> None:
    wire = to_wire(make_boundary(CompactMetadata(trigger="manual", pre_tokens=7), [make.user("a", uuid="u1")]))
    assert {k: wire[k] for k in ("type", "subtype", "content", "level", "isMeta")} == {
        "type": "system",
        "subtype": "compact_boundary",
        "content": "Conversation compacted",
        "level": "info",
        "isMeta": False,
    }
    assert wire["compactMetadata"] == {"trigger": "manual", "preTokens": 7}
    assert wire["logicalParentUuid"] == "u1"


def test_the_microcompact_boundary_has_the_fixed_words() -> None:
    metadata = MicrocompactMetadata(
        trigger="auto", pre_tokens=9, tokens_saved=4, compacted_tool_ids=["t1"], cleared_attachment_uuids=[]
    )
    wire = to_wire(make_microcompact_boundary(metadata))
    assert (wire["subtype"], wire["content"], wire["level"]) == (
        "microcompact_boundary",
        "Context microcompacted",
        "info",
    )
    assert wire["microcompactMetadata"] == {
        "trigger": "auto",
        "preTokens": 9,
        "tokensSaved": 4,
        "compactedToolIds": ["t1"],
        "clearedAttachmentUUIDs": [],
    }
    assert "logicalParentUuid" not in wire


def test_a_boundary_without_a_message_before_has_no_logical_parent() -> None:
    assert "logicalParentUuid" not in to_wire(BOUNDARY)


def test_only_a_chain_member_is_the_logical_parent() -> None:
    before = [
        make.attachment({"type": "memory"}),
        make.progress("t", None, {}),
        make.user("shown", is_virtual=True),
        make.request_start(),
    ]
    boundary = make_boundary(CompactMetadata(), before)
    assert to_wire(boundary)["logicalParentUuid"] == before[0].uuid  # type: ignore[union-attr]


def test_a_boundary_that_was_written_and_read_is_the_same() -> None:
    boundary = make_boundary(CompactMetadata(trigger="auto", pre_tokens=1), [make.user("a")], factory=make)
    assert decode_line(encode(boundary)) == boundary


def test_fault_40_the_boundary_is_a_root_and_hangs_on_no_compacted_message() -> None:
    old = [make.user("a"), BOUNDARY, make.user("summary", is_compact_summary=True), make.user("b")]
    boundary = make_boundary(CompactMetadata(), old, factory=make)
    wire = to_wire(boundary)
    assert wire.get("parentUuid") is None
    assert wire["logicalParentUuid"] == old[-1].uuid  # type: ignore[union-attr]
    # Of two boundaries the newer one starts the context.
    assert after_boundary([*old, boundary]) == [boundary]


def test_fault_51_a_boundary_whose_logical_parent_nobody_knows_is_fine() -> None:
    boundary = from_wire(
        {**to_wire(BOUNDARY), "parentUuid": None, "logicalParentUuid": "ffffffff-0000-4000-8000-000000000000"}
    )
    messages = [boundary, make.user("12345678")]
    assert after_boundary(messages) == messages
    assert estimate_tokens(messages) == 2  # type: ignore[arg-type]


def test_fault_52_a_boundary_without_metadata_is_read_and_compacted_again() -> None:
    shapes: list[dict[str, Any]] = [{}, {"compactMetadata": None}, {"compactMetadata": {}}, {"compactMetadata": "?"}]
    shapes += [{"compactMetadata": {"preservedSegment": value}} for value in (None, 1, {}, {"tailUuid": None})]
    for shape in shapes:
        boundary = from_wire({"type": "system", "subtype": "compact_boundary", "uuid": "b1", **shape})
        assert isinstance(boundary, SystemMessage)
        metadata = compact_metadata(boundary)
        assert (metadata.trigger, metadata.pre_tokens, metadata.messages_summarized) == (None, None, None)
        talk = c.Talk()
        talk.messages.append(boundary)
        talk.prompt("first")
        talk.says()
        result = c.run(compact(talk.messages, c.Summarizer(), keep_recent=0, normalize=c.plain))
        assert result.messages[1].message["content"] == "the summary"
        assert to_wire(result.messages[0])["logicalParentUuid"] == talk.messages[-1].uuid
    empty = from_wire({"type": "system", "subtype": "microcompact_boundary"})
    assert isinstance(empty, SystemMessage)
    assert microcompact_metadata(empty) == MicrocompactMetadata()
