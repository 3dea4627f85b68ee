"""Real devices that are full or broken: what was acknowledged stays, the error is clear, writing goes on.

With a small tmpfs (needs root, mounted by the test), with a size limit of the process (``RLIMIT_FSIZE``, in a child),
and ``/dev/full``. Simulated ones (short writes, EIO, EIO on fsync) are in test_transcript_file.py and _pressure.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import transcripts
from transcripts import BROKEN, SESSION, FaultyDevice, maker

from turnstream.messages import TranscriptError
from turnstream.sinks.transcript import TranscriptSink
from turnstream.sinks.transcript import files as files_module
from turnstream.sinks.transcript.guards import Limits

ROOM = 256 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("needs root on Linux, to mount a small tmpfs")
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={ROOM},mode=700", "turnstream-test", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"a tmpfs can't be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # a failed test may hold files


def live(path: Path) -> list[str]:
    """uuids of the members in the file; each line must parse, but for an unended last one."""
    *lines, _ = path.read_bytes().split(b"\n")
    records = [json.loads(line) for line in lines if line.strip()]
    return [record["uuid"] for record in records if "parentUuid" in record]


async def fill(sink: TranscriptSink, make: Any, limit: int = 10_000) -> tuple[list[str], list[str], TranscriptError]:
    """Write until the device is full: uuids that were acknowledged, those that weren't, the error."""
    acknowledged: list[str] = []
    for number in range(limit):
        message = make.user(f"{number} " + "words " * 150)
        try:
            await sink.record([message])
        except TranscriptError as error:
            return acknowledged, [message.uuid], error
        acknowledged.append(message.uuid)
    raise AssertionError("the device never was full")


def test_a_full_disk_loses_nothing_and_goes_on_when_there_is_room(small_disk: Path) -> None:
    path = small_disk / f"{SESSION}.jsonl"
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 100_000)

    async def go() -> None:
        make = maker()
        sink = TranscriptSink(path)
        acknowledged, waiting, error = await fill(sink, make)
        assert len(acknowledged) > 50
        assert live(path) == acknowledged
        text = str(error)
        assert "No space left on device" in text
        assert str(path) in text
        assert "kept" in text
        assert [m.uuid for m in error.kept] == waiting
        assert sink.full(), "the source waits meanwhile"
        # More comes while it is full: it is taken and kept.
        for _ in range(3):
            message = make.user("meanwhile")
            sink.append(message)
            waiting.append(message.uuid)
        with pytest.raises(TranscriptError, match="No space left"):
            await sink.drain()
        assert live(path) == acknowledged
        statistics = sink.statistics()
        assert statistics["pending_lines"] == 4
        assert statistics["write_errors"] >= 2
        ballast.unlink()
        await sink.drain()
        assert live(path) == [*acknowledged, *waiting]
        assert not sink.full()
        last = make.user("after")
        await sink.record([last])
        await sink.aclose()
        assert live(path) == [*acknowledged, *waiting, last.uuid]

    asyncio.run(go())


def test_a_tombstone_and_a_close_on_a_full_disk(small_disk: Path) -> None:
    """Overwriting needs no room; dropping the fillers does, so they stay, and a later close drops them."""
    path = small_disk / f"{SESSION}.jsonl"
    ballast = small_disk / "ballast"

    async def go() -> None:
        make = maker()
        sink = TranscriptSink(path)
        users = [make.user(f"{n} " + "words " * 100) for n in range(150)]
        await sink.record(users)
        free = shutil.disk_usage(small_disk).free
        with open(ballast, "wb") as file:
            file.write(b"x" * (free - free % 4096))
        sink.append(make.tombstone(users[70]))
        await sink.drain()
        await sink.aclose()
        rest = [u.uuid for u in users if u is not users[70]]
        assert live(path) == rest
        assert users[70].message["content"].encode() not in path.read_bytes()
        assert sorted(p.name for p in small_disk.iterdir()) == sorted([path.name, "ballast"]), "no litter"
        ballast.unlink()
        sink = TranscriptSink(path, append=True)
        after = make.user("after")
        await sink.record([after])
        await sink.aclose()
        assert live(path) == [*rest, after.uuid]

    asyncio.run(go())


