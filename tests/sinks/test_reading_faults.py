"""Faults of group D that meet a reader, each test named after its row; and what of WIRE.md §3 says the same."""

from __future__ import annotations

import base64
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import reading_files as rf
from reading_files import assistant, boundary, call, progress, result, summary, user

from turnstream.messages import AssistantMessage, UserMessage, raw_of
from turnstream.messages.texts import MISSING_RESULT
from turnstream.sinks.transcript.reading import Resumed, forks, resume


def resumed(tmp_path: Path, *records: dict[str, Any] | bytes, end: bytes = b"\n", **options: Any) -> Resumed:
    return resume(rf.write(tmp_path / f"{rf.SESSION}.jsonl", *records, end=end), **options)


def kinds(found: Resumed) -> list[str]:
    return [finding.kind for finding in found.report.findings]


def test_fault_20_and_21_a_lone_surrogate_loads_and_keeps_its_bytes(tmp_path: Path) -> None:
    bad = rf.as_line(user("b", "a", "x\ud99cy")) + b""
    raw = rf.as_line(user("c", "b", "z")).replace(b'"z"', b'"z\\ud99c"')
    found = resumed(tmp_path, user("a", None), bad, raw, assistant("d", "c"))
    assert rf.names(found.messages) == ["a", "b", "c", "d"]
    assert found.messages[2].message["content"] == "z\ufffd"  # type: ignore[union-attr]
    assert [raw_of(message) for message in found.messages[1:3]] == [bad, raw]


def test_fault_37_and_38_a_lost_line_costs_nothing_before_it(tmp_path: Path) -> None:
    records = [user("a", None), assistant("b", "a"), user("c", "b"), assistant("d", "c"), user("e", "d")]
    for lost in range(1, 4):
        found = resumed(tmp_path, *records[:lost], *records[lost + 1 :])
        assert rf.names(found.messages) == [name for at, name in enumerate("abcde") if at != lost]
        [finding] = found.report.of("dangling_parent")
        assert (rf.short(finding.uuid), rf.short(finding.target)) == ("abcde"[lost + 1], "abcde"[lost - 1])
        assert finding.line == lost + 1
        assert finding.offset == sum(len(rf.as_line(one)) + 1 for one in records[:lost])


def test_fault_38_a_parent_that_was_never_written_is_bridged_to_the_nearest_earlier_record(tmp_path: Path) -> None:
    found = resumed(tmp_path, user("a", None), assistant("b", "a"), user("c", "nowhere"), assistant("d", "c"))
    assert rf.names(found.messages) == ["a", "b", "c", "d"]
    assert kinds(found) == ["dangling_parent"]


def test_fault_39_progress_in_the_chain_is_bridged_and_parallel_results_come_back(tmp_path: Path) -> None:
    found = resumed(
        tmp_path,
        user("a", None),
        assistant("b", "a", call("t1"), answer="m"),
        assistant("c", "b", call("t2"), answer="m"),
        assistant("d", "c", call("t3"), answer="m"),
        progress("b1", "b"),
        progress("b2", "b1"),
        progress("c1", "c"),
        progress("d1", "d"),
        result("r3", "d1", "t3"),
        result("r1", "b2", "t1"),
        result("r2", "c1", "t2"),
        assistant("e", "r1", answer="m2"),
    )
    assert rf.names(found.messages) == ["a", "b", "c", "d", "r3", "r1", "r2", "e"]
    assert Counter(kinds(found)) == {"progress_bridged": 1, "sibling_restored": 2, "result_restored": 2}
    assert found.forks == []


def test_fault_39_legacy_progress_with_a_null_root_in_the_middle_is_bridged(tmp_path: Path) -> None:
    # A session that was gone on with: its start hook had no parent, and the prompt hung on the hook.
    found = resumed(tmp_path, user("a", None), assistant("b", "a"), progress("p", None), user("c", "p"))
    assert rf.names(found.messages) == ["a", "b", "c"]
    assert kinds(found) == ["progress_bridged"]


