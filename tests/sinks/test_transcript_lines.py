"""What a line looks like (WIRE.md §3, *Line*)."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transcripts import SESSION, Answer, maker, records

import turnstream.sinks.transcript.lines as lines_module
from turnstream.messages import (
    AssistantMessage,
    AttachmentMessage,
    OpaqueRecord,
    SystemMessage,
    TranscriptError,
    UserMessage,
    decode_line,
)
from turnstream.sinks.transcript import TranscriptSink
from turnstream.sinks.transcript.lines import Envelope, own_version
from turnstream.testing import virtual_time


async def written(path: Path, *messages: Any, **options: Any) -> list[bytes]:
    sink = TranscriptSink(path, **options)
    sink.on_next(messages)
    await sink.aclose()
    data = path.read_bytes()
    assert data.endswith(b"\n")
    return data[:-1].split(b"\n")


@virtual_time
async def test_keys_in_the_order_of_real_files(tmp_path: Path) -> None:
    make = maker()
    answer = Answer(make)
    items = [make.user("hi", permission_mode="plan"), answer.start(), *answer.text("ho"), *answer.end()]
    user, assistant = await written(
        tmp_path / "s.jsonl",
        *items,
        session_id=SESSION,
        cwd="/home/me/päth",
        version="2.0.1",
        git_branch="main",
        agent_id="a1",
        is_sidechain=True,
    )
    assert list(json.loads(user)) == [
        "parentUuid",
        "isSidechain",
        "userType",
        "cwd",
        "sessionId",
        "version",
        "gitBranch",
        "agentId",
        "type",
        "message",
        "uuid",
        "timestamp",
        "permissionMode",
    ]
    line = json.loads(assistant)
    assert list(line)[8:] == ["type", "message", "requestId", "uuid", "timestamp"]
    assert {k: line[k] for k in list(line)[1:8]} == {
        "isSidechain": True,
        "userType": "external",
        "cwd": "/home/me/päth",
        "sessionId": SESSION,
        "version": "2.0.1",
        "gitBranch": "main",
        "agentId": "a1",
    }
    assert line["requestId"] == "req_1"
    assert "päth".encode() in assistant, "non-ASCII as is"
    assert b'"usage":{"input_tokens":26' in assistant, "readers look for exactly these bytes"
    assert b'": ' not in assistant.replace(b"ho", b"")


@virtual_time
async def test_unknown_values_are_left_out_not_null(tmp_path: Path) -> None:
    make = maker()
    bare = make.assistant("x")
    bare.message["model"] = None
    bare.message["id"] = None
    bare.extra = {"requestId": None, "slug": None}
    (line,) = await written(tmp_path / "s.jsonl", bare)
    value = json.loads(line)
    assert [key for key, item in value.items() if item is None] == ["parentUuid"]
    assert "gitBranch" not in value
    assert "requestId" not in value
    assert value["message"]["model"] == "<unknown>", "readers drop a line without a model"
    assert "id" not in value["message"]
    assert value["message"]["container"] is None, "the API's own nulls stay"
    assert bare.message["model"] is None, "the message isn't changed"


@virtual_time
async def test_version_is_ours_and_three_numbers(tmp_path: Path) -> None:
    (line,) = await written(tmp_path / "s.jsonl", maker().user("x"))
    assert re.fullmatch(r"\d+\.\d+\.\d+", json.loads(line)["version"])


def test_version_of_a_development_build(monkeypatch: pytest.MonkeyPatch) -> None:
    for installed, expected in (("1.2.3.dev4+g5", "1.2.3"), ("10.0.0", "10.0.0"), ("1.2", "0.0.0")):
        own_version.cache_clear()
        monkeypatch.setattr(lines_module.importlib.metadata, "version", lambda _, v=installed: v)
        assert own_version() == expected
    own_version.cache_clear()


@virtual_time
async def test_what_a_read_message_says_of_itself_stays(tmp_path: Path) -> None:
    read = decode_line(
        b'{"parentUuid":"elsewhere","isSidechain":false,"userType":"internal","cwd":"/there","sessionId":"%s",'
        b'"version":"1.0.7","gitBranch":"dev","slug":"brave-owl","type":"user",'
        b'"message":{"role":"user","content":"x"},"uuid":"u1","timestamp":"2025-01-01T00:00:00.000Z",'
        b'"thinkingMetadata":{"level":"high"},"brandNew":[1]}' % SESSION.encode()
    )
    (line,) = await written(tmp_path / "s.jsonl", read, session_id=SESSION, cwd="/here")
    value = json.loads(line)
    expected = json.loads(decode_line_bytes(read))
    expected["parentUuid"] = None  # its parent isn't in this file
    assert value == expected


def decode_line_bytes(message: Any) -> bytes:
    raw: bytes = message.__dict__["raw"]
    return raw


@virtual_time
async def test_lone_surrogates_become_replacement_characters(tmp_path: Path) -> None:
    make = maker()
    result = make.tool_result("t\ud800", "out \udc8f put", tool_use_result={"std\ud83dout": "\udc8f"})
    pair = make.user("\ud83d\ude00")
    after = make.user("the writer lives")
    path = tmp_path / "s.jsonl"
    await written(path, result, pair, after, title="\ud800")
    title, first, second, third = records(path)
    assert title["customTitle"] == "\ufffd"
    assert first["message"]["content"][0]["content"] == "out \ufffd put"
    assert first["toolUseResult"] == {"std\ufffdout": "\ufffd"}
    assert second["message"]["content"] == "\U0001f600"
    assert third["message"]["content"] == "the writer lives"


@dataclasses.dataclass
class Odd:
    path: Path
    own: Any


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no")


class Point(msgspec.Struct):
    x: complex


@virtual_time
async def test_a_tools_own_output_may_be_any_object(tmp_path: Path) -> None:
    make = maker()
    loop: list[Any] = [1]
    loop.append(loop)
    deep: Any = "bottom"
    for _ in range(5_000):
        deep = [deep]
    outputs: list[Any] = [
        Odd(Path("/a"), {3}),
        Hostile(),
        Point(1j),
        {("a", 1): float("nan"), 7: [float("inf")]},
        loop,
        deep,
        1 << 100_000,
        b"\xff",
        {"\ud800": Path("x")},
    ]
    messages = [make.tool_result(f"t{n}", "x", tool_use_result=o) for n, o in enumerate(outputs)]
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    sink.on_next(messages)
    await sink.aclose()
    found = [record["toolUseResult"] for record in records(path)]
    assert len(found) == len(outputs)
    assert found[0] == {"path": "/a", "own": [3]}
    assert found[2] == {"x": "1j"}
    assert found[3] == {"('a', 1)": None, "7": [None]}
    assert found[4] == [1, "(nested too deep)"]
    assert found[7] == "b'\\xff'"
    assert found[8] == {"\ufffd": "x"}
    assert 0 < sink.statistics()["coerced_lines"] <= len(outputs)


class Bomb(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        raise RuntimeError("boom")

    def __iter__(self) -> Iterator[str]:
        return iter(["key"])

    def __len__(self) -> int:
        return 1


@virtual_time
async def test_a_message_that_cant_be_written_at_all_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    make = maker()
    bad, after = make.tool_result("t", "x", tool_use_result=Bomb()), make.user("after")
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    sink.on_next([bad, after])
    with pytest.raises(TranscriptError, match="can't be written: RuntimeError"):
        await sink.drain()
    await sink.aclose()
    assert [r["uuid"] for r in records(path)] == [after.uuid]


@virtual_time
async def test_big_integers_and_exponents_keep_their_value(tmp_path: Path) -> None:
    make = maker()
    value = {"big": 1 << 80, "small": 1e-07, "negative": -(1 << 63)}
    path = tmp_path / "s.jsonl"
    await written(path, make.tool_result("t", "x", tool_use_result=value))
    assert records(path)[0]["toolUseResult"] == value


@virtual_time
async def test_records_we_dont_model_are_kept_byte_for_byte_outside_the_chain(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    raw = [
        b'{"type":"mode",  "mode":"plan"}',
        b'{"type":"file-history-snapshot","messageId":"m","snapshot":{"a":1.50}}',
        b'{"type":"summary","summary":"s","leafUuid":"l"}',
        b"no JSON at all",
    ]
    first, second = make.user("1"), make.user("2")
    found = await written(path, first, *map(decode_line, raw), OpaqueRecord(type="x", data={"type": "x"}), second)
    assert found[1:5] == raw
    assert found[5] == b'{"type":"x"}'
    assert json.loads(found[6])["parentUuid"] == first.uuid


def test_a_line_never_holds_a_line_end() -> None:
    envelope = Envelope(
        session_id=SESSION,
        cwd="/a\nb",
        version="1.0.0",
        git_branch=None,
        user_type="external",
        is_sidechain=False,
        agent_id=None,
        clock=lambda: 0.0,
    )
    message = UserMessage(message={"role": "user", "content": "a\r\nb\u2028c\x85d"}, uuid="u", timestamp="t")
    line = envelope.line(message, "u", None)
    assert line.count(b"\n") == 1
    assert line.endswith(b"}\n")
    assert json.loads(line)["message"]["content"] == "a\r\nb\u2028c\x85d"


_texts = st.text(max_size=20) | st.sampled_from(['"', "\ud83d\ude00", "\udc8f", "a\r\nb\u2028", ""])
_payloads = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)
_bodies = st.dictionaries(
    st.sampled_from(["id", "type", "role", "model", "content", "stop_reason", "usage", "container"]), _payloads
)


@given(
    body=_bodies,
    uuid=_texts,
    parent=st.none() | _texts,
    timestamp=_texts,
    request_id=st.none() | _texts,
    index=st.none() | st.integers(0, 9),
    optional=st.dictionaries(
        st.sampled_from(["api_error", "error", "error_details", "is_virtual", "is_aborted_mid_stream", "block_index"]),
        st.none() | st.booleans() | st.integers(0, 9) | _texts,
        max_size=2,
    ),
    constants=st.fixed_dictionaries({"git_branch": st.none() | _texts, "agent_id": st.none() | _texts, "cwd": _texts}),
)
def test_the_short_way_makes_the_same_bytes_as_the_general_one(
    body: dict[str, Any],
    uuid: str,
    parent: str | None,
    timestamp: str,
    request_id: str | None,
    index: int | None,
    optional: dict[str, Any],
    constants: dict[str, Any],
) -> None:
    message = AssistantMessage(
        message=body, uuid=uuid, timestamp=timestamp, request_id=request_id, index=index, **optional
    )
    # An `extra` (here one without a key) keeps a message off the short way and adds nothing to the line.
    general = msgspec.structs.replace(message, extra={})
    options: dict[str, Any] = {"version": "1.0.0", "user_type": "external", "is_sidechain": False, **constants}
    short, long = (Envelope(session_id=SESSION, clock=lambda: 1.5, **options) for _ in range(2))
    assert short.line(message, uuid or "made", parent) == long.line(general, uuid or "made", parent)
    assert short.coerced == long.coerced


_USER_OPTIONAL = [
    name for name in UserMessage.__struct_fields__ if name not in ("message", "uuid", "timestamp", "extra")
]


@given(
    body=st.dictionaries(_texts, _payloads, max_size=3),
    uuid=_texts,
    parent=st.none() | _texts,
    timestamp=_texts,
    optional=st.dictionaries(
        st.sampled_from(_USER_OPTIONAL),
        _payloads,
    ),
    constants=st.fixed_dictionaries({"git_branch": st.none() | _texts, "agent_id": st.none() | _texts, "cwd": _texts}),
)
def test_a_user_messages_short_way_makes_the_same_bytes_as_the_general_one(
    body: dict[str, Any],
    uuid: str,
    parent: str | None,
    timestamp: str,
    optional: dict[str, Any],
    constants: dict[str, Any],
) -> None:
    message = UserMessage(message=body, uuid=uuid, timestamp=timestamp, **optional)
    general = msgspec.structs.replace(message, extra={})
    options: dict[str, Any] = {"version": "1.0.0", "user_type": "external", "is_sidechain": False, **constants}
    short, long = (Envelope(session_id=SESSION, clock=lambda: 1.5, **options) for _ in range(2))
    assert short.line(message, uuid or "made", parent) == long.line(general, uuid or "made", parent)
    assert short.coerced == long.coerced


def test_a_tools_output_of_any_kind_costs_no_line() -> None:
    """Not even one whose comparison or text raises."""

    class Hostile:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("compared")

        def __str__(self) -> str:
            raise RuntimeError("shown")

        __hash__ = None  # type: ignore[assignment]

    options: dict[str, Any] = {"version": "1.0.0", "user_type": "external", "is_sidechain": False}
    options |= {"git_branch": None, "agent_id": None, "cwd": "/w"}
    envelope = Envelope(session_id=SESSION, clock=lambda: 1.5, **options)
    message = UserMessage(message={"content": "x"}, uuid="u", timestamp="t", tool_use_result={"a": Hostile()})
    assert json.loads(envelope.line(message, "u", None))["toolUseResult"] == {"a": "(Hostile)"}


@given(
    attachment=st.dictionaries(_texts, _payloads, max_size=3),
    subtype=st.none() | _texts,
    content=_payloads,
    fields=st.dictionaries(_texts | st.sampled_from(["cwd", "level", "message", "uuid", "x"]), _payloads, max_size=3),
    level=st.none() | _texts,
    is_meta=st.none() | st.booleans(),
    parent=st.none() | _texts,
)
def test_the_short_ways_of_notices_and_attachments_make_the_same_bytes(
    attachment: dict[str, Any],
    subtype: str | None,
    content: Any,
    fields: dict[str, Any],
    level: str | None,
    is_meta: bool | None,
    parent: str | None,
) -> None:
    options: dict[str, Any] = {"version": "1.0.0", "user_type": "external", "is_sidechain": False}
    options |= {"git_branch": None, "agent_id": "a1", "cwd": "/w"}
    notice = SystemMessage(
        subtype=subtype, uuid="u", timestamp="t", content=content, level=level, is_meta=is_meta, fields=fields
    )
    for message in (AttachmentMessage(attachment=attachment, uuid="u", timestamp="t"), notice):
        short, long = (Envelope(session_id=SESSION, clock=lambda: 1.5, **options) for _ in range(2))
        general = msgspec.structs.replace(message, extra={})
        assert short.line(message, "u", parent) == long.line(general, "u", parent)
        assert short.coerced == long.coerced
