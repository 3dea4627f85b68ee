"""A replay's totals are the live totals, for every recording of a stream (WIRE.md §9).

Live: the recording's bytes through the stages into the metrics and a transcript. Replay: that transcript, read back
as a source, into new metrics. What a transcript can't know is listed here, with why; all else is equal.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import frames as f
import pytest
import recordings
from harness import as_sse, container_of

from turnstream import (
    Batch,
    MetricsSink,
    Pipeline,
    TranscriptSink,
    accumulate,
    decode,
    from_file,
    from_transcript,
    in_turn,
    parse_events,
)
from turnstream.sinks.metrics import METRICS_SCHEMA
from turnstream.sources import Source
from turnstream.testing import run_virtual

SAME: Final = (
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "thinking_tokens",
    "server_tool_use",
    "blocks",
    "partial_blocks",
    "tool_uses",
    "invalid_tool_inputs",
    "unfinished_tool_inputs",
    "unapplied_deltas",
    "opaque_deltas",
    "opaque_blocks",
    "retries",
    "retry_wait_ms",
    "fallbacks",
    "tool_results",
    "tool_errors",
)
"""What the lines say, as far as an answer left any."""

ENDS: Final = ("answers", "incomplete_answers", "unknown_outcomes", "outcomes", "stop_reasons")
"""What the lines say, but only of answers that say how they ended: :func:`told` has the rules."""

UNKNOWN: Final = {
    "events": "lines are made of messages",
    "pings": "lines are made of messages",
    "bytes": "a transcript's bytes aren't the stream's",
    "notes": "lenient steps are told, not recorded",
    "opaque_events": "events aren't recorded",
    "errors": "a failure is told, not recorded; only what was kept is",
    "tombstones": "a line that was taken back is gone",
    **dict.fromkeys(
        (
            "superseded_answers",
            "superseded_blocks",
            "superseded_input_tokens",
            "superseded_output_tokens",
            "superseded_cache_creation_input_tokens",
            "superseded_cache_read_input_tokens",
            "superseded_thinking_tokens",
        ),
        "the lines of a superseded attempt are gone",
    ),
    "batch_gaps": "batches aren't recorded",
    "tool_durations": "with gaps=, from the lines' times: not those of a stream",
}
"""What a transcript can't know, and why."""


def names() -> list[Any]:
    """All recordings of streams, those of other APIs too."""
    folder = recordings.folder()
    if folder is None:
        return recordings.names()
    return [*recordings.expected(), *sorted(f"openai/{path.name}" for path in (folder / "openai").iterdir())]


def live(out: Path, *paths: Path) -> dict[str, Any]:
    """The report of a live run, which writes a transcript if there is anything to keep."""
    metrics = MetricsSink()
    source = in_turn([from_file(path) for path in paths], lambda source: decode() | parse_events() | accumulate())
    asyncio.run(Pipeline(source).to(metrics, TranscriptSink(out)).run())
    return metrics.report()


def replayed(path: Path, **options: Any) -> dict[str, Any]:
    metrics = MetricsSink()
    outcome = asyncio.run(Pipeline(from_transcript(path, **options)).to(metrics).run())
    assert outcome.ok
    return metrics.report()


def told(row: dict[str, Any]) -> dict[str, Any] | None:
    """What the lines of an answer say of it, by the rules of WIRE.md §1; None for one that leaves no line.

    Lines are made of finished blocks, of a whole answer without any, of what was kept when an answer broke off, and of
    deltas that found no block.
    """
    complete = row["outcome"] == "complete"
    finished = sum(row["blocks"].values())
    kept = bool(row["partial_blocks"] or row["unfinished"])
    if not (complete or finished or kept or row["unapplied"]):
        return None
    # What was kept of a broken answer has stop_reason null, whatever came before.
    reason = row["stop_reason"] if complete or finished else None
    if kept:
        outcome = f"incomplete({finished})"
    else:
        outcome = "complete" if reason is not None else None
    return {"outcome": outcome, "stop_reason": reason}


def carries(lines: list[dict[str, Any]], row: dict[str, Any], key: str) -> bool:
    """Whether a line of the answer has this key; the id of one that the API gave none is made up in the file."""
    return any(line.get(key) for line in lines if row["message_id"] in (None, line["message"].get("id")))


