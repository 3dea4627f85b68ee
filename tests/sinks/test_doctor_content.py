"""What the doctor finds inside messages: thinking without its signature, calls without results (FAULTS.md 45, 54, 57)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ailing
import pytest
from ailing import (
    assistant,
    call,
    chain,
    cured,
    dump,
    lines_of,
    links,
    result,
    rows,
    talk,
    text,
    thinking,
    uid,
    user,
    write,
)

from turnstream.messages.texts import MISSING_RESULT
from turnstream.sinks.transcript.doctor import diagnose
from turnstream.sinks.transcript.reading import resume


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"{ailing.SESSION}.jsonl"


@pytest.mark.parametrize(
    "block",
    [
        thinking(None),
        thinking(""),
        thinking("x" * 24),
        {"type": "redacted_thinking", "data": ""},
        {"type": "thinking", "signature": ailing.SIGNATURE},
    ],
)
def test_fault_57_thinking_that_the_api_refuses_is_taken_out(path: Path, block: dict[str, Any]) -> None:
    lines = [user(1, None), assistant(2, 1, block, text("hello")), *talk(1, 3, 2)]
    write(path, *lines)
    report = cured(path, "unsigned-thinking")
    assert [found.line for found in report.findings] == [2]
    assert rows(path)[1]["message"]["content"] == [text("hello")]
    assert rows(path)[1] == {**lines[1], "message": {**lines[1]["message"], "content": [text("hello")]}}
    assert [lines_of(path)[n] for n in (0, 2, 3)] == [dump(lines[n]) for n in (0, 2, 3)]


def test_fault_57_a_message_that_is_nothing_else_goes(path: Path) -> None:
    lines = [user(1, None), assistant(2, 1, thinking(None), answer="m"), assistant(3, 2, text("a"), answer="m")]
    write(path, *lines)
    cured(path, "unsigned-thinking")
    assert chain(path) == links((1, None), (3, 1))


@pytest.mark.parametrize("block", [thinking(), {"type": "thinking", "thinking": "", "signature": ailing.SIGNATURE}])
def test_fault_57_signed_thinking_stays_even_without_text(path: Path, block: dict[str, Any]) -> None:
    write(path, user(1, None), assistant(2, 1, block))
    assert diagnose(path).findings == []


def test_fault_45_a_lost_result_is_said_to_be_missing(path: Path) -> None:
    lines = [
        user(1, None),
        assistant(2, 1, call("a"), answer="m"),
        assistant(3, 2, call("b"), answer="m"),
        result(4, 3, "b"),
        assistant(5, 4),
    ]
    write(path, *lines)
    report = cured(path, "open-tool-use")
    assert [(found.line, found.uuid) for found in report.findings] == [(2, uid(2))]
    made = rows(path)[3]
    assert (made["type"], made["parentUuid"], made["sourceToolAssistantUUID"]) == ("user", uid(2), uid(2))
    assert made["message"]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": MISSING_RESULT, "is_error": True}
    ]
    assert {key: made[key] for key in ("sessionId", "cwd", "version", "timestamp")} == {
        key: lines[1][key] for key in ("sessionId", "cwd", "version", "timestamp")
    }
    assert [line for n, line in enumerate(lines_of(path)) if n != 3] == [dump(line) for line in lines]


def test_fault_54_calls_that_were_open_at_the_end_get_their_results_in_order(path: Path) -> None:
    write(
        path, user(1, None), assistant(2, 1, call("a"), call("b"), answer="m"), assistant(3, 2, call("c"), answer="m")
    )
    before = [message.uuid for message in resume(path).messages]  # type: ignore[union-attr]
    assert cured(path, "open-tool-use").counts == {"open-tool-use": 3}
    assert [row["message"]["content"][0].get("tool_use_id") for row in rows(path)[3:]] == ["a", "b", "c"]
    # A resume made up the same results, under the same uuids.
    assert [message.uuid for message in resume(path).messages] == before  # type: ignore[union-attr]


def test_fault_54_an_answer_that_was_cut_off_is_no_fault_of_the_file(path: Path) -> None:
    write(path, user(1, None), assistant(2, 1, text("half a sent"), isAbortedMidStream=True))
    assert diagnose(path).findings == []
