"""``resume``: the leaf, the way to the root, what stands beside it (WIRE.md §3)."""

from __future__ import annotations

import gc
import importlib
import os
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import reading_files as rf
from reading_files import ABSENT, assistant, boundary, call, progress, result, summary, user

from turnstream.messages import TranscriptError, raw_of
from turnstream.sinks.transcript.reading import DAMAGE, KINDS, Resumed, resume
from turnstream.sinks.transcript.reading.index import build_index
from turnstream.sinks.transcript.reading.report import ResumeReport


def resumed(tmp_path: Path, *records: dict[str, Any] | bytes, **options: Any) -> Resumed:
    return resume(rf.write(tmp_path / f"{rf.SESSION}.jsonl", *records), **options)


def kinds(found: Resumed) -> list[str]:
    return [finding.kind for finding in found.report.findings]


def test_a_plain_conversation_comes_back_byte_for_byte(tmp_path: Path) -> None:
    records = [user("a", None), assistant("b", "a", call("t")), result("c", "b", "t"), assistant("d", "c")]
    found = resumed(tmp_path, *records)
    assert [raw_of(message) for message in found.messages] == [rf.as_line(one) for one in records]
    assert found.report.findings == []
    assert found.forks == []
    assert (found.leaf, found.session_id, found.cwd) == (rf.uuid("d"), rf.SESSION, "/w")
    assert (found.report.lines, found.report.size) == (4, sum(len(rf.as_line(one)) + 1 for one in records))
    assert found.is_session


def test_titles(tmp_path: Path) -> None:
    summed = {"type": "summary", "summary": "from the summary", "leafUuid": "x"}
    custom = [{"type": "custom-title", "customTitle": title, "sessionId": rf.SESSION} for title in ("one", "two", " ")]
    assert resumed(tmp_path, user("a", None)).title is None
    assert resumed(tmp_path, summed, user("a", None)).title == "from the summary"
    assert resumed(tmp_path, *custom, user("a", None), summed).title == "two"


def test_a_file_without_a_conversation_is_no_session(tmp_path: Path) -> None:
    records = [{"type": "summary", "summary": "s", "leafUuid": "x"}, {"type": "file-history-snapshot"}, b"{"]
    found = resumed(tmp_path, *records)
    assert found.messages == []
    assert not found.is_session
    assert (found.leaf, found.forks) == (None, [])
    assert found.report.holds() == "1 summary, 1 file-history-snapshot; 1 bad line"
    with pytest.raises(TranscriptError):
        resume(found.path, strict=True)
    empty = resumed(tmp_path)
    assert empty.report.holds() == "no record"
    with pytest.raises(TranscriptError, match="holds no conversation: no record"):
        resume(empty.path, strict=True)


def test_what_cannot_be_opened_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(TranscriptError, match=r"can't be read: No such file.*missing\.jsonl"):
        resume(tmp_path / "missing.jsonl")
    with pytest.raises(TranscriptError, match="can't be read"):
        resume(tmp_path)


def test_strict_refuses_damage_and_says_where(tmp_path: Path) -> None:
    records = [user("a", None), b"{", assistant("b", "a")]
    with pytest.raises(TranscriptError, match=r"line 2: .*byte \d+") as caught:
        resumed(tmp_path, *records, strict=True)
    assert caught.value.byte_offset == len(rf.as_line(records[0])) + 1
    assert rf.names(caught.value.kept) == ["a", "b"]
    # What is usual in whole files is none.
    found = resumed(tmp_path, user("a", None), progress("p", "a"), assistant("b", "p", call("t")), strict=True)
    assert kinds(found) == ["progress_bridged", "result_made"]


def test_every_kind_of_finding_is_explained() -> None:
    source = Path(build_index.__code__.co_filename).parent
    text = "".join(path.read_text() for path in source.glob("*.py") if path.name != "report.py")
    assert all(f'"{kind}"' in text for kind in KINDS)
    assert set(KINDS) >= DAMAGE


