"""Calls of the client's tools and their results: one result each, in the next user message (WIRE.md §4, repair).

FAULTS.md 60-63: a call that was interrupted has no result, a slice of history has results without calls, and queued
words stand between the two. The API refuses all of it, for good. Pairing is judged as the API does, over runs of
assistant messages; on Converse, where roles must alternate, over single ones.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from turnstream.messages.texts import MISSING_RESULT
from turnstream.operators.normalize.ids import CLIENT_ID, CallIds
from turnstream.operators.normalize.options import Options
from turnstream.operators.normalize.texts import NO_CONTENT, text_block
from turnstream.operators.normalize.turns import ASSISTANT, USER, Turn, made_user

__all__ = ["PairingPlan", "pair_calls"]

Block = dict[str, Any]

_STAGE: Final = "repair"


class _Call(msgspec.Struct, gc=False, eq=False):
    """One tool_use: its id before and after, its run of answers, and the result that answers it.

    ``twin`` is another call of the same id that waits for its result: of the same run the next one, and after the
    run's last the first one of an older run.
    """

    old: Any
    new: str
    run: int
    answer: Block | None = None
    twin: _Call | None = None


class PairingPlan:
    """The first pass: which result answers which call, and whether anything isn't as it should be.

    Args:
        options: the request's.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self.calls: dict[int, list[_Call]] = {}  # number of the turn → its calls in order
        self.broken = False  # whether there is anything to repair
        self._due: list[_Call] = []  # calls of the run, whose results must come next
        self._ids = CallIds("toolu_", CLIENT_ID, converse=options.bedrock)
        # Old id → the call that the next result of this id answers; the others follow as its twins.
        self._waiting: dict[str, _Call] = {}
        self._last: dict[str, _Call] = {}  # of ids that several calls wait with: the newest run's last call
        self._run = 0
        self._before = USER

    def read(self, number: int, turn: Turn) -> None:
        """Look at the next turn, the ``number``-th of the list."""
        role = turn.role
        if role == ASSISTANT:
            if self._before != ASSISTANT:
                self._run += 1
            elif self._options.bedrock:
                self._run += 1
                self.broken = True  # answers must not follow one another
        elif role != USER and self._due:
            self.broken = True
        self._before = role
        results = 0
        for block in turn.blocks:
            kind = block.get("type")
            if kind == "tool_use":
                self._call(number, block, turn)
            elif kind == "tool_result":
                results += 1
                self._result(block, turn)
        if role == USER:
            due = self._due
            if results != len(due) or any(
                call.answer is not block for call, block in zip(due, turn.blocks, strict=False)
            ):
                self.broken = True
            self._due = []
        elif results:
            self.broken = True

    def end(self) -> None:
        """There are no more turns."""
        if self._due:
            self.broken = True

    def _call(self, number: int, block: Block, turn: Turn) -> None:
        old = block.get("id")
        call = _Call(old, self._ids.take(old), self._run)
        self._due.append(call)
        if call.new != old:
            self.broken = True
            self._options.say(
                _STAGE, turn.message.uuid, f"gave the call {old!r} the id {call.new}", "ids must be unique"
            )
        self.calls.setdefault(number, []).append(call)
        if isinstance(old, str):
            first = self._waiting.get(old)
            if first is not None and first.run == self._run:
                last = self._last.get(old, first)
                call.twin = last.twin
                last.twin = call
                self._last[old] = call
            else:
                call.twin = first
                self._waiting[old] = call
                self._last.pop(old, None)

    def _result(self, block: Block, turn: Turn) -> None:
        # The newest run that waits for this id; an older one only if none does: its result came late.
        old: Any = block.get("tool_use_id")
        call = self._waiting.pop(old, None) if isinstance(old, str) else None
        if call is None:
            why = "it answers no call, or one that has a result"
            self._options.say(_STAGE, turn.message.uuid, "dropped a tool result", why)
            return
        if call.twin is not None:
            self._waiting[old] = call.twin
            if call.twin.run != call.run:
                self._last.pop(old, None)
        call.answer = block if call.new == old else {**block, "tool_use_id": call.new}
        if call.run != self._run:
            why = "it came after other words"
            self._options.say(_STAGE, turn.message.uuid, "moved a tool result up to its call", why)


