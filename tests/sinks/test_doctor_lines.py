"""What the doctor finds in lines: torn, joined, overwritten, oversized (FAULTS.md 20, 21, 44-48)."""

from __future__ import annotations

import json
from pathlib import Path

import ailing
import pytest
from ailing import assistant, call, cured, dump, lines_of, progress, result, rows, talk, uid, user, write

from turnstream.sinks.transcript.doctor import diagnose, repair
from turnstream.sinks.transcript.reading import resume


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"{ailing.SESSION}.jsonl"


def rejected(path: Path) -> list[dict[str, object]]:
    """The file of what was rejected."""
    return rows(path.with_name(f"{path.name}.rejected"))


def test_a_file_in_order_has_no_findings_and_is_not_touched(path: Path) -> None:
    write(path, *talk(3))
    before = path.stat()
    assert diagnose(path).findings == []
    report = repair(path)
    assert (report.repaired, report.backup, report.rejected) == (False, None, None)
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert path.stat().st_ino == before.st_ino


def test_an_empty_file_has_no_findings(path: Path) -> None:
    write(path)
    assert diagnose(path).findings == []


def test_fault_44_a_bad_line_in_the_middle_is_rejected_with_its_place(path: Path) -> None:
    first, second, *rest = talk(2)
    write(path, first, second, b'{"type":"user","mess', *rest)
    report = cured(path, "bad-line")
    offset = len(dump(first)) + len(dump(second)) + 2
    assert [(found.line, found.offset, found.severity) for found in report.findings] == [(3, offset, "error")]
    assert lines_of(path) == [dump(line) for line in (first, second, *rest)]
    assert report.rejected == path.with_name(f"{path.name}.rejected")
    (piece,) = rejected(path)
    assert {key: piece[key] for key in ("line", "offset", "bytes", "encoding", "data")} == {
        "line": 3,
        "offset": offset,
        "bytes": 20,
        "encoding": "utf-8",
        "data": '{"type":"user","mess',
    }


def test_fault_44_bytes_that_are_no_text_are_rejected_as_base64(path: Path) -> None:
    write(path, *talk(1), b"\xff\xfe\x00garbage")
    cured(path, "bad-line")
    (piece,) = rejected(path)
    assert (piece["encoding"], piece["data"]) == ("base64", "//4AZ2FyYmFnZQ==")  # base64 of the bytes, by hand


@pytest.mark.parametrize("line", [b"42", b'"words"', b"[1]", b"null", b"plain text"])
def test_fault_44_a_line_that_is_no_object_is_rejected(path: Path, line: bytes) -> None:
    write(path, *talk(1), line)
    cured(path, "bad-line")
    assert rejected(path)[0]["data"] == line.decode()


def test_fault_44_a_torn_tail_is_rejected(path: Path) -> None:
    lines = talk(2)
    path.write_bytes(b"\n".join(map(dump, lines))[:-7])
    report = cured(path, "torn-tail")
    assert [found.line for found in report.findings] == [4]
    assert lines_of(path) == [dump(line) for line in lines[:3]]
    assert rejected(path)[0]["data"] == dump(lines[3])[:-7].decode()


def test_fault_44_a_file_cut_at_every_byte_of_its_last_line_keeps_the_rest(path: Path) -> None:
    lines = talk(1)
    whole = b"".join(dump(line) + b"\n" for line in lines)
    first = len(dump(lines[0])) + 1
    for size in range(first, len(whole), 7):
        path.write_bytes(whole[:size])
        kinds = diagnose(path).counts
        assert set(kinds) == (
            {"torn-tail"} if first < size < len(whole) - 1 else set() if size == first else {"unended"}
        )
        repair(path)
        assert lines_of(path)[0] == dump(lines[0])
        assert diagnose(path).findings == []


def test_fault_44_the_last_line_without_its_end_gets_one(path: Path) -> None:
    lines = talk(1)
    path.write_bytes(b"\n".join(map(dump, lines)))
    cured(path, "unended")
    assert lines_of(path) == [dump(line) for line in lines]


def test_fault_44_records_on_one_line_get_lines_of_their_own(path: Path) -> None:
    lines = talk(2)
    write(path, dump(lines[0]) + dump(lines[1]) + b" " + dump(lines[2]), lines[3])
    report = cured(path, "filler", "shared-line")  # the space between is one that nobody needs
    assert report.counts["shared-line"] == 3
    assert lines_of(path) == [dump(line) for line in lines]


