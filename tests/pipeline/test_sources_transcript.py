"""A transcript as a source of items (WIRE.md §3), and what metrics make of one (FAULTS.md group C)."""

from __future__ import annotations

import asyncio
import json
import os
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import recordings
from pulling import collect, items_of, open_files, pull

from turnstream import (
    MetricsSink,
    Pipeline,
    SinkBase,
    TranscriptSink,
    UISink,
    decode_transcript,
    from_bytes,
    from_transcript,
)
from turnstream.messages import (
    AssistantMessage,
    ContentBlockDelta,
    MessageStop,
    OpaqueRecord,
    ProgressMessage,
    SourceError,
    StreamEventMessage,
    StreamNote,
    SystemMessage,
    Tombstone,
    TranscriptError,
    UserMessage,
    encode,
    raw_of,
)
from turnstream.operators import StreamKey, run_stages
from turnstream.operators.display import for_display
from turnstream.operators.normalize import filter_for_api
from turnstream.sinks.transcript.reading import resume
from turnstream.testing import run_virtual

SESSION = "5c0375b4-57a5-4f26-b12d-d022ee4e51b7"


def stamp(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"2025-06-01T12:{int(minutes):02d}:{rest:06.3f}Z"


def line(kind: str, uuid: str, parent: str | None = None, at: float | None = 0, **fields: Any) -> bytes:
    record = {"parentUuid": parent, "isSidechain": False, "sessionId": SESSION, "type": kind, "uuid": uuid, **fields}
    if at is not None:
        record["timestamp"] = stamp(at)
    return json.dumps(record, separators=(",", ":")).encode()


def user(uuid: str, text: Any = "Hi", **more: Any) -> bytes:
    return line("user", uuid, message={"role": "user", "content": text}, **more)


def assistant(uuid: str, *blocks: Any, ident: str | None = "msg_1", usage: Any = None, **more: Any) -> bytes:
    message = {
        "id": ident,
        "type": "message",
        "role": "assistant",
        "model": more.pop("model", "claude-test-1"),
        "content": list(blocks) or [{"type": "text", "text": f"text of {uuid}"}],
        "stop_reason": more.pop("stop_reason", None),
        "usage": {"input_tokens": 26, "output_tokens": 3} if usage is None else usage,
    }
    return line("assistant", uuid, message=message, **more)


def write(path: Path, lines: Iterable[bytes]) -> Path:
    path.write_bytes(b"".join(one + b"\n" for one in lines))
    return path


def metered(path: Path, **options: Any) -> dict[str, Any]:
    metrics = MetricsSink()
    outcome = asyncio.run(Pipeline(from_transcript(path, **options)).to(metrics).run())
    assert outcome.ok
    return metrics.report()


CONVERSATION = [
    b'{"type":"summary","summary":"About rivers","leafUuid":"a2"}',
    user("u1", at=0),
    assistant("a1", parent="u1", at=2),
    assistant(
        "a2",
        {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}},
        parent="a1",
        at=5,
        ident="msg_2",
        stop_reason="tool_use",
    ),
    line("progress", "p1", "a2", at=6, toolUseID="toolu_1", data={"type": "bash_progress"}),
    user("u2", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "water"}], parent="a2", at=35),
    line("system", "s1", "u2", at=36, subtype="informational", content="Model switched", level="info"),
]


# -- the file ----------------------------------------------------------------------------------------


def test_every_record_comes_in_the_order_of_the_file_and_keeps_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", CONVERSATION)
    batches = pull(from_transcript(path))
    items = items_of(batches)
    assert [type(item) for item in items] == [
        OpaqueRecord,
        UserMessage,
        AssistantMessage,
        AssistantMessage,
        ProgressMessage,
        UserMessage,
        SystemMessage,
    ]
    assert [raw_of(item) for item in items] == CONVERSATION
    assert {(batch.at, batch.key) for batch in batches} == {(None, None)}
    assert sum(batch.weight for batch in batches) == path.stat().st_size
    assert from_transcript(path).name == str(path)
    assert from_transcript(path, name="yesterday").name == "yesterday"


