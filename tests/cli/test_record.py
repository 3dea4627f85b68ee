"""``turnstream record``, as a user calls it: a process."""

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
from serving import EXAMPLES, KEY, TEXT, Streamer
from serving import serving as upstream_of
from wire_client import STREAM, exchange

from turnstream.serve import serve_recordings

FIRST = EXAMPLES / "1-text.sse"


async def start(*arguments: Any, **options: Any) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "turnstream",
        *map(str, arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        **options,
    )


class Recording:
    """A running command; once it has ended, its status and what it said."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process = process
        self.url = url
        self.status: int | None = None
        self.stderr = ""

    async def end(self, *numbers: signal.Signals) -> None:
        for number in numbers:
            self.process.send_signal(number)
            await asyncio.sleep(0)
        out, told = await asyncio.wait_for(self.process.communicate(), 60)
        self.status, self.stderr = self.process.returncode, told.decode()
        assert out == b""
        assert "Traceback" not in self.stderr
        assert KEY not in self.stderr


@asynccontextmanager
async def recording(*arguments: Any, **options: Any) -> AsyncIterator[Recording]:
    process = await start("record", *arguments, **options)
    try:
        assert process.stdout is not None
        url = await asyncio.wait_for(process.stdout.readline(), 60)
        yield Recording(process, url.decode().strip())
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def run(*arguments: Any) -> tuple[int | None, bytes, str]:
    process = await start(*arguments)
    out, told = await asyncio.wait_for(process.communicate(), 60)
    assert b"Traceback" not in told
    return process.returncode, out, told.decode()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_records_until_a_signal_comes(number: signal.Signals, tmp_path: Path) -> None:
    async def main() -> None:
        async with serve_recordings([FIRST]) as server:
            async with recording("--upstream", server.url, "--dir", tmp_path / "new") as proxy:
                headers = {"x-api-key": KEY, "authorization": f"Bearer {KEY}"}
                direct = await exchange(server.url, STREAM)
                reply = await exchange(proxy.url, STREAM, headers=headers)
                await exchange(proxy.url, method="GET", path=f"/{KEY}?key={KEY}")
                metrics = (await exchange(proxy.url, method="GET", path="/metrics")).json
                await proxy.end(number)
        assert reply.body == direct.body == TEXT
        assert metrics["proxy"]["requests"] == 2
        assert proxy.status == 0
        (path,) = (tmp_path / "new").glob("*.sse")
        # A line a request, none of the client's words in it.
        assert proxy.stderr.splitlines() == [
            f"turnstream: POST /v1/messages: 200, {len(TEXT)} bytes, {path.name}",
            proxy.stderr.splitlines()[1],
        ]
        assert proxy.stderr.splitlines()[1].startswith("turnstream: GET other: 404, ")
        for file in (tmp_path / "new").rglob("*"):
            assert not file.is_file() or KEY.encode() not in file.read_bytes()
        # What was recorded is a recording like any other.
        replayed = [await run("replay", each, "--output", "text") for each in (path, FIRST)]
        assert replayed[0][:2] == replayed[1][:2]
        assert replayed[0][0] == 0

    asyncio.run(main())


def test_a_signal_lets_open_streams_finish_and_a_second_one_does_not(tmp_path: Path) -> None:
    async def main() -> None:
        async with serve_recordings([FIRST], fault="slow=0.2") as server:
            async with recording("--upstream", server.url, "--dir", tmp_path, "--quiet") as proxy:
                asking = asyncio.create_task(exchange(proxy.url, STREAM))
                while not server.requests:
                    await asyncio.sleep(0.01)
                await proxy.end(signal.SIGTERM)
                assert (await asking).body == TEXT
                assert (proxy.status, proxy.stderr) == (0, "")
        async with upstream_of(Streamer(TEXT, ending="hang")) as url:
            async with recording("--upstream", url, "--dir", tmp_path, "--grace", 1000) as proxy:
                asking = asyncio.create_task(exchange(proxy.url, STREAM))
                while (await exchange(proxy.url, method="GET", path="/-/metrics")).json["proxy"]["in_flight"] == 0:
                    await asyncio.sleep(0.01)
                proxy.process.send_signal(signal.SIGTERM)
                while True:  # until it has heard that one
                    try:
                        await exchange(proxy.url, method="GET", path="/-/health")
                    except ConnectionError:
                        break
                await proxy.end(signal.SIGTERM)
                assert proxy.status == 128 + signal.SIGTERM
                await asking

    asyncio.run(main())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_never_touches_the_stream(tmp_path: Path) -> None:
    # The process may write no file at all: EFBIG, as a full disk in the middle of a write.
    def no_files() -> None:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    async def main() -> None:
        async with serve_recordings([FIRST]) as server:
            options = ("--upstream", server.url, "--dir", tmp_path, "--no-transcripts")
            environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
            async with recording(*options, preexec_fn=no_files, env=environment) as proxy:
                for _ in range(3):
                    assert (await exchange(proxy.url, STREAM)).body == TEXT
                await proxy.end(signal.SIGTERM)
        assert proxy.status == 0
        assert "dropped: recording_failed 3" in proxy.stderr
        assert list(tmp_path.iterdir()) == []

    asyncio.run(main())


def test_usage(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    async def main() -> None:
        for arguments, told in (
            (["--upstream", "ftp://x", "--dir", tmp_path], "upstream"),
            (["--upstream", f"http://me:{KEY}@x", "--dir", tmp_path], "must not hold"),
            (["--upstream", "http://x", "--dir", tmp_path / "file"], "folder"),
            (["--upstream", "http://x", "--dir", tmp_path, "--session-header", "Authorization"], "secrets"),
            (["--upstream", "http://x", "--dir", tmp_path, "--grace", "-1"], "seconds"),
            (["--dir", tmp_path], "--upstream"),
        ):
            status, out, error = await run("record", *arguments)
            assert (status, out) == (2, b"")
            assert told in error
            assert KEY not in error

    asyncio.run(main())


def test_the_metrics_are_json_that_names_its_version(tmp_path: Path) -> None:
    async def main() -> None:
        async with recording("--upstream", "http://127.0.0.1:1", "--dir", tmp_path, "--pass-metrics") as proxy:
            assert (await exchange(proxy.url, method="GET", path="/metrics")).status == 502
            reply = await exchange(proxy.url, method="GET", path="/-/metrics")
            assert json.loads(reply.body)["schema_version"] == 1
            await proxy.end(signal.SIGINT)
            assert proxy.status == 0

    asyncio.run(main())