def expected_ends(rows: list[dict[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {key: {} if key in ("outcomes", "stop_reasons") else 0 for key in ENDS}
    for row in rows:
        says = told(row)
        if says is None:
            continue
        out["answers"] += 1
        out["unknown_outcomes"] += says["outcome"] is None
        out["incomplete_answers"] += says["outcome"] not in ("complete", None)
        for key, value in (("outcomes", says["outcome"]), ("stop_reasons", says["stop_reason"])):
            if value is not None:
                out[key][value] = out[key].get(value, 0) + 1
    return out


@pytest.mark.parametrize("name", names())
def test_live_and_replay_agree(name: str, tmp_path: Path) -> None:
    folder = recordings.need("totals of live runs and replays")
    out = tmp_path / "session.jsonl"
    report = live(out, folder / name)
    lines = [json.loads(line) for line in out.read_bytes().splitlines()] if out.exists() else []
    rows = [
        {
            **row,
            "unfinished": carries(lines, row, "unfinishedToolInputs"),
            "unapplied": carries(lines, row, "unappliedDeltas"),
        }
        for row in report["answers"]
        if not row["superseded"]
    ]
    lost = [row for row in rows if told(row) is None]
    if not lines:
        assert len(lost) == len(rows)
        return
    totals, again = report["totals"], replayed(out)["totals"]
    want = {key: totals[key] for key in SAME}
    for row in lost:
        # Its usage is nowhere, it has nothing else.
        for key in SAME[:5]:
            if row[key] is not None:
                want[key] = (want[key] - row[key]) or None
    assert {key: again[key] for key in SAME} == want
    assert {key: again[key] for key in ENDS} == expected_ends(rows)


def test_a_session_of_all_whole_recordings_agrees(tmp_path: Path) -> None:
    """One after the other into one transcript: answers whose (message id, request id) is their own."""
    folder = recordings.need("totals of live runs and replays")
    seen: set[str] = set()
    paths = []
    for name, rows in recordings.expected().items():
        ids = {row["message_id"] for row in rows}
        good = all(row["outcome"] == "complete" and row["stop_reason"] not in ("-", "null") for row in rows)
        if good and len(ids) == len(rows) and not ids & {*seen, "-", "null"} and name.endswith((".sse", ".ndjson")):
            seen |= ids
            paths.append(folder / name)
    assert len(paths) > 100
    out = tmp_path / "session.jsonl"
    report = live(out, *paths)
    totals, again = report["totals"], replayed(out)["totals"]
    assert totals["answers"] > len(paths) * 0.9
    assert {key: again[key] for key in (*SAME, *ENDS)} == {key: totals[key] for key in (*SAME, *ENDS)}


class Slow(Source[bytes]):
    """A recording whose chunks come seconds apart: lines of an open answer are written before their values are final."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    async def batches(self) -> AsyncIterator[Batch[bytes]]:
        for event in self.data.split(b"\n\n"):
            await asyncio.sleep(7)
            yield Batch((event + b"\n\n",), None, None, len(event) + 2)


@pytest.mark.parametrize("tombstones", ["erase", "append"])
@pytest.mark.parametrize(
    "name",
    [
        "odd/ai__spliced-message-start.ndjson",
        "odd/ai__duplicate-message-start.ndjson",
        "odd/lit__opencodex__anthropic-stream-hardening.test-L4.sse",
        "sse/anthropic-sdk-python__stream-a-toolrefusal.sse",
        "sse/ai__anthropic-code-execution-20250825.1.ndjson",
    ],
)
def test_a_stream_that_takes_minutes_agrees(name: str, tombstones: Any, tmp_path: Path) -> None:
    recordings.need("totals of live runs and replays")
    source = Slow(as_sse(recordings.read(name), container_of(name)))
    out = tmp_path / "session.jsonl"
    metrics = MetricsSink()
    operator = decode() | parse_events() | accumulate()
    sink = TranscriptSink(out, tombstones=tombstones)
    run_virtual(Pipeline(source).through(operator).to(metrics, sink).run())
    totals, again = metrics.report()["totals"], replayed(out)["totals"]
    assert {key: again[key] for key in SAME} == {key: totals[key] for key in SAME}
    assert again["answers"] == totals["answers"]


@pytest.mark.parametrize(("tombstones", "known"), [("erase", 0), ("append", 1)])
def test_an_attempt_that_was_written_before_it_was_superseded(tombstones: Any, known: int, tmp_path: Path) -> None:
    """The sums of the answer that counts agree; only an audit trail knows of the other one, as far as it was written."""
    stream = f.sse(
        f.start("msg_1", usage={"input_tokens": 26, "output_tokens": 3}),
        *f.says("one", 0),
        *f.says("two", 1),
        f.start("msg_2", usage={"input_tokens": 26, "output_tokens": 4}),
        *f.says("one again", 0),
        f.turn("end_turn", {"output_tokens": 9}),
        f.STOP,
    )
    out = tmp_path / "session.jsonl"
    metrics = MetricsSink()
    operator = decode() | parse_events() | accumulate()
    sink = TranscriptSink(out, tombstones=tombstones)
    run_virtual(Pipeline(Slow(stream)).through(operator).to(metrics, sink).run())
    totals, again = metrics.report()["totals"], replayed(out)["totals"]
    assert sink.statistics()["tombstones_on_disk"] == 1  # of two; the newest line waited
    assert {key: again[key] for key in (*SAME, *ENDS)} == {key: totals[key] for key in (*SAME, *ENDS)}
    assert (totals["superseded_answers"], totals["superseded_output_tokens"]) == (1, 3)
    assert (again["superseded_answers"], again["superseded_output_tokens"]) == ((1, 3) if known else (0, None))


def test_every_total_is_in_one_of_the_lists() -> None:
    totals = METRICS_SCHEMA["$defs"]["totals"]["required"]
    assert sorted([*SAME, *ENDS, *UNKNOWN]) == sorted(totals)
