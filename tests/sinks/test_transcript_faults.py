"""Faults of the field that concern the writer, one test a kind, named after it (FAULTS.md)."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import recordings
from harness import joined, run, stages
from transcripts import OTHER_SESSION, SESSION, Answer, maker, parents, records, uuids

from turnstream.messages import AssistantMessage, RequestStart, TranscriptError, decode_line
from turnstream.operators import run_batches
from turnstream.sinks.transcript import TranscriptSink
from turnstream.testing import run_virtual, virtual_time


@virtual_time
async def test_fault_20_and_21_a_lone_surrogate_never_kills_the_writer(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    answer = Answer(make)
    bad = {"type": "tool_use", "id": "t1", "name": "Write", "input": {"text": "cut \ud99c here", "\udc8f": 1}}
    sink.on_next([make.user("go"), answer.start(), *answer.block(bad), *answer.end()])
    sink.on_next([make.tool_result("t1", "\udc8f", source=answer.messages[0])])
    after = make.user("still alive")
    await sink.record([after])
    await sink.aclose()
    data = path.read_bytes()
    data.decode("utf-8")
    assert b"\\ud" not in data
    assert records(path)[1]["message"]["content"][0]["input"] == {"text": "cut \ufffd here", "\ufffd": 1}
    assert uuids(path)[-1] == after.uuid


@virtual_time
async def test_fault_27_the_last_line_of_an_answer_has_the_final_usage_and_stop_reason(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    for number in range(3):
        answer = Answer(make, f"msg_{number}")
        answer.usage["output_tokens"] = 2
        sink.on_next([answer.start(), *answer.text("a")])
        await asyncio.sleep(7)
        sink.on_next(answer.text("b"))
        await asyncio.sleep(3)
        sink.on_next([*answer.tool("t"), *answer.end(310, "tool_use")])
        await sink.record([make.tool_result("t", "x", source=answer.messages[-1])])
    await sink.aclose()
    last: dict[str, Any] = {}
    for record in records(path):
        if record["type"] == "assistant":
            last[record["message"]["id"]] = record["message"]
    assert sum(message["usage"]["output_tokens"] for message in last.values()) == 3 * 310
    assert {message["stop_reason"] for message in last.values()} == {"tool_use"}


@pytest.mark.parametrize("name", recordings.names((".sse",)))
def test_fault_27_on_recorded_streams(name: str, tmp_path: Path) -> None:
    """Last line per message id, against EXPECTED.tsv: complete answers with blocks."""
    recordings.need("transcripts of recorded streams")
    data = recordings.read(name)
    path = tmp_path / "s.jsonl"

    async def write() -> None:
        sink = TranscriptSink(path)
        chunks = ([data[at : at + 700]] for at in range(0, len(data), 700))
        for batch in run_batches(chunks, joined(stages(settled=False))):
            sink.on_next(batch)
            await asyncio.sleep(0.5)
        sink.on_completed()
        await sink.aclose()

    run_virtual(write())
    found: dict[str, Any] = {}
    for record in records(path) if path.exists() else []:
        if record["type"] == "assistant":
            found[record["message"]["id"]] = record["message"]
    rows = [row for row in recordings.expected()[name] if row["outcome"] == "complete" and row["blocks"] != "0"]
    ids = [row["message_id"] for row in rows]
    for row in rows:
        if row["message_id"] in ("-", "null") or ids.count(row["message_id"]) > 1:
            continue
        message = found[row["message_id"]]
        assert _column(message["stop_reason"]) == row["stop_reason"].replace("null", "-")
        for key in ("input_tokens", "output_tokens"):
            assert _column(message["usage"].get(key)) == row[key].replace("null", "-")


def _column(value: Any) -> str:
    return "-" if value is None else str(value)


def test_same_bytes_however_the_stream_was_cut(tmp_path: Path) -> None:
    """A live stream, one event at a time, and an unpaced replay in one batch give the same file."""
    recordings.need("transcripts of recorded streams")
    data = recordings.read(next(name for name in recordings.expected() if name.endswith(".sse") and "thinking" in name))
    results = []
    for size in (1, 64, len(data)):
        path = tmp_path / f"{size}.jsonl"

        async def write(path: Path = path, size: int = size) -> None:
            sink = TranscriptSink(path, session_id=SESSION, cwd="/w")
            for item in run([data[at : at + size] for at in range(0, len(data), size)], settled=False):
                sink.on_next([item])
            sink.on_completed()
            await sink.aclose()

        run_virtual(write())
        results.append([{**r, "timestamp": None} for r in records(path)])
    assert results[0] == results[1] == results[2]
    assert results[0]


KILLED = """
import asyncio, os, sys
from turnstream.messages import AssistantMessage, MessageFactory, MessageStart, MessageStop
from turnstream.sinks.transcript import TranscriptSink

