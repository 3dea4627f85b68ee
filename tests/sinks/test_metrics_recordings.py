"""Every recording: the sums of EXPECTED.tsv, which another program computed; live and replay agree (WIRE.md §9)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import recordings
from harness import as_sse, container_of, joined, stages

from turnstream.messages import AssistantMessage, decode_line, split_lines
from turnstream.operators import Batch, run_batches
from turnstream.sinks.metrics import METRICS_SCHEMA, MetricsSink

VALIDATOR = jsonschema.Draft202012Validator(METRICS_SCHEMA)
NAMES = recordings.names()
TOKENS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
NOTHING = ("-", "null")


def batches(name: str, size: int, *, settled: bool) -> list[Any]:
    data = as_sse(recordings.read(name), container_of(name))
    chunks = ([data[i : i + size]] for i in range(0, len(data), size))
    return list(run_batches(chunks, joined(stages(settled=settled))))


def metered(name: str, size: int = 1 << 20, *, settled: bool = False) -> dict[str, Any]:
    sink = MetricsSink()
    for batch in batches(name, size, settled=settled):
        sink.on_next(batch)
    return sink.report()


def total(rows: list[dict[str, str]], key: str) -> int | None:
    numbers = [int(row[key]) for row in rows if row[key] not in NOTHING]
    return sum(numbers) if numbers else None


def words(rows: list[dict[str, str]], key: str) -> dict[str, int]:
    """``type:count`` columns, summed; ``None`` is how the table writes a missing type."""
    out: Counter[str] = Counter()
    for row in rows:
        for part in row[key].split(","):
            if part != "-":
                word, _, count = part.rpartition(":")
                out["(none)" if word == "None" else word] += int(count)
    return dict(out)


@pytest.mark.parametrize("name", NAMES)
def test_totals(name: str) -> None:
    rows = recordings.expected()[name]
    answers = [row for row in rows if "superseded" not in row["answer"]]
    lost = [row for row in rows if "superseded" in row["answer"]]
    report = metered(name)
    VALIDATOR.validate(report)
    totals = report["totals"]
    for key in TOKENS:
        assert totals[key] == total(answers, key), key
        assert totals[f"superseded_{key}"] == total(lost, key), key
    assert totals["outcomes"] == dict(Counter(row["outcome"] for row in answers))
    stop_reasons = Counter(row["stop_reason"] for row in answers if row["stop_reason"] not in NOTHING)
    assert totals["stop_reasons"] == dict(stop_reasons)
    kinds = Counter(kind for row in answers for kind in row["block_types"].split(",") if kind != "-")
    assert totals["blocks"] == dict(kinds)
    assert sum(totals["tool_uses"].values()) == sum(int(row["tools"]) for row in answers)
    for key in ("opaque_events", "opaque_deltas", "opaque_blocks", "unapplied_deltas"):
        assert totals[key] == words(rows, key), key
    assert totals["invalid_tool_inputs"] == sum(int(row["invalid_tool_inputs"]) for row in answers)
    assert totals["superseded_answers"] == len(lost)
    assert totals["events"] == int(rows[0]["file_events"])
    assert totals["pings"] == sum(int(row["pings"]) for row in rows)
    assert [row for row in totals["errors"] if row in {r["error_type"] for r in rows}] == [
        row["error_type"] for row in rows if row["error_type"] != "-"
    ]
    # Row by row: an `empty` file has a row 0 without an answer, as we have.
    for got, want in zip(report["answers"], rows, strict=True):
        assert got["message_id"] == (None if want["message_id"] == "-" else want["message_id"])
        assert got["model"] == (None if want["model"] == "-" else want["model"])
        assert got["superseded"] == ("superseded" in want["answer"])
        for key in TOKENS:
            assert got[key] == total([want], key), key


@pytest.mark.parametrize("name", NAMES)
def test_chunks_and_settling_change_nothing(name: str) -> None:
    whole = metered(name)
    assert metered(name, 97) == whole
    settled = metered(name, 97, settled=True)
    if not whole["totals"]["tombstones"]:  # settle drops superseded messages with their tombstones
        assert settled == whole
    assert settled["totals"]["output_tokens"] == whole["totals"]["output_tokens"]


@pytest.mark.parametrize("name", NAMES)
def test_a_transcript_of_the_answers_has_the_same_sums(name: str) -> None:
    """Live, from events; replayed, from the messages alone."""
    live = metered(name)
    messages = [
        item for batch in batches(name, 1 << 20, settled=True) for item in batch if isinstance(item, AssistantMessage)
    ]
    rows = live["answers"]
    if any(row["incomplete"] for row in rows):
        return  # what failed leaves no message behind, or one without its end
    sink = MetricsSink()
    sink.on_next(messages)
    replayed = sink.report()["totals"]
    same = [*TOKENS, "thinking_tokens", "answers", "outcomes", "stop_reasons", "blocks", "tool_uses", "server_tool_use"]
    if any(row["stop_reason"] is None for row in rows):
        same.remove("outcomes")  # nobody can tell from the messages
    ids = [row["message_id"] for row in rows]
    assert len(set(ids)) == len(ids)
    assert {key: replayed[key] for key in same} == {key: live["totals"][key] for key in same}


def transcripts() -> list[Any]:
    folder = recordings.folder()
    if folder is None:
        return [pytest.param("", marks=pytest.mark.skip(reason=f"no recordings: set {recordings.VARIABLE}"))]
    root = folder / "transcripts"
    return sorted(str(path.relative_to(root)) for path in root.rglob("*.jsonl"))


def _last_per_id(path: Path) -> dict[str, int]:
    """Output tokens by message id, the last line wins: with nothing but the standard library."""
    out: dict[str, int] = {}
    for number, line in enumerate(path.read_bytes().split(b"\n")):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        message = record.get("message") if isinstance(record, dict) else None
        if not isinstance(message, dict) or record.get("type") != "assistant" or message.get("model") == "<synthetic>":
            continue
        tokens = (message.get("usage") or {}).get("output_tokens")
        if tokens is not None and not record.get("isApiErrorMessage"):
            out[message.get("id") or f"line {number}"] = tokens
    return out


@pytest.mark.parametrize("name", transcripts())
def test_transcripts(name: str) -> None:
    path = recordings.need("metrics of transcripts") / "transcripts" / name
    sink = MetricsSink()
    for line in split_lines(path.read_bytes()):
        if line:
            sink.on_next(Batch([decode_line(line)]))
    report = sink.report()
    VALIDATOR.validate(report)
    want = _last_per_id(path)
    assert (report["totals"]["output_tokens"] or 0) == sum(want.values())
    assert report["totals"]["events"] == 0
