"""The messages of one answer as one message (WIRE.md §4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnstream.messages import AssistantMessage, replace
from turnstream.operators.normalize.contents import blocks_of, lost_items
from turnstream.operators.normalize.log import Explain, Repair

__all__ = ["merge_answer"]

Block = dict[str, Any]


class _Twins:
    """In which part a block was met first: anywhere, without an index, and at each index."""

    __slots__ = ("anywhere", "indexed", "unindexed")

    def __init__(self) -> None:
        self.anywhere: int | None = None
        self.unindexed: int | None = None
        self.indexed: dict[int, int] = {}

    def find(self, part: int, index: int | None) -> bool:
        """Whether another part has the block, at a place that may be the same."""
        # Parts come in order: if the first that has it is this one, all are.
        if index is None:
            return self.anywhere != part and self.anywhere is not None
        if self.unindexed is not None and self.unindexed != part:
            return True
        return self.indexed.get(index, part) != part

    def add(self, part: int, index: int | None) -> None:
        """The block is met and kept."""
        if self.anywhere is None:
            self.anywhere = part
        if index is not None:
            self.indexed.setdefault(index, part)
        elif self.unindexed is None:
            self.unindexed = part


def merge_answer(
    parts: Sequence[AssistantMessage], request_id: str | None, explain: Explain | None = None
) -> AssistantMessage:
    """One message of the blocks of ``parts``: envelope of the first, ``message`` fields of the last.

    A block's place is its index in the answer (``index``, else ``block_index``, else after all before it: the
    wire names an index only where the order differs), so that thinking stands where the model put it. A block that repeats one of another part is
    left out, unless both have an index and it differs: an answer may say the same twice. Blocks are never
    joined or changed.

    Returns:
        ``parts[0]`` itself where it is the only part and its content is a list of blocks.
    """
    first = parts[0]
    if len(parts) == 1:
        return _alone(first, explain)
    placed: list[tuple[int, Block]] = []
    seen: dict[str, _Twins] | None = {} if _may_repeat(parts) else None
    highest = -1
    for number, part in enumerate(parts):
        content = part.message.get("content")
        if explain is not None and (lost := lost_items(content)):
            explain(Repair("merge", part.uuid or None, f"dropped {lost} item(s) of its content", "not a content block"))
        index = part.index if part.index is not None else part.block_index
        for offset, block in enumerate(blocks_of(content)):
            known = None if index is None else index + offset
            twins: _Twins | None = None
            if seen is not None:
                name = _fingerprint(block)
                twins = seen.get(name)
                if twins is None:
                    twins = seen[name] = _Twins()
                elif twins.find(number, known):
                    if explain is not None:
                        what = f"dropped a repeated {block.get('type')} block"
                        explain(Repair("merge", part.uuid or None, what, "the answer holds it already"))
                    continue
            place = highest + 1 if known is None else known
            highest = max(highest, place)
            if twins is not None:
                twins.add(number, known)
            placed.append((place, block))
    placed.sort(key=_place)
    return replace(
        first,
        message={**parts[-1].message, "content": [block for _, block in placed]},
        request_id=request_id,
        # They speak of single blocks; what they forbid to send is gone (filter), the rest shows in the block.
        is_aborted_mid_stream=None,
        block_index=None,
        index=None,
        invalid_tool_input=None,
        unapplied_deltas=None,
        unfinished_tool_inputs=None,
    )


def _alone(part: AssistantMessage, explain: Explain | None) -> AssistantMessage:
    content = part.message.get("content")
    blocks = blocks_of(content)
    if blocks is content:
        return part
    if explain is not None and (lost := lost_items(content)):
        explain(Repair("merge", part.uuid or None, f"dropped {lost} item(s) of its content", "not a content block"))
    return replace(part, message={**part.message, "content": blocks})


def _place(placed: tuple[int, Block]) -> int:
    return placed[0]


def _may_repeat(parts: Sequence[AssistantMessage]) -> bool:
    """Whether two blocks may be equal; cheap, because they mostly aren't."""
    tokens: list[Any] = []
    for part in parts:
        for block in blocks_of(part.message.get("content")):
            get = block.get
            tokens.append(get("id") or get("text") or get("signature") or get("tool_use_id") or get("type"))
    try:
        return len(set(tokens)) < len(tokens)
    except TypeError:  # unhashable: not the API's
        return True


def _fingerprint(block: Block) -> str:
    """The same for equal blocks (whatever the order of their keys), and cheap for text."""
    if len(block) == 2 and block.get("type") == "text" and isinstance(block.get("text"), str):
        return f"text:{block['text']}"
    try:
        return repr(sorted(block.items(), key=_key))
    except RecursionError:  # nested deeper than repr goes: equal to itself alone
        return f"id:{id(block)}"


def _key(item: tuple[Any, Any]) -> str:
    return str(item[0])