async def main():
    make = MessageFactory()
    sink = TranscriptSink(sys.argv[1], durability=sys.argv[2])
    for number in range(1_000_000):
        user = make.user(f"{number} " + "x" * (number % 7) * 1000)
        await sink.record([user])
        os.write(1, f"{user.uuid}\\n".encode())
        envelope = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m", "stop_reason": None}
        usage = {"output_tokens": 1}
        blocks = [AssistantMessage(message={**envelope, "content": [{"type": "text", "text": str(n)}], "usage": usage},
                                   uuid=make.ids(), timestamp=make.timestamp(), index=n) for n in range(3)]
        sink.on_next([MessageStart({**envelope, "usage": usage}), *blocks, MessageStop()])
        await sink.drain()
        os.write(1, "".join(f"{block.uuid}\\n" for block in blocks).encode())

asyncio.run(main())
"""


@pytest.mark.parametrize("durability", ["flush", "fsync"])
def test_fault_37_and_55_what_was_acknowledged_survives_kill_9(tmp_path: Path, durability: str) -> None:
    """The user's message is in the file before the request could go out, each block before anything hangs on it."""
    path = tmp_path / "s.jsonl"
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path), durability], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    acknowledged = []
    for line in itertools.islice(child.stdout, 200):
        acknowledged.append(line.decode().strip())
    child.send_signal(signal.SIGKILL)
    rest, errors = child.communicate(timeout=60)
    acknowledged += [line.decode() for line in rest.split(b"\n")[:-1]]
    assert child.returncode == -signal.SIGKILL, errors.decode()
    lines = path.read_bytes().split(b"\n")
    found = [json.loads(line) for line in lines[:-1]]
    held = [record["uuid"] for record in found]
    assert held[: len(acknowledged)] == acknowledged
    # Nothing dangles: each parent stands before its child.
    for at, record in enumerate(found):
        assert record["parentUuid"] in ({None} if at == 0 else set(held[:at]))
    # The dead writer's lock locks nobody out.
    TranscriptSink(path, append=True)


@virtual_time
async def test_fault_38_only_written_uuids_become_parents(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    for number in range(50):
        answer = Answer(make, f"msg_{number}")
        lost = Answer(make, f"lost_{number}")
        sink.on_next(
            [
                make.user(str(number)),
                make.progress("t", None, {"n": number}),
                make.user("virtual", is_virtual=True),
                lost.start(),
                *lost.text("a"),
                *lost.tombstones(),
                answer.start(),
                *answer.tool("t"),
                make.progress("t", None, {"n": number}),
                *answer.end(),
                make.tool_result("t", "x", source=lost.messages[0]),
            ]
        )
        await asyncio.sleep(number % 3)
    await sink.aclose()
    known: set[str | None] = {None}
    for uuid, parent in parents(path).items():
        assert parent in known
        known.add(uuid)
    chain = parents(path)
    # One unbroken chain: from the last line every line is reached.
    walked, at = [], list(chain)[-1]
    while at is not None:
        walked.append(at)
        at = chain[at]  # type: ignore[assignment]
    assert len(walked) == len(chain) == 150


@virtual_time
async def test_fault_42_replaying_on_reopen_writes_nothing_twice(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    answer = Answer(make)
    items = [make.user("1"), answer.start(), *answer.text("a"), *answer.end(), make.user("2")]
    for _ in range(3):
        sink = TranscriptSink(path, append=True)
        sink.on_next(items)
        sink.on_next(items)
        await sink.aclose()
    assert len(records(path)) == 3
    assert len(set(uuids(path))) == 3


@virtual_time
async def test_fault_43_recording_the_whole_list_each_turn_is_linear(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    conversation: list[Any] = []
    for number in range(10):
        conversation += [make.user(str(number)), make.assistant(str(number))]
        await sink.record(conversation)
    await sink.aclose()
    assert len(records(path)) == 20


WRITER = """
import asyncio, sys
from turnstream.messages import MessageFactory, TranscriptError
from turnstream.sinks.transcript import TranscriptSink

async def main():
    make = MessageFactory()
    mine, sink, refused = 0, None, 0
    while mine < 200:
        try:
            sink = TranscriptSink(sys.argv[1], append=True)
            sink.open()
        except TranscriptError:
            refused += 1
            continue
        for _ in range(20):
            await sink.record([make.user(sys.argv[2] * 3000)])
            mine += 1
        await sink.aclose()
    print(refused)

asyncio.run(main())
"""


def test_fault_45_two_processes_never_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), text], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for text in "ab"
    ]
    for child in children:
        _, errors = child.communicate(timeout=120)
        assert child.returncode == 0, errors.decode()
    found = records(path)
    assert len(found) == 400
    assert {record["message"]["content"] for record in found} == {"a" * 3000, "b" * 3000}
    assert len(set(uuids(path))) == 400
    # One chain, whoever wrote: each writer went on from the other's last line, in the same session.
    assert list(parents(path).values()) == [None, *uuids(path)[:-1]]
    assert len({record["sessionId"] for record in found}) == 1
    assert list(tmp_path.iterdir()) == [path]


