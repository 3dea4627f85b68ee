"""``read_records`` and ``load_messages``: every byte is accounted for, whatever stands in the file (WIRE.md §3)."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import reading_files as rf
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstream.messages import OpaqueRecord, Tombstone, decode_line, encode, to_wire
from turnstream.sinks.transcript.reading import load_messages, read_records, records
from turnstream.sinks.transcript.reading.content import message_of

A = rf.as_line(rf.user("a", None, "a « text » with\u2028 separators"))
B = rf.as_line(rf.assistant("b", "a", "hi", rf.call("t1")))


def read(data: bytes, **options: Any) -> list[records.Record]:
    found = list(read_records(io.BytesIO(data), **options))
    assert b"".join(one.raw + (b"\n" if one.ended else b"") for one in found) == data
    for one in found:
        assert data[one.offset : one.offset + one.size] == one.raw
        assert data.count(b"\n", 0, one.offset) == one.line - 1
    return found


def test_records_have_their_line_offset_and_value() -> None:
    first, second = read(A + b"\n" + B + b"\n")
    assert (first.line, first.offset, first.raw, first.value) == (1, 0, A, json.loads(A))
    assert (second.line, second.offset, second.uuid, second.type) == (2, len(A) + 1, rf.uuid("b"), "assistant")
    assert not first.shared
    assert first.problem is None


def test_a_last_line_without_its_end_is_a_record_if_it_is_whole() -> None:
    whole = read(A)[0]
    assert whole.value == json.loads(A)
    assert not whole.ended
    cut = read(A[:-1])[0]
    assert cut.value is None
    assert cut.problem is not None


def test_two_records_on_one_line_are_both_found() -> None:
    first, second = read(A + B + b"\n")
    assert [one.uuid for one in (first, second)] == [rf.uuid("a"), rf.uuid("b")]
    assert (second.line, second.offset) == (1, len(A))
    assert first.shared
    assert second.shared
    assert not first.ended
    assert second.ended


@pytest.mark.parametrize("cut", range(1, len(A), 7))
def test_a_record_behind_a_torn_one_is_found(cut: int) -> None:
    torn, whole = read(A[:cut] + B + b"\n")
    assert torn.value is None
    assert torn.problem
    assert torn.raw == A[:cut]
    assert whole.value == json.loads(B)


@pytest.mark.parametrize("cut", range(1, len(B), 11))
def test_a_torn_record_between_two_is_skipped(cut: int) -> None:
    found = read(A + B[:cut] + A + b"\n")
    assert [one.value for one in found if one.value] == [json.loads(A)] * 2
    assert [one.raw for one in found if one.problem] == [B[:cut]]


def test_a_block_inside_a_torn_record_is_no_record() -> None:
    inner = b'{"parentUuid":null,"message":{"content":[{"type":"user","text":"x"},{"type":"text","text":"abc"}'
    found = read(inner + B + b"\n")
    assert [one.value for one in found if one.value] == [json.loads(B)]


def test_nul_bytes_of_a_crash_stand_before_a_record() -> None:
    found = read(b"\0" * 64 + A + b"\n" + B + b"\n")
    assert [one.uuid for one in found if one.value] == [rf.uuid("a"), rf.uuid("b")]


def test_what_fills_a_place_says_so() -> None:
    filler = rf.as_line({"type": "tombstone-filler", "targetUuid": rf.uuid("x"), "pad": "   "})
    found = read(b"\xef\xbb\xbf" + A + b"\n\n     \n" + filler + b"\n" + B + b"\r\n")
    assert [one.is_filler for one in found] == [True, False, True, True, True, False]
    assert [one.problem for one in found] == [None] * 6
    assert found[-1].value == json.loads(B)


@pytest.mark.parametrize(
    "line", [b"[1]", b"7", b'"text"', b"null", b"\xff\xfe", b"{", b"}", b'{"a":1e999}', b"{'a':1}"]
)
def test_a_line_that_is_no_object_is_kept_with_a_problem(line: bytes) -> None:
    seen: list[records.Record] = []
    found = read(A + b"\n" + line + b"\n" + B + b"\n", report=seen.append)
    assert [one.raw for one in found] == [A, line, B]
    assert found[1].problem
    assert seen == [found[1]]


def test_values_lose_no_digit_and_surrogates_load() -> None:
    big = 2**200 + 1
    line = b'{"type":"user","n":%d,"s":"\\ud99c","pair":"\\ud83d\\ude00"}' % big
    value = read(line + b"\n")[0].value
    assert value is not None
    assert value["n"] == big
    assert value["s"] == "\ufffd"
    assert value["pair"] == "\U0001f600"


def test_too_deep_is_kept_as_it_is() -> None:
    line = b'{"type":"user","x":' + b"[" * 300 + b"]" * 300 + b"}"
    deep = read(line + b"\n")[0]
    assert deep.value is None
    assert deep.problem
    assert isinstance(message_of(line), OpaqueRecord)


def test_a_line_over_the_cap_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_LINE", 1000)
    data = A + b"\n" + b"x" * 5000 + b"\n" + B + b"\n"
    found = list(read_records(io.BytesIO(data)))
    assert [one.uuid for one in found if one.value] == [rf.uuid("a"), rf.uuid("b")]
    assert (found[1].size, found[1].raw, found[1].ended) == (5000, b"", True)
    assert found[2].offset == len(A) + 1 + 5001


def test_reading_can_begin_at_a_line(tmp_path: Path) -> None:
    path = rf.write(tmp_path / "t.jsonl", A, B)
    found = list(read_records(path, start=len(A) + 1))
    assert [(one.offset, one.uuid) for one in found] == [(len(A) + 1, rf.uuid("b"))]


def test_many_torn_brackets_cost_no_more_than_a_few_passes() -> None:
    # Each `{"type":` could begin a record; none ends.
    line = b'{"type":[' * 20_000
    found = read(line + b"\n")
    assert [one.problem is not None for one in found] == [True]


lines = st.lists(
    st.one_of(
        st.sampled_from([A, B, rf.as_line({"type": "summary", "summary": "s", "leafUuid": "l"})]),
        st.tuples(st.sampled_from([A, B]), st.integers(0, 200)).map(lambda cut: cut[0][: cut[1]]),
        st.binary(max_size=30).map(lambda raw: raw.replace(b"\n", b"")),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(lines, st.lists(st.sampled_from([b"\n", b"", b"\r\n", b"\n\n"]), max_size=12))
def test_whatever_stands_in_the_file_its_bytes_are_the_records_bytes(parts: list[bytes], ends: list[bytes]) -> None:
    data = b"".join(part + end for part, end in zip(parts, [*ends, *[b"\n"] * len(parts)], strict=False))
    read(data)


@pytest.mark.parametrize("path", rf.recorded())
def test_recordings_come_back_byte_for_byte(path: Path) -> None:
    read(path.read_bytes())
    written = [encode(message) for message in load_messages(path)]
    assert b"\n".join(written) == path.read_bytes().removesuffix(b"\n")


@pytest.mark.parametrize("path", rf.recorded())
def test_the_short_way_makes_the_same_messages(path: Path) -> None:
    for line in path.read_bytes().split(b"\n"):
        quick, slow = message_of(line), decode_line(line)
        assert quick == slow
        assert to_wire(quick) == to_wire(slow)


def test_messages_of_a_file_name_what_tombstones_take_back(tmp_path: Path) -> None:
    gone = {"type": "tombstone", "targetUuid": rf.uuid("b"), "sessionId": rf.SESSION}
    filler = {"type": "tombstone-filler", "targetUuid": rf.uuid("c"), "pad": " "}
    path = rf.write(tmp_path / "t.jsonl", A, B, gone, filler, b"no json", {"type": "mode", "mode": "x"})
    seen: list[records.Record] = []
    found = list(load_messages(path, report=seen.append))
    assert [type(message).__name__ for message in found] == [
        "UserMessage",
        "AssistantMessage",
        "Tombstone",
        "OpaqueRecord",
        "OpaqueRecord",
    ]
    assert isinstance(found[2], Tombstone)
    assert found[2].message == {"uuid": rf.uuid("b")}
    assert [one.line for one in seen] == [5]
    assert encode(found[2]) == rf.as_line(gone)