def test_fault_44_a_record_behind_a_torn_one_is_found_again(path: Path) -> None:
    lines = talk(2)
    write(path, lines[0], dump(lines[1])[:40] + dump(lines[2]), lines[3])
    cured(path, "bad-line", "dangling-parent")
    assert [row["uuid"] for row in rows(path)] == [uid(1), uid(3), uid(4)]
    assert rejected(path)[0]["data"] == dump(lines[1])[:40].decode()


def test_fault_44_nul_bytes_after_a_power_loss_are_taken_out(path: Path) -> None:
    lines = talk(2)
    path.write_bytes(
        dump(lines[0])
        + b"\n"
        + b"\0" * 512
        + dump(lines[1])
        + b"\n"
        + b"\n".join(map(dump, lines[2:]))
        + b"\n"
        + b"\0" * 999
    )
    report = cured(path, "nul-bytes")
    assert [found.line for found in report.findings] == [2, 5]
    assert lines_of(path) == [dump(line) for line in lines]
    assert [(piece["bytes"], "data" in piece) for piece in rejected(path)] == [(512, False), (999, False)]


def test_fault_44_crlf_becomes_lf(path: Path) -> None:
    lines = talk(2)
    write(path, *lines, end=b"\r\n")
    report = cured(path, "crlf")
    assert [(found.line, found.count) for found in report.findings] == [(1, 4)]
    assert lines_of(path) == [dump(line) for line in lines]


def test_fault_44_a_byte_order_mark_is_taken_out(path: Path) -> None:
    lines = talk(1)
    write(path, b"\xef\xbb\xbf" + dump(lines[0]), lines[1])
    cured(path, "bom")
    assert lines_of(path) == [dump(line) for line in lines]


def test_fault_44_bytes_that_are_no_utf8_become_replacement_characters(path: Path) -> None:
    first, second = talk(1)
    write(path, first, dump(second).replace(b"answer 2", b"answ\xffer"))
    cured(path, "invalid-utf8")
    assert rows(path)[1]["message"]["content"][0]["text"] == "answ\ufffder"
    assert lines_of(path)[0] == dump(first)


@pytest.mark.parametrize(
    ("broken", "meant"),
    [
        (rb"a \u27[red] b", r"a \u27[red] b"),
        (rb"C:\work", r"C:\work"),
        (rb"ends \\ in \x", r"ends \ in \x"),
        (b"a\tb\x1b[0m", "a\tb\x1b[0m"),
    ],
)
def test_fault_44_a_line_that_is_nearly_json_is_written_as_it_was_meant(path: Path, broken: bytes, meant: str) -> None:
    first, second = talk(1)
    write(path, first, dump(second).replace(b"answer 2", broken))
    report = cured(path, "nearly-json")
    assert report.rejected is None
    assert rows(path)[1]["message"]["content"][0]["text"] == meant


def test_fault_44_a_number_that_json_does_not_know_becomes_null(path: Path) -> None:
    first, second = talk(1)
    write(path, first, dump({**second, "costUSD": 1, "note": "NaN"}).replace(b'"costUSD":1', b'"costUSD":NaN'))
    cured(path, "nearly-json")
    assert (rows(path)[1]["costUSD"], rows(path)[1]["note"]) == (None, "NaN")


def test_fault_45_a_record_torn_by_another_on_its_line_is_put_together(path: Path) -> None:
    lines = talk(2)
    torn = dump(lines[1])
    write(path, lines[0], torn[:60] + dump(lines[2]) + torn[60:], lines[3])
    report = cured(path, "interleaved")
    assert report.rejected is None
    assert sorted(lines_of(path)) == sorted(map(dump, lines))


def test_fault_45_a_record_torn_by_another_and_its_line_end_is_put_together(path: Path) -> None:
    lines = talk(2)
    torn = dump(lines[1])
    write(path, lines[0], torn[:60] + dump(lines[2]), torn[60:], lines[3])
    report = cured(path, "interleaved")
    assert report.rejected is None
    assert sorted(lines_of(path)) == sorted(map(dump, lines))


def test_fault_46_progress_with_its_history_is_taken_out(path: Path) -> None:
    lines = talk(2)
    write(path, *lines[:2], *(progress(100 + n, 2, size=150_000) for n in range(8)), *lines[2:])
    report = cured(path, "progress-bloat")
    assert report.counts == {"progress-bloat": 8}
    assert lines_of(path) == [dump(line) for line in lines]


