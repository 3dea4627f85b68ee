"""What the doctor finds in the chain: lost parents, circles, boundaries (FAULTS.md 37-41, 50-53)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import ailing
import pytest
from ailing import (
    assistant,
    boundary,
    chain,
    cured,
    dump,
    lines_of,
    links,
    progress,
    record,
    result,
    rows,
    said,
    summary,
    talk,
    uid,
    user,
    write,
)

from turnstream.sinks.transcript.doctor import diagnose
from turnstream.sinks.transcript.doctor.entries import entry_of
from turnstream.sinks.transcript.doctor.links import Links, Passage
from turnstream.sinks.transcript.reading import resume


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"{ailing.SESSION}.jsonl"


def test_fault_37_a_dangling_parent_is_bridged_to_the_nearest_earlier_record(path: Path) -> None:
    lines = talk(3)
    del lines[3]  # the answer that prompt 5 hangs on
    write(path, *lines)
    report = cured(path, "dangling-parent")
    (found,) = report.findings
    assert (found.severity, found.line, found.uuid) == ("error", 4, uid(5))
    assert uid(4) in found.message
    assert chain(path) == links((1, None), (2, 1), (3, 2), (5, 3), (6, 5))
    # All other lines keep their bytes, and of the bridged one all but the parent is as it was.
    assert [lines_of(path)[n] for n in (0, 1, 2, 4)] == [dump(lines[n]) for n in (0, 1, 2, 4)]
    assert lines_of(path)[3] == dump(lines[3]).replace(uid(4).encode(), uid(3).encode())


@pytest.mark.parametrize("lost", range(1, 5))
def test_fault_38_without_any_one_line_nothing_before_it_disappears(path: Path, lost: int) -> None:
    lines = talk(3)
    del lines[lost]
    write(path, *lines)
    cured(path, "dangling-parent")
    assert len(resume(path).messages) == 5


def test_fault_38_the_first_line_whose_parent_is_lost_becomes_the_root(path: Path) -> None:
    write(path, *talk(2)[1:])
    cured(path, "dangling-parent")
    assert chain(path) == links((2, None), (3, 2), (4, 3))


def test_fault_38_a_parent_that_is_a_record_outside_of_the_conversation_is_bridged_through(path: Path) -> None:
    snapshot = {"type": "file-history-snapshot", "uuid": uid(50), "parentUuid": uid(2), "snapshot": {}}
    write(path, *talk(1), snapshot, *talk(1, 3, 50))
    report = cured(path, "parent-not-member")
    assert [found.line for found in report.findings] == [4]
    assert chain(path) == links((1, None), (2, 1), (50, 2), (3, 2), (4, 3))


def test_fault_38_a_parent_that_is_a_sub_agent_s_record_is_bridged_through(path: Path) -> None:
    lines = [*talk(1), user(3, 2, isSidechain=True), assistant(4, 3, isSidechain=True), user(5, 4), assistant(6, 5)]
    write(path, *lines)
    cured(path, "parent-not-member")
    assert chain(path) == links((1, None), (2, 1), (3, 2), (4, 3), (5, 2), (6, 5))


def test_fault_39_progress_in_the_chain_is_bridged_through(path: Path) -> None:
    lines = [
        user(1, None),
        assistant(2, 1, ailing.call("a"), answer="m"),
        assistant(3, 2, ailing.call("b"), answer="m"),
        progress(4, 2),
        progress(5, 4),
        progress(6, 3),
        result(7, 5, "a"),
        result(8, 6, "b"),
        assistant(9, 8),
    ]
    write(path, *lines)
    report = cured(path, "progress-in-chain")
    assert [found.line for found in report.findings] == [7, 8]
    assert chain(path) == links((1, None), (2, 1), (3, 2), (4, 2), (5, 4), (6, 3), (7, 2), (8, 3), (9, 8))


def test_fault_39_progress_that_hangs_on_nothing_leads_to_what_was_before_it(path: Path) -> None:
    write(path, *talk(1), progress(50, None), *talk(1, 3, 50))
    cured(path, "progress-in-chain")
    assert chain(path) == links((1, None), (2, 1), (50, None), (3, 2), (4, 3))


class Counting(dict[str, Passage]):
    """Counts how often it is asked."""

    asked = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.asked += 1
        return super().get(key, default)


def test_fault_49_a_long_run_of_chained_progress_is_walked_once() -> None:
    # 300 records hang on the end of 900 chained progress records: each for itself would walk 270,000 steps.
    def entry(n: int, parent: int | None) -> Any:
        return entry_of(user(n, parent), ordinal=n, line=n + 1, offset=n, size=1)

    steps = Counting()
    for n in range(900):
        steps[uid(10_000 + n)] = Passage(uid(9_999 + n) if n else uid(0), 1 + n, "progress-in-chain")
    members = [entry(0, None), *(entry(20_000 + n, 10_899) for n in range(300))]
    links = Links(members, steps, {})
    assert {member.up for member in members} == {None, uid(0)}
    assert len(links.changes) == 300
    assert steps.asked <= 2 * (900 + 300)


@pytest.mark.parametrize(
    "line", [assistant(3, None), result(3, None, "x"), record("attachment", 3, None, attachment={"type": "file"})]
)
def test_fault_38_what_can_t_be_the_first_gets_its_link_back(path: Path, line: dict[str, Any]) -> None:
    lines = [user(1, None), assistant(2, 1, ailing.call("x")), line]
    if line["type"] != "user":
        lines.insert(2, result(9, 2, "x"))
    write(path, *lines, *talk(1, 20, 3))
    cured(path, "unlinked")
    assert dict(chain(path))[uid(3)] == (uid(2) if line["type"] == "user" else uid(9))


def test_fault_38_a_prompt_without_a_parent_is_a_conversation_begun_anew(path: Path) -> None:
    write(path, *talk(2), *talk(1, 10, None))
    assert diagnose(path).findings == []


def test_fault_38_without_any_link_the_order_of_the_file_is_the_chain(path: Path) -> None:
    lines = [{**line, "parentUuid": None} for line in talk(3)]
    write(path, *lines)
    assert cured(path, "unlinked").counts == {"unlinked": 5}
    assert chain(path) == links((1, None), (2, 1), (3, 2), (4, 3), (5, 4), (6, 5))


def test_loops_are_opened_at_their_first_record(path: Path) -> None:
    lines = [*talk(1), user(3, 6), assistant(4, 3), user(5, 4), assistant(6, 5), *talk(1, 7, 6)]
    write(path, *lines)
    report = cured(path, "loop")
    assert [found.line for found in report.findings] == [3]
    assert chain(path) == links((1, None), (2, 1), (3, 2), (4, 3), (5, 4), (6, 5), (7, 6), (8, 7))


def test_a_loop_that_is_all_there_is_gets_a_root(path: Path) -> None:
    write(path, user(1, 4), assistant(2, 1), user(3, 2), assistant(4, 3))
    cured(path, "loop")
    assert chain(path) == links((1, None), (2, 1), (3, 2), (4, 3))


def test_a_record_that_hangs_on_itself_is_a_loop(path: Path) -> None:
    write(path, *talk(1), user(3, 3), assistant(4, 3))
    cured(path, "loop")
    assert chain(path) == links((1, None), (2, 1), (3, 2), (4, 3))


def test_fault_40_a_boundary_becomes_a_root(path: Path) -> None:
    # Its parent is a uuid that was never written.
    lines = [*talk(2), boundary(5, 99), summary(6, 5), *talk(1, 7, 6)]
    write(path, *lines)
    report = cured(path, "boundary-parent", less=True)  # what was summarized is no longer in the context
    assert [found.line for found in report.findings] == [5]
    assert chain(path) == links((1, None), (2, 1), (3, 2), (4, 3), (5, None), (6, 5), (7, 6), (8, 7))
    assert rows(path)[4]["logicalParentUuid"] == uid(99)


def test_fault_40_a_boundary_that_names_its_logical_parent_keeps_it(path: Path) -> None:
    write(path, *talk(2), boundary(5, 4, logicalParentUuid=uid(3)), summary(6, 5))
    cured(path, "boundary-parent", less=True)
    assert (rows(path)[4]["parentUuid"], rows(path)[4]["logicalParentUuid"]) == (None, uid(3))


def test_fault_50_a_boundary_whose_summary_was_lost_is_taken_back(path: Path) -> None:
    lines = talk(2)
    write(path, *lines, boundary(5, logicalParentUuid=uid(4)), *talk(1, 7, 5))
    assert len(resume(path).messages) == 3  # the history is out of reach
    report = cured(path, "boundary-alone", less=True)
    assert [found.severity for found in report.findings] == ["error"]
    assert chain(path) == links((1, None), (2, 1), (3, 2), (4, 3), (7, 4), (8, 7))
    assert len(resume(path).messages) == 6


def test_fault_50_a_boundary_at_the_very_end_is_taken_back(path: Path) -> None:
    write(path, *talk(2), boundary(5, logicalParentUuid=uid(4)))
    cured(path, "boundary-alone", less=True)
    assert len(resume(path).messages) == 4


def test_fault_50_a_summary_that_lost_its_boundary_s_name_is_hung_on_it(path: Path) -> None:
    write(path, *talk(2), boundary(5), summary(6, None), *talk(1, 7, 6))
    cured(path, "unlinked")
    assert dict(chain(path))[uid(6)] == uid(5)


@pytest.mark.parametrize(
    "fields",
    [
        {"logicalParentUuid": uid(98)},  # fault 51: what was before is gone
        {},  # fault 51: it isn't even named; fault 52: no metadata at all
        {"compactMetadata": {}},
        {"compactMetadata": None},
        {"compactMetadata": {"trigger": 7, "preTokens": "many", "preservedSegment": {}}},
    ],
)
def test_fault_51_and_52_boundaries_need_neither_a_past_nor_metadata(path: Path, fields: dict[str, Any]) -> None:
    write(path, *talk(2), boundary(5, None, **fields), summary(6, 5), *talk(1, 7, 6))
    assert diagnose(path).findings == []


def kept(*, head: int, anchor: int, tail: int) -> dict[str, Any]:
    segment = {"headUuid": uid(head), "anchorUuid": uid(anchor), "tailUuid": uid(tail)}
    return {"compactMetadata": {"trigger": "auto", "preTokens": 9, "preservedSegment": segment}}


@pytest.mark.parametrize("ends", [(77, 6, 4), (3, 6, 77), (3, 77, 4), (4, 6, 3), (3, 4, 4)])
def test_a_preserved_segment_that_can_t_be_walked_is_no_longer_mentioned(
    path: Path, ends: tuple[int, int, int]
) -> None:
    head, anchor, tail = ends
    write(path, *talk(2), boundary(5, **kept(head=head, anchor=anchor, tail=tail)), summary(6, 5), *talk(1, 7, 6))
    cured(path, "preserved-segment")
    assert rows(path)[4]["compactMetadata"] == {"trigger": "auto", "preTokens": 9}


def test_a_preserved_segment_that_can_be_walked_stays(path: Path) -> None:
    write(path, *talk(2), boundary(5, **kept(head=3, anchor=6, tail=4)), summary(6, 5), *talk(1, 7, 6))
    assert diagnose(path).findings == []


def memory(n: int, parent: int, content: str = "be brief") -> dict[str, Any]:
    payload = {"type": "nested_memory", "path": "/home/me/MEMORY.md", "content": content}
    return record("attachment", n, parent, attachment=payload)


def test_fault_53_an_attachment_that_was_kept_isn_t_attached_again(path: Path) -> None:
    lines = [
        *talk(1),
        memory(3, 2),
        *talk(1, 4, 3),
        boundary(6, **kept(head=3, anchor=7, tail=5)),
        summary(7, 6),
        memory(8, 7),
        *talk(1, 9, 8),
    ]
    write(path, *lines)
    before = said(path)
    report = cured(path, "repeated-attachment")
    assert [found.line for found in report.findings] == [8]
    assert chain(path) == links((1, None), (2, 1), (3, 2), (4, 3), (5, 4), (6, None), (7, 6), (9, 7), (10, 9))
    assert said(path) == before


def test_fault_53_an_attachment_with_other_content_stays(path: Path) -> None:
    lines = [*talk(1), memory(3, 2), *talk(1, 4, 3), boundary(6, **kept(head=3, anchor=7, tail=5)), summary(7, 6)]
    write(path, *lines, memory(8, 7, "be very brief"), *talk(1, 9, 8))
    assert diagnose(path).findings == []


def test_fault_41_a_record_outside_of_the_conversation_may_not_have_a_message_s_uuid(path: Path) -> None:
    snapshot = {"type": "file-history-snapshot", "uuid": uid(2), "messageId": uid(2), "snapshot": {}}
    write(path, *talk(1), snapshot, *talk(1, 3, 2))
    report = cured(path, "id-collision")
    assert [found.line for found in report.findings] == [3]
    assert rows(path)[2]["messageId"] == uid(2)
    assert rows(path)[2]["uuid"] not in {uid(n) for n in range(5)}
    assert chain(path) == links((1, None), (2, 1), (3, 2), (4, 3))


def test_fault_41_messages_of_different_types_may_not_share_a_uuid(path: Path) -> None:
    lines = talk(2)
    lines[1]["uuid"] = uid(1)
    lines[2]["parentUuid"] = uid(1)
    write(path, *lines)
    cured(path, "id-collision")
    (first, _), (second, up), (third, parent), _ = chain(path)
    assert (first, up, third, parent) == (uid(1), uid(1), uid(3), second)
    assert len(resume(path).messages) == 4


def test_missing_uuids_are_made_and_linked(path: Path) -> None:
    lines = talk(2)
    del lines[1]["uuid"]
    lines[2]["parentUuid"] = None
    lines[2]["message"]["content"] = [{"type": "tool_result", "tool_use_id": "x", "content": ""}]
    write(path, *lines)
    cured(path, "missing-uuid", "unlinked")
    made = rows(path)[1]["uuid"]
    assert len(made) == 36
    assert chain(path)[1:3] == [(made, uid(1)), (uid(3), made)]


def test_missing_timestamps_are_the_neighbour_s(path: Path) -> None:
    lines = talk(2)
    del lines[0]["timestamp"]
    lines[2]["timestamp"] = "yesterday"
    write(path, *lines)
    cured(path, "missing-timestamp")
    stamps = [row["timestamp"] for row in rows(path)]
    assert stamps == [lines[1]["timestamp"], lines[1]["timestamp"], lines[1]["timestamp"], lines[3]["timestamp"]]


def test_a_time_without_a_zone_is_utc_wherever_it_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "XXX+5")
    time.tzset()
    lines = talk(1)
    lines[0]["timestamp"] = "2026-01-02T03:04:05"
    del lines[1]["timestamp"]
    write(path, *lines)
    cured(path, "missing-timestamp")
    monkeypatch.undo()
    time.tzset()
    assert rows(path)[1]["timestamp"] == "2026-01-02T03:04:05.000Z"


def test_tombstones_are_carried_out(path: Path) -> None:
    lines = talk(2)
    tombstone = {"type": "tombstone", "targetUuid": uid(2), "sessionId": ailing.SESSION}
    write(path, *lines, tombstone)
    report = cured(path, "tombstone")
    assert [found.line for found in report.findings] == [5]
    assert chain(path) == links((1, None), (3, 1), (4, 3))


def test_fault_41_a_repeat_that_shares_a_uuid_is_taken_out_and_what_hangs_on_it_bridged(path: Path) -> None:
    lines = [*talk(1), memory(3, 2), *talk(1, 4, 3), boundary(6, **kept(head=3, anchor=7, tail=5)), summary(7, 6)]
    # The attachment that is attached again has the uuid of message 2, so what follows it names that.
    write(path, *lines, memory(2, 7), *talk(1, 8, 2))
    cured(path, "id-collision", "repeated-attachment", less=True)
    assert chain(path)[-2:] == links((8, 7), (9, 8))
