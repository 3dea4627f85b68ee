"""What a user message is, and whether an answer is owed (WIRE.md §2, §4)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import recordings

from turnstream.messages import (
    Message,
    MessageFactory,
    UserMessage,
    decode_line,
    is_synthetic,
    kind_of,
    needs_response,
    purpose_of,
    texts,
)

MAKE = MessageFactory()
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "out"}
TEXT = {"type": "text", "text": "and this"}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("prompt", MAKE.user("do it")),
        ("prompt", MAKE.user([TEXT])),
        ("prompt", MAKE.user([{"type": "image", "source": {}}])),
        ("prompt", MAKE.user("do it", origin="human")),
        ("prompt", MAKE.user("do it", origin={"kind": "human"})),
        ("prompt", MAKE.user("<div> is a tag, isn't it?")),
        ("prompt", UserMessage(message={}, uuid="u", timestamp="t")),
        ("tool_result", MAKE.tool_result("t1", "out")),
        ("tool_result", MAKE.user([TEXT, RESULT])),
        ("tool_result", MAKE.user([RESULT], is_meta=True)),
        ("interruption", MAKE.interruption()),
        ("interruption", MAKE.interruption(tool_use=True)),
        ("synthetic", MAKE.user(texts.CANCELLED)),
        ("synthetic", MAKE.user([{"type": "text", "text": texts.REJECTED}])),
        ("compact_summary", MAKE.compact_summary("so far")),
        ("command", MAKE.user("<command-name>/model</command-name>")),
        ("command", MAKE.user("<command-message>x is running…</command-message>\n<command-name>/x</command-name>")),
        ("command", MAKE.user("<bash-input>ls</bash-input>")),
        ("command", MAKE.user("/x", origin="slash_command")),
        ("command_output", MAKE.user("<local-command-stdout>Set</local-command-stdout>")),
        ("command_output", MAKE.user("\n<bash-stderr>no</bash-stderr>")),
        ("meta", MAKE.user("Go on where you stopped.", is_meta=True)),
        ("notice", MAKE.user("<system-reminder>The date changed.</system-reminder>", is_meta=True)),
        ("notice", MAKE.user("<local-command-caveat>Caveat: …</local-command-caveat>", is_meta=True)),
        ("notification", MAKE.user("<task-notification>done</task-notification>")),
        ("notification", MAKE.user("task x ended", origin={"kind": "task-notification"})),
        ("notification", MAKE.user("the hook says no", origin="hook")),
    ],
)
def test_purposes(kind: str, message: UserMessage) -> None:
    assert purpose_of(message) == kind


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("tool_result", MAKE.user([RESULT], is_virtual=True, is_meta=True)),
        ("virtual", MAKE.user("shown", is_virtual=True, is_compact_summary=True, is_meta=True)),
        ("compact_summary", MAKE.compact_summary("so far")),
        ("meta", MAKE.user("go on", is_meta=True)),
        ("human", MAKE.user("do it")),
        ("human", MAKE.user("do it", is_visible_in_transcript_only=True)),
    ],
)
def test_the_five_kinds_in_their_order_of_test(kind: str, message: UserMessage) -> None:
    """WIRE.md §2, factories."""
    assert kind_of(message) == kind


def test_purposes_in_recordings() -> None:
    """Against facts counted with the standard library alone."""
    folder = recordings.need("kinds of user messages") / "transcripts"
    kinds: Counter[str] = Counter()
    for path in folder.rglob("*.jsonl"):
        for line in path.read_bytes().split(b"\n"):
            message = decode_line(line)
            if isinstance(message, UserMessage):
                kinds[purpose_of(message)] += 1
    assert kinds["tool_result"] == 843
    assert kinds["interruption"] == 8
    assert kinds["compact_summary"] == 2
    assert kinds["notification"] == 1
    assert kinds["command_output"] == 10
    assert kinds["notice"] == 12


# -- needs_response ----------------------------------------------------------------------------------

CALL = {"type": "tool_use", "id": "t1", "name": "n", "input": {}}


def answer(*blocks: dict[str, Any], ident: str = "msg_1", **fields: Any) -> Message:
    message = MAKE.assistant(list(blocks) or [TEXT], **fields)
    message.message["id"] = ident
    message.message["stop_reason"] = "end_turn"
    return message


PROMPT = MAKE.user("do it")
DONE = MAKE.tool_result("t1", "out")
NOTICES: list[Message] = [
    MAKE.informational("notice"),
    MAKE.local_command("<local-command-stdout>x</local-command-stdout>"),
    MAKE.turn_duration(3),
    MAKE.progress("t1", None, {"type": "bash_progress"}),
    MAKE.attachment({"type": "memory"}),
    MAKE.user("<command-name>/model</command-name>"),
    MAKE.user("<local-command-stdout>Set</local-command-stdout>"),
    MAKE.user("<bash-input>ls</bash-input>"),
    MAKE.user("<local-command-caveat>Caveat</local-command-caveat>", is_meta=True),
    MAKE.user("<system-reminder>x</system-reminder>", is_meta=True),
    MAKE.user("shown only", is_virtual=True),
    MAKE.compact_boundary(),
    MAKE.compact_summary("so far"),
    MAKE.api_error("too long"),
    MAKE.assistant("shown only", is_virtual=True),
]


@pytest.mark.parametrize("notice", NOTICES, ids=lambda n: type(n).__name__)
def test_notices_change_nothing(notice: Message) -> None:
    assert needs_response([PROMPT, answer(), notice]) is False
    assert needs_response([PROMPT, notice]) is True
    assert needs_response([notice]) is False


def test_all_notices_together() -> None:
    assert needs_response([PROMPT, answer(), *NOTICES]) is False
    assert needs_response([PROMPT, *NOTICES]) is True


@pytest.mark.parametrize(
    "asking",
    [
        PROMPT,
        DONE,
        MAKE.user("Go on where you stopped.", is_meta=True),
        MAKE.user("task x ended", origin={"kind": "task-notification"}),
        MAKE.attachment({"type": "queued_command", "prompt": "and this"}),
    ],
)
def test_what_asks(asking: Message) -> None:
    assert needs_response([PROMPT, answer(), asking]) is True
    assert needs_response([PROMPT, answer(), asking, *NOTICES]) is True
    assert needs_response([asking, answer(ident="msg_2")]) is False


def test_nothing_owes_nothing() -> None:
    assert needs_response([]) is False


def test_an_interruption_is_the_users_stop() -> None:
    missing = MAKE.missing_results([MAKE.assistant([CALL])])
    assert needs_response([PROMPT, answer(CALL), *missing, MAKE.interruption(tool_use=True)]) is False
    assert needs_response([PROMPT, MAKE.interruption(), *NOTICES]) is False
    assert needs_response([PROMPT, MAKE.interruption(), PROMPT]) is True


def test_an_answer_whose_tools_have_no_result_or_that_was_cut_off_is_not_finished() -> None:
    paused = answer()
    paused.message["stop_reason"] = "pause_turn"  # type: ignore[union-attr, index]
    for unfinished in (answer(CALL), answer(is_aborted_mid_stream=True), paused):
        assert needs_response([PROMPT, unfinished]) is True


def test_a_tool_that_finished_while_its_answer_went_on() -> None:
    assert needs_response([PROMPT, answer(CALL), DONE, answer(TEXT)]) is True
    assert needs_response([PROMPT, answer(CALL), DONE, answer(TEXT, ident="msg_2")]) is False
    server = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    assert needs_response([PROMPT, answer(server), answer(TEXT)]) is False


def test_what_a_tombstone_took_back_does_not_count() -> None:
    gone = MAKE.assistant("half")
    assert needs_response([PROMPT, gone, MAKE.tombstone(gone)]) is True
    taken = MAKE.user("no, wait")
    assert needs_response([PROMPT, answer(), taken, MAKE.tombstone(taken)]) is False
    read = decode_line(b'{"type":"tombstone","message":{"uuid":"%s"}}' % taken.uuid.encode())
    assert needs_response([PROMPT, answer(), taken, read]) is False


def test_a_text_that_is_no_string_is_nobodys_fixed_text() -> None:
    odd = MAKE.user([{"type": "text", "text": ["no", "string"]}])
    assert (is_synthetic(odd), purpose_of(odd), needs_response([odd])) == (False, "prompt", True)


def test_api_errors_answer_nothing_but_no_response_requested_does() -> None:
    assert needs_response([PROMPT, MAKE.api_error("overloaded")]) is True
    assert needs_response([PROMPT, MAKE.assistant(texts.NO_RESPONSE_REQUESTED)]) is False
