"""Every row of EXPECTED.tsv against the items that our stages emit (WIRE.md §1; the rows come from another program)."""

from __future__ import annotations

import json
from typing import Any

import pytest
import recordings
from harness import run
from summaries import Row, columns, sha, summarize

from turnstream.messages import event_to_wire
from turnstream.messages.events import EVENT_CLASSES

EMPTY = sha("")
# Columns that only the bytes show: [DONE] frames leave no item.
BYTES_ONLY = frozenset({"file", "answer", "answers", "done_frames", "notes", "remark", "sdk"})
# Rows that we hold to be wrong: (file, answer, column) → what must be there, and the bytes that say so.
DISPUTED: dict[tuple[str, str, str], tuple[str, str]] = {}

# The same for the informative counts of the notes column.
DISPUTED_NOTES: dict[tuple[str, str], tuple[str, str]] = {
    ("odd/lit__higress__openai_test-L2.sse", "synthesized_block"): (
        "2",
        # the bytes: a thinking_delta and two text_deltas without index, no content_block_start anywhere
        "two blocks are open at the end (the row's own open_blocks: 0:thinking,1:text), so two were synthesized",
    ),
}

NAMES = recordings.names()
# AWS frames around the same payloads; the stand-in for `payloads` below would need botocore, too.
FRAMED = recordings.names((".eventstream",))


def wanted(row: dict[str, str], superseded: bool) -> dict[str, str]:
    """The row's columns in the form that items can show."""
    out = {
        key: value for key, value in row.items() if key not in BYTES_ONLY and key not in ("file_outcome", "file_events")
    }
    kinds = [part.split(":") for part in out.pop("open_blocks").split(",") if part != "-"]
    # An empty unfinished block makes no message (WIRE.md §1): the table hashes its empty text.
    for key in ("open_text_sha256", "open_thinking_sha256"):
        if out[key] == EMPTY:
            out[key] = "-"
    if superseded:
        # What was unfinished in a superseded attempt is dropped with it.
        for key in ("open_text_sha256", "open_thinking_sha256", "open_raw_input_sha256"):
            out[key] = "-"
    elif any(kind == "tool_use" for _, kind in kinds):
        assert out["open_raw_input_sha256"] != "-"
    for (file, answer, column), (value, _) in DISPUTED.items():
        if (file, answer) == (row["file"], row["answer"]):
            out[column] = value
    return out


def without_empty(row: Row, name: str) -> dict[str, str]:
    out = columns(row)
    if out["outcome"] == "empty":
        out["content_sha256"] = recordings.expected()[name][0]["content_sha256"]
    return out


@pytest.mark.parametrize("name", [*NAMES, *FRAMED])
@pytest.mark.parametrize("settled", [True, False], ids=["settled", "live"])
def test_rows(name: str, settled: bool) -> None:
    rows = summarize(run(recordings.read(name), settled=settled))
    expected = recordings.expected()[name]
    if settled:  # dropped with their tombstones
        rows = [row for row in rows if not row.superseded]
        expected = [row for row in expected if "superseded" not in row["answer"]]
    got = [without_empty(row, name) for row in rows]
    want = [wanted(row, "superseded" in row["answer"]) for row in expected]
    for one, other in zip(got, want, strict=False):
        for key in list(one):
            if key not in other:
                del one[key]
    assert got == want
    assert sum(row.events for row in rows) == int(expected[0]["file_events"]) or settled
    assert " + ".join(r.outcome or "" for r in rows if not r.superseded) == expected[0]["file_outcome"]


@pytest.mark.parametrize("name", [*NAMES, *FRAMED])
def test_notes(name: str) -> None:
    """The counted lenient steps of the table are noted, by the same word."""
    rows = summarize(run(recordings.read(name), settled=False))
    for row, expected in zip(rows, recordings.expected()[name], strict=True):
        for part in expected["notes"].split(","):
            kind, _, count = part.partition(":")
            if kind in NOTED:
                count = DISPUTED_NOTES.get((name, kind), (count, ""))[0]
                assert (kind, row.notes[kind]) == (kind, int(count))


# Those of the informative words that WIRE.md makes a step of ours ("index missing", "marked", "noted" …).
NOTED = frozenset(
    {
        "no_message_stop",
        "finished_by_message_stop",
        "synthesized_block",
        "index_missing",
        "duplicate_message_start",
        "delta_after_stop",
        "empty_open_block_dropped",
    }
)


def payloads(name: str) -> list[Any]:
    """A file's JSON objects, read line by line with the standard library."""
    out: list[Any] = []
    for line in recordings.read(name).decode().split("\n"):
        if name.endswith(".sse"):
            if not line.startswith("data:"):
                continue
            line = line.removeprefix("data:")
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            out.append(json.loads(value["Data"]) if isinstance(value.get("Data"), str) else value)
    return out


def with_index(event: Any) -> Any:
    """Without its index: one that is missing on the wire is filled in."""
    return {key: value for key, value in event.items() if key != "index"} if isinstance(event, dict) else event


@pytest.mark.parametrize("name", NAMES)
def test_every_event_passes_whole_and_in_order(name: str) -> None:
    """WIRE.md §1, accumulation: every event is also emitted, in order; DESIGN.md §2: the typed form is lossless."""
    items = run(recordings.read(name))
    events = [event_to_wire(item) for item in items if item.__class__ in EVENT_CLASSES]
    wire = payloads(name)
    index_missing = any("index_missing" in row["notes"] for row in recordings.expected()[name])
    if index_missing:
        events, wire = [with_index(e) for e in events], [with_index(e) for e in wire]
    bare = [{"type": "error", **e} if set(e) == {"error"} else e for e in wire]
    assert events == bare


def test_all_files_are_tested() -> None:
    recordings.need("the rows of EXPECTED.tsv")
    assert sorted([*NAMES, *FRAMED]) == sorted(recordings.expected())
    assert len(NAMES) + len(FRAMED) == recordings.FILES_WITH_EXPECTATION


def test_openai_streams_are_no_streams() -> None:
    """WIRE.md §1, decided cases: not_a_stream is a file without any known Anthropic event (OpenAI streams)."""
    recordings.need("openai/")
    files = [row["file"] for row in recordings.index() if row["file"].startswith("openai/")]
    assert files
    got = {name: [row.outcome for row in summarize(run(recordings.read(name)))] for name in files}
    assert got == {name: ["not_a_stream"] for name in files}