# -- the leaf ------------------------------------------------------------------------------------------------


def test_the_newest_leaf_in_the_order_of_the_file_wins(tmp_path: Path) -> None:
    records = [user("a", None), assistant("b", "a"), user("old", "b"), assistant("old2", "old"), user("c", "b")]
    found = resumed(tmp_path, *records)
    assert rf.names(found.messages) == ["a", "b", "c"]
    assert [rf.short(fork.leaf) for fork in found.forks] == ["old2"]
    assert rf.names(resume(found.path, leaf=rf.uuid("old2")).messages) == ["a", "b", "old", "old2"]
    assert rf.names(resume(found.path, leaf=rf.uuid("b")).messages) == ["a", "b"]


def test_an_unknown_leaf_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    gone = {"type": "tombstone", "targetUuid": rf.uuid("b")}
    path = rf.write(tmp_path / "t.jsonl", user("a", None), assistant("b", "a"), gone)
    with pytest.raises(TranscriptError, match=r"isn't in the file.*forks"):
        resume(path, leaf=rf.uuid("nowhere"))
    with pytest.raises(TranscriptError, match="was taken back"):
        resume(path, leaf=rf.uuid("b"))


def test_a_parent_may_stand_behind_its_child(tmp_path: Path) -> None:
    found = resumed(tmp_path, user("a", None), user("c", "b"), assistant("b", "a"))
    assert rf.names(found.messages) == ["a", "b", "c"]
    assert found.leaf == rf.uuid("c")
    assert kinds(found) == []


def test_sidechains_are_not_taken(tmp_path: Path) -> None:
    side = {"isSidechain": True}
    records = [
        user("a", None),
        assistant("b", "a", call("t")),
        user("s1", None, **side),
        assistant("s2", "s1", **side),
        result("c", "b", "t"),
        assistant("s3", "s2", "late", **side),
    ]
    found = resumed(tmp_path, *records)
    assert rf.names(found.messages) == ["a", "b", "c"]
    assert found.forks == []
    # A sub-agent's own file is all sidechain.
    found = resumed(tmp_path, records[2], records[3], records[5])
    assert rf.names(found.messages) == ["s1", "s2", "s3"]


def test_a_main_record_that_hangs_on_a_sidechain_is_bridged_through(tmp_path: Path) -> None:
    side = {"isSidechain": True}
    records = [user("a", None), assistant("b", "a"), user("s1", "b", **side), assistant("s2", "s1", **side)]
    found = resumed(tmp_path, *records, user("c", "s2"))
    assert rf.names(found.messages) == ["a", "b", "c"]
    assert kinds(found) == ["sidechain_bridged"]


# -- parents that aren't said --------------------------------------------------------------------------------


@pytest.mark.parametrize("parent", [None, ABSENT, "nowhere"])
def test_a_file_without_links_is_read_in_its_order(tmp_path: Path, parent: Any) -> None:
    found = resumed(tmp_path, user("a", parent), assistant("b", parent), user("c", parent))
    assert rf.names(found.messages) == ["a", "b", "c"]
    assert found.report.of("flat_file")


def test_records_without_a_uuid_are_read_in_their_order(tmp_path: Path) -> None:
    records = [user(None, ABSENT, "1"), assistant(None, ABSENT, "2", answer="m"), user("c", ABSENT, "3")]
    found = resumed(tmp_path, *records, user(None, "c", "4"))
    assert [raw_of(one) for one in found.messages] == [rf.as_line(one) for one in [*records, user(None, "c", "4")]]
    assert found.leaf is None


