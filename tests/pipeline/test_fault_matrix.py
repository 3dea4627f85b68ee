"""Every fault × place × committed × (retry, fallback) over real sockets: docs/faults.md says what must come of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import frames as f
import pytest
from transcripts import records

from turnstream import Pipeline, SinkBase, accumulate, from_request, parse_events
from turnstream.messages import AssistantMessage, RequestStart, ResponseFailed, SystemMessage, Tombstone
from turnstream.operators import as_exception
from turnstream.operators.resilience import NO_RETRY
from turnstream.serve import serve_recordings
from turnstream.sinks.metrics import MetricsSink
from turnstream.sinks.transcript import TranscriptSink
from turnstream.sinks.ui import UISink
from turnstream.sources.http import decode_answer
from turnstream.sources.resilient import FallBack, resilient
from turnstream.testing import RecordingSink, virtual_time
from turnstream.testing.leftovers import Leftovers

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "faults.md").read_text(encoding="utf-8")
REQUEST: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}

ANSWER = f.sse(
    f.start("msg_1", model="modèle"),
    [f.opens_thinking(0), f.thinks(0, "first "), f.thinks(0, "thought"), f.signs(0, "signature"), f.closes(0)],
    [f.opens_thinking(1), f.thinks(1, "second thought"), f.closes(1)],
    [f.opens_text(2), f.text(2, "Ünï"), f.text(2, "cödé"), f.closes(2)],
    f.calls(3, '{"path": ', '"é"}'),
    f.turn("tool_use", {"output_tokens": 40}),
    f.STOP,
)
BLOCKS = [
    {"type": "thinking", "thinking": "first thought", "signature": "signature"},
    {"type": "thinking", "thinking": "second thought", "signature": ""},
    {"type": "text", "text": "Ünïcödé"},
    {"type": "tool_use", "id": "toolu_a", "name": "look", "input": {"path": "é"}},
]


class Cell(NamedTuple):
    fault: str
    place: str
    word: str
    error: str
    again: bool
    falls_back: bool


class Place(NamedTuple):
    taken_back: int
    kept: list[str]
    committed_taken_back: int
    committed_kept: list[str]


def table(first: str) -> list[list[str]]:
    """The rows of the page's table whose head begins so."""
    lines = PAGE.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {first} |")) + 2
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def words(text: str) -> list[str]:
    """Types of blocks: what isn't one (a part, a raw input) is told apart below."""
    return [] if text == "–" else [word.strip() for word in re.split(r"[,;]", text)]


CELLS = [Cell(*row[:4], row[4] == "yes", row[5] == "yes") for row in table("fault")]
PLACES = {row[0]: Place(int(row[1]), words(row[2]), int(row[3]), words(row[4])) for row in table("place")}
COMPLETE = "complete"


def test_the_page_has_every_fault_and_place() -> None:
    placed = {"stall", "pings", "cut", "close", "eof", "garbage", "overloaded", "half-utf8", "bad-json"}
    assert {cell.fault for cell in CELLS if cell.place != "first byte"} == placed
    assert all({cell.place for cell in CELLS if cell.fault == fault} == set(PLACES) for fault in placed)
    assert len(CELLS) == len({cell[:2] for cell in CELLS}) == 9 * 4 + 17


class Commit(SinkBase):
    """An executor that has started a tool, as far as the first attempt knows."""

    name = "executor"

    def on_next(self, batch: Any, /) -> None:
        for item in batch:
            if isinstance(item, RequestStart) and item.attempt == 1:
                item.committed = True


def expected(cell: Cell, committed: bool, mode: str) -> tuple[str, bool]:
    """The answer's word, and whether another attempt made it."""
    replaced = cell.word != COMPLETE and not committed and (cell.again if mode == "retry" else cell.falls_back)
    return (COMPLETE if replaced else cell.word), replaced


def types(blocks: Any) -> list[str]:
    return [block["type"] for block in blocks]


