"""Clients of the live benchmark: turnstream, a bare loop of aiohttp, and the anthropic SDK, each over real sockets."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias

import aiohttp
import msgspec
import orjson

from turnstream.bench.contenders import THREE_SINKS, scratch_folder
from turnstream.bench.live_server import Asked, stamped
from turnstream.bench.peers import SDK_RAW, SDK_STREAM
from turnstream.composition import Pipeline
from turnstream.messages.events import ContentBlockDelta, TextDelta
from turnstream.operators import accumulate, decode_sse, parse_events
from turnstream.sinks import MetricsSink, SinkBase, TranscriptSink, UISink
from turnstream.sources import from_request
from turnstream.sources.http import shared_session

__all__ = [
    "ANSWERS",
    "BARE",
    "CLIENTS",
    "PLAIN",
    "Client",
    "Counted",
    "Delays",
    "Opened",
    "characters_of",
    "clients",
    "close_streams",
    "open_streams",
]

BARE: Final = "bare aiohttp loop"
PLAIN: Final = "the same + the floor's loop"

_REQUEST: Final[dict[str, Any]] = {
    "model": "claude-bench-1",
    "max_tokens": 1,
    "messages": [{"role": "user", "content": "bench"}],
}


class Counted(msgspec.Struct, frozen=True):
    """What one answer came to.

    Attributes:
        bytes: of it.
        reads: how often the client was handed bytes.
        characters: of text and thinking, None for who doesn't look.
    """

    bytes: int
    reads: int
    characters: int | None = None


async def _bare_answer(session: aiohttp.ClientSession, url: str, asked: Asked, transcript: Path) -> Counted:
    """The least that reads an answer: its bytes as they come, counted."""
    size = reads = 0
    async with session.post(f"{url}/v1/messages", json=_REQUEST, headers=asked.header()) as response:
        async for chunk in response.content.iter_any():
            size += len(chunk)
            reads += 1
    return Counted(size, reads)


async def _plain_answer(session: aiohttp.ClientSession, url: str, asked: Asked, transcript: Path) -> Counted:
    """The same, and each event's JSON loaded and looked at, as the floor does: the least that makes use of an answer."""
    size = reads = characters = 0
    buffer = b""
    parts: list[str] = []
    async with session.post(f"{url}/v1/messages", json=_REQUEST, headers=asked.header()) as response:
        async for chunk in response.content.iter_any():
            size += len(chunk)
            reads += 1
            *events, buffer = (buffer + chunk).split(b"\n\n")
            for event in events:
                data = orjson.loads(event[event.find(b"\ndata: ") + 7 :])
                if data["type"] == "content_block_delta":
                    delta = data["delta"]
                    parts.append(delta.get("text") or delta.get("thinking") or "")
                elif data["type"] == "content_block_stop":
                    characters += len("".join(parts))
                    parts.clear()
    return Counted(size, reads, characters)


def _pipeline(session: aiohttp.ClientSession, url: str, asked: Asked) -> Pipeline[Any]:
    source = from_request(_REQUEST, base_url=url, headers=asked.header(), session=session, api_key="bench")
    return Pipeline(source).through(decode_sse() | parse_events() | accumulate())


async def _three_sinks_answer(session: aiohttp.ClientSession, url: str, asked: Asked, transcript: Path) -> Counted:
    """The same through turnstream into three sinks (the transcript is for who calls to look at)."""
    sinks = (UISink(), TranscriptSink(transcript), MetricsSink())
    outcome = await _pipeline(session, url, asked).to(*sinks).run()
    if not outcome.ok:
        raise RuntimeError(f"the run ended {outcome.status}: {outcome.error or outcome.sink_errors}")
    return Counted(outcome.bytes, outcome.batches)


ANSWERS: Final = {BARE: _bare_answer, PLAIN: _plain_answer, THREE_SINKS: _three_sinks_answer}
"""Who reads an answer whose events come alone."""


def characters_of(transcript: Path) -> int:
    """Of text and thinking that a transcript holds."""
    entries = map(json.loads, transcript.read_bytes().splitlines())
    return sum(
        len(block[block["type"]])
        for entry in entries
        if entry.get("type") == "assistant"
        for block in entry["message"]["content"]
    )


# -- many at once ------------------------------------------------------------------------------------


class Delays:
    """From when an event was written to when it was handed to who uses it.

    Attributes:
        up: streams whose first event has come.
        seconds: the delays, while ``counting``.
    """

    def __init__(self) -> None:
        self.up = 0
        self.counting = False
        self.seconds: list[float] = []

    def came(self, text: str) -> None:
        """A delta with this text was handed out."""
        if self.counting and (at := stamped(text)) is not None:
            self.seconds.append(time.monotonic() - at)


