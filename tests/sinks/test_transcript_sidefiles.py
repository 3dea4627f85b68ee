"""Large tool results beside the transcript (WIRE.md §3; fault 48)."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from transcripts import SESSION, Answer, maker, parents, records

from turnstream.messages import TranscriptError, decode_line
from turnstream.sinks.transcript import (
    Limits,
    TranscriptSink,
    load_side_file,
    session_path,
    sidefiles,
    with_side_files,
)
from turnstream.testing import virtual_time

LIMITS = Limits(tool_result=5000)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@virtual_time
async def test_fault_48_a_large_result_goes_to_a_side_file_the_line_keeps_preview_and_reference(tmp_path: Path) -> None:
    make = maker()
    path = session_path(tmp_path, "/w", SESSION)
    sink = TranscriptSink(path)
    answer = Answer(make)
    text = "✅ line of output\n" * 1_200_000  # over 20 MB
    sink.on_next([make.user("go"), answer.start(), *answer.tool("toolu_1"), *answer.end(stop_reason="tool_use")])
    result = make.tool_result("toolu_1", text, source=answer.messages[0], tool_use_result={"stdout": text, "code": 0})
    await sink.record([result])
    await sink.aclose()
    assert path.stat().st_size < 10_000
    record = records(path)[-1]
    assert record["parentUuid"] == answer.messages[0].uuid
    (block,) = record["message"]["content"]
    assert (block["type"], block["tool_use_id"]) == ("tool_result", "toolu_1")
    assert block["content"].startswith(text[:2000])
    assert f"{len(text) - 2000:,} more characters are in {SESSION}/tool-results/toolu_1.txt" in block["content"]
    assert record["toolUseResult"]["code"] == 0
    content, output = record["sideFiles"]
    data = text.encode()
    assert content == {
        "path": f"{SESSION}/tool-results/toolu_1.txt",
        "toolUseId": "toolu_1",
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "field": "content",
        "block": 0,
    }
    file = path.parent / content["path"]
    assert file.read_bytes() == data
    assert (mode(file), mode(file.parent), mode(file.parent.parent)) == (0o600, 0o700, 0o700)
    assert load_side_file(content, path) == text
    assert load_side_file(output, path) == {"stdout": text, "code": 0}
    whole, problems = with_side_files(record, path)
    assert problems == []
    assert whole["message"]["content"] == [{**block, "content": text}]
    assert whole["toolUseResult"] == {"stdout": text, "code": 0}
    assert "sideFiles" not in whole
    assert record["message"]["content"] == [block], "the record itself isn't changed"
    assert result.message["content"][0]["content"] == text, "nor is the message"
    assert sink.statistics()["side_files"] == 2


@virtual_time
async def test_fault_48_a_missing_or_changed_side_file_is_tolerated(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, limits=LIMITS)
    await sink.record([make.user("go"), make.tool_result("t1", "x" * 6000), make.tool_result("t2", "y" * 6000)])
    await sink.aclose()
    _, first, second = records(path)
    (tmp_path / "s" / "tool-results" / "t1.txt").unlink()
    (tmp_path / "s" / "tool-results" / "t2.txt").write_text("changed")
    for record, why in ((first, "missing"), (second, "isn't what was written")):
        with pytest.raises(TranscriptError, match=why):
            load_side_file(record["sideFiles"][0], path)
        same, problems = with_side_files(record, path)
        assert same == record, "preview and reference stay"
        assert len(problems) == 1
    # The session goes on.
    again = TranscriptSink(path, append=True, limits=LIMITS)
    await again.record([make.user("next")])
    await again.aclose()


@virtual_time
async def test_small_results_stay_and_none_makes_no_side_files(tmp_path: Path) -> None:
    make = maker()
    for name, limits in (("a", None), ("b", Limits(tool_result=None))):
        path = tmp_path / f"{name}.jsonl"
        sink = TranscriptSink(path, limits=limits)
        text = "z" * (200_000 if limits is None else 2_000_000)
        await sink.record([make.user("go"), make.tool_result("t1", text)])
        await sink.aclose()
        assert records(path)[1]["message"]["content"][0]["content"] == text
        assert "sideFiles" not in records(path)[1]
        assert not (tmp_path / name).exists()


@virtual_time
async def test_blocks_of_a_result_go_as_json(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, limits=LIMITS)
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 9000}}
    blocks = [{"type": "text", "text": "a picture"}, image, {"type": "text", "text": "and more"}]
    many = [{"type": "text", "text": f"line {n}"} for n in range(1000)]
    await sink.record([make.user("go"), make.tool_result("t1", blocks), make.tool_result("t2", many)])
    await sink.aclose()
    _, first, second = records(path)
    preview = first["message"]["content"][0]["content"]
    assert preview[0] == {"type": "text", "text": "a picture"}
    assert preview[1] == {"type": "text", "text": "[2 more blocks in s/tool-results/t1.json]"}
    assert load_side_file(first["sideFiles"][0], path) == blocks
    assert load_side_file(second["sideFiles"][0], path) == many
    assert len(json.dumps(second)) < 20_000
    assert {block["type"] for block in second["message"]["content"][0]["content"]} == {"text"}


@virtual_time
async def test_several_results_in_one_message_and_structured_output(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, limits=LIMITS)
    message = make.user(
        [
            {"type": "tool_result", "tool_use_id": "t1", "content": "small"},
            {"type": "tool_result", "tool_use_id": "t2", "content": "L" * 6000, "is_error": True},
            {"type": "text", "text": "beside"},
            {"type": "tool_result", "tool_use_id": "t3", "content": "M" * 7000},
        ],
        tool_use_result={"files": ["f" * 50] * 1000, "deep": {"er": ["x"] * 3}, "n": 10**30, "ok": True, "no": None},
    )
    await sink.record([message])
    await sink.aclose()
    (record,) = records(path)
    assert [r["field"] for r in record["sideFiles"]] == ["content", "content", "toolUseResult"]
    assert [r.get("block") for r in record["sideFiles"]] == [1, 3, None]
    assert record["message"]["content"][0]["content"] == "small"
    assert record["message"]["content"][1]["is_error"] is True
    assert len(record["toolUseResult"]["files"]) == 100
    assert record["toolUseResult"]["deep"] == {"er": ["x"] * 3}
    whole, problems = with_side_files(record, path)
    assert problems == []
    assert whole["message"] == message.message
    assert whole["toolUseResult"] == message.tool_use_result


@virtual_time
async def test_ids_that_must_not_be_in_a_path_are_hashed_and_a_name_that_is_taken_gets_another(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, limits=LIMITS)
    ids = ["../../evil", "/etc/passwd", "a/b", ".", "", "x" * 200, "t\n1", "dup", "dup", "nul\x00"]
    talk = [make.tool_result(ident, f"{n}" + "v" * 6000) for n, ident in enumerate(ids)]
    await sink.record(talk)
    await sink.aclose()
    found = records(path)
    folder = tmp_path / "s" / "tool-results"
    assert len(list(folder.iterdir())) == len(ids)
    assert sink.statistics()["writes"] == len(ids), "one large result at a time is held as bytes"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s", "s.jsonl"]
    for n, record in enumerate(found):
        assert load_side_file(record["sideFiles"][0], path) == f"{n}" + "v" * 6000
        assert with_side_files(record, path)[0]["message"] == talk[n].message
    # A later session doesn't overwrite what an earlier one refers to.
    again = TranscriptSink(path, append=True, limits=LIMITS)
    await again.record([make.tool_result("dup", "new" + "w" * 6000)])
    await again.aclose()
    assert load_side_file(found[7]["sideFiles"][0], path).startswith("7v")
    assert load_side_file(records(path)[-1]["sideFiles"][0], path).startswith("neww")


def test_a_reference_never_leads_out_of_the_transcripts_folder(tmp_path: Path) -> None:
    path = tmp_path / "in" / "s.jsonl"
    (tmp_path / "in" / "s" / "tool-results").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "in" / "s" / "tool-results" / "link.txt").symlink_to(tmp_path / "secret")
    (tmp_path / "in" / "linked").symlink_to(tmp_path)
    for name in ("sub", "tool-results"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").write_text("secret")
    os.mkfifo(tmp_path / "in" / "s" / "tool-results" / "pipe.txt")
    for name in (
        "../secret",
        "../../secret",
        "../sub/x.txt",
        "s/../../secret",
        "/etc/passwd",
        "s/tool-results/../../../secret",
        "s/tool-results/..",
        "s/./x",
        "s\\x\\y",
        "",
        None,
        7,
        "s/tool-results/link.txt",
        "linked/tool-results/x.txt",
        "s/tool-results/pipe.txt",
        "s/tool-results/none.txt",
    ):
        with pytest.raises(TranscriptError):
            load_side_file({"path": name}, path)


@virtual_time
async def test_a_symlink_in_the_side_folders_place_is_an_error_and_nothing_is_lost(tmp_path: Path) -> None:
    make = maker()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "s").symlink_to(tmp_path / "elsewhere")
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, limits=LIMITS)
    with pytest.raises(TranscriptError, match="can't be written"):
        await sink.record([make.tool_result("t1", "x" * 6000)])
    assert list((tmp_path / "elsewhere").iterdir()) == []
    (tmp_path / "s").unlink()
    await sink.aclose()
    assert load_side_file(records(path)[0]["sideFiles"][0], path) == "x" * 6000


@virtual_time
async def test_the_side_file_is_whole_before_its_line_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    plan: list[Any] = [1000, OSError(errno.ENOSPC, "No space left on device")]

    def write(fd: int, data: memoryview) -> int:
        step = plan.pop(0) if plan else len(data)
        if isinstance(step, OSError):
            raise step
        return os.write(fd, data[:step])

    monkeypatch.setattr(sidefiles, "_write", write)
    sink = TranscriptSink(path, limits=LIMITS)
    with pytest.raises(TranscriptError, match="No space left"):
        await sink.record([make.user("go"), make.tool_result("t1", "x" * 6000)])
    assert not path.exists()
    assert list((tmp_path / "s" / "tool-results").iterdir()) == [], "no half of one stays"
    await sink.drain()
    await sink.aclose()
    assert [p.name for p in (tmp_path / "s" / "tool-results").iterdir()] == ["t1.txt"]
    assert load_side_file(records(path)[1]["sideFiles"][0], path) == "x" * 6000


@pytest.mark.parametrize("durability", ["flush", "fsync"])
def test_durability_of_side_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: Any) -> None:
    synced: list[int] = []
    monkeypatch.setattr(sidefiles, "_fsync", lambda fd: synced.append(os.fstat(fd).st_size))

    @virtual_time
    async def check() -> None:
        make = maker()
        sink = TranscriptSink(tmp_path / "s.jsonl", limits=LIMITS, durability=durability)
        await sink.record([make.tool_result("t1", "x" * 6000)])
        await sink.aclose()

    check()
    assert synced == ([6000] if durability == "fsync" else [])


@virtual_time
async def test_redact_comes_before(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"

    def redact(message: Any) -> Any:
        from turnstream.messages import replace

        content = [{**b, "content": b["content"].replace("s3cret", "***")} for b in message.message["content"]]
        return replace(message, message={**message.message, "content": content})

    sink = TranscriptSink(path, limits=LIMITS, redact=redact)
    await sink.record([make.tool_result("t1", "s3cret " * 2000)])
    await sink.aclose()
    for file in (path, tmp_path / "s" / "tool-results" / "t1.txt"):
        assert b"s3cret" not in file.read_bytes()


@virtual_time
async def test_lone_surrogates_and_objects_in_a_large_result(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, limits=LIMITS)
    odd = make.tool_result("t1", "cut \ud83d" + "x" * 6000, tool_use_result={"path": Path("/w"), "x": "\udc8f" * 6000})
    await sink.record([odd])
    await sink.aclose()
    (record,) = records(path)
    content, output = record["sideFiles"]
    assert load_side_file(content, path) == "cut \ufffd" + "x" * 6000
    assert load_side_file(output, path) == {"path": "/w", "x": "\ufffd" * 6000}


@virtual_time
async def test_a_record_that_was_read_keeps_its_references(tmp_path: Path) -> None:
    make = maker()
    path, copy = tmp_path / "s.jsonl", tmp_path / "copy.jsonl"
    sink = TranscriptSink(path, session_id=SESSION, limits=LIMITS)
    await sink.record([make.user("go"), make.tool_result("t1", "x" * 6000)])
    await sink.aclose()
    lines = path.read_bytes().splitlines()
    again = TranscriptSink(copy, session_id=SESSION, limits=LIMITS)
    await again.record(list(map(decode_line, lines)))
    await again.aclose()
    assert copy.read_bytes() == path.read_bytes()
    assert load_side_file(records(copy)[1]["sideFiles"][0], copy) == "x" * 6000
    assert parents(copy) == parents(path)


@virtual_time
async def test_a_session_that_was_renamed_with_its_folder_finds_its_side_files(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, limits=LIMITS)
    await sink.record([make.tool_result("t1", "x" * 6000)])
    await sink.aclose()
    (tmp_path / "s").rename(tmp_path / "moved")
    path = path.rename(tmp_path / "moved.jsonl")
    assert load_side_file(records(path)[0]["sideFiles"][0], path) == "x" * 6000


@virtual_time
async def test_a_transcript_without_its_usual_suffix_has_a_folder_beside_it(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "log"
    sink = TranscriptSink(path, limits=LIMITS)
    await sink.record([make.tool_result("t1", "x" * 6000)])
    await sink.aclose()
    assert load_side_file(records(path)[0]["sideFiles"][0], path) == "x" * 6000
    assert (tmp_path / "log.files" / "tool-results" / "t1.txt").exists()


def test_references_that_fit_nothing_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "s" / "tool-results"
    folder.mkdir(parents=True)
    (folder / "t1.txt").write_text("text")
    (folder / "t1.json").write_text("{broken")
    path = "s/tool-results/t1.txt"
    content = [{"type": "tool_result", "tool_use_id": "t1", "content": "preview"}]
    for reference in (
        "nonsense",
        {"path": path, "field": "content", "block": 3, "toolUseId": "t1"},
        {"path": path, "field": "content", "block": "0", "toolUseId": "t1"},
        {"path": path, "field": "content", "block": 0, "toolUseId": "other"},
        {"path": path, "field": "elsewhere"},
        {"path": "s/tool-results/t1.json", "field": "toolUseResult"},
    ):
        record = {"message": {"content": content}, "sideFiles": [reference]}
        same, problems = with_side_files(record, tmp_path / "s.jsonl")
        assert same == record
        assert len(problems) == 1
    for record in ({"a": 1}, {"sideFiles": None}, {"sideFiles": {}}):
        assert with_side_files(record, tmp_path / "s.jsonl") == (record, [])
