"""What comes back from a request, and the ways it takes (FAULTS.md 8, 9; issue 6)."""

from __future__ import annotations

import asyncio
import base64
import gzip
import itertools
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
import recordings
from aiohttp import web
from pulling import collect, joined
from serving import KEY, TEXT, Streamer, refusing, serving

from turnstream import Pipeline, accumulate, decode, from_file, from_request, parse_events
from turnstream.messages import APIError, AssistantMessage, ResponseFailed, StreamNote, TransportError
from turnstream.serve import serve_recordings
from turnstream.sources import SessionSource
from turnstream.sources.http import decode_answer, rate_limits, retry_after, shared_session
from turnstream.sources.http.proxies import proxy_of
from turnstream.testing import RecordingSink, run_virtual, virtual_time

REQUEST: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("REQUEST_METHOD", raising=False)  # with it the standard library mistrusts HTTP_PROXY
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def session(*sources: Any) -> SessionSource[bytes, Any]:
    return SessionSource(sources, lambda source: decode_answer(source) | parse_events() | accumulate(), announce=True)


async def answer(source: Any) -> tuple[Any, list[Any]]:
    """The outcome and the contents of the messages."""
    sink = RecordingSink()
    outcome = await Pipeline(session(source)).to(sink).run()
    return outcome, [item.message["content"] for item in sink.items if isinstance(item, AssistantMessage)]


async def contents_of_the_example() -> list[Any]:
    sink = RecordingSink()
    from turnstream import from_bytes

    stages = decode() | parse_events() | accumulate()
    await Pipeline(from_bytes(TEXT)).through(stages).to(sink).run()
    return [item.message["content"] for item in sink.items if isinstance(item, AssistantMessage)]


# -- streams and JSON, whatever was asked for ---------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("theirs", [True, False, None])
@virtual_time
async def test_what_is_asked_for_is_said(stream: bool, theirs: bool | None) -> None:
    server = Streamer(TEXT)
    async with serving(server) as url:
        request = REQUEST if theirs is None else {**REQUEST, "stream": theirs}
        await collect(from_request(request, base_url=url, stream=stream))
    ((_, headers, body),) = server.requests
    assert json.loads(body)["stream"] is stream  # explicit also where it is false (FAULTS.md 9)
    assert headers["accept"] == ("text/event-stream" if stream else "application/json")


@pytest.mark.parametrize(
    ("fault", "stream"),
    [("none", True), ("json-body", True), ("none", False), ("sse-body", False)],
    ids=["stream", "fault_8_json_to_a_stream_request", "json", "fault_9_a_stream_to_a_json_request"],
)
@pytest.mark.parametrize(
    "lie", ["", ",content-type=text/plain", ",content-type=text/html", ",content-type=application/json"]
)
@virtual_time
async def test_fault_8_and_9_one_answer_in_any_shape_and_under_any_header(fault: str, stream: bool, lie: str) -> None:
    async with serve_recordings([TEXT], fault=(fault + lie).removeprefix("none,")) as server:
        outcome, contents = await answer(from_request(REQUEST, base_url=server.url, stream=stream))
    assert outcome.ok
    assert outcome.answers_complete == 1
    assert contents == await contents_of_the_example()


@virtual_time
async def test_fault_8_a_page_instead_of_an_answer_is_a_typed_failure() -> None:
    for stream in (True, False):
        async with serve_recordings([TEXT], fault="html") as server:
            outcome, contents = await answer(from_request(REQUEST, base_url=server.url, stream=stream))
        assert (outcome.status, contents) == ("failed", [])
        assert outcome.failures[0].outcome == "not_a_stream"


@virtual_time
async def test_a_json_answer_may_take_its_time_until_the_first_byte() -> None:
    async with serve_recordings([TEXT], fault="first-byte-stall=290") as server:
        outcome, _ = await answer(from_request(REQUEST, base_url=server.url, stream=False))
    assert outcome.ok


