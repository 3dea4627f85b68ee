"""Real streams through the display: what is shown is what EXPECTED.tsv says, streamed or not."""

from __future__ import annotations

import hashlib
import io
from typing import Any

import pytest
import recordings

from turnstream.messages import AssistantMessage, decode_line, seeded_clock, seeded_ids, split_lines
from turnstream.operators.accumulate import accumulate
from turnstream.operators.events import parse_events
from turnstream.operators.sse import decode_sse
from turnstream.operators.stage import run_batches
from turnstream.sinks.ui import PlainRenderer, UIState

FILES = recordings.names((".sse",)) or ["none"]


def batches_of(name: str, size: int) -> list[list[Any]]:
    recordings.need("the display of recorded streams")
    data = recordings.read(name)
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    chain = decode_sse(final="if_json") | parse_events() | accumulate(ids=seeded_ids(), clock=seeded_clock())
    return [list(batch) for batch in run_batches([[chunk] for chunk in chunks], chain)]


def sha(texts: list[str]) -> str:
    return hashlib.sha256("".join(texts).encode()).hexdigest() if texts else "-"


@pytest.mark.parametrize("name", FILES)
def test_the_displayed_text_is_the_expected_one(name: str) -> None:
    state = UIState()
    for batch in batches_of(name, 700):
        state.apply(batch)
    rows = [row for row in recordings.expected()[name] if row["answer"].isdigit() and row["answer"] != "0"]
    snapshot = state.snapshot()
    assert snapshot.blocks == ()
    assert state.blocks_opened == state.blocks_closed
    by_answer: dict[str, list[Any]] = {}
    for item in snapshot.items:
        message = item.message
        if isinstance(message, AssistantMessage) and not message.is_aborted_mid_stream:
            by_answer.setdefault(message.message["id"], []).append(message)
    answers = list(by_answer.values())
    shown = [row for row in rows if row["blocks"] != "0"]
    for row, messages in zip(shown, [a for a in answers if any(m.message["content"] for m in a)], strict=True):
        messages.sort(key=lambda m: m.index if m.index is not None else -1)
        blocks = [block for message in messages for block in message.message["content"]]
        assert sha([b["text"] for b in blocks if b.get("type") == "text"]) == row["text_sha256"]
        assert sha([b["thinking"] for b in blocks if b.get("type") == "thinking"]) == row["thinking_sha256"]
    if rows:
        assert state.outcome == rows[-1]["outcome"]


@pytest.mark.parametrize("size", [40, 5000])
@pytest.mark.parametrize("name", FILES[::6])
def test_live_and_not_live_print_the_same(name: str, size: int) -> None:
    """But for retractions (what wasn't printed needs none) and blocks that overlap (one at a time)."""
    batches = batches_of(name, size)
    out = []
    for live in (False, True):
        stream = io.StringIO()
        renderer = PlainRenderer(stream, live=live)
        state = UIState(keep=False)
        for batch in batches:
            state.apply(batch)
            renderer.render(state)
        renderer.close()
        out.append(stream.getvalue())
    if "(retracted" not in out[1]:
        assert sorted(out[1].split("\n")) == sorted(out[0].split("\n"))
    assert "\x1b" not in out[0] + out[1]


def test_recorded_transcripts_are_printed_without_a_crash() -> None:
    folder = recordings.need("the display of recorded transcripts")
    shown = 0
    for path in sorted((folder / "transcripts").rglob("*.jsonl"))[:60]:
        stream = io.StringIO()
        renderer = PlainRenderer(stream, width=60)
        state = UIState(keep=False)
        state.apply([decode_line(line) for line in split_lines(path.read_bytes())])
        renderer.render(state)
        text = stream.getvalue()
        assert all(c in "\n\t" or (c >= " " and not "\x7f" <= c <= "\x9f") for c in text)
        shown += bool(text)
    assert shown > 0
