"""The growth benchmark: a conversation is what it says, figures are what was measured, bars are applied."""

from __future__ import annotations

import cProfile
import json
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from hashlib import sha256
from itertools import chain
from typing import Any

import msgspec
import pytest

from turnstream.bench import Decades, SessionTime, check, grow_messages, make_conversation, render, time_session
from turnstream.bench.growth import OPERATIONS, PLAIN
from turnstream.bench.runner import run
from turnstream.messages import decode_line, encode


@cache
def conversation() -> tuple[dict[str, Any], ...]:
    """5,000 messages as their wire form, read by the standard library."""
    return tuple(json.loads(encode(message)) for message in make_conversation(5_000))


def blocks(record: dict[str, Any]) -> list[dict[str, Any]]:
    content = record["message"]["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def test_a_longer_conversation_begins_with_a_shorter() -> None:
    short = [encode(message) for message in make_conversation(300)]
    assert [encode(message) for message in make_conversation(1_000)][:300] == short
    assert [encode(message) for message in make_conversation(300, seed=8)] != short
    assert make_conversation(0) == []


def test_the_same_in_every_process() -> None:
    script = (
        "from hashlib import sha256; from turnstream.bench import make_conversation; "
        "from turnstream.messages import encode; "
        "print(sha256(b''.join(map(encode, make_conversation(500)))).hexdigest())"
    )
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=env)
        assert done.stdout.strip() == sha256(b"".join(map(encode, make_conversation(500)))).hexdigest()


def test_it_is_a_transcript() -> None:
    """Every record's parent stands before it, no uuid repeats, time goes on."""
    seen: set[str] = set()
    last = ""
    for record in conversation():
        assert record["uuid"] not in seen
        if record["type"] != "progress":
            assert record["parentUuid"] is None if not seen else record["parentUuid"] in seen
            seen.add(record["uuid"])
        assert record["timestamp"] >= last
        last = record["timestamp"]
        assert decode_line(json.dumps(record).encode()).__class__.__name__ != "OpaqueRecord"


def test_it_holds_what_real_sessions_hold() -> None:
    kinds = Counter(record["type"] for record in conversation())
    assert set(kinds) == {"user", "assistant", "attachment", "progress", "system"}
    assert all(count > 150 for count in kinds.values())
    answers: dict[str, list[dict[str, Any]]] = {}
    for record in conversation():
        if record["type"] == "assistant":
            answers.setdefault(record["message"]["id"], []).append(record)
    assert all(len(blocks(record)) == 1 for records in answers.values() for record in records)
    # All messages of an answer say the same usage.
    assert all(len({json.dumps(r["message"]["usage"]) for r in records}) == 1 for records in answers.values())
    uses = [[b["id"] for r in records for b in blocks(r) if b["type"] == "tool_use"] for records in answers.values()]
    calls = [ident for ids in uses for ident in ids]
    assert len(calls) == len(set(calls)) > 500
    assert sum(len(ids) > 1 for ids in uses) > 50  # in parallel
    kinds = Counter(block["type"] for records in answers.values() for r in records for block in blocks(r))
    assert all(kinds[kind] > 100 for kind in ("thinking", "text", "tool_use"))


def test_it_holds_what_an_api_refuses_a_little_of_each() -> None:
    said = [(record["type"], block) for record in conversation() if "message" in record for block in blocks(record)]
    calls = {b["id"] for kind, b in said if kind == "assistant" and b["type"] == "tool_use"}
    results = [b["tool_use_id"] for kind, b in said if b["type"] == "tool_result"]
    assert len(results) == len(set(results))
    assert set(results) < calls
    rare = {
        "unanswered": len(calls) - len(results),
        "unsigned": sum(b["type"] == "thinking" and not b["signature"] for _, b in said),
        "empty": sum(b["type"] == "text" and not b["text"].strip() for _, b in said),
        "invalid": sum(b["type"] == "tool_use" and not isinstance(b["input"], dict) for _, b in said),
        "errors": sum(b.get("is_error") is True for _, b in said),
        "synthetic": sum(r.get("message", {}).get("model") == "<synthetic>" for r in conversation()),
        "images": sum(b["type"] == "image" for _, b in said),
    }
    assert all(0 < count < len(said) / 10 for count in rare.values()), rare


def test_each_operation_makes_something_of_it() -> None:
    before = [encode(message) for message in make_conversation(400)]
    messages = make_conversation(400)
    assert [name for name, _ in OPERATIONS] == [
        "normalize_for_api",
        "split_blocks + reorder_tool_groups",
        "MessageLookups",
    ]
    for _, operation in OPERATIONS:
        assert operation(messages) is not None
    # What is measured again and again must find the same input again.
    assert [encode(message) for message in messages] == before


