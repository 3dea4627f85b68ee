"""Stage 2, attachments move up (WIRE.md §4.2; FAULTS.md 62)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from normalizing import attached, call, contents, normalized, notice, result, said, text, user, uuids

from turnstream.messages import AttachmentMessage
from turnstream.operators import run_stages
from turnstream.operators.normalize import Repair, reorder_attachments


def order(*messages: Any, **options: Any) -> list[str]:
    return uuids(run_stages(messages, reorder_attachments(**options)))


# Letters: u a user's words, n a notice, A an answer, T/S an answer with one/two calls, r/s their results, x/y attachments.
def _made(letters: str) -> list[Any]:
    out: list[Any] = []
    answers = 0
    for number, letter in enumerate(letters):
        uuid = f"{letter}{number}"
        if letter == "u":
            out.append(user(uuid, "words"))
        elif letter == "n":
            out.append(notice(uuid))
        elif letter in "ATS":
            answers += 1
            calls = {"A": [], "T": [call(f"{answers}r")], "S": [call(f"{answers}r"), call(f"{answers}s")]}[letter]
            out.append(said(uuid, f"m{answers}", text("words"), *calls))
        elif letter in "rs":
            out.append(result(uuid, f"{answers}{letter}"))
        else:
            out.append(attached(uuid))
    return out


def _letters(made: str) -> str:
    return "".join(uuid[0] for uuid in order(*_made(made)))


@pytest.mark.parametrize(
    ("given_order", "expected"),
    [
        # up, past users and notices, to just after the answer or result
        ("uAux", "uAxu"),
        ("uAunux", "uAxunu"),
        ("uTrux", "uTrxu"),
        ("uTrxuA", "uTrxuA"),
        # none before it: to the top
        ("ux", "xu"),
        ("uux", "xuu"),
        ("x", "x"),
        # in their order, each
        ("uAxuyu", "uAxyuu"),
        ("xuyA", "xyuA"),
        # it stops at the nearest, not at an earlier one
        ("uAuAux", "uAuAxu"),
        # never between a tool_use and its result
        ("uTxr", "uTrx"),
        ("uTxur", "uTurx"),
        ("uSxrs", "uSrsx"),
        ("uSrxs", "uSrsx"),
        ("uSxryus", "uSrusxy"),
        # where no result comes, it stays at the answer
        ("uTx", "uTx"),
        ("uTux", "uTxu"),
        ("uTuxA", "uTxuA"),
        ("uSrxA", "uSrxA"),
        ("uSrxuA", "uSrxuA"),
    ],
)
def test_an_attachment_moves_up_and_stops(given_order: str, expected: str) -> None:
    assert _letters(given_order) == expected


def test_fault_62_attachment_and_words_between_a_call_and_its_result() -> None:
    """The row's reproduction: assistant(tool), attachment, user text, result."""
    messages = [
        user("u1", "go"),
        said("a1", "m1", call("t1")),
        attached("x1"),
        user("u2", "queued"),
        result("r1", "t1"),
    ]
    assert order(*messages) == ["u1", "a1", "u2", "r1", "x1"]
    turn = contents(normalized(messages))[2]
    assert [block["type"] for block in turn] == ["tool_result", "text", "text"]
    assert turn[1] == text("queued")
    assert "system-reminder" in turn[2]["text"]


def test_fault_62_a_hook_between_the_blocks_of_one_answer() -> None:
    """A tool that ran while the answer streamed on: its hook's output neither parts the answer nor a pair."""
    messages = [
        said("a1", "m1", call("t1")),
        result("r1", "t1"),
        attached("x1"),
        said("a2", "m1", call("t2")),
        attached("x2"),
        result("r2", "t2"),
    ]
    assert order(*messages) == ["a1", "r1", "x1", "a2", "r2", "x2"]
    assert uuids(normalized(messages)) == ["a1", "r1"]


