"""What live streams cost over loopback: CPU an event, how many at once keep up, memory of one that idles.

The server is another process, so that its work isn't counted. Everything is beside something else in the same run:
a bare loop of aiohttp that only counts bytes, that loop with the least that makes use of them, the anthropic SDK.
"""

from __future__ import annotations

import asyncio
import gc
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.request import ProxyHandler, build_opener

import msgspec

from turnstream.bench.contenders import THREE_SINKS, scratch_folder
from turnstream.bench.live_clients import (
    ANSWERS,
    BARE,
    CLIENTS,
    Client,
    Delays,
    characters_of,
    clients,
    close_streams,
    open_streams,
)
from turnstream.bench.live_search import FULL, QUICK, RATE, Probe, Probing, Search
from turnstream.bench.live_server import Asked, many_files, percentile
from turnstream.bench.rows import IdleMemory, Live, LiveCost, LiveStreams
from turnstream.bench.workloads import Workload, make_workload
from turnstream.sources.http import shared_session

__all__ = ["measure_live", "served"]

EVENTS: Final = 3_000
FEWEST_EVENTS: Final = 1_500
"""With less of them it would be the request that is measured."""

PACE: Final = 0.0002
"""Seconds between two events where CPU is measured: longer than any client takes for one, so that each has one a read."""

IDLE_STREAMS: Final = 200

# Not with -m: importing the package imports these modules, and then they'd be run a second time.
_SERVER: Final = "from turnstream.bench.live_server import main; main()"
_IDLE_CHILD: Final = "from turnstream.bench.live_idle import main; main()"


# -- the server --------------------------------------------------------------------------------------


@contextmanager
def served(scale: float) -> Iterator[str]:
    """The URL of a server in another process; it ends with the block.

    Args:
        scale: of workload A, which it gives.
    """
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(scale)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()
            process.wait()


def _late(url: str) -> float:
    """The 99th percentile of the server's own lateness since last asked, seconds."""
    with build_opener(ProxyHandler({})).open(f"{url}/late", timeout=10) as reply:
        return float(reply.read())


# -- CPU an event ------------------------------------------------------------------------------------


def _cost(url: str, workload: Workload, loop: str, rounds: int) -> list[LiveCost]:
    """All who read one answer, in turn, on one kind of loop."""
    factory = None if loop == "asyncio" else import_module(loop).new_event_loop
    asked = Asked("answer", PACE)
    seconds: dict[str, list[float]] = {name: [] for name in ANSWERS}
    reads = dict.fromkeys(ANSWERS, 0)
    size = len(workload.data())
    folder = Path(scratch_folder())

    async def turns() -> None:
        names = list(ANSWERS)
        async with shared_session() as session:
            for number in range(rounds + 1):
                first = number % len(names)
                for name in names[first:] + names[:first]:
                    transcript = folder / f"{number}.jsonl"
                    gc.collect()
                    start = time.process_time()
                    counted = await ANSWERS[name](session, url, asked, transcript)
                    taken = time.process_time() - start
                    characters = characters_of(transcript) if name == THREE_SINKS else counted.characters
                    if counted.bytes != size or characters not in (None, workload.text_characters):
                        raise RuntimeError(f"{name} left something out: {counted.bytes} bytes, {characters} characters")
                    if number:
                        seconds[name].append(taken)
                        reads[name] += counted.reads

    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(turns())
    finally:
        shutil.rmtree(folder)
    events = len(workload.events)
    out: list[LiveCost] = []
    for name, mine in seconds.items():
        ratios = [one / bare for one, bare in zip(mine, seconds[BARE], strict=True)]
        out.append(
            LiveCost(
                client=name,
                loop=loop,
                events=events,
                us_per_event=round(statistics.median(mine) / events * 1e6, 2),
                ratio=round(statistics.median(ratios), 3),
                ratio_min=round(min(ratios), 3),
                ratio_max=round(max(ratios), 3),
                events_per_read=round(events * rounds / reads[name], 3),
                rounds=rounds,
            )
        )
    return out


# -- many streams ------------------------------------------------------------------------------------


