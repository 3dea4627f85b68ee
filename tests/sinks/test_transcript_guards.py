"""Byte guards: what is too large is replaced, counted and reported, never silently lost (WIRE.md §3; fault 46)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transcripts import Answer, maker, parents, records, uuids

from turnstream.messages import TranscriptError, UserMessage, decode_line
from turnstream.sinks.transcript import Limits, TranscriptLimitError, TranscriptSink
from turnstream.sinks.transcript.guards import clipped, stand_in
from turnstream.testing import virtual_time


@virtual_time
async def test_fault_46_a_record_over_the_limit_is_replaced_by_a_marked_stand_in(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, limits=Limits(record=20_000))
    first, huge, last = make.user("1"), make.user("start of it " + "x" * 50_000), make.user("2")
    sink.on_next([first, huge, last])
    with pytest.raises(
        TranscriptLimitError, match=f"record {huge.uuid} of 5.,... bytes.*limit of a record.*20,000"
    ) as e:
        await sink.drain()
    assert (e.value.guard, e.value.limit, e.value.uuid) == ("record", 20_000, huge.uuid)
    assert e.value.size > 50_000
    assert isinstance(e.value, TranscriptError)
    assert e.value.file == str(path)
    await sink.drain()
    await sink.aclose()
    assert list(parents(path).items()) == [(first.uuid, None), (huge.uuid, first.uuid), (last.uuid, huge.uuid)]
    record = records(path)[1]
    assert record["leftOut"] == {"bytes": e.value.size, "limit": 20_000, "guard": "record"}
    assert record["message"]["role"] == "user"
    assert record["message"]["content"].startswith("start of it xxx")
    assert "48,012 more characters left out" in record["message"]["content"]
    assert path.stat().st_size < 5000
    assert sink.statistics()["records_over_limit"] == 1


@virtual_time
async def test_a_stand_in_of_an_answer_keeps_ids_usage_and_tool_calls(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, limits=Limits(record=10_000))
    answer = Answer(make, "msg_9")
    big = {"type": "tool_use", "id": "toolu_1", "name": "Write", "input": {"text": "y" * 30_000}}
    thought = {"type": "thinking", "thinking": "z" * 30_000, "signature": "c2ln"}
    sink.on_next([answer.start(), *answer.block(thought), *answer.block(big), *answer.end(310, "tool_use")])
    result = make.tool_result("toolu_1", "r" * 30_000, source=answer.messages[1], tool_use_result={"out": "r" * 30_000})
    sink.on_next([result])
    with pytest.raises(TranscriptLimitError, match="and 2 more"):
        await sink.aclose()
    thinking, tool, outcome = records(path)
    for record in (thinking, tool):
        assert record["message"]["id"] == "msg_9"
        assert record["message"]["model"] == "claude-test-1"
        assert record["message"]["usage"]["output_tokens"] == 310
        assert record["message"]["stop_reason"] == "tool_use"
        assert record["requestId"] == "req_1"
    (block,) = thinking["message"]["content"]
    assert "signature" not in block, "what was signed isn't there any more"
    (block,) = tool["message"]["content"]
    assert (block["type"], block["id"], block["name"]) == ("tool_use", "toolu_1", "Write")
    (block,) = outcome["message"]["content"]
    assert (block["type"], block["tool_use_id"]) == ("tool_result", "toolu_1")
    assert "toolUseResult" not in outcome
    assert outcome["parentUuid"] == tool["uuid"]


@virtual_time
async def test_fault_46_a_full_session_goes_on_with_stand_ins(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, limits=Limits(session=100_000))
    talk = [make.user(f"{n} " + "x" * 10_000) for n in range(30)]
    for message in talk:
        sink.append(message)
    with pytest.raises(TranscriptLimitError, match=r"limit of the session.*more\)") as caught:
        await sink.drain()
    assert caught.value.guard == "session"
    await sink.aclose()
    assert uuids(path) == [message.uuid for message in talk], "the chain is whole"
    assert list(parents(path).values()) == [None, *uuids(path)[:-1]]
    cut = [r for r in records(path) if "leftOut" in r]
    assert sink.statistics()["records_over_session_limit"] == len(cut) > 15
    assert all(r["leftOut"]["guard"] == "session" for r in cut)
    assert path.stat().st_size < 100_000 + 30 * 1000
    # The limit counts what the file held before.
    again = TranscriptSink(path, append=True, limits=Limits(session=100_000))
    again.append(make.user("y" * 10_000))
    with pytest.raises(TranscriptLimitError):
        await again.aclose()
    # Small messages are written as they are: a stand-in would be larger.
    more = TranscriptSink(path, append=True, limits=Limits(session=100_000))
    await more.record([make.user("short")])
    await more.aclose()
    assert records(path)[-1]["message"]["content"] == "short"


@virtual_time
async def test_side_files_count_for_the_session_and_none_is_written_when_it_is_full(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, limits=Limits(session=50_000, tool_result=5_000))
    await sink.record([make.tool_result("t1", "x" * 40_000)])
    sink.append(make.tool_result("t2", "y" * 40_000))
    with pytest.raises(TranscriptLimitError):
        await sink.drain()
    await sink.aclose()
    assert [p.name for p in (tmp_path / "s" / "tool-results").iterdir()] == ["t1.txt"]
    assert "sideFiles" not in records(path)[1]
    assert records(path)[1]["message"]["content"][0]["tool_use_id"] == "t2"


@virtual_time
async def test_limits_can_be_taken_away_and_defaults_are_generous(tmp_path: Path) -> None:
    assert Limits().record == 64 << 20
    assert Limits().session == 4 << 30
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, limits=Limits(record=None, session=None))
    await sink.record([make.user("x" * (65 << 20))])
    await sink.aclose()
    assert path.stat().st_size > 65 << 20
    with pytest.raises(ValueError, match="record must not be negative"):
        Limits(record=-1)


@virtual_time
async def test_an_unknown_record_over_the_limit(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, limits=Limits(record=10_000))
    lines = [b'{"type":"file-history-snapshot","messageId":"m","files":"%s"}' % (b"x" * 20_000), b"{broken" * 3000]
    sink.on_next([make.user("1"), *map(decode_line, lines)])
    with pytest.raises(TranscriptLimitError, match="a record of 20,0"):
        await sink.drain()
    await sink.aclose()
    _, snapshot, broken = records(path)
    assert (snapshot["type"], snapshot["messageId"]) == ("file-history-snapshot", "m")
    assert "files" not in snapshot
    assert broken["leftOut"]["bytes"] == 7 * 3000 + 1


@pytest.mark.parametrize(
    "content",
    [
        "x" * 100_000,
        [{"type": "text", "text": "x" * 100_000}],
        [{"type": "image", "source": {"data": "A" * 100_000}}, {"type": "text", "text": "look"}],
        [{"type": "text", "text": "short"}] * 10_000,
        [{"type": "tool_result", "tool_use_id": f"t{n}", "content": [{"type": "text", "text": "x" * 200}]} for n in range(500)],
        [{"type": "document", "source": {"data": "A" * 100_000}}],
        [3, None, "odd", {"no": "type"}, {"type": 7, "x": "y" * 100_000}],
        {"not": "a list", "x": "y" * 100_000},
        None,
    ],
)  # fmt: skip
@pytest.mark.parametrize("guard", ["record", "session"])
def test_stand_ins_of_any_content(content: Any, guard: Any) -> None:
    record = {
        "parentUuid": None,
        "sessionId": "s",
        "type": "user",
        "message": {"role": "user", "content": content},
        "uuid": "u",
        "timestamp": "2025-01-01T00:00:00.000Z",
        "isMeta": True,
        "toolUseResult": {"x": "y" * 100_000},
        "attachment": {"type": "memory", "content": "y" * 100_000},
    }
    line = json.dumps(record).encode() + b"\n"
    short = stand_in(line, limit=5, guard=guard)
    assert short.endswith(b"\n")
    assert len(short) < len(line) / 2
    found = json.loads(short)
    for key in ("parentUuid", "sessionId", "type", "uuid", "timestamp", "isMeta"):
        assert found[key] == record[key]
    assert found["attachment"] == {"type": "memory"}
    assert found["message"]["role"] == "user"
    assert found["leftOut"] == {"bytes": len(line), "limit": 5, "guard": guard}
    blocks = found["message"]["content"]
    if isinstance(content, list):
        assert isinstance(blocks, list)
        ids = [b["tool_use_id"] for b in content if isinstance(b, dict) and "tool_use_id" in b]
        assert [b["tool_use_id"] for b in blocks if isinstance(b, dict) and "tool_use_id" in b] == ids


def test_clipped_says_how_much_is_missing() -> None:
    assert clipped("abc", 3) == "abc"
    assert clipped("abcdef", 3) == "abc\n[3 more characters left out]"
    assert clipped("x" * 1500, 0) == "[1,500 characters left out]"


@virtual_time
async def test_fault_46_and_47_ten_thousand_progress_items_add_nothing(tmp_path: Path) -> None:
    make = maker()
    sizes = []
    for count in (0, 10_000):
        path = tmp_path / f"{count}.jsonl"
        sink = TranscriptSink(path, session_id="s", cwd="/w")
        one, two = make.user("1", timestamp="t"), make.user("2", timestamp="t")
        await sink.record([one])
        for number in range(count):
            sink.on_next([make.progress("toolu_1", None, {"type": "bash_progress", "output": "x" * 100, "n": number})])
        await sink.record([two])
        await sink.aclose()
        sizes.append(path.stat().st_size)
        assert isinstance(one, UserMessage)
    assert sizes[0] == sizes[1]