@pytest.mark.parametrize("mode", ["retry", "fallback"])
@pytest.mark.parametrize("committed", [False, True], ids=["uncommitted", "committed"])
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.fault}-{cell.place}")
@virtual_time(max_moves=20_000)
async def test_cell(cell: Cell, committed: bool, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    word, replaced = expected(cell, committed, mode)
    place = PLACES[cell.place]
    name = cell.fault if cell.place == "first byte" else f"{cell.fault}-after={cell.place}"
    out = tmp_path / "t.jsonl"
    sink, ui, metrics, transcript = RecordingSink(), UISink(keep=True), MetricsSink(), TranscriptSink(out)
    before = Leftovers()
    async with serve_recordings([ANSWER], fault=name + (",times=1" if mode == "retry" else ",only=stream")) as server:

        def asking(stream: bool) -> Any:
            return lambda start: from_request(REQUEST, base_url=server.url, stream=stream)

        source = resilient(
            asking(True),
            lambda source: decode_answer(source) | parse_events() | accumulate(),  # type: ignore[arg-type]
            retry=None if mode == "retry" else NO_RETRY,
            fall_back=[] if mode == "retry" else [FallBack(asking(False), "a request that doesn't stream")],
        )
        sinks = [Commit()] if committed else []
        outcome = await Pipeline(source).to(*sinks, sink, ui, metrics, transcript).run()
        asked = list(server.requests)
    items = sink.items
    failures = [item for item in items if isinstance(item, ResponseFailed)]
    tombstones = [item for item in items if isinstance(item, Tombstone)]
    systems = [item for item in items if isinstance(item, SystemMessage)]
    gone = {tombstone.message.uuid for tombstone in tombstones}
    left = [item for item in items if isinstance(item, AssistantMessage) and item.uuid not in gone]
    content = [block for message in left for block in message.message["content"]]

    # the word
    assert len(asked) == source.attempts == 1 + replaced
    assert (outcome.answers_complete, outcome.answers_failed) == ((1, 0) if word == COMPLETE else (0, 1))
    assert [failed.outcome for failed in failures] == ([] if word == COMPLETE else [word])
    if failures:
        errors = [error for _, error in source.errors] or [as_exception(failures[0])]
        assert type(errors[0]).__name__ == cell.error

    # tombstones, and what is kept
    if replaced:
        assert len(tombstones) == place.taken_back
        assert content == BLOCKS
    elif word == COMPLETE:
        assert not tombstones
        assert content == BLOCKS
    elif committed:
        assert len(tombstones) == place.committed_taken_back
        assert types(content) == types(failures[0].kept) == place.committed_kept
        assert not any(message.is_aborted_mid_stream for message in left)
    else:
        assert not tombstones
        kept = list(place.kept)
        raw = [message.unfinished_tool_inputs for message in left if message.unfinished_tool_inputs]
        assert bool(raw) == any("unfinishedToolInputs" in word for word in kept)
        kept = ["text" if word == "part of the text" else word for word in kept if "unfinished" not in word]
        assert types(content) == kept
    kinds = ["api_error" if mode == "retry" else "informational"] if replaced else []
    assert [message.subtype for message in systems] == kinds
    if systems and mode == "fallback":
        assert systems[0].fields["fallback"]

    # transcript and display hold the same
    lines = records(out) if out.exists() else []
    members = [record for record in lines if record["type"] in ("assistant", "system")]
    view = ui.state.snapshot()
    shown = [item.message for item in view.items if isinstance(item.message, AssistantMessage | SystemMessage)]
    assert [record["uuid"] for record in members] == [message.uuid for message in shown]
    stayed = [block for record in members if record["type"] == "assistant" for block in record["message"]["content"]]
    assert stayed == content

    # nothing is left open
    assert (view.answering, view.mode, view.blocks) == (False, None, ())
    assert view.outcome == word
    if word == COMPLETE:
        # lines that had to be written before the end keep what was known then; the last one has it all
        assert members[-1]["message"]["stop_reason"] == "tool_use"
        assert members[-1]["message"]["usage"]["output_tokens"] == 40
    report = metrics.report()
    assert report["totals"]["outcomes"] == {word: 1}
    assert [answer["outcome"] for answer in report["answers"] if not answer["superseded"]] == [word]
    assert report["totals"]["tombstones"] == len(tombstones)
    assert report["totals"]["retries"] == (replaced and mode == "retry")
    assert report["totals"]["fallbacks"] == (replaced and mode == "fallback")
    assert before.since() == []