def test_bedrocks_frames_over_http() -> None:
    pytest.importorskip("botocore")
    name = next(n for n in recordings.names((".eventstream",)) if isinstance(n, str)) if recordings.folder() else ""
    data = (recordings.need("AWS frames over HTTP") / name).read_bytes()

    async def run() -> None:
        reply = refusing(200, data, content_type="application/vnd.amazon.eventstream", x_amzn_requestid="aws-1")
        async with serving(reply) as url:
            source = from_request(REQUEST, base_url=url)
            outcome, contents = await answer(source)
        assert outcome.ok
        assert contents
        assert source.request_id == "aws-1"

    run_virtual(run())


def test_a_recording_of_aws_frames_is_a_file_like_the_others() -> None:
    pytest.importorskip("botocore")
    recordings.need("AWS frames from a file")
    for name in recordings.names((".eventstream",)):
        source = from_file(recordings.need("AWS") / name)
        outcome = run_virtual(Pipeline(source).through(decode() | parse_events() | accumulate()).run())
        assert outcome.answers_complete == 1


# -- compression ----------------------------------------------------------------------------------------


def packed(coding: str, data: bytes) -> bytes:
    if coding == "gzip":
        return gzip.compress(data)
    if coding == "deflate":
        return zlib.compress(data)
    brotli = pytest.importorskip("brotli", reason="br needs a Brotli package")
    return bytes(brotli.compress(data))


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br"])
@virtual_time
async def test_compressed_answers(coding: str) -> None:
    body = packed(coding, TEXT * 300)
    async with serving(refusing(200, body, content_encoding=coding)) as url:
        batches = await collect(from_request(REQUEST, base_url=url))
    assert joined(batches) == TEXT * 300
    assert max(batch.weight for batch in batches) <= 64 * 1024


@virtual_time
async def test_a_compressed_stream_arrives_event_by_event() -> None:
    """The server flushes after each event; nothing is held back until the end."""
    events = [block + b"\n\n" for block in TEXT.split(b"\n\n")[:-1]]
    packer = zlib.compressobj(wbits=31)
    pieces = [packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH) for event in events]

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-encoding": "gzip"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(1)
        return response

    async with serving(handle) as url:
        batches = await collect(from_request(REQUEST, base_url=url))
    assert [batch[0] for batch in batches] == events
    times = [batch.at or 0 for batch in batches]
    assert [round(b - a) for a, b in itertools.pairwise(times)] == [1] * (len(events) - 1)


@virtual_time
async def test_broken_compression_is_a_broken_connection() -> None:
    body = gzip.compress(TEXT * 300)
    async with serving(refusing(200, body[:300] + b"\0" * 300, content_encoding="gzip")) as url:
        with pytest.raises(TransportError) as broken:
            await collect(from_request(REQUEST, base_url=url))
    assert broken.value.retryable


# -- limits and ids -------------------------------------------------------------------------------------

LIMITS = {
    "anthropic-ratelimit-requests-limit": "50",
    "anthropic-ratelimit-requests-remaining": "49",
    "anthropic-ratelimit-requests-reset": "2026-01-02T03:04:05Z",
    "anthropic-ratelimit-input-tokens-remaining": "39000",
}
READ = {
    "requests": {"limit": 50, "remaining": 49, "reset": "2026-01-02T03:04:05Z"},
    "input_tokens": {"remaining": 39000},
}


@virtual_time
async def test_rate_limits_are_an_item_before_the_answer() -> None:
    async with serve_recordings([TEXT], headers={**LIMITS, "request-id": "req_7"}) as server:
        source = from_request(REQUEST, base_url=server.url)
        sink = RecordingSink()
        assert (await Pipeline(session(source)).to(sink).run()).ok
    kinds = [type(item).__name__ for item in sink.items]
    assert kinds[:3] == ["RequestStart", "StreamNote", "MessageStart"]
    (note,) = [item for item in sink.items if isinstance(item, StreamNote)]
    assert note.kind == "rate_limit"
    assert note.extra == {"rateLimits": READ, "requestId": source.request_id}
    assert "49 of 50 requests left" in note.message
    assert source.rate_limits == READ
    assert source.retry_after is None


