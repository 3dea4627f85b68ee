"""Stages 5 and 6 over a list: one pass that cleans and plans, then repairs where there is need (WIRE.md §4).

The order isn't quite that of the numbers: what is stripped is decided last, because an error's ``messages.N`` counts
in the request as it was sent, and an image that goes with its orphaned result counts towards nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from turnstream.messages import AssistantMessage, UserMessage
from turnstream.operators.normalize.cache_marks import limit_marks
from turnstream.operators.normalize.contents import only_synthetic
from turnstream.operators.normalize.edges import settle_edges
from turnstream.operators.normalize.fields import BlockShape
from turnstream.operators.normalize.options import Options
from turnstream.operators.normalize.pairing import PairingPlan, pair_calls
from turnstream.operators.normalize.server_calls import pair_server_calls
from turnstream.operators.normalize.shape import BlockCleaner
from turnstream.operators.normalize.strip import PastRefusals, strip_media
from turnstream.operators.normalize.system_turns import as_reminders, system_turns_stand
from turnstream.operators.normalize.texts import NO_CONTENT, text_block
from turnstream.operators.normalize.thinking import settle_thinking
from turnstream.operators.normalize.turns import ASSISTANT, SYSTEM, USER, Turn, made_user, to_messages, to_turn

__all__ = ["Repaired", "finish", "nothing_left", "repair_turns"]

Said = UserMessage | AssistantMessage

_STAGE: Final = "repair"


class Repaired:
    """What :func:`repair_turns` made.

    Attributes:
        turns: the request's messages.
        again: whether all has to be looked at once more, for what stood between some is gone.
        cleaner: knows what kinds of blocks there are.
    """

    __slots__ = ("again", "cleaner", "turns")

    def __init__(self, turns: list[Turn], again: bool, cleaner: BlockCleaner) -> None:
        self.turns = turns
        self.again = again
        self.cleaner = cleaner


def repair_turns(
    messages: Iterable[Said], options: Options, blocks: Mapping[str, BlockShape] | None = None
) -> Repaired:
    """Blocks, pairs and thinking: what may take out blocks and messages.

    The first pass looks at each message once, while it is at hand; further ones only follow where there is need.

    Args:
        messages: what stage 4 puts out.
        options: the request's.
        blocks: what blocks the API takes.
    """
    turns: list[Turn] = []
    cleaner = BlockCleaner(options, blocks)
    plan = PairingPlan(options)
    empty = False
    entries = False
    for message in messages:
        turn = to_turn(message)
        cleaner.clean(turn)
        if not turn.blocks:
            options.say(_STAGE, message.uuid, "dropped a message", "nothing is left of it")
            empty = True
            continue
        entries = entries or turn.role == SYSTEM
        plan.read(len(turns), turn)
        turns.append(turn)
    plan.end()
    paired = pair_calls(turns, plan, options)
    if cleaner.server:
        pair_server_calls(paired, options)
        paired = _without_empty(paired, options)
    if cleaner.thinking:
        settle_thinking(paired, options)
    left = _without_empty(paired, options) if cleaner.thinking else paired
    misplaced = system_turns_stand(left) if entries else []
    for number in misplaced:
        turn = left[number]
        assert isinstance(turn.message, UserMessage)
        message = as_reminders(turn.message, options)
        left[number] = Turn(message, USER, message.message["content"])
    # Where the last answer is gone, another is the last: the rules of thinking and of the end are its now.
    again = left is not paired or bool(misplaced) or _is_unsettled(left, whole=empty or paired is not turns)
    return Repaired(left, again, cleaner)


def nothing_left(first: Said, options: Options) -> list[Turn]:
    """What is sent where somebody spoke and nothing of it can be sent: a request needs a message."""
    options.say(_STAGE, first.uuid, "put a text in the place of all messages", "a request needs one")
    return [made_user(first, "only", [text_block(NO_CONTENT)])]


def finish(turns: list[Turn], cleaner: BlockCleaner, options: Options, past: PastRefusals | None = None) -> list[Said]:
    """Edges, media and cache marks: what only adds messages and changes blocks in their place.

    Args:
        turns: from :func:`repair_turns`.
        cleaner: that looked at their blocks.
        options: the request's.
        past: what requests were refused for.
    """
    turns = settle_edges(turns, options)
    if cleaner.media or past is not None:
        strip_media(turns, options, past)
    if cleaner.marks:
        limit_marks(turns, options)
    return to_messages(turns)


def _without_empty(turns: list[Turn], options: Options) -> list[Turn]:
    kept = [turn for turn in turns if turn.blocks]
    if len(kept) == len(turns):
        return turns
    for turn in turns:
        if not turn.blocks:
            options.say(_STAGE, turn.message.uuid, "dropped a message", "nothing is left of it")
    return kept


def _is_unsettled(turns: list[Turn], *, whole: bool) -> bool:
    """Whether stages 1 to 4 would do more now: join neighbours, or leave out what is now a stand-in for speech.

    By their own rule of what is one answer (:class:`~turnstream.operators.normalize.MergeTurns`). Where no message
    is gone or new (``whole`` is False), only what is said between two answers may have changed.
    """
    for number, turn in enumerate(turns):
        if turn.changed and turn.role != SYSTEM and only_synthetic(turn.blocks):
            return True
        if not number or not (whole or (turn.changed and turn.role == USER)):
            continue
        before = turns[number - 1]
        if turn.role == USER and before.role == USER:
            return True
        if turn.role == USER and before.role == ASSISTANT and number + 1 < len(turns):
            after = turns[number + 1]
            if after.role == ASSISTANT and _is_one_answer(before.message, after.message, _speaks(turn)):
                return True
        elif turn.role == before.role == ASSISTANT and _is_one_answer(before.message, turn.message, False):
            return True
    return False


def _speaks(turn: Turn) -> bool:
    if turn.message.is_meta:  # type: ignore[union-attr]
        return False
    return any(block.get("type") != "tool_result" for block in turn.blocks)


def _is_one_answer(first: Any, second: Any, spoke: bool) -> bool:
    api_id = first.message.get("id")
    if not api_id or second.message.get("id") != api_id:
        return False
    if first.request_id and second.request_id:
        return bool(first.request_id == second.request_id)
    usage = second.message.get("usage")
    return not spoke or (usage is not None and usage is first.message.get("usage"))
