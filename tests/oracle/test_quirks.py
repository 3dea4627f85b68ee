"""The corpus shows every quirk that the recordings' tables name, and still does when the tables grow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import quirks
import recordings
from corpus import CORPUS
from entry import Entry
from harness import as_sse

COVERED = {token for entry in CORPUS for token in entry.covers}


def payloads(entry: Entry) -> Iterator[dict[str, Any]]:
    for line in as_sse(entry.data, entry.container).decode("utf-8", "replace").split("\n"):
        name, _, value = line.partition(":")
        if name == "data":
            try:
                payload = json.loads(value)
            except (ValueError, RecursionError):
                continue
            if isinstance(payload, dict):
                yield payload


ALL = [payload for entry in CORPUS for payload in payloads(entry)]


def of(kind: str, key: str) -> list[Any]:
    """``key`` of all corpus events of type ``kind``, where it is an object."""
    return [p[key] for p in ALL if p.get("type") == kind and isinstance(p.get(key), dict)]


@pytest.mark.parametrize("token", sorted(quirks.STREAM_QUIRKS | quirks.STREAM_WORDS))
def test_each_quirk_has_a_stream(token: str) -> None:
    assert token in COVERED


def test_no_entry_claims_an_unknown_quirk() -> None:
    assert COVERED <= quirks.STREAM_QUIRKS | quirks.STREAM_WORDS


def test_each_kind_of_content_has_a_stream() -> None:
    blocks = {b.get("type") for b in of("content_block_start", "content_block")}
    # `reasoning` is one foreign type of many: any unknown block and delta shows it.
    assert quirks.BLOCK_TYPES - {"reasoning"} <= blocks
    assert blocks - quirks.BLOCK_TYPES
    deltas = {str(d.get("type")) for d in of("content_block_delta", "delta")}
    assert quirks.DELTA_TYPES - {"reasoning_delta"} <= deltas
    assert {str(d.get("stop_reason")) for d in of("message_delta", "delta")} >= quirks.STOP_REASONS
    citations = {d["citation"]["type"] for d in of("content_block_delta", "delta") if "citation" in d}
    assert citations >= quirks.CITATIONS
    errors = {str(e.get("type")) for e in of("error", "error")}
    assert errors >= quirks.ERRORS
    assert any("context_management" in p for p in ALL if p.get("type") == "message_delta")
    assert any("caller" in b for b in of("content_block_start", "content_block"))


def test_each_noted_step_and_outcome_has_a_stream() -> None:
    assert set(quirks.SHOWN_BY) == quirks.NOTES
    assert set(quirks.SHOWN_BY.values()) <= COVERED
    words = {answer.outcome.partition("(")[0] for entry in CORPUS for answer in entry.answers}
    words |= {"superseded" for entry in CORPUS for answer in entry.answers if answer.superseded}
    assert words == quirks.OUTCOMES


def test_the_list_is_the_tables() -> None:
    """The hard-coded list names all that the tables at hand name."""
    recordings.need("the quirk tokens of INDEX.tsv")
    streams = [recordings.facts(r) for r in recordings.index() if r["file"].startswith(("sse/", "odd/"))]
    assert {token for facts in streams for token in facts.get("quirks", ())} <= quirks.STREAM_QUIRKS
    bare = {key for facts in streams for key in facts}
    assert bare >= quirks.STREAM_WORDS
    kinds = {token.split(":")[0] for facts in streams for token in facts.get("blocks", ())}
    assert kinds <= quirks.BLOCK_TYPES
    assert {token.split(":")[0] for facts in streams for token in facts.get("deltas", ())} <= quirks.DELTA_TYPES
    assert {token for facts in streams for token in facts.get("stop", ())} <= quirks.STOP_REASONS
    assert {token for facts in streams for token in facts.get("citations", ())} <= quirks.CITATIONS
    assert {token for facts in streams for token in facts.get("errors", ())} <= quirks.ERRORS
    rows = [row for rows in recordings.expected().values() for row in rows]
    noted = {part.split(":")[0] for row in rows for part in row["notes"].split(",") if part != "-"}
    assert noted <= quirks.NOTES
    assert {row["outcome"].partition("(")[0] for row in rows} <= quirks.OUTCOMES


def test_nothing_is_copied_from_the_recordings() -> None:
    """The corpus is made up: no text, thinking or tool fragment of some length is in any recording."""
    recordings.need("whether corpus content is our own")
    ours = {
        value
        for delta in of("content_block_delta", "delta")
        for value in delta.values()
        if isinstance(value, str) and len(value) > 12 and not value.endswith("_delta")
    }
    everything = b"".join(recordings.read(name) for name in recordings.expected())
    copied = [value for value in ours if json.dumps(value, ensure_ascii=False)[1:-1].encode() in everything]
    assert copied == []