def test_fault_40_a_boundary_is_a_new_root_and_the_newest_leaf_goes_on_from_the_newest(tmp_path: Path) -> None:
    found = resumed(
        tmp_path,
        user("a", None),
        assistant("b", "a"),
        boundary("c1", "never written"),
        summary("s1", "c1"),
        user("d", "s1"),
        assistant("e", "d"),
        boundary("c2", "e"),
        summary("s2", "c2"),
        assistant("f", "s2"),
    )
    assert rf.names(found.messages) == ["c2", "s2", "f"]
    assert found.leaf == rf.uuid("f")
    assert kinds(found) == []


def test_fault_40_a_boundary_whose_line_names_a_parent_is_a_root_too(tmp_path: Path) -> None:
    boundary_line = {**boundary("c", None), "parentUuid": rf.uuid("b")}
    found = resumed(tmp_path, user("a", None), assistant("b", "a"), boundary_line, summary("s", "c"), user("d", "s"))
    assert rf.names(found.messages) == ["c", "s", "d"]
    whole = resumed(
        tmp_path, user("a", None), assistant("b", "a"), boundary_line, summary("s", "c"), user("d", "s"), history=True
    )
    assert rf.names(whole.messages) == ["a", "b", "c", "s", "d"]


def test_fault_40_a_straggler_of_before_the_compaction_is_no_leaf(tmp_path: Path) -> None:
    records = [
        user("a", None),
        assistant("b", "a", call("t1")),
        boundary("c", "b"),
        summary("s", "c"),
        result("late", "b", "t1"),
        {"type": "summary", "summary": "x", "leafUuid": rf.uuid("b")},
        {"type": "last-prompt", "leafUuid": rf.uuid("late")},
    ]
    found = resumed(tmp_path, *records)
    assert rf.names(found.messages) == ["c", "s"]
    assert kinds(found) == ["boundary_first"]
    # A prompt says that the user went back on purpose.
    found = resumed(tmp_path, *records, user("d", "late"), assistant("e", "d"))
    assert rf.names(found.messages) == ["a", "b", "late", "d", "e"]


def test_fault_41_other_records_share_the_ids(tmp_path: Path) -> None:
    snapshot = {"type": "file-history-snapshot", "messageId": rf.uuid("b"), "uuid": rf.uuid("b"), "parentUuid": None}
    found = resumed(tmp_path, user("a", None), snapshot, assistant("b", "a"), snapshot, user("c", "b"))
    assert rf.names(found.messages) == ["a", "b", "c"]
    assert kinds(found) == []
    assert found.report.types["file-history-snapshot"] == 2


def test_fault_42_a_record_that_occurs_again_is_there_once(tmp_path: Path) -> None:
    records = [user("a", None), assistant("b", "a"), user("c", "b")]
    found = resumed(tmp_path, *records, *records, assistant("d", "c"))
    assert rf.names(found.messages) == ["a", "b", "c", "d"]
    assert kinds(found) == ["duplicate"] * 3


@pytest.mark.parametrize("richer_first", [True, False])
def test_fault_42_the_richer_copy_counts(tmp_path: Path, richer_first: bool) -> None:
    rich = assistant("b", "a", "whole")
    poor = assistant("b", "a", "whole")
    poor["message"]["stop_reason"] = None
    del poor["message"]["usage"]
    pair = [rich, poor] if richer_first else [poor, rich]
    found = resumed(tmp_path, user("a", None), *pair, user("c", "b"))
    assert rf.names(found.messages) == ["a", "b", "c"]
    assert raw_of(found.messages[1]) == rf.as_line(rich)


def test_fault_42_of_two_states_the_last_counts_in_the_place_of_the_first(tmp_path: Path) -> None:
    early, late = assistant("b", "a"), assistant("b", "a")
    early["message"]["usage"] = {"output_tokens": 9}
    late["message"]["usage"] = {"output_tokens": 159}
    found = resumed(tmp_path, user("a", None), early, user("c", "b"), late)
    assert rf.names(found.messages) == ["a", "b", "c"]
    assert found.messages[1].message["usage"] == {"output_tokens": 159}  # type: ignore[union-attr]
    assert found.leaf == rf.uuid("c")


