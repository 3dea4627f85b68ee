"""Calls of tools that run on the server: call and result stand in the assistant's own turn (WIRE.md §4, repair).

A call without a result is legal while it is in flight: the assistant's turn is the last (``pause_turn``), or only
results of the client's tools follow, or further calls that its code makes.
"""

from __future__ import annotations

from typing import Any, Final

from turnstream.operators.normalize.fields import SERVER_TOOLS
from turnstream.operators.normalize.ids import CLIENT_ID, SERVER_ID, CallIds
from turnstream.operators.normalize.options import Options
from turnstream.operators.normalize.turns import ASSISTANT, SYSTEM, Turn

__all__ = ["is_paused", "pair_server_calls"]

Block = dict[str, Any]

_STAGE: Final = "repair"
_CALLS: Final = frozenset({"server_tool_use", "mcp_tool_use"})
_MCP_RESULTS: Final = frozenset({"mcp_tool_result"})
_RESULTS: Final = frozenset().union(*SERVER_TOOLS.values(), _MCP_RESULTS)


class _Call:
    __slots__ = ("at", "new", "old", "results", "turn")

    def __init__(self, turn: Turn, at: int, old: Any, new: str, results: frozenset[str]) -> None:
        self.turn = turn
        self.at = at
        self.old = old
        self.new = new
        self.results = results


class _Plan:
    """What becomes of each block, by turn and place: another block, or None for none."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._server = CallIds("srvtoolu_", SERVER_ID)
        self._mcp = CallIds("mcptoolu_", CLIENT_ID)
        self.changes: dict[Turn, dict[int, Block | None]] = {}
        self.pending: dict[Any, _Call] = {}
        self.ids: dict[Any, str] = {}  # old id → new one, of the calls that stay

    def read(self, turn: Turn) -> set[Any]:
        """Look at an assistant turn; returns the ids of the calls that its tool_uses were made by."""
        made_by: set[Any] = set()
        for at, block in enumerate(turn.blocks):
            kind = block.get("type")
            if kind in _CALLS:
                self._call(turn, at, block)
            elif kind in _RESULTS:
                self._result(turn, at, block)
            elif kind == "tool_use" and "caller" in block:
                made_by.add(_name(block["caller"].get("tool_id")))
        return made_by

    def _call(self, turn: Turn, at: int, block: Block) -> None:
        old = _name(block.get("id"))
        if block["type"] == "server_tool_use":
            new = self._server.take(old)
            results = SERVER_TOOLS.get(str(block.get("name")), frozenset())
        else:
            new = self._mcp.take(old)
            results = _MCP_RESULTS
        if old in self.pending:
            self.drop(self.pending.pop(old))
        self.pending[old] = _Call(turn, at, old, new, results)
        self.ids[old] = new
        if new != block.get("id"):
            self.change(turn, at, {**block, "id": new})
            self._say(turn, f"gave the server call {old!r} the id {new}", "ids must be unique and of the API's form")

    def _result(self, turn: Turn, at: int, block: Block) -> None:
        old = _name(block.get("tool_use_id"))
        call = self.pending.get(old) if old is not None else None
        if call is None or block["type"] not in call.results:
            self.change(turn, at, None)
            self._say(turn, f"dropped a {block['type']}", "no call of its kind stands before it")
            return
        del self.pending[old]
        if call.new != old:
            self.change(turn, at, {**block, "tool_use_id": call.new})

    def drop(self, call: _Call) -> None:
        """Leave out a call that nothing answers."""
        self.change(call.turn, call.at, None)
        if self.ids.get(call.old) == call.new:
            del self.ids[call.old]
        self._say(call.turn, f"dropped the server call {call.old!r}", "it has no result and isn't in flight")

    def drop_all(self) -> None:
        """Leave out all calls that still wait."""
        for call in self.pending.values():
            self.drop(call)
        self.pending.clear()

    def blocks_of(self, turn: Turn) -> list[Block]:
        """The turn's blocks as they will be."""
        changes = self.changes.get(turn)
        if not changes:
            return turn.blocks
        kept = (changes.get(at, block) for at, block in enumerate(turn.blocks))
        return [block for block in kept if block is not None]

    def change(self, turn: Turn, at: int, block: Block | None) -> None:
        self.changes.setdefault(turn, {})[at] = block

    def _say(self, turn: Turn, what: str, why: str) -> None:
        self._options.say(_STAGE, turn.message.uuid, what, why)


