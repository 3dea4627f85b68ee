"""A pipeline: source → operators → sinks, one run with one outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

import turnstream as ts
from turnstream.messages import (
    AssistantMessage,
    MessageStop,
    ResponseFailed,
    SinkError,
    SourceError,
    StreamNote,
    TextDelta,
    ToolUseSummary,
    UserMessage,
    seeded_clock,
    seeded_ids,
)
from turnstream.messages.texts import INTERRUPTED, MISSING_RESULT
from turnstream.operators import Batch
from turnstream.sinks.base import SinkBase

TEXT = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant",'
    b'"model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":1}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}\n\n'
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)
TOOL = (
    b'data: {"type":"message_start","message":{"id":"msg_2","model":"m","usage":{"input_tokens":3,"output_tokens":1}}}\n\n'
    b'data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"Read","input":{}}}\n\n'
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\\"a\\":1}"}}\n\n'
    b'data: {"type":"content_block_stop","index":0}\n\n'
    b'data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}\n\n'
    b'data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"half a sen"}}\n\n'
)


class Recorder(SinkBase):
    def __init__(self, name: str = "recorder") -> None:
        self.name = name
        self.items: list[Any] = []
        self.weight = 0
        self.end: Any = None
        self.closed = 0

    def on_next(self, batch: Sequence[Any], /) -> None:
        self.items.extend(batch)
        self.weight += batch.weight if isinstance(batch, Batch) else 0

    def on_error(self, error: Exception, /) -> None:
        self.end = error

    def on_completed(self) -> None:
        self.end = "completed"

    async def aclose(self) -> None:
        self.closed += 1


def stages() -> Any:
    return ts.decode_sse() | ts.parse_events() | ts.accumulate(ids=seeded_ids(), clock=seeded_clock())


def test_a_run_delivers_everything_to_every_sink() -> None:
    one, two = Recorder("one"), Recorder("two")
    outcome = asyncio.run(ts.Pipeline(ts.from_bytes(TEXT)).through(stages()).to(one, two).run())
    assert outcome.ok
    assert outcome.status == "complete"
    assert (outcome.answers_complete, outcome.answers_failed) == (1, 0)
    assert outcome.bytes == len(TEXT) == one.weight
    assert one.items == two.items
    (message,) = [item for item in one.items if isinstance(item, AssistantMessage)]
    assert message.message["content"] == [{"type": "text", "text": "Hi"}]
    assert message.message["usage"] == {"input_tokens": 3, "output_tokens": 2}
    assert message.message["stop_reason"] == "end_turn"
    assert one.end == "completed"
    assert one.closed == 1


def test_operators_given_one_by_one_and_fused_do_the_same() -> None:
    apart, fused = Recorder(), Recorder()
    make = ts.accumulate(ids=seeded_ids(), clock=seeded_clock())
    asyncio.run(
        ts.Pipeline(ts.from_bytes(TEXT))
        .through(ts.decode_sse())
        .through(ts.parse_events())
        .through(make)
        .to(apart)
        .run()
    )
    asyncio.run(ts.Pipeline(ts.from_bytes(TEXT)).through(stages()).to(fused).run())
    assert apart.items == fused.items


def test_bytes_are_counted_the_same_in_any_chunking() -> None:
    for chunks in ([TEXT], [TEXT[i : i + 1] for i in range(len(TEXT))], [TEXT[:100], TEXT[100:]]):
        sink = Recorder()
        outcome = asyncio.run(ts.Pipeline(ts.from_bytes(chunks)).through(stages()).to(sink).run())
        assert outcome.bytes == sink.weight == len(TEXT)


def test_a_failed_answer_is_an_item_and_the_outcome_says_failed() -> None:
    sink = Recorder()
    outcome = asyncio.run(ts.Pipeline(ts.from_bytes(TOOL)).through(stages()).to(sink).run())
    assert outcome.status == "failed"
    assert [f.outcome for f in outcome.failures] == ["incomplete(1)"]
    assert sink.end == "completed"
    assert isinstance(sink.items[-1], ResponseFailed)


class Raising(Recorder):
    def on_next(self, batch: Sequence[Any], /) -> None:
        super().on_next(batch)
        raise ValueError("boom")


def test_fault_83_a_raising_sink_is_detached_and_changes_nothing_for_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    alone, beside, bad = Recorder("rec"), Recorder("rec"), Raising("bad")
    chunks = [TEXT[:300], TEXT[300:]]
    asyncio.run(ts.Pipeline(ts.from_bytes(chunks)).through(stages()).to(alone).run())
    with caplog.at_level(logging.WARNING):
        outcome = asyncio.run(ts.Pipeline(ts.from_bytes(chunks)).through(stages()).to(bad, beside).run())
    notes = [i for i in beside.items if isinstance(i, StreamNote)]
    assert [n.kind for n in notes] == ["sink_detached"]
    assert [i for i in beside.items if not isinstance(i, StreamNote)] == alone.items
    assert outcome.status == "failed"
    assert isinstance(outcome.sink_errors["bad"], SinkError)
    assert "boom" in str(outcome.sink_errors["bad"])
    assert bad.closed == 1


def test_on_sink_error_fail_ends_the_run() -> None:
    beside = Recorder("rec")
    pipeline = ts.Pipeline(ts.from_bytes([TEXT[:300], TEXT[300:]])).through(stages())
    outcome = asyncio.run(pipeline.to(Raising("bad"), beside, on_sink_error="fail").run())
    assert outcome.status == "broken"
    assert isinstance(beside.end, SinkError)


def test_fault_109_a_coroutine_sink_is_refused_with_a_clear_word() -> None:
    class Async(Recorder):
        async def on_next(self, batch: Sequence[Any], /) -> None:  # type: ignore[override]
            raise AssertionError

    with pytest.raises(SinkError, match="coroutine function"):
        ts.Pipeline(ts.from_bytes(TEXT)).to(Async())
    with pytest.raises(SinkError, match="no sink"):
        ts.Pipeline(ts.from_bytes(TEXT)).to(object())  # type: ignore[arg-type]


def test_a_sink_that_returns_a_coroutine_is_detached() -> None:
    async def late() -> None:
        raise AssertionError

    class Sly(Recorder):
        def on_next(self, batch: Sequence[Any], /) -> None:
            return late()  # type: ignore[return-value]

    outcome = asyncio.run(ts.Pipeline(ts.from_bytes(TEXT)).through(stages()).to(Sly("sly")).run())
    assert "awaitable" in str(outcome.sink_errors["sly"])


def test_an_emit_from_inside_a_sink_comes_after_the_current_batch_everywhere() -> None:
    summary = ToolUseSummary(summary="s", uuid="u", timestamp="t")
    runs: list[ts.Run] = []

    class Emitting(Recorder):
        def on_next(self, batch: Sequence[Any], /) -> None:
            super().on_next(batch)
            if any(isinstance(i, MessageStop) for i in batch):
                runs[0].emit(summary)

    first, second = Emitting("first"), Recorder("second")

    async def main() -> None:
        async with ts.Pipeline(ts.from_bytes(TEXT)).through(stages()).to(first, second) as run:
            runs.append(run)
            await run

    asyncio.run(main())
    assert first.items == second.items
    assert first.items[-1] is summary


async def _endless(started: asyncio.Event, closed: list[bool]) -> AsyncIterator[bytes]:
    try:
        yield TOOL
        started.set()
        await asyncio.Event().wait()
    finally:
        closed.append(True)


def test_abort_emits_the_repair_records_and_completes() -> None:
    sink = Recorder()
    closed: list[bool] = []

    async def main() -> ts.RunOutcome:
        started = asyncio.Event()
        source = ts.from_async_iterable(_endless(started, closed))
        async with ts.Pipeline(source).through(stages()).to(sink) as run:
            await started.wait()
            run.abort("the user pressed Esc")
            run.abort("again")
            outcome = await run
            run.abort("after the end")
            return outcome

    outcome = asyncio.run(main())
    assert outcome.status == "aborted"
    assert outcome.reason == "the user pressed Esc"
    assert closed == [True]
    assert sink.end == "completed"
    partial, failed, result, interruption = sink.items[-4:]
    assert isinstance(partial, AssistantMessage)
    assert partial.is_aborted_mid_stream
    assert partial.message["content"] == [{"type": "text", "text": "half a sen"}]
    assert partial.message["stop_reason"] is None
    assert isinstance(failed, ResponseFailed)
    assert failed.error["type"] == "aborted"
    assert isinstance(result, UserMessage)
    (block,) = result.message["content"]
    assert block == {"type": "tool_result", "tool_use_id": "toolu_1", "content": MISSING_RESULT, "is_error": True}
    (asked,) = [
        i for i in sink.items if isinstance(i, AssistantMessage) and i.message["content"][0]["type"] == "tool_use"
    ]
    assert result.source_tool_assistant_uuid == asked.uuid
    assert isinstance(interruption, UserMessage)
    assert interruption.message["content"] == [{"type": "text", "text": INTERRUPTED}]


def test_fault_98_dispose_emits_nothing_more_and_closes_the_source() -> None:
    sink = Recorder()
    closed: list[bool] = []

    async def main() -> ts.RunOutcome:
        started = asyncio.Event()
        source = ts.from_async_iterable(_endless(started, closed))
        async with ts.Pipeline(source).through(stages()).to(sink) as run:
            await started.wait()
            before = len(sink.items)
            run.dispose()
            run.dispose()
            outcome = await run
            assert len(sink.items) == before
            return outcome

    outcome = asyncio.run(main())
    assert outcome.status == "disposed"
    assert outcome.error is None
    assert closed == [True]
    assert sink.end is None
    assert sink.closed == 1


def test_leaving_the_block_early_disposes() -> None:
    sink = Recorder()
    closed: list[bool] = []

    async def main() -> None:
        started = asyncio.Event()
        source = ts.from_async_iterable(_endless(started, closed))
        async with ts.Pipeline(source).through(stages()).to(sink):
            await started.wait()

    asyncio.run(main())
    assert closed == [True]
    assert sink.closed == 1


def test_cancelling_the_owner_keeps_what_came_and_goes_on() -> None:
    sink = Recorder()
    closed: list[bool] = []

    async def main() -> None:
        started = asyncio.Event()
        source = ts.from_async_iterable(_endless(started, closed))

        async def own() -> None:
            async with ts.Pipeline(source).through(stages()).to(sink) as run:
                await run

        task = asyncio.create_task(own())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert closed == [True]
    assert sink.closed == 1
    assert any(isinstance(i, AssistantMessage) and i.is_aborted_mid_stream for i in sink.items)


def test_a_source_that_breaks_keeps_what_came() -> None:
    async def breaking() -> AsyncIterator[bytes]:
        yield TOOL
        raise ConnectionResetError("peer reset")

    sink = Recorder()
    outcome = asyncio.run(ts.Pipeline(ts.from_async_iterable(breaking())).through(stages()).to(sink).run())
    assert outcome.status == "broken"
    assert isinstance(outcome.error, ConnectionResetError)
    assert sink.end is outcome.error
    failed = sink.items[-1]
    assert isinstance(failed, ResponseFailed)
    assert failed.error["type"] == "connection_reset_error"
    assert failed.error["retryable"] is True
    assert failed.outcome == "incomplete(1)"


def test_nothing_is_read_before_the_run_starts() -> None:
    pulled: list[int] = []

    def chunks() -> Any:
        pulled.append(1)
        yield TEXT

    pipeline = ts.Pipeline(ts.from_bytes(chunks())).through(stages()).to(Recorder())
    assert pulled == []
    asyncio.run(pipeline.run())
    assert pulled == [1]


def test_a_pipeline_object_runs_once() -> None:
    pipeline = ts.Pipeline(ts.from_bytes(TEXT)).through(stages())

    async def main() -> None:
        await pipeline.run()
        with pytest.raises(RuntimeError, match="runs once"):
            await pipeline.run()

    asyncio.run(main())


def test_a_full_sink_holds_the_source() -> None:
    """Backpressure: with one batch of room, the source is never more than one batch ahead."""
    pulled = 0
    ahead: list[int] = []

    class Slow(Recorder):
        policy = "block"

        def __init__(self) -> None:
            super().__init__("slow")
            self.waiting = False
            self.taken = 0

        def on_next(self, batch: Sequence[Any], /) -> None:
            super().on_next(batch)
            self.waiting = True

        def full(self) -> bool:
            return self.waiting

        async def room(self) -> None:
            await asyncio.sleep(0)
            self.taken += 1
            ahead.append(pulled - self.taken)
            self.waiting = False

    def chunks() -> Any:
        nonlocal pulled
        for start in range(0, len(TEXT), 50):
            pulled += 1
            yield TEXT[start : start + 50]

    sink = Slow()
    outcome = asyncio.run(ts.Pipeline(ts.from_bytes(chunks())).to(sink).run())
    assert outcome.status == "complete"
    assert max(ahead) == 0


def test_to_async_iterable_gives_the_items_and_raises_at_the_end() -> None:
    async def breaking() -> AsyncIterator[bytes]:
        yield TEXT
        raise ConnectionResetError("peer reset")

    async def main() -> tuple[list[Any], BaseException | None]:
        items: list[Any] = []
        try:
            pipeline = ts.Pipeline(ts.from_async_iterable(breaking())).through(stages())
            async for item in ts.to_async_iterable(pipeline, maxsize=2):
                items.append(item)
        except ConnectionResetError as error:
            return items, error
        return items, None

    items, error = asyncio.run(main())
    assert any(isinstance(i, AssistantMessage) for i in items)
    assert any(getattr(getattr(i, "delta", None), "__class__", None) is TextDelta for i in items)
    assert isinstance(error, ConnectionResetError)


def test_a_missing_file_is_a_source_error_that_names_it(tmp_path: Any) -> None:
    sink = Recorder()
    outcome = asyncio.run(ts.Pipeline(ts.from_file(tmp_path / "no.sse")).through(stages()).to(sink).run())
    assert outcome.status == "broken"
    assert isinstance(outcome.error, SourceError)
    assert "no.sse" in str(outcome.error)


@pytest.mark.parametrize("method", ["full", "statistics"])
def test_a_sink_that_raises_elsewhere_breaks_nothing(method: str) -> None:
    class Odd(Recorder):
        policy = "block"

        def full(self) -> bool:
            if method == "full":
                raise ValueError("boom")
            return False

        def statistics(self) -> dict[str, Any]:
            if method == "statistics":
                raise ValueError("boom")
            return {}

    beside = Recorder("beside")
    outcome = asyncio.run(ts.Pipeline(ts.from_bytes([TEXT])).through(stages()).to(Odd("odd"), beside).run())
    assert any(isinstance(i, AssistantMessage) for i in beside.items)
    assert beside.end == "completed"
    assert outcome.answers_complete == 1
    assert ("odd" in outcome.sink_errors) == (method == "full")


def test_a_session_tells_that_a_source_broke_behind_a_complete_answer() -> None:
    async def breaking() -> AsyncIterator[bytes]:
        yield TEXT
        raise ConnectionResetError("peer reset")

    source = ts.in_turn([ts.from_async_iterable(breaking()), ts.from_bytes(TEXT)], lambda source: stages())
    outcome = asyncio.run(ts.Pipeline(source).to(Recorder()).run())
    assert outcome.answers_complete == 2
    assert outcome.status == "failed"
    assert isinstance(outcome.error, ConnectionResetError)
