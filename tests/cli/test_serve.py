"""``turnstream serve``, as a user calls it: a process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from serving import EXAMPLES, KEY, TEXT
from wire_client import REQUEST, STREAM, exchange

FIRST = EXAMPLES / "1-text.sse"


async def start(*arguments: Any) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "turnstream",
        "serve",
        *map(str, arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


class Served:
    """A running command; once it has ended, its status and what it said."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process = process
        self.url = url
        self.status: int | None = None
        self.stdout = b""
        self.stderr = ""

    async def end(self, number: signal.Signals | None = signal.SIGTERM) -> None:
        if number is not None:
            self.process.send_signal(number)
        out, told = await asyncio.wait_for(self.process.communicate(), 60)
        self.status, self.stdout, self.stderr = self.process.returncode, out, told.decode()
        assert "Traceback" not in self.stderr


@asynccontextmanager
async def serving(*arguments: Any) -> AsyncIterator[Served]:
    process = await start(*arguments)
    try:
        assert process.stdout is not None
        url = await asyncio.wait_for(process.stdout.readline(), 60)
        yield Served(process, url.decode().strip())
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def refused(*arguments: Any) -> tuple[int | None, str]:
    async def run() -> tuple[int | None, str]:
        process = await start(*arguments)
        out, told = await asyncio.wait_for(process.communicate(), 60)
        assert out == b""
        assert b"Traceback" not in told
        return process.returncode, told.decode()

    return asyncio.run(run())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_line_is_the_url_and_a_signal_ends_it_well(number: signal.Signals) -> None:
    async def run() -> None:
        async with serving(FIRST, "--port", "0") as served:
            assert served.url.startswith("http://127.0.0.1:")
            assert (await exchange(served.url, STREAM, headers={"x-api-key": KEY})).body == TEXT
            await served.end(number)
        assert served.status == 0
        assert served.stdout == b""
        assert served.stderr == f"turnstream: POST /v1/messages: 200, {FIRST}, stream, {len(TEXT)} bytes\n"

    asyncio.run(run())


def port_of(served: Served) -> int:
    return int(served.url.rpartition(":")[2])


def test_a_signal_ends_what_is_open() -> None:
    async def run() -> None:
        async with serving(FIRST, "--fault", "stall-after=2") as served:
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(served))
            body = json.dumps(STREAM).encode()
            writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: t\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            await asyncio.wait_for(reader.readuntil(TEXT.split(b"\n\n")[1]), 60)
            await served.end()
            assert not (await asyncio.wait_for(reader.read(), 60)).endswith(b"0\r\n\r\n")
            writer.transport.abort()
        assert served.status == 0
        assert "fault stall-after=2, server ended" in served.stderr

    asyncio.run(run())


def test_options_reach_the_server() -> None:
    async def run() -> None:
        options = (
            "--chunk",
            "9",
            "--speed",
            "1000",
            "--fault",
            "429=5,times=1",
            "--fault",
            "crlf;none",
            "--host",
            "localhost",
        )
        async with serving(*options, EXAMPLES) as served:
            first = await exchange(served.url, STREAM)
            second = await exchange(served.url, STREAM)
            third = await exchange(served.url, {**STREAM, "model": "1-text"})
            whole = await exchange(served.url, {**REQUEST, "model": "1-text"})
            await served.end()
        assert (first.status, first.headers["retry-after"]) == (429, "5")
        assert second.body == TEXT.replace(b"\n", b"\r\n")
        assert third.body == TEXT
        assert {len(chunk) for _, chunk in third.chunks} >= {9}
        assert max(len(chunk) for _, chunk in third.chunks) == 9
        assert whole.json["type"] == "message"
        told = served.stderr.splitlines()
        assert told[0] == "turnstream: POST /v1/messages: 429, fault 429=5,times=1"
        assert len(told) == 4

    asyncio.run(run())


def test_once_ends_when_all_were_served() -> None:
    async def run() -> None:
        async with serving(FIRST, EXAMPLES / "2-thinking.sse", "--once", "--quiet") as served:
            for _ in range(2):
                assert (await exchange(served.url, STREAM)).status == 200
            await served.end(None)
        assert (served.status, served.stdout, served.stderr) == (0, b"", "")

    asyncio.run(run())


def test_once_ends_when_the_last_byte_is_out(tmp_path: Path) -> None:
    large = tmp_path / "large.sse"
    large.write_bytes(TEXT * 4000)

    async def run() -> None:
        async with serving(large, "--once", "--chunk", "max") as served:
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(served), limit=2**12)
            body = json.dumps(STREAM).encode()
            writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: t\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            got = b""
            read = 0
            while chunk := await reader.read(2**12):
                read += len(chunk)
                got = (got + chunk)[-100:]
            writer.transport.abort()
            await served.end(None)
        assert read > large.stat().st_size
        assert got.endswith(b"\r\n0\r\n\r\n")
        assert served.status == 0

    asyncio.run(run())


def test_neither_keys_nor_paths_are_told() -> None:
    async def run() -> None:
        async with serving(FIRST) as served:
            await exchange(
                served.url, STREAM, path=f"/v1/messages?key={KEY}", headers={"authorization": f"Bearer {KEY}"}
            )
            await exchange(served.url, {**STREAM, "model": KEY})
            await exchange(served.url, STREAM, path=f"/{KEY}", headers={"x-turnstream-recording": KEY})
            await exchange(served.url, STREAM, headers={"x-turnstream-recording": KEY})
            await exchange(served.url, STREAM, headers={"x-turnstream-fault": KEY})
            for line in (
                b"POST / HTTP/1.1\r\nx-api-key: \x00%s",
                b"%s / HTTP/1.1",
                b"POST / %s",
                b"POST /\x00%s HTTP/1.1",
            ):
                reader, writer = await asyncio.open_connection("127.0.0.1", port_of(served))
                writer.write(line % KEY.encode() + b"\r\n\r\n")
                assert b" 400 " in await reader.readline()
                writer.transport.abort()
            await served.end()
        assert served.status == 0
        assert KEY.lower() not in served.stderr.lower()
        assert "turnstream: POST (another path): 404\n" in served.stderr

    asyncio.run(run())


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "RECORDING"),
        (("nowhere.sse",), "nowhere.sse"),
        ((FIRST, "--fault", "explode"), "unknown fault 'explode'"),
        ((FIRST, "--port", "70000"), "port"),
        ((FIRST, "--speed", "0"), "factor"),
        ((FIRST, "--chunk", "0"), "bytes"),
        ((FIRST, "--host", "192.0.2.1"), "can't listen on 192.0.2.1"),
    ],
)
def test_usage(arguments: tuple[Any, ...], word: str) -> None:
    status, told = refused(*arguments)
    assert status == 2
    assert word in told


def test_a_folder_without_recordings(tmp_path: Path) -> None:
    status, told = refused(tmp_path)
    assert status == 2
    assert "holds no recording" in told


def test_standard_output_closed() -> None:
    reading, writing = os.pipe()
    os.close(reading)

    async def run() -> int:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "turnstream", "serve", str(FIRST), stdout=writing, stderr=asyncio.subprocess.PIPE
        )
        _, told = await asyncio.wait_for(process.communicate(), 60)
        assert b"Traceback" not in told
        assert process.returncode is not None
        return process.returncode

    try:
        assert asyncio.run(run()) == 141
    finally:
        os.close(writing)
