"""A session: sources in turn, a fresh chain each; one that breaks is one failed answer (DESIGN.md §3, §4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import frames as f
import pytest
from pulling import KEY, Producer, collect, items_of, open_files, pull

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
    in_turn,
)
from turnstream.testing import virtual_time

# -- sessions ----------------------------------------------------------------------------------------


def answers() -> Any:
    return decode() | parse_events() | accumulate(ids=seeded_ids(1), clock=seeded_clock()) | settle()


WHOLE = f.sse(f.start("a"), f.says("one"), f.turn(), f.STOP)
HALF = f.sse(f.start("b"), f.opens_text(0), f.text(0, "half"))


def session(*sources: Source[Any], **options: Any) -> SessionSource[Any, Any]:
    return SessionSource(sources, lambda source: answers(), **options)


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


def test_a_source_may_give_any_iterator() -> None:
    class Listed(Source[bytes]):
        def batches(self) -> Iterator[Batch[bytes]]:
            return iter([Batch((WHOLE,), None, None, len(WHOLE))])  # which can't be closed

    played = session(Listed(), from_bytes(WHOLE))
    assert [outcome.word for outcome in answer_outcomes(items_of(pull(played)))] == ["complete", "complete"]
    assert played.errors == []


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
