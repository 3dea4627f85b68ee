"""Framing never depends on chunking, and composition doesn't change meaning (WIRE.md §1; DESIGN.md §3).

Runs are compared after ``settle()``, with seeded ids and clock; positions in notes and failures aside.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise, repeat
from typing import Any

import msgspec
import pytest
import reactivex
import recordings
from corpus import BY_NAME, CORPUS
from harness import as_sse, container_of, joined, run, stages
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnstream.messages import ResponseFailed, StreamNote
from turnstream.operators import decode_sse, run_stages

RECORDED = [name for name in recordings.names() if isinstance(name, str)]
SMALL = 40_000  # bytes: for what costs time by the byte

MODEST = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@cache
def stream(name: str) -> bytes:
    """The bytes of a corpus entry or recording, in whatever container."""
    entry = BY_NAME.get(name)
    return recordings.read(name) if entry is None else entry.data


def container(name: str) -> str:
    entry = BY_NAME.get(name)
    return container_of(name) if entry is None else entry.container


NAMES = [*BY_NAME, *RECORDED]
SHORT = [name for name in NAMES if len(stream(name)) <= SMALL]


def plain(items: Sequence[Any]) -> list[Any]:
    """Items without positions, as values that compare deeply."""
    out: list[Any] = []
    for item in items:
        if isinstance(item, StreamNote | ResponseFailed):
            item = msgspec.structs.replace(item, event_number=None, byte_offset=None)
        out.append(item)
    return out


@cache
def whole(name: str) -> list[Any]:
    return plain(run(stream(name)))


def cut(data: bytes, sizes: Iterator[int]) -> Iterator[bytes]:
    at = 0
    for size in sizes:
        if at >= len(data):
            return
        yield data[at : at + size]
        at += size


def random_cuts(data: bytes, seed: int, largest: int) -> list[bytes]:
    rng = random.Random(seed)
    return list(cut(data, iter(lambda: rng.randint(0, largest), -1)))


@MODEST
@given(
    name=st.sampled_from(NAMES), seed=st.integers(0, 2**32), largest=st.sampled_from([1, 2, 3, 7, 40, 300, 5000, 70000])
)
def test_any_chunks_give_the_same_items(name: str, seed: int, largest: int) -> None:
    data = stream(name)
    largest = max(largest, len(data) // 3000)
    assert plain(run(random_cuts(data, seed, largest))) == whole(name)


@MODEST
@given(data=st.data(), name=st.sampled_from([entry.name for entry in CORPUS]))
def test_two_cuts_anywhere(data: st.DataObject, name: str) -> None:
    raw = stream(name)
    places = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=4)))
    ends = [0, *places, len(raw)]
    assert plain(run([raw[a:b] for a, b in pairwise(ends)])) == whole(name)


@pytest.mark.parametrize("name", [entry.name for entry in CORPUS])
def test_byte_by_byte(name: str) -> None:
    data = stream(name)
    step = 1 + len(data) // 6000
    assert plain(run([data[at : at + step] for at in range(0, len(data), step)])) == whole(name)


@pytest.mark.parametrize("name", [entry.name for entry in CORPUS if len(stream(entry.name)) < 1200])
def test_every_single_cut(name: str) -> None:
    data = stream(name)
    assert all(plain(run([data[:at], data[at:]])) == whole(name) for at in range(len(data) + 1))


def test_recordings_byte_by_byte() -> None:
    recordings.need("recordings byte by byte")
    for name in random.Random(7).sample([n for n in SHORT if n in RECORDED], 25):
        data = stream(name)
        assert plain(run([data[at : at + 1] for at in range(len(data))])) == whole(name), name


# -- the same stream, framed otherwise ---------------------------------------------------------------------


def crlf(data: bytes, rng: random.Random) -> bytes:
    return data.replace(b"\n", b"\r\n")


def cr(data: bytes, rng: random.Random) -> bytes:
    return data.replace(b"\n", b"\r")


def mixed(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    out = lines[0]
    ends = (b"\n", b"\r\n", b"\r")
    end = b""
    for line in lines[1:]:
        # A CR before a lone LF would make one terminator of two.
        end = rng.choice([e for e in ends if not (end == b"\r" and e == b"\n")])
        out += end + line
    return out


def bom(data: bytes, rng: random.Random) -> bytes:
    return b"\xef\xbb\xbf" + data


def comments(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    out = []
    for line in lines:
        if rng.random() < 0.3 and (line or out):
            out.append(rng.choice([b":", b": keep-alive", b":x: \xe2\x80\xa8 data: {}"]))
        out.append(line)
    return b"\n".join(out)


def blank_lines(data: bytes, rng: random.Random) -> bytes:
    return b"\n\n" + data.replace(b"\n\n", b"\n\n\n\n")


def ids_and_retries(data: bytes, rng: random.Random) -> bytes:
    return data.replace(b"\ndata:", b"\nid: 9\nretry: 100\nevents: x\ndata:")


def no_space(data: bytes, rng: random.Random) -> bytes:
    return data.replace(b"\ndata: ", b"\ndata:").replace(b"\nevent: ", b"\nevent:")


REFRAMINGS = (crlf, cr, mixed, bom, comments, blank_lines, ids_and_retries, no_space)
# Entries whose bytes are about these very things.
ABOUT_FRAMING = frozenset(
    {
        "crlf",
        "cr-only",
        "mixed-line-ends",
        "terminators-of-two-kinds",
        "bom",
        "two-boms",
        "only-an-empty-data-line",
        "data-in-many-lines-crlf",
        "fallback-names-crlf",
    }
)
REFRAMABLE = [n for n in SHORT if n not in ABOUT_FRAMING and container(n) == "sse"]


@MODEST
@given(
    name=st.sampled_from(REFRAMABLE),
    reframe=st.sampled_from(REFRAMINGS),
    seed=st.integers(0, 2**32),
    largest=st.sampled_from([1, 2, 5, 60, 70000]),
)
def test_line_ends_bom_and_comments_change_nothing(name: str, reframe: Any, seed: int, largest: int) -> None:
    rng = random.Random(seed)
    data = reframe(stream(name), rng)
    largest = max(largest, len(data) // 3000)
    got = plain(run(random_cuts(data, seed, largest)))
    assert got == whole(name), reframe.__name__


@pytest.mark.parametrize("name", [n for n in REFRAMABLE if n in BY_NAME])
def test_reframed_corpus(name: str) -> None:
    """At once and byte by byte: a CR at the end of a chunk may be half of a CRLF (FAULTS 3)."""
    for reframe in REFRAMINGS:
        data = reframe(stream(name), random.Random(name))
        assert plain(run(data)) == whole(name), reframe.__name__
        step = 1 + len(data) // 3000
        assert plain(run(cut(data, repeat(step)))) == whole(name), (reframe.__name__, step)


# -- the same stream in other containers -------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in NAMES if container(n) in ("ndjson", "json")])
def test_containers_give_the_items_of_what_they_hold(name: str) -> None:
    """WIRE.md §1, decided cases: against frames that the tests made of the container's payloads."""
    assert plain(run(as_sse(stream(name), container(name)), decoder=decode_sse())) == whole(name)


