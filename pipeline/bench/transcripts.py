"""What transcripts cost: appending and resuming beside the least that could do it, growth to 1 GB, lists, tombstones.

The files are made by :class:`TranscriptSink` from a seeded conversation, in a temporary folder (``TMPDIR``), which
needs as much room as the largest of them. Bytes read and written are the kernel's account of this process
(``/proc/self/io``); where there is none those figures are left out.
"""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import orjson

from turnstream.bench.conversation import make_conversation
from turnstream.bench.rows import Against, BytesTouched, FileGrowth, Listing, Transcripts
from turnstream.messages import (
    AssistantMessage,
    AttachmentMessage,
    Message,
    MessageFactory,
    ProgressMessage,
    Tombstone,
    UserMessage,
    replace,
    seeded_clock,
    seeded_ids,
)
from turnstream.sinks.transcript import TranscriptSink
from turnstream.sinks.transcript.reading import read_records, resume
from turnstream.sinks.transcript.sessions import list_sessions

__all__ = ["APPEND", "PLAIN", "RESUME", "live_messages", "measure_transcripts", "touched"]

SESSION: Final = "5c0375b4-57a5-4f26-b12d-d022ee4e51b7"
MB: Final = 1_000_000

APPEND: Final = "append, beside orjson.dumps and write"
RESUME: Final = "resume, beside orjson.loads"

PLAIN: Final = "orjson.loads, a tenth kept, to compare"
"""Grows as the machine does: memory that a program never had costs more than memory that it had before."""

SIZES: Final = (10 * MB, 100 * MB, 1000 * MB)
"""Of the files that growth is measured on."""
BESIDE: Final = 50 * MB
"""Of the file that the ratios are measured on."""
SESSIONS: Final = 10_000
"""To list."""
COMPACTIONS: Final = 10
"""In each growing file: the newest conversation is a tenth of it, whatever its size."""


def live_messages(count: int, *, seed: int = 7) -> list[Message]:
    """A conversation as a pipeline makes it: without the envelope of a line, and without progress.

    The lines are about as long as those of real sessions: 3.1 KB on average, half of them over 1.4 KB, a tenth over
    5 KB (2,697 lines of recorded conversations: 3.0, 1.3 and 6.1 KB).
    """
    # A tenth of it is progress.
    made: list[Any] = [m for m in make_conversation(count * 2, seed=seed) if not isinstance(m, ProgressMessage)]
    chance = random.Random(f"lengths/{seed}")
    out: list[Message] = []
    for message in made[:count]:
        _lengthen(message, _MORE[: min(int(chance.lognormvariate(5.8, 1.95)), len(_MORE))])
        out.append(replace(message, extra=None))
    return out


_MORE: Final = (
    'the stream of a river – is read once, and then\n\tkept; café 漢字 42: `code` {json} "quoted" back\\slash ' * 1_000
)


def _lengthen(message: Any, more: str) -> None:
    """Put more text where the message has some."""
    if isinstance(message, AttachmentMessage):
        message.attachment["text"] = more
        return
    content = message.message.get("content") if isinstance(message, (UserMessage, AssistantMessage)) else None
    if isinstance(content, str):
        message.message["content"] = content + more
    for block in content if isinstance(content, list) else ():
        key = {"text": "text", "thinking": "thinking", "tool_result": "content", "tool_use": "input"}.get(block["type"])
        if key is None:
            continue
        if isinstance(block[key], str):
            block[key] += more
        elif isinstance(block[key], dict):
            block[key]["more"] = more
        return