def test_fault_44_truncated_at_every_byte_of_the_last_line(tmp_path: Path) -> None:
    records = [user("a", None), assistant("b", "a", "é\u2028"), user("c", "b", "last")]
    before, last = rf.as_line(records[0]) + b"\n" + rf.as_line(records[1]) + b"\n", rf.as_line(records[2])
    path = tmp_path / "t.jsonl"
    for cut in range(len(last) + 2):
        path.write_bytes((before + last + b"\n")[: len(before) + cut])
        found = resume(path)
        whole = cut >= len(last)
        assert rf.names(found.messages) == (["a", "b", "c"] if whole else ["a", "b"])
        expected = [] if whole or not cut else [("bad_tail", 3, len(before))]
        assert [(one.kind, one.line, one.offset) for one in found.report.findings] == expected


def test_fault_44_one_bad_line_costs_one_record(tmp_path: Path) -> None:
    records = [user("a", None), b'{"parentUuid": oops', assistant("b", "a"), b"\x00\x00\x00", b"[]", user("c", "b")]
    found = resumed(tmp_path, *records)
    assert rf.names(found.messages) == ["a", "b", "c"]
    assert [(one.kind, one.line) for one in found.report.findings] == [("bad_line", n) for n in (2, 4, 5)]
    assert found.report.findings[0].offset == len(rf.as_line(records[0])) + 1


def test_fault_45_interleaved_lines_are_read_again_from_where_they_begin(tmp_path: Path) -> None:
    a, b, c, d = (
        rf.as_line(one) for one in (user("a", None), assistant("b", "a"), user("c", "b"), assistant("d", "c"))
    )
    found = resumed(tmp_path, a + b, c[:60] + d, c)
    assert rf.names(found.messages) == ["a", "b", "c", "d"]
    assert Counter(kinds(found)) == {"resynced": 3, "bad_line": 1}
    [torn] = found.report.of("bad_line")
    assert (torn.line, torn.offset) == (2, len(a + b) + 1)


def test_fault_45_a_long_chain_needs_no_stack(tmp_path: Path) -> None:
    count = sys.getrecursionlimit() * 3
    found = resumed(tmp_path, *(user(str(n), str(n - 1) if n else None) for n in range(count)))
    assert len(found.messages) == count


def test_fault_45_a_circle_of_parents_ends(tmp_path: Path) -> None:
    found = resumed(tmp_path, user("a", None), assistant("b", "c"), user("c", "b"), user("d", "d"))
    assert rf.names(found.messages) == ["a", "b", "c", "d"]
    assert kinds(found) == ["loop", "loop"]


def test_fault_46_and_47_progress_is_passed_over_without_being_decoded(tmp_path: Path) -> None:
    noise = [progress(f"p{n}", "a") for n in range(2000)]
    found = resumed(tmp_path, user("a", None), *noise, assistant("b", "a"))
    assert rf.names(found.messages) == ["a", "b"]
    assert found.report.types["progress"] == 2000


def test_fault_48_a_side_file_is_loaded_and_a_missing_one_tolerated(tmp_path: Path) -> None:
    folder = tmp_path / rf.SESSION / "tool-results"
    folder.mkdir(parents=True)
    (folder / "t1.txt").write_text("x" * 5000)
    references = [
        {"path": f"{rf.SESSION}/tool-results/{ident}.txt", "field": "content", "block": 0, "toolUseId": ident}
        for ident in ("t1", "t2")
    ]
    records = [
        user("a", None),
        assistant("b", "a", call("t1"), answer="m"),
        assistant("c", "b", call("t2"), answer="m"),
        result("r1", "b", "t1", text="preview", sideFiles=[references[0]]),
        result("r2", "c", "t2", text="preview", sideFiles=[references[1]]),
    ]
    found = resumed(tmp_path, *records)
    contents = {
        one.uuid: one.message["content"][0]["content"]
        for one in found.messages
        if isinstance(one, UserMessage) and one.uuid != rf.uuid("a")
    }
    assert contents == {rf.uuid("r1"): "x" * 5000, rf.uuid("r2"): "preview"}
    assert Counter(kinds(found)) == {"result_restored": 1, "side_file_loaded": 1, "side_file_missing": 1}
    found = resumed(tmp_path, *records, side_files=False)
    assert [raw_of(one) for one in found.messages] == [rf.as_line(one) for one in records]


