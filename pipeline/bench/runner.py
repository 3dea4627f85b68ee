"""Runs contenders in turn, several times, and tells the medians and the ratios to the floor."""

from __future__ import annotations

import gc
import os
import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from typing import Any, Final

import msgspec

from turnstream.bench.bars import Check, check
from turnstream.bench.contender import Contender, Found, Timed, finish, given
from turnstream.bench.contenders import FLOORS, OURS, THREE_SINKS
from turnstream.bench.growth import SIZES, grow_messages, time_session
from turnstream.bench.live import measure_live
from turnstream.bench.node import node_peers
from turnstream.bench.peers import python_peers
from turnstream.bench.rows import Decades, Growth, Live, Row, SessionTime, Transcripts
from turnstream.bench.transcripts import measure_transcripts
from turnstream.bench.workloads import CHUNK, Workload, make_workload

__all__ = ["GROWTH", "LIVE", "TRANSCRIPT", "Report", "environment", "grow", "measure", "run"]

GROWTH: Final = "growth"
"""Named like a workload: what messages cost to normalize, over conversations of growing length."""

TRANSCRIPT: Final = "transcript"
"""Named like a workload: appending to transcripts, reading them, lists of them; files of up to 1 GB."""

LIVE: Final = "live"
"""Named like a workload: streams over loopback, from a server in another process."""

SLOW_SHARE: Final = 10
"""Contenders marked slow get this part of a workload, with the floor and turnstream measured on the same."""

HALVES: Final = ("/8", "/4", "/2", "")
"""Of workload B: how time grows with the size of one block."""


class Report(msgspec.Struct, frozen=True):
    """All that a benchmark run found.

    Attributes:
        environment: what the figures depend on.
        scale: share of the full workloads; 1 is full.
        rows: one for each contender on each workload and chunking.
        growth: how time grows with the size of one block (workload B).
        checks: the figures that have a bar, as far as they were measured.
        decades: how the cost of a message grows with its conversation (``growth``).
        session: a session of usual length on its way to the display (``growth``).
        transcripts: what files cost (``transcript``).
        live: what streams over loopback cost (``live``).
    """

    environment: dict[str, Any]
    scale: float
    rows: list[Row]
    growth: list[Growth]
    checks: list[Check]
    decades: list[Decades] = []
    session: SessionTime | None = None
    transcripts: Transcripts | None = None
    live: Live | None = None


def measure(
    workload: Workload, size: int, contenders: Sequence[Contender], *, rounds: int, floor: Contender = FLOORS[0]
) -> list[Row]:
    """Measure contenders on one workload, interleaved round by round.

    Each round begins with another contender, so that no place in the round is anybody's advantage. What
    each found in the bytes is compared with what the workload holds, every time.

    Args:
        workload: what they get.
        size: bytes a chunk; 0: one event a chunk.
        contenders: in this order; the floor is measured with them in each round.
        rounds: how often; before them each runs once uncounted.
        floor: what the ratios are to.

    Raises:
        RuntimeError: a contender found something else than the workload holds.
    """
    everyone = [floor, *(c for c in contenders if c.name != floor.name)]
    what = given(workload, size)
    prepared = {c.name: c.prepare(what) for c in everyone}
    seconds: dict[str, list[float]] = {c.name: [] for c in everyone}
    for number in range(rounds + 1):
        first = number % len(everyone)
        for contender in everyone[first:] + everyone[:first]:
            taken = _once(workload, contender, prepared[contender.name])
            if number > 0:
                seconds[contender.name].append(taken)
    ours = seconds.get(THREE_SINKS)
    return [
        Row(
            workload=workload.name,
            chunking="1 event" if size == 0 else f"{size // 1024} KiB",
            contender=contender.name,
            events=len(workload.events),
            us_per_event=round(statistics.median(seconds[contender.name]) / len(workload.events) * 1e6, 4),
            rounds=rounds,
            **_ratios("ratio", seconds[contender.name], seconds[floor.name]),
            to_ours=None if ours is None else _median(seconds[contender.name], ours),
        )
        for contender in everyone
    ]


def _once(workload: Workload, contender: Contender, prepared: Any) -> float:
    gc.collect()
    start = time.perf_counter()
    result = finish(contender, prepared)
    taken = time.perf_counter() - start
    if isinstance(result, Timed):
        taken, found = result.seconds, result.found
    else:
        found = contender.found(result)
    _check(workload, contender, found)
    return taken


def _quotients(mine: Sequence[float], theirs: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(mine, theirs, strict=True)]


def _median(mine: Sequence[float], theirs: Sequence[float]) -> float:
    return round(statistics.median(_quotients(mine, theirs)), 4)


