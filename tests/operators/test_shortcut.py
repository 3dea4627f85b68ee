"""The short cut for small chunks gives what the three stages give, one after the other: nothing else, nowhere else."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import pytest
import recordings
from corpus import BY_NAME, CORPUS
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import TEXT

from turnstream.messages import TransportError, seeded_clock, seeded_ids
from turnstream.operators import accumulate, decode, decode_sse, parse_events, settle
from turnstream.operators.stage import Chain, Fault, Operator

Options = dict[str, Any]


def operators(strict: bool, sniff: bool) -> list[Operator[Any, Any]]:
    return [
        decode(strict=strict) if sniff else decode_sse(strict=strict),
        parse_events(strict=strict),
        accumulate(ids=seeded_ids(3), clock=seeded_clock(), strict=strict),
    ]


def together(options: Options, more: Sequence[Operator[Any, Any]] = ()) -> Chain:
    return Chain([operator.chain()._stages[0] for operator in (*operators(**options), *more)])


def one_by_one(options: Options, more: Sequence[Operator[Any, Any]] = ()) -> Chain:
    """The same stages, without it."""
    chain = together(options, more)
    chain._fed = 2
    return chain


def shown(items: Sequence[Any]) -> list[str]:
    return [f"Fault({item.error!r})" if isinstance(item, Fault) else repr(item) for item in items]


def check(chunks: Sequence[Any], *, strict: bool = False, sniff: bool = False, error: Exception | None = None) -> None:
    options = {"strict": strict, "sniff": sniff}
    fast, slow = together(options), one_by_one(options)
    for number, chunk in enumerate(chunks):
        got, wanted = fast.feed((chunk,)), slow.feed((chunk,))
        assert shown(got) == shown(wanted), number
        assert fast.broken == slow.broken
        if fast.broken:
            return
        if wanted:
            assert fast.last.plain == slow.last.plain, number
    if error is None:
        assert shown(fast.flush()) == shown(slow.flush())
    else:
        assert shown(fast.fail(error)) == shown(slow.fail(error))


def by_event(data: bytes) -> list[bytes]:
    return [piece for piece in re.split(rb"(?<=\n\n)", data) if piece]


ENTRIES = pytest.mark.parametrize("name", [entry.name for entry in CORPUS])


@pytest.mark.parametrize("strict", [False, True])
@ENTRIES
def test_an_event_a_chunk(name: str, strict: bool) -> None:
    chunks = by_event(BY_NAME[name].data)
    check(chunks, strict=strict)
    check(chunks, strict=strict, sniff=True)
    check([b"".join(chunks[at : at + 2]) for at in range(0, len(chunks), 2)])


@ENTRIES
def test_a_stream_that_breaks_behind_any_event(name: str) -> None:
    chunks = by_event(BY_NAME[name].data)
    for end in range(min(len(chunks), 30) + 1):
        check(chunks[:end])
        check(chunks[:end], error=TransportError("gone"))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(CORPUS), st.integers(0, 2**32), st.booleans(), st.booleans())
def test_any_cut(entry: Any, seed: int, strict: bool, sniff: bool) -> None:
    """Most cuts behind an event, some elsewhere, some events twice, some bytes changed."""
    chance = random.Random(seed)
    pieces = by_event(entry.data)
    chunks: list[bytes] = []
    for piece in pieces:
        if chance.random() < 0.1:
            at = chance.randrange(len(piece) + 1)
            chunks += [piece[:at], piece[at:]]
        elif chunks and chance.random() < 0.2:
            chunks[-1] += piece
        else:
            chunks.append(piece)
        if chance.random() < 0.05:
            chunks.append(piece)
        if chance.random() < 0.03:
            chunks[-1] = chunks[-1].replace(b"a", chance.choice([b"\xff", b"\\ud83d", b"\r", b"\0", b'"', b"\n"]), 1)
    check(chunks, strict=strict, sniff=sniff)


@pytest.mark.parametrize("name", recordings.names((".sse",)))
def test_recordings_an_event_a_chunk(name: str) -> None:
    data = recordings.read(name)
    if len(data) < 3_000_000:
        check(by_event(data))


def test_stages_behind_it_still_get_everything() -> None:
    options: Options = {"strict": False, "sniff": False}
    for entry in CORPUS:
        fast, slow = together(options, [settle()]), one_by_one(options, [settle()])
        for chunk in by_event(entry.data):
            assert shown(fast.feed((chunk,))) == shown(slow.feed((chunk,))), entry.name
        assert shown(fast.flush()) == shown(slow.flush()), entry.name


@pytest.mark.parametrize("wrong", ["text", 7, None])
def test_what_is_no_chunk_is_the_decoders_to_refuse(wrong: Any) -> None:
    chain = together({"strict": False, "sniff": False})
    chain.feed((by_event(CORPUS[0].data)[0],))
    items = chain.feed((wrong,))
    assert isinstance(items[-1], Fault)
    assert isinstance(items[-1].error, TypeError)


def test_it_is_taken() -> None:
    """A chunk that is one delta to the open block passes none of the stages."""
    chain = together({"strict": False, "sniff": True})
    called: list[str] = []
    pieces = by_event(TEXT)
    first = next(number for number, piece in enumerate(pieces) if b"content_block_delta" in piece)
    for piece in pieces[: first + 1]:
        chain.feed((piece,))
    chain._feeds = tuple([lambda batch: called.append("stage") or ()] * 3)
    deltas = [piece for piece in pieces[first + 1 :] if b"content_block_delta" in piece]
    assert len(deltas) > 3
    for piece in deltas:
        assert len(chain.feed((piece,))) == 1
    assert called == []