async def _probe(client: Client, url: str, streams: int, probing: Probing) -> tuple[float, float]:
    delays = Delays()
    async with client.opened(url) as run:
        tasks = await open_streams(run, streams, Asked("stamps", 1 / RATE), delays, within=probing.within)
        try:
            if delays.up < streams:
                return float("inf"), 0.0
            await asyncio.sleep(probing.settle)
            delays.counting = True
            start = time.monotonic()
            await asyncio.sleep(probing.window)
            delays.counting = False
            expected = streams * RATE * (time.monotonic() - start)
        finally:
            await close_streams(tasks)
    return percentile(delays.seconds), len(delays.seconds) / expected


def _many(url: str, found: Sequence[Client], probing: Probing, tell: Callable[[str], None]) -> list[LiveStreams]:
    """All clients' searches, a step of each in turn."""
    searches = {client.name: Search(probing) for client in found}
    probes: dict[tuple[str, int], Probe] = {}
    while any(search.next is not None for search in searches.values()):
        for client in found:
            search = searches[client.name]
            if (streams := search.next) is None:
                continue
            tell(f"live, {streams:,} streams: {client.name} …")
            gc.collect()
            _late(url)
            p99, share = asyncio.run(_probe(client, url, streams, probing))
            probe = Probe(p99, share, _late(url))
            probes[client.name, streams] = probe
            search.tell(probe.holds)
    ours = searches[found[0].name].held
    out: list[LiveStreams] = []
    for client in found:
        search = searches[client.name]
        best = probes.get((client.name, search.held))
        worse = None if search.failed is None else probes[client.name, search.failed]
        out.append(
            LiveStreams(
                client=client.name,
                streams=search.held,
                p99_ms=None if best is None else round(best.p99 * 1000, 1),
                failed=search.failed,
                failed_p99_ms=None if worse is None or worse.p99 == float("inf") else round(worse.p99 * 1000, 1),
                server_late_ms=None if worse is None else round(worse.server * 1000, 1),
                ours=round(ours / search.held, 2) if search.held else None,
            )
        )
    return out


# -- idle ones ---------------------------------------------------------------------------------------


def _idle(url: str, streams: int) -> list[IdleMemory]:
    names = ["bare", "ours", *(("raw",) if find_spec("anthropic") is not None else ())]
    out: list[IdleMemory] = []
    for name in names:
        done = subprocess.run(
            [sys.executable, "-c", _IDLE_CHILD, name, url, str(streams)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"idle streams, {name}: {done.stderr.strip().splitlines()[-1:]}")
        resident, heap = msgspec.json.decode(done.stdout, type=tuple[int | None, int])
        out.append(IdleMemory(client=CLIENTS[name].name, streams=streams, heap_bytes=heap, resident_bytes=resident))
    return out


def measure_live(
    *,
    scale: float = 1.0,
    rounds: int = 5,
    tell: Callable[[str], None] = lambda text: None,
    probing: Probing | None = None,
    idle_streams: int = IDLE_STREAMS,
) -> Live:
    """All figures of live streams.

    Args:
        scale: share of the full size; below 1 numbers of streams are looked for in large steps.
        rounds: of CPU an event, twice as many (they are short); many streams and idle ones are measured once.
        tell: called with a line of progress before each part.
        probing: how the number of streams is looked for, instead.
        idle_streams: how many of them.

    Raises:
        RuntimeError: a client left something out, or a stream ended early.
    """
    many_files()
    events = max(int(EVENTS * scale), FEWEST_EVENTS)
    share = events / 250_000  # workload A's deltas
    workload = make_workload("A", scale=share)
    loops: list[Any] = ["asyncio"]
    if find_spec("uvloop") is not None:
        loops.append("uvloop")
    else:
        tell("not measured: uvloop (pip install uvloop)")
    with served(share) as url:
        costs: list[LiveCost] = []
        for loop in loops:
            tell(f"live, CPU an event, {loop} …")
            costs += _cost(url, workload, loop, rounds * 2)
        streams = _many(url, clients(tell), probing or (FULL if scale >= 1 else QUICK), tell)
        tell("live, idle streams …")
        idle = _idle(url, idle_streams)
    return Live(costs=costs, streams=streams, idle=idle)
