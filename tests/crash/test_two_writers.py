"""Two writers of one session: the second is told; without the lock every line still parses, and none is lost."""

from __future__ import annotations

import json
import multiprocessing
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from transcripts import SESSION, maker

from turnstream.messages import TranscriptError
from turnstream.sinks.transcript import TranscriptSink
from turnstream.sinks.transcript.lockfile import SessionLock

LINES = 1000
"""Of each writer; FAULTS 45 asks for this many."""

context = multiprocessing.get_context("spawn")


def _no_lock(self: SessionLock) -> None:
    """Stands in for ``acquire``."""


def _write(path: str, seed: int, others: Any, locked: bool) -> None:
    import asyncio

    if not locked:
        SessionLock.acquire = _no_lock  # type: ignore[method-assign]
    make = maker(seed)

    async def go() -> None:
        sink = TranscriptSink(path, append=True, session_id=SESSION)
        sink.open()
        others.wait()
        for number in range(0, LINES, 10):
            # Long and short ones, so that a write that isn't whole would show.
            batch = [make.user(f"{seed} {n} " + "x" * (n % 50 * 97)) for n in range(number, number + 10)]
            await sink.record(batch)
        await sink.aclose()

    asyncio.run(go())


def _told(path: str, answers: Any) -> None:
    try:
        TranscriptSink(path, append=True).open()
    except TranscriptError as error:
        answers.put(str(error))
    else:
        answers.put("opened")


def test_fault_45_a_second_writer_gets_a_clear_error(tmp_path: Path) -> None:
    """In another process and in this one; when the first has closed, the second may."""
    path = tmp_path / f"{SESSION}.jsonl"
    make = maker()
    answers = context.Queue()

    def ask() -> str:
        process = context.Process(target=_told, args=(str(path), answers))
        process.start()
        answer: str = answers.get(timeout=60)
        process.join()
        return answer

    async def go() -> None:
        first = TranscriptSink(path)
        await first.record([make.user("1")])
        said = ask()
        assert "another writer" in said
        assert str(os.getpid()) in said, "who"
        assert str(path) in said
        assert "fork" in said, "what to do"
        with pytest.raises(TranscriptError, match="another writer"):
            TranscriptSink(path, append=True)
        before = path.read_bytes()
        await first.record([make.user("2")])
        assert path.read_bytes().startswith(before)
        await first.aclose()
        assert ask() == "opened"

    import asyncio

    asyncio.run(go())


def test_fault_45_two_processes_without_the_lock_write_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_bytes(b"")
    barrier = context.Barrier(2)
    writers = [context.Process(target=_write, args=(str(path), seed, barrier, False)) for seed in (1, 2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    data = path.read_bytes()
    assert data.endswith(b"\n")
    records = [json.loads(line) for line in data.split(b"\n")[:-1]]
    texts = [record["message"]["content"].split(" ")[:2] for record in records]
    for seed in ("1", "2"):
        assert [int(n) for s, n in texts if s == seed] == list(range(LINES)), "all, in order, once"
    turns = sum(a[0] != b[0] for a, b in pairwise(texts))
    assert turns > 1, "they did write at the same time"
