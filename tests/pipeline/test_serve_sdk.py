"""The official SDK, unchanged, against the replay server: sync and async, streaming or not, faults and retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from serving import EXAMPLES, KEY

from turnstream.messages import AssistantMessage
from turnstream.operators import accumulate, decode, parse_events, run_stages
from turnstream.serve import ReplayServer, serve_recordings
from turnstream.testing import virtual_time

anthropic = pytest.importorskip("anthropic", reason="the official SDK isn't installed")

COMPLETE = [EXAMPLES / "1-text.sse", EXAMPLES / "2-thinking.sse", EXAMPLES / "3-two-tools.sse"]
ASKED: dict[str, Any] = {"model": "any", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}


def accumulated(path: Path) -> list[Any]:
    """The content blocks that our own stages make of a recording."""
    items = run_stages([path.read_bytes()], decode(), parse_events(), accumulate())
    return [block for item in items if isinstance(item, AssistantMessage) for block in item.message["content"]]


def text_of(path: Path) -> str:
    return "".join(block["text"] for block in accumulated(path) if block["type"] == "text")


def plain(message: Any) -> list[Any]:
    return [block.to_dict() for block in message.content]


def test_async() -> None:
    async def run(client: Any) -> None:
        for path in COMPLETE:
            async with client.messages.stream(**ASKED) as stream:
                assert "".join([text async for text in stream.text_stream]) == text_of(path)
                streamed = await stream.get_final_message()
            assert plain(streamed) == accumulated(path)
        for path in COMPLETE:
            events = [event.type async for event in await client.messages.create(**ASKED, stream=True)]
            lines = path.read_text(encoding="utf-8").splitlines()
            assert events == [line[7:] for line in lines if line.startswith("event: ") and line != "event: ping"]
        for path in COMPLETE:
            whole = await client.messages.create(**ASKED)
            assert plain(whole) == accumulated(path)
            assert whole.stop_reason in ("end_turn", "tool_use")
        assert (await client.messages.count_tokens(model="any", messages=ASKED["messages"])).input_tokens > 0
        models = [model.id async for model in client.models.list()]
        assert models == [path.stem for path in COMPLETE]
        assert (await client.models.retrieve(models[1])).id == models[1]

    with_client(run)


def with_client(
    run: Callable[[Any], Awaitable[None]], recordings: list[Path] = COMPLETE, **options: Any
) -> ReplayServer:
    async def main() -> ReplayServer:
        async with serve_recordings(recordings, **options) as server:
            client = anthropic.AsyncAnthropic(base_url=server.url, api_key=KEY, max_retries=0)
            async with client:
                await run(client)
        return server

    server = asyncio.run(main())
    assert KEY not in repr(list(server.requests))
    return server


def test_the_whole_message_is_what_the_sdk_makes_of_the_stream() -> None:
    async def run(client: Any) -> None:
        for path in COMPLETE:
            named = {**ASKED, "model": path.stem}
            async with client.messages.stream(**named) as stream:
                streamed = await stream.get_final_message()
            whole = await client.messages.create(**named)
            ours, theirs = whole.to_dict(), streamed.to_dict()
            assert ours == {key: value for key, value in theirs.items() if key in ours}
            assert {"id", "role", "content", "stop_reason", "usage", "model"} <= set(ours)

    with_client(run)


def test_sync_in_a_thread() -> None:
    def run(url: str) -> list[str]:
        out = []
        with anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0) as client:
            for _ in COMPLETE:
                with client.messages.stream(**ASKED) as stream:
                    out.append("".join(stream.text_stream))
            for path in COMPLETE:
                assert plain(client.messages.create(**ASKED)) == accumulated(path)
        return out

    async def main() -> list[str]:
        async with serve_recordings(COMPLETE) as server:
            return await asyncio.to_thread(run, server.url)

    assert asyncio.run(main()) == [text_of(path) for path in COMPLETE]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("400", "BadRequestError"),
        ("401", "AuthenticationError"),
        ("403", "PermissionDeniedError"),
        ("404", "NotFoundError"),
        ("429", "RateLimitError"),
        ("500", "InternalServerError"),
        ("503", "APIStatusError"),
        ("529", "APIStatusError"),
        ("overloaded", "APIStatusError"),
        ("overloaded-after=4", "APIStatusError"),
        ("cut-after=4", "Exception"),
        ("close-after=4", "Exception"),
    ],
)
def test_the_sdk_raises_what_it_raises_for_the_api(fault: str, error: str) -> None:
    async def run(client: Any) -> None:
        kind = getattr(anthropic, error, Exception)
        with pytest.raises(kind) as raised:
            async with client.messages.stream(**ASKED) as stream:
                await stream.get_final_message()
        if issubclass(kind, anthropic.APIStatusError):
            assert raised.value.request_id == "req_turnstream_000001"

    with_client(run, fault=fault)


@virtual_time
async def test_the_sdks_retries_succeed_when_the_fault_is_over() -> None:
    async with serve_recordings(COMPLETE, fault="429=7,times=1;529,times=1") as server:
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key=KEY, max_retries=2) as client:
            async with client.messages.stream(**ASKED) as stream:
                assert await stream.get_final_text() == text_of(COMPLETE[0])
        assert [seen.status for seen in server.requests] == [429, 529, 200]
    assert asyncio.get_running_loop().time() >= 7


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("none", None), ("slow=0.001", None), ("crlf", None), ("first-byte-stall=0.001", None), ("529,times=1", None),
        ("429=0,times=1", None), ("500;none", None), ("sse-body", None), ("keepalive=0.001,slow=0.003", None),
        ("stall-after=text", "ReadTimeout"), ("stall", "ReadTimeout"), ("first-byte-stall", "APITimeoutError"),
        ("cut-after=tool", "ReadError"), ("close-after=text", "RemoteProtocolError"), ("garbage", "UnicodeDecodeError"),
        ("half-utf8-after=text", "UnicodeDecodeError"), ("bad-json-after=start", "JSONDecodeError"),
        ("overloaded-after=stop-reason", "APIStatusError"), ("529", "OverloadedError"), ("408", "RequestTimeoutError"),
        ("413", "ContentTooLargeError"), ("429=0", "RateLimitError"), ("504", "GatewayTimeoutError"),
    ],
)  # fmt: skip
def test_sync_and_async_see_the_same(fault: str, error: str | None) -> None:
    patience = 0.3 if "Timeout" in (error or "") else 30
    how: dict[str, Any] = {"api_key": KEY, "max_retries": 0 if error else 1, "timeout": patience}

    def run(url: str) -> list[Any]:
        with anthropic.Anthropic(base_url=url, **how) as client, client.messages.stream(**ASKED) as stream:
            return plain(stream.get_final_message())

    async def run_async(url: str) -> list[Any]:
        async with anthropic.AsyncAnthropic(base_url=url, **how) as client, client.messages.stream(**ASKED) as stream:
            return plain(await stream.get_final_message())

    async def main() -> None:
        for ask in (lambda url: asyncio.to_thread(run, url), run_async):
            async with serve_recordings([COMPLETE[2]], fault=fault) as server:
                if error is None:
                    assert await ask(server.url) == accumulated(COMPLETE[2])
                    continue
                with pytest.raises(Exception) as raised:  # noqa: PT011 - of several libraries; its name is looked at
                    await ask(server.url)
                assert raised.type.__name__ == error

    asyncio.run(main())
