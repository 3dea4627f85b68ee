"""Messages as the API reads them: each one's blocks, and the runs of one role that it merges.

Recorded 200s have consecutive messages of one role, so pairing is judged after merging. A system entry stands
between turns and doesn't part a run (where it may stand is its own rule).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from request_rules.blocks import Ways, look, look_at_text
from request_rules.facts import Facts
from request_rules.memo import Memo
from request_rules.rules import Violation
from request_rules.shapes import SIDE_OF_CALLS

ROLES = frozenset({"user", "assistant", "system"})
_STRING = "(string)"
_FIELDS = frozenset({"role", "content"})
_SYSTEM_FIELDS = _FIELDS | {"clear_at", "output_config"}


class Entry:
    """One message: its place, role and blocks (a string is one text block)."""

    __slots__ = ("blocks", "index", "is_string", "role")

    def __init__(self, index: int, role: str, blocks: list[Facts], is_string: bool) -> None:
        self.index = index
        self.role = role
        self.blocks = blocks
        self.is_string = is_string

    def path(self, number: int) -> str:
        return f"messages.{self.index}.content" if self.is_string else f"messages.{self.index}.content.{number}"


class Turn:
    """A run of messages of one role: its blocks in order, each with its entry and number there."""

    __slots__ = ("blocks", "entries", "role")

    def __init__(self, role: str) -> None:
        self.role = role
        self.entries: list[Entry] = []
        self.blocks: list[tuple[Entry, int, Facts]] = []

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.blocks.extend((entry, number, facts) for number, facts in enumerate(entry.blocks))


def read(messages: Iterable[Any], ways: Ways, memo: Memo | None, out: list[Violation]) -> list[Entry]:
    """The messages' entries; what is wrong with a message or a block alone goes to ``out``."""
    entries: list[Entry] = []
    tables: dict[str, dict[int, tuple[Any, Facts]]] = {}
    last = -1
    for index, message in enumerate(messages):
        last = index
        entry = _entry(message, index, ways, memo, tables, out)
        if entry is not None:
            entries.append(entry)
    for entry in entries:
        _problems(entry, entry.index == last, out)
    return entries


def _entry(
    message: Any,
    index: int,
    ways: Ways,
    memo: Memo | None,
    tables: dict[str, dict[int, tuple[Any, Facts]]],
    out: list[Violation],
) -> Entry | None:
    path = f"messages.{index}"
    if not isinstance(message, dict):
        out.append(Violation("message-shape", path, "Input does not match the expected shape."))
        return None
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        out.append(Violation("role-unknown", f"{path}.role", "Input should be 'user' or 'assistant'"))
        role = "user"
    fields = _SYSTEM_FIELDS if role == "system" else _FIELDS
    if not message.keys() <= fields:
        for name in sorted(map(str, message.keys() - fields)):
            out.append(Violation("message-shape", f"{path}.{name}", "Extra inputs are not permitted"))
    content = message.get("content")
    if isinstance(content, str):
        blocks = [_known(content, _STRING, ways, memo, tables)] if content else []
        return Entry(index, role, blocks, True)
    if isinstance(content, list):
        return Entry(index, role, [_known(block, role, ways, memo, tables) for block in content], False)
    said = "Input should be a valid list" if "content" in message else "Field required"
    out.append(Violation("content-shape", f"{path}.content", said))
    return None


def _known(
    block: Any, role: str, ways: Ways, memo: Memo | None, tables: dict[str, dict[int, tuple[Any, Facts]]]
) -> Facts:
    """A block's facts; ``role`` is ``_STRING`` for a message's string content."""
    if memo is None:
        return look_at_text(block, ways) if role is _STRING else look(block, role, ways)
    table = tables.get(role)
    if table is None:
        table = tables[role] = memo.table((role, ways.key))
    found = table.get(id(block))
    if found is None:
        facts = look_at_text(block, ways) if role is _STRING else look(block, role, ways)
        found = table[id(block)] = (block, facts)
    return found[1]


def _problems(entry: Entry, is_last: bool, out: list[Violation]) -> None:
    """A message's own: emptiness, its blocks' problems, whitespace (which looks at the blocks beside it)."""
    role = entry.role
    if not entry.blocks and not (is_last and role == "assistant"):
        out.append(
            Violation(
                "content-empty",
                f"messages.{entry.index}.content",
                "all messages must have non-empty content except for the optional final assistant message",
            )
        )
    for number, facts in enumerate(entry.blocks):
        for rule, path, said in facts.problems:
            base = entry.path(number)
            out.append(Violation(rule, f"{base}.{path}" if path and not entry.is_string else base, said))
        if facts.text is not None and facts.text.isspace():
            beside = role == "assistant" and any(each.type in SIDE_OF_CALLS for each in entry.blocks)
            if not beside:
                out.append(Violation("text-whitespace", entry.path(number), "must contain non-whitespace text"))


def merge(entries: Iterable[Entry]) -> list[Turn]:
    """The runs of user and assistant messages."""
    turns: list[Turn] = []
    for entry in entries:
        if entry.role == "system":
            continue
        if not turns or turns[-1].role != entry.role:
            turns.append(Turn(entry.role))
        turns[-1].add(entry)
    return turns