def _calls_of(path: Path) -> int:
    count = 0

    def note(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        resume(path)
    finally:
        sys.setprofile(None)
    return count


def _turns(count: int) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    last: str | None = None
    for n in range(count):
        out += [
            user(f"u{n}", last),
            assistant(f"a{n}", f"u{n}", call(f"x{n}"), answer=f"m{n}"),
            assistant(f"b{n}", f"a{n}", call(f"y{n}"), answer=f"m{n}"),
            progress(f"p{n}", f"b{n}"),
            result(f"r{n}", f"a{n}", f"x{n}"),
            result(f"s{n}", f"p{n}", f"y{n}"),
        ]
        last = f"s{n}" if n % 3 else f"r{n}"
    return out


SHAPES = {
    "turns": _turns,
    "every parent is lost": lambda n: [user(str(k), f"gone{k}") if k else user("0", None) for k in range(n)],
    "one long chain of progress with everybody at its end": lambda n: [
        user("a", None),
        *(progress(f"p{k}", f"p{k - 1}" if k else "a") for k in range(n)),
        *(user(f"u{k}", f"p{n - 1}") for k in range(n)),
    ],
    "the file backwards": lambda n: [user(str(k), str(k - 1) if k else None) for k in reversed(range(n))],
    "pairs in circles": lambda n: [user(str(k), str(k ^ 1)) for k in range(n)],
    "everything forks": lambda n: [user("a", None), *(user(str(k), "a") for k in range(n))],
    "all answers have one id": lambda n: [
        one
        for k in range(n)
        for one in (user(f"u{k}", f"a{k - 1}" if k else None), assistant(f"a{k}", f"u{k}", answer="msg"))
    ],
    "one id, and every other parent is lost": lambda n: [
        one
        for k in range(n)
        for one in (assistant(f"a{k}", f"a{k - 1}" if k else None, answer="m"), assistant(f"b{k}", "gone", answer="m"))
    ],
    "hooks upon hooks behind one answer": lambda n: [
        assistant("a", None, call("t")),
        *(rf.record("attachment", f"h{k}", f"h{k - 1}" if k else "a", attachment={"type": "x"}) for k in range(n)),
        *(rf.record("attachment", f"i{k}", f"h{k}", attachment={"type": "x"}) for k in reversed(range(n))),
        user("z", f"h{n - 1}"),
    ],
    "one answer of many blocks": lambda n: [
        user("u", None),
        *(assistant(str(k), "u", call(f"t{k}"), answer="m") for k in range(n)),
        *(result(f"r{k}", str(k), f"t{k}") for k in range(n)),
    ],
    "compactions": lambda n: [
        one
        for k in range(n // 4)
        for one in (
            boundary(f"c{k}", f"u{k - 1}" if k else None, segment=(f"u{k - 1}", f"s{k}", f"u{k - 1}")),
            summary(f"s{k}", f"c{k}"),
            user(f"u{k}", f"s{k}"),
        )
    ],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_fault_49_work_grows_as_the_file_does(tmp_path: Path, shape: str) -> None:
    calls = []
    for count in (300, 600, 1200):
        path = rf.write(tmp_path / f"{count}.jsonl", *SHAPES[shape](count))
        resume(path)
        calls.append(_calls_of(path))
    assert calls[2] / calls[1] < 2.3
    assert calls[1] / calls[0] < 2.3


def test_fault_50_what_a_compaction_wrote_before_the_process_ended_is_the_context(tmp_path: Path) -> None:
    records = [user("a", None), assistant("b", "a"), boundary("c", "b"), summary("s", "c")]
    assert rf.names(resumed(tmp_path, *records).messages) == ["c", "s"]
    assert rf.names(resumed(tmp_path, *records[:3]).messages) == ["c"]


def test_fault_51_a_boundary_after_nothing_that_is_known_is_fine(tmp_path: Path) -> None:
    records = [user("a", None), assistant("b", "a"), boundary("c", "unknown"), summary("s", "c"), assistant("d", "s")]
    found = resumed(tmp_path, *records)
    assert rf.names(found.messages) == ["c", "s", "d"]
    assert kinds(found) == []
    assert rf.names(resumed(tmp_path, *records, history=True).messages) == ["a", "b", "c", "s", "d"]


@pytest.mark.parametrize("metadata", [None, {}, [], "x", {"preservedSegment": None}, {"preservedSegment": []}, {"preservedSegment": {}}, {"preservedSegment": {"anchorUuid": "x"}}])  # fmt: skip
def test_fault_52_each_field_of_the_metadata_may_be_missing(tmp_path: Path, metadata: Any) -> None:
    mark = boundary("c", "a")
    mark["compactMetadata"] = metadata
    found = resumed(tmp_path, user("a", None), mark, summary("s", "c"))
    assert rf.names(found.messages) == ["c", "s"]
    assert kinds(found) == []
    del mark["compactMetadata"]
    assert rf.names(resumed(tmp_path, user("a", None), mark, summary("s", "c")).messages) == ["c", "s"]


def test_fault_53_after_a_compaction_an_attachment_is_there_once(tmp_path: Path) -> None:
    def memory(name: str, parent: str, path: str = "CLAUDE.md") -> dict[str, Any]:
        return rf.record("attachment", name, parent, attachment={"type": "memory", "path": path})

    found = resumed(
        tmp_path,
        memory("m0", "nowhere"),
        user("a", "m0"),
        memory("m1", "a"),
        assistant("b", "m1"),
        boundary("c", "b", segment=("a", "s", "b")),
        summary("s", "c"),
        memory("m2", "s"),
        memory("m3", "m2", "other.md"),
        user("d", "m3"),
    )
    assert rf.names(found.messages) == ["c", "s", "a", "b", "m2", "m3", "d"]
    [repeated] = found.report.of("repeated_attachment")
    assert repeated.uuid == rf.uuid("m1")


def test_fault_54_a_partial_answer_comes_back_flagged(tmp_path: Path) -> None:
    partial = assistant("b", "a", "two thousand wor", isAbortedMidStream=True)
    found = resumed(tmp_path, user("a", None), partial)
    assert isinstance(found.messages[1], AssistantMessage)
    assert found.messages[1].is_aborted_mid_stream
    assert raw_of(found.messages[1]) == rf.as_line(partial)


def test_fault_56_unknown_types_and_shapes_are_kept_and_counted(tmp_path: Path) -> None:
    others = [
        {"type": "mode", "mode": "plan", "sessionId": rf.SESSION},
        {"type": "atis-latch", "uuid": rf.uuid("x1"), "parentUuid": rf.uuid("a"), "x": [1, {"y": None}]},
        {"type": "cost-state", "uuid": 7, "parentUuid": ["odd"], "message": "not an object"},
        {"type": "file-history-delta", "isSidechain": "maybe"},
        {"type": None, "sessionId": {}},
    ]
    odd = result("c", "b", "t1")
    odd["toolUseResult"] = [{"deep": {"er": [1, 2, {}]}}, None, 3.5]
    # A new type may be part of the chain of its writer: what hangs on it isn't lost.
    found = resumed(tmp_path, user("a", None), *others, assistant("b", "x1", call("t1")), odd)
    assert rf.names(found.messages) == ["a", "b", "c"]
    assert kinds(found) == ["other_bridged"]
    assert found.report.types == {"user": 2, "assistant": 1, "mode": 1, "atis-latch": 1, "cost-state": 1, "file-history-delta": 1, "(none)": 1}  # fmt: skip
    assert raw_of(found.messages[2]) == rf.as_line(odd)


def test_fault_56_a_known_type_of_an_odd_shape_costs_only_itself(tmp_path: Path) -> None:
    odd = rf.record("user", "b", "a", message="not an object")
    found = resumed(tmp_path, user("a", None), odd, rf.record("attachment", "x", "b"), assistant("c", "x"))
    assert rf.names(found.messages) == ["a", "c"]
    assert kinds(found) == ["odd_record", "odd_record", "other_bridged"]


@pytest.mark.parametrize("signature", [None, "", "EqQBCkgIARABGAIiQL8v3kJ1", "S" * 24])
def test_fault_57_thinking_without_its_whole_signature_is_dropped(tmp_path: Path, signature: str | None) -> None:
    thinking: dict[str, Any] = {"type": "thinking", "thinking": "hm"}
    if signature is not None:
        thinking["signature"] = signature
    whole = {"type": "thinking", "thinking": "", "signature": rf.SIGNATURE}
    found = resumed(
        tmp_path,
        user("a", None),
        assistant("b", "a", thinking, answer="m"),
        assistant("c", "b", whole, thinking, "text", answer="m"),
    )
    assert rf.names(found.messages) == ["a", "c"]
    assert found.messages[1].message["content"] == [whole, {"type": "text", "text": "text"}]  # type: ignore[union-attr]
    assert Counter(kinds(found)) == {"thinking_dropped": 2, "message_dropped": 1}
    assert found.leaf == rf.uuid("c")


def test_fault_57_a_signature_that_is_shorter_than_it_says_is_cut_off(tmp_path: Path) -> None:
    whole = base64.b64encode(b"\x12\xc8\x01" + b"x" * 200).decode()
    for signature, kept in ((whole, True), (whole[:-8], False), (whole[:80], False)):
        thinking = {"type": "thinking", "thinking": "hm", "signature": signature}
        found = resumed(tmp_path, user("a", None), assistant("b", "a", thinking, "text"))
        assert len(found.messages[1].message["content"]) == 1 + kept  # type: ignore[union-attr]


def test_fault_58_lines_with_one_message_id_are_one_answer_and_all_there(tmp_path: Path) -> None:
    lines = [assistant(name, before, f"block {name}", answer="m") for before, name in zip("abcd", "bcde", strict=True)]
    found = resumed(tmp_path, user("a", None), *lines)
    assert rf.names(found.messages) == list("abcde")
    # Blocks side by side, the newest of them the leaf.
    lines = [assistant(name, "a", f"block {name}", answer="m") for name in "bcde"]
    found = resumed(tmp_path, user("a", None), *lines)
    assert rf.names(found.messages) == list("abcde")
    assert found.forks == []


def test_fault_58_an_id_that_all_answers_share_joins_nothing(tmp_path: Path) -> None:
    found = resumed(
        tmp_path,
        user("a", None),
        assistant("b", "a", "one", answer="msg"),
        user("left", "b"),
        assistant("left2", "left", "abandoned", answer="msg"),
        user("c", "b"),
        assistant("d", "c", "two", call("t"), answer="msg"),
    )
    assert rf.names(found.messages)[:4] == ["a", "b", "c", "d"]
    assert len(found.messages) == 5
    assert kinds(found) == ["result_made"]
    assert [rf.short(fork.leaf) for fork in found.forks] == ["left2"]


def test_fault_59_lines_of_another_session_are_reported(tmp_path: Path) -> None:
    other = "0b6b3f2e-1d58-4c3e-9f7e-5a3c1f0d9e77"
    foreign = user("c", "b")
    foreign["sessionId"] = other
    found = resumed(tmp_path, user("a", None), assistant("b", "a"), foreign, assistant("d", "c"))
    assert kinds(found) == ["several_sessions"]
    assert found.report.session_ids == [rf.SESSION, other]
    assert found.session_id == rf.SESSION


def test_fault_60_open_calls_are_answered_behind_the_results_that_are_there(tmp_path: Path) -> None:
    records = [
        user("a", None),
        assistant("b", "a", call("t1"), answer="m"),
        assistant("c", "b", call("t2"), call("t3"), answer="m"),
        result("r", "c", "t2"),
        user("d", "r", "go on"),
    ]
    found = resumed(tmp_path, *records)
    assert [rf.short(m.uuid) for m in found.messages if raw_of(m) is not None] == ["a", "b", "c", "r", "d"]
    made = found.messages[4:6]
    blocks = [one.message["content"] for one in made]  # type: ignore[union-attr]
    assert blocks == [
        [{"type": "tool_result", "tool_use_id": ident, "content": MISSING_RESULT, "is_error": True}]
        for ident in ("t1", "t3")
    ]
    assert [one.source_tool_assistant_uuid for one in made] == [rf.uuid("b"), rf.uuid("c")]  # type: ignore[union-attr]
    assert [one.timestamp for one in made] == [rf.TIME] * 2  # type: ignore[union-attr]
    assert [one.uuid for one in resumed(tmp_path, *records).messages] == [one.uuid for one in found.messages]  # type: ignore[union-attr]
    assert rf.names(resumed(tmp_path, *records, mend=False).messages) == ["a", "b", "c", "r", "d"]


def test_tombstones_that_were_appended_are_honoured(tmp_path: Path) -> None:
    gone = {"type": "tombstone", "targetUuid": rf.uuid("b"), "sessionId": rf.SESSION}
    nested = {"type": "tombstone", "message": {"type": "assistant", "uuid": rf.uuid("c")}}
    found = resumed(
        tmp_path,
        user("a", None),
        assistant("b", "a", "first try", answer="m1"),
        assistant("c", "b", "still", answer="m1"),
        gone,
        nested,
        assistant("d", "c", "second try", answer="m2"),
    )
    assert rf.names(found.messages) == ["a", "d"]
    assert kinds(found) == ["tombstone", "tombstone", "tombstone_bridged"]
    assert forks(tmp_path / f"{rf.SESSION}.jsonl")[0].messages == 2


def test_tombstones_that_overwrote_their_line_are_honoured(tmp_path: Path) -> None:
    line = rf.as_line(assistant("b", "a", "taken back"))
    filler = rf.as_line({"type": "tombstone-filler", "targetUuid": rf.uuid("b"), "pad": ""})
    filler = filler[:-2] + b" " * (len(line) - len(filler)) + filler[-2:]
    found = resumed(tmp_path, user("a", None), filler, b" " * 40, assistant("d", "b", "other"), user("e", "d"))
    assert rf.names(found.messages) == ["a", "d", "e"]
    assert kinds(found) == ["tombstone_bridged"]
    assert found.report.fillers == 2


def test_what_hung_on_a_filler_goes_where_the_filler_stands(tmp_path: Path) -> None:
    filler = {"type": "tombstone-filler", "targetUuid": rf.uuid("b"), "pad": ""}
    # The way back from `c` leads to `a`, not to what another branch wrote in between.
    found = resumed(tmp_path, user("a", None), filler, user("x", "a"), assistant("c", "b"))
    assert rf.names(found.messages) == ["a", "c"]


def test_fault_38_a_file_without_links_goes_on_with_them(tmp_path: Path) -> None:
    """Another program wrote the beginning without parents; ours appended a linked message."""

    def without_parent(record: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in record.items() if key != "parentUuid"}

    start = [user("a", None), assistant("b", None), user("c", None), assistant("d", None)]
    for beginning in (start, [without_parent(record) for record in start]):
        found = resumed(tmp_path, *beginning, user("e", "d"), assistant("f", "e"))
        assert rf.names(found.messages) == ["a", "b", "c", "d", "e", "f"]
        assert kinds(found) == ["flat_file"]