def test_an_attachment_waits_through_more_blocks_of_answers_for_the_result() -> None:
    messages = [said("a1", "m1", call("t1")), attached("x1"), said("a2", "m1", call("t2")), result("r1", "t1", "t2")]
    assert order(*messages) == ["a1", "a2", "r1", "x1"]
    other = [said("a1", "m1", call("t1")), attached("x1"), said("b1", "m2", call("t2")), result("r1", "t1", "t2")]
    assert order(*other) == ["a1", "b1", "r1", "x1"]


def test_the_same_answer_going_on_does_not_end_the_wait() -> None:
    messages = [
        said("a1", "m1", call("t1"), call("t2")),
        result("r1", "t1"),
        attached("x1"),
        said("a2", "m1", text("meanwhile")),
        result("r2", "t2"),
    ]
    assert order(*messages) == ["a1", "r1", "a2", "r2", "x1"]


def test_fault_60_an_unanswered_call_does_not_hold_attachments_for_ever() -> None:
    messages = [said("a1", "m1", call("t0"))]
    for number in range(1, 4):
        messages += [user(f"u{number}", "on"), said(f"b{number}", f"m{number + 1}", call(f"t{number}"))]  # type: ignore[list-item]
        messages += [result(f"r{number}", f"t{number}"), attached(f"x{number}")]  # type: ignore[list-item]
    out = order(*messages)
    assert [uuid for uuid in out if uuid[0] in "rx"] == ["r1", "x1", "r2", "x2", "r3", "x3"]
    assert out.index("x1") < out.index("u2")


def test_an_orphan_result_is_a_stop_too() -> None:
    assert order(user("u1", "hi"), result("r1", "nobody"), user("u2", "on"), attached("x1")) == ["u1", "r1", "x1", "u2"]


def test_the_log_names_what_moved_only() -> None:
    log: list[Repair] = []
    assert order(*_made("uAxuy"), explain=log.append) == ["u0", "A1", "x2", "y4", "u3"]
    assert [(repair.stage, repair.uuid) for repair in log] == [("reorder", "y4")]


def test_it_lets_go_as_soon_as_the_place_is_known() -> None:
    stage = reorder_attachments().chain()
    assert uuids(stage.feed([user("u1", "hi"), attached("x1")])) == ["x1"]
    assert uuids(stage.feed([said("a1", "m1", text("yes"))])) == ["u1", "a1"]
    assert uuids(stage.feed([attached("x2")])) == ["x2"]


# -- against the rule itself, word by word -------------------------------------------------------------------

_TURN = st.sampled_from(
    ["u", "n", "ux", "uxy", "A", "Ax", "Axu", "Tr", "Txr", "Tuxr", "Trx", "Txury", "Srs", "Sxrys", "Ssr", "Srxsuy", "x"]
)


def _by_the_rule(messages: list[Any]) -> list[str]:
    """Each attachment goes up to the nearest stop, and past the results that stop's answer still awaits."""
    rest = [m for m in messages if not isinstance(m, AttachmentMessage)]
    stops: dict[int, list[str]] = {}
    calls: dict[str, int] = {}
    last = -1
    awaited: dict[str, int] = {}
    for at, message in enumerate(rest):
        blocks = message.message["content"] if hasattr(message, "message") else []
        for block in blocks if isinstance(blocks, list) else []:
            if block["type"] == "tool_result":
                awaited[block["tool_use_id"]] = at
            elif block["type"] == "tool_use":
                calls[block["id"]] = at
    at = -1
    for message in messages:
        if not isinstance(message, AttachmentMessage):
            at += 1
            if message.uuid[0] not in "un":
                last = at
            continue
        place = last
        while later := [end for name, end in awaited.items() if calls.get(name, end) <= place < end]:
            place = max(later)
        stops.setdefault(place, []).append(message.uuid)
    out = [*stops.get(-1, [])]
    for at, message in enumerate(rest):
        out += [message.uuid, *stops.get(at, [])]
    return out


@settings(max_examples=300, deadline=None)
@given(st.lists(_TURN, max_size=8).map("".join))
def test_it_is_the_rule_on_every_conversation_whose_calls_are_answered(letters: str) -> None:
    messages = _made(letters)
    assert order(*messages) == _by_the_rule(messages)
