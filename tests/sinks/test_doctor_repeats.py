"""Messages that are there more than once, and lines of other sessions (FAULTS.md 42, 43, 58, 59)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ailing
import pytest
from ailing import assistant, call, chain, cured, dump, lines_of, links, result, rows, talk, thinking, uid, user, write

from turnstream.sinks.transcript.doctor import diagnose
from turnstream.sinks.transcript.reading import resume

OTHER = "0b6b3f2e-1d58-4c3e-9f7e-5a3c1f0d9e77"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"{ailing.SESSION}.jsonl"


def again(line: dict[str, Any], n: int, parent: int | None, **fields: Any) -> dict[str, Any]:
    """The same record under another uuid."""
    return {**line, "uuid": uid(n), "parentUuid": None if parent is None else uid(parent), **fields}


def later(line: dict[str, Any]) -> dict[str, Any]:
    return {**line, "timestamp": line["timestamp"].replace("T03", "T04")}


def test_fault_42_the_same_record_twice_is_there_once(path: Path) -> None:
    lines = talk(2)
    write(path, *lines, lines[2], lines[3])
    report = cured(path, "duplicate")
    assert [(found.line, found.uuid) for found in report.findings] == [(5, uid(3)), (6, uid(4))]
    assert lines_of(path) == [dump(line) for line in lines]


def test_fault_42_the_fuller_copy_stands_in_the_first_one_s_place(path: Path) -> None:
    lines = talk(2)
    fuller = {**lines[1], "requestId": "req_1", "parentUuid": uid(4)}  # it was hung on what came later
    write(path, *lines, fuller)
    cured(path, "duplicate")
    assert chain(path) == links((1, None), (2, 1), (3, 2), (4, 3))
    assert rows(path)[1] == {**lines[1], "requestId": "req_1"}


def test_fault_42_a_copy_doesn_t_move_its_message_to_another_place(path: Path) -> None:
    lines = talk(2)
    write(path, *lines, {**lines[2], "requestId": "req_1", "parentUuid": uid(1)})
    cured(path, "duplicate")
    assert chain(path) == links((1, None), (2, 1), (3, 2), (4, 3))
    assert rows(path)[2]["requestId"] == "req_1"


def test_fault_42_a_poorer_later_copy_goes(path: Path) -> None:
    lines = talk(2)
    poorer = {key: value for key, value in lines[1].items() if key != "cwd"}
    write(path, *lines, poorer)
    cured(path, "duplicate")
    assert lines_of(path) == [dump(line) for line in lines]


def test_fault_42_a_replay_under_other_uuids_is_an_echo(path: Path) -> None:
    lines = talk(3)
    write(path, *lines, again(lines[2], 13, 6), again(lines[3], 14, 13), *talk(1, 20, 14))
    report = cured(path, "echo", less=True)
    assert [found.line for found in report.findings] == [7, 8]
    # What hung on the echo hangs on what it echoed.
    assert chain(path)[-2:] == links((20, 4), (21, 20))


@pytest.mark.parametrize(
    "block",
    [call("toolu_1"), thinking(), ailing.text("once more")],
)
def test_fault_42_a_block_of_the_same_answer_again_is_an_echo(path: Path, block: dict[str, Any]) -> None:
    first = assistant(2, 1, block)
    lines = [user(1, None), first]
    if block["type"] == "tool_use":
        lines.append(result(3, 2, "toolu_1"))
    lines += [*talk(1, 4, int(lines[-1]["uuid"][-4:])), later(again(first, 9, 5))]
    write(path, *lines)
    report = cured(path, "echo", less=True)
    assert [found.uuid for found in report.findings] == [uid(9)]


@pytest.mark.parametrize("block", [call("a"), thinking()])
def test_fault_42_what_can_be_there_only_once_is_an_echo_at_any_time(path: Path, block: dict[str, Any]) -> None:
    first = assistant(2, 1, block, call("a")) if block["type"] == "thinking" else assistant(2, 1, block)
    write(path, user(1, None), first, result(3, 2, "a"), later(again(first, 9, 3)), assistant(10, 9))
    cured(path, "echo", less=True)
    assert chain(path) == links((1, None), (2, 1), (3, 2), (10, 2))


def test_fault_42_the_same_words_in_one_answer_are_two_blocks(path: Path) -> None:
    lines = [
        user(1, None),
        assistant(2, 1, ailing.text("next"), answer="m"),
        assistant(3, 2, call("a"), answer="m"),
        result(4, 3, "a"),
        assistant(5, 4, ailing.text("next"), answer="m"),
    ]
    write(path, *lines)
    assert diagnose(path).findings == []


def test_fault_42_blocks_of_one_answer_that_came_at_once_may_say_the_same(path: Path) -> None:
    # As between the citations of a web search.
    words = ("One", ". ", "Two", ". ", ". ")
    blocks = [assistant(n, n - 1, ailing.text(said), answer="m") for n, said in enumerate(words, 2)]
    moment = blocks[0]["timestamp"]
    lines = [user(1, None), *({**block, "timestamp": moment} for block in blocks)]
    write(path, *lines)
    assert diagnose(path).findings == []
    # The same at the same place is one, and so is what comes again behind others.
    write(path, *lines, again(lines[2], 13, 2), {**assistant(20, 6), "timestamp": moment}, again(lines[2], 21, 20))
    report = cured(path, "echo", less=True)
    assert [found.uuid for found in report.findings] == [uid(13), uid(21)]


def test_fault_42_a_result_again_is_an_echo(path: Path) -> None:
    lines = [user(1, None), assistant(2, 1, call("a")), result(3, 2, "a"), later(again(result(3, 2, "a"), 4, 3))]
    write(path, *lines, assistant(5, 4))
    cured(path, "echo", less=True)
    assert chain(path) == links((1, None), (2, 1), (3, 2), (5, 3))


@pytest.mark.parametrize("parent", [None, 1])
def test_fault_42_a_doubled_first_prompt_is_an_echo(path: Path, parent: int | None) -> None:
    first = user(1, None)
    double = again(first, 2, parent, timestamp=first["timestamp"].replace("01.000", "01.900"))
    write(path, first, double, assistant(3, 2))
    cured(path, "echo", less=True)
    assert chain(path) == links((1, None), (3, 1))


def test_fault_42_the_same_words_later_are_the_human_s(path: Path) -> None:
    words = "go on"
    lines = [user(1, None, words), assistant(2, 1), user(3, 2, words), assistant(4, 3), user(70, 2, words)]
    write(path, *lines)
    assert diagnose(path).findings == []


def test_fault_42_a_whole_turn_replayed_at_another_time_is_an_echo(path: Path) -> None:
    lines = talk(2)
    replayed = [later(again(lines[2], 13, 4)), later(again(lines[3], 14, 13))]
    write(path, *lines, *replayed, *talk(1, 20, 14))
    report = cured(path, "echo", less=True)
    assert [found.line for found in report.findings] == [5, 6]


def test_fault_43_the_whole_list_recorded_each_turn_is_one_list(path: Path) -> None:
    lines = talk(10)
    written = [line for turn in range(1, 11) for line in lines[: 2 * turn]]
    assert len(written) == 110
    write(path, *written)
    report = cured(path, "whole-list")
    # One finding for each turn that recorded everything before it again.
    assert [found.count for found in report.findings] == [2, 4, 6, 8, 10, 12, 14, 16, 18]
    assert lines_of(path) == [dump(line) for line in lines]


def test_fault_43_the_whole_list_under_new_uuids_is_found_too(path: Path) -> None:
    lines = talk(3)
    copies = [again(line, 20 + n, 19 + n if n else None) for n, line in enumerate(lines)]
    write(path, *lines, *copies, *talk(1, 40, 25))
    report = cured(path, "whole-list", less=True)
    assert [found.count for found in report.findings] == [6]
    assert chain(path) == links((1, None), (2, 1), (3, 2), (4, 3), (5, 4), (6, 5), (40, 6), (41, 40))


def test_fault_58_many_lines_of_one_answer_are_no_repeats(path: Path) -> None:
    blocks = [thinking(), ailing.text("a"), call("x"), call("y")]
    lines = [user(1, None), *(assistant(2 + n, 1 + n, block, answer="m") for n, block in enumerate(blocks))]
    write(path, *lines, result(6, 4, "x"), result(7, 5, "y"))
    assert diagnose(path).findings == []


def test_fault_59_lines_of_another_session_are_rejected(path: Path) -> None:
    lines = talk(2)
    foreign = [{**line, "sessionId": OTHER} for line in talk(1, 50)]
    write(path, lines[0], foreign[0], *lines[1:], foreign[1])
    report = cured(path, "foreign-session", less=True)
    assert [(found.line, found.count) for found in report.findings] == [(2, 2)]
    assert lines_of(path) == [dump(line) for line in lines]
    pieces = rows(path.with_name(f"{path.name}.rejected"))
    assert [piece["data"] for piece in pieces] == [dump(line).decode() for line in foreign]


def test_fault_59_the_file_s_name_says_whose_it_is(path: Path) -> None:
    own = talk(1)
    write(path, *own, *({**line, "sessionId": OTHER} for line in talk(3, 50)))
    cured(path, "foreign-session", less=True)
    assert lines_of(path) == [dump(line) for line in own]


def test_fault_59_a_session_gone_on_with_under_another_id_is_one(path: Path) -> None:
    write(path, *talk(2), *({**line, "sessionId": OTHER} for line in talk(2, 5, 4)), *talk(1, 9, 8))
    assert diagnose(path).findings == []
    assert len(resume(path).messages) == 10


def test_sub_agents_with_the_same_prompt_are_no_echoes(path: Path) -> None:
    side = [user(n, None, "look", isSidechain=True, timestamp="2026-01-02T03:04:05.000Z") for n in (50, 51)]
    write(path, *talk(1), *side)
    assert diagnose(path).findings == []