def test_a_side_file_that_doesnt_fit_costs_no_record(small_disk: Path) -> None:
    """Its line waits with it: no line refers to what isn't there."""
    path = small_disk / f"{SESSION}.jsonl"
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 150_000)

    async def go() -> None:
        make = maker()
        sink = TranscriptSink(path, limits=Limits(tool_result=10_000))
        asks = make.assistant([{"type": "tool_use", "id": "t1", "name": "Read", "input": {}}])
        await sink.record([make.user("1"), asks])
        before = live(path)
        result = make.tool_result("t1", "x" * 200_000, source=asks)
        with pytest.raises(TranscriptError, match="No space left"):
            await sink.record([result])
        assert live(path) == before
        ballast.write_bytes(b"")
        await sink.drain()
        assert live(path) == [*before, result.uuid]
        (side,) = (p for p in small_disk.rglob("*") if p.is_file() and "tool-results" in p.parts)
        assert side.read_bytes() == b"x" * 200_000
        await sink.aclose()
        assert not [p for p in small_disk.rglob("*") if p.name.endswith(".tmp")]

    asyncio.run(go())


LIMITED = """
import asyncio, json, resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from transcripts import maker
from turnstream.messages import TranscriptError
from turnstream.sinks.transcript import TranscriptSink

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path, limit = Path(sys.argv[1]), 50_001

async def go():
    make, acknowledged, said = maker(), [], ""
    sink = TranscriptSink(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    for number in range(1000):
        message = make.user(f"{number} " + "words " * 100)
        try:
            await sink.record([message])
        except TranscriptError as error:
            said = str(error)
            break
        acknowledged.append(message.uuid)
    size = path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await sink.aclose()
    print(json.dumps({"acknowledged": acknowledged, "waiting": message.uuid, "error": said, "size": size,
                      "short": sink.statistics()["short_writes"]}))

asyncio.run(go())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs RLIMIT_FSIZE")
def test_a_write_that_the_system_itself_cuts_short(tmp_path: Path) -> None:
    """The kernel writes a part of a line, then refuses: the part is cut off, and written whole later."""
    path = tmp_path / f"{SESSION}.jsonl"
    support = str(Path(transcripts.__file__).parent)
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path), support], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    said = json.loads(run.stdout)
    assert said["short"] >= 1, "the case didn't come up"
    assert "File too large" in said["error"]
    assert said["size"] < 50_001
    assert live(path) == [*said["acknowledged"], said["waiting"]]
    assert path.read_bytes().endswith(b"\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_device_in_the_files_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TranscriptError, match="no regular file"):
        TranscriptSink("/dev/full", append=True)


def test_a_device_that_breaks_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """EIO in the middle of a batch, three times, with parts of lines let through."""
    path = tmp_path / f"{SESSION}.jsonl"

    async def go() -> None:
        make = maker()
        device = FaultyDevice(1 << 20, 700, BROKEN, 1, BROKEN, 90, BROKEN)
        monkeypatch.setattr(files_module, "_write", device)
        sink = TranscriptSink(path)
        acknowledged = [make.user("first")]
        await sink.record(acknowledged)
        batch = [make.user(f"{n}") for n in range(5)]
        with pytest.raises(TranscriptError, match="Input/output error") as failure:
            await sink.record(batch)
        assert isinstance(failure.value.__cause__, OSError)
        errors = 1
        while errors < 10:
            found = live(path)
            assert found == [m.uuid for m in (*acknowledged, *batch)][: len(found)], "whole lines, in order"
            try:
                await sink.drain()
                break
            except TranscriptError:
                errors += 1
        assert errors == 3
        await sink.aclose()
        assert live(path) == [m.uuid for m in (*acknowledged, *batch)]

    asyncio.run(go())