@virtual_time
async def test_a_refusal_says_when_to_come_again() -> None:
    async with serve_recordings([TEXT], fault="429=7", headers=LIMITS) as server:
        source = from_request(REQUEST, base_url=server.url)
        sink = RecordingSink()
        await Pipeline(session(source)).to(sink).run()
    (note,) = [item for item in sink.items if isinstance(item, StreamNote)]
    assert (source.retry_after, source.rate_limits, source.status) == (7.0, READ, 429)
    assert note.extra is not None
    assert note.extra["retryAfter"] == 7.0
    (failed,) = [item for item in sink.items if isinstance(item, ResponseFailed)]
    assert failed.error["requestId"] == source.request_id
    assert source.request_id


@virtual_time
async def test_without_such_headers_there_is_no_item() -> None:
    async with serve_recordings([TEXT]) as server:
        sink = RecordingSink()
        await Pipeline(session(from_request(REQUEST, base_url=server.url))).to(sink).run()
    assert not [item for item in sink.items if isinstance(item, StreamNote)]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "90"}, 90.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "90"}, 1.5),
        ({"retry-after": "Fri, 02 Jan 2026 03:04:35 GMT"}, 30.0),
        ({"retry-after": "Fri, 02 Jan 2026 03:00:00 GMT"}, 0.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) == seconds


def test_rate_limits_of_gateways_and_odd_values() -> None:
    assert rate_limits({"X-RateLimit-Remaining-Tokens": "7", "x-ratelimit-reset-tokens": "6m0s"}) == {
        "tokens": {"remaining": 7, "reset": "6m0s"}
    }
    assert rate_limits({"anthropic-ratelimit-unified-status": "allowed"}) == {"unified": {"status": "allowed"}}
    assert rate_limits({"anthropic-ratelimit-requests-limit": "many"}) == {"requests": {"limit": "many"}}
    assert rate_limits({"content-type": "x", "anthropic-ratelimit": "1"}) == {}


@virtual_time
async def test_the_request_id_is_in_what_breaks_later() -> None:
    async with serve_recordings([TEXT], fault="cut-after=2") as server:
        source = from_request(REQUEST, base_url=server.url)
        with pytest.raises(TransportError) as broken:
            await collect(source)
    assert source.request_id is not None
    assert source.request_id in str(broken.value)


# -- connections ----------------------------------------------------------------------------------------


@virtual_time
async def test_a_shared_session_uses_its_connection_again() -> None:
    peers: list[Any] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        peers.append(request.transport.get_extra_info("peername"))
        return web.Response(body=TEXT, headers={"set-cookie": "a=b", "seen": request.headers.get("cookie", "none")})

    async with serving(handle) as url:
        async with shared_session() as shared:
            for _ in range(3):
                assert joined(await collect(from_request(REQUEST, base_url=url, session=shared))) == TEXT
            assert not shared.closed
        assert len(set(peers)) == 1
        await collect(from_request(REQUEST, base_url=url))
        assert len(set(peers)) == 2


@virtual_time
async def test_an_answer_that_is_left_early_takes_only_its_own_connection() -> None:
    server = Streamer(*[block + b"\n\n" for block in TEXT.split(b"\n\n")], ending="hang")
    async with serving(server) as url, shared_session() as shared:
        stream: Any = from_request(REQUEST, base_url=url, session=shared).batches()
        await anext(stream)
        await stream.aclose()
        await server.gone.wait()
        server.ending = "end"
        assert await collect(from_request(REQUEST, base_url=url, session=shared))


# -- proxies ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def a_proxy(status: int = 200) -> AsyncIterator[tuple[str, list[tuple[str, str | None]]]]:
    """Answers for whatever host it is asked; its address and what it was asked."""
    asked: list[tuple[str, str | None]] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        asked.append((request.raw_path, request.headers.get("proxy-authorization")))
        return web.Response(status=status, body=TEXT)

    async with serving(handle) as url:
        yield url.removeprefix("http://"), asked


