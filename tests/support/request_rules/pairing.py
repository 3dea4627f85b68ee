"""Calls and results, judged on merged turns."""

from __future__ import annotations

from request_rules.rules import Violation
from request_rules.shapes import ANSWERS, SERVER_RESULTS, SERVER_USES
from request_rules.turns import Turn


def _id(value: object) -> str | None:
    return value if isinstance(value, str) else None


def check_calls(turns: list[Turn], out: list[Violation]) -> None:
    """The client's tools: each call answered once in the next turn, results first and of this turn's calls."""
    asked: dict[str, str] = {}
    for turn in turns:
        if turn.role == "assistant":
            asked = _calls(turn, out)
            if asked and turn is turns[-1]:
                _unanswered(asked, out)
        else:
            _results(turn, asked, out)
            asked = {}


def _calls(turn: Turn, out: list[Violation]) -> dict[str, str]:
    asked: dict[str, str] = {}
    for entry, number, facts in turn.blocks:
        if facts.type != "tool_use":
            continue
        name = _id(facts.block.get("id"))
        if name is None:
            continue
        if name in asked:
            out.append(Violation("tool-use-id-duplicate", f"{entry.path(number)}.id", "ids must be unique"))
        else:
            asked[name] = entry.path(number)
    return asked


def _results(turn: Turn, asked: dict[str, str], out: list[Violation]) -> None:
    answered: set[str] = set()
    other = False
    for entry, number, facts in turn.blocks:
        if facts.type != "tool_result":
            other = True
            continue
        path = entry.path(number)
        if other:
            out.append(Violation("tool-result-not-first", path, "`tool_result` blocks come first, contiguous"))
        name = _id(facts.block.get("tool_use_id"))
        if name is None:
            continue
        if name not in asked:
            out.append(Violation("tool-result-orphan", path, f"unexpected `tool_use_id`: {name}"))
        elif name in answered:
            out.append(Violation("tool-result-duplicate", path, f"multiple `tool_result` blocks with id: {name}"))
        answered.add(name)
    _unanswered({name: path for name, path in asked.items() if name not in answered}, out)


def _unanswered(asked: dict[str, str], out: list[Violation]) -> None:
    for name, path in asked.items():
        out.append(
            Violation(
                "tool-use-unanswered",
                path,
                f"`tool_use` ids were found without `tool_result` blocks immediately after: {name}",
            )
        )


def check_server_calls(turns: list[Turn], out: list[Violation]) -> None:
    """Server tools: their results stand in the assistant's own turn.

    A call may lack its result while in flight: its turn is the last (pause_turn), or what follows is turns of
    tool_results only (recorded 200s), or further calls that its code made.
    """
    pending: dict[str, tuple[str, frozenset[str]]] = {}
    for turn in turns:
        if turn.role == "user":
            if pending and any(facts.type != "tool_result" for _, _, facts in turn.blocks):
                _forgotten(pending, out)
            continue
        before = set(pending)
        called_by: set[str | None] = set()
        for entry, number, facts in turn.blocks:
            kind = facts.type
            if kind in SERVER_USES:
                _open(pending, entry.path(number), facts.block, kind, out)
            elif kind in ANSWERS:
                name = _id(facts.block.get("tool_use_id"))
                wanted = pending.pop(name, None) if name is not None else None
                if name is not None and (wanted is None or kind not in wanted[1]):
                    out.append(Violation("server-result-orphan", entry.path(number), f"unexpected: {name}"))
            elif kind == "tool_use" and isinstance(facts.block.get("caller"), dict):
                called_by.add(_id(facts.block["caller"].get("tool_id")))
        left = {name: pending[name] for name in before if name in pending and name not in called_by}
        if left:
            _forgotten(left, out)
            for name in left:
                pending.pop(name, None)


def _open(
    pending: dict[str, tuple[str, frozenset[str]]], path: str, block: dict[str, object], kind: str, out: list[Violation]
) -> None:
    name = _id(block.get("id"))
    if name is None:
        return
    if name in pending:
        out.append(Violation("tool-use-id-duplicate", f"{path}.id", "ids must be unique"))
    results = SERVER_RESULTS.get(str(block.get("name")), frozenset())
    pending[name] = (path, results if kind == "server_tool_use" else frozenset({"mcp_tool_result"}))


def _forgotten(pending: dict[str, tuple[str, frozenset[str]]], out: list[Violation]) -> None:
    for name, (path, _) in list(pending.items()):
        out.append(Violation("server-tool-unanswered", path, f"{name} was found without a corresponding result block"))
        del pending[name]
