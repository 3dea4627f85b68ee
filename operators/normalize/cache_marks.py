"""Cache marks: their shape, their number, their order (WIRE.md §4, repair; FAULTS.md 65, 73)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from turnstream.operators.normalize.options import Options
from turnstream.operators.normalize.turns import Turn

__all__ = ["MOST_MARKS", "clean_mark", "limit_marks"]

Block = dict[str, Any]
Say = Callable[[str, str], None]

MOST_MARKS: Final = 4
"""Blocks of one request that may have a mark, in tools, system and messages together (the API's error text)."""
_TTLS: Final = ("5m", "1h")


def clean_mark(block: Block, say: Say) -> Block:
    """The block with a mark that the API takes, or without one."""
    mark = block["cache_control"]
    if isinstance(mark, dict) and mark.get("type") == "ephemeral":
        if mark.keys() <= {"type", "ttl"} and ("ttl" not in mark or mark["ttl"] in _TTLS):
            return block
        mended = {"type": "ephemeral"}
        if mark.get("ttl") in _TTLS:
            mended["ttl"] = mark["ttl"]
        say("mended a cache mark", "it has a ttl of 5m or 1h and nothing else")
        return {**block, "cache_control": mended}
    if mark is not None:
        say("dropped a cache mark", "its type must be ephemeral")
    return _unmarked(block)


def limit_marks(turns: list[Turn], options: Options) -> None:
    """Keep the newest marks: at most four, less those used outside the messages; no 1h mark after a 5m mark."""
    marked = [(turn, places) for turn in turns if (places := _marked(turn.blocks))]
    if not marked:
        return
    first = sum(len(places) for _, places in marked) - max(0, MOST_MARKS - options.reserved_cache_marks)
    short = False
    number = 0
    for turn, places in marked:
        changed: dict[int, Block] = {}
        for at in places:
            block = turn.blocks[at]
            if number < first:
                changed[at] = _unmarked(block)
                options.say("repair", turn.message.uuid, "dropped a cache mark", "there are too many; the newest count")
            elif block["cache_control"].get("ttl") != "1h":
                short = True
            elif short:
                changed[at] = {**block, "cache_control": {"type": "ephemeral"}}
                options.say("repair", turn.message.uuid, "made a 1h cache mark a 5m one", "it comes after a 5m mark")
            number += 1
        if changed:
            turn.put([changed.get(at, block) for at, block in enumerate(turn.blocks)])


def _marked(blocks: list[Block]) -> list[int]:
    return [at for at, block in enumerate(blocks) if "cache_control" in block]


def _unmarked(block: Block) -> Block:
    return {key: value for key, value in block.items() if key != "cache_control"}