def test_a_source_can_be_pulled_again(tmp_path: Path) -> None:
    source = from_transcript(write(tmp_path / "t.jsonl", CONVERSATION))
    assert items_of(pull(source)) == items_of(pull(source))


def test_what_only_fills_a_place_is_no_item(tmp_path: Path) -> None:
    filler = b'{"type":"tombstone-filler","targetUuid":"x","pad":"      "}'
    lines = [b"", user("u1"), b"      ", filler, assistant("a1", parent="u1")]
    items = items_of(pull(from_transcript(write(tmp_path / "t.jsonl", lines))))
    assert [item.uuid for item in items] == ["u1", "a1"]


def test_a_line_that_is_no_record_is_told_and_kept_as_it_is(tmp_path: Path) -> None:
    lines = [user("u1"), b"{nonsense", b"[1,2]", assistant("a1", parent="u1")]
    path = write(tmp_path / "t.jsonl", lines)
    with path.open("ab") as file:
        file.write(b'{"type":"user","uuid":"u2","mess')
    batches = pull(from_transcript(path))
    assert sum(batch.weight for batch in batches) == path.stat().st_size
    items = items_of(batches)
    notes = [item for item in items if isinstance(item, StreamNote)]
    assert [note.kind for note in notes] == ["bad_record"] * 3
    assert [note.message.partition(":")[0] for note in notes] == ["line 2", "line 3", "line 5"]
    assert notes[0].byte_offset == len(lines[0]) + 1
    kept = [encode(item) for item in items if not isinstance(item, StreamNote)]
    assert b"\n".join(kept) == path.read_bytes()


def test_two_records_on_one_line_are_two_items(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", [user("u1") + assistant("a1", parent="u1"), user("u2", parent="a1")])
    assert [item.uuid for item in items_of(pull(from_transcript(path)))] == ["u1", "a1", "u2"]


def test_a_torn_record_before_a_whole_one_is_kept(tmp_path: Path) -> None:
    torn = b'{"parentUuid":null,"mess'
    items = items_of(pull(from_transcript(write(tmp_path / "t.jsonl", [torn + user("u1")]))))
    assert [type(item) for item in items] == [StreamNote, OpaqueRecord, UserMessage]
    assert [raw_of(item) for item in items[1:]] == [torn, user("u1")]


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + user("u1") + b"\n")
    (message,) = items_of(pull(from_transcript(path)))
    assert message.uuid == "u1"


def test_fault_56_unknown_records_pass_as_they_are_and_the_rest_is_played(tmp_path: Path) -> None:
    invented = [
        b'{"type":"atis-latch","sessionId":"s","on":true}',
        b'{"type":"cost-state","cost":1e-07}',
        b'{"type":"user","uuid":"odd","message":"not an object"}',
        user("u1", toolUseResult=[[1]]),
        b'{"no":"type"}',
    ]
    items = items_of(pull(from_transcript(write(tmp_path / "t.jsonl", invented))))
    assert [encode(item) for item in items] == invented
    assert [type(item) for item in items] == [OpaqueRecord, OpaqueRecord, OpaqueRecord, UserMessage, OpaqueRecord]


def test_sub_agents_have_a_key_of_their_own(tmp_path: Path) -> None:
    lines = [
        user("u1"),
        user("x1", isSidechain=True, agentId="41be4aa9"),
        assistant("x2", isSidechain=True, agentId="41be4aa9"),
        assistant("a1", parent="u1"),
        user("x3", isSidechain=True),
    ]
    batches = pull(from_transcript(write(tmp_path / "t.jsonl", lines)))
    assert [(batch.key, [item.uuid for item in batch]) for batch in batches] == [
        (None, ["u1"]),
        (StreamKey(SESSION, "41be4aa9"), ["x1", "x2"]),
        (None, ["a1"]),
        (StreamKey(SESSION, "sidechain"), ["x3"]),
    ]


