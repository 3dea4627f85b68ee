"""Transcripts made line by line with stdlib json, for tests of the reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import recordings

SESSION = "5c0375b4-57a5-4f26-b12d-d022ee4e51b7"
TIME = "2026-01-02T03:04:05.678Z"
SIGNATURE = "S" * 300
ABSENT: Any = object()


def uuid(name: str) -> str:
    """A uuid that can be read: the name in its last digits' place."""
    return f"00000000-0000-4000-8000-{name:0>12}"


def record(kind: str, name: str | None, parent: Any, **more: Any) -> dict[str, Any]:
    """A line's object; ``parent`` is a name, None for null, ``ABSENT`` for no such key."""
    out: dict[str, Any] = {}
    if parent is not ABSENT:
        out["parentUuid"] = uuid(parent) if parent is not None else None
    out |= {"isSidechain": False, "cwd": "/w", "sessionId": SESSION, "version": "1.0.0", "type": kind}
    out |= more
    if name is not None:
        out["uuid"] = uuid(name)
    out["timestamp"] = TIME
    return out


def user(name: str | None, parent: Any, text: Any = "hello", **more: Any) -> dict[str, Any]:
    """A prompt."""
    return record("user", name, parent, message={"role": "user", "content": text}, **more)


def assistant(name: str | None, parent: Any, *blocks: Any, answer: str | None = None, **more: Any) -> dict[str, Any]:
    """A line of an answer (its own one unless ``answer`` says which)."""
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks or ("hi",)]
    message = {
        "id": answer or f"msg_{name}",
        "type": "message",
        "role": "assistant",
        "model": "claude-test-1",
        "content": content,
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }
    return record("assistant", name, parent, message=message, **more)


def call(ident: str) -> dict[str, Any]:
    """A tool_use block."""
    return {"type": "tool_use", "id": ident, "name": "Read", "input": {}}


def result(name: str | None, parent: Any, *idents: str, text: str = "done", **more: Any) -> dict[str, Any]:
    """A user message with results."""
    content = [{"type": "tool_result", "tool_use_id": ident, "content": text} for ident in idents]
    return user(name, parent, content, **more)


def boundary(name: str, logical: str | None = None, **metadata: Any) -> dict[str, Any]:
    """A compact boundary; ``segment=(head, anchor, tail)`` says what was kept."""
    segment = metadata.pop("segment", None)
    if segment is not None:
        names = ("headUuid", "anchorUuid", "tailUuid")
        metadata["preservedSegment"] = {
            key: uuid(one) for key, one in zip(names, segment, strict=True) if one is not None
        }
    more: dict[str, Any] = {"subtype": "compact_boundary", "content": "Conversation compacted"}
    if logical is not None:
        more["logicalParentUuid"] = uuid(logical)
    if metadata:
        more["compactMetadata"] = {"trigger": "auto", **metadata}
    return record("system", name, None, **more)


def summary(name: str, parent: str, text: str = "what was before") -> dict[str, Any]:
    """The message behind a boundary."""
    return user(name, parent, text, isCompactSummary=True)


def progress(name: str, parent: Any) -> dict[str, Any]:
    """A progress line as older programs chained them."""
    return record("progress", name, parent, data={"type": "hook_progress"}, toolUseID="t")


def as_line(one: dict[str, Any] | bytes) -> bytes:
    """The line of a record, without its end; bytes as they are."""
    if isinstance(one, bytes):
        return one
    return json.dumps(one, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def write(path: Path, *records: dict[str, Any] | bytes, end: bytes = b"\n") -> Path:
    """A file of these lines; returns its path."""
    path.write_bytes(b"\n".join(as_line(one) for one in records) + (end if records else b""))
    return path


def names(messages: Any) -> list[str]:
    """The names of messages by their uuids."""
    return [short(message.uuid) for message in messages]


def short(ident: str | None) -> str:
    """The name in a uuid, the uuid itself if it isn't one of ours."""
    if ident is not None and ident.startswith("00000000-0000-4000-8000-"):
        return ident[24:].lstrip("0") or "0"
    return ident or ""


def recorded() -> list[Any]:
    """The recorded transcripts, to parametrize with; without recordings one skipped case."""
    folder = recordings.folder()
    if folder is None:
        reason = f"no recordings: set {recordings.VARIABLE} (default ../shared/recordings)"
        return [pytest.param(Path(), marks=pytest.mark.skip(reason=reason), id="no recordings")]
    root = folder / "transcripts"
    return [pytest.param(path, id=path.relative_to(root).as_posix()[-60:]) for path in sorted(root.rglob("*.jsonl"))]
