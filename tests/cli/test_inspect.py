"""``turnstream inspect``, as a user calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import recordings

from turnstream.cli import main


def inspect(*arguments: Any, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "turnstream", "inspect", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )


def jsonl(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def record(kind: str, uuid: str, parent: str | None = None, second: int = 0, **fields: Any) -> dict[str, Any]:
    stamp = f"2025-06-01T10:00:{second:02d}.000Z"
    return {"parentUuid": parent, "isSidechain": False, "type": kind, "uuid": uuid, "timestamp": stamp, **fields}


def user(uuid: str, content: Any, parent: str | None = None, **fields: Any) -> dict[str, Any]:
    return record("user", uuid, parent, message={"role": "user", "content": content}, **fields)


def assistant(
    uuid: str, block: dict[str, Any], usage: Any, parent: str | None = None, ident: str = "msg_1", **fields: Any
) -> dict[str, Any]:
    message = {"id": ident, "role": "assistant", "model": "claude-a", "content": [block], "usage": usage}
    return record("assistant", uuid, parent, message=message | fields.pop("envelope", {}), **fields)


def use(ident: str, name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": ident, "name": name, "input": {}}


def result(ident: str, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": ident, "content": "", **fields}


TEXT = {"type": "text", "text": "x"}
FIRST = {"input_tokens": 10, "output_tokens": 1, "cache_creation": {"ephemeral_5m_input_tokens": 7}}
FINAL = {**FIRST, "output_tokens": 40, "service_tier": "standard", "iterations": [{"input_tokens": 10}]}


def report(*values: Any) -> dict[str, Any]:
    done = inspect("-", "--json", stdin=jsonl(*values))
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    assert isinstance(out, dict)
    return out


def test_counts() -> None:
    found = report(
        {"type": "summary", "summary": "s", "leafUuid": "x"},
        user("u-1", "Go", second=5),
        assistant("a-1", TEXT, FIRST, "u-1"),
        assistant("a-2", use("t-1", "Read"), FIRST, "a-1"),
        assistant("a-3", use("t-2", "Bash"), FINAL, "a-2", second=9),
        user("u-2", [result("t-1")], "a-2"),
        user("u-3", [result("t-2", is_error=True)], "a-3"),
        assistant("a-4", use("t-3", "Read"), {"input_tokens": 100, "output_tokens": 2}, "u-3", ident="msg_2"),
        record("system", "s-1", "a-4", subtype="turn_duration", durationMs=3),
        record("attachment", "at-1", "s-1", attachment={"type": "hook_success", "toolUseID": "t-2"}),
        record("progress", "p-1", toolUseID="t-3", data={"type": "bash_progress"}),
        {"type": "queue-operation", "operation": "enqueue", "timestamp": "2025-06-01T12:30:00+02:00"},
        {"type": "queue-operation", "operation": "dequeue"},
    )
    assert found["lines"] == 13
    assert found["types"] == {"assistant": 4, "user": 3, "system": 1, "attachment": 1, "progress": 1}
    assert found["subtypes"]["system"] == {"turn_duration": 1}
    assert found["subtypes"]["attachment"] == {"hook_success": 1}
    assert found["subtypes"]["progress"] == {"bash_progress": 1}
    assert found["subtypes"]["user"]["tool_result"] == 2
    assert sum(found["subtypes"]["user"].values()) == 3
    assert found["unknown_types"] == {"queue-operation": 2, "summary": 1}
    assert found["answers"] == 2
    assert found["models"] == {"claude-a": 2}
    # Of each answer the last line's, once: 10 + 100, 40 + 2.
    assert found["tokens"] == {
        "input_tokens": 110,
        "output_tokens": 42,
        "cache_creation.ephemeral_5m_input_tokens": 7,
    }
    assert found["tools"] == {"Read": {"uses": 2, "errors": 0}, "Bash": {"uses": 1, "errors": 1}}
    assert found["open_tool_uses"] == [{"id": "t-3", "name": "Read", "line": 8}]
    # By time, not by text or place: 12:30 in another zone is 10:30.
    assert found["first"] == "2025-06-01T10:00:00.000Z"
    assert found["last"] == "2025-06-01T12:30:00+02:00"
    # Parallel calls branch in the file, not in the conversation.
    assert (found["forks"], found["compactions"], found["bad_lines"]) == ([], [], [])


def test_answers_without_id_synthetic_ones_and_lines_again() -> None:
    nameless = {"id": None}
    first = assistant("a-1", TEXT, {"output_tokens": 1}, envelope=nameless)
    found = report(
        user("u-1", "Go"),
        first,
        assistant("a-2", TEXT, {"output_tokens": 2}, envelope=nameless),
        first,
        assistant("a-3", TEXT, {"output_tokens": 50}, ident="msg_s", envelope={"model": "<synthetic>"}),
        assistant("a-4", TEXT, None, ident="msg_n"),
        assistant("a-5", TEXT, {"output_tokens": True, "input_tokens": None}, ident="msg_n"),
    )
    assert found["tokens"] == {"output_tokens": 3}
    assert found["answers"] == 3
    assert found["repeated_uuids"] == 1


def test_calls_and_results_that_repeat_or_stand_alone() -> None:
    server = {"type": "server_tool_use", "id": "srv-1", "name": "web_search", "input": {}}
    failed = {
        "type": "web_search_tool_result",
        "tool_use_id": "srv-1",
        "content": {"type": "web_search_tool_result_error"},
    }
    call = assistant("a-1", use("t-1", "Read"), {})
    found = report(
        user("u-0", [result("t-1")]),  # a result may stand before its call
        call,
        call,
        assistant("a-2", use("t-1", "Bash"), {}, ident="msg_2"),  # the id again, another answer: another call
        assistant("a-3", server, {}, ident="msg_3"),
        assistant("a-4", failed, {}, ident="msg_3"),
        user("u-1", [result("t-9")]),
    )
    assert found["tools"] == {
        "Read": {"uses": 1, "errors": 0},
        "Bash": {"uses": 1, "errors": 0},
        "web_search": {"uses": 1, "errors": 1},
    }
    assert [call["name"] for call in found["open_tool_uses"]] == ["Bash"]
    assert found["orphan_results"] == 1


def test_forks_are_where_a_conversation_goes_on_twice() -> None:
    found = report(
        user("u-1", "Go"),
        assistant("a-1", use("t-1", "Read"), {}, "u-1"),
        assistant("a-2", use("t-2", "Read"), {}, "a-1"),
        user("u-2", [result("t-1")], "a-1"),
        record("attachment", "h-1", "a-1", attachment={"type": "hook_success", "toolUseID": "t-1"}),
        user("u-3", [result("t-2")], "a-2"),
        user("u-4", "rather not", "a-2"),  # rewound: beside the result, another way
        assistant("a-3", TEXT, {}, "u-3", ident="msg_2"),
        assistant("a-4", TEXT, {}, "u-3", ident="msg_3"),
        assistant("a-5", TEXT, {}, "u-3", ident="msg_4"),
        user("x-1", "inner", "a-3", isSidechain=True),
        user("u-5", "On", "a-3"),
        user("u-6", "lost", "nowhere"),
        user("u-7", "lost, too", "nowhere"),
    )
    assert found["forks"] == [
        {"line": 3, "uuid": "a-2", "branches": 2},
        {"line": 6, "uuid": "u-3", "branches": 3},
    ]
    assert found["sidechain_records"] == 1


def test_hostile_numbers_types_and_parents_are_no_crash() -> None:
    digits = int("9" * 4300)  # the longest that is read; the sum of two can't be written
    found = report(
        assistant("a-1", TEXT, {"input_tokens": digits, "output_tokens": 1}, "a-1"),
        assistant("a-2", {"type": ["tool_use"], "text": "x"}, {"input_tokens": digits, "x": 1e308}, "a-1", ident="m2"),
        assistant("a-3", TEXT, {"input_tokens": 2.0, "x": 1e308}, "a-2", ident="m3"),
        user("u-1", [{"type": "text", "text": ["x"]}], "a-3"),
        user("u-2", [{"type": {}}], "u-1"),
    )
    assert found["tokens"] == {"output_tokens": 1, "input_tokens": 2.0}
    assert found["forks"] == []  # a record that names itself has one way on


def test_compactions_with_and_without_metadata() -> None:
    found = report(
        user("u-1", "Go"),
        record("system", "s-1", subtype="compact_boundary", compactMetadata={"trigger": "auto", "preTokens": 155_000}),
        record("system", "s-2", subtype="compact_boundary"),
        record("system", "s-3", subtype="microcompact_boundary", microcompactMetadata={"preTokens": 9}),
        record("system", "s-4", subtype="compact_boundary", compactMetadata="odd"),
    )
    none = {"trigger": None, "pre_tokens": None}
    assert found["compactions"] == [
        {"line": 2, "subtype": "compact_boundary", "trigger": "auto", "pre_tokens": 155_000},
        {"line": 3, "subtype": "compact_boundary", **none},
        {"line": 4, "subtype": "microcompact_boundary", "trigger": None, "pre_tokens": 9},
        {"line": 5, "subtype": "compact_boundary", **none},
    ]


def test_bad_lines_have_a_number_and_an_offset(tmp_path: Path) -> None:
    good = jsonl(user("u-1", "Go"))
    path = tmp_path / "s.jsonl"
    path.write_bytes(good + b"{nope\n" + b"\n" + b"7\n" + good[:30])
    done = inspect(path, "--json")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    at = len(good)
    assert [(bad["line"], bad["offset"]) for bad in found["bad_lines"]] == [(2, at), (4, at + 7), (5, at + 9)]
    assert all(bad["problem"] for bad in found["bad_lines"])
    assert found["lines"] == 4
    assert done.stderr == b""


def test_text_for_reading(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(
        jsonl(
            user("u-1", "Go"),
            assistant("a-1", use("t-1", "Re\x1b[31mad"), {"input_tokens": 12_345}, "u-1"),
            user("u-2", "Stop", "u-1"),
            record("system", "s-1", subtype="compact_boundary", compactMetadata={"trigger": "manual", "preTokens": 5}),
            {"type": "queue-operation"},
        )
        + b"{nope\n"
    )
    done = inspect(path)
    assert done.returncode == 0
    out = done.stdout.decode()
    assert out.startswith(f"{path}: 6 lines\nfrom 2025-06-01T10:00:00.000Z to 2025-06-01T10:00:00.000Z\n")
    for line in (
        "answers: 1",
        "  claude-a  1",
        "  input_tokens  12,345",
        "  queue-operation  1",
        "open tool calls: 1",
        "  line 2: Re\\x1b[31mad t-1",
        "compactions: 1",
        "  line 4: compact_boundary (manual, 5 tokens before)",
        "forks: 1",
        "  line 1: 2 ways on from u-1",
        "bad lines: 1",
    ):
        assert line in out.splitlines()
    assert "\x1b" not in out
    assert not any(line.endswith(" ") for line in out.splitlines())


def test_no_conversation_is_told_and_exit_1(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    for data in (b"", jsonl({"type": "summary", "summary": "s"}), b"no json\n"):
        path.write_bytes(data)
        done = inspect(path, "--json")
        assert done.returncode == 1
        assert json.loads(done.stdout)["types"] == {}
        assert done.stderr == f"turnstream: {path} holds no message of a conversation\n".encode()


def test_stream_json_is_counted_like_a_transcript() -> None:
    own = {"session_id": "5c0375b4", "parent_tool_use_id": None}
    answer = {"id": "msg_1", "role": "assistant", "model": "claude-a", "content": [use("t-1", "Read")], "usage": FINAL}
    found = report(
        {"type": "system", "subtype": "init", "model": "claude-a", "uuid": "i-1", **own},
        {"type": "assistant", "message": answer, "uuid": "a-1", **own},
        {"type": "user", "message": {"role": "user", "content": [result("t-1")]}, "uuid": "u-1", **own},
        {"type": "result", "subtype": "success", "usage": FINAL, "uuid": "r-1", "session_id": "5c0375b4"},
    )
    assert (found["types"]["assistant"], found["types"]["user"]) == (1, 1)
    assert found["tokens"]["output_tokens"] == 40
    assert found["tools"] == {"Read": {"uses": 1, "errors": 0}}
    assert found["open_tool_uses"] == []
    assert found["lines"] == 4


def test_fault_28_usage_that_several_lines_of_one_answer_repeat_counts_once_and_the_last_wins() -> None:
    lines = [assistant(f"a-{n}", TEXT, {"output_tokens": tokens}) for n, tokens in enumerate((9, 9, 159))]
    assert report(*lines)["tokens"] == {"output_tokens": 159}


def test_fault_56_unknown_types_and_shapes_are_counted_and_the_rest_is_read() -> None:
    odd = [{"type": kind, "x": 1} for kind in ("mode", "atis-latch", "cost-state", "ai-title", "tool_progress")]
    found = report(
        user("u-1", "Go"), *odd, {"no": "type"}, user("u-2", [result("t-1")], toolUseResult=[[{"odd": None}]])
    )
    assert found["unknown_types"] == {**{value["type"]: 1 for value in odd}, "(none)": 1}
    assert found["types"] == {"user": 2}


def test_a_large_file_is_read_line_by_line(tmp_path: Path) -> None:
    def peak(path: Path) -> int:
        """KiB, by the kernel's account."""
        process = subprocess.Popen(
            [sys.executable, "-m", "turnstream", "inspect", str(path)], stdout=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return usage.ru_maxrss // (1024 if sys.platform == "darwin" else 1)

    path = tmp_path / "s.jsonl"
    path.write_bytes(jsonl(user("u-1", "x" * 400_000)))
    small = peak(path)
    with path.open("wb") as file:
        for number in range(100):
            file.write(jsonl(user(f"u-{number}", "x" * 400_000)))
    assert path.stat().st_size > 40_000_000
    assert peak(path) - small < 10_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "FILE"),
        (("{folder}/none.jsonl",), "can't read {folder}/none.jsonl: No such file or directory"),
        (("{folder}",), "can't read {folder}: Is a directory"),
        (("{folder}/a\0b",), None),
        (("--xml", "-"), "unrecognized"),
    ],
)
def test_usage(tmp_path: Path, arguments: tuple[str, ...], words: str | None) -> None:
    if words is None:
        # A name that no process can be given, but a caller of main() can.
        assert main(["inspect", arguments[0].format(folder=tmp_path)]) == 2
        return
    done = inspect(*(argument.format(folder=tmp_path) for argument in arguments))
    assert done.returncode == 2
    assert words.format(folder=tmp_path) in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()
    assert done.stdout == b""