DELTA = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}'


def test_lines_of_stream_json_and_recorded_items_are_read_too(tmp_path: Path) -> None:
    lines = [
        b'{"type":"system","subtype":"init","session_id":"s","uuid":"i","tools":[]}',
        b'{"type":"stream_event","event":' + DELTA + b',"session_id":"s","parent_tool_use_id":null,"uuid":"e1"}',
        b'{"type":"stream_event","event":{"type":"message_stop"},"session_id":"s","parent_tool_use_id":"toolu_9","uuid":"e2"}',
        b'{"type":"user","message":{"role":"user","content":"x"},"session_id":"s","parent_tool_use_id":"toolu_9","uuid":"u"}',
        b'{"type":"result","subtype":"success","session_id":"s"}',
        b'{"type":"stream_event","event":{"type":"message_stop"}}',
    ]
    batches = pull(from_transcript(write(tmp_path / "t.jsonl", lines)))
    items = items_of(batches)
    assert [type(item) for item in items] == [
        SystemMessage,
        ContentBlockDelta,
        StreamEventMessage,  # it says whose it is
        UserMessage,
        OpaqueRecord,
        MessageStop,
    ]
    assert [(batch.key, len(batch)) for batch in batches] == [
        (None, 2),
        (StreamKey("s", "toolu_9"), 2),
        (None, 2),
    ]


def test_a_tombstone_in_the_file_takes_its_message_back(tmp_path: Path) -> None:
    taken = b'{"type":"tombstone","targetUuid":"a1","sessionId":"' + SESSION.encode() + b'"}'
    path = write(tmp_path / "t.jsonl", [user("u1"), assistant("a1", parent="u1"), taken, user("u2", parent="u1")])
    tombstone = items_of(pull(from_transcript(path)))[2]
    assert isinstance(tombstone, Tombstone)
    ui = UISink(keep=True)
    asyncio.run(Pipeline(from_transcript(path)).to(ui).run())
    assert [item.message.uuid for item in ui.state.snapshot().items] == ["u1", "u2"]


@pytest.mark.parametrize("ident", ["msg_2", "msg_1"])
def test_an_attempt_that_a_file_takes_back_is_counted_as_superseded(tmp_path: Path, ident: str) -> None:
    def taken(uuid: str) -> bytes:
        return json.dumps({"type": "tombstone", "targetUuid": uuid, "sessionId": SESSION}).encode()

    lines = [
        user("u1"),
        assistant("a1", parent="u1", usage={"output_tokens": 7}),
        assistant("a2", parent="a1", usage={"output_tokens": 7}),
        taken("a1"),
        taken("a2"),
        assistant("a3", ident=ident, parent="u1", usage={"output_tokens": 11}, stop_reason="end_turn"),
        taken("nobody"),
    ]
    totals = metered(write(tmp_path / "t.jsonl", lines))["totals"]
    assert (totals["answers"], totals["output_tokens"], totals["outcomes"]) == (1, 11, {"complete": 1})
    assert (totals["superseded_answers"], totals["superseded_output_tokens"], totals["superseded_blocks"]) == (1, 7, 2)
    assert totals["tombstones"] == 3


def test_one_line_taken_back_leaves_the_answer(tmp_path: Path) -> None:
    lines = [assistant("a1"), assistant("a2"), b'{"type":"tombstone","targetUuid":"a2"}']
    totals = metered(write(tmp_path / "t.jsonl", lines))["totals"]
    assert (totals["answers"], totals["superseded_answers"]) == (1, 0)


# -- reading -----------------------------------------------------------------------------------------


def test_a_batch_holds_at_most_64_kib_and_a_hundred_items(tmp_path: Path) -> None:
    lines = [user(f"u{n}", "x" * 20_000) for n in range(8)] + [user("big", "y" * 200_000)]
    lines += [user(f"v{n}") for n in range(250)]
    batches = pull(from_transcript(write(tmp_path / "t.jsonl", lines)))
    assert all(batch.weight <= 64 * 1024 or len(batch) == 1 for batch in batches)
    assert max(map(len, batches)) == 100
    assert [item.uuid for item in items_of(batches)] == [json.loads(one)["uuid"] for one in lines]


