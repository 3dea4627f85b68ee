"""The four wordings of a denial (WIRE.md §2)."""

from __future__ import annotations

from typing import get_args

import pytest

from turnstream.messages import DenialKind, MessageFactory, denial_text, texts

KINDS = get_args(DenialKind)


def test_four_wordings_all_different_and_none_a_foreign_one() -> None:
    wordings = {denial_text(kind) for kind in KINDS}
    assert len(wordings) == len(KINDS) == 4
    for text in wordings:
        assert "The user doesn't want to" not in text
        assert "STOP what you are doing" not in text


@pytest.mark.parametrize("kind", ["refused", "subagent_refused", "classifier_refused"])
def test_a_reason_is_named(kind: DenialKind) -> None:
    assert "because of the budget" in denial_text(kind, reason="because of the budget")
    assert denial_text(kind, reason="  ") == denial_text(kind) == denial_text(kind, reason=None)


def test_without_a_reason_the_users_are_the_constants() -> None:
    assert denial_text("cancelled") == texts.CANCELLED
    assert denial_text("cancelled", reason="x") == texts.CANCELLED
    assert denial_text("refused") == texts.REJECTED


def test_a_classifiers_says_what_is_fine_what_is_not_and_which_rule() -> None:
    text = denial_text("classifier_refused", reason="deletes files", hint="allow rm in /tmp")
    for part in ("deletes files", "does not depend on it", "natural", "detour", "allow rm in /tmp"):
        assert part in text
    assert "Rule" not in denial_text("classifier_refused", reason="deletes files")


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown kind of denial: 'maybe'"):
        denial_text("maybe")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_a_denial_is_an_error_result_linked_to_who_asked(kind: DenialKind) -> None:
    make = MessageFactory()
    asked = make.assistant([{"type": "tool_use", "id": "t1", "name": "n", "input": {}}])
    message = make.denial("t1", kind, reason="why", source=asked)
    (block,) = message.message["content"]
    assert (block["type"], block["tool_use_id"], block["is_error"]) == ("tool_result", "t1", True)
    assert block["content"] == message.tool_use_result == denial_text(kind, reason="why")
    assert message.source_tool_assistant_uuid == asked.uuid
