"""Who may speak when: the system role, the last message, Converse's alternation."""

from __future__ import annotations

from request_rules.models import Model
from request_rules.rules import Violation
from request_rules.shapes import ANSWERS, SERVER_SIDE
from request_rules.turns import Entry, Turn


def check_system_entries(entries: list[Entry], model: Model, bedrock: bool, out: list[Violation]) -> None:
    """System entries: only on models that take them, after a user turn (or server result), before an answer."""
    before: Entry | None = None
    waiting: list[Entry] = []
    for entry in entries:
        path = f"messages.{entry.index}"
        if entry.role != "system":
            if entry.role == "user":
                out.extend(_misplaced(each, "must precede an answer or be last") for each in waiting)
            waiting.clear()
            before = entry
        elif bedrock or not model.takes_system_role:
            out.append(Violation("role-system", f"{path}.role", 'Unexpected role "system".'))
        else:
            waiting.append(entry)
            answered = before is not None and before.blocks and before.blocks[-1].type in ANSWERS
            if before is None or (before.role == "assistant" and not answered):
                out.append(_misplaced(entry, "must follow a user turn"))


def _misplaced(entry: Entry, said: str) -> Violation:
    return Violation("system-placement", f"messages.{entry.index}", f"a system message {said}")


def check_end(
    turns: list[Turn], entries: list[Entry], model: Model, refuse_prefill: bool, out: list[Violation]
) -> None:
    """A conversation that ends with the assistant: a prefill, or a paused turn of server tools."""
    if not turns or turns[-1].role != "assistant" or entries[-1].role == "system":
        return
    entry = turns[-1].entries[-1]
    last = entry.blocks[-1] if entry.blocks else None
    path = f"messages.{entry.index}"
    if last is not None and last.type in SERVER_SIDE:
        return
    if model.refuses_prefill:
        out.append(Violation("prefill-unsupported", path, "The conversation must end with a user message."))
    elif refuse_prefill:
        out.append(Violation("prefill-refused", path, "no prefill was asked for"))
    if last is not None and last.text is not None and last.text != last.text.rstrip():
        where = entry.path(len(entry.blocks) - 1)
        out.append(Violation("prefill-whitespace", where, "cannot end with trailing whitespace"))


def check_converse(entries: list[Entry], has_tools: bool, out: list[Violation]) -> None:
    """Bedrock's Converse, stated on Messages shapes."""
    before = None
    for entry in entries:
        path = f"messages.{entry.index}"
        if before is None and entry.role != "user":
            out.append(Violation("bedrock-first", path, "A conversation must start with a user message."))
        if before is not None and entry.role == before:
            out.append(
                Violation("bedrock-alternate", path, "A conversation must alternate between user and assistant.")
            )
        before = entry.role
        for number, facts in enumerate(entry.blocks):
            if not has_tools and facts.type in ("tool_use", "tool_result"):
                out.append(Violation("bedrock-tools", entry.path(number), "The toolConfig field must be defined"))
            if facts.text is not None and facts.text.isspace() and entry.role == "assistant":
                out.append(Violation("text-whitespace", entry.path(number), "The text field is blank"))
