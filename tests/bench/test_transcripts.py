"""The transcript benchmark: files are what they say, figures are what was measured, bars are applied."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

from turnstream.bench import (
    Against,
    BytesTouched,
    FileGrowth,
    Listing,
    Transcripts,
    check,
    measure_transcripts,
    render,
    run,
)
from turnstream.bench import transcripts as module
from turnstream.bench.transcripts import APPEND, PLAIN, RESUME, live_messages
from turnstream.messages import encode


def test_the_messages_are_as_long_as_real_ones() -> None:
    lengths = sorted(len(encode(message)) for message in live_messages(6_000))
    # The recordings' lines, without the 300 bytes of a line's envelope: 2,700 on average, 1,000 in the middle.
    assert 2_000 < statistics.mean(lengths) < 3_500
    assert 800 < statistics.median(lengths) < 1_500
    assert 4_000 < lengths[len(lengths) * 9 // 10] < 7_000


def test_the_messages_are_a_pipelines() -> None:
    messages: list[Any] = live_messages(300)
    assert [encode(m) for m in messages] == [encode(m) for m in live_messages(300)]
    assert {m.extra for m in messages} == {None}
    assert len({m.uuid for m in messages}) == 300


def test_no_id_of_a_growing_file_repeats(tmp_path: Path) -> None:
    path = tmp_path / f"{module.SESSION}.jsonl"
    module._append_until(path, 3_000_000, 50)
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    uuids = [record["uuid"] for record in records]
    assert len(set(uuids)) == len(uuids) > 800
    seen: set[str] = set()
    answers: dict[str, set[int]] = {}
    compactions = [number for number, record in enumerate(records) if record.get("subtype") == "compact_boundary"]
    for number, record in enumerate(records):
        assert record["parentUuid"] in seen or (record["parentUuid"] is None and number in compactions)
        seen.add(record["uuid"])
        if record["type"] == "assistant":
            answers.setdefault(record["message"]["id"], set()).add(number)
    assert all(max(places) - min(places) < 50 for places in answers.values()), "an answer is of one piece"
    # Ten parts of about the same size: the last one is what resume takes.
    assert len(compactions) == module.COMPACTIONS
    assert next(m.uuid for m in module.resume(path).messages) == uuids[compactions[-1]]
    last = sum(len(json.dumps(record)) for record in records[compactions[-1] :])
    assert 0.05 < last / path.stat().st_size < 0.2


@pytest.mark.skipif(module.touched() is None, reason="the kernel keeps no account of bytes")
def test_a_tombstone_in_a_large_file_touches_little_of_it(tmp_path: Path) -> None:
    path = tmp_path / f"{module.SESSION}.jsonl"
    module._append_until(path, 20_000_000, 500)
    for each in module._tombstones(path):
        assert each.file_bytes > 20_000_000
        assert each.read + each.written < 1_000_000, each.operation


def test_a_whole_run_and_its_tables() -> None:
    told: list[str] = []
    report = run(("transcript",), scale=0.002, rounds=1, tell=told.append)
    assert told == [f"transcript, {part} …" for part in ("append and resume", "growth", "tombstones", "listing")]
    found = report.transcripts
    assert found is not None
    assert [each.operation for each in found.against] == [APPEND, RESUME]
    assert all(each.records > 10 and each.bytes > 50_000 and each.speed > 0 for each in found.against)
    assert [each.operation for each in found.growth] == [
        "append",
        "read_records",
        "open to append",
        "resume",
        PLAIN,
    ]
    assert not [each for each in report.checks if PLAIN in each.what]
    assert all(len(each.megabytes) == 3 and len(each.ratios) == 2 for each in found.growth)
    assert found.listing.sessions == 20
    if sys.platform == "linux":
        assert [each.operation for each in found.touched] == ["a tombstone, from the middle", "a tombstone, the last"]
        # A filler of at least the line's length was written, and the line read.
        assert found.touched[0].written >= 400
        assert found.touched[0].read >= 400
        assert found.listing.second_read is not None
        assert found.listing.second_read < found.listing.index_bytes + 20_000
    text = render(report)
    for words in (APPEND, RESUME, "a tombstone, the last", "20 sessions", "MB a CPU second", "bytes written"):
        assert words in text


def test_a_loop_that_writes_something_else_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    dumps = orjson.dumps
    monkeypatch.setattr(module.orjson, "dumps", lambda value, option=None: dumps({**value, "x": 1}, option=option))
    with pytest.raises(RuntimeError, match="the same lines"):
        measure_transcripts(scale=0.001, rounds=1)


def test_a_resume_that_leaves_something_out_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    resume = module.resume

    def hasty(*arguments: Any, **options: Any) -> Any:
        resumed = resume(*arguments, **options)
        resumed.messages.pop()
        return resumed

    monkeypatch.setattr(module, "resume", hasty)
    with pytest.raises(RuntimeError, match=r"resume found \d+ of \d+"):
        measure_transcripts(scale=0.001, rounds=1)


def figures(**changes: Any) -> Transcripts:
    against = dict.fromkeys(("milliseconds", "floor_milliseconds", "speed_min", "speed_max"), 1.0)
    made: dict[str, Any] = {
        "against": [Against(operation=APPEND, records=1, bytes=1, rounds=1, speed=0.5, **against)],
        "growth": [FileGrowth(operation="append", megabytes=[1, 10], megabytes_per_cpu_second=[1, 1], ratios=[1.3])],
        "touched": [
            BytesTouched(operation="a tombstone", file_bytes=10**9, milliseconds=1.0, read=400_000, written=600_000)
        ],
        "listing": Listing(
            sessions=10_000,
            first_milliseconds=1.0,
            second_milliseconds=1.0,
            transcript_bytes=10**8,
            index_bytes=5_000_000,
            second_read=5_100_000,
        ),
    }
    return Transcripts(**{**made, **changes})


def test_the_bars() -> None:
    assert [each.met for each in check((), transcripts=figures())] == [True] * 4
    good = figures()
    replace = msgspec.structs.replace
    for name, worse in {
        "against": [replace(good.against[0], speed=0.49)],
        "growth": [replace(good.growth[0], ratios=[1.0, 1.31])],
        "touched": [replace(good.touched[0], read=400_001)],
        "listing": replace(good.listing, second_read=5_100_001),
    }.items():
        assert [each.met for each in check((), transcripts=figures(**{name: worse}))].count(False) == 1, name
    uncounted = figures(touched=[], listing=replace(good.listing, second_read=None))
    assert len(check((), transcripts=uncounted)) == 2, "where nobody counts bytes there are no such figures"
