"""``turnstream schema``, as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def turnstream(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "turnstream", *arguments], capture_output=True, timeout=60, check=False
    )


def test_a_schema_that_the_messages_of_a_replay_meet(tmp_path: Path) -> None:
    done = turnstream("schema")
    assert (done.returncode, done.stderr) == (0, b"")
    schema = json.loads(done.stdout)
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    files = [str(path) for path in sorted(EXAMPLES.glob("*.sse"))]
    replayed = turnstream("replay", *files, "--metrics", "none", "--ui", "none", "--output", "items")
    items = [json.loads(line) for line in replayed.stdout.splitlines()]
    assert {"assistant", "stream_event", "response_failed"} <= {item["type"] for item in items}
    for item in items:
        validator.validate(item)
    for broken in ({"type": "user"}, {"type": "assistant", "message": "text"}):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(broken)


def test_it_takes_no_file() -> None:
    done = turnstream("schema", "file.jsonl")
    assert done.returncode == 2
    assert b"unrecognized arguments" in done.stderr
