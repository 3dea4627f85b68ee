"""VirtualLoop: a real aiohttp server and client on the virtual clock."""

from __future__ import annotations

import asyncio
import gc
import logging
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from turnstream.testing import DeadlockError, run_virtual, virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def serve(handler: object) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/", handler)  # type: ignore[arg-type]
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}/"
    finally:
        await runner.cleanup()


@virtual_time
async def test_a_real_server_that_waits_an_hour_between_chunks() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for number in range(3):
            await response.write(f"chunk {number}\n".encode())
            await asyncio.sleep(3600)
        await response.write_eof()
        return response

    seen: list[tuple[bytes, float]] = []
    async with serve(handler) as url, aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
        async with session.get(url) as response:
            async for chunk in response.content.iter_any():
                seen.append((chunk, now()))
    assert seen == [(b"chunk 0\n", 0.0), (b"chunk 1\n", 3600.0), (b"chunk 2\n", 7200.0)]


@virtual_time
async def test_a_large_body_arrives_whole_before_the_clock_moves() -> None:
    size = 5_000_000

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(2):
            await response.write(b"x" * size)
            await asyncio.sleep(10)
        return response

    got: dict[float, int] = {}
    async with serve(handler) as url, aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
        async with session.get(url) as response:
            async for chunk in response.content.iter_any():
                got[now()] = got.get(now(), 0) + len(chunk)
    assert got == {0.0: size, 10.0: size}


@virtual_time
async def test_a_client_timeout_runs_on_the_virtual_clock() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(10_000)
        return web.Response()

    async with serve(handler) as url, aiohttp.ClientSession() as session:
        with pytest.raises(TimeoutError):
            # aiohttp's default, total=300
            await session.get(url)
        assert 300.0 <= now() <= 301.0


@virtual_time
async def test_a_slow_reader_holds_the_server_back() -> None:
    """Real backpressure: the server can't finish before a client that pauses between reads."""
    size = 20_000_000
    finished: list[float] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(0, size, 100_000):
            await response.write(b"x" * 100_000)
        finished.append(now())
        return response

    total = 0
    async with serve(handler) as url, aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
        async with session.get(url) as response:
            await asyncio.sleep(60)
            assert finished == []
            async for chunk in response.content.iter_any():
                total += len(chunk)
    assert total == size
    assert len(finished) == 1


def test_a_deadlock_with_idle_sockets_is_reported_too() -> None:
    async def main() -> None:
        async def handler(request: web.Request) -> web.StreamResponse:
            await asyncio.Event().wait()
            raise AssertionError

        async with serve(handler) as url:
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
                await session.get(url)

    with pytest.raises(DeadlockError, match=r"handler at test_virtual_loop_sockets\.py:\d+ > Event\.wait"):
        run_virtual(main(), deadlock_grace=0.05)


def test_debug_mode_says_nothing_and_nothing_leaks(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(100)
        return web.Response(text="hello")

    async def main() -> str:
        assert asyncio.get_running_loop().get_debug()
        await asyncio.to_thread(int, "1")
        async with serve(handler) as url, aiohttp.ClientSession() as session, session.get(url) as response:
            return await response.text()

    gc.collect()
    with warnings.catch_warnings(record=True) as seen, caplog.at_level(logging.WARNING):
        warnings.simplefilter("always")
        assert run_virtual(main()) == "hello"
        gc.collect()
    assert [str(warning.message) for warning in seen] == []
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
