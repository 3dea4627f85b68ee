"""Blocks without text deltas: compaction, results, unknown ones (WIRE.md §1, deltas)."""

from __future__ import annotations

from typing import Any

from entry import Answer, Entry
from frames import (
    STOP,
    Part,
    closes,
    delta,
    opens,
    says,
    sse,
    start,
    text_block,
    turn,
)


def whole(*parts: Part, end: str = "end_turn") -> bytes:
    """A stream of these blocks with a start and a proper end."""
    return sse(start(), *parts, turn(end), STOP)


def at_start(name: str, index: int, kind: str, *covers: str, **block: Any) -> Entry:
    """A block without deltas: complete at its start."""
    return Entry(
        name=name,
        data=whole(opens(0, kind, **block), closes(0), says("ok", 1)),
        answers=(Answer(content=[{"type": kind, **block}, text_block("ok")]),),
        rule="§1: blocks without deltas (redacted_thinking, server tool results, fallback …) are complete at start",
        covers=covers,
    )


def result_block(name: str, kind: str, content: Any, *covers: str) -> Entry:
    return at_start(name, 0, kind, *covers, tool_use_id="srvtoolu_a", content=content)


ENTRIES = (
    Entry(
        name="compaction",
        data=whole(
            opens(0, "compaction", content=None),
            delta(0, "compaction_delta", content=None),
            delta(0, "compaction_delta", content="So far: nothing."),
            closes(0),
            says("ok", 1),
        ),
        answers=(Answer(content=[{"type": "compaction", "content": "So far: nothing."}, text_block("ok")]),),
        rule="§1: compaction_delta replaces content; decided cases: null is a no-op",
    ),
    Entry(
        name="compaction-encrypted",
        data=whole(
            opens(0, "compaction", content="old", encrypted_content=None),
            delta(0, "compaction_delta", content="new", encrypted_content="enc1"),
            delta(0, "compaction_delta", encrypted_content="enc2"),
            closes(0),
            says("ok", 1),
        ),
        answers=(
            Answer(content=[{"type": "compaction", "content": "new", "encrypted_content": "enc2"}, text_block("ok")]),
        ),
        rule="§1: replaces content (and encrypted_content); decided cases: sets every key that it carries",
    ),
    Entry(
        name="compaction-null",
        data=whole(
            opens(0, "compaction", content=None, encrypted_content="keep"),
            delta(0, "compaction_delta", content=None, encrypted_content=None),
            closes(0),
            says("ok", 1),
        ),
        answers=(
            Answer(content=[{"type": "compaction", "content": None, "encrypted_content": "keep"}, text_block("ok")]),
        ),
        rule="FAULTS 77: round-trip verbatim; null is a no-op",
    ),
    at_start("redacted-thinking", 0, "redacted_thinking", data="b3BhcXVl"),
    at_start("fallback-block", 0, "fallback", **{"from": {"model": "big-1"}, "to": {"model": "small-1"}}),
    at_start("container-upload", 0, "container_upload", file_id="file_a"),
    result_block(
        "web-search-result",
        "web_search_tool_result",
        [
            {
                "type": "web_search_result",
                "url": "https://example.org",
                "title": "E",
                "page_age": None,
                "encrypted_content": "AAA",
            }
        ],
    ),
    result_block(
        "web-search-error",
        "web_search_tool_result",
        {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
    ),
    result_block(
        "web-fetch-result",
        "web_fetch_tool_result",
        {
            "type": "web_fetch_result",
            "url": "https://example.org",
            "retrieved_at": None,
            "content": {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}},
        },
    ),
    result_block(
        "tool-search-result",
        "tool_search_tool_result",
        {
            "type": "tool_search_tool_search_result",
            "tool_references": [{"type": "tool_reference", "tool_name": "look"}],
        },
    ),
    result_block(
        "code-execution-result",
        "code_execution_tool_result",
        {"type": "code_execution_result", "stdout": "1\n", "stderr": "", "return_code": 0, "content": []},
    ),
    result_block(
        "bash-result",
        "bash_code_execution_tool_result",
        {
            "type": "bash_code_execution_result",
            "stdout": "x",
            "stderr": "",
            "return_code": 0,
            "content": [{"type": "bash_code_execution_output", "file_id": "file_b"}],
        },
    ),
    result_block(
        "editor-create-result",
        "text_editor_code_execution_tool_result",
        {"type": "text_editor_code_execution_create_result", "is_file_update": False},
    ),
    result_block(
        "editor-view-result",
        "text_editor_code_execution_tool_result",
        {
            "type": "text_editor_code_execution_view_result",
            "file_type": "text",
            "content": "x",
            "num_lines": 1,
            "start_line": None,
            "total_lines": None,
        },
    ),
    result_block(
        "editor-error",
        "text_editor_code_execution_tool_result",
        {"type": "text_editor_code_execution_tool_result_error", "error_code": "file_not_found"},
    ),
    result_block("advisor-result", "advisor_tool_result", {"type": "advisor_result", "text": "mind the gap"}),
    result_block("mcp-result", "mcp_tool_result", [{"type": "text", "text": "pong"}]),
    Entry(
        name="unknown-block-and-delta",
        data=whole(
            opens(0, "musing", musing="", depth=1), delta(0, "musing_delta", musing="hm"), closes(0), says("ok", 1)
        ),
        answers=(Answer(content=[{"type": "musing", "musing": "", "depth": 1}, text_block("ok")]),),
        rule="§1: unknown events, deltas and block types pass through and are counted by type",
        opaque_blocks={"musing": 1},
        opaque_deltas={"musing_delta": 1},
    ),
)
