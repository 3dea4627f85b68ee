"""A session cut off anywhere: resume holds every complete line and reports the rest.

The session is written through the public API; what each cut must leave is told by the table program, which shares
nothing with the reader. ``TURNSTREAM_CUTS=all`` cuts at every byte (default: at each seventh, and around each line
end), and the large session is larger then.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import sample_session
import transcript_table

from turnstream.messages import UserMessage
from turnstream.sinks.transcript.reading import Resumed, read_records, resume

ALL = os.environ.get("TURNSTREAM_CUTS") == "all"
TURNS = 6
"""Of the small session: over 60 KB."""
LARGE_TURNS = 60 if ALL else 20
STEP = 1 if ALL else 7


class Cut:
    """What is left of a session and must be found in it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.borders = [0, *(at + 1 for at, byte in enumerate(data) if byte == 10)]
        assert self.borders[-1] == len(data)
        self.checked: dict[int, Any] = {}

    def row(self, lines: int) -> transcript_table.Row:
        return transcript_table.table(self.data[: self.borders[lines]])

    def check(self, path: Path, size: int, lines: int) -> None:
        """``path`` was cut to ``size`` bytes, which is within line ``lines + 1``."""
        border = self.borders[lines]
        # Only the line end is missing: the record is complete.
        whole = size > border and self.data[size : size + 1] == b"\n"
        torn = size > border and not whole
        resumed = resume(path)
        where = f"cut at {size}, in line {lines + 1}"
        bad = [f for f in resumed.report.findings if f.kind in ("bad_tail", "bad_line", "odd_record", "changed")]
        assert [(f.kind, f.line, f.offset) for f in bad] == [("bad_tail", lines + 1, border)] * torn, where
        complete = lines + whole
        uuids = [m.uuid for m in resumed.messages]
        told = (uuids, resumed.leaf, [f for f in resumed.report.findings if f not in bad])
        if self.checked.get(complete) != told:
            # With the same complete lines all cuts must give the same; what they give is looked at once.
            assert complete not in self.checked, f"{where}: not what other cuts of this line gave"
            self.look(resumed, uuids, self.row(complete), where)
            self.checked[complete] = told

    def look(self, resumed: Resumed, uuids: list[str], row: transcript_table.Row, where: str) -> None:
        made = [m for m in resumed.messages if m.uuid not in row.members]
        assert len(set(uuids)) == len(uuids), where
        assert row.kept - set(uuids) == set(), where
        # What the file doesn't hold are results of calls that have none, one for each.
        assert sorted(block["tool_use_id"] for m in made for block in results(m)) == sorted(row.open_calls), where
        assert len(made) == len(row.open_calls), where
        assert set(uuids) - {m.uuid for m in made} == row.kept, where
        place = {uuid: at for at, uuid in enumerate(uuids)}
        assert [pair for pair in row.order if place[pair[0]] > place[pair[1]]] == [], where
        assert resumed.leaf == row.leaf, where
        assert resumed.report.of("loop", "lost_root", "flat_file", "side_file_missing") == [], where


def results(message: Any) -> list[dict[str, Any]]:
    assert isinstance(message, UserMessage)
    content = message.message["content"]
    return [block for block in content if block["type"] == "tool_result"]


def cuts(borders: list[int], step: int) -> list[tuple[int, int]]:
    """(size, complete lines), the largest first, so that one file can be cut again and again."""
    out = []
    for lines, border in enumerate(borders):
        end = borders[lines + 1] if lines + 1 < len(borders) else border + 1
        for size in range(border, end):
            if size % step == 0 or size - border <= 3 or end - size <= 3:
                out.append((size, lines))
    return out[::-1]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> sample_session.Sample:
    path = tmp_path_factory.mktemp("cut") / f"{sample_session.SESSION}.jsonl"
    return sample_session.write_sample(path, turns=TURNS)


def test_the_session_has_everything_in_it(small: sample_session.Sample) -> None:
    data = small.open_bytes
    assert len(data) >= 60_000
    kinds = {json.loads(line)["type"] for line in data.splitlines()}
    assert kinds >= {"user", "assistant", "system", "attachment", "tombstone-filler", "file-history-snapshot"}
    assert data.count(b'"compact_boundary"') == 1
    assert len(small.taken) >= 4
    assert len(small.large) >= 3
    assert b'"sideFiles":' in data
    row = transcript_table.table(data)
    assert set(small.said) <= row.kept, "what was said since the compaction, and what that kept"
    assert set(small.all) == set(row.members)
    assert row.beside >= 2, "parallel results"
    assert row.open_calls == set()


def test_cut_at_every_byte(small: sample_session.Sample) -> None:
    cut = Cut(small.open_bytes)
    small.path.write_bytes(small.open_bytes)
    for size, lines in cuts(cut.borders, STEP):
        os.truncate(small.path, size)
        cut.check(small.path, size, lines)


def test_a_large_one_cut_around_every_line_end(tmp_path: Path) -> None:
    path = tmp_path / f"{sample_session.SESSION}.jsonl"
    sample = sample_session.write_sample(path, turns=LARGE_TURNS)
    cut = Cut(sample.open_bytes)
    path.write_bytes(sample.open_bytes)
    for size, lines in cuts(cut.borders, 1 << 60):
        os.truncate(path, size)
        cut.check(path, size, lines)


def test_one_with_an_audit_trail_cut_around_every_line_end(tmp_path: Path) -> None:
    """What was taken back stays in the file, and counts until the line that says so."""
    path = tmp_path / f"{sample_session.SESSION}.jsonl"
    sample = sample_session.write_sample(path, turns=TURNS, tombstones="append")
    cut = Cut(sample.open_bytes)
    assert sample.open_bytes.count(b'{"type":"tombstone",') == len(sample.taken)
    path.write_bytes(sample.open_bytes)
    for size, lines in cuts(cut.borders, 1 << 60):
        os.truncate(path, size)
        cut.check(path, size, lines)


@pytest.mark.parametrize("step", [1 if ALL else 101])
def test_records_of_a_cut_file_are_its_bytes(small: sample_session.Sample, step: int) -> None:
    """Nothing is left out on reading, wherever the cut."""
    import io

    data = small.open_bytes
    for size in range(0, len(data), step):
        records = list(read_records(io.BytesIO(data[:size])))
        assert b"".join(r.raw + b"\n" * r.ended for r in records) == data[:size]
        assert sum(r.value is None and not r.is_filler for r in records) <= 1
