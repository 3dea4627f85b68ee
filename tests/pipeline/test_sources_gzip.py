"""Gzipped recordings (.gz), read like the others."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from pulling import collect, joined, open_files, pull

from turnstream.messages import SourceError
from turnstream.operators import Batch
from turnstream.sources import CHUNK_SIZE, from_file
from turnstream.testing import run_virtual


@pytest.mark.parametrize("name", ["answer.sse.gz", "answer.sse"])
def test_a_gzipped_recording_is_the_same(tmp_path: Path, name: str) -> None:
    data = b"data: x\n\n" * 50_000
    path = tmp_path / name
    path.write_bytes(gzip.compress(data[:300_000]) + gzip.compress(data[300_000:]))  # two members
    batches = pull(from_file(path))
    assert joined(batches) == data
    assert max(batch.weight for batch in batches) <= CHUNK_SIZE
    assert all(batch.weight == len(batch[0]) for batch in batches)


def test_a_gzipped_recording_that_is_cut_off_or_broken_gives_what_came_before(tmp_path: Path) -> None:
    data = os.urandom(300_000)
    packed = gzip.compress(data)
    for bad, word in ((packed[:-5], "cut off"), (packed[:200_000], "cut off"), (packed[:-8] + bytes(8), "broken")):
        path = tmp_path / "bad.sse.gz"
        path.write_bytes(bad)
        before = open_files()
        batches: list[Batch[bytes]] = []
        with pytest.raises(SourceError, match=word) as broken:
            batches.extend(from_file(path).batches())  # type: ignore[arg-type]
        got = joined(batches)
        assert broken.value.file == str(path)
        assert len(got) >= 190_000
        assert data.startswith(got)
        assert open_files() == before


def test_a_gzipped_recording_at_its_pace(tmp_path: Path) -> None:
    path = tmp_path / "paced.sse.gz"
    path.write_bytes(gzip.compress(b": turnstream at=0.000\ndata: 1\n\n: turnstream at=7.000\ndata: 2\n\n"))

    async def times() -> list[float | None]:
        return [batch.at for batch in await collect(from_file(path, pace=1))]

    assert run_virtual(times())[-1] == pytest.approx(7)


def test_plain_bytes_that_begin_almost_like_gzip(tmp_path: Path) -> None:
    for data in (b"", b"\x1f", b"\x1f\x8c data"):
        path = tmp_path / "plain"
        path.write_bytes(data)
        assert joined(pull(from_file(path))) == data
