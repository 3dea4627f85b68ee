"""The live benchmark: events come alone, the search finds what it looks for, bars are applied, nothing is left."""

from __future__ import annotations

import json
import socket
import sys
import time
from functools import cache
from typing import Any
from urllib.request import Request, urlopen

import msgspec
import pytest

from turnstream.bench import IdleMemory, Live, LiveCost, LiveStreams, check, make_workload, render
from turnstream.bench import live as module
from turnstream.bench.live_clients import ANSWERS, BARE, CLIENTS
from turnstream.bench.live_search import Probe, Probing, Search
from turnstream.bench.live_server import Asked, percentile, stamped
from turnstream.bench.runner import Report, environment

SHARE = 0.002
TINY = Probing(start=2, factor=2.0, halvings=0, most=4, tries=1, settle=0.0, window=0.2, within=30.0)


def searched(limit: int, **options: Any) -> tuple[Search, list[int]]:
    """A search where so many hold, and what it tried."""
    search = Search(Probing(**options))
    tried: list[int] = []
    while (streams := search.next) is not None:
        tried.append(streams)
        search.tell(streams <= limit)
    return search, tried


def test_the_search_doubles_then_halves_the_gap() -> None:
    search, tried = searched(130, start=25, factor=2.0, halvings=2, most=1000, tries=1)
    # √(100·200) = 141, √(100·141) = 119
    assert tried == [25, 50, 100, 200, 141, 119]
    assert (search.held, search.failed) == (119, 141)


def test_a_number_that_fails_is_tried_again() -> None:
    search = Search(Probing(start=10, factor=2.0, halvings=0, most=1000, tries=2))
    asked: list[int | None] = []
    for holds in (False, True, True, False, False):
        asked.append(search.next)
        search.tell(holds)
    assert asked == [10, 10, 20, 40, 40]
    assert search.next is None
    assert (search.held, search.failed) == (20, 40)


@pytest.mark.parametrize(
    ("limit", "held", "failed", "tried"), [(0, 0, 10, [10]), (999, 35, None, [10, 20, 35]), (10, 10, 20, [10, 20])]
)
def test_ends_of_the_search(limit: int, held: int, failed: int | None, tried: list[int]) -> None:
    search, found = searched(limit, start=10, factor=2.0, halvings=0, most=35, tries=1)
    assert (search.held, search.failed, found) == (held, failed, tried)


def test_what_holds() -> None:
    assert Probe(0.1, 0.9, 5.0).holds
    assert not Probe(0.101, 1.0, 0.0).holds
    assert not Probe(0.001, 0.89, 0.0).holds, "what never comes has no delay"
    assert not Probe(float("inf"), 0.0, 0.0).holds
    assert percentile([]) == 0
    assert percentile([float(n) for n in range(100, 0, -1)]) == 100
    assert percentile([float(n) for n in range(200)]) == 198


def post(url: str, asked: Asked) -> Any:
    return urlopen(Request(f"{url}/v1/messages", b"{}", asked.header()), timeout=30)


def test_the_server_gives_the_workload_and_stamps_and_ends() -> None:
    workload = make_workload("A", scale=SHARE)
    with module.served(SHARE) as url:
        with post(url, Asked("answer", 0.00001)) as reply:
            assert reply.headers["content-type"].startswith("text/event-stream")
            assert reply.read() == workload.data()
        before = time.monotonic()
        with post(url, Asked("stamps", 0.001)) as reply:
            lines = [reply.readline() for _ in range(12)]
        payloads = [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]
        assert [each["type"] for each in payloads] == [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_delta",
        ]
        first, second = (stamped(each["delta"]["text"]) for each in payloads[2:])
        assert first is not None
        assert second is not None
        assert before < first < second < time.monotonic()
        assert stamped("the beginning") is None
        assert module._late(url) >= 0
    host, port = url.removeprefix("http://").split(":")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, int(port)))


@cache
def tiny() -> tuple[Live, list[str]]:
    told: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEWEST_EVENTS", 250)
        patch.setattr(module, "PACE", 0.001)
        live = module.measure_live(scale=0.01, rounds=1, tell=told.append, probing=TINY, idle_streams=10)
    return live, told


def test_a_small_run() -> None:
    live, told = tiny()
    assert told[0] == "live, CPU an event, asyncio …" or told[0].startswith("not measured: uvloop")
    assert {each.client for each in live.costs} == set(ANSWERS)
    for each in live.costs:
        # 250 deltas, and message, blocks and signature around them.
        assert each.events == 258
        assert each.us_per_event > 0
        assert each.ratio_min <= each.ratio <= each.ratio_max
        assert each.rounds == 2
    assert {each.ratio for each in live.costs if each.client == BARE} == {1.0}
    assert live.streams[0].client == CLIENTS["ours"].name
    assert all(each.streams in (0, 2, 4) for each in live.streams)
    assert [each.client for each in live.idle][:2] == [BARE, CLIENTS["ours"].name]
    assert all(each.heap_bytes > 1_000 for each in live.idle)
    assert all((each.resident_bytes is None) == (sys.platform != "linux") for each in live.idle)


def test_its_tables() -> None:
    live, _ = tiny()
    text = render(Report(environment(), 0.01, [], [], check((), live=live), live=live, decades=[]))
    for words in (
        "live, an event alone",
        "streams at 50 events/s",
        "KB an idle stream",
        "× bare aiohttp loop, asyncio",
    ):
        assert words in text
    json.loads(msgspec.json.encode(live))


def test_who_leaves_something_out_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ANSWERS[BARE]

    async def hasty(*arguments: Any) -> Any:
        counted = await whole(*arguments)
        return msgspec.structs.replace(counted, bytes=counted.bytes - 1)

    monkeypatch.setitem(ANSWERS, BARE, hasty)
    monkeypatch.setattr(module, "PACE", 0.00001)
    with module.served(SHARE) as url, pytest.raises(RuntimeError, match="bare aiohttp loop left something out"):
        module._cost(url, make_workload("A", scale=SHARE), "asyncio", 1)


def cost(client: str, ratio: float) -> LiveCost:
    return LiveCost(
        client=client,
        loop="asyncio",
        events=1,
        us_per_event=1.0,
        ratio=ratio,
        ratio_min=ratio,
        ratio_max=ratio,
        events_per_read=1.0,
        rounds=1,
    )


def test_the_bar() -> None:
    three = CLIENTS["ours"].name
    streams = LiveStreams(
        client=three, streams=1, p99_ms=1.0, failed=None, failed_p99_ms=None, server_late_ms=None, ours=1.0
    )
    idle = IdleMemory(client=three, streams=1, heap_bytes=1, resident_bytes=None)
    for ratio, met in ((1.3, True), (1.31, False)):
        live = Live(costs=[cost(BARE, 9.0), cost(three, ratio)], streams=[streams], idle=[idle])
        (found,) = check((), live=live)
        assert (found.met, found.at_most) == (met, 1.3)