@virtual_time
async def test_fault_45_while_one_process_writes_another_gets_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    await sink.record([maker().user("x")])
    code = (
        "import sys\nfrom turnstream.messages import TranscriptError\n"
        "from turnstream.sinks.transcript import TranscriptSink\n"
        "try: TranscriptSink(sys.argv[1], append=True)\nexcept TranscriptError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert f"another writer (process {os.getpid()})" in done.stdout
    await sink.aclose()


@virtual_time
async def test_fault_46_and_47_progress_is_never_written(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, session_id=SESSION)
    user, result = make.user("go"), make.tool_result("t", "done")
    await sink.record([user])
    size = path.stat().st_size
    for number in range(10_000):
        progress = make.progress("t", None, {"type": "bash_progress", "output": "x" * 100, "n": number})
        sink.on_next([progress])
        if number % 1000 == 0:
            sink.append(progress)
            await sink.record([progress])
    await sink.drain()
    assert path.stat().st_size == size
    assert sink.statistics()["pending_bytes"] == 0
    await sink.record([result])
    await sink.aclose()
    assert parents(path)[result.uuid] == user.uuid


@virtual_time
async def test_fault_55_the_users_message_is_in_the_file_when_record_returns(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    answer = Answer(make)
    for number in range(3):
        user = make.user(f"prompt {number}")
        await sink.record([user])
        assert uuids(path)[-1] == user.uuid
        sink.on_next([RequestStart(attempt=1), answer.start()])
        sink.on_next(answer.fail())  # aborted before anything came
    await sink.aclose()
    assert len(records(path)) == 3


@virtual_time
async def test_fault_56_unknown_records_are_kept_verbatim_and_stay_out_of_the_chain(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    lines = [
        b'{"type":"atis-latch","uuid":"x1","parentUuid":"nowhere","state":{"on":true}}',
        b'{"type":"cost-state","usd":0.10}',
        b'{"type":"file-history-delta","messageId":"m"}',
        b'{"type":"ai-title","aiTitle":"a \\u00e9"}',
        b'{"type":"user","uuid":"odd","message":"a string where an object is due"}',
    ]
    first, second = make.user("1"), make.user("2")
    odd = decode_line(
        b'{"type":"user","uuid":"u9","timestamp":"2025-01-01T00:00:00.000Z","message":{"role":"user","content":[3]},'
        b'"toolUseResult":[[],{"a":null}]}'
    )
    sink = TranscriptSink(path)
    sink.on_next([first, *map(decode_line, lines), odd, second])
    await sink.aclose()
    data = path.read_bytes().split(b"\n")
    assert data[1:6] == lines
    found = records(path)
    assert found[6]["toolUseResult"] == [[], {"a": None}]
    assert found[7]["parentUuid"] == "u9"
    assert found[6]["parentUuid"] == first.uuid
    assert sink.statistics()["opaque_records"] == 5
    # … and a file that holds them is gone on with.
    again = TranscriptSink(path, append=True)
    assert again.last_uuid == second.uuid
    await again.record([make.user("3")])
    await again.aclose()
    assert path.read_bytes().split(b"\n")[:9][:8] == data[:8]


@virtual_time
async def test_fault_44_a_writer_goes_on_behind_a_last_line_that_was_cut_anywhere(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, session_id=SESSION)
    first, second, third = make.user("1"), make.user("cut ✅"), make.user("3")
    await sink.record([first, second])
    await sink.aclose()
    data = path.read_bytes()
    start = data.index(b"\n") + 1
    for cut in range(start, len(data) + 1):
        path.write_bytes(data[:cut])
        again = TranscriptSink(path, append=True)
        await again.record([third])
        await again.aclose()
        after = path.read_bytes()
        assert after.startswith(data[:cut]), "nothing of the cut line is lost"
        lines = after.split(b"\n")
        whole = cut >= len(data) - 1
        assert json.loads(lines[-2])["uuid"] == third.uuid
        assert json.loads(lines[-2])["parentUuid"] == (second.uuid if whole else first.uuid)
        assert len(lines) == 3 + (cut > start)


@virtual_time
async def test_fault_59_messages_of_another_session_are_refused(tmp_path: Path) -> None:
    make = maker()
    path, other_path = tmp_path / "ours.jsonl", tmp_path / "theirs.jsonl"
    ours = TranscriptSink(path, session_id=SESSION)
    theirs = TranscriptSink(other_path, session_id=OTHER_SESSION)
    good = [make.user(str(n), extra={"sessionId": SESSION}) for n in range(3)]
    crossed = make.assistant("of theirs", extra={"sessionId": OTHER_SESSION})
    record = decode_line(b'{"type":"mode","sessionId":"%s"}' % OTHER_SESSION.encode())
    # In the stream: the batch's other messages are written, the next drain reports.
    ours.on_next([good[0], crossed, record, good[1]])
    with pytest.raises(TranscriptError, match=f"session {OTHER_SESSION} was refused .and 1 more"):
        await ours.drain()
    await ours.drain()
    # Handed over: the caller hears it, and nothing of his list is written.
    with pytest.raises(TranscriptError, match=OTHER_SESSION) as caught:
        await ours.record([good[2], crossed])
    assert caught.value.kept == (crossed,)
    with pytest.raises(TranscriptError, match=OTHER_SESSION):
        ours.append(crossed)
    theirs.on_next([crossed])
    assert await ours.record([good[2]]) == good[2].uuid
    await ours.aclose()
    await theirs.aclose()
    assert uuids(path) == [message.uuid for message in good]
    assert uuids(other_path) == [crossed.uuid]
    assert ours.statistics()["foreign_messages"] == 4


@virtual_time
async def test_fault_54_what_was_said_before_a_cut_is_kept_and_marked(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    answer = Answer(make)
    whole = answer.text("whole")
    partial = answer.message({"type": "text", "text": "half a sen"})
    partial.is_aborted_mid_stream = True
    sink.on_next([answer.start(), *whole, partial, *answer.fail(), make.interruption()])
    await asyncio.sleep(0.11)
    found = records(path)
    assert [r.get("isAbortedMidStream") for r in found] == [None, True, None]
    assert found[1]["message"]["stop_reason"] is None
    await sink.aclose()


def test_every_item_of_the_recordings_is_taken(tmp_path: Path) -> None:
    """All recorded streams into one session each: nothing raises, each line parses, each message is there once."""
    recordings.need("transcripts of recorded streams")
    written = 0
    for number, name in enumerate(recordings.expected()):
        if not name.endswith((".sse", ".ndjson")):
            continue
        items = run(recordings.read(name), settled=False)
        path = tmp_path / f"{number}.jsonl"

        async def write(path: Path = path, items: list[Any] = items) -> None:
            sink = TranscriptSink(path)
            sink.on_next(items)
            await sink.aclose()
            assert sink.statistics()["coerced_lines"] == 0

        run_virtual(write())
        retracted = {i.message.uuid for i in items if type(i).__name__ == "Tombstone"}
        kept = [i.uuid for i in items if isinstance(i, AssistantMessage) and i.uuid not in retracted]
        assert (uuids(path) if path.exists() else []) == kept, name
        written += len(kept)
    assert written > 300