def test_figures() -> None:
    told: list[str] = []
    calls: list[tuple[str, int]] = []

    def first(messages: list[Any]) -> Any:
        calls.append(("first", len(messages)))
        return messages

    def second(messages: list[Any]) -> Any:
        calls.append(("second", len(messages)))
        return len(messages)

    rows = grow_messages((10, 40), (("first", first), ("second", second)), rounds=2, tell=told.append)
    # In turn, once uncounted and twice; the small ones come to as many messages as the large one.
    assert [(name, size) for name, size in calls] == (
        [("first", 10)] * 4 + [("second", 10)] * 4 + [("first", 40), ("second", 40)]
    ) * 3
    assert told == ["growth, warming up …", "growth, round 1 of 2 …", "growth, round 2 of 2 …"]
    assert [row.operation for row in rows] == ["first", "second"]
    for row in rows:
        assert row.messages == [10, 40]
        assert len(row.us_per_message) == 2
        assert all(each > 0 for each in row.us_per_message)
        assert len(row.ratios) == 1


def test_all_sizes_go_through_the_same_messages() -> None:
    seen: dict[int, list[int]] = {}

    def look(messages: list[Any]) -> Any:
        seen.setdefault(len(messages), []).extend(map(id, messages))
        return messages

    grow_messages((5, 10, 30), (("look", look),), rounds=1)
    assert seen[5] == seen[10] == seen[30]
    assert len(set(seen[30])) == 30


def test_conversations_of_different_seeds_share_no_id() -> None:
    ids: list[set[str]] = []
    for seed in (1, 2):
        text = b"".join(encode(message) for message in make_conversation(200, seed=seed)).decode()
        ids.append(set(re.findall(r'"(?:uuid|id|tool_use_id)":"([^"]+)"', text)))
    assert len(ids[0]) > 200
    assert ids[0].isdisjoint(ids[1])


def test_an_operation_that_makes_nothing_is_told() -> None:
    with pytest.raises(RuntimeError, match="made nothing of 10 messages"):
        grow_messages((10,), (("lazy", lambda messages: []),), rounds=1)


def decades(*ratios: float) -> Decades:
    return Decades(operation="it", messages=[1, 10, 100], us_per_message=[1.0, 1.0, 1.0], ratios=list(ratios))


def test_plain_loops_have_no_bar() -> None:
    assert check((), (), [msgspec.structs.replace(decades(5.0), operation=PLAIN[0])]) == []


def calls(operation: Any, messages: list[Any]) -> int:
    """How many calls of functions it makes, Python's and C's: the same every time, whatever the machine does."""
    profile = cProfile.Profile()
    profile.runcall(operation, messages)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize(("name", "operation"), OPERATIONS, ids=[name for name, _ in OPERATIONS])
def test_the_work_for_a_message_doesnt_grow_with_the_conversation(name: str, operation: Any) -> None:
    parts = [make_conversation(800, seed=seed) for seed in range(10)]
    short = sum(calls(operation, part) for part in parts)
    long = calls(operation, list(chain.from_iterable(parts)))
    assert long < short * 1.02


@pytest.mark.parametrize(("ratios", "met"), [((1.0, 1.3), True), ((1.31, 1.0), False), ((0.9, 1.4), False)])
def test_the_bar_is_for_each_decade(ratios: tuple[float, ...], met: bool) -> None:
    (found,) = check((), (), [decades(*ratios)])
    assert (found.value, found.at_most, found.met) == (max(ratios), 1.3, met)


def test_a_session_and_a_run() -> None:
    session = time_session(200, rounds=1)
    assert session.messages == 200
    assert session.items > 0
    assert session.milliseconds > 0
    report = run(["growth"], scale=0.02, rounds=1)
    assert (report.rows, report.growth) == ([], [])
    assert [row.messages for row in report.decades] == [[20, 200, 2_000]] * 4
    assert isinstance(report.session, SessionTime)
    text = render(report)
    assert "µs a message, in" in text
    assert "normalize_for_api, a message in ten times as many" in text
    assert "a session of 2,800 messages" in text
    json.loads(msgspec.json.encode(report))


def test_on_the_command_line() -> None:
    command = [
        sys.executable,
        "-m",
        "turnstream",
        "bench",
        "--workload",
        "growth",
        "--quick",
        "--rounds",
        "1",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [row["messages"] for row in report["decades"]] == [[100, 1_000, 10_000]] * 4
    assert [check["at_most"] for check in report["checks"]] == [1.3] * 3
    assert report["session"]["messages"] == 2_800
    assert "turnstream: growth, round 1 of 1 …" in done.stderr.splitlines()
