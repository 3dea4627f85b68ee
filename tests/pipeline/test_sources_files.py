"""Sources that read files and standard input: pulled, stamped, closed at once, errors typed (DESIGN.md §4)."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import frames as f
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulling import collect, joined, open_files, pull

from turnstream.messages import (
    SourceError,
)
from turnstream.operators import (
    Batch,
)
from turnstream.sources import (
    CHUNK_SIZE,
    from_file,
    from_stdin,
)
from turnstream.sources.files import _timed
from turnstream.testing import run_virtual

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