def pair_server_calls(turns: list[Turn], options: Options) -> None:
    """Drop results without a call, and calls without a result that aren't in flight; give calls proper ids."""
    if not any(map(_concerns, turns)):
        return
    plan = _Plan(options)
    older: set[Any] = set()  # pending when the run of assistant turns began
    made_by: set[Any] = set()
    in_run = False
    last: Turn | None = None
    for turn in turns:
        if turn.role == SYSTEM:
            continue
        last = turn
        if turn.role == ASSISTANT:
            if not in_run:
                older, made_by, in_run = set(plan.pending), set(), True
            made_by |= plan.read(turn)
            continue
        if in_run:
            _end_run(plan, older, made_by)
            in_run = False
        if plan.pending and any(block.get("type") != "tool_result" for block in turn.blocks):
            plan.drop_all()
    if in_run and last is not None:
        _end_run(plan, older, made_by)
        if plan.pending and not options.may_prefill and not _is_paused(plan.blocks_of(last), last):
            plan.drop_all()
    for turn in plan.changes:
        turn.put(plan.blocks_of(turn))
    _callers(turns, plan.ids, options)


def _concerns(turn: Turn) -> bool:
    return turn.role == ASSISTANT and any(
        block.get("type") in _CALLS or block.get("type") in _RESULTS or "caller" in block for block in turn.blocks
    )


def _end_run(plan: _Plan, older: set[Any], made_by: set[Any]) -> None:
    for name in older - made_by:
        call = plan.pending.pop(name, None)
        if call is not None:
            plan.drop(call)


def _callers(turns: list[Turn], ids: dict[Any, str], options: Options) -> None:
    """A caller names the server call whose code called; where that is gone, so is the caller."""
    for turn in turns:
        if turn.role != ASSISTANT:
            continue
        changed: dict[int, Block] = {}
        for at, block in enumerate(turn.blocks):
            caller = block.get("caller")
            if not isinstance(caller, dict) or "tool_id" not in caller:
                continue
            new = ids.get(_name(caller["tool_id"]))
            if new is None:
                changed[at] = {key: value for key, value in block.items() if key != "caller"}
                options.say(
                    _STAGE, turn.message.uuid, "dropped a call's caller", "the server call it names isn't there"
                )
            elif new != caller["tool_id"]:
                options.say(_STAGE, turn.message.uuid, "renamed a call's caller", "the server call has a new id")
                changed[at] = {**block, "caller": {**caller, "tool_id": new}}
        if changed:
            turn.put([changed.get(at, block) for at, block in enumerate(turn.blocks)])


def is_paused(turn: Turn) -> bool:
    """Whether the model's turn goes on from here unasked: it stopped in the middle of server tools (WIRE.md §8)."""
    return turn.role == ASSISTANT and _is_paused(turn.blocks, turn)


def _is_paused(blocks: list[Block], turn: Turn) -> bool:
    kind = blocks[-1].get("type") if blocks else None
    if kind in _CALLS:
        return True
    if kind not in _RESULTS:
        return False
    answered = {_name(block.get("tool_use_id")) for block in blocks if block.get("type") in _RESULTS}
    open_call = any(block.get("type") in _CALLS and _name(block.get("id")) not in answered for block in blocks)
    return open_call or turn.message.message.get("stop_reason") == "pause_turn"


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) else None
