"""Slow recorder, slow client, any upstream: the client's bytes are the upstream's, in every interleaving.

Once by a client that reads sockets, once by the official SDK. TURNSTREAM_INTERLEAVINGS says how many are tried by
each (default 200).
"""

from __future__ import annotations

import asyncio
import errno
import gzip
import hashlib
import itertools
import os
import random
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from serving import TEXT, TOOLS, serving
from stores import Store

from turnstream.record import record_proxy
from turnstream.testing import run_virtual

INTERLEAVINGS = int(os.environ.get("TURNSTREAM_INTERLEAVINGS", "200"))
BATCH = 100  # scenarios that share a server and a proxy, all at once on one loop
STAMP = re.compile(rb"(?m)^: turnstream at=[0-9.]+\n")


class Scenario:
    """One exchange, drawn from a seed: what is sent, how it is cut, who waits how long."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        plain = STAMP.sub(b"", draw.choice([TEXT, TOOLS]))
        if draw.random() < 0.3:
            comment = b": %b\n" % (b"x" * draw.choice([100, 10_000, 100_000]))
            plain = comment * draw.randrange(1, 8) + plain
        self.plain = plain
        self.gzip = draw.random() < 0.3
        self.body = gzip.compress(plain, mtime=0) if self.gzip else plain
        cuts = sorted(draw.randrange(len(self.body) + 1) for _ in range(draw.choice([0, 1, 5, 40])))
        edges = [0, *cuts, len(self.body)]
        self.chunks = [self.body[a:b] for a, b in itertools.pairwise(edges) if b > a]
        self.framed = draw.random() < 0.5  # by its length instead of in chunks
        self.upstream_waits = [draw.choice([0, 0, 0.01, 1.0]) for _ in self.chunks]
        self.client_reads = draw.choice([1 << 10, 1 << 14, 1 << 18])
        self.client_waits = draw.choice([0.0, 0.0, 0.001, 0.5])
        self.store_waits = [draw.choice([0, 0.001, 0.3, 5.0]) for _ in range(8)]
        self.store_fault = draw.choice([None, None, None, "hang", "raise"])
        self.store_fault_at = draw.choice(["create", "write", "commit"])
        self.draw = draw

    async def store_step(self, step: str) -> None:
        """What the store does before a step."""
        await asyncio.sleep(self.draw.choice(self.store_waits))
        if self.store_fault is not None and step == self.store_fault_at:
            if self.store_fault == "raise":
                raise OSError(errno.ENOSPC, "full")
            await asyncio.Event().wait()


class Stores:
    """A store of which each file behaves as its own scenario says: files are told apart by what is written."""

    def __init__(self, scenarios: dict[int, Scenario]) -> None:
        self.waiting = list(scenarios.values())
        self.inner: list[Store] = []

    async def create(self, name: str) -> Any:
        store = Store(self.waiting.pop().store_step)
        self.inner.append(store)
        return await store.create(name)

    async def aclose(self) -> None: ...


def answering(scenarios: dict[int, Scenario]) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        scenario = scenarios[int(request.headers["x-seed"])]
        headers = {"content-type": "text/event-stream"}
        if scenario.gzip:
            headers["content-encoding"] = "gzip"
        if scenario.framed:
            headers["content-length"] = str(len(scenario.body))
        answer = web.StreamResponse(headers=headers)
        await answer.prepare(request)
        for wait, chunk in zip(scenario.upstream_waits, scenario.chunks, strict=True):
            if wait:
                await asyncio.sleep(wait)
            await answer.write(chunk)
        return answer

    return handle


async def asked(url: str, seed: int, scenario: Scenario) -> str:
    """The hash of the body as it came over the socket."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 10)
    try:
        writer.write(
            b"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-seed: %d\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"
            % seed
        )
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert head.startswith(b"http/1.1 200 ")
        assert (b"\r\ncontent-length: " in head) is scenario.framed
        assert (b"\r\ncontent-encoding: gzip" in head) is scenario.gzip
        got = hashlib.sha256()

        async def take(size: int) -> None:
            while size:
                piece = await reader.read(min(size, scenario.client_reads))
                assert piece, "the body is cut short"
                got.update(piece)
                size -= len(piece)
                if scenario.client_waits:
                    await asyncio.sleep(scenario.client_waits)

        if scenario.framed:
            await take(len(scenario.body))
        else:
            while size := int(await reader.readuntil(b"\r\n"), 16):
                await take(size)
                assert await reader.readexactly(2) == b"\r\n"
            assert await reader.readexactly(2) == b"\r\n"
        assert await reader.read() == b""
        return got.hexdigest()
    finally:
        writer.transport.abort()


async def asked_by_the_sdk(client: Any, seed: int, scenario: Scenario) -> str:
    """The same through the official SDK: the hash of what its HTTP library got, before anything is decoded."""
    asking = client.messages.with_streaming_response.create(
        model="m",
        max_tokens=9,
        messages=[{"role": "user", "content": "Hi"}],
        stream=True,
        extra_headers={"x-seed": str(seed)},
    )
    got = hashlib.sha256()
    async with asking as response:
        assert response.status_code == 200
        async for piece in response.http_response.aiter_raw(scenario.client_reads):
            got.update(piece)
            if scenario.client_waits:
                await asyncio.sleep(scenario.client_waits)
    return got.hexdigest()


async def batch_of(seeds: range, by: str) -> tuple[int, int]:
    scenarios = {seed: Scenario(seed) for seed in seeds}
    store = Stores(scenarios)
    async with serving(answering(scenarios)) as upstream:
        async with record_proxy(
            upstream, store=store, buffer=random.Random(seeds[0]).choice([1 << 14, 1 << 22])
        ) as proxy:
            if by == "sdk":
                import anthropic

                async with anthropic.AsyncAnthropic(base_url=proxy.url, api_key="none", max_retries=0) as client:
                    asking = [asked_by_the_sdk(client, seed, each) for seed, each in scenarios.items()]
                    hashes = await asyncio.gather(*asking)
            else:
                hashes = await asyncio.gather(*[asked(proxy.url, seed, each) for seed, each in scenarios.items()])
            await asyncio.sleep(100)
        report = proxy.report()["proxy"]
    for got, (seed, scenario) in zip(hashes, scenarios.items(), strict=True):
        assert got == hashlib.sha256(scenario.body).hexdigest(), f"seed {seed}"
    assert report["ends"] == {"complete": len(seeds)}
    # Each recording is whole, or it is counted as dropped and isn't there.
    kept = [inner.files[name] for inner in store.inner for name in inner.committed]
    assert len(kept) == report["recordings"]
    assert report["recordings"] + sum(report["dropped"].values()) == len(seeds)
    plains = {scenario.plain for scenario in scenarios.values()}
    for recording in kept:
        assert STAMP.sub(b"", recording) in plains
    left = [name for inner in store.inner for name in inner.files if name not in inner.committed]
    assert len(left) <= sum(scenario.store_fault == "hang" for scenario in scenarios.values())
    return len(kept), sum(report["dropped"].values())


@pytest.mark.parametrize("by", ["socket", "sdk"])
@pytest.mark.parametrize("start", range(0, INTERLEAVINGS, BATCH))
def test_the_clients_bytes_are_the_upstreams(start: int, by: str) -> None:
    if by == "sdk":
        pytest.importorskip("anthropic", reason="the official SDK isn't installed")
    kept, dropped = run_virtual(batch_of(range(start, min(start + BATCH, INTERLEAVINGS)), by), debug=False)
    # The scenarios are worth their name: some recorders do fail.
    assert kept > 0
    assert dropped > 0