class _Source:
    """A conversation that goes on and on; no id repeats."""

    def __init__(self, messages: int) -> None:
        self._messages = live_messages(messages)
        self._number = 0
        self._make = MessageFactory(seeded_ids(8), seeded_clock())

    def next(self, *, compacted: bool) -> list[Message]:
        """The next piece: the same messages as in the piece before under new ids, behind a compaction if asked for.

        They are changed in place (to make a million new ones would take longer than to write them), so the piece
        before must have been written.
        """
        number, self._number = self._number, self._number + 1
        mark = f"{number:08x}"
        done: set[int] = set()
        for message in self._messages:
            item: Any = message
            item.uuid = mark + item.uuid[8:]
            if isinstance(item, UserMessage) and item.source_tool_assistant_uuid:
                item.source_tool_assistant_uuid = mark + item.source_tool_assistant_uuid[8:]
            elif isinstance(item, AssistantMessage) and id(item.message) not in done:
                done.add(id(item.message))
                item.message["id"] = f"{str(item.message.get('id')).partition('/')[0]}/{number}"
        if not compacted:
            return self._messages
        boundary = self._make.system("compact_boundary", "Conversation compacted", compactMetadata={"trigger": "auto"})
        return [boundary, self._make.compact_summary("What went before."), *self._messages]


async def _append(sink: TranscriptSink, messages: Sequence[Message]) -> None:
    """One by one, as a session does."""
    for message in messages:
        sink.append(message)
        if sink.full():
            await sink.room()
    await sink.drain()


def _write(path: Path, messages: Sequence[Message], *, append: bool = False) -> None:
    async def go() -> None:
        sink = TranscriptSink(path, session_id=SESSION, cwd="/src/river", append=append)
        await _append(sink, messages)
        await sink.aclose()

    asyncio.run(go())


def measure_transcripts(
    *, scale: float = 1.0, rounds: int = 5, tell: Callable[[str], None] = lambda text: None
) -> Transcripts:
    """All of it.

    Args:
        scale: share of the full sizes.
        rounds: of the ratios; growth, lists and tombstones are measured once.
        tell: called with a line of progress before each part.

    Raises:
        OSError: no room in the temporary folder.
        RuntimeError: two that should have done the same didn't.
    """
    with tempfile.TemporaryDirectory(prefix="turnstream-bench-") as name:
        folder = Path(name)
        tell("transcript, append and resume …")
        against = _against(folder, int(BESIDE * scale), rounds)
        tell("transcript, growth …")
        growth, largest = _grow(folder, [int(size * scale) for size in SIZES])
        tell("transcript, tombstones …")
        changes = _tombstones(largest)
        largest.unlink()
        tell("transcript, listing …")
        listing = _list(folder, max(10, int(SESSIONS * scale)))
    return Transcripts(against=against, growth=growth, touched=changes, listing=listing)


# -- beside the least that could do it -------------------------------------------------------------------


def _against(folder: Path, size: int, rounds: int) -> list[Against]:
    path, other = folder / f"{SESSION}.jsonl", folder / "floor.jsonl"
    sample = live_messages(1_000)
    _write(path, sample)
    messages = live_messages(max(10, int(len(sample) * size / path.stat().st_size)))
    path.unlink()
    _write(path, messages)
    records = [orjson.loads(line) for line in path.read_bytes().splitlines()]

    def floor_append() -> None:
        with open(other, "wb") as file:
            write = file.write
            for record in records:
                write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))

    def append() -> None:
        path.unlink()
        _write(path, messages)

    def floor_resume() -> list[Any]:
        # It holds what it has read, as resume does.
        with open(path, "rb") as file:
            return [orjson.loads(line) for line in file]

    rows = [_beside(APPEND, len(records), path, floor_append, append, rounds)]
    if path.read_bytes() != other.read_bytes():
        raise RuntimeError("the bare loop didn't write the same lines")
    found = [m.uuid for m in resume(path, mend=False).messages]  # type: ignore[union-attr]
    if sorted(found) != sorted(record["uuid"] for record in records):
        raise RuntimeError(f"resume found {len(found)} of {len(records)} messages")
    rows.append(_beside(RESUME, len(found), path, floor_resume, lambda: resume(path), rounds))
    path.unlink()
    other.unlink()
    return rows


