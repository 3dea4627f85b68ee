"""Roots with sessions for tests: lines as writers of the format make them, written with the standard library."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

CWD = "/src/demo"
SLUG = "-src-demo"


def session_id(number: int) -> str:
    return str(uuid.UUID(int=0xA0000000 << 96 | number))


def at(minute: int, *, day: int = 1) -> str:
    return f"2025-06-{day:02d}T10:{minute:02d}:00.000Z"


def record(kind: str, ident: str | None, parent: str | None = None, **fields: Any) -> dict[str, Any]:
    out: dict[str, Any] = {
        "parentUuid": parent,
        "isSidechain": False,
        "userType": "external",
        "cwd": CWD,
        "sessionId": session_id(1),
        "version": "2.1.0",
        "type": kind,
        "uuid": ident,
        "timestamp": at(0),
    }
    if ident is None:
        del out["uuid"]
    return out | fields


def user(ident: str | None, content: Any, parent: str | None = None, **fields: Any) -> dict[str, Any]:
    return record("user", ident, parent, message={"role": "user", "content": content}, **fields)


def assistant(
    ident: str | None, block: Any, parent: str | None = None, *, answer: str | None = "msg_1", **fields: Any
) -> dict[str, Any]:
    message: dict[str, Any] = {
        "id": answer,
        "type": "message",
        "role": "assistant",
        "model": fields.pop("model", "claude-a"),
        "content": [text(block) if isinstance(block, str) else block],
        "stop_reason": "end_turn",
        "usage": fields.pop("usage", {"input_tokens": 3, "output_tokens": 5}),
    }
    if answer is None:
        del message["id"]
    return record("assistant", ident, parent, message=message, **fields)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(ident: str, name: str = "Read", **values: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": ident, "name": name, "input": values}


def result(ident: str, content: Any = "done") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": ident, "content": content}


def jsonl(*values: Any) -> bytes:
    """Lines; bytes go in as they are, with a line end."""
    return b"".join(
        (value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()) + b"\n"
        for value in values
    )


def write(root: Path, number: int, *values: Any, slug: str = SLUG) -> Path:
    """The session ``number`` of a root, in the folder of a project."""
    path = root / "projects" / slug / f"{session_id(number)}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(jsonl(*values))
    return path


def talk(number: int, *, minute: int = 0, day: int = 1, words: str = "Hello", cwd: str = CWD) -> list[dict[str, Any]]:
    """The lines of a short session."""
    more = {"sessionId": session_id(number), "cwd": cwd}
    return [
        user(f"u-{number}", words, timestamp=at(minute, day=day), **more),
        assistant(
            f"a-{number}", "Hi", f"u-{number}", answer=f"msg_{number}", timestamp=at(minute + 1, day=day), **more
        ),
    ]
