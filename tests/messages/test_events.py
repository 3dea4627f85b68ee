"""The typed events: lossless, one class whatever unknown keys come (WIRE.md §1, events)."""

from __future__ import annotations

import copy
import json
from typing import Any, get_args

import frames
import msgspec
import pytest
import recordings
from hypothesis import given
from hypothesis import strategies as st

from turnstream.messages import (
    CitationsDelta,
    CompactionDelta,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    ErrorEvent,
    InputJsonDelta,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    SignatureDelta,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    UnknownDelta,
    UnknownEvent,
    delta_to_wire,
    delta_type,
    event_from_wire,
    event_to_wire,
    event_type,
)
from turnstream.messages.events import EVENT_CLASSES

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
MORE = st.dictionaries(st.sampled_from(["service", "obfuscation", "extra", "x-y", "", "Type", "at"]), JSON, max_size=3)

PLAIN: list[tuple[dict[str, Any], type]] = [
    (frames.start(), MessageStart),
    (frames.opens_text(0), ContentBlockStart),
    (frames.text(0, "hi"), ContentBlockDelta),
    (frames.thinks(1, "", estimated_tokens=7), ContentBlockDelta),
    (frames.signs(1, "c2ln"), ContentBlockDelta),
    (frames.args(2, '{"a'), ContentBlockDelta),
    (frames.cites(0, {"type": "page", "n": 1}), ContentBlockDelta),
    (frames.delta(3, "compaction_delta", content=None), ContentBlockDelta),
    (frames.delta(3, "compaction_delta", content="c", encrypted_content="e"), ContentBlockDelta),
    (frames.closes(0), ContentBlockStop),
    (frames.turn("end_turn", context_management={"a": 1}), MessageDelta),
    ({"type": "message_delta", "delta": {}, "usage": {}, "context_management": None}, MessageDelta),
    (frames.STOP, MessageStop),
    (frames.PING, Ping),
    (frames.fails(), ErrorEvent),
]
IDS = [f"{payload['type']}{number}" for number, (payload, _) in enumerate(PLAIN)]


@pytest.mark.parametrize(("payload", "cls"), PLAIN, ids=IDS)
def test_an_event_is_of_its_class_and_writes_back_what_came(payload: dict[str, Any], cls: type) -> None:
    before = copy.deepcopy(payload)
    event = event_from_wire(payload)
    assert type(event) is cls
    assert event_type(event) == payload["type"]
    assert event_to_wire(event) == before
    assert payload == before, "the payload was changed"


@pytest.mark.parametrize(("payload", "cls"), PLAIN, ids=IDS)
def test_the_typed_decoder_and_the_untyped_path_build_equal_events(payload: dict[str, Any], cls: type) -> None:
    typed = msgspec.json.decode(json.dumps(payload).encode(), type=cls)
    assert typed == event_from_wire(payload)


@pytest.mark.parametrize(("payload", "cls"), PLAIN, ids=IDS)
@given(more=MORE, in_delta=MORE)
def test_unknown_keys_give_the_same_class_and_come_back(
    payload: dict[str, Any], cls: type, more: dict[str, Any], in_delta: dict[str, Any]
) -> None:
    whole = {**payload, **{k: v for k, v in more.items() if k not in payload}}
    if cls is ContentBlockDelta:
        whole["delta"] = {**payload["delta"], **{k: v for k, v in in_delta.items() if k not in payload["delta"]}}
    event = event_from_wire(whole)
    assert type(event) is cls
    assert event_to_wire(event) == whole
    if cls is ContentBlockDelta:
        assert type(event.delta) is not UnknownDelta  # type: ignore[union-attr]


def test_unknown_keys_are_in_extra() -> None:
    event = event_from_wire({"type": "ping", "server": "a", "extra": 1})
    assert event == Ping(extra={"server": "a", "extra": 1})
    delta = event_from_wire(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a", "x": 1}}
    )
    assert delta == ContentBlockDelta(delta=TextDelta("a", extra={"x": 1}), index=0)


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({"type": "content_block_stop", "index": "0"}, "index"),
        ({"type": "content_block_stop", "index": True}, "index"),
        ({"type": "content_block_stop", "index": 1.5}, "index"),
        ({"type": "message_delta", "usage": [1]}, "usage"),
        ({"type": "message_delta", "delta": "text"}, "delta"),
        ({"type": "message_start", "message": None}, "message"),
    ],
)
def test_a_value_of_a_foreign_type_is_kept_beside(payload: dict[str, Any], field: str) -> None:
    event = event_from_wire(payload)
    assert event.extra == {field: payload[field]}  # type: ignore[union-attr]
    assert event_to_wire(event) == payload


def test_an_unknown_type_is_opaque_and_whole() -> None:
    payload = {"type": "vendor_event", "a": [1, {"b": None}]}
    event = event_from_wire(payload)
    assert event == UnknownEvent("vendor_event", payload)
    assert event_type(event) == "vendor_event"
    assert event_to_wire(event) is payload