@pytest.mark.parametrize("gaps", [None, 1.0])
def test_memory_is_a_few_batches_however_long_the_file(tmp_path: Path, gaps: float | None) -> None:
    path = tmp_path / "t.jsonl"
    one = user("u", "x" * 100_000) + b"\n"
    path.write_bytes(one * 150)  # 15 MB, all at one time

    async def read() -> int:
        stream: Any = from_transcript(path, gaps=gaps).batches()
        count = 0
        if gaps is None:
            for batch in stream:
                count += len(batch)
        else:
            async for batch in stream:
                count += len(batch)
        return count

    tracemalloc.start()
    try:
        assert run_virtual(read(), debug=False) == 150
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3_000_000


def test_the_file_is_let_go_when_the_run_ends_early(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", [user(f"u{n}", at=n) for n in range(500)])

    class Stop(SinkBase):
        name = "stop"

        def on_next(self, batch: Any, /) -> None:
            run.abort("enough")

    before = open_files()
    for gaps in (None, 1.0):

        async def main(gaps: float | None) -> str:
            nonlocal run
            async with Pipeline(from_transcript(path, gaps=gaps)).to(Stop()) as run:
                return (await run).status

        run: Any = None
        assert run_virtual(main(gaps)) == "aborted"
        assert open_files() == before


def test_a_missing_file_is_a_source_error(tmp_path: Path) -> None:
    for options in ({}, {"gaps": 1.0}):
        outcome = asyncio.run(Pipeline(from_transcript(tmp_path / "no.jsonl", **options)).to(MetricsSink()).run())
        assert outcome.status == "broken"
        assert isinstance(outcome.error, SourceError)
        assert outcome.error.file == str(tmp_path / "no.jsonl")


@pytest.mark.parametrize("chain", ["file", "resume"])
def test_a_pipe_is_refused_with_a_hint(tmp_path: Path, chain: Any) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match="decode_transcript"):
        pull(from_transcript(tmp_path / "pipe", chain=chain))


@pytest.mark.parametrize(
    "options", [{"gaps": 0}, {"gaps": -1.0}, {"gaps": float("inf")}, {"chain": "tree"}, {"leaf": "u1"}]
)
def test_arguments_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"gaps|chain"):
        from_transcript("t.jsonl", **options)


# -- gaps --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gaps", "factor"), [(1.0, 1.0), (60.0, 60.0), (0.5, 0.5)])
def test_items_come_with_the_recorded_gaps(tmp_path: Path, gaps: float, factor: float) -> None:
    path = write(tmp_path / "t.jsonl", CONVERSATION)

    async def play() -> list[tuple[float, list[str]]]:
        start = asyncio.get_running_loop().time()
        return [
            (round(batch.at - start, 6), [getattr(item, "uuid", "-") for item in batch])
            async for batch in from_transcript(path, gaps=gaps).batches()  # type: ignore[union-attr]
        ]

    got = run_virtual(play(), start=1000.0)
    assert got == [
        (0.0, ["-", "u1"]),
        (round(2 / factor, 6), ["a1"]),
        (round(5 / factor, 6), ["a2"]),
        (round(6 / factor, 6), ["p1"]),
        (round(35 / factor, 6), ["u2"]),
        (round(36 / factor, 6), ["s1"]),
    ]


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In another time zone."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_away")
def test_what_has_no_time_or_an_earlier_one_comes_with_what_was_before(tmp_path: Path) -> None:
    lines = [
        user("u1", at=10),
        user("u2", at=None),
        user("u3", at=20),
        user("u4", at=4),
        line("user", "u5", message={"role": "user", "content": ""}, at=None, timestamp="yesterday"),
        user("u6", at=21),
        line("user", "u7", message={"role": "user", "content": ""}, at=None, timestamp="2025-06-01T14:00:25+02:00"),
        line("user", "u8", message={"role": "user", "content": ""}, at=None, timestamp="2025-06-01T12:00:26"),
    ]
    path = write(tmp_path / "t.jsonl", lines)
    batches = run_virtual(collect(from_transcript(path, gaps=1.0)))
    assert [([item.uuid for item in batch], batch.at) for batch in batches] == [
        (["u1", "u2"], 0.0),
        (["u3", "u4", "u5"], 10.0),
        (["u6"], 11.0),
        (["u7"], 15.0),
        (["u8"], 16.0),
    ]