def test_a_prompt_without_a_parent_begins_anew_but_nothing_else_does(tmp_path: Path) -> None:
    records = [user("a", None), assistant("b", "a"), user("c", None, "from the start"), assistant("d", "c")]
    assert rf.names(resumed(tmp_path, *records).messages) == ["c", "d"]
    hook = rf.record("attachment", "h", None, attachment={"type": "hook_success", "hookEvent": "SessionStart"})
    for lost in (hook, assistant("h", None), result("h", None, "t"), rf.record("system", "h", None, subtype="x")):
        found = resumed(tmp_path, *records[:2], lost, user("c", "h"))
        assert rf.names(found.messages) == ["a", "b", "h", "c"]
        assert kinds(found) == ["lost_root"]


# -- siblings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", ["r1", "r2", "r3"])
def test_whichever_result_is_gone_on_from_all_come_back_in_order(tmp_path: Path, last: str) -> None:
    records = [
        user("a", None),
        assistant("b1", "a", call("t1"), answer="m"),
        assistant("b2", "b1", call("t2"), answer="m"),
        assistant("b3", "b2", call("t3"), answer="m"),
        result("r1", "b1", "t1"),
        result("r2", "b2", "t2"),
        result("r3", "b3", "t3"),
        assistant("c", last, answer="m2"),
    ]
    found = resumed(tmp_path, *records)
    assert rf.names(found.messages) == ["a", "b1", "b2", "b3", "r1", "r2", "r3", "c"]
    assert found.forks == []
    restored = {rf.short(one.uuid) for one in found.report.of("result_restored", "sibling_restored")}
    assert restored == {"r1": {"b2", "b3", "r2", "r3"}, "r2": {"b3", "r1", "r3"}, "r3": {"r1", "r2"}}[last]


def test_results_between_the_blocks_of_an_answer_stay_there(tmp_path: Path) -> None:
    records = [
        user("a", None),
        assistant("b1", "a", call("t1"), answer="m"),
        result("r1", "b1", "t1"),
        assistant("b2", "r1", call("t2"), answer="m"),
        result("r2", "b2", "t2"),
    ]
    assert rf.names(resumed(tmp_path, *records).messages) == ["a", "b1", "r1", "b2", "r2"]
    # The same where what follows hangs on the first result.
    found = resumed(tmp_path, *records, assistant("c", "r1", answer="m2"))
    assert set(rf.names(found.messages)) == {"a", "b1", "r1", "b2", "r2", "c"}
    assert rf.names(found.messages)[-1] == "c"


def test_hooks_of_a_restored_result_come_with_it(tmp_path: Path) -> None:
    def hook(name: str, parent: str, ident: str) -> dict[str, Any]:
        return rf.record("attachment", name, parent, attachment={"type": "hook_success", "toolUseID": ident})

    found = resumed(
        tmp_path,
        user("a", None),
        assistant("b1", "a", call("t1"), answer="m"),
        assistant("b2", "b1", call("t2"), answer="m"),
        hook("pre", "b1", "t1"),
        result("r1", "pre", "t1"),
        hook("post", "r1", "t1"),
        result("r2", "b2", "t2"),
        assistant("c", "r2", answer="m2"),
    )
    assert rf.names(found.messages) == ["a", "b1", "b2", "pre", "r1", "post", "r2", "c"]
    assert Counter(kinds(found)) == {"attachment_restored": 2, "result_restored": 1}


def test_a_result_is_found_by_its_source_or_its_content_where_its_parent_is_lost(tmp_path: Path) -> None:
    for more in ({"sourceToolAssistantUUID": rf.uuid("b1")}, {}):
        found = resumed(
            tmp_path,
            user("a", None),
            assistant("b1", "a", call("t1"), answer="m"),
            assistant("b2", "b1", call("t2"), answer="m"),
            user("elsewhere", "a"),
            result("r1", "nowhere", "t1", **more),
            result("r2", "b2", "t2"),
            assistant("c", "r2", answer="m2"),
        )
        assert rf.names(found.messages) == ["a", "b1", "b2", "r1", "r2", "c"]