@pytest.mark.parametrize(
    ("delta", "kind"),
    [
        ({"type": "vendor_delta", "x": 1}, "vendor_delta"),
        ({"text": "no type"}, None),
        ({"type": 7, "text": "a"}, None),
        ({"type": "text_delta"}, "text_delta"),
        ({"type": "text_delta", "text": None}, "text_delta"),
        ({"type": "input_json_delta", "partial_json": {"a": 1}}, "input_json_delta"),
        ({"type": "citations_delta"}, "citations_delta"),
        ("a string", None),
        ([1], None),
        (None, None),
    ],
)
def test_a_delta_that_we_cannot_type_is_opaque_in_a_normal_event(delta: Any, kind: str | None) -> None:
    payload = {"type": "content_block_delta", "index": 2, "delta": delta}
    event = event_from_wire(payload)
    assert event == ContentBlockDelta(delta=UnknownDelta(kind, delta), index=2)
    assert event_to_wire(event) == payload


# -- what says the type ------------------------------------------------------------------------------


def test_the_json_type_beats_the_event_name() -> None:
    assert event_from_wire({"type": "ping"}, "message_stop") == Ping()


def test_the_event_name_is_the_fallback() -> None:
    assert event_from_wire({"index": 3}, "content_block_stop") == ContentBlockStop(index=3)
    assert event_from_wire({"a": 1}, "vendor") == UnknownEvent("vendor", {"a": 1})
    assert event_from_wire({"a": 1}) == UnknownEvent(None, {"a": 1})


@pytest.mark.parametrize("name", [None, "error", "message", "content_block_delta"])
def test_a_bare_error_is_an_error_event_whatever_its_frame(name: str | None) -> None:
    assert event_from_wire({"error": {"type": "overloaded_error"}}, name) == ErrorEvent(
        error={"type": "overloaded_error"}
    )


def test_a_type_that_is_no_string_is_kept() -> None:
    payload = {"type": 5, "index": 1}
    event = event_from_wire(payload, "content_block_stop")
    assert event == ContentBlockStop(index=1, extra={"type": 5})
    assert event_to_wire(event) == payload


@pytest.mark.parametrize("block", [..., None, "text", []])
def test_a_block_start_without_its_block_is_an_error(block: Any) -> None:
    payload = {"type": "content_block_start", "index": 0}
    if block is not ...:
        payload["content_block"] = block
    with pytest.raises(ValueError, match="content_block"):
        event_from_wire(payload)


@pytest.mark.parametrize("delta", [..., None, {}])
def test_a_delta_event_without_delta_is_opaque_and_no_error(delta: Any) -> None:
    payload: dict[str, Any] = {"type": "content_block_delta", "index": 0}
    if delta is not ...:
        payload["delta"] = delta
    event = event_from_wire(payload)
    assert isinstance(event, ContentBlockDelta)
    assert isinstance(event.delta, UnknownDelta)


# -- names and types ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delta", "kind"),
    [
        (TextDelta("a"), "text_delta"),
        (InputJsonDelta("{"), "input_json_delta"),
        (ThinkingDelta("a"), "thinking_delta"),
        (SignatureDelta("s"), "signature_delta"),
        (CitationsDelta({}), "citations_delta"),
        (CompactionDelta(content="c"), "compaction_delta"),
        (UnknownDelta("x", {"type": "x"}), "x"),
    ],
)
def test_delta_types(delta: Any, kind: str) -> None:
    assert delta_type(delta) == kind
    assert delta_to_wire(delta)["type"] == kind


def test_every_event_class_is_in_the_union() -> None:
    assert set(get_args(StreamEvent)) == EVENT_CLASSES


def test_absent_fields_are_not_written() -> None:
    assert event_to_wire(MessageDelta()) == {"type": "message_delta"}
    assert event_to_wire(ContentBlockStop()) == {"type": "content_block_stop"}
    assert delta_to_wire(ThinkingDelta("")) == {"type": "thinking_delta", "thinking": ""}
    assert delta_to_wire(CompactionDelta()) == {"type": "compaction_delta"}
    assert delta_to_wire(CompactionDelta(content=None)) == {"type": "compaction_delta", "content": None}


@pytest.mark.parametrize("name", recordings.names((".sse",)))
def test_every_recorded_event_comes_back_whole(name: str) -> None:
    for block in recordings.read(name).replace(b"\r\n", b"\n").split(b"\n\n"):
        data = [line[5:] for line in block.split(b"\n") if line.startswith(b"data:")]
        try:
            payload = json.loads(b"\n".join(data))
        except ValueError:
            continue
        if not isinstance(payload, dict) or not isinstance(payload.get("type"), str):
            continue
        try:
            event = event_from_wire(payload)
        except ValueError:
            assert payload["type"] == "content_block_start"
            continue
        expected = {k: v for k, v in payload.items() if not (k == "index" and v is None)}
        if payload["type"] == "content_block_delta":
            expected.setdefault("delta", None)
        assert event_to_wire(event) == expected