def pair_calls(turns: list[Turn], plan: PairingPlan, options: Options) -> list[Turn]:
    """Give every tool_use exactly one result, in the user message right after its answer.

    A result that came later, or stood in the assistant's message, moves there; one that is missing is made, as an
    error; results without a call go. Results stand first, in the order of the calls. On Converse answers that follow
    one another are parted by a user message.

    Args:
        turns: the request.
        plan: which has read these turns.
        options: the request's.

    Returns:
        The turns; a new list where some were added or, being empty now, left out.
    """
    if not plan.broken:
        return turns
    out: list[Turn] = []
    due: list[_Call] = []  # calls whose results must come next
    asked: Turn | None = None  # the assistant turn that the next turn follows
    for number, turn in enumerate(turns):
        if turn.role == USER:
            _answer(turn, due, asked, options)
            due = []
            if not turn.blocks:
                options.say(_STAGE, turn.message.uuid, "dropped a user message", "nothing is left of it")
                continue
            asked = None
        else:
            if asked is not None and (turn.role != ASSISTANT or options.bedrock):
                # What follows is no user's: the results get a message of their own.
                if due:
                    out.append(_results_turn(due, asked, options))
                elif turn.role == ASSISTANT:
                    options.say(
                        _STAGE, asked.message.uuid, "added a user message", "answers must not follow one another"
                    )
                    out.append(made_user(asked.message, "between", [text_block(NO_CONTENT)]))
                due = []
            if turn.role == ASSISTANT:
                calls = plan.calls.get(number, [])
                _rename(turn, calls)
                if not turn.blocks:
                    options.say(_STAGE, turn.message.uuid, "dropped an assistant message", "nothing is left of it")
                    continue
                due += calls
                asked = turn
            else:
                asked = None
        out.append(turn)
    if due and asked is not None:
        out.append(_results_turn(due, asked, options))
    return out


def _answer(turn: Turn, due: list[_Call], asked: Turn | None, options: Options) -> None:
    """Put the results of the calls before it at the head of a user turn, in place of whatever results it holds."""
    blocks = [_answer_of(call, asked, options) for call in due]
    blocks += [block for block in turn.blocks if block.get("type") != "tool_result"]
    if len(blocks) != len(turn.blocks) or any(a is not b for a, b in zip(blocks, turn.blocks, strict=True)):
        turn.put(blocks)
        options.say(_STAGE, turn.message.uuid, "set the results of a user message", "first, one a call, in their order")


def _results_turn(due: list[_Call], asked: Turn, options: Options) -> Turn:
    return made_user(asked.message, "results", [_answer_of(call, asked, options) for call in due])


def _answer_of(call: _Call, asked: Turn | None, options: Options) -> Block:
    if call.answer is None:
        uuid = asked.message.uuid if asked is not None else None
        options.say(_STAGE, uuid, f"added an error result for the call {call.new}", "it has none in the history")
        call.answer = {"type": "tool_result", "tool_use_id": call.new, "content": MISSING_RESULT, "is_error": True}
    return call.answer


def _rename(turn: Turn, calls: list[_Call]) -> None:
    """Give the turn's calls their ids, and take out results, which aren't an assistant's."""
    blocks: list[Block] = []
    waiting = iter(calls)
    changed = False
    for block in turn.blocks:
        kind = block.get("type")
        if kind == "tool_result":
            changed = True
            continue
        if kind == "tool_use":
            call = next(waiting)
            if call.new != call.old:
                block = {**block, "id": call.new}
                changed = True
        blocks.append(block)
    if changed:
        turn.put(blocks)