def test_a_result_that_hangs_elsewhere_is_found_by_its_source(tmp_path: Path) -> None:
    found = resumed(
        tmp_path,
        user("a", None),
        user("elsewhere", "a"),
        assistant("b1", "a", call("t1"), answer="m"),
        assistant("b2", "b1", call("t2"), answer="m"),
        result("r1", "elsewhere", "t1", sourceToolAssistantUUID=rf.uuid("b1")),
        result("r2", "b2", "t2"),
    )
    assert rf.names(found.messages) == ["a", "b1", "b2", "r1", "r2"]


def test_a_block_whose_parent_is_lost_is_found_by_its_answer(tmp_path: Path) -> None:
    found = resumed(
        tmp_path,
        user("a", None),
        assistant("b1", "a", call("t1"), answer="m"),
        user("elsewhere", "a"),
        assistant("b2", "nowhere", call("t2"), answer="m"),
        result("r2", "b2", "t2"),
        result("r1", "b1", "t1"),
        assistant("c", "r1", answer="m2"),
    )
    assert rf.names(found.messages) == ["a", "b1", "b2", "r2", "r1", "c"]


def test_a_block_that_was_written_twice_is_one(tmp_path: Path) -> None:
    found = resumed(
        tmp_path,
        user("a", None),
        assistant("b", "a", call("t1"), answer="m"),
        assistant("b_again", "a", call("t1"), answer="m"),
        result("r", "b", "t1"),
        assistant("c", "r", answer="m2"),
    )
    assert rf.names(found.messages) == ["a", "b", "r", "c"]


def test_a_result_of_an_abandoned_branch_is_not_mixed_in(tmp_path: Path) -> None:
    found = resumed(
        tmp_path,
        user("a", None),
        assistant("b", "a", call("t1")),
        result("r", "b", "t1"),
        assistant("old", "r", call("t2")),
        result("old2", "old", "t2"),
        user("c", "r"),
        assistant("d", "c"),
    )
    assert rf.names(found.messages) == ["a", "b", "r", "c", "d"]
    assert kinds(found) == []
    assert [rf.short(fork.leaf) for fork in found.forks] == ["old2"]


# -- the file while it is read ---------------------------------------------------------------------------------


def test_a_line_that_changes_while_it_is_read_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # By its path: the package's attribute of this name is the function.
    module = importlib.import_module("turnstream.sinks.transcript.reading.resume")
    records = [user("a", None), assistant("b", "a"), user("c", "b")]
    before = rf.as_line(records[1])
    for after, kind in (
        (b" " * len(before), "bad_line"),
        (rf.as_line(assistant("x", "a")), "changed"),
        (rf.as_line({"type": "tombstone-filler", "targetUuid": rf.uuid("b"), "pad": ""}).ljust(len(before)), "changed"),
    ):
        path = rf.write(tmp_path / "t.jsonl", *records)

        def build_then_change(file: Any, report: ResumeReport, path: Path = path, after: bytes = after) -> Any:
            found = build_index(file, report)
            path.write_bytes(path.read_bytes().replace(before, after))
            return found

        monkeypatch.setattr(module, "build_index", build_then_change)
        found = module.resume(path)
        assert rf.names(found.messages) == ["a", "c"]
        assert kinds(found) == [kind]


@pytest.mark.parametrize("enabled", [True, False])
def test_reading_leaves_the_file_and_the_collector_as_they_were(tmp_path: Path, enabled: bool) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(rf.as_line(user("a", None)) + b"\n{")
    before = (path.read_bytes(), os.stat(path).st_mtime_ns)
    (gc.enable if enabled else gc.disable)()
    try:
        resume(path)
        assert gc.isenabled() is enabled
        with pytest.raises(TranscriptError):
            resume(path, strict=True)
        assert gc.isenabled() is enabled
    finally:
        gc.enable()
    assert (path.read_bytes(), os.stat(path).st_mtime_ns) == before


