"""Run in a process of its own by test_flow_memory: a stream through a run, its memory beside it, as JSON.

python memory_run.py slow FILE FOLDER [stuck]    50 MB of workload D, a transcript of 2 ms a chunk
python memory_run.py session FOLDER ANSWERS      so many answers through one session
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import os
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import turnstream as ts
from turnstream.flow import buffered
from turnstream.sinks.transcript import files

CHUNK = 16 * 1024
SLOW = 0.002


class Stuck:
    """A display that took one batch and never comes back."""

    name = "stuck"

    async def take(self, batch: Any, /) -> None:
        await asyncio.get_running_loop().create_future()

    async def resync(self, snapshot: Any) -> None:
        raise AssertionError

    async def aclose(self) -> None: ...


def rss() -> int:
    """Bytes of memory that the process holds."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Peak(threading.Thread):
    """Looks at the process's memory every few milliseconds."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.start_at = self.highest = rss()
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.005):
            self.highest = max(self.highest, rss())

    def stop(self) -> int:
        self._over.set()
        self.join()
        return self.highest - self.start_at


def slow_write(fd: int, data: Any) -> int:
    """The transcript's door to the device, at 2 ms for each chunk of 16 KiB."""
    time.sleep(SLOW * -(-len(data) // CHUNK))
    return os.write(fd, data)


def stages() -> Any:
    return ts.decode() | ts.parse_events() | ts.accumulate()


async def slow(source: ts.Source[bytes], folder: Path, stuck: bool) -> dict[str, Any]:
    files._write = slow_write
    ui = ts.UISink()
    transcript = ts.TranscriptSink(folder / "s.jsonl")
    sinks: list[Any] = [ui, ts.MetricsSink(), transcript]
    if stuck:
        sinks.append(buffered(Stuck(), "conflate", state=ui.state.snapshot, stall_timeout=1))
    outcome = await ts.Pipeline(source).through(stages()).to(*sinks).run()
    return {
        "status": outcome.status,
        "complete": outcome.answers_complete,
        "bytes": outcome.bytes,
        "stuck": outcome.statistics.get("stuck"),
        "errors": sorted(outcome.sink_errors),
    }


def texts(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            if record.get("type") == "assistant":
                yield from (block["text"] for block in record["message"]["content"])


def run_slow(file: Path, folder: Path, stuck: bool) -> dict[str, Any]:
    # A small run first: what is imported and cached at the first use isn't the stream's.
    small = file.read_bytes()[:200_000]
    (folder / "warm").mkdir()
    asyncio.run(slow(ts.from_bytes(small), folder / "warm", stuck))
    gc.collect()
    peak = Peak()
    peak.start()
    found = asyncio.run(slow(ts.from_file(file), folder, stuck))
    found["growth"] = peak.stop()
    digest = hashlib.sha256()
    for text in texts(folder / "s.jsonl"):
        digest.update(text.encode())
    return {**found, "sha256": digest.hexdigest()}


def run_session(folder: Path, answers: int, frames: bytes) -> dict[str, Any]:
    """Memory after each tenth of a session; its sinks keep no history of their own."""
    seen: list[int] = []

    def measure(number: int) -> None:
        if number % (answers // 10) == 0:
            gc.collect()
            seen.append(tracemalloc.get_traced_memory()[0])

    def sources() -> Iterator[ts.Source[bytes]]:
        for number in range(answers + 1):
            measure(number)
            yield ts.from_bytes(frames.replace(b"msg_1", b"msg_%d" % number))

    class Quiet:
        name = "quiet"

        async def take(self, batch: Any, /) -> None:
            await asyncio.sleep(0)

        async def aclose(self) -> None: ...

    async def session() -> ts.RunOutcome:
        source = ts.in_turn(sources(), lambda source: stages())
        # Low marks: what happens to wait when memory is looked at isn't growth.
        display = buffered(Quiet(), "conflate", high_water=8_192)
        lossless = Quiet()
        lossless.name = "lossless"
        lossless_sink = buffered(lossless, high_water=8_192)
        return await ts.Pipeline(source).to(ts.UISink(), ts.MetricsSink(), display, lossless_sink).run()

    tracemalloc.start()
    outcome = asyncio.run(session())
    return {"complete": outcome.answers_complete, "seen": seen}


if __name__ == "__main__":
    if sys.argv[1] == "slow":
        result = run_slow(Path(sys.argv[2]), Path(sys.argv[3]), "stuck" in sys.argv[4:])
    else:
        result = run_session(Path(sys.argv[2]), int(sys.argv[3]), sys.stdin.buffer.read())
    print(json.dumps(result))