def test_fault_47_many_small_progress_records_are_taken_out(path: Path) -> None:
    lines = talk(2)
    write(path, *lines, *(progress(100 + n, 4) for n in range(1000)))
    assert cured(path, "progress-bloat").counts == {"progress-bloat": 1000}
    assert lines_of(path) == [dump(line) for line in lines]


def test_fault_47_a_few_progress_records_are_no_fault(path: Path) -> None:
    write(path, *talk(2), *(progress(100 + n, 4) for n in range(999)))
    assert diagnose(path).findings == []


def test_fault_48_a_large_result_goes_to_a_side_file(path: Path) -> None:
    large = "line of output\n" * 40_000
    lines = [user(1, None), assistant(2, 1, call("toolu_1")), result(3, 2, "toolu_1", large), assistant(4, 3)]
    write(path, *lines)
    report = cured(path, "oversized")
    (side,) = report.side_files
    assert side.read_text() == large
    assert len(lines_of(path)[2]) < 5_000
    assert [lines_of(path)[n] for n in (0, 1, 3)] == [dump(lines[n]) for n in (0, 1, 3)]
    assert resume(path).messages[2].message["content"][0]["content"] == large  # type: ignore[union-attr]


def test_fault_48_a_result_of_usual_size_stays(path: Path) -> None:
    lines = [user(1, None), assistant(2, 1, call("toolu_1")), result(3, 2, "toolu_1", "x" * 200_000)]
    write(path, *lines)
    assert diagnose(path).findings == []


@pytest.mark.parametrize("escape", [r"\ud99c", r"\uDC8F", r"\ud83d\ud83d"])
def test_fault_20_an_escaped_lone_surrogate_becomes_u_fffd(path: Path, escape: str) -> None:
    first, second = talk(1)
    write(path, first, dump(second).replace(b"answer 2", f"a {escape} b".encode()))
    cured(path, "lone-surrogate")
    replaced = "a " + "\ufffd" * escape.count("\\") + " b"
    assert rows(path)[1]["message"]["content"][0]["text"] == replaced


@pytest.mark.parametrize("escape", [r"\ud83d\ude00", r"\\ud99c", r"\\\\udc8f"])
def test_fault_21_what_only_looks_like_a_lone_surrogate_stays(path: Path, escape: str) -> None:
    first, second = talk(1)
    write(path, first, dump(second).replace(b"answer 2", escape.encode()))
    assert diagnose(path).findings == []


def test_fillers_are_taken_out(path: Path) -> None:
    lines = talk(2)
    filler = b'{"type":"tombstone-filler","targetUuid":"x","pad":"      "}'
    write(path, lines[0], filler, lines[1], b"", b"     ", lines[2], filler[:30], lines[3])
    report = cured(path, "filler")
    assert report.counts == {"filler": 4}
    assert lines_of(path) == [dump(line) for line in lines]


def test_fault_56_unknown_types_and_shapes_are_counted_and_kept(path: Path) -> None:
    odd = [
        {"type": "mode", "mode": "plan", "sessionId": ailing.SESSION},
        {"type": "ai-title", "aiTitle": "t"},
        {"type": "cost-state", "deep": [[{}]]},
        {"silly": "this"},
        {"type": "user", "message": "words", "uuid": uid(90), "timestamp": "2026-01-02T03:04:05Z"},
    ]
    lines = [*talk(1), *odd]
    write(path, *lines)
    report = diagnose(path)
    assert report.findings == []
    assert report.types == {"user": 2, "assistant": 1, "mode": 1, "ai-title": 1, "cost-state": 1, "": 1}
    assert (report.lines, report.records, report.messages) == (7, 7, 2)


def test_fault_56_json_that_cannot_be_held_is_kept_as_it_is(path: Path) -> None:
    lines = talk(1)
    deep = b'{"type":"odd","deep":' + b"[" * 300 + b"]" * 300 + b"}"
    write(path, lines[0], deep, lines[1], b"")
    assert diagnose(path).unheld == 1
    repair(path)  # because of the empty line
    assert lines_of(path) == [dump(lines[0]), deep, dump(lines[1])]


def test_what_isn_t_mended_keeps_its_bytes_whatever_they_are(path: Path) -> None:
    odd = json.dumps({"type": "odd", "a": 1.0, "e": 1e5, "big": 10**30, "é": "\u2028"}, indent=None).encode()
    lines = [dump(line) for line in talk(1)]
    write(path, b"  " + odd + b" ", *lines, b"{")
    cured(path, "bad-line")
    assert lines_of(path) == [b"  " + odd + b" ", *lines]
