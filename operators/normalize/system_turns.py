"""System entries among the messages: kept where the model takes them, else said in a user message (WIRE.md §4).

A model that takes them (:func:`~turnstream.operators.normalize.models.takes_system_role`) wants them after a user
turn, or after an answer that ends in a server tool's result, and right before an answer or at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from turnstream.messages import UserMessage
from turnstream.operators.normalize.contents import blocks_of
from turnstream.operators.normalize.filter import Context
from turnstream.operators.normalize.models import takes_system_role
from turnstream.operators.normalize.options import Options
from turnstream.operators.normalize.references import names_known_tool
from turnstream.operators.normalize.renderers import reminder
from turnstream.operators.normalize.texts import inner_text, is_blank, text_block
from turnstream.operators.normalize.turns import ASSISTANT, SYSTEM, USER, Turn

__all__ = ["as_reminders", "part_at_system", "system_turns_stand"]

_STAGE: Final = "repair"


def part_at_system(messages: Sequence[Context], options: Options) -> list[list[Context]]:
    """The messages in parts, so that a system entry that may stay is a part of its own.

    All other messages whose role isn't the user's become the user's: a system entry as a reminder, so that it isn't
    taken for the user's words, others as they are.
    """
    parts: list[list[Context]] = [[]]
    may_stay = takes_system_role(options.model) and not options.bedrock
    for message in messages:
        if not isinstance(message, UserMessage) or message.message.get("role") == USER:
            parts[-1].append(message)
        elif message.message.get("role") != SYSTEM:
            options.say(
                _STAGE,
                message.uuid,
                f"gave a message of the role {message.message.get('role')!r} to the user",
                "the API knows no such role",
            )
            parts[-1].append(_given(message, blocks_of(message.message.get("content"))))
        elif may_stay and (blocks := _system_blocks(message, options)):
            kept = msgspec.structs.replace(message, message={**message.message, "content": blocks})
            same = blocks is message.message.get("content")
            parts += [[message if same else kept], []]
        else:
            parts[-1].append(as_reminders(message, options))
    return parts


def _system_blocks(message: UserMessage, options: Options) -> list[dict[str, Any]]:
    """The entry's blocks that may be in one: texts that say something, changes of tools that are declared."""
    blocks = blocks_of(message.message.get("content"))
    kept = [block for block in blocks if _is_system_block(block, options)]
    if len(kept) == len(blocks):
        return blocks
    options.say(_STAGE, message.uuid, "dropped blocks of a system entry", "it holds texts and changes of known tools")
    return kept


def _is_system_block(block: dict[str, Any], options: Options) -> bool:
    kind = block.get("type")
    if kind == "text":
        return isinstance(block.get("text"), str) and not is_blank(block["text"])
    return kind in ("tool_addition", "tool_removal") and names_known_tool(block, options.names)


def as_reminders(message: UserMessage, options: Options) -> UserMessage:
    """A system entry as a user message that says the same as reminders."""
    why = "the model or the back end takes no system entry here"
    options.say(_STAGE, message.uuid, "made a system entry a reminder", why)
    said = [inner_text(block) for block in blocks_of(message.message.get("content"))]
    return _given(message, [text_block(reminder(text)) for text in said if text], meta=True)


def _given(message: UserMessage, blocks: list[dict[str, Any]], *, meta: bool | None = None) -> UserMessage:
    inner = {**message.message, "role": USER, "content": blocks}
    return msgspec.structs.replace(message, message=inner, is_meta=meta or message.is_meta)


def system_turns_stand(turns: Sequence[Turn]) -> list[int]:
    """The numbers of system turns that stand where they may not."""
    misplaced: list[int] = []
    waiting: list[int] = []
    before: Turn | None = None
    for number, turn in enumerate(turns):
        if turn.role == SYSTEM:
            answered = before is not None and bool(before.blocks) and _is_server_result(before.blocks[-1])
            if before is None or (before.role == ASSISTANT and not answered):
                misplaced.append(number)
            else:
                waiting.append(number)
            continue
        if turn.role == USER:
            misplaced += waiting
        waiting = []
        before = turn
    return misplaced


def _is_server_result(block: dict[str, Any]) -> bool:
    kind = str(block.get("type"))
    return kind.endswith("_tool_result")
