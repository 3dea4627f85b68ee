"""``group_tool_uses``: consecutive uses of one tool in one answer, shown as one (WIRE.md §5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, overload

from turnstream.messages.ids import derive_uuid
from turnstream.messages.types import AssistantMessage, GroupedToolUse
from turnstream.operators.display.parts import PASSING, Item, answer_of, result_id, tool_use
from turnstream.operators.stage import Fault, Operator, lift, run_stages

__all__ = ["GroupToolUses", "derived_from", "group_tool_uses", "ungroup"]


class GroupToolUses:
    """The stage: two or more uses of one tool by one API message become a ``GroupedToolUse``.

    Consecutive means that nothing but results of these very uses comes in between; in a reordered list each
    result is right behind its use. A hook's output, a text, another tool end a run. An answer without an id
    isn't known to be one, so its uses stay single. Process items pass at once and end nothing, except a
    ``stream_request_start``.

    Memory: the run that is open; a single use is held, too, until something follows that isn't its result.
    A display that must show a tool while it runs groups its list, not its stream.
    """

    def __init__(self) -> None:
        self._run: list[Any] = []
        self._uses: dict[str, Any] = {}
        self._name: str | None = None
        self._answer: str | None = None

    def feed(self, batch: Sequence[Item], /) -> Sequence[Item | Fault]:
        """Take one batch."""
        out: list[Any] = []
        run = self._run
        for item in batch:
            use = tool_use(item)
            if use is not None:
                name, answer = use.get("name"), answer_of(item)
                if not (run and answer == self._answer and name == self._name and use["id"] not in self._uses):
                    if run:
                        self._end(out)
                    if answer is None or name.__class__ is not str:
                        out.append(item)
                        continue
                    self._name, self._answer = name, answer
                self._uses[use["id"]] = item
                run.append(item)
            elif run and result_id(item) in self._uses:
                run.append(item)
            else:
                if run and item.__class__ not in PASSING:
                    self._end(out)
                out.append(item)
        return out

    def _end(self, out: list[Any]) -> None:
        run, uses = self._run, self._uses
        if len(uses) < 2:
            out.extend(run)
        else:
            first = run[0]
            grouped = GroupedToolUse(
                tool_name=self._name or "",
                messages=list(uses.values()),
                results=[item for item in run if item.__class__ is not AssistantMessage],
                uuid=derived_from(first.uuid, "grouped"),
                timestamp=first.timestamp,
            )
            if [*map(id, run)] != [*map(id, _as_reordered(grouped))]:
                # Only a list that wasn't reordered needs it, so it is no part of the item's value.
                grouped.__dict__["order"] = tuple(item.__class__ is AssistantMessage for item in run)  # pyright: ignore[reportIndexIssue]
            out.append(grouped)
        run.clear()
        uses.clear()

    def flush(self) -> Sequence[Item | Fault]:
        """The end of the run."""
        out: list[Any] = []
        if self._run:
            self._end(out)
        return out

    def fail(self, error: Exception, /) -> Sequence[Item | Fault]:
        """The end of the run."""
        return self.flush()


def derived_from(parent: str, kind: str) -> str:
    """The uuid of a display item of ``kind`` made of messages, the first of which is ``parent``."""
    return derive_uuid(f"{kind}/{parent}".encode("utf-8", "backslashreplace").decode(), 0)


def _merged(group: GroupedToolUse, order: Sequence[bool]) -> list[Any]:
    uses, results = iter(group.messages), iter(group.results)
    return [next(uses if is_use else results) for is_use in order]


def _as_reordered(group: GroupedToolUse) -> list[Any]:
    """Each use with its results behind it; a result of none of them (a foreign group's) comes last."""
    of: dict[Any, list[Any]] = {}
    for result in group.results:
        of.setdefault(result_id(result), []).append(result)
    out: list[Any] = []
    for message in group.messages:
        out.append(message)
        use = tool_use(message)
        if use is not None:
            out.extend(of.pop(use["id"], ()))
    for rest in of.values():
        out.extend(rest)
    return out


def ungroup(items: Iterable[Item], /) -> list[Item]:
    """Take groups apart again: ``ungroup(group_tool_uses(x))`` is ``x``.

    A group read from the wire comes apart in the order of ``reorder_tool_groups``. The exception to the rule:
    process items that stood within a group (stream events, notes) stand before it.
    """
    out: list[Any] = []
    for item in items:
        if isinstance(item, GroupedToolUse):
            order = item.__dict__.get("order")
            out.extend(_as_reordered(item) if order is None else _merged(item, order))
        else:
            out.append(item)
    return out


@overload
def group_tool_uses() -> Operator[Item, Item]: ...
@overload
def group_tool_uses(messages: Iterable[Item], /) -> list[Item]: ...
def group_tool_uses(messages: Iterable[Item] | None = None, /) -> Operator[Item, Item] | list[Item]:
    """Consecutive uses of one tool in one answer become a ``GroupedToolUse`` (WIRE.md §5).

    Its ``messages`` are the uses, its ``results`` their results, the objects themselves; its uuid is derived
    from the first use's, so it stays when the group grows. :func:`ungroup` takes it apart.

    Args:
        messages: a list, best reordered; without it the operator is returned.
    """
    operator: Operator[Item, Item] = lift(GroupToolUses, "group_tool_uses")
    return operator if messages is None else run_stages(messages, operator)
