"""Real transcripts on their way to the display: nothing is lost, each result right behind its use."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import recordings
from displaying import in_batches, same

from turnstream.messages import (
    AssistantMessage,
    AttachmentMessage,
    CollapsedReadSearch,
    GroupedToolUse,
    ProgressMessage,
    UserMessage,
    decode_line,
    encode,
    split_lines,
)
from turnstream.messages.jsonvalue import dumps, loads
from turnstream.operators.display import (
    collapse_reads,
    display_list,
    for_display,
    group_tool_uses,
    reorder_tool_groups,
    split_blocks,
    uncollapse,
    ungroup,
)


def _files() -> list[Any]:
    folder = recordings.folder()
    if folder is None:
        reason = f"no recordings: set {recordings.VARIABLE} (default ../shared/recordings)"
        return [pytest.param(Path("none"), marks=pytest.mark.skip(reason=reason))]
    root = folder / "transcripts"
    return [pytest.param(path, id=str(path.relative_to(root))) for path in sorted(root.rglob("*.jsonl"))]


FILES = pytest.mark.parametrize("path", _files())


@cache
def messages(path: Path) -> list[Any]:
    return [decode_line(line) for line in split_lines(path.read_bytes()) if line]


def blocks(items: Any) -> Iterator[bytes]:
    """Every content block as JSON; read from the payloads, not through the code under test."""
    for item in items:
        if isinstance(item, (UserMessage, AssistantMessage)):
            content = item.message.get("content")
            if isinstance(content, str):
                content = [{"type": "text", "text": content}]
            for block in content if isinstance(content, list) else ():
                yield dumps(block)


def only(item: Any) -> dict[str, Any]:
    content = item.message.get("content") if isinstance(item, (UserMessage, AssistantMessage)) else None
    return content[0] if isinstance(content, list) and content and isinstance(content[0], dict) else {}


@FILES
def test_splitting_loses_nothing(path: Path) -> None:
    before = messages(path)
    out = split_blocks(before)
    assert list(blocks(out)) == list(blocks(before))
    kinds = (UserMessage, AssistantMessage)
    assert same([m for m in out if not isinstance(m, kinds)], [m for m in before if not isinstance(m, kinds)])
    sizes = [len(m.message["content"]) for m in out if isinstance(m, kinds) and "content" in m.message]
    assert set(sizes) <= {1}
    assert same(split_blocks(out), out)
    # In one file two messages have an id that others have; splitting makes it no worse.
    given = [uuid for uuid in (getattr(m, "uuid", "") for m in before) if uuid]
    made = [uuid for uuid in (getattr(m, "uuid", "") for m in out) if uuid]
    assert len(made) - len(set(made)) <= len(given) - len(set(given))


@FILES
def test_what_belongs_to_a_tool_stands_behind_its_use(path: Path) -> None:
    before = split_blocks(messages(path))
    out = reorder_tool_groups(before)
    assert Counter(map(id, out)) == Counter(map(id, before))
    assert same(reorder_tool_groups(out), out)
    uses = {only(m)["id"] for m in out if only(m).get("type") == "tool_use"}
    open_use = ""
    for item in out:
        block = only(item)
        if block.get("type") == "tool_use":
            open_use = block["id"]
        elif block.get("type") == "tool_result":
            tool = block["tool_use_id"]
            assert tool == open_use or tool not in uses
        elif isinstance(item, AttachmentMessage) and item.attachment.get("hookEvent") == "PostToolUse":
            assert item.attachment["toolUseID"] == open_use
        elif isinstance(item, ProgressMessage) and item.data.get("hookEvent") in {"PreToolUse", "PostToolUse"}:
            assert item.tool_use_id == open_use
        else:
            open_use = ""


@FILES
def test_groups_come_apart_as_they_were(path: Path) -> None:
    before = reorder_tool_groups(split_blocks(messages(path)))
    grouped = group_tool_uses(before)
    collapsed = collapse_reads(grouped)
    assert same(uncollapse(collapsed), grouped)
    assert same(ungroup(grouped), before)
    assert for_display(messages(path)) == collapsed


@FILES
def test_batches_do_not_matter(path: Path) -> None:
    before = messages(path)
    every = list(range(len(before)))
    for places in (every, every[::7]):
        assert in_batches(before, places, for_display()) == for_display(before)
        assert same(in_batches(before, places, display_list()), display_list(before))


@FILES
def test_what_is_shown_can_be_written_and_read(path: Path) -> None:
    for item in for_display(messages(path)):
        if isinstance(item, (GroupedToolUse, CollapsedReadSearch)):
            wire = loads(encode(item))
            again = decode_line(encode(item))
            assert isinstance(again, type(item))
            assert len(wire["messages"]) == len(again.messages) == len(item.messages)


def test_the_recordings_hold_what_the_rules_are_about() -> None:
    """So that the tests above say something: counted with the standard library's json."""
    root = recordings.need("the display's order of real transcripts") / "transcripts"
    results = hooks = ticks = 0
    for path in root.rglob("*.jsonl"):
        for line in path.read_bytes().split(b"\n"):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if not isinstance(record, dict):
                continue
            message = record.get("message")
            content = message.get("content") if isinstance(message, dict) else None
            if isinstance(content, list):
                results += sum(isinstance(b, dict) and b.get("type") == "tool_result" for b in content)
            hooks += isinstance(record.get("attachment"), dict) and "hookEvent" in record["attachment"]
            ticks += isinstance(record.get("data"), dict) and record["data"].get("type") == "bash_progress"
    assert results > 800
    assert hooks > 50
    assert ticks > 100
