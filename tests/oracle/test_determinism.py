"""The same stream with seeded ids and clock gives the same transcript bytes and the same metrics, in any chunks.

WIRE.md §2 (ids and clock are parameters), §9 (an unpaced replay has null for every time; totals equal the live ones).
"""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
import recordings
from corpus import BY_NAME
from harness import joined, run, stages

from turnstream import MetricsSink, Pipeline, TranscriptSink, from_bytes
from turnstream.messages import AssistantMessage, seeded_clock, seeded_ids

SESSION = "5e551011-0000-4000-8000-000000000001"
RECORDED = [name for name in recordings.names() if isinstance(name, str)]
# One file of each kind of outcome and content, and a fixed sample of the rest.
SAMPLE = sorted(random.Random(3).sample(RECORDED, 40)) if RECORDED else []
NAMES = [*BY_NAME, *SAMPLE]


def stream(name: str) -> bytes:
    entry = BY_NAME.get(name)
    return recordings.read(name) if entry is None else entry.data


def replay(chunks: list[bytes], folder: Path) -> tuple[bytes, dict[str, Any]]:
    """The transcript's bytes and the metrics report of one run."""
    folder.mkdir()
    path = folder / f"{SESSION}.jsonl"

    async def whole() -> dict[str, Any]:
        metrics = MetricsSink()
        transcript = TranscriptSink(
            path, cwd="/somewhere", version="1.0.0", title="t", ids=seeded_ids(2), clock=seeded_clock(1_800_000_000.0)
        )
        outcome = (
            await Pipeline(from_bytes(chunks)).through(joined(stages(settled=False))).to(transcript, metrics).run()
        )
        assert outcome.sink_errors == {}
        assert outcome.error is None
        return metrics.report()

    report = asyncio.run(whole())
    return path.read_bytes() if path.exists() else b"", report


def cuts(data: bytes, seed: str, largest: int) -> list[bytes]:
    rng = random.Random(seed)
    out: list[bytes] = []
    at = 0
    while at < len(data):
        size = rng.randint(1, largest)
        out.append(data[at : at + size])
        at += size
    return out


@pytest.mark.parametrize("name", NAMES)
def test_transcript_and_metrics(name: str, tmp_path: Path) -> None:
    data = stream(name)
    transcript, report = replay([data], tmp_path / "one")
    kept = [item.uuid for item in run(data) if isinstance(item, AssistantMessage)]
    assert [line["uuid"] for line in map(json.loads, transcript.splitlines()) if line["type"] == "assistant"] == kept
    again, same = replay([data], tmp_path / "two")
    assert again == transcript
    assert json.dumps(same) == json.dumps(report)
    for number, largest in enumerate((1 + len(data) // 400, 300, 5000)):
        chunked, counted = replay(cuts(data, name, largest), tmp_path / f"cut-{number}")
        assert chunked == transcript, f"chunks of at most {largest} bytes"
        assert json.dumps(counted) == json.dumps(report), f"chunks of at most {largest} bytes"
