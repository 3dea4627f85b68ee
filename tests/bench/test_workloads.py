"""The workloads are what they say: valid streams, of the stated sizes, the same for the same seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from hashlib import sha256
from itertools import pairwise
from typing import Any

import pytest

from turnstream.bench import WORKLOADS, Workload, make_workload


@cache
def full(name: str) -> Workload:
    return make_workload(name)


def payloads(events: list[bytes]) -> list[dict[str, Any]]:
    """By the stdlib alone; every frame is one event line, one data line and an empty one."""
    out: list[dict[str, Any]] = []
    for frame in events:
        name, data, *rest = frame.decode().split("\n")
        assert rest == ["", ""]
        assert data.startswith("data: ")
        payload = json.loads(data.removeprefix("data: "))
        assert name == f"event: {payload['type']}"
        out.append(payload)
    return out


def contents(events: list[bytes]) -> list[tuple[str, str]]:
    """One answer's blocks as (type, text or JSON), every rule of a stream's order asserted on the way."""
    first, *body, delta, stop = payloads(events)
    assert first["type"] == "message_start"
    assert first["message"]["content"] == []
    assert (delta["type"], stop["type"]) == ("message_delta", "message_stop")
    blocks: list[tuple[str, str]] = []
    kind: str | None = None
    parts: list[str] = []
    for payload in body:
        assert payload["index"] == len(blocks)
        if payload["type"] == "content_block_start":
            assert kind is None
            kind = payload["content_block"]["type"]
            parts = []
        elif payload["type"] == "content_block_stop":
            assert kind is not None
            blocks.append((kind, "".join(parts)))
            kind = None
        else:
            assert payload["type"] == "content_block_delta"
            inner = payload["delta"]
            if inner["type"] == "signature_delta":
                assert kind == "thinking"
                continue
            field = {"text": "text", "thinking": "thinking", "tool_use": "partial_json"}[str(kind)]
            assert inner["type"] == ("input_json_delta" if kind == "tool_use" else f"{kind}_delta")
            parts.append(inner[field])
    assert kind is None
    return blocks


def deltas(workload: Workload, *fields: str) -> list[str]:
    found = (p.get("delta", {}) for p in payloads(workload.events) if p["type"] == "content_block_delta")
    return [delta[field] for delta in found for field in fields if field in delta]


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_content_is_what_the_workload_says(name: str) -> None:
    workload = make_workload(name, scale=0.02)
    blocks: list[tuple[str, str]] = []
    ids: set[str] = set()
    covered = 0
    for first, last in workload.answers:
        assert first == covered
        covered = last
        blocks += contents(workload.events[first:last])
        ids.add(payloads(workload.events[first : first + 1])[0]["message"]["id"])
    assert covered == len(workload.events)
    assert len(ids) == len(workload.answers)
    assert len(blocks) == workload.blocks
    assert sum(len(text) for kind, text in blocks if kind != "tool_use") == workload.text_characters
    assert sum(len(text) for kind, text in blocks if kind == "tool_use") == workload.tool_characters
    for kind, text in blocks:
        if kind == "tool_use":
            assert isinstance(json.loads(text), dict)


def test_a_is_250000_small_thinking_and_text_deltas() -> None:
    workload = full("A")
    assert len(deltas(workload, "thinking")) == 125_000
    assert len(deltas(workload, "text")) == 125_000
    texts = deltas(workload, "thinking", "text")
    assert len(texts) == 250_000
    assert max(map(len, texts)) < 40
    data = workload.data()
    for wanted in (rb"\"", rb"\n", rb"\t", rb"\\", "🛶".encode(), "👩‍💻".encode(), "漢字".encode(), "é".encode()):
        assert wanted in data
    assert len(workload.answers) == 1
    assert not workload.fresh


@pytest.mark.parametrize(
    ("name", "characters"), [("B", 2_000_000), ("B/2", 1_000_000), ("B/4", 500_000), ("B/8", 250_000)]
)
def test_b_is_one_tool_input_in_fragments_of_20_characters(name: str, characters: int) -> None:
    workload = full(name)
    fragments = deltas(workload, "partial_json")
    assert {len(fragment) for fragment in fragments[:-1]} == {20}
    assert len(fragments[-1]) <= 20
    whole = "".join(fragments)
    assert len(json.loads(whole)["content"]) == characters
    assert workload.blocks == 1
    # Escapes are cut in two, as they are in the field.
    assert any(fragment.endswith("\\") and not fragment.endswith("\\\\") for fragment in fragments)


def test_c_is_2000_short_answers_with_tools() -> None:
    workload = full("C")
    assert len(workload.answers) == 2_000
    assert max(last - first for first, last in workload.answers) < 30
    for first, last in workload.answers:
        assert [kind for kind, _ in contents(workload.events[first:last])] == ["text", "tool_use"]
    assert workload.fresh


def test_d_is_50_mb_of_2_kb_deltas_in_answers_of_1_mb() -> None:
    workload = full("D")
    sizes = [len(text.encode()) for text in deltas(workload, "text")]
    assert sum(sizes) >= 50_000_000
    # Cut at a whole character: the last one may not have fitted.
    assert min(sizes) > 2_048 - 4
    assert max(sizes) <= 2_048
    assert len(workload.answers) in (50, 51)
    for first, last in workload.answers[:-1]:
        assert 0.98e6 < sum(map(len, workload.events[first:last])) < 1.2e6


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_seed_decides(name: str) -> None:
    one = make_workload(name, scale=0.01)
    assert one == make_workload(name, scale=0.01, seed=7)
    assert one.data() != make_workload(name, scale=0.01, seed=8).data()


def test_the_same_bytes_in_every_process() -> None:
    program = (
        "from hashlib import sha256; from turnstream.bench import make_workload;"
        "print(sha256(make_workload('C', scale=0.01).data()).hexdigest())"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert done.stdout.strip() == sha256(make_workload("C", scale=0.01).data()).hexdigest()


def test_chunks_are_cut_anywhere_and_lose_nothing() -> None:
    workload = make_workload("A", scale=0.01)
    chunks = workload.chunks(997)
    assert {len(chunk) for chunk in chunks[:-1]} == {997}
    assert b"".join(chunks) == workload.data()
    # in the middle of a character, of a frame, of an escape
    assert any(chunk[0] & 0xC0 == 0x80 for chunk in chunks)
    assert sum(chunk.startswith(b"event: ") for chunk in chunks) < len(chunks) / 10
    assert any(one.endswith(b"\\") and two[:1] in b'"nt\\' for one, two in pairwise(workload.chunks(61)))


@pytest.mark.parametrize("size", [0, 100, 16_384])
def test_chunks_by_answer(size: int) -> None:
    workload = make_workload("C", scale=0.01)
    answers = workload.answer_chunks(size)
    assert len(answers) == len(workload.answers)
    for (first, last), chunks in zip(workload.answers, answers, strict=True):
        assert b"".join(chunks) == b"".join(workload.events[first:last])
        if size == 0:
            assert chunks == workload.events[first:last]
        else:
            assert max(map(len, chunks)) <= size


def test_one_event_a_chunk() -> None:
    workload = make_workload("A", scale=0.001)
    assert workload.chunks(0) == workload.events


@pytest.mark.parametrize("name", ["X", "", "B/", "B/0", "B/x", "B/²", "b", "B/-1"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no workload"):
        make_workload(name)
