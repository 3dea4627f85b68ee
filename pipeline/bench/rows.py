"""The figures of a benchmark run, as data."""

from __future__ import annotations

import msgspec

__all__ = [
    "Against",
    "BytesTouched",
    "Decades",
    "FileGrowth",
    "Growth",
    "IdleMemory",
    "Listing",
    "Live",
    "LiveCost",
    "LiveStreams",
    "Row",
    "SessionTime",
    "Transcripts",
]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One contender on one workload.

    Attributes:
        workload: its name.
        chunking: ``16 KiB`` or ``1 event``.
        contender: its name.
        events: how many events it went through.
        us_per_event: microseconds an event, median.
        ratio: to the floor, the median of the ratios of each round (both measured in that round).
        ratio_min: the smallest of them.
        ratio_max: the largest of them.
        to_ours: to "bytes to three sinks", the median likewise; None where that wasn't measured.
        rounds: how many rounds.
    """

    workload: str
    chunking: str
    contender: str
    events: int
    us_per_event: float
    ratio: float
    ratio_min: float
    ratio_max: float
    to_ours: float | None
    rounds: int


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """How one contender's time grows while the workload doubles.

    Attributes:
        contender: its name.
        workloads: their names, each twice as large as the one before.
        milliseconds: medians.
        doublings: the time of each workload but the first over that of the one before; the median of each
            round's ratio. 2 is linear, 4 quadratic.
    """

    contender: str
    workloads: list[str]
    milliseconds: list[float]
    doublings: list[float]


class Decades(msgspec.Struct, frozen=True, kw_only=True):
    """How the cost of one message grows with the length of its conversation.

    Attributes:
        operation: what is done to the messages.
        messages: how many, for each conversation.
        us_per_message: microseconds a message, the best of all rounds.
        ratios: each of them but the first over the one before; 1 is linear.
    """

    operation: str
    messages: list[int]
    us_per_message: list[float]
    ratios: list[float]


class SessionTime(msgspec.Struct, frozen=True, kw_only=True):
    """How long one session takes from its messages to what a display shows.

    Attributes:
        messages: how many go in.
        items: how many come out.
        milliseconds: the best of all rounds.
    """

    messages: int
    items: int
    milliseconds: float


class Against(msgspec.Struct, frozen=True, kw_only=True):
    """An operation on a transcript beside a bare loop that does the least of it, in the same rounds.

    Attributes:
        operation: its name.
        records: lines of the file.
        bytes: of the file.
        milliseconds: median.
        floor_milliseconds: of the bare loop, median.
        speed: the bare loop's time over ours, the median of the ratios of each round: 0.5 is half as fast.
        speed_min: the smallest of them.
        speed_max: the largest of them.
        rounds: how many rounds.
    """

    operation: str
    records: int
    bytes: int
    milliseconds: float
    floor_milliseconds: float
    speed: float
    speed_min: float
    speed_max: float
    rounds: int


class FileGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """How the cost of a byte grows with the transcript's size.

    Attributes:
        operation: its name.
        megabytes: of each file (1 MB is 1,000,000 bytes).
        megabytes_per_cpu_second: with each file, the best of the runs; all threads count.
        ratios: the cost of a byte in each file but the first over that in the one before; 1 is linear.
    """

    operation: str
    megabytes: list[float]
    megabytes_per_cpu_second: list[float]
    ratios: list[float]


class BytesTouched(msgspec.Struct, frozen=True, kw_only=True):
    """What a change of a large file reads and writes.

    Attributes:
        operation: its name.
        file_bytes: of the file.
        milliseconds: how long it took.
        read: bytes that the process read meanwhile.
        written: bytes that it wrote.
    """

    operation: str
    file_bytes: int
    milliseconds: float
    read: int
    written: int


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """Two listings of the same sessions.

    Attributes:
        sessions: how many.
        first_milliseconds: of the listing that reads all of them.
        second_milliseconds: of the next one.
        transcript_bytes: of all transcripts together.
        index_bytes: of the cache that the first leaves.
        second_read: bytes that the process read during the second; None where nobody counts them.
    """

    sessions: int
    first_milliseconds: float
    second_milliseconds: float
    transcript_bytes: int
    index_bytes: int
    second_read: int | None


class Transcripts(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of transcripts.

    Attributes:
        against: beside bare loops.
        growth: with the size of the file.
        touched: by changes of a large file.
        listing: of many sessions.
    """

    against: list[Against]
    growth: list[FileGrowth]
    touched: list[BytesTouched]
    listing: Listing


class LiveCost(msgspec.Struct, frozen=True, kw_only=True):
    """CPU time of a client for an event that comes alone, beside a bare loop of aiohttp.

    Attributes:
        client: its name.
        loop: ``asyncio`` or ``uvloop``.
        events: of the answer.
        us_per_event: microseconds of CPU (all threads, user and system), median.
        ratio: to the bare loop on the same kind of loop, the median of the ratios of each round.
        ratio_min: the smallest of them.
        ratio_max: the largest of them.
        events_per_read: how many events came in one read, all rounds together; 1 is what is meant.
        rounds: how many rounds.
    """

    client: str
    loop: str
    events: int
    us_per_event: float
    ratio: float
    ratio_min: float
    ratio_max: float
    events_per_read: float
    rounds: int


class LiveStreams(msgspec.Struct, frozen=True, kw_only=True):
    """How many streams at once a client keeps up with, in one process.

    Attributes:
        client: its name.
        streams: the highest number with a delay of at most 100 ms for 99 of 100 events; 0: none that was tried.
        p99_ms: the delay there, milliseconds; None where none held.
        failed: the lowest number that didn't; None: the highest that was tried held.
        failed_p99_ms: the delay there; None if streams didn't even begin in time.
        server_late_ms: how late the server itself was there (99 of 100): where that is large, it was the limit.
        ours: turnstream's number over this one; None where none held.
    """

    client: str
    streams: int
    p99_ms: float | None
    failed: int | None
    failed_p99_ms: float | None
    server_late_ms: float | None
    ours: float | None


class IdleMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What an open stream holds while nothing comes.

    Attributes:
        client: its name.
        streams: over so many.
        heap_bytes: a stream, of Python's allocator.
        resident_bytes: a stream, of the process's memory; None where it isn't counted.
    """

    client: str
    streams: int
    heap_bytes: int
    resident_bytes: int | None


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of live streams.

    Attributes:
        costs: CPU an event, for each kind of loop.
        streams: how many at once, turnstream first.
        idle: memory.
    """

    costs: list[LiveCost]
    streams: list[LiveStreams]
    idle: list[IdleMemory]
