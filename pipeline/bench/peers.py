"""Peers: what others use for the same job, each written as its users write it. Only what is installed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import msgspec

from turnstream.bench.contender import Contender, Found, Given

__all__ = ["SDK_RAW", "SDK_STREAM", "python_peers"]

SDK_RAW: Final = "anthropic SDK, raw events"
SDK_STREAM: Final = "anthropic SDK, messages.stream()"


def _response(httpx: Any, chunks: Iterable[bytes]) -> Any:
    """A response of the given HTTP library whose body hands out the chunks as they are."""

    class Stream(httpx.SyncByteStream):  # type: ignore[misc]
        def __iter__(self) -> Iterator[bytes]:
            yield from chunks

    return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Stream())


class _Client(msgspec.Struct):
    """The official client over a transport that answers with one body per request, no socket."""

    client: Any
    answers: list[list[bytes]]
    bodies: Iterator[list[bytes]] = iter(())


def _client(given: Given) -> _Client:
    anthropic: Any = import_module("anthropic")
    # Newer versions of the SDK use httpx2, older ones httpx.
    httpx = import_module(_sdk_http())
    made = _Client(None, given.answers)

    def answer(request: Any) -> Any:
        return _response(httpx, next(made.bodies))

    http_client = httpx.Client(transport=httpx.MockTransport(answer))
    made.client = anthropic.Anthropic(api_key="bench", http_client=http_client, max_retries=0)
    return made


def _sdk_http() -> str:
    return "httpx2" if find_spec("httpx2") is not None else "httpx"


_REQUEST: dict[str, Any] = {
    "model": "claude-bench-1",
    "max_tokens": 1,
    "messages": [{"role": "user", "content": "bench"}],
}


def _anthropic_raw(made: _Client) -> Found:
    """Every event as the SDK's typed object, looked at once."""
    made.bodies = iter(made.answers)
    text = blocks = tool = events = 0
    for _ in made.answers:
        for event in made.client.messages.create(stream=True, **_REQUEST):
            events += 1
            if event.type == "content_block_delta":
                delta = event.delta
                if delta.type == "text_delta":
                    text += len(delta.text)
                elif delta.type == "thinking_delta":
                    text += len(delta.thinking)
                elif delta.type == "input_json_delta":
                    tool += len(delta.partial_json)
            elif event.type == "content_block_stop":
                blocks += 1
    return Found(text, blocks, tool, events)


def _anthropic_stream(made: _Client) -> list[Any]:
    """The helper that accumulates: its events are iterated, its final message is kept."""
    made.bodies = iter(made.answers)
    messages: list[Any] = []
    for _ in made.answers:
        with made.client.messages.stream(**_REQUEST) as stream:
            for _event in stream:
                pass
            messages.append(stream.get_final_message())
    return messages


def _messages_found(messages: list[Any]) -> Found:
    text = blocks = tool = 0
    for message in messages:
        for block in message.content:
            blocks += 1
            if block.type == "tool_use":
                tool += len(json.dumps(block.input, ensure_ascii=False))
            else:
                text += len(block.text if block.type == "text" else block.thinking)
    return Found(text, blocks, tool)


class _HandLoop:
    """The accumulation that people write by hand over parsed events."""

    def __init__(self) -> None:
        self.text = 0
        self.blocks = 0
        self.tool = 0
        self.events = 0
        self._parts: list[str] = []
        self._kind = ""

    def event(self, data: dict[str, Any]) -> None:
        self.events += 1
        kind = data["type"]
        if kind == "content_block_delta":
            delta = data["delta"]
            if delta["type"] == "text_delta":
                self._parts.append(delta["text"])
            elif delta["type"] == "thinking_delta":
                self._parts.append(delta["thinking"])
            elif delta["type"] == "input_json_delta":
                self._parts.append(delta["partial_json"])
        elif kind == "content_block_start":
            self._kind = data["content_block"]["type"]
            self._parts = []
        elif kind == "content_block_stop":
            whole = "".join(self._parts)
            self.blocks += 1
            if self._kind == "tool_use":
                json.loads(whole or "{}")
                self.tool += len(whole)
            else:
                self.text += len(whole)

    def found(self) -> Found:
        return Found(self.text, self.blocks, self.tool, self.events)


def _httpx_sse(given: Given) -> Found:
    httpx = import_module("httpx")
    event_source = import_module("httpx_sse").EventSource

    loop = _HandLoop()
    for answer in given.answers:
        for event in event_source(_response(httpx, answer)).iter_sse():
            loop.event(json.loads(event.data))
    return loop.found()


def _naive_reactivex(given: Given) -> Found:
    reactivex: Any = import_module("reactivex")
    ops: Any = import_module("reactivex.operators")

    loop = _HandLoop()

    def cut(state: tuple[bytes, list[bytes]], chunk: bytes) -> tuple[bytes, list[bytes]]:
        *events, rest = (state[0] + chunk).split(b"\n\n")
        return rest, events

    for answer in given.answers:
        reactivex.from_iterable(answer).pipe(
            ops.scan(cut, (b"", [])),
            ops.flat_map(lambda state: reactivex.from_iterable(state[1])),
            ops.map(lambda event: json.loads(event[event.find(b"\ndata: ") + 7 :])),
        ).subscribe(loop.event)
    return loop.found()


def python_peers(tell: Callable[[str], None] = lambda text: None) -> list[Contender]:
    """The peers whose packages are installed (extra ``[bench]``).

    Args:
        tell: called with a line for each that is missing.
    """
    peers: list[Contender] = []
    if find_spec("httpx_sse") is not None and find_spec("httpx") is not None:
        peers.append(Contender("httpx-sse + hand loop", _httpx_sse))
    else:
        tell("not measured: httpx-sse (pip install 'turnstream[bench]')")
    peers.append(Contender("reactivex, written naively", _naive_reactivex, slow=True))
    if find_spec("anthropic") is not None:
        peers += [
            Contender(SDK_RAW, _anthropic_raw, prepare=_client),
            Contender(SDK_STREAM, _anthropic_stream, prepare=_client, found=_messages_found, slow=True),
        ]
    else:
        tell("not measured: anthropic SDK (pip install 'turnstream[bench]')")
    return peers
