"""Where a conversation may be cut: never inside a tool group, never inside an answer (WIRE.md §6)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from turnstream.messages import AssistantMessage, AttachmentMessage, QueryItem, UserMessage
from turnstream.operators.compaction.estimate import CHARACTERS_PER_TOKEN, answer_start, characters_of, has_results

__all__ = ["borders", "choose_cut", "is_talk"]


def is_talk(item: Any) -> bool:
    """True of what a summary stands for: user and assistant messages, but no earlier summary."""
    return isinstance(item, AssistantMessage) or (isinstance(item, UserMessage) and not item.is_compact_summary)


def _blocks(item: Any) -> list[dict[str, Any]]:
    content = item.message.get("content") if isinstance(item, (UserMessage, AssistantMessage)) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def borders(messages: Sequence[QueryItem]) -> list[bool]:
    """For each position 0 … n whether the list may be cut before it.

    Not between a ``tool_use`` and its last result, nor behind a use of the last answer that has no result
    yet (it is still to come), nor inside one answer's blocks, nor right before a result without use.
    """
    size = len(messages)
    # +1 where a span begins to forbid cuts, -1 behind its end.
    change = [0] * (size + 2)

    def forbid(first: int, last: int) -> None:
        if first <= last:
            change[first] += 1
            change[last + 1] -= 1

    uses: dict[str, int] = {}
    answered: set[tuple[str, int]] = set()
    final = _last_answer(messages)
    for position, item in enumerate(messages):
        for block in _blocks(item):
            kind = block.get("type")
            if kind == "tool_use" and isinstance(block.get("id"), str):
                uses[block["id"]] = position
            elif kind == "tool_result":
                ident = block.get("tool_use_id")
                use = uses.get(ident) if isinstance(ident, str) else None
                if use is None:
                    forbid(position, position)
                else:
                    answered.add((str(ident), use))
                    forbid(use + 1, position)
    if final is not None:
        for ident, use in uses.items():
            if use >= final and (ident, use) not in answered:
                forbid(use + 1, size)
    last = size - 1
    while last >= 0:
        if isinstance(messages[last], AssistantMessage):
            first = answer_start(messages, last)
            forbid(first + 1, last)
            last = first
        last -= 1
    return [count == 0 for count in accumulate(change[: size + 1])]


def _last_answer(messages: Sequence[Any]) -> int | None:
    """Where the last answer begins if the conversation still waits behind it for results."""
    for position in range(len(messages) - 1, -1, -1):
        item = messages[position]
        if isinstance(item, AssistantMessage):
            return answer_start(messages, position)
        if isinstance(item, UserMessage) and not has_results(item):
            return None
    return None


def choose_cut(
    messages: Sequence[QueryItem],
    keep_recent: int,
    budget: float = float("inf"),
) -> int | None:
    """The position from which messages are kept as they are; what is before is summarized.

    The last border behind which at least ``keep_recent`` user and assistant messages stand. If that
    leaves nothing to summarize, or keeps more than ``budget`` tokens (by characters), a later one. A prompt at the end
    that has no answer yet is always kept.

    Returns:
        The position, None if there is nothing to summarize.
    """
    allowed = borders(messages)
    latest = _open_prompt(messages)
    places = [position for position in range(len(messages) + 1) if allowed[position] and position <= latest]
    first_talk = next((position for position, item in enumerate(messages) if is_talk(item)), len(messages))
    places = [position for position in places if position > first_talk]
    if not places:
        return None
    wanted, talk = 0, 0
    for position in range(len(messages), -1, -1):
        if position < len(messages) and is_talk(messages[position]):
            talk += 1
        if talk >= keep_recent and allowed[position]:
            wanted = position
            break
    # `wanted` may lie behind the open prompt: the prompt is kept then.
    candidates = [position for position in places if position >= wanted] or places[-1:]
    chosen = candidates[-1]
    weight, behind = 0, len(messages)
    for position in reversed(candidates):
        weight += sum(map(characters_of, messages[position:behind]))
        behind = position
        if weight > budget * CHARACTERS_PER_TOKEN:
            break
        chosen = position
    return chosen


def _open_prompt(messages: Sequence[Any]) -> int:
    """Where a prompt begins that ends the list and has no answer yet; the list's length if there is none."""
    start = len(messages)
    for position in range(len(messages) - 1, -1, -1):
        item = messages[position]
        if isinstance(item, AssistantMessage):
            break
        if isinstance(item, UserMessage):
            if has_results(item) or item.is_compact_summary:
                break
            start = position
        elif isinstance(item, AttachmentMessage) and item.attachment.get("type") == "queued_command":
            start = position  # a prompt too: it came while the model worked
    return start
