"""The first message, the last one, and what stands between answers (WIRE.md §4, repair; FAULTS.md 64, 67)."""

from __future__ import annotations

from typing import Final

from turnstream.operators.normalize.options import Options
from turnstream.operators.normalize.server_calls import is_paused
from turnstream.operators.normalize.texts import NO_CONTENT, text_block
from turnstream.operators.normalize.turns import ASSISTANT, USER, Turn, made_user

__all__ = ["CONTINUE", "settle_edges"]

CONTINUE: Final = "Continue from where you left off."
"""What stands in for the user where a request would end with the assistant."""

_STAGE: Final = "repair"


def settle_edges(turns: list[Turn], options: Options) -> list[Turn]:
    """Make the conversation begin with the user, and end with the user or a text that can be continued.

    An answer is never deleted: a stand-in is added before or after it. A turn that paused in server tools ends the
    conversation as it is (WIRE.md §8).
    """
    if not turns:
        return turns
    first, last = turns[0], turns[-1]
    if first.role != USER:
        options.say(_STAGE, first.message.uuid, "added a user message before it", "a conversation starts with the user")
        turns = [made_user(first.message, "before", [text_block(NO_CONTENT)]), *turns]
    if last.role != ASSISTANT or is_paused(last):
        return turns
    if options.may_prefill:
        _trim(last, options)
        return turns
    options.say(_STAGE, last.message.uuid, "added a user message after it", "the conversation must end with the user")
    return [*turns, made_user(last.message, "after", [text_block(CONTINUE)])]


def _trim(turn: Turn, options: Options) -> None:
    """Take the white space off the end of a final text: the API refuses to continue from it."""
    block = turn.blocks[-1]
    if block.get("type") != "text":
        return
    text = block["text"]
    if text != text.rstrip():
        options.say(_STAGE, turn.message.uuid, "trimmed the final text", "it can't end in white space")
        turn.put([*turn.blocks[:-1], {**block, "text": text.rstrip()}])
