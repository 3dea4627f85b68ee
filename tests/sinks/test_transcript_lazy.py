"""When lines are written (WIRE.md §3, *When*): 100 ms after the answer's end, 5 s, drain. On a virtual clock."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from transcripts import Answer, maker, records, uuids

from turnstream.messages import (
    AssistantMessage,
    ErrorEvent,
    MessageStop,
    RequestStart,
    StreamNote,
    decode_line,
)
from turnstream.operators.batch import Batch, StreamKey
from turnstream.sinks.transcript import TranscriptSink
from turnstream.sinks.transcript.lazy import Entry, LazyQueue, OpenAnswer, weigh
from turnstream.testing import VirtualLoop, virtual_time


def lines(path: Path) -> int:
    return len(records(path)) if path.exists() else 0


async def settle_writes() -> None:
    """Let writes that were started come back; virtual time passes only by the given bit."""
    await asyncio.sleep(0.0001)


@virtual_time
async def test_an_answers_lines_go_100_ms_after_its_end_and_the_usage_is_final(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    answer = Answer(make)
    sink.on_next([answer.start(), *answer.text("one"), *answer.text("two")])
    await asyncio.sleep(1)
    sink.on_next(answer.end(output_tokens=310))
    await asyncio.sleep(0.099)
    assert lines(path) == 0
    await asyncio.sleep(0.002)
    assert [r["message"]["usage"]["output_tokens"] for r in records(path)] == [310, 310]
    assert [r["message"]["stop_reason"] for r in records(path)] == ["end_turn", "end_turn"]
    await sink.aclose()


@virtual_time
async def test_in_a_long_answer_all_lines_but_the_newest_go_after_5_s(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    answer = Answer(make)
    sink.on_next([answer.start(), *answer.text("one")])
    await asyncio.sleep(30)
    assert lines(path) == 0, "the newest line of an open answer waits for its end"
    sink.on_next(answer.text("two"))
    await settle_writes()
    assert lines(path) == 1, "the first one is older than 5 s and no longer the newest"
    sink.on_next(answer.text("three"))
    await asyncio.sleep(4.9)
    assert lines(path) == 1
    await asyncio.sleep(0.2)
    assert lines(path) == 2
    sink.on_next(answer.end(output_tokens=310))
    await asyncio.sleep(0.2)
    found = records(path)
    assert [r["message"]["content"][0]["text"] for r in found] == ["one", "two", "three"]
    assert found[-1]["message"]["usage"]["output_tokens"] == 310, "the last line has the final usage"
    await sink.aclose()


@pytest.mark.parametrize("how", ["stop", "failed", "note", "request", "restart"])
def test_every_end_of_an_answer_counts(tmp_path: Path, how: str) -> None:
    @virtual_time
    async def check() -> None:
        make = maker()
        path = tmp_path / "s.jsonl"
        sink = TranscriptSink(path)
        answer = Answer(make)
        ends: dict[str, list[Any]] = {
            "stop": [MessageStop()],
            "failed": [ErrorEvent({"type": "overloaded_error"}), *answer.fail()],
            "note": [StreamNote(kind="no_message_stop", message="")],
            "request": [RequestStart(attempt=2)],
            "restart": [Answer(make, "msg_2").start()],
        }
        sink.on_next([answer.start(), *answer.text("one")])
        await asyncio.sleep(10)
        assert lines(path) == 0
        sink.on_next(ends[how])
        await asyncio.sleep(0.11)
        assert lines(path) == 1
        await sink.aclose()

    check()


@virtual_time
async def test_what_is_no_end_is_none(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    answer = Answer(make)
    # The same start again before any block: the same answer.
    sink.on_next([answer.start(), answer.start(), *answer.text("one"), answer.delta()])
    sink.on_next([ErrorEvent({"type": "x"}), StreamNote(kind="index_missing", message="")])
    await asyncio.sleep(60)
    assert lines(path) == 0
    await sink.aclose()
    assert lines(path) == 1


@virtual_time
async def test_a_sub_agents_end_is_not_ours(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    ours, theirs = Answer(make, "msg_ours"), Answer(make, "msg_theirs")
    agent = StreamKey(None, "toolu_agent")
    sink.on_next(Batch([ours.start(), *ours.text("ours")]))
    sink.on_next(Batch([theirs.start(), *theirs.text("theirs"), *theirs.end()], None, agent))
    await asyncio.sleep(60)
    assert lines(path) == 0, "behind our open answer's newest line everything waits"
    sink.on_next(Batch(ours.end(77)))
    await asyncio.sleep(0.11)
    assert [r["message"]["usage"]["output_tokens"] for r in records(path)] == [77, 310]
    await sink.aclose()


@virtual_time
async def test_order_is_kept_what_is_behind_a_waiting_line_waits(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    before, behind, notice = make.user("1"), make.user("2"), make.system("informational", "x")
    answer = Answer(make)
    sink.on_next([before, answer.start(), *answer.text("a"), behind, notice])
    await settle_writes()
    assert uuids(path) == [before.uuid], "a user message with nothing before it goes at once"
    await asyncio.sleep(9)
    sink.on_next(answer.end())
    await asyncio.sleep(0.11)
    assert uuids(path) == [before.uuid, answer.messages[0].uuid, behind.uuid, notice.uuid]
    await sink.aclose()


@virtual_time
async def test_record_and_drain_force_everything_out(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    answer = Answer(make)
    user = make.user("typed while it streams")
    sink.on_next([answer.start(), *answer.text("one")])
    await sink.record([user])
    assert uuids(path) == [answer.messages[0].uuid, user.uuid]
    sink.on_next(answer.text("two"))
    await sink.drain()
    assert lines(path) == 3
    await sink.aclose()


@virtual_time
async def test_record_without_waiting_starts_but_leaves_the_open_answers_newest_line(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    answer = Answer(make)
    user, result = make.user("1"), make.tool_result("t1", "x")
    await sink.record([user], wait=False)
    await settle_writes()
    assert uuids(path) == [user.uuid]
    sink.on_next([answer.start(), *answer.text("one"), *answer.tool("t1")])
    assert await sink.record([result], wait=False) == result.uuid
    await settle_writes()
    assert uuids(path) == [user.uuid, answer.messages[0].uuid]
    sink.on_next(answer.end(99))
    await settle_writes()
    assert lines(path) == 4, "what was hastened goes at the end, without the 100 ms"
    assert records(path)[2]["message"]["usage"]["output_tokens"] == 99
    await sink.aclose()


@virtual_time
async def test_the_end_of_the_run_lets_everything_go(tmp_path: Path) -> None:
    for number, end in enumerate(("on_completed", "on_error")):
        make = maker()
        path = tmp_path / f"{number}.jsonl"
        sink = TranscriptSink(path)
        answer = Answer(make)
        sink.on_next([answer.start(), *answer.text("one")])
        if end == "on_error":
            sink.on_error(RuntimeError("broke"))
        else:
            sink.on_completed()
        await settle_writes()
        assert lines(path) == 1
        # No answer is open any more: what is handed over afterwards waits for no end.
        sink.append(answer.message({"type": "text", "text": "late"}))
        await asyncio.sleep(5.1)
        assert lines(path) == 2
        await sink.aclose()


@virtual_time
async def test_final_messages_dont_wait(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    answer = Answer(make)
    read = decode_line(
        b'{"type":"assistant","uuid":"r","timestamp":"2025-01-01T00:00:00.000Z",'
        b'"message":{"id":"msg_r","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null}}'
    )
    cut = answer.message({"type": "text", "text": "cut"})
    cut.is_aborted_mid_stream = True
    sink.on_next([make.assistant("synthetic"), make.api_error("too long"), read, answer.start(), cut])
    await settle_writes()
    assert lines(path) == 4
    await sink.aclose()


@virtual_time
async def test_given_messages_belong_to_the_open_answer_with_their_id(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    answer, other = Answer(make, "msg_1"), Answer(make, "msg_other")
    sink.on_next([answer.start()])
    sink.append(answer.message({"type": "text", "text": "a"}))
    await asyncio.sleep(20)
    assert lines(path) == 0
    sink.on_next(answer.end(55))
    await asyncio.sleep(0.11)
    assert records(path)[0]["message"]["usage"]["output_tokens"] == 55
    # Nothing was seen of its stream: 5 s, or 100 ms if it has a stop_reason.
    sink.append(other.message({"type": "text", "text": "b"}))
    await asyncio.sleep(4.9)
    assert lines(path) == 1
    await asyncio.sleep(0.2)
    assert lines(path) == 2
    late = other.message({"type": "text", "text": "c"})
    late.message["stop_reason"] = "end_turn"
    sink.append(late)
    await asyncio.sleep(0.11)
    assert lines(path) == 3
    await sink.aclose()


@virtual_time
async def test_an_answer_without_message_start_is_open_too(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    answer = Answer(make, "msg_made_up")
    sink.on_next(answer.text("one"))
    await asyncio.sleep(20)
    assert lines(path) == 0
    sink.on_next(answer.fail())
    await asyncio.sleep(0.11)
    assert lines(path) == 1
    await sink.aclose()


@virtual_time
async def test_one_timer_however_many_answers(tmp_path: Path) -> None:
    make = maker()
    sink = TranscriptSink(tmp_path / "s.jsonl")
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    for number in range(3_000):
        answer = Answer(make, f"msg_{number}")
        sink.on_next([answer.start(), *answer.text("a"), *answer.end()])
        assert len(loop.pending_timers()) <= 1
    await sink.aclose()
    assert loop.pending_timers() == []
    assert lines(tmp_path / "s.jsonl") == 3_000


@virtual_time
async def test_no_timer_is_left_after_close(tmp_path: Path) -> None:
    make = maker()
    sink = TranscriptSink(tmp_path / "s.jsonl")
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    answer = Answer(make)
    sink.on_next([answer.start(), *answer.text("a"), *answer.text("b")])
    assert len(loop.pending_timers()) == 1
    await sink.aclose()
    assert loop.pending_timers() == []


@virtual_time
async def test_a_tombstone_lets_what_is_behind_a_waiting_line_go_at_once(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    answer, notice = Answer(make), make.system("informational", "x")
    sink.on_next([answer.start(), *answer.text("taken back"), *answer.end()])
    sink.on_next([notice])
    await settle_writes()
    assert lines(path) == 0, "the answer's line waits for its 100 ms"
    sink.on_next([answer.tombstones()[0]])
    await settle_writes()
    assert uuids(path) == [notice.uuid]
    await sink.aclose()


@virtual_time
async def test_answers_that_stream_by_meanwhile_delay_no_line(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    for number in range(30):
        answer = Answer(make, f"msg_{number}")
        sink.on_next([answer.start(), *answer.text("a"), *answer.end()])
        await asyncio.sleep(0.01)
        # Answer n ended at 10 n ms and has been due since 10 n + 100 ms.
        assert lines(path) >= number - 10
    await sink.aclose()
    assert lines(path) == 30


def entry(text: str, at: float, answer: OpenAnswer | None = None) -> Entry:
    message = AssistantMessage(
        message={"id": "m", "model": "x", "content": [{"type": "text", "text": text}], "stop_reason": None},
        uuid=text,
        timestamp="",
    )
    return Entry(message, at, uuid=text, answer=answer)


def test_queue_the_line_before_a_dropped_newest_one_is_the_newest_again() -> None:
    queue, answer = LazyQueue(), OpenAnswer("m")
    for text in "abc":
        queue.add(entry(text, 0.0, answer))
    assert queue.drop("c")
    assert not queue.drop("c")
    assert queue.pop(100.0) is not None
    assert queue.pop(100.0) is None, "b is the newest now"
    assert len(queue) == queue.members == 1
    answer.ended_at = 100.0
    assert queue.due() == 100.1
    assert queue.pop(100.1) is not None
    assert (len(queue), queue.weight, queue.members) == (0, 0, 0)


def test_queue_put_back_keeps_order_and_number() -> None:
    queue = LazyQueue()
    for text in "abcd":
        queue.add(entry(text, 0.0))
    first, second = queue.pop(9.0), queue.pop(9.0)
    assert first is not None
    assert second is not None
    queue.put_back([first, second])
    assert [e.uuid for e in queue] == ["a", "b", "c", "d"]
    assert [e.seq for e in queue] == [1, 2, 3, 4]
    assert queue.pop(0.0) is first, "its values count as final"


def test_queue_counts_what_is_dropped_anywhere() -> None:
    queue = LazyQueue()
    for text in "abcd":
        queue.add(entry(text, 0.0))
    weight = queue.weight
    assert queue.drop("b")
    assert queue.drop("a")
    assert not queue.drop("a")
    assert not queue.drop("")
    assert (len(queue), queue.members, queue.weight) == (2, 2, weight // 2)
    assert [e.uuid for e in queue.ready(9.0)] == ["c", "d"]
    assert (len(queue), queue.members, queue.weight) == (0, 0, 0)


def test_weight_sees_large_payloads_wherever_they_are() -> None:
    make = maker()
    big = "x" * 100_000
    result = make.tool_result("t", [{"type": "text", "text": big}], tool_use_result={"stdout": [big]})
    assert 200_000 < weigh(result) < 210_000
    answer = Answer(make)
    for block, wanted in (
        ({"type": "text", "text": big}, 100_000),
        ({"type": "text", "text": "", "citations": [{"cited_text": big}]}, 100_000),
        ({"type": "tool_use", "id": "t", "name": "Write", "input": {"content": big, "more": [[big]]}}, 200_000),
        ({"type": "tool_use", "id": "t", "name": "Write", "input": big}, 100_000),
        ({"type": "thinking", "thinking": big, "signature": big}, 200_000),
    ):
        assert wanted < weigh(answer.message(block)) < wanted + 2_000
    many = make.user([{"type": "text", "text": "y" * 10} for _ in range(10_000)])
    assert weigh(many) > 50_000


@virtual_time
async def test_when_a_request_starts_what_the_model_is_told_goes_at_once(tmp_path: Path) -> None:
    """WIRE.md §3: tool results are queued, and the queue is drained before the next request."""
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    asks, result = Answer(make), None
    sink.on_next([make.user("go"), asks.start(), *asks.tool("t1"), *asks.end(77, "tool_use")])
    result = make.tool_result("t1", "one", source=asks.messages[0])
    sink.on_next([result])
    sink.on_next([make.request_start()])
    await asyncio.sleep(0.01)  # less than the 0.1 s from an answer's end
    assert uuids(path)[-1] == result.uuid
    # A further attempt tells the model nothing new: what the failed one left waits to be taken back.
    failed = Answer(make, "msg_2")
    sink.on_next([failed.start(), *failed.text("half"), *failed.fail(), make.request_start(2)])
    await asyncio.sleep(0.05)
    sink.on_next(failed.tombstones())
    await sink.aclose()
    assert uuids(path)[-1] == result.uuid
    assert sink.statistics()["tombstones_queued"] == 1
