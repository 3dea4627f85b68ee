"""The JSON Schema against recordings, against all that we make, and against the decoder (WIRE.md §2)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import recordings

from turnstream.messages import (
    SUBTYPE_FIELDS,
    AssistantMessage,
    AttachmentMessage,
    CollapsedReadSearch,
    GroupedToolUse,
    Message,
    MessageFactory,
    MessageStop,
    OpaqueRecord,
    ProgressMessage,
    RequestStart,
    ResponseFailed,
    Resync,
    StreamEventMessage,
    StreamNote,
    SystemMessage,
    Tombstone,
    ToolUseSummary,
    UserMessage,
    decode_line,
    encode,
    json_schema,
    to_wire_name,
)

MAKE = MessageFactory()

TYPES: dict[str, type[msgspec.Struct]] = {
    "user": UserMessage,
    "assistant": AssistantMessage,
    "system": SystemMessage,
    "attachment": AttachmentMessage,
    "progress": ProgressMessage,
    "stream_event": StreamEventMessage,
    "stream_request_start": RequestStart,
    "tombstone": Tombstone,
    "response_failed": ResponseFailed,
    "stream_note": StreamNote,
    "resync": Resync,
    "tool_use_summary": ToolUseSummary,
    "grouped_tool_use": GroupedToolUse,
    "collapsed_read_search": CollapsedReadSearch,
}
# Lines in recordings that a hand spoilt: (file, line from 1), and what is wrong there.
SPOILT = {
    ("edge_cases.jsonl", "message is a string"),
    ("edge_cases.jsonl", "an item of the content is no object"),
    ("edge_cases.jsonl", "no type"),
}


@cache
def validator() -> Any:
    return jsonschema.Draft202012Validator(json_schema())


def problems(value: Any) -> list[str]:
    return [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:120]}" for e in validator().iter_errors(value)]


def recorded() -> list[tuple[Path, bytes, Any]]:
    folder = recordings.need("the JSON Schema") / "transcripts"
    out = []
    for path in sorted(folder.rglob("*.jsonl")):
        for line in path.read_bytes().split(b"\n"):
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                out.append((path, line, value))
    return out


def test_it_is_a_valid_schema_and_self_contained() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    json.dumps(schema)
    names = set(schema["$defs"])
    assert {ref.removeprefix("#/$defs/") for ref in refs(schema)} <= names
    assert json_schema() == schema
    schema["$defs"]["user"]["properties"]["message"]["$ref"] = "changed"
    assert json_schema() != schema


def refs(value: Any) -> set[str]:
    if isinstance(value, dict):
        here = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return here.union(*map(refs, value.values()))
    return set().union(*map(refs, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize(("name", "cls"), TYPES.items())
def test_it_names_every_key_of_every_type(name: str, cls: type[msgspec.Struct]) -> None:
    schema = json_schema()["$defs"]
    documented = set(schema[name]["properties"]) | set(schema["envelope"]["properties"])
    internal = {"extra", "index", "committed", "fields"}
    assert {to_wire_name(field) for field in cls.__struct_fields__ if field not in internal} <= documented


def test_it_names_every_subtype_with_its_fields() -> None:
    schema = json_schema()["$defs"]
    for subtype, fields in SUBTYPE_FIELDS.items():
        documented = set(schema[f"system.{subtype}"]["properties"])
        assert set(fields) == documented - {"logicalParentUuid"}, subtype


def test_every_recorded_line_but_the_spoilt_ones() -> None:
    bad = []
    lines = recorded()
    for path, _, value in lines:
        found = problems(value)
        if found:
            bad.append((path.name, found))
    assert len(lines) > 3000
    assert len(bad) == len(SPOILT), bad
    assert {name for name, _ in bad} == {name for name, _ in SPOILT}


def test_it_refuses_the_records_that_the_decoder_can_not_type() -> None:
    for path, line, value in recorded():
        message = decode_line(line)
        if isinstance(message, OpaqueRecord) and message.problem:
            assert problems(value), path


def everything() -> list[Any]:
    asked = MAKE.assistant([{"type": "tool_use", "id": "t", "name": "n", "input": {}}])
    (missing,) = MAKE.missing_results([asked])
    made: list[Any] = [
        MAKE.user("x", is_meta=True, origin="human", permission_mode="plan", image_paste_ids=[1], mcp_meta=None),
        MAKE.user([]),
        asked,
        missing,
        MAKE.assistant("", is_aborted_mid_stream=True, unfinished_tool_inputs=[{"index": 1, "raw": "{"}]),
        MAKE.api_error("x", api_error="prompt_too_long", error="invalid_request"),
        MAKE.tool_result("t", [{"type": "text", "text": "x"}], tool_use_result=None),
        MAKE.denial("t", "refused"),
        MAKE.interruption(),
        MAKE.compact_summary("x"),
        MAKE.progress("t", None, None),
        MAKE.attachment({"type": "memory"}),
        MAKE.tombstone(asked),
        MAKE.informational("x"),
        MAKE.api_retry({"type": "x"}, retry_in_ms=1.5, retry_attempt=1, max_retries=10),
        MAKE.compact_boundary(pre_tokens=1, preserved_segment={"head_uuid": "h"}, logical_parent_uuid="p"),
        MAKE.microcompact_boundary(pre_tokens=1, tokens_saved=1),
        MAKE.local_command("x"),
        MAKE.permission_retry(["x"]),
        MAKE.bridge_status("x", url="y"),
        MAKE.memory_saved(["x"]),
        MAKE.stop_hook_summary([{"command": "x", "duration_ms": 1}], tool_use_id="t"),
        MAKE.turn_duration(1.5, 2),
        MAKE.api_metrics(ttft_ms=1.5, tokens_per_s=2, input_tokens=1, output_tokens=1, message_count=1),
        MAKE.away_summary("x"),
        MAKE.agents_killed(),
        MAKE.scheduled_task_fire("x"),
        MAKE.request_start(),
        MAKE.response_failed("x", "y"),
        MAKE.note("x", "y", event_number=1, byte_offset=2),
        MAKE.resync(),
        MAKE.tool_use_summary("x", ["t"]),
        MessageStop(),
        StreamEventMessage(event={"type": "ping"}, ttft_ms=3, parent_tool_use_id="t"),
        GroupedToolUse(tool_name="n", messages=[asked], results=[missing], uuid="g"),
        CollapsedReadSearch(read_count=1, search_count=1, files=["a"], messages=[asked], uuid="c"),
        MAKE.system("brand_new", anything={"x": 1}),
    ]
    return made


def test_all_that_we_make() -> None:
    seen = set()
    for item in everything():
        value = json.loads(encode(item))
        assert problems(value) == [], value
        seen.add((value["type"], value.get("subtype")))
    assert {kind for kind, _ in seen} == set(TYPES)
    assert {subtype for _, subtype in seen} >= set(SUBTYPE_FIELDS)


@pytest.mark.parametrize(
    "value",
    [
        {"type": "brand_new", "message": 3},
        {"type": "system", "subtype": "brand_new", "durationMs": "soon"},
        {"type": "system"},
        {"type": "user", "message": {"role": "user", "content": "x"}, "unknownKey": [1]},
        {"type": "assistant", "message": {"content": [{"type": "brand_new_block"}]}},
    ],
)
def test_the_unknown_is_fine(value: Any) -> None:
    assert problems(value) == []


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("", {"message": {}}),
        ("", 3),
        ("type", {"type": 3}),
        ("", {"type": "user"}),
        ("message", {"type": "user", "message": "x"}),
        ("message/content", {"type": "user", "message": {"content": 3}}),
        ("message/content", {"type": "assistant", "message": {"content": ["x"]}}),
        ("isMeta", {"type": "user", "message": {}, "isMeta": "yes"}),
        ("uuid", {"type": "user", "message": {}, "uuid": 3}),
        ("", {"type": "attachment"}),
        ("event", {"type": "stream_event", "event": "x"}),
        ("durationMs", {"type": "system", "subtype": "turn_duration", "durationMs": "soon"}),
        ("compactMetadata", {"type": "system", "subtype": "compact_boundary", "compactMetadata": []}),
        ("messages/0", {"type": "grouped_tool_use", "toolName": "n", "messages": [{}], "results": []}),
        (
            "readCount",
            {"type": "collapsed_read_search", "readCount": True, "searchCount": 0, "files": [], "messages": []},
        ),
    ],
)
def test_the_wrong_is_refused_where_it_is(where: str, value: Any) -> None:
    found = problems(value)
    assert found
    assert any(problem.split(":")[0] == where for problem in found), found


def test_what_the_decoder_types_validates(tmp_path: Path) -> None:
    """Both say the same of a record: typed means valid (recorded lines; contents apart, which the decoder keeps)."""
    for _, line, value in recorded():
        message: Message = decode_line(line)
        if not isinstance(message, OpaqueRecord):
            assert all(problem.startswith("message/content") for problem in problems(value)), value