# -- real files ----------------------------------------------------------------------------------------


def transcripts() -> list[Any]:
    rows = [row for row in recordings.index() if row["file"].startswith("transcripts/")]
    if not rows:
        return [pytest.param({}, marks=pytest.mark.skip(reason=f"no recordings: set {recordings.VARIABLE}"))]
    return [pytest.param(row, id=row["file"].removeprefix("transcripts/")) for row in rows]


def plain(data: bytes) -> list[dict[str, Any]]:
    """The objects of a file, by the standard library alone."""
    values = []
    for line in data.split(b"\n"):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            values.append(value)
    return values


def is_record(value: dict[str, Any]) -> bool:
    """Whether a line holds what its type needs."""
    needed = {"user": "message", "assistant": "message", "attachment": "attachment"}.get(str(value.get("type")))
    return needed is None or isinstance(value.get(needed), dict)


@pytest.mark.parametrize("row", transcripts())
def test_recorded_transcripts(row: dict[str, str], capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    path = recordings.need("transcripts") / row["file"]
    status = main(["inspect", str(path), "--json"])
    found = json.loads(capfdbinary.readouterr().out)
    values = plain(path.read_bytes())

    types = Counter(str(value.get("type")) for value in values if is_record(value))
    known = ("user", "assistant", "system", "attachment", "progress")
    assert found["types"] == {kind: types[kind] for kind in known if types[kind]}
    assert sum(found["unknown_types"].values()) == sum(n for kind, n in types.items() if kind not in known)
    assert status == (0 if any(types[kind] for kind in known[:4]) else 1)
    assert len(found["bad_lines"]) == found["lines"] - sum(types.values())
    if not found["bad_lines"]:
        # The recordings' own table, e.g. "types=user:3,assistant:2"; it was made before addresses were taken out,
        # which broke some lines.
        facts = dict(part.split("=", 1) for part in row["special"].split("; ") if "=" in part)
        assert types == {name: int(n) for name, n in (pair.rsplit(":", 1) for pair in facts["types"].split(","))}

    # Tokens and calls, computed once more by other means: all lines first, then what they come to.
    answers: dict[Any, dict[str, Any]] = {}
    calls: dict[Any, str] = {}
    results: dict[str, bool] = {}
    for number, value in enumerate(values):
        message = value.get("message")
        if value.get("type") not in ("user", "assistant") or not isinstance(message, dict):
            continue
        content = message.get("content")
        blocks = [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []
        results |= {b["tool_use_id"]: bool(b.get("is_error")) for b in blocks if b.get("type") == "tool_result"}
        if value["type"] == "assistant":
            calls |= {b["id"]: b["name"] for b in blocks if b.get("type") == "tool_use"}
            if message.get("model") != "<synthetic>":
                key = message.get("id") or value.get("uuid") or number
                answers[key] = message.get("usage") or answers.get(key, {})
    for kind in ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"):
        assert found["tokens"].get(kind, 0) == sum(usage.get(kind) or 0 for usage in answers.values())
    assert found["answers"] == len(answers)
    uses = Counter(calls.values())
    assert {name: tool["uses"] for name, tool in found["tools"].items()} == uses
    errors = Counter(name for ident, name in calls.items() if results.get(ident))
    assert {name: tool["errors"] for name, tool in found["tools"].items() if tool["errors"]} == errors
    assert [call["id"] for call in found["open_tool_uses"]] == [ident for ident in calls if ident not in results]
    assert found["orphan_results"] == len(set(results) - set(calls))
    stamps = [value["timestamp"] for value in values if isinstance(value.get("timestamp"), str)]
    # All of a file's times have one format, so text order is time order.
    assert (found["first"], found["last"]) == ((min(stamps), max(stamps)) if stamps else (None, None))
