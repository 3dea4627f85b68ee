"""Runs contenders in turn, several times, and tells the medians and the ratios to the floor."""

from __future__ import annotations

import gc
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from turnstream.bench.contenders import FLOORS, OURS, Contender, Found, call
from turnstream.bench.peers import python_peers
from turnstream.bench.workloads import CHUNK, Workload, make_workload

__all__ = ["Row", "environment", "measure", "run", "table"]

SLOW_SHARE: Final = 0.1
"""Contenders marked slow get a workload of this share, with the floor measured on the same."""


class Row(msgspec.Struct, frozen=True):
    """One contender on one workload.

    Attributes:
        workload: its name.
        chunking: ``16 KiB`` or ``1 event``.
        contender: its name.
        events: how many events it went through.
        us_per_event: microseconds an event, median.
        ratio: to the floor, the median of the ratios of each round (both measured in that round).
        ratio_min: the smallest of them.
        ratio_max: the largest of them.
        rounds: how many rounds.
    """

    workload: str
    chunking: str
    contender: str
    events: int
    us_per_event: float
    ratio: float
    ratio_min: float
    ratio_max: float
    rounds: int


def measure(
    workload: Workload, size: int, contenders: Sequence[Contender], *, rounds: int, floor: Contender = FLOORS[0]
) -> list[Row]:
    """Measure contenders on one workload, interleaved round by round.

    Args:
        workload: what they get.
        size: bytes a chunk; 0: one event a chunk.
        contenders: in this order; the floor is measured with them in each round.
        rounds: how often; before them each runs once uncounted.
        floor: what the ratios are to.

    Raises:
        RuntimeError: a contender found another text or another number of blocks than the workload holds.
    """
    whole = [workload.chunks(size)]
    # What runs per answer (a request each) gets the chunks of each answer on their own.
    chunks = workload.answer_chunks(size) if len(workload.answers) > 100 or size == 0 else whole
    everyone = [floor, *(c for c in contenders if c is not floor)]
    seconds: dict[str, list[float]] = {c.name: [] for c in everyone}
    for number in range(rounds + 1):
        for contender in everyone:
            gc.collect()
            start = time.perf_counter()
            found = call(contender, chunks)
            taken = time.perf_counter() - start
            if number == 0:
                _check(workload, contender, found)
            else:
                seconds[contender.name].append(taken)
    base = seconds[floor.name]
    rows: list[Row] = []
    for contender in everyone:
        own = seconds[contender.name]
        ratios = [mine / theirs for mine, theirs in zip(own, base, strict=True)]
        rows.append(
            Row(
                workload=workload.name,
                chunking="1 event" if size == 0 else f"{size // 1024} KiB",
                contender=contender.name,
                events=len(workload.events),
                us_per_event=round(statistics.median(own) / len(workload.events) * 1e6, 3),
                ratio=round(statistics.median(ratios), 3),
                ratio_min=round(min(ratios), 3),
                ratio_max=round(max(ratios), 3),
                rounds=rounds,
            )
        )
    return rows


def _check(workload: Workload, contender: Contender, found: Found) -> None:
    if found.text_characters not in (-1, workload.text_characters):
        raise RuntimeError(
            f"{contender.name} found {found.text_characters} characters in {workload.name}, "
            f"which holds {workload.text_characters}"
        )


def run(
    names: Sequence[str] = ("A", "B", "C"),
    *,
    quick: bool = False,
    peers: bool = False,
    rounds: int | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Row]:
    """All workloads in both chunkings.

    Args:
        names: workloads.
        quick: a tenth of the size and three rounds, to see that it works.
        peers: also what others use, as far as it is installed.
        rounds: at least 5 by default.
        tell: called with a line of progress before each part.
    """
    scale = 0.1 if quick else 1.0
    rounds = rounds if rounds is not None else (3 if quick else 5)
    others = python_peers() if peers else []
    quickly = [*FLOORS[1:], *OURS, *(c for c in others if not c.slow)]
    slowly = [c for c in others if c.slow]
    rows: list[Row] = []
    for name in names:
        workload = make_workload(name, scale=scale)
        for size in (CHUNK, 0):
            tell(f"{name}, {'one event a chunk' if size == 0 else f'{size // 1024} KiB chunks'} …")
            rows += measure(workload, size, quickly, rounds=rounds)
        if slowly:
            small = make_workload(name, scale=scale * SLOW_SHARE)
            tell(f"{name}, slow peers …")
            rows += [row for row in measure(small, CHUNK, slowly, rounds=rounds) if row.contender != FLOORS[0].name]
    return rows


def environment() -> dict[str, Any]:
    """What the figures depend on."""
    from importlib.metadata import PackageNotFoundError, version

    versions: dict[str, str] = {}
    for package in ("turnstream", "reactivex", "msgspec", "orjson", "aiohttp", "anthropic", "httpx-sse"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "machine": platform.machine(),
        "system": platform.system(),
        "packages": versions,
    }


def table(rows: Sequence[Row]) -> str:
    """The rows for reading."""
    head = ("workload", "chunks", "contender", "µs/event", "× floor", "spread", "events")
    cells = [
        (
            row.workload,
            row.chunking,
            row.contender,
            f"{row.us_per_event:.2f}",
            f"{row.ratio:.2f}",
            f"{row.ratio_min:.2f}–{row.ratio_max:.2f}",
            f"{row.events:,}",
        )
        for row in rows
    ]
    widths = [max(len(line[i]) for line in (head, *cells)) for i in range(len(head))]
    lines: list[str] = []
    last = ""
    for line in (head, *cells):
        if line[0] + line[1] != last and lines:
            lines.append("")
        last = line[0] + line[1]
        lines.append(
            "  ".join(
                text.ljust(width) if column < 3 else text.rjust(width)
                for column, (text, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
        )
    return "\n".join(lines)
