"""Small transcripts with something wrong, and what must hold whenever one is mended."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from turnstream.messages import Message, to_wire
from turnstream.sinks.transcript.doctor import Report, diagnose, repair
from turnstream.sinks.transcript.reading import resume

SESSION = "5c0375b4-57a5-4f26-b12d-d022ee4e51b7"
START = datetime(2026, 1, 2, 3)
SIGNATURE = "x" * 300
# What a mended file's resume may still say: neither is anything that repair could do away with.
HARMLESS = {"segment_relinked", "sibling_restored", "result_restored", "attachment_restored", "side_file_loaded"}


def uid(n: int) -> str:
    return f"00000000-0000-4000-8000-{n:012d}"


def record(kind: str, n: int, parent: int | None, **fields: Any) -> dict[str, Any]:
    """A record as the writer makes it; ``parent`` by number."""
    return {
        "parentUuid": None if parent is None else uid(parent),
        "isSidechain": False,
        "userType": "external",
        "cwd": "/home/me",
        "sessionId": SESSION,
        "version": "1.0.0",
        "type": kind,
        **fields,
        "uuid": uid(n),
        "timestamp": f"{START + timedelta(seconds=n):%Y-%m-%dT%H:%M:%S}.000Z",
    }


def user(n: int, parent: int | None, content: Any = None, **fields: Any) -> dict[str, Any]:
    content = f"words {n}" if content is None else content
    return record("user", n, parent, **{"message": {"role": "user", "content": content}, **fields})


def assistant(n: int, parent: int | None, *blocks: Any, answer: str | None = None, **fields: Any) -> dict[str, Any]:
    message = {
        "id": answer or f"msg_{n}",
        "type": "message",
        "role": "assistant",
        "model": "claude-test-1",
        "content": list(blocks) or [text(f"answer {n}")],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 3, "output_tokens": n},
    }
    return record("assistant", n, parent, **{"message": message, **fields})


def result(n: int, parent: int | None, call: str, content: Any = "done", **fields: Any) -> dict[str, Any]:
    return user(n, parent, [{"type": "tool_result", "tool_use_id": call, "content": content}], **fields)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(ident: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": ident, "name": "Read", "input": {"path": ident}}


def thinking(signature: str | None = SIGNATURE) -> dict[str, Any]:
    block = {"type": "thinking", "thinking": "let me see"}
    return block if signature is None else {**block, "signature": signature}


def boundary(n: int, parent: int | None = None, **fields: Any) -> dict[str, Any]:
    return record("system", n, parent, subtype="compact_boundary", content="Conversation compacted", **fields)


def summary(n: int, parent: int | None, **fields: Any) -> dict[str, Any]:
    return user(n, parent, "what was said", isCompactSummary=True, isVisibleInTranscriptOnly=True, **fields)


def progress(n: int, parent: int | None, size: int = 10) -> dict[str, Any]:
    return record("progress", n, parent, data={"type": "hook_progress", "output": "x" * size}, toolUseID="toolu_1")


def talk(turns: int, start: int = 1, parent: int | None = None) -> list[dict[str, Any]]:
    """Turns of a prompt and an answer, well linked."""
    lines = []
    for n in range(start, start + 2 * turns, 2):
        lines += [user(n, parent), assistant(n + 1, n)]
        parent = n + 1
    return lines


def dump(line: dict[str, Any] | bytes) -> bytes:
    """A line without its end."""
    return line if isinstance(line, bytes) else json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode()


def write(path: Path, *lines: dict[str, Any] | bytes, end: bytes = b"\n") -> Path:
    path.write_bytes(b"".join(dump(line) + end for line in lines))
    return path


def lines_of(path: Path) -> list[bytes]:
    data = path.read_bytes()
    assert not data or data.endswith(b"\n")
    return data.split(b"\n")[:-1]


def rows(path: Path) -> list[dict[str, Any]]:
    """The file's records, read by the standard library, strictly."""
    return [json.loads(line.decode()) for line in lines_of(path)]


def chain(path: Path) -> list[tuple[str, str | None]]:
    """(uuid, parentUuid) of what the file holds, in its order."""
    return [(row["uuid"], row["parentUuid"]) for row in rows(path) if "parentUuid" in row]


def links(*pairs: tuple[int, int | None]) -> list[tuple[str, str | None]]:
    return [(uid(n), None if parent is None else uid(parent)) for n, parent in pairs]


def payload(message: Message) -> str:
    """What a message says, without ids, links and times."""
    wire = to_wire(message)
    if wire["type"] == "system":
        return str((wire.get("subtype"), wire.get("content")))
    return json.dumps([wire["type"], wire.get("message"), wire.get("attachment")], sort_keys=True)


def said(path: Path) -> Counter[str]:
    """What a resume of the file says, as a bag."""
    return Counter(map(payload, resume(path).messages))


def cured(path: Path, *kinds: str, less: bool = False) -> Report:
    """Diagnose and mend a file; it must have exactly ``kinds``, and all that repair promises must hold.

    ``less``: the repair takes out what a resume would have given (turns of another session, repeats).
    """
    before = path.read_bytes()
    mode = path.stat().st_mode
    messages = said(path)
    found = diagnose(path)
    assert sorted(found.counts) == sorted(kinds)
    assert path.read_bytes() == before
    report = repair(path)
    assert report.repaired
    assert report.findings == found.findings
    assert report.backup is not None
    assert report.backup.read_bytes() == before
    assert path.stat().st_mode == report.backup.stat().st_mode == mode
    after = path.read_bytes()
    again = repair(path)
    assert (again.findings, again.repaired, again.backup) == ([], False, None)
    assert path.read_bytes() == after
    rows(path)  # what another program's reader needs
    now = resume(path)
    assert set(now.report.counts) <= HARMLESS
    if not less:
        assert not messages - Counter(map(payload, now.messages))
    left = [one.name for one in path.parent.iterdir() if one.name.startswith(".")]
    assert left == [], "temporary files or the lock are left"
    return report