@virtual_time
async def test_the_environments_proxy_is_used_and_its_password_kept() -> None:
    async with a_proxy() as (proxy, asked):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HTTP_PROXY", f"http://me:pass%2Dword@{proxy}")
            source = from_request(REQUEST, base_url="http://api.invalid/base", api_key=KEY)
            assert joined(await collect(source)) == TEXT
    ((target, auth),) = asked
    assert target == "http://api.invalid/base/v1/messages"
    assert auth == "Basic " + base64.b64encode(b"me:pass-word").decode()
    assert "pass-word" not in repr(source)


@virtual_time
async def test_no_proxy_trust_env_and_a_session_of_ones_own() -> None:
    server = Streamer(TEXT)
    async with a_proxy() as (proxy, asked), serving(server) as url, shared_session() as shared:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HTTP_PROXY", f"http://{proxy}")
            await collect(from_request(REQUEST, base_url=url, trust_env=False))
            await collect(from_request(REQUEST, base_url=url, session=shared))
            patch.setenv("NO_PROXY", "localhost,127.0.0.1")
            await collect(from_request(REQUEST, base_url=url))
            assert (len(server.requests), len(asked)) == (3, 0)
            patch.delenv("NO_PROXY")
            await collect(from_request(REQUEST, base_url=url))
    assert (len(server.requests), len(asked)) == (3, 1)


@pytest.mark.parametrize("status", [407, 502])
@virtual_time
async def test_a_proxy_that_refuses_the_tunnel(status: int) -> None:
    async with a_proxy(status) as (proxy, asked):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HTTPS_PROXY", f"http://me:pass-word@{proxy}")
            with pytest.raises(TransportError, match=f"the proxy refused: HTTP {status}") as refused:
                await collect(from_request(REQUEST, base_url="https://api.invalid", api_key=KEY))
    assert refused.value.retryable is (status == 502)
    assert [auth for _, auth in asked] == ["Basic " + base64.b64encode(b"me:pass-word").decode()]
    for secret in ("pass-word", KEY):
        assert secret not in repr(refused.value.__dict__) + str(refused.value)
    assert refused.value.__context__ is None


@pytest.mark.parametrize(
    ("environment", "url", "want"),
    [
        ({"HTTPS_PROXY": "http://p:1"}, "https://a.example/x", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1"}, "http://a.example/x", None),
        ({"ALL_PROXY": "p:1"}, "https://a.example/x", "http://p:1"),
        ({"https_proxy": "https://p"}, "https://a.example/x", "https://p"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".example"}, "https://a.example/x", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "a.example:443"}, "https://me:x@a.example:443/x", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, "https://a.example/x", None),
        ({"HTTPS_PROXY": "http://[::1]:8080"}, "https://a.example/x", "http://[::1]:8080"),
        ({"HTTPS_PROXY": ""}, "https://a.example/x", None),
        ({}, "https://a.example/x", None),
    ],
)
def test_proxies_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], url: str, want: str | None
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = proxy_of(url)
    assert (None if found is None else found.url) == want


@pytest.mark.parametrize("value", ["socks5://me:pass-word@p:1", "http://p:port", "http://"])
def test_a_proxy_that_cannot_be_used_is_not_gone_around(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", value)
    with pytest.raises(TransportError) as unusable:
        proxy_of("https://a.example")
    assert not unusable.value.retryable
    assert "pass-word" not in str(unusable.value)


@virtual_time
async def test_such_a_proxy_is_the_failure_of_the_answer() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HTTPS_PROXY", "socks5://p:1")
        outcome, _ = await answer(from_request(REQUEST, base_url="https://a.example"))
    assert outcome.status == "failed"
    assert outcome.failures[0].error["retryable"] is False


@virtual_time
async def test_a_refusal_still_names_its_type() -> None:
    async with serve_recordings([TEXT], fault="529=3") as server:
        with pytest.raises(APIError) as refused:
            await collect(from_request(REQUEST, base_url=server.url, stream=False))
    assert (refused.value.error_type, refused.value.status) == ("overloaded_error", 529)