class _DelaySink(SinkBase):
    """The one who uses them: the last sink."""

    name = "delay"

    def __init__(self, delays: Delays) -> None:
        self._delays = delays
        self._up = False

    def on_next(self, batch: Sequence[Any], /) -> None:
        for item in getattr(batch, "items", batch):
            if isinstance(item, ContentBlockDelta) and isinstance(item.delta, TextDelta):
                if not self._up:
                    self._up = True
                    self._delays.up += 1
                self._delays.came(item.delta.text)


Opened: TypeAlias = Callable[[Asked, Delays], Awaitable[Any]]
"""Runs one stream until it is cancelled."""


class Client(msgspec.Struct, frozen=True):
    """A way to keep many streams open.

    Attributes:
        name: what the table calls it.
        opened: a context, of a URL, that gives what runs one stream.
    """

    name: str
    opened: Any


@asynccontextmanager
async def _ours(url: str) -> AsyncIterator[Opened]:
    folder = Path(scratch_folder())
    names = count()
    try:
        async with shared_session() as session:

            async def run(asked: Asked, delays: Delays) -> Any:
                sinks = (UISink(), TranscriptSink(folder / f"{next(names)}.jsonl"), MetricsSink(), _DelaySink(delays))
                return await _pipeline(session, url, asked).to(*sinks).run()

            yield run
    finally:
        shutil.rmtree(folder)


@asynccontextmanager
async def _bare(url: str) -> AsyncIterator[Opened]:
    """Nothing but the bytes (for memory: it looks at no stamp)."""
    async with shared_session() as session:

        async def run(asked: Asked, delays: Delays) -> Any:
            async with session.post(f"{url}/v1/messages", json=_REQUEST, headers=asked.header()) as response:
                first = True
                async for _ in response.content.iter_any():
                    if first:
                        first = False
                        delays.up += 1

        yield run


def _anthropic(url: str) -> Any:
    anthropic: Any = import_module("anthropic")
    # Not through the environment's proxy, as the others.
    http_client = anthropic.DefaultAsyncHttpxClient(trust_env=False)
    return anthropic.AsyncAnthropic(base_url=url, api_key="bench", max_retries=0, http_client=http_client)


@asynccontextmanager
async def _sdk_raw(url: str) -> AsyncIterator[Opened]:
    async with _anthropic(url) as client:

        async def run(asked: Asked, delays: Delays) -> Any:
            stream = await client.messages.create(stream=True, extra_headers=asked.header(), **_REQUEST)
            async with stream:
                await _use(stream, delays)

        yield run


@asynccontextmanager
async def _sdk_stream(url: str) -> AsyncIterator[Opened]:
    async with _anthropic(url) as client:

        async def run(asked: Asked, delays: Delays) -> Any:
            async with client.messages.stream(extra_headers=asked.header(), **_REQUEST) as stream:
                await _use(stream, delays)

        yield run


async def _use(stream: Any, delays: Delays) -> None:
    up = False
    async for event in stream:
        if event.type == "content_block_delta":
            if not up:
                up = True
                delays.up += 1
            delays.came(event.delta.text)


CLIENTS: Final = {
    "bare": Client(BARE, _bare),
    "ours": Client(THREE_SINKS, _ours),
    "raw": Client(SDK_RAW, _sdk_raw),
    "stream": Client(SDK_STREAM, _sdk_stream),
}


def clients(tell: Callable[[str], None] = lambda text: None) -> list[Client]:
    """Who is measured with many streams: turnstream, and the SDK where it is installed."""
    if find_spec("anthropic") is None:
        tell("not measured: anthropic SDK (pip install 'turnstream[bench]')")
        return [CLIENTS["ours"]]
    return [CLIENTS["ours"], CLIENTS["raw"], CLIENTS["stream"]]


async def open_streams(
    run: Opened, streams: int, asked: Asked, delays: Delays, *, within: float
) -> list[asyncio.Task[Any]]:
    """Start streams and wait until each has had an event.

    Args:
        run: of the client.
        streams: how many.
        asked: what they ask for.
        delays: where they tell.
        within: seconds; who isn't up by then stays behind.

    Raises:
        RuntimeError: a stream ended.
    """
    loop = asyncio.get_running_loop()
    tasks = [asyncio.ensure_future(run(asked, delays)) for _ in range(streams)]
    late = loop.time() + within
    try:
        while delays.up < streams and loop.time() < late:
            await asyncio.sleep(0.02)
            for task in tasks:
                if task.done():
                    raise RuntimeError(f"a stream ended: {task.exception() or task.result()}")
    except BaseException:
        await close_streams(tasks)
        raise
    return tasks


async def close_streams(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel them all, and wait."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