def _ratios(name: str, mine: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    quotients = _quotients(mine, theirs)
    return {
        name: _median(mine, theirs),
        f"{name}_min": round(min(quotients), 4),
        f"{name}_max": round(max(quotients), 4),
    }


def _check(workload: Workload, contender: Contender, found: Found) -> None:
    holds = Found(workload.text_characters, workload.blocks, workload.tool_characters, len(workload.events))
    for what in Found.__struct_fields__:
        got, right = getattr(found, what), getattr(holds, what)
        if got not in (-1, right):
            raise RuntimeError(
                f"{contender.name} found {got} {what.replace('_', ' ')} in workload {workload.name}, which holds {right}"
            )


def grow(workloads: Sequence[Workload], contenders: Sequence[Contender], *, rounds: int) -> list[Growth]:
    """How the time of contenders grows over workloads of which each is twice as large as the one before.

    Args:
        workloads: the smallest first; 16 KiB chunks.
        contenders: measured on each of them in each round.
        rounds: how often; before them each runs once uncounted.
    """
    prepared = [(w, [(c, c.prepare(what)) for c in contenders]) for w in workloads for what in (given(w, CHUNK),)]
    seconds: dict[str, list[list[float]]] = {c.name: [[] for _ in workloads] for c in contenders}
    for number in range(rounds + 1):
        for place, (workload, pairs) in enumerate(prepared):
            for contender, mine in pairs:
                taken = _once(workload, contender, mine)
                if number > 0:
                    seconds[contender.name][place].append(taken)
    return [
        Growth(
            contender=name,
            workloads=[w.name for w in workloads],
            milliseconds=[round(statistics.median(each) * 1000, 3) for each in times],
            doublings=[_median(larger, smaller) for smaller, larger in pairwise(times)],
        )
        for name, times in seconds.items()
    ]


def run(
    names: Sequence[str] = ("A", "B", "C"),
    *,
    scale: float = 1.0,
    peers: bool = False,
    rounds: int = 5,
    tell: Callable[[str], None] = lambda text: None,
) -> Report:
    """All workloads in both chunkings, the growth over B, and what the figures are compared with.

    Args:
        names: workloads, ``growth``, ``transcript`` and ``live``; the growth over B is measured if ``B`` is among them.
        scale: share of the full size.
        peers: also what others use, as far as it is installed.
        rounds: how often each contender runs in each measurement; ratios are medians over them.
        tell: called with a line of progress before each part.

    Raises:
        ValueError: an unknown workload, no round, or a scale that isn't above 0.
        RuntimeError: a contender left something out.
    """
    if rounds < 1 or not scale > 0:
        raise ValueError("at least one round, and a scale above 0")
    with node_peers(tell if peers else lambda text: None) as node:
        others = [*python_peers(tell), *node] if peers else []
        rows: list[Row] = []
        growth: list[Growth] = []
        decades: list[Decades] = []
        session: SessionTime | None = None
        transcripts: Transcripts | None = None
        live: Live | None = None
        for name in names:
            if name == LIVE:
                live = measure_live(scale=scale, rounds=rounds, tell=tell)
                continue
            if name == TRANSCRIPT:
                transcripts = measure_transcripts(scale=scale, rounds=rounds, tell=tell)
                continue
            if name == GROWTH:
                decades = grow_messages([int(size * scale) for size in SIZES], rounds=rounds, tell=tell)
                session = time_session(rounds=rounds)
                continue
            rows += _workload(name, others, scale, rounds, tell)
            if name == "B":
                tell("B, growth …")
                parts = [make_workload(f"B{part}", scale=scale) for part in HALVES]
                growth = grow(parts, [FLOORS[0], *(c for c in OURS if c.name == THREE_SINKS)], rounds=rounds)
    checks = check(rows, growth, decades, transcripts, live)
    return Report(environment(), scale, rows, growth, checks, decades, session, transcripts, live)


def _workload(
    name: str, others: Sequence[Contender], scale: float, rounds: int, tell: Callable[[str], None]
) -> list[Row]:
    rows: list[Row] = []
    workload = make_workload(name, scale=scale)
    slow = [c for c in others if c.slow]
    # Quadratic ones look better on a tenth. Where that can be waited for they get all of it: A in large chunks.
    whole = slow if name == "A" else []
    for size in (CHUNK, 0):
        tell(f"{name}, {'one event a chunk' if size == 0 else f'{size // 1024} KiB chunks'} …")
        contenders = [*FLOORS, *OURS, *(c for c in others if not c.slow or (size == CHUNK and c in whole))]
        rows += measure(workload, size, contenders, rounds=rounds)
    if slow:
        letter, _, divisor = name.partition("/")
        small = make_workload(f"{letter}/{int(divisor or 1) * SLOW_SHARE}", scale=scale)
        ours = [c for c in OURS if c.name == THREE_SINKS]
        for size in (0,) if whole else (CHUNK, 0):
            tell(f"{small.name}, {'one event a chunk' if size == 0 else f'{size // 1024} KiB chunks'}, slow peers …")
            rows += measure(small, size, [*ours, *slow], rounds=rounds)
    return rows


def environment() -> dict[str, Any]:
    """What the figures depend on."""
    versions: dict[str, str] = {}
    for package in ("turnstream", "reactivex", "msgspec", "orjson", "aiohttp", "anthropic", "httpx-sse", "uvloop"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "machine": platform.machine(),
        "system": platform.system(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "node": _node_version(),
        "packages": versions,
    }


def _node_version() -> str | None:
    node = shutil.which("node")
    if node is None:
        return None
    return subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout.strip() or None