def test_a_slow_sink_takes_from_the_gaps_not_from_the_end(tmp_path: Path) -> None:
    """Time that a sink held the source isn't waited for once more."""
    path = write(tmp_path / "t.jsonl", [user(f"u{n}", at=n) for n in range(11)])

    async def play() -> float:
        loop = asyncio.get_running_loop()
        async for _ in from_transcript(path, gaps=1.0).batches():  # type: ignore[union-attr]
            await asyncio.sleep(0.9)
        return loop.time()

    assert run_virtual(play()) == pytest.approx(10.9)


def test_tool_durations_are_those_of_the_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", CONVERSATION)
    metrics = MetricsSink()
    run_virtual(Pipeline(from_transcript(path, gaps=1.0)).to(metrics).run())
    durations = metrics.report()["totals"]["tool_durations"]
    assert durations["Read"]["count"] == 1
    assert durations["Read"]["max_ms"] == pytest.approx(30_000)
    assert metered(path)["totals"]["tool_durations"] is None


# -- resume ------------------------------------------------------------------------------------------


def test_resume_gives_the_conversation_that_goes_on(tmp_path: Path) -> None:
    lines = [
        *CONVERSATION[:4],
        b"{broken",
        user("u3", "another way", parent="a1", at=50),
        assistant("a3", ident="msg_3", parent="u3", at=52, stop_reason="end_turn"),
    ]
    path = write(tmp_path / "t.jsonl", lines)
    resumed = resume(path)
    items = items_of(pull(from_transcript(path, chain="resume")))
    notes = [item for item in items if isinstance(item, StreamNote)]
    messages = [item for item in items if not isinstance(item, StreamNote)]
    assert [message.uuid for message in messages] == ["u1", "a1", "u3", "a3"]
    assert messages == resumed.messages
    assert [note.kind for note in notes] == [finding.kind for finding in resumed.report.findings]
    assert "bad_line" in [note.kind for note in notes]
    other = items_of(pull(from_transcript(path, chain="resume", leaf="a2")))
    assert [m.uuid for m in other if isinstance(m, (UserMessage, AssistantMessage))][:3] == ["u1", "a1", "a2"]
    timed = run_virtual(collect(from_transcript(path, chain="resume", gaps=1.0)))
    assert [batch.at for batch in timed] == [0.0, 2.0, 50.0, 52.0]


def test_a_leaf_that_isnt_there_breaks_the_run(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", CONVERSATION)
    outcome = asyncio.run(Pipeline(from_transcript(path, chain="resume", leaf="nobody")).to(MetricsSink()).run())
    assert outcome.status == "broken"
    assert isinstance(outcome.error, TranscriptError)


# -- bytes from elsewhere ----------------------------------------------------------------------------

ODD = b"\n".join(
    [
        *CONVERSATION[:3],
        b"",
        b"{nonsense",
        '{"type":"user","uuid":"ü","message":{"role":"user","content":"🛶\u2028"}}'.encode(),
        user("x", isSidechain=True) + user("y"),
        b'{"type":"stream_event","event":{"type":"ping"}}',
        b'{"cut":',
    ]
)


@pytest.mark.parametrize(("begin", "end"), [(b"", b""), (b"\xef\xbb\xbf", b"\n")])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1 << 20])
def test_bytes_in_any_chunking_are_the_items_of_the_file(tmp_path: Path, size: int, begin: bytes, end: bytes) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(begin + ODD + end)
    data = path.read_bytes()
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    items = run_stages(chunks, decode_transcript())
    assert items == items_of(pull(from_transcript(path)))
    lines = [[getattr(item, "raw", None) for item in found] for found in (items, items_of(pull(from_transcript(path))))]
    assert lines[0] == lines[1]


