"""Sources: pulled, stamped, closed at once, errors typed (DESIGN.md §4)."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import frames as f
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstream.messages import (
    AbortedError,
    AssistantMessage,
    EventError,
    MessageStop,
    ResponseFailed,
    SourceError,
    UserMessage,
    seeded_clock,
    seeded_ids,
)
from turnstream.operators import (
    Batch,
    StreamKey,
    accumulate,
    answer_outcomes,
    decode,
    lift,
    parse_events,
    settle,
)
from turnstream.sources import (
    CHUNK_SIZE,
    SessionSource,
    Source,
    from_async_iterable,
    from_bytes,
    from_file,
    from_items,
    from_stdin,
    in_turn,
)
from turnstream.sources.base import cut
from turnstream.sources.files import _timed
from turnstream.testing import run_virtual, virtual_time

KEY = StreamKey("s", "t")


async def collect(source: Source[Any]) -> list[Batch[Any]]:
    """All batches."""
    stream = source.batches()
    if isinstance(stream, AsyncIterator):
        return [batch async for batch in stream]
    return list(stream)


def pull(source: Source[Any]) -> list[Batch[Any]]:
    return asyncio.run(collect(source))


def joined(batches: list[Batch[bytes]]) -> bytes:
    return b"".join(bytes(chunk) for batch in batches for chunk in batch)


# -- memory ------------------------------------------------------------------------------------------


def test_bytes_come_in_chunks_of_at_most_64_kib_unstamped_and_weighed() -> None:
    data = os.urandom(CHUNK_SIZE * 2 + 100)
    batches = pull(from_bytes(data))
    assert joined(batches) == data
    assert [batch.weight for batch in batches] == [CHUNK_SIZE, CHUNK_SIZE, 100]
    assert {(batch.at, batch.key, len(batch)) for batch in batches} == {(None, None, 1)}
    assert CHUNK_SIZE == 64 * 1024


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_bytes_may_be_any_buffer_and_are_read_again_in_each_run(make: Any) -> None:
    source = from_bytes(make(b"abc"), name="n", chunk_size=2)
    assert source.name == "n"
    assert [bytes(b[0]) for b in pull(source)] == [b"ab", b"c"]
    assert joined(pull(source)) == b"abc"


def test_chunks_are_kept_empty_ones_left_out_long_ones_cut() -> None:
    source = from_bytes([b"ab", b"", b"cdefg", memoryview(b"hij")], chunk_size=3)
    assert [(bytes(b[0]), b.weight) for b in pull(source)] == [(b"ab", 2), (b"cde", 3), (b"fg", 2), (b"hij", 3)]
    assert pull(from_bytes(b"")) == []


@pytest.mark.parametrize("size", [0, -1])
def test_a_chunk_size_below_one_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="chunk_size"):
        from_bytes(b"a", chunk_size=size)


@given(st.binary(max_size=50), st.integers(1, 20))
def test_cutting_loses_nothing(data: bytes, size: int) -> None:
    pieces = list(cut(data, size))
    assert b"".join(pieces) == data
    assert all(0 < len(piece) <= size for piece in pieces)


def test_items_come_in_batches_with_their_key() -> None:
    source = from_items(range(5), batch_size=2, key=KEY, name="numbers")
    assert source.name == "numbers"
    assert pull(source) == [Batch((0, 1), None, KEY), Batch((2, 3), None, KEY), Batch((4,), None, KEY)]
    assert pull(from_items([])) == []


def test_nothing_is_read_before_it_is_pulled() -> None:
    read: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(3):
            read.append(number)
            yield number

    stream = from_items(numbers(), batch_size=1).batches()
    assert read == []
    next(iter(stream))  # type: ignore[call-overload]
    assert read == [0]


# -- async iterables ---------------------------------------------------------------------------------


class Producer:
    """An async generator that says how it was closed."""

    def __init__(self, items: list[Any], gap: float = 1.0, error: Exception | None = None) -> None:
        self.items, self.gap, self.error = items, gap, error
        self.closed = 0

    async def stream(self) -> AsyncIterator[Any]:
        try:
            for item in self.items:
                await asyncio.sleep(self.gap)
                yield item
            if self.error is not None:
                raise self.error
        finally:
            await asyncio.sleep(0)
            self.closed += 1


@virtual_time
async def test_each_item_is_a_batch_stamped_with_the_loops_time() -> None:
    producer = Producer([b"abcde", b"", {"an": "item"}])
    batches = await collect(from_async_iterable(producer.stream(), key=KEY, chunk_size=3))
    assert batches == [
        Batch((b"abc",), 1.0, KEY, 3),
        Batch((b"de",), 1.0, KEY, 2),
        Batch(({"an": "item"},), 3.0, KEY, 0),
    ]
    assert producer.closed == 1


@virtual_time
async def test_leaving_early_closes_the_producer_at_once() -> None:
    producer = Producer([1, 2, 3])
    stream: Any = from_async_iterable(producer.stream()).batches()
    assert (await anext(stream)).items == (1,)
    await stream.aclose()
    assert producer.closed == 1


@virtual_time
async def test_a_cancelled_pull_closes_the_producer_at_once() -> None:
    producer = Producer([1, 2], gap=100.0)
    task = asyncio.ensure_future(collect(from_async_iterable(producer.stream())))
    await asyncio.sleep(1.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert producer.closed == 1


@virtual_time
async def test_the_producers_error_comes_through_and_it_is_closed() -> None:
    error = ConnectionResetError("reset")
    producer = Producer([1], error=error)
    stream: Any = from_async_iterable(producer.stream()).batches()
    assert (await anext(stream)).items == (1,)
    with pytest.raises(ConnectionResetError) as caught:
        await anext(stream)
    assert (caught.value, producer.closed) == (error, 1)


@virtual_time
async def test_an_iterable_without_aclose_will_do() -> None:
    class Plain:
        def __init__(self) -> None:
            self.left = 2

        def __aiter__(self) -> Plain:
            return self

        async def __anext__(self) -> int:
            self.left -= 1
            if self.left < 0:
                raise StopAsyncIteration
            return self.left

    assert [b[0] for b in await collect(from_async_iterable(Plain(), name="plain"))] == [1, 0]


# -- files -------------------------------------------------------------------------------------------


def test_a_file_is_read_in_chunks_unstamped(tmp_path: Path) -> None:
    data = os.urandom(CHUNK_SIZE + 10)
    path = tmp_path / "a.sse"
    path.write_bytes(data)
    source = from_file(path)
    assert source.name == str(path)
    for _ in range(2):
        batches = pull(source)
        assert joined(batches) == data
        assert [(b.at, b.weight) for b in batches] == [(None, CHUNK_SIZE), (None, 10)]
    assert pull(from_file(str(path))) == batches


def test_an_empty_file_has_no_batches(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert pull(from_file(tmp_path / "empty")) == []
    assert pull(from_file(tmp_path / "empty", pace=1)) == []


@pytest.mark.parametrize("pace", [None, 1.0])
def test_a_missing_file_is_a_source_error_when_it_is_pulled(tmp_path: Path, pace: float | None) -> None:
    source = from_file(tmp_path / "missing.sse", pace=pace)
    with pytest.raises(SourceError) as caught:
        pull(source)
    assert caught.value.file == str(tmp_path / "missing.sse")
    assert "No such file" in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("pace", [None, 1.0])
def test_a_directory_is_a_source_error(tmp_path: Path, pace: float | None) -> None:
    with pytest.raises(SourceError, match="directory"):
        pull(from_file(tmp_path, pace=pace))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_a_source_error(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch()
    path.chmod(0)
    with pytest.raises(SourceError, match=r"[Pp]ermission"):
        pull(from_file(path))


def open_files() -> int:
    return len(os.listdir("/proc/self/fd" if sys.platform == "linux" else "/dev/fd"))


@pytest.mark.parametrize("pace", [None, 1.0])
def test_leaving_early_closes_the_file(tmp_path: Path, pace: float | None) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 3 * CHUNK_SIZE)

    async def scenario() -> None:
        before = open_files()
        stream: Any = from_file(path, pace=pace).batches()
        if pace is None:
            next(stream)
            assert open_files() == before + 1
            stream.close()
        else:
            await anext(stream)
            assert open_files() == before + 1
            await stream.aclose()
        assert open_files() == before

    asyncio.run(scenario())


# -- pace --------------------------------------------------------------------------------------------

STAMPED = [
    (b"", b"data: before\n\n"),
    (b": turnstream at=0.500000\n", b"data: one\n\n"),
    (b":turnstream at=2\n", b"data: two\n\ndata: three\n\n"),
    (b": turnstream at=10.25\r\n", b"data: four\r\n\r\n"),
]
RECORDING = b"".join(stamp + data for stamp, data in STAMPED)
DUE = [0.0, 0.5, 2.0, 10.25]


def paced(path: Path, pace: float) -> list[Batch[bytes]]:
    return run_virtual(collect(from_file(path, pace=pace)))


@pytest.mark.parametrize("pace", [1.0, 2.0, 0.5])
def test_a_recording_plays_at_its_recorded_times(tmp_path: Path, pace: float) -> None:
    path = tmp_path / "a.sse"
    path.write_bytes(RECORDING)
    batches = paced(path, pace)
    assert joined(batches) == RECORDING
    assert [b.weight for b in batches] == [len(b[0]) for b in batches]
    at: dict[bytes, float | None] = {}
    for batch in batches:
        for word in (b"before", b"one", b"two", b"three", b"four"):
            if word in batch[0]:
                at[word] = batch.at
    assert at == {
        b"before": 0.0,
        b"one": 0.5 / pace,
        b"two": 2.0 / pace,
        b"three": 2.0 / pace,
        b"four": 10.25 / pace,
    }


def test_the_times_count_from_when_the_run_pulls(tmp_path: Path) -> None:
    path = tmp_path / "a.sse"
    path.write_bytes(RECORDING)

    async def scenario() -> list[Any]:
        source = from_file(path, pace=1)
        stream = source.batches()
        await asyncio.sleep(100.0)
        return [batch.at async for batch in stream]  # type: ignore[union-attr]

    assert run_virtual(scenario(), start=7.0)[-1] == 117.25


def test_a_slow_reader_is_not_made_to_wait_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.sse"
    path.write_bytes(RECORDING)

    async def scenario() -> list[Any]:
        times = []
        async for batch in from_file(path, pace=1).batches():  # type: ignore[union-attr]
            times.append(batch.at)
            await asyncio.sleep(3.0)
        return times

    assert run_virtual(scenario()) == [0.0, 3.0, 6.0, 10.25]


def test_a_recording_without_times_plays_at_once_stamped(tmp_path: Path) -> None:
    path = tmp_path / "a.sse"
    path.write_bytes(f.sse(f.start(), f.says("a"), f.STOP))
    batches = paced(path, 1.0)
    assert joined(batches) == path.read_bytes()
    assert {b.at for b in batches} == {0.0}


@pytest.mark.parametrize("pace", [0, -1.0, float("nan")])
def test_a_pace_that_is_not_above_zero_is_refused(pace: float) -> None:
    with pytest.raises(ValueError, match="pace"):
        from_file("a", pace=pace)


NO_STAMPS = [
    b"data: : turnstream at=5\n\n",
    b"data: x: turnstream at=5\n",
    b": turnstream at=\n",
    b": turnstream at=x\n",
    b": turnstream at=1.\n",
    b": turnstream at=1 \n",
    b": turnstream at=7",
    ": turnstream at=٣\n".encode(),
]


@pytest.mark.parametrize("data", NO_STAMPS)
def test_what_is_no_stamp_is_data(data: bytes) -> None:
    assert {due for due, _ in _timed(iter([data]))} == {None}


STAMP_PIECES = st.sampled_from(
    [*(stamp for stamp, _ in STAMPED), *(data for _, data in STAMPED), *NO_STAMPS, b"\r", b"\n", b"x" * 70]
)


@given(st.lists(STAMP_PIECES, max_size=8), st.lists(st.integers(1, 30), max_size=30))
def test_stamps_do_not_depend_on_chunking(pieces: list[bytes], sizes: list[int]) -> None:
    data = b"".join(pieces)
    chunks, at = [], 0
    for size in (*sizes, len(data) or 1):
        if data[at : at + size]:
            chunks.append(data[at : at + size])
        at += size

    def dues(parts: Iterator[tuple[float | None, bytes]]) -> list[float | None]:
        """When each byte is due."""
        return [due for due, piece in parts for _ in piece]

    assert b"".join(piece for _, piece in _timed(iter(chunks))) == data
    assert dues(_timed(iter(chunks))) == dues(_timed(iter([data])))


# -- standard input ----------------------------------------------------------------------------------


def test_a_pipe_is_live_and_leaves_the_descriptor_as_it_was() -> None:
    reader, writer = os.pipe()

    async def scenario() -> list[Any]:
        loop = asyncio.get_running_loop()
        flags = os.get_blocking(reader)
        source = from_stdin(reader)
        assert source.name == "stdin"
        task = asyncio.ensure_future(collect(source))
        await asyncio.sleep(0)
        os.write(writer, b"one")
        while select_readable(reader):
            await asyncio.sleep(0)
        os.write(writer, b"two")
        os.close(writer)
        batches = await task
        assert os.get_blocking(reader) is flags
        assert all(batch.at is not None and batch.at <= loop.time() for batch in batches)
        return batches

    try:
        batches = asyncio.run(scenario())
    finally:
        os.close(reader)
    assert joined(batches) == b"onetwo"
    assert [(bytes(b[0]), b.weight) for b in batches] == [(b"one", 3), (b"two", 3)]


def select_readable(fd: int) -> bool:
    import select

    return bool(select.select([fd], [], [], 0)[0])


def test_waiting_for_a_pipe_can_be_cancelled() -> None:
    reader, writer = os.pipe()

    async def scenario() -> bool:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(collect(from_stdin(reader)))
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return loop.remove_reader(reader)

    try:
        assert asyncio.run(scenario()) is False, "the reader was left behind"
    finally:
        os.close(reader)
        os.close(writer)


def test_a_redirected_file_is_not_live(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * (CHUNK_SIZE + 1))
    fd = os.open(path, os.O_RDONLY)
    try:
        batches = pull(from_stdin(fd))
    finally:
        os.close(fd)
    assert [(b.at, b.weight) for b in batches] == [(None, CHUNK_SIZE), (None, 1)]


def test_dev_null_is_an_empty_input() -> None:
    # What cron and many containers give: a character device that no selector takes.
    fd = os.open(os.devnull, os.O_RDONLY)
    try:
        assert stat.S_ISCHR(os.fstat(fd).st_mode)
        assert pull(from_stdin(fd)) == []
    finally:
        os.close(fd)


def test_a_descriptor_that_cannot_be_read_is_a_source_error(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(SourceError, match="directory"):
            pull(from_stdin(fd))
    finally:
        os.close(fd)
    with pytest.raises(SourceError, match="standard input"):
        pull(from_stdin(fd))


@pytest.mark.parametrize("stdin", [None, object()])
def test_no_standard_input_at_all_is_a_source_error(monkeypatch: pytest.MonkeyPatch, stdin: Any) -> None:
    monkeypatch.setattr(sys, "stdin", stdin)
    with pytest.raises(SourceError):
        pull(from_stdin())


def test_the_process_own_standard_input_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    with path.open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert joined(pull(from_stdin())) == b"abc"


# -- sessions ----------------------------------------------------------------------------------------


def answers() -> Any:
    return decode() | parse_events() | accumulate(ids=seeded_ids(1), clock=seeded_clock()) | settle()


WHOLE = f.sse(f.start("a"), f.says("one"), f.turn(), f.STOP)
HALF = f.sse(f.start("b"), f.opens_text(0), f.text(0, "half"))


def session(*sources: Source[Any], **options: Any) -> SessionSource[Any, Any]:
    return SessionSource(sources, lambda source: answers(), **options)


def items_of(batches: list[Batch[Any]]) -> list[Any]:
    return [item for batch in batches for item in batch]


def test_sources_play_in_turn_each_through_a_fresh_chain() -> None:
    made: list[str] = []

    def make(source: Source[Any]) -> Any:
        made.append(source.name)
        return answers()

    source = SessionSource([from_bytes(HALF, name="x"), from_bytes(WHOLE, name="y")], make, name="both")
    items = items_of(pull(source))
    assert made == ["x", "y"]
    assert source.name == "both"
    assert [m.message["content"][0]["text"] for m in items if isinstance(m, AssistantMessage)] == ["half", "one"]
    assert [o.word for o in answer_outcomes(items)] == ["incomplete(0)", "complete"]
    assert source.errors == []


def test_in_turn_is_the_short_form() -> None:
    source = in_turn([from_bytes(WHOLE)], lambda source: answers(), name="n")
    assert isinstance(source, SessionSource)
    assert [o.word for o in answer_outcomes(items_of(pull(source)))] == ["complete"]


class Broken(Source[bytes]):
    def __init__(self, data: bytes, error: Exception, *, at_once: bool = False) -> None:
        self.data, self.error, self.at_once = data, error, at_once
        self.name = "broken"

    def batches(self) -> Iterator[Batch[bytes]]:
        if self.at_once:
            raise self.error
        return self._batches()

    def _batches(self) -> Iterator[Batch[bytes]]:
        yield Batch((self.data,), None, KEY, len(self.data))
        raise self.error


@pytest.mark.parametrize(
    "error", [SourceError("gone"), ConnectionResetError("reset"), ValueError("a bug"), TimeoutError()]
)
@pytest.mark.parametrize("at_once", [False, True])
def test_a_broken_source_is_one_failed_answer_and_the_next_is_played(error: Exception, at_once: bool) -> None:
    source = session(from_bytes(WHOLE), Broken(HALF, error, at_once=at_once), from_bytes(WHOLE))
    items = items_of(pull(source))
    assert [o.word for o in answer_outcomes(items)] == ["complete", "incomplete(0)", "complete"]
    (failed,) = [item for item in items if isinstance(item, ResponseFailed)]
    assert failed.kept == ([] if at_once else [f.text_block("half")])
    assert source.errors == [("broken", error)]


def test_a_missing_file_is_one_failed_answer_and_the_next_is_played(tmp_path: Path) -> None:
    source = session(from_file(tmp_path / "missing"), from_bytes(b"", name="empty"), from_bytes(WHOLE))
    items = items_of(pull(source))
    assert [o.word for o in answer_outcomes(items)] == ["incomplete(0)", "empty", "complete"]
    assert [name for name, _ in source.errors] == [str(tmp_path / "missing")]


def test_a_complete_answer_before_a_source_that_cannot_be_opened_stays_complete(tmp_path: Path) -> None:
    items = items_of(pull(session(from_bytes(WHOLE), from_file(tmp_path / "missing"))))
    assert [o.word for o in answer_outcomes(items)] == ["complete", "incomplete(0)"]


def test_a_stages_fault_ends_its_source_only() -> None:
    source = SessionSource(
        [from_bytes(f.sse(f.PING, b"data: {oops\n\n") + WHOLE, name="odd"), from_bytes(WHOLE, name="good")],
        lambda source: decode() | parse_events(strict=True),
    )
    items = items_of(pull(source))
    assert type(items[0]).__name__ == "Ping"
    assert isinstance(items[-1], MessageStop)
    ((name, error),) = source.errors
    assert name == "odd"
    assert isinstance(error, EventError)


def test_a_crash_in_a_stage_is_reported_once() -> None:
    class Crashing:
        def feed(self, batch: Any, /) -> Any:
            return batch

        def flush(self) -> Any:
            raise RuntimeError("flush")

        def fail(self, error: Exception, /) -> Any:
            raise RuntimeError("fail")

    def make(source: Source[Any]) -> Any:
        return lift(Crashing)

    broke = OSError("broke")
    source = SessionSource([from_bytes(b"x", name="x"), Broken(b"y", broke)], make)
    assert items_of(pull(source)) == [b"x", b"y"]
    assert [(name, str(error)) for name, error in source.errors] == [("x", "flush"), ("broken", "broke")]


def test_started_and_finished_are_told_around_each_source() -> None:
    told: list[str] = []
    source = session(
        from_bytes(WHOLE, name="x"),
        Broken(b"", OSError("x")),
        from_bytes(WHOLE, name="y"),
        started=lambda s: told.append(f"+{s.name}"),
        finished=lambda s: told.append(f"-{s.name}"),
    )
    pull(source)
    assert told == ["+x", "-x", "+broken", "-broken", "+y", "-y"]


def test_the_bytes_of_all_sources_are_weighed_whatever_came_of_them() -> None:
    data = [WHOLE, b": a comment\n\n", HALF, b"half an event"]
    for size in (1, 7, 10_000):
        batches = pull(session(*(from_bytes(d, chunk_size=size) for d in data)))
        assert sum(b.weight for b in batches) == sum(map(len, data))


@virtual_time
async def test_live_sources_keep_time_and_key() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(HALF), 40):
            await asyncio.sleep(1.0)
            yield HALF[at : at + 40]

    batches = await collect(session(from_async_iterable(chunks(), key=KEY)))
    assert {batch.key for batch in batches} == {KEY}
    assert batches[0].at is not None
    assert batches[-1].at is None, "the flush came of no chunk"
    assert sum(b.weight for b in batches) == len(HALF)


@virtual_time
async def test_leaving_early_closes_the_source_that_plays() -> None:
    producer = Producer([WHOLE, WHOLE])
    stream: Any = session(from_async_iterable(producer.stream())).batches()
    await anext(stream)
    await stream.aclose()
    assert producer.closed == 1


def test_leaving_early_closes_a_file_that_plays(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b": x\n\n" * CHUNK_SIZE)

    async def scenario() -> None:
        before = open_files()
        stream: Any = session(from_file(path)).batches()
        await anext(stream)
        assert open_files() == before + 1
        await stream.aclose()
        assert open_files() == before

    asyncio.run(scenario())


def test_an_interrupt_gives_out_what_the_open_answer_held() -> None:
    async def scenario() -> list[Any]:
        source = session(from_bytes(HALF), from_bytes(WHOLE))
        stream: Any = source.batches()
        await anext(stream)
        items = list(source.interrupt(AbortedError("user")))
        assert list(source.interrupt(AbortedError("again"))) == []
        await stream.aclose()
        return items

    partial, failed, interruption = asyncio.run(scenario())
    assert isinstance(partial, AssistantMessage)
    assert partial.message["content"] == [f.text_block("half")]
    assert failed.error["type"] == "aborted"
    assert isinstance(interruption, UserMessage)


def test_an_interrupt_before_or_after_the_run_holds_nothing() -> None:
    source = session(from_bytes(WHOLE))
    assert list(source.interrupt(AbortedError())) == []
    pull(source)
    assert list(source.interrupt(AbortedError())) == []
    assert list(from_bytes(b"x").interrupt(AbortedError())) == []


def test_a_session_can_be_run_again() -> None:
    source = session(from_bytes(WHOLE), from_bytes(WHOLE))
    first, second = items_of(pull(source)), items_of(pull(source))
    assert [o.word for o in answer_outcomes(first)] == [o.word for o in answer_outcomes(second)] == ["complete"] * 2
