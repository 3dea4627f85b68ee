"""Each self-made stream against what WIRE.md says must come out of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from corpus import CORPUS
from entry import Answer, Entry
from harness import run
from summaries import BAD_EVENT, Row, summarize

from turnstream.messages import decode_line, encode, to_wire
from turnstream.messages.jsonvalue import has_surrogates

IDS = [entry.name for entry in CORPUS]


def of(entry: Entry, *, settled: bool) -> list[Row]:
    return summarize(run(entry.data, settled=settled))


def shown(row: Row, answer: Answer) -> dict[str, Any]:
    """What ``answer`` specifies, as the row has it."""
    outcome = row.outcome or ""
    if answer.outcome.endswith("("):
        outcome = outcome[: len(answer.outcome)]
    out: dict[str, Any] = {
        "outcome": outcome,
        "content": row.content,
        "stop_reason": row.stop_reason,
        "partial": row.partial,
        "unfinished": row.unfinished,
        "invalid": row.invalid,
        "unapplied": dict(row.unapplied),
        "marks": row.marks & answer.marks,
    }
    if answer.indexes != ():
        out["indexes"] = row.indexes
    if answer.usage is not None:
        out["usage"] = row.usage
    for key in answer.message:
        out[key] = [message.message.get(key) for message in row.messages]
    return out


def wanted(row: Row, answer: Answer) -> dict[str, Any]:
    out: dict[str, Any] = {
        "outcome": answer.outcome,
        "content": answer.content,
        "stop_reason": answer.stop_reason,
        "partial": answer.partial or [],
        "unfinished": answer.unfinished,
        "invalid": answer.invalid,
        "unapplied": answer.unapplied,
        "marks": set(answer.marks),
    }
    if answer.indexes != ():
        out["indexes"] = tuple(range(len(answer.content))) if answer.indexes is None else answer.indexes
    if answer.usage is not None:
        out["usage"] = answer.usage
    for key, value in answer.message.items():
        out[key] = [value] * len(row.messages)
    return out


@pytest.mark.parametrize("entry", CORPUS, ids=IDS)
@pytest.mark.parametrize("settled", [True, False], ids=["settled", "live"])
def test_answers(entry: Entry, settled: bool) -> None:
    rows = of(entry, settled=settled)
    answers = [row for row in rows if not row.superseded]
    got = [shown(row, answer) for row, answer in zip(answers, entry.answers, strict=False)]
    want = [wanted(row, answer) for row, answer in zip(answers, entry.answers, strict=False)]
    assert got == want, entry.rule
    assert [row.outcome for row in answers[len(want) :]] == [], f"more answers than {len(want)}: {entry.rule}"
    assert len(want) == len(entry.answers), entry.rule


@pytest.mark.parametrize("entry", [e for e in CORPUS if any(a.superseded for a in e.answers)], ids=lambda e: e.name)
def test_superseded(entry: Entry) -> None:
    """The finished blocks of a superseded attempt are tombstoned, each once, and settled items show none of them."""
    rows = of(entry, settled=False)
    want = [blocks for answer in entry.answers for blocks in answer.superseded]
    attempts = [row for row in rows if row.superseded]
    assert [row.content for row in attempts] == want, entry.rule
    for row in attempts:
        assert [m.uuid for m in row.tombstoned] == [m.uuid for m in row.messages]
    assert not any(row.tombstoned for row in of(entry, settled=True))


@pytest.mark.parametrize("entry", CORPUS, ids=IDS)
def test_events_and_notes(entry: Entry) -> None:
    rows = of(entry, settled=False)

    def total(name: str) -> dict[Any, int]:
        out: dict[Any, int] = {}
        for row in rows:
            for key, count in getattr(row, name).items():
                out[key] = out.get(key, 0) + count
        return out

    if entry.events is not None:
        assert sum(row.events for row in rows) == entry.events, entry.rule
    if entry.answers[0].outcome != "not_a_stream":
        assert total("opaque_events") == entry.opaque_events, entry.rule
    assert total("opaque_deltas") == entry.opaque_deltas, entry.rule
    assert total("opaque_blocks") == entry.opaque_blocks, entry.rule
    noted = total("notes")
    assert entry.notes <= set(noted), entry.rule
    assert sum(noted.get(kind, 0) for kind in BAD_EVENT) == entry.bad_events, entry.rule


@pytest.mark.parametrize("entry", CORPUS, ids=IDS)
def test_no_item_holds_half_a_pair_and_all_can_be_written(entry: Entry) -> None:
    """WIRE.md §1: no item ever holds half a pair; whatever we can read we can write, and read again."""
    for item in run(entry.data):
        assert not any(has_surrogates(text) for text in texts(to_wire(item)))
        line = encode(item)
        assert b"\n" not in line
        assert encode(decode_line(line)) == line


def texts(value: Any) -> Iterator[str]:
    """All strings of a JSON value, keys too; without recursion."""
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            todo += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            todo += one


def test_names_are_unique_and_rules_are_given() -> None:
    assert len(set(IDS)) == len(IDS)
    assert all(re.search("§[0-9]|FAULTS [0-9]|EXPECTED.md|JSON:", entry.rule) for entry in CORPUS)