def test_a_line_beyond_all_measure_is_told_and_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnstream.sources.record_items.MAX_LINE", 1000)
    data = b"\n".join([user("u1"), user("u2", "x" * 2000), user("u3")]) + b"\n"
    for size in (10, 1 << 20):
        items = run_stages([data[at : at + size] for at in range(0, len(data), size)], decode_transcript())
        assert [getattr(item, "uuid", None) for item in items] == ["u1", None, "u3"]
        assert items[1].kind == "bad_record"
        assert items[1].byte_offset == len(user("u1")) + 1


def test_what_a_broken_source_had_given_is_delivered() -> None:
    def chunks() -> Iterable[bytes]:
        yield user("u1") + b"\n" + user("u2")[:20]
        raise OSError("gone")

    metrics = MetricsSink()
    seen: list[Any] = []

    class Sink(SinkBase):
        name = "seen"

        def on_next(self, batch: Any, /) -> None:
            seen.extend(batch)

    outcome = asyncio.run(Pipeline(from_bytes(chunks())).through(decode_transcript()).to(metrics, Sink()).run())
    assert outcome.status == "broken"
    assert [type(item) for item in seen] == [UserMessage, StreamNote, OpaqueRecord]


# -- with operators and sinks ------------------------------------------------------------------------


def test_operators_and_sinks_work_on_it(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", CONVERSATION)
    ui, metrics, copy = UISink(keep=True), MetricsSink(), TranscriptSink(tmp_path / "copy.jsonl", session_id=SESSION)
    outcome = asyncio.run(Pipeline(from_transcript(path)).to(ui, metrics, copy).run())
    assert outcome.ok
    shown = [item.message.uuid for item in ui.state.snapshot().items if hasattr(item.message, "uuid")]
    assert shown == ["u1", "a1", "a2", "p1", "u2", "s1"]
    assert metrics.report()["totals"]["tool_results"] == {"Read": 1}
    # What the transcript takes: all but progress, each line as it was.
    assert (tmp_path / "copy.jsonl").read_bytes().split(b"\n")[:-1] == [*CONVERSATION[:4], *CONVERSATION[5:]]


@pytest.mark.parametrize("operator", [for_display, filter_for_api])
def test_an_operator_on_it_gives_what_it_gives_for_the_items(tmp_path: Path, operator: Any) -> None:
    path = write(tmp_path / "t.jsonl", CONVERSATION)
    seen: list[Any] = []

    class Sink(SinkBase):
        name = "seen"

        def on_next(self, batch: Any, /) -> None:
            seen.extend(batch)

    asyncio.run(Pipeline(from_transcript(path)).through(operator()).to(Sink()).run())
    assert seen == run_stages(items_of(pull(from_transcript(path))), operator())
    assert seen


def _transcripts() -> list[Any]:
    folder = recordings.folder()
    if folder is None:
        return [pytest.param("", marks=pytest.mark.skip(reason=f"no recordings: set {recordings.VARIABLE}"))]
    return sorted(str(path.relative_to(folder)) for path in (folder / "transcripts").rglob("*.jsonl"))


@pytest.mark.parametrize("name", _transcripts())
def test_every_line_of_real_transcripts_comes_back_byte_for_byte(name: str) -> None:
    path = recordings.need("replay of transcripts") / name
    items = [item for item in items_of(pull(from_transcript(path))) if not isinstance(item, StreamNote)]
    assert [encode(item) for item in items] == [one for one in path.read_bytes().split(b"\n") if one.strip()]
    timed = run_virtual(collect(from_transcript(path, gaps=3600.0)), max_moves=100_000)
    assert items_of(timed) == items_of(pull(from_transcript(path)))
    ats = [batch.at for batch in timed]
    assert ats == sorted(ats)


# -- faults of usage and metrics, as files have them -------------------------------------------------


def test_fault_27_usage_and_stop_reason_of_the_last_line_count(tmp_path: Path) -> None:
    usage = [{"input_tokens": 40, "output_tokens": n} for n in (2, 2, 310)]
    lines = [assistant(f"a{n}", usage=u, stop_reason="end_turn" if n == 2 else None) for n, u in enumerate(usage)]
    report = metered(write(tmp_path / "t.jsonl", lines))
    totals = report["totals"]
    assert (totals["answers"], totals["input_tokens"], totals["output_tokens"]) == (1, 40, 310)
    assert totals["stop_reasons"] == {"end_turn": 1}
    assert totals["blocks"] == {"text": 3}


def test_fault_28_the_last_line_of_a_message_id_wins_also_behind_tool_results(tmp_path: Path) -> None:
    def call(n: int) -> dict[str, Any]:
        return {"type": "tool_use", "id": f"toolu_{n}", "name": "Read", "input": {}}

    lines: list[bytes] = []
    for n, tokens in enumerate((9, 9, 159)):
        lines.append(assistant(f"a{n}", call(n), usage={"output_tokens": tokens}, requestId="req_1"))
        lines.append(user(f"r{n}", [{"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": "x"}]))
    totals = metered(write(tmp_path / "t.jsonl", lines))["totals"]
    assert (totals["answers"], totals["output_tokens"], totals["tool_uses"]) == (1, 159, {"Read": 3})


def test_fault_29_without_request_ids_the_message_id_alone_tells(tmp_path: Path) -> None:
    lines = [assistant(f"a{n}", usage={"output_tokens": 100}) for n in range(4)]
    totals = metered(write(tmp_path / "t.jsonl", lines))["totals"]
    assert (totals["answers"], totals["output_tokens"]) == (1, 100)


def test_fault_29_two_requests_with_one_message_id_are_two_answers(tmp_path: Path) -> None:
    lines = [assistant(f"a{n}", usage={"output_tokens": 100}, requestId=f"req_{n % 2}") for n in range(4)]
    totals = metered(write(tmp_path / "t.jsonl", lines))["totals"]
    assert (totals["answers"], totals["output_tokens"]) == (2, 200)


def test_fault_30_usage_that_lines_repeat_is_never_added_up(tmp_path: Path) -> None:
    # Start in 26, out 3; the last delta in 26, out 1956.
    first, last = {"input_tokens": 26, "output_tokens": 3}, {"input_tokens": 26, "output_tokens": 1956}
    lines = [assistant("a1", usage=first), assistant("a2", usage=first), assistant("a3", usage=last)]
    totals = metered(write(tmp_path / "t.jsonl", lines))["totals"]
    assert (totals["input_tokens"], totals["output_tokens"]) == (26, 1956)


def test_fault_36_synthetic_answers_do_not_count(tmp_path: Path) -> None:
    interrupted = [{"type": "text", "text": "[Request interrupted by user]"}]
    lines = [
        user("u1"),
        assistant("a1", ident="msg_1", usage={"output_tokens": 5}, stop_reason="end_turn"),
        assistant("e1", ident="made-up", model="<synthetic>", stop_reason="stop_sequence", usage={"output_tokens": 0}),
        assistant("e2", ident="made-up-2", isApiErrorMessage=True, usage={"output_tokens": 7}),
        assistant("e3", *interrupted, ident="made-up-3"),
        user("u2", interrupted),
    ]
    totals = metered(write(tmp_path / "t.jsonl", lines))["totals"]
    assert (totals["answers"], totals["output_tokens"], totals["incomplete_answers"]) == (1, 5, 0)
    assert totals["stop_reasons"] == {"end_turn": 1}
