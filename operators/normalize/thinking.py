"""Thinking: what may be sent back, and where (WIRE.md §4, repair; FAULTS.md 24, 68, 69).

A thinking block is good only as it came, with its signature, for the model that made it. So what is unsigned, cut
off or another model's is dropped whole, never shortened, and nothing is moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from turnstream.messages import AssistantMessage, UserMessage
from turnstream.operators.normalize.models import is_adaptive
from turnstream.operators.normalize.options import Options
from turnstream.operators.normalize.server_calls import is_paused
from turnstream.operators.normalize.turns import ASSISTANT, SYSTEM, Turn, to_turn

__all__ = ["THINKING", "can_think", "settle_thinking", "why_not_sent"]

Block = dict[str, Any]

THINKING: Final = frozenset({"thinking", "redacted_thinking"})
"""The types that hold thinking."""


def why_not_sent(block: Block, *, foreign: bool = False) -> str | None:
    """Why a block of thinking can't be sent back, None if it can.

    Args:
        block: a thinking or redacted_thinking block.
        foreign: whether another model made it than the one the request goes to.
    """
    if block.get("type") == "redacted_thinking":
        if not isinstance(block.get("data"), str) or not block["data"]:
            return "it has no data"
    elif not isinstance(block.get("thinking"), str):  # an empty text is legal: the model's display is off
        return "it has no thinking"
    elif not isinstance(block.get("signature"), str) or not block["signature"]:
        return "it is unsigned: cut off before its end, or not the API's"
    return "another model signed it" if foreign else None


def settle_thinking(turns: list[Turn], options: Options) -> None:
    """Drop thinking from where it may not stand in this request.

    No answer ends with it. On models before 4.6 an answer that has any leads with it. With thinking off the last
    answer has none; so too where it is asked for but the running tool loop doesn't lead with it, for then the caller
    has to leave it off (see :func:`can_think`).
    """
    last: list[Turn] = []
    strict = options.thinking and not is_adaptive(options.model)
    for run in _runs(turns):
        last = run
        if run[-1].blocks[-1].get("type") in THINKING:
            _cut_end(run, options)
        if strict and not _leads(run):
            _drop(run, options, "the answer doesn't lead with it")
    # An answer at the end that isn't paused gets a stand-in after it: the model begins anew then.
    ended = bool(turns) and turns[-1].role == ASSISTANT and not is_paused(turns[-1])
    if last and not (options.thinking and (ended or _may_think(turns, options.model))):
        why = "the tool loop doesn't lead with it, so thinking is off" if options.thinking else "thinking is off"
        _drop(last, options, why)


def can_think(messages: Sequence[UserMessage | AssistantMessage], model: str | None = None) -> bool:
    """Whether a request with these normalized messages may turn thinking on.

    On models before 4.6, and unknown ones, it may not where tools are being called in an answer that began without
    thinking ("Expected `thinking` or `redacted_thinking`, but found `tool_use`"), nor before an answer that is to be
    continued and doesn't lead with it. Ask this after :func:`~turnstream.operators.normalize.normalize_for_api`.

    Args:
        messages: what it returned.
        model: the model the request goes to.
    """
    return _may_think([to_turn(message) for message in messages], model)


def _may_think(turns: list[Turn], model: str | None) -> bool:
    if is_adaptive(model):
        return True
    spoken = [turn for turn in turns if turn.role != SYSTEM]
    begun = [_loop(spoken)]
    if spoken and spoken[-1].role == ASSISTANT:
        begun.append(next(reversed(list(_runs(spoken))))[0])  # what is to be continued leads with it itself
    return all(turn is None or not turn.blocks or turn.blocks[0].get("type") in THINKING for turn in begun)


def _loop(turns: list[Turn]) -> Turn | None:
    """The first answer of the turn that the model is in the middle of; None if it is to begin one."""
    begun: Turn | None = None
    last = len(turns) - 1
    for at in range(last, -1, -1):
        turn = turns[at]
        if turn.role == ASSISTANT:
            begun = turn
        else:
            results = sum(block.get("type") == "tool_result" for block in turn.blocks)
            # Words beside the last results don't end the loop; earlier ones began it.
            if not results or (results < len(turn.blocks) and at != last):
                break
    return begun


def _runs(turns: Iterable[Turn]) -> Iterator[list[Turn]]:
    """The answers as the API sees them: messages of the assistant with no user between are one."""
    run: list[Turn] = []
    for turn in turns:
        if turn.role == ASSISTANT:
            run.append(turn)
        elif turn.role != SYSTEM and run:
            yield run
            run = []
    if run:
        yield run


def _leads(run: list[Turn]) -> bool:
    """Whether the run's first block is thinking, or it has none at all."""
    first = next((turn.blocks[0] for turn in run if turn.blocks), None)
    if first is None or first.get("type") in THINKING:
        return True
    return not any(block.get("type") in THINKING for turn in run for block in turn.blocks)


def _cut_end(run: list[Turn], options: Options) -> None:
    for turn in reversed(run):
        end = len(turn.blocks)
        while end and turn.blocks[end - 1].get("type") in THINKING:
            end -= 1
        if end < len(turn.blocks):
            options.say("repair", turn.message.uuid, "dropped thinking", "an answer can't end with it")
            turn.put(turn.blocks[:end])
        if end:
            return


def _drop(run: list[Turn], options: Options, why: str) -> None:
    for turn in run:
        kept = [block for block in turn.blocks if block.get("type") not in THINKING]
        if len(kept) < len(turn.blocks):
            options.say("repair", turn.message.uuid, "dropped thinking", why)
            turn.put(kept)
