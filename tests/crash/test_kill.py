"""A writer that is killed (SIGKILL) at random moments: what was acknowledged is in the file, in order, once.

Tombstones, compactions, side files and the compaction of fillers are among its work; the same file is gone on with
after each of several kills. ``TURNSTREAM_KILLS`` says how many kills (default 20).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import transcripts

from turnstream.sinks.transcript import TranscriptSink
from turnstream.sinks.transcript.reading import resume

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")

KILLS = int(os.environ.get("TURNSTREAM_KILLS", "20"))
KILLS_A_FILE = 5
LONGEST = 0.06
"""Seconds that a child works at most; within them all of its steps come several times."""


class Moment(NamedTuple):
    """``seconds`` after the child said ``word`` for the ``often``-th time."""

    word: str
    often: int
    seconds: float

    @classmethod
    def by_chance(cls, chance: random.Random) -> Moment:
        """Any time; or about when something short and dangerous goes on, which any time seldom hits."""
        if chance.random() < 0.5:
            return cls("open", 1, chance.uniform(0, LONGEST))
        return cls(
            chance.choice(("closing", "closing", "taking", "wrote")), chance.randint(1, 3), chance.uniform(0, 0.002)
        )


class Server:
    """The process that makes the children, and what they say."""

    def __init__(self) -> None:
        reading, writing = os.pipe()
        support = Path(transcripts.__file__).parent
        self.process = subprocess.Popen(
            [sys.executable, str(support / "crash_writer.py"), str(writing)],
            stdin=subprocess.PIPE,
            pass_fds=[writing],
            text=True,
        )
        os.close(writing)
        self.said = open(reading, encoding="utf-8")  # noqa: SIM115 - closed by close()

    def life(self, path: Path, seed: int, tombstones: str, moment: Moment) -> list[dict[str, Any]]:
        """Let a child work until ``moment``, kill it, and return all that it said."""
        assert self.process.stdin is not None
        print(f"{path} {seed} {tombstones}", file=self.process.stdin, flush=True)
        words: list[dict[str, Any]] = []
        pid = left = 0
        while not (pid and words and left >= moment.often):
            word = json.loads(self.said.readline())
            if "child" in word:
                pid = word["child"]
                continue
            words.append(word)
            left += moment.word in word
            if "failed" in word:
                break
        time.sleep(moment.seconds)  # chance, not a condition: any moment will do
        with contextlib.suppress(ProcessLookupError):  # it failed; its last word says how
            os.kill(pid, signal.SIGKILL)
        while "dead" not in (word := json.loads(self.said.readline())):
            if "child" not in word:
                words.append(word)
        failures = [word["failed"] for word in words if "failed" in word]
        assert not failures, failures[0]
        assert word["dead"] == -signal.SIGKILL
        return words

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=10)
        self.said.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    it = Server()
    yield it
    it.close()


class Promises:
    """What was acknowledged, over all lives of a file."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.may_be_gone: set[str] = set()
        self.gone: set[str] = set()

    def add(self, words: list[dict[str, Any]]) -> None:
        for word in words:
            self.order += word.get("wrote", ())
            self.may_be_gone.update(word.get("taking", ()))
            self.gone.update(word.get("took", ()))

    @property
    def must_be_there(self) -> list[str]:
        return [uuid for uuid in self.order if uuid not in self.may_be_gone]


def check(path: Path, promises: Promises, *, torn: list[bytes]) -> None:
    if not path.exists():
        assert promises.order == []
        return
    data = path.read_bytes()
    *lines, tail = data.split(b"\n")
    found: list[dict[str, Any]] = []
    for line in lines:
        if not line.strip():
            continue
        try:
            found.append(json.loads(line))
        except ValueError:
            # A line that an earlier kill tore, ended by the next writer.
            assert line in torn, f"a broken line in the middle: {line[:200]!r}"
    if tail.strip():
        torn.append(tail)
    taken = {record["targetUuid"] for record in found if record["type"] == "tombstone"}
    live = [r["uuid"] for r in found if "parentUuid" in r and r["uuid"] not in taken]
    assert [uuid for uuid, count in Counter(live).items() if count > 1] == [], "once"
    there = set(live)
    must = promises.must_be_there
    assert [uuid for uuid in must if uuid not in there] == [], "acknowledged"
    assert [uuid for uuid in live if uuid in set(must)] == must, "in order"
    assert promises.gone.isdisjoint(there), "what was taken back is gone"
    # And the conversation is whole: what was acknowledged since the last compaction (which may be in the file without
    # having been acknowledged).
    resumed = [m.uuid for m in resume(path, mend=False).messages]
    boundaries = [at for at, uuid in enumerate(live) if uuid in {r["uuid"] for r in found if _is_boundary(r)}]
    since = set(live[boundaries[-1] if boundaries else 0 :])
    assert [uuid for uuid in must if uuid in since and uuid not in set(resumed)] == [], "in the conversation"
    assert len(set(resumed)) == len(resumed)
    assert promises.gone.isdisjoint(resumed)
    # Nobody hangs on something that never came: only on members that are or were in the file.
    members = {r["uuid"] for r in found if "parentUuid" in r}
    dangling = {r["parentUuid"] for r in found if r.get("parentUuid") and r["parentUuid"] not in members}
    assert dangling <= promises.may_be_gone, "a parent that isn't in the file"


def finish(path: Path, promises: Promises, torn: list[bytes]) -> None:
    """The session goes on and is closed in peace: nothing is left of the crashes but what was said."""
    last = transcripts.maker(99).user("the last")

    async def go() -> None:
        sink = TranscriptSink(path, append=True)
        await sink.record([last])
        await sink.aclose()

    asyncio.run(go())
    promises.order.append(last.uuid)
    check(path, promises, torn=torn)
    assert path.read_bytes().endswith(b"\n")
    assert {p.name for p in path.parent.iterdir()} <= {path.name, path.stem}, "no lock, no temporary file"
    assert not [line for line in path.read_bytes().split(b"\n") if b"tombstone-filler" in line[:30]]


def _is_boundary(record: dict[str, Any]) -> bool:
    return record.get("subtype") == "compact_boundary"


@pytest.mark.parametrize("tombstones", ["erase", "append"])
def test_what_was_acknowledged_survives_sigkill(server: Server, tmp_path: Path, tombstones: str) -> None:
    chance = random.Random(f"kill {tombstones}")
    kills = KILLS // 2
    seen: Counter[str] = Counter()
    for number in range(kills):
        if number % KILLS_A_FILE == 0:
            path = tmp_path / f"{number}" / f"{transcripts.SESSION}.jsonl"
            promises, torn = Promises(), []
        words = server.life(path, chance.randrange(1 << 30), tombstones, Moment.by_chance(chance))
        promises.add(words)
        check(path, promises, torn=torn)
        seen.update(key for word in words for key in word)
        if number % KILLS_A_FILE == KILLS_A_FILE - 1:
            finish(path, promises, torn)
    print(f"{kills} kills, tombstones={tombstones}: {dict(seen)}")
    if kills >= 10:
        assert min(seen[key] for key in ("wrote", "took", "began", "closed")) > 0, "all kinds of work were among it"
