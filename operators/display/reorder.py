"""``reorder_tool_groups``: tool_use → its pre-hooks → its result → its post-hooks (WIRE.md §5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, overload

from turnstream.messages.events import MessageStart
from turnstream.messages.kinds import holds_result
from turnstream.messages.types import AssistantMessage, RequestStart, SystemMessage, UserMessage
from turnstream.operators.display.parts import PASSING, Item, Role, answer_of, role_of
from turnstream.operators.stage import Fault, Operator, lift, run_stages

__all__ = ["ReorderToolGroups", "reorder_tool_groups"]

_PLACE: Final[dict[Role, int]] = {"pre": 0, "result": 1, "post": 2}


class ReorderToolGroups:
    """The stage: behind every tool_use comes what belongs to it, everything else keeps its order.

    It takes what ``split_blocks`` gives; a message with several blocks stays where it is. An item belongs to
    the nearest use of its id before it, else to the first one behind it; if there is none in the list it
    stays in place. Hooks are attachments ``hook_…`` and progress ``hook_progress`` of the events PreToolUse,
    PostToolUse and PostToolUseFailure; those of other events, and other progress, stay in place.

    Memory: everything from the first item of a group on, until the flush: a hook may come as late as it
    likes. With ``within_answer`` what belongs together is looked for within one answer and what its tools
    bring, so that is all that is held.

    Args:
        within_answer: let go when the next request begins: at the first assistant message of another API
            message, a ``message_start`` of another, a ``stream_request_start``, a user's words, a compact
            boundary. What comes later stays in place. Stream events, which drive a display and aren't listed,
            pass at once. Not for a list in which answers of sub-agents are mixed with others.
    """

    def __init__(self, within_answer: bool = False) -> None:
        self._within = within_answer
        self._held: list[Any] = []
        self._answer: str | None = None

    def feed(self, batch: Sequence[Item], /) -> Sequence[Item | Fault]:
        """Take one batch."""
        if self._within:
            return self._feed_within(batch)
        held = self._held
        if held:
            held.extend(batch)
            return ()
        for at, item in enumerate(batch):
            if role_of(item) is not None:
                held.extend(batch[at:])
                return batch[:at]
        return batch

    def _feed_within(self, batch: Sequence[Item]) -> list[Item | Fault]:
        out: list[Any] = []
        for item in batch:
            cls = item.__class__
            if self._held and self._ends(item):
                out.extend(self.flush())
            if cls in PASSING:
                out.append(item)
            elif self._held:
                self._held.append(item)
            else:
                role = role_of(item)
                if role is not None and role[0] == "use":
                    self._held.append(item)
                    self._answer = answer_of(item)
                else:
                    out.append(item)
        return out

    def _ends(self, item: Any) -> bool:
        """Whether the held answer's tools are done when ``item`` comes."""
        cls = item.__class__
        if cls is AssistantMessage:
            return answer_of(item) != self._answer
        if cls is UserMessage:
            return not item.is_meta and not holds_result(item.message.get("content"))
        if cls is MessageStart:
            return not isinstance(item.message, dict) or item.message.get("id") != self._answer
        return cls is RequestStart or (cls is SystemMessage and item.subtype == "compact_boundary")

    def flush(self) -> Sequence[Item | Fault]:
        """The end: nothing more can belong to anything."""
        held, self._held = self._held, []
        return _reordered(held)

    def fail(self, error: Exception, /) -> Sequence[Item | Fault]:
        """The end: nothing more can belong to anything."""
        return self.flush()


def _reordered(items: list[Any]) -> list[Any]:
    groups: dict[int, list[tuple[int, Any]]] = {}
    uses: dict[str, int] = {}
    early: dict[str, list[tuple[int, int]]] = {}
    moved = bytearray(len(items))
    for at, item in enumerate(items):
        role = role_of(item)
        if role is None:
            continue
        what, tool = role
        if what == "use":
            uses[tool] = at
            for place, before in early.pop(tool, ()) if early else ():
                groups.setdefault(at, []).append((place, items[before]))
                moved[before] = 1
        elif tool in uses:
            groups.setdefault(uses[tool], []).append((_PLACE[what], item))
            moved[at] = 1
        else:
            early.setdefault(tool, []).append((_PLACE[what], at))
    out: list[Any] = []
    for at, item in enumerate(items):
        if moved[at]:
            continue
        out.append(item)
        members = groups.get(at)
        if members is not None:
            if len(members) > 1:
                members.sort(key=_place_of)
            out.extend([member for _, member in members])
    return out


def _place_of(member: tuple[int, Any]) -> int:
    return member[0]


@overload
def reorder_tool_groups(*, within_answer: bool = False) -> Operator[Item, Item]: ...
@overload
def reorder_tool_groups(messages: Iterable[Item], /, *, within_answer: bool = False) -> list[Item]: ...
def reorder_tool_groups(
    messages: Iterable[Item] | None = None, /, *, within_answer: bool = False
) -> Operator[Item, Item] | list[Item]:
    """Behind every tool_use its pre-hooks, its result and its post-hooks (WIRE.md §5); O(n).

    Args:
        messages: what ``split_blocks`` gave; without it the operator is returned.
        within_answer: see :class:`ReorderToolGroups`. The operator holds everything from the first tool on
            until the end without it, and one answer with it.

    Returns:
        The same items in the new order, or the operator, which says the same as the list function with the
        same ``within_answer``, however its input is cut into batches. Reordering again changes nothing.
    """
    operator: Operator[Item, Item] = lift(lambda: ReorderToolGroups(within_answer), "reorder_tool_groups")
    return operator if messages is None else run_stages(messages, operator)