def test_content_that_is_not_on_the_chain_is_not_held(tmp_path: Path) -> None:
    # The summarized part is a hundred times what is needed; only its places are held.
    big = [user(f"u{n}", f"u{n - 1}" if n else None, "x" * 20_000) for n in range(300)]
    records = [*big, boundary("c", "u299"), summary("s", "c"), assistant("d", "s")]
    path = rf.write(tmp_path / "t.jsonl", *records)
    resume(path)
    tracemalloc.start()
    try:
        found = resume(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rf.names(found.messages) == ["c", "s", "d"]
    assert peak < 2_500_000 < path.stat().st_size / 2


# -- compaction ------------------------------------------------------------------------------------------------


def _compacted(*behind: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        user("a", None),
        assistant("b", "a"),
        user("c", "b"),
        assistant("d", "c"),
        boundary("m", "d", segment=("c", "s", "d")),
        summary("s", "m"),
        *behind,
    ]


def test_a_preserved_segment_stands_behind_the_summary(tmp_path: Path) -> None:
    # Ours go on from the summary, others from the kept tail.
    for parent in ("s", "d"):
        found = resumed(tmp_path, *_compacted(user("e", parent), assistant("f", "e")))
        assert rf.names(found.messages) == ["m", "s", "c", "d", "e", "f"]
        assert kinds(found) == ["segment_relinked"]
        assert found.forks == []
        history = resume(found.path, history=True)
        assert rf.names(history.messages) == ["a", "b", "m", "s", "c", "d", "e", "f"]
    found = resumed(tmp_path, *_compacted())
    assert rf.names(found.messages) == ["m", "s", "c", "d"]
    assert found.leaf == rf.uuid("s")
    assert rf.names(resume(found.path, leaf=rf.uuid("s")).messages) == ["m", "s", "c", "d"]


def test_a_leaf_before_a_compaction_knows_nothing_of_it(tmp_path: Path) -> None:
    path = rf.write(tmp_path / "t.jsonl", *_compacted(user("e", "s")))
    assert rf.names(resume(path, leaf=rf.uuid("d")).messages) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("segment", "why"),
    [
        (("c", "s", "gone"), "tailUuid is not in the file"),
        (("gone", "nowhere", "d"), "headUuid and anchorUuid are not in the file"),
        (("d", "s", "c"), "the way from tailUuid doesn't lead to headUuid"),
        (("a", "c", "d"), "its anchor is one of the kept records"),
        ((None, "s", "d"), "headUuid is not in the file"),
    ],
)
def test_a_segment_that_is_not_there_is_left_and_reported(tmp_path: Path, segment: Any, why: str) -> None:
    records = _compacted(user("e", "s"))
    records[4] = boundary("m", "d", segment=segment)
    found = resumed(tmp_path, *records)
    assert rf.names(found.messages) == ["m", "s", "e"]
    [left] = found.report.findings
    assert (left.kind, left.why, left.line) == ("segment_left", why, 5)


def test_what_is_kept_twice_is_there_once(tmp_path: Path) -> None:
    records = _compacted(
        user("e", "s"), assistant("f", "e"), boundary("m2", "f", segment=("d", "s2", "f")), summary("s2", "m2")
    )
    found = resumed(tmp_path, *records, user("g", "s2"))
    assert rf.names(found.messages) == ["m2", "s2", "d", "e", "f", "g"]
    history = resume(found.path, history=True)
    assert rf.names(history.messages) == ["a", "b", "c", "m", "s", "m2", "s2", "d", "e", "f", "g"]


def test_history_goes_on_before_boundaries_to_the_first_message(tmp_path: Path) -> None:
    records = [
        user("a", None),
        assistant("b", "a"),
        boundary("m", "b"),
        summary("s", "m"),
        user("c", "s"),
        boundary("m2", "c"),
        summary("s2", "m2"),
    ]
    found = resumed(tmp_path, *records, history=True)
    assert rf.names(found.messages) == ["a", "b", "m", "s", "c", "m2", "s2"]
    assert found.report.findings == []
