"""What a message costs to normalize, and whether that stays so when a conversation grows.

A rule that looks back over all messages for each one is fast in every test and unusable in a long session; so
the figure that has a bar isn't the time of a message but how it grows from one decade to the next.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Any, Final

from turnstream.bench.conversation import make_conversation
from turnstream.bench.rows import Decades, SessionTime
from turnstream.messages import Message, MessageLookups
from turnstream.operators.display import for_display, reorder_tool_groups, split_blocks
from turnstream.operators.normalize import normalize_for_api

__all__ = ["OPERATIONS", "PLAIN", "SESSION", "SIZES", "grow_messages", "time_session"]

SIZES: Final = (1_000, 10_000, 100_000)
"""Messages."""

SESSION: Final = 2_800
"""Messages of the session whose way to the display is told."""

Operation = Callable[[list[Any]], Any]


def _display(messages: list[Message]) -> Any:
    return reorder_tool_groups(split_blocks(messages))


def _plain(messages: list[Message]) -> Any:
    return [[getattr(message, "message", None) for message in messages] for _ in range(12)]


PLAIN: Final[tuple[str, Operation]] = ("twelve plain loops, to compare", _plain)
"""As many passes as normalization makes, each only looking at every message. How that grows is the machine's
doing: what was just made or looked at is still in the processor's caches, unless too much came since."""

OPERATIONS: Final[tuple[tuple[str, Operation], ...]] = (
    ("normalize_for_api", normalize_for_api),
    ("split_blocks + reorder_tool_groups", _display),
    ("MessageLookups", MessageLookups),
)
"""What is measured: a name and a function of the messages."""


def grow_messages(
    sizes: Sequence[int] = SIZES,
    operations: Sequence[tuple[str, Operation]] = (*OPERATIONS, PLAIN),
    *,
    rounds: int = 5,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Decades]:
    """The time of each operation per message, over conversations of different lengths.

    All sizes go through the same messages in the same order: as one conversation of the largest size, as ten of a
    tenth, and so on, so that the first look at a message is as slow for all. Later ones aren't: ``PLAIN`` shows how
    much of the growth that makes up. The smallest time of each size counts: what else the machine does only ever adds. As in ``timeit``, no
    garbage is collected while the clock runs.

    Args:
        sizes: messages, the smallest first, each a multiple of the one before.
        operations: each a name and a function.
        rounds: how often each runs on each size, in turn; before them each runs once uncounted.
        tell: called with a line of progress before each round.
    """
    smallest, largest = sizes[0], sizes[-1]
    parts = [make_conversation(smallest, seed=seed) for seed in range(largest // smallest)]
    cut = [
        [list(chain.from_iterable(parts[at : at + size // smallest])) for at in _starts(size, sizes)] for size in sizes
    ]
    best: dict[str, list[float]] = {name: [float("inf")] * len(sizes) for name, _ in operations}
    for number in range(rounds + 1):
        tell(f"growth, round {number} of {rounds} …" if number else "growth, warming up …")
        for place, conversations in enumerate(cut):
            for name, operation in operations:
                taken = _once(operation, conversations)
                if number > 0:
                    best[name][place] = min(best[name][place], taken / largest * 1e6)
    return [
        Decades(
            operation=name,
            messages=list(sizes),
            us_per_message=[round(each, 4) for each in times],
            ratios=[round(larger / smaller, 4) for smaller, larger in pairwise(times)],
        )
        for name, times in best.items()
    ]


def _starts(size: int, sizes: Sequence[int]) -> range:
    """Where conversations of a size begin, counted in the smallest ones."""
    return range(0, sizes[-1] // sizes[0], size // sizes[0])


def time_session(messages: int = SESSION, *, rounds: int = 5) -> SessionTime:
    """How long a whole session takes from its messages to the items of a display, the best of some rounds.

    All four operators: split, reorder, group, collapse.
    """
    session = make_conversation(messages)
    taken = min([_once(for_display, [session]) for _ in range(rounds + 1)][1:])
    return SessionTime(messages=messages, items=len(for_display(session)), milliseconds=round(taken * 1000, 3))


def _once(operation: Operation, conversations: Sequence[list[Message]]) -> float:
    """Seconds for all conversations; what is made is kept until the clock stands still."""
    gc.collect()
    was = gc.isenabled()
    gc.disable()
    try:
        start = time.perf_counter()
        results = [operation(messages) for messages in conversations]
        taken = time.perf_counter() - start
    finally:
        if was:
            gc.enable()
    if not all(results):
        raise RuntimeError(f"{operation} made nothing of {len(conversations[0])} messages")
    return taken