def _beside(
    name: str, records: int, path: Path, floor: Callable[[], Any], ours: Callable[[], Any], rounds: int
) -> Against:
    seconds: dict[str, list[float]] = {"floor": [], "ours": []}
    for number in range(rounds + 1):
        pairs = [("floor", floor), ("ours", ours)]
        for which, work in pairs if number % 2 else pairs[::-1]:
            taken = _timed(work)
            if number > 0:
                seconds[which].append(taken)
    speeds = [a / b for a, b in zip(seconds["floor"], seconds["ours"], strict=True)]
    return Against(
        operation=name,
        records=records,
        bytes=path.stat().st_size,
        milliseconds=round(statistics.median(seconds["ours"]) * 1000, 3),
        floor_milliseconds=round(statistics.median(seconds["floor"]) * 1000, 3),
        speed=round(statistics.median(speeds), 4),
        speed_min=round(min(speeds), 4),
        speed_max=round(max(speeds), 4),
        rounds=rounds,
    )


def _timed(work: Callable[[], Any]) -> float:
    gc.collect()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


# -- growth ----------------------------------------------------------------------------------------------


def _grow(folder: Path, sizes: Sequence[int]) -> tuple[list[FileGrowth], Path]:
    """The cost of a byte in files of each size, in which all is a tenth of the next one's; the largest file stays.

    CPU time of all threads: growth is a property of the program, and a device that is slow now and then would hide it.
    """
    path = folder / f"{SESSION}.jsonl"
    work: dict[str, Callable[[], Any]] = {
        "read_records": lambda: sum(1 for _ in read_records(path)),
        "open to append": lambda: _write(path, (), append=True),
        "resume": lambda: resume(path, mend=False),
        PLAIN: lambda: _plain(path),
    }
    names = ("append", *work)
    cost: dict[str, list[float]] = {name: [] for name in names}
    megabytes: list[float] = []
    piece = max(10, sizes[0] // 100_000)  # messages, about a thirtieth of the smallest file
    for size in sizes:
        # Small ones several times: what else the machine does only ever adds.
        often = max(1, min(5, sizes[-1] // size))
        best = dict.fromkeys(names, float("inf"))
        for _ in range(often):
            best["append"] = min(best["append"], _append_until(path, size, piece))
        for name, operation in work.items():
            best[name] = min(_cpu(operation) for _ in range(often))
        written = path.stat().st_size
        megabytes.append(round(written / MB, 1))
        for name in names:
            cost[name].append(best[name] / written)
    growth = [
        FileGrowth(
            operation=name,
            megabytes=megabytes,
            megabytes_per_cpu_second=[round(1 / each / MB, 1) for each in costs],
            ratios=[round(larger / smaller, 4) for smaller, larger in pairwise(costs)],
        )
        for name, costs in cost.items()
    ]
    return growth, path


def _plain(path: Path) -> list[Any]:
    size = path.stat().st_size
    kept: list[Any] = []
    done = 0
    with open(path, "rb") as file:
        for line in file:
            done += len(line)
            record = orjson.loads(line)
            if done * COMPACTIONS > size * (COMPACTIONS - 1):
                kept.append(record)
    return kept


def _cpu(work: Callable[[], Any]) -> float:
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def _append_until(path: Path, size: int, messages: int) -> float:
    """Write a file of at least ``size`` bytes in pieces of some messages; returns the CPU seconds of it."""
    path.unlink(missing_ok=True)
    source = _Source(messages)

    async def go() -> float:
        taken = 0.0
        compactions = 0
        sink = TranscriptSink(path, session_id=SESSION, cwd="/src/river")
        while (written := sink.statistics()["bytes"]) < size:
            compacted = written >= size * compactions / COMPACTIONS
            compactions += compacted
            piece = source.next(compacted=compacted)
            start = time.process_time()
            await _append(sink, piece)
            taken += time.process_time() - start
        start = time.process_time()
        await sink.aclose()
        return taken + time.process_time() - start

    return asyncio.run(go())


# -- bytes touched ---------------------------------------------------------------------------------------


def touched() -> tuple[int, int] | None:
    """Bytes that this process has read and written so far, by the kernel's account; None where it keeps none."""
    try:
        lines = Path("/proc/self/io").read_bytes().splitlines()
    except OSError:
        return None
    account = {name: int(number) for name, _, number in (line.partition(b": ") for line in lines)}
    return account[b"rchar"], account[b"wchar"]


def _counted(work: Callable[[], Any]) -> tuple[float, int, int] | None:
    """Seconds, bytes read, bytes written."""
    before = touched()
    start = time.perf_counter()
    work()
    taken = time.perf_counter() - start
    after = touched()
    if before is None or after is None:
        return None
    return taken, after[0] - before[0], after[1] - before[1]


def _tombstones(path: Path) -> list[BytesTouched]:
    """What taking back one line touches: one from the middle of the file, and the last one."""
    size = path.stat().st_size
    out: list[BytesTouched] = []

    async def go() -> None:
        sink = TranscriptSink(path, session_id=SESSION, cwd="/src/river", append=True)
        for name, uuid in (("from the middle", _uuid_at(path, size // 2)), ("the last", _uuid_at(path, None))):
            tombstone = Tombstone(message={"uuid": uuid})
            before, start = touched(), time.perf_counter()
            sink.append(tombstone)
            await sink.drain()
            taken, after = time.perf_counter() - start, touched()
            if before is not None and after is not None:
                read, written = after[0] - before[0], after[1] - before[1]
                out.append(
                    BytesTouched(
                        operation=f"a tombstone, {name}",
                        file_bytes=size,
                        milliseconds=round(taken * 1000, 3),
                        read=read,
                        written=written,
                    )
                )
        taken_back = sink.statistics()["tombstones_on_disk"]
        await sink.aclose()
        if taken_back != 2:
            raise RuntimeError(f"{taken_back} of 2 lines were taken back")

    asyncio.run(go())
    return out


def _uuid_at(path: Path, offset: int | None) -> str:
    """The uuid of the first record behind an offset, or of the last one."""
    with open(path, "rb") as file:
        file.seek(path.stat().st_size - 64 * 1024 if offset is None else offset)
        lines = file.read(64 * 1024 if offset is None else 1 << 20).splitlines()[1 : -1 if offset is not None else None]
    records = [orjson.loads(line) for line in lines if line.startswith(b'{"parentUuid"')]
    uuid: str = records[-1 if offset is None else 0]["uuid"]
    return uuid


# -- lists -----------------------------------------------------------------------------------------------


def _list(folder: Path, count: int) -> Listing:
    """Two listings of many small sessions."""
    first = folder / f"{SESSION}.jsonl"
    _write(first, live_messages(4))
    data = first.read_bytes()
    projects = folder / "root" / "projects"
    for number in range(count):
        project = projects / f"-src-river{number % 100}"
        project.mkdir(parents=True, exist_ok=True)
        session = f"{number:08x}{SESSION[8:]}"
        (project / f"{session}.jsonl").write_bytes(data.replace(SESSION.encode(), session.encode()))
    index = folder / "index.jsonl"
    found: list[int] = []

    def work() -> None:
        found.append(len(list_sessions(folder / "root", index=index)))

    seconds = [_timed(work)]
    second = _counted(work)
    if found != [count, count]:
        raise RuntimeError(f"{found} of {count} sessions were listed")
    seconds.append(second[0] if second is not None else _timed(work))
    return Listing(
        sessions=count,
        first_milliseconds=round(seconds[0] * 1000, 3),
        second_milliseconds=round(seconds[1] * 1000, 3),
        transcript_bytes=count * len(data),
        index_bytes=index.stat().st_size,
        second_read=second[1] if second is not None else None,
    )