@pytest.mark.parametrize("name", [n for n in NAMES if container(n) == "sse"])
def test_sniffing_changes_nothing_for_event_streams(name: str) -> None:
    assert plain(run(stream(name), decoder=decode_sse())) == whole(name)


# -- composed, fused, without Rx ---------------------------------------------------------------------------


def through_rx(chunks: Sequence[bytes], operators: Sequence[Any]) -> list[Any]:
    """Run batches of one chunk through Rx; every operator its own hop."""
    out: list[Any] = []
    failed: list[Exception] = []
    done: list[bool] = []
    source: Any = reactivex.from_iterable([[chunk] for chunk in chunks])
    source.pipe(*operators).subscribe(out.extend, failed.append, lambda: done.append(True))
    assert failed == []
    assert done == [True]
    return plain(out)


@MODEST
@given(name=st.sampled_from(SHORT), seed=st.integers(0, 2**32), largest=st.sampled_from([3, 50, 700, 16384]))
def test_composed_fused_and_without_rx(name: str, seed: int, largest: int) -> None:
    chunks = random_cuts(stream(name), seed, max(largest, len(stream(name)) // 500))
    expected = whole(name)
    assert through_rx(chunks, stages()) == expected, "composed"
    fused = joined(stages())
    assert fused.fused
    assert through_rx(chunks, [fused]) == expected, "fused"
    assert plain(run_stages(chunks, *stages())) == expected, "without Rx, one batch"
    assert plain(run(chunks)) == expected, "without Rx, a batch a chunk"


def test_one_operator_serves_many_subscriptions_without_leaking_state() -> None:
    """Each subscription gets stages of its own (FAULTS 17, 102)."""
    half = BY_NAME["eof-inside-text"].data
    fused = joined([stages()[0], stages()[1]])
    source: Any = reactivex.from_iterable([[half]])
    piped = source.pipe(fused)
    runs: list[list[Any]] = []
    for _ in range(3):
        out: list[Any] = []
        piped.subscribe(out.extend)
        runs.append(out)
    assert runs[0]
    assert runs[0] == runs[1] == runs[2]
