"""The doctor on real transcripts, and on what chance makes of a good one."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import ailing
import pytest
import recordings
from ailing import dump, payload, talk

from turnstream.messages.texts import MISSING_RESULT
from turnstream.sinks.transcript.doctor import KINDS, diagnose, repair
from turnstream.sinks.transcript.reading import read_records, resume


def transcripts() -> list[Any]:
    folder = recordings.folder()
    if folder is None:
        return [pytest.param("no recordings", marks=pytest.mark.skip(reason=f"set {recordings.VARIABLE}"))]
    return sorted(str(path.relative_to(folder)) for path in (folder / "transcripts").rglob("*.jsonl"))


def bag(path: Path) -> Counter[str]:
    """What a resume says; results that were made up are left out: a mended file may hold the true ones."""
    return Counter(text for text in map(payload, resume(path).messages) if MISSING_RESULT not in text)


@pytest.mark.parametrize("name", transcripts())
def test_a_mended_recording_says_the_same_or_more_and_has_no_findings(name: str, tmp_path: Path) -> None:
    original = recordings.need("mended transcripts") / name
    path = Path(shutil.copy(original, tmp_path / original.name))
    before = bag(path)
    found = diagnose(path)
    assert set(found.counts) <= set(KINDS)
    report = repair(path)
    assert report.repaired is bool(found.findings)
    assert diagnose(path).findings == []
    if report.repaired:
        assert report.backup is not None
        assert report.backup.read_bytes() == original.read_bytes()
    else:
        assert path.read_bytes() == original.read_bytes()
    lost = before - bag(path)
    if report.rejected is not None:
        # Another session's lines are no part of this conversation.
        foreign = [json.loads(p["data"]) for p in ailing.rows(report.rejected) if p["problem"].startswith("of session")]
        lost -= Counter(json.dumps([p["type"], p.get("message"), None], sort_keys=True) for p in foreign)
    assert not lost
    assert set(resume(path).report.counts) <= ailing.HARMLESS | {"odd_record"}
    kept = {record.raw for record in read_records(path)}
    changed = sum(record.value is not None and record.raw not in kept for record in read_records(original))
    assert changed <= sum(found.counts.values())


def test_whatever_happens_to_a_file_it_can_be_mended(tmp_path: Path) -> None:
    """Cut, double, swap, overwrite and join lines at random (seeded): a repair always leads to a file in order."""
    good = [dump(line) for line in talk(12)]
    for seed in range(150):
        chance = random.Random(seed)
        data = bytearray(b"\n".join(good) + b"\n")
        in_order = True
        for _ in range(chance.randint(1, 5)):
            at, end = sorted((chance.randrange(len(data)), chance.randrange(len(data))))
            end = min(end, at + 900)
            match chance.randrange(6):
                case 0:
                    del data[at:end]
                case 1:
                    data[at:at] = data[at:end]
                case 2:
                    data[at:end] = b"\0" * (end - at)
                case 3:
                    data[at] = chance.randrange(256)
                case 4:
                    in_order = False
                    lines = bytes(data).split(b"\n")
                    chance.shuffle(lines)
                    data = bytearray(b"\n".join(lines))
                case _:
                    data = bytearray(bytes(data).replace(b"\n", b"", 1))
        path = tmp_path / f"{seed}.jsonl"
        path.write_bytes(data)
        readable = bag(path)
        report = repair(path)
        assert diagnose(path).findings == [], seed
        ailing.rows(path)
        if report.backup is not None:
            assert report.backup.read_bytes() == data
        now = resume(path)
        # If a circle has nothing before it, someone's answer is the root.
        assert set(now.report.counts) <= ailing.HARMLESS | {"odd_record", "loop", "lost_root", "several_sessions"}, seed
        if in_order:
            # What a resume could say it still says, but for what was there twice.
            assert set(readable) <= set(map(payload, now.messages)), seed
