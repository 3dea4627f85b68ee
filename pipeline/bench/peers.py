"""Peers: what others use for the same job, each written as its users write it. Only what is installed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from turnstream.bench.contenders import Chunks, Contender, Found

__all__ = ["python_peers"]


def _response(httpx: Any, chunks: Iterable[bytes]) -> Any:
    """A response of the given HTTP library whose body hands out the chunks as they are."""

    class Stream(httpx.SyncByteStream):  # type: ignore[misc]
        def __iter__(self) -> Iterator[bytes]:
            yield from chunks

    return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Stream())


def _client(bodies: Iterator[list[bytes]]) -> Any:
    """The official client over a transport that answers with one body per request, no socket."""
    anthropic: Any = import_module("anthropic")
    # Newer versions of the SDK use httpx2, older ones httpx.
    httpx = import_module("httpx2" if find_spec("httpx2") is not None else "httpx")

    def answer(request: Any) -> Any:
        return _response(httpx, next(bodies))

    return anthropic.Anthropic(api_key="bench", http_client=httpx.Client(transport=httpx.MockTransport(answer)))


_REQUEST: dict[str, Any] = {
    "model": "claude-bench-1",
    "max_tokens": 1,
    "messages": [{"role": "user", "content": "bench"}],
}


def _anthropic_raw(chunks: Chunks) -> Found:
    client = _client(iter(chunks))
    text = blocks = 0
    for _ in chunks:
        for event in client.messages.create(stream=True, **_REQUEST):
            if event.type == "content_block_delta":
                delta = event.delta
                if delta.type == "text_delta":
                    text += len(delta.text)
                elif delta.type == "thinking_delta":
                    text += len(delta.thinking)
            elif event.type == "content_block_stop":
                blocks += 1
    return Found(text, blocks)


def _anthropic_stream(chunks: Chunks) -> Found:
    client = _client(iter(chunks))
    text = blocks = 0
    for _ in chunks:
        with client.messages.stream(**_REQUEST) as stream:
            for _event in stream:
                pass
            message = stream.get_final_message()
        blocks += len(message.content)
        text += sum(len(getattr(b, "text", "") or getattr(b, "thinking", "") or "") for b in message.content)
    return Found(text, blocks)


class _HandLoop:
    """The accumulation that people write by hand over parsed events."""

    def __init__(self) -> None:
        self.text = 0
        self.blocks = 0
        self._parts: list[str] = []
        self._kind = ""

    def event(self, data: dict[str, Any]) -> None:
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
            else:
                self.text += len(whole)

    def found(self) -> Found:
        return Found(self.text, self.blocks)


def _httpx_sse(chunks: Chunks) -> Found:
    httpx = import_module("httpx")
    event_source = import_module("httpx_sse").EventSource

    loop = _HandLoop()
    for answer in chunks:
        for event in event_source(_response(httpx, answer)).iter_sse():
            loop.event(json.loads(event.data))
    return loop.found()


def _naive_reactivex(chunks: Chunks) -> Found:
    reactivex: Any = import_module("reactivex")
    ops: Any = import_module("reactivex.operators")

    loop = _HandLoop()

    def cut(state: tuple[bytes, list[bytes]], chunk: bytes) -> tuple[bytes, list[bytes]]:
        *events, rest = (state[0] + chunk).split(b"\n\n")
        return rest, events

    for answer in chunks:
        reactivex.from_iterable(answer).pipe(
            ops.scan(cut, (b"", [])),
            ops.flat_map(lambda state: reactivex.from_iterable(state[1])),
            ops.map(lambda event: json.loads(event[event.find(b"\ndata: ") + 7 :])),
        ).subscribe(loop.event)
    return loop.found()


def python_peers() -> list[Contender]:
    """The peers whose packages are installed (extra ``[bench]``)."""
    peers = [Contender("reactivex, written naively", _naive_reactivex, slow=True)]
    if find_spec("httpx_sse") is not None and find_spec("httpx") is not None:
        peers.insert(0, Contender("httpx-sse + hand loop", _httpx_sse))
    if find_spec("anthropic") is not None:
        peers += [
            Contender("anthropic SDK, raw events", _anthropic_raw),
            Contender("anthropic SDK, messages.stream()", _anthropic_stream, slow=True),
        ]
    return peers
