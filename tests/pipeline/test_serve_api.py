"""The rest of the API that a replay server speaks: which recording, small endpoints, errors, and its end."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from frames import frame
from serving import EXAMPLES, KEY, TEXT, TOOLS
from wire_client import REQUEST, STREAM, Reply, exchange

from turnstream import Pipeline, accumulate, decode, from_file, from_request, parse_events
from turnstream.messages import AssistantMessage, SourceError
from turnstream.serve import Recording, ReplayServer, serve_recordings
from turnstream.serve.writing import flushed
from turnstream.sources import SessionSource
from turnstream.testing import RecordingSink, cancel_everywhere, virtual_time
from turnstream.testing.leftovers import Leftovers

FILES = [EXAMPLES / "1-text.sse", EXAMPLES / "2-thinking.sse", EXAMPLES / "3-two-tools.sse"]


def served(server: ReplayServer) -> list[str | None]:
    return [seen.recording and seen.recording.rpartition("/")[2] for seen in server.requests]


# -- which recording ---------------------------------------------------------------------------------


@virtual_time
async def test_recordings_are_served_in_turn() -> None:
    async with serve_recordings(FILES) as server:
        bodies = [(await exchange(server.url, STREAM)).body for _ in range(4)]
    assert bodies == [path.read_bytes() for path in (*FILES, FILES[0])]


@pytest.mark.parametrize("name", ["2-thinking", "2-thinking.sse", str(FILES[1])])
@virtual_time
async def test_a_recording_is_named_by_header_or_model(name: str) -> None:
    async with serve_recordings(FILES) as server:
        by_header = await exchange(server.url, STREAM, headers={"x-turnstream-recording": name})
        by_model = await exchange(server.url, {**STREAM, "model": name})
        in_turn = await exchange(server.url, STREAM)
    assert by_header.body == by_model.body == FILES[1].read_bytes()
    assert in_turn.body == FILES[0].read_bytes()  # names take no turn


@virtual_time
async def test_an_unknown_name_is_not_found_an_unknown_model_is_served() -> None:
    async with serve_recordings(FILES) as server:
        reply = await exchange(server.url, STREAM, headers={"x-turnstream-recording": "x"})
        assert (reply.status, reply.json["error"]["type"]) == (404, "not_found_error")
        assert "2-thinking" in reply.json["error"]["message"]
        assert (await exchange(server.url, {**STREAM, "model": "x"})).status == 200


@virtual_time
async def test_names_that_are_no_header_are_quoted() -> None:
    async with serve_recordings([Recording(TEXT, "añ b\n.sse")]) as server:
        (name,) = [(await exchange(server.url, STREAM)).headers["x-turnstream-recording"]]
        assert name.isascii()
        again = await exchange(server.url, STREAM, headers={"x-turnstream-recording": name})
    assert again.body == TEXT


@virtual_time
async def test_of_two_with_one_name_the_first_has_it_and_both_have_their_turn() -> None:
    recordings = [Recording(TEXT, "a/x.sse"), Recording(TOOLS, "b/x.sse")]
    async with serve_recordings(recordings) as server:
        for name, body in (("x", TEXT), ("x.sse", TEXT), ("b/x.sse", TOOLS)):
            assert (await exchange(server.url, {**STREAM, "model": name})).body == body
        assert [(await exchange(server.url, STREAM)).body for _ in range(2)] == [TEXT, TOOLS]
        listed = await exchange(server.url, method="GET", path="/v1/models")
        assert [each["id"] for each in listed.json["data"]] == ["x", "b/x.sse"]


@virtual_time
async def test_a_fault_that_passes_leaves_its_turn_to_the_retry() -> None:
    async with serve_recordings(FILES, fault="cut-after=2,times=2") as server:
        for _ in range(4):
            await exchange(server.url, STREAM)
        assert served(server) == ["1-text.sse", "1-text.sse", "1-text.sse", "2-thinking.sse"]
    async with serve_recordings(FILES, fault="crlf,times=1") as server:
        for _ in range(2):
            await exchange(server.url, STREAM)
        assert served(server) == ["1-text.sse", "2-thinking.sse"]
    async with serve_recordings(FILES, fault="cut-after=2") as server:
        for _ in range(2):
            await exchange(server.url, STREAM)
        assert served(server) == ["1-text.sse", "2-thinking.sse"]


@virtual_time
async def test_once_serves_each_and_then_none() -> None:
    async with serve_recordings(FILES, once=True) as server:
        await exchange(server.url, {**STREAM, "model": "2-thinking"})
        await exchange(server.url, STREAM)
        assert not server.all_served.is_set()
        await exchange(server.url, STREAM)
        await server.all_served.wait()
        reply = await exchange(server.url, STREAM)
        assert (reply.status, reply.json["error"]["type"]) == (404, "not_found_error")
        assert served(server) == ["2-thinking.sse", "1-text.sse", "3-two-tools.sse", None]


@virtual_time
async def test_all_served_waits_for_the_open_answers() -> None:
    async with serve_recordings([TEXT, TOOLS], fault="slow=10;none", once=True) as server:
        slow = asyncio.ensure_future(exchange(server.url, STREAM))
        await asyncio.sleep(1)
        assert (await exchange(server.url, STREAM)).body == TOOLS
        await asyncio.sleep(1)
        assert not server.all_served.is_set()
        await server.all_served.wait()
        assert (await slow).ended == "eof"


@virtual_time
async def test_all_served_waits_until_the_kernel_has_the_last_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    class Transport:
        left = [3, 2, 1, 0]

        def get_write_buffer_size(self) -> int:
            return self.left.pop(0)

    request: Any = SimpleNamespace(transport=Transport())
    await flushed(request)
    assert Transport.left == []
    await flushed(SimpleNamespace(transport=None))  # type: ignore[arg-type]

    gate = asyncio.Event()

    async def wait(request: Any) -> None:
        assert request.transport is not None
        await gate.wait()

    monkeypatch.setattr("turnstream.serve.server.flushed", wait)
    async with serve_recordings([TEXT], once=True) as server:
        assert (await exchange(server.url, STREAM)).body == TEXT
        # The client is gone now, and its going ends the wait for it.
        await server.all_served.wait()
        assert [seen.ended for seen in server.requests] == ["client gone"]
    async with serve_recordings([TEXT], once=True) as server:
        async with aiohttp.ClientSession() as client, client.post(f"{server.url}/v1/messages", json=STREAM) as response:
            assert await response.read() == TEXT
            await asyncio.sleep(1)
            assert not server.all_served.is_set()
            gate.set()
            await server.all_served.wait()


# -- small endpoints and errors ----------------------------------------------------------------------


@virtual_time
async def test_health() -> None:
    async with serve_recordings([TEXT]) as server:
        for path in ("/", "/health", "/?x=1"):
            assert (await exchange(server.url, method="GET", path=path)).json == {"status": "ok"}
            head = await exchange(server.url, method="HEAD", path=path)
            assert (head.status, head.body, int(head.headers["content-length"])) == (200, b"", 15)


@virtual_time
async def test_models_are_the_recordings() -> None:
    async with serve_recordings(FILES) as server:
        listed = (await exchange(server.url, method="GET", path="/v1/models?limit=1000")).json
        one = (await exchange(server.url, method="GET", path="/v1/models/2-thinking")).json
        none = await exchange(server.url, method="GET", path="/v1/models/x")
    assert [each["id"] for each in listed["data"]] == ["1-text", "2-thinking", "3-two-tools"]
    assert (listed["has_more"], listed["first_id"], listed["last_id"]) == (False, "1-text", "3-two-tools")
    assert one == listed["data"][1]
    assert (one["type"], none.status) == ("model", 404)


@virtual_time
async def test_tokens_are_counted_roughly() -> None:
    async with serve_recordings([TEXT]) as server:
        path = "/v1/messages/count_tokens"
        small = (await exchange(server.url, REQUEST, path=path)).json
        message = {"role": "user", "content": "x" * 4000}
        large = (await exchange(server.url, {**REQUEST, "messages": [message]}, path=path)).json
    assert set(small) == {"input_tokens"}
    assert 990 <= large["input_tokens"] - small["input_tokens"] <= 1010


def assert_error(reply: Reply, status: int, kind: str) -> None:
    assert (reply.status, reply.ended, reply.headers["content-type"]) == (status, "eof", "application/json")
    assert set(reply.json) == {"type", "error", "request_id"}
    assert (reply.json["type"], reply.json["error"]["type"]) == ("error", kind)


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/complete", "/v1/messages/batches", "/x", "/v1/models/a/b", "//v1/messages"]
)
@virtual_time
async def test_an_unknown_path_is_not_found(path: str) -> None:
    async with serve_recordings([TEXT]) as server:
        for method in ("GET", "POST"):
            assert_error(await exchange(server.url, STREAM, method=method, path=path), 404, "not_found_error")


@virtual_time
async def test_another_method_is_not_allowed() -> None:
    async with serve_recordings([TEXT]) as server:
        for method, path in (("GET", "/v1/messages"), ("PUT", "/v1/messages"), ("POST", "/"), ("POST", "/v1/models")):
            reply = await exchange(server.url, STREAM, method=method, path=path)
            assert_error(reply, 405, "invalid_request_error")


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"\xff", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b"[]", "object"),
        ({"messages": []}, "model"),
        ({"model": 1, "messages": []}, "model"),
        ({"model": "m"}, "messages"),
        ({"model": "m", "messages": {}}, "messages"),
        ({**REQUEST, "stream": 1}, "stream"),
    ],
)
@virtual_time
async def test_a_bad_request_is_refused(body: Any, word: str) -> None:
    async with serve_recordings([TEXT]) as server:
        reply = await exchange(server.url, body)
        assert_error(reply, 400, "invalid_request_error")
        assert word in reply.json["error"]["message"]
        assert (await exchange(server.url, STREAM)).body == TEXT


@virtual_time
async def test_a_body_that_is_not_what_its_headers_say_is_refused() -> None:
    async with serve_recordings([TEXT]) as server:
        reply = await exchange(server.url, b"no gzip", headers={"content-encoding": "gzip"})
        assert (reply.status, reply.json["error"]["type"]) == (400, "invalid_request_error")
        packed = gzip.compress(json.dumps(STREAM).encode())
        assert (await exchange(server.url, packed, headers={"content-encoding": "gzip"})).body == TEXT


@virtual_time
async def test_large_requests_are_taken_and_too_large_ones_refused() -> None:
    async with serve_recordings([TEXT]) as server:
        fits = {**REQUEST, "messages": [{"role": "user", "content": "x" * 5_000_000}]}
        assert (await exchange(server.url, fits)).status == 200
        too_large = {**REQUEST, "messages": [{"role": "user", "content": "x" * (32 * 1024 * 1024)}]}
        assert_error(await exchange(server.url, too_large), 413, "request_too_large")


@virtual_time
async def test_a_client_that_waits_for_100_continue_is_told_to_go_on() -> None:
    async with serve_recordings([TEXT]) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
        body = json.dumps(STREAM).encode()
        writer.write(
            b"POST /v1/messages HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(body)
        )
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
        writer.transport.abort()


@virtual_time
async def test_without_stream_a_recorded_error_is_a_refusal_and_a_cut_off_answer_what_there_is() -> None:
    async with serve_recordings([EXAMPLES / "4-error.sse", EXAMPLES / "5-truncated.sse", b"data: {}\n\n"]) as server:
        error = await exchange(server.url, REQUEST)
        truncated = await exchange(server.url, REQUEST)
        nothing = await exchange(server.url, REQUEST)
    assert_error(error, 529, "overloaded_error")
    lines = [
        line[6:] for line in (EXAMPLES / "5-truncated.sse").read_bytes().splitlines() if line.startswith(b"data: ")
    ]
    deltas = [json.loads(line).get("delta", {}).get("text", "") for line in lines]
    assert truncated.status == 200
    assert truncated.json["stop_reason"] is None
    assert "".join(block.get("text", "") for block in truncated.json["content"]) == "".join(deltas)
    assert_error(nothing, 500, "api_error")


def start(identifier: str) -> dict[str, Any]:
    usage = {"input_tokens": 5, "output_tokens": 1}
    message = {"id": identifier, "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    return {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}}


def text(index: int, *words: str) -> list[dict[str, Any]]:
    block = {"type": "text", "text": ""}
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *(
            {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": word}}
            for word in words
        ),
        {"type": "content_block_stop", "index": index},
    ]


END: list[dict[str, Any]] = [
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}},
    {"type": "message_stop"},
]


@pytest.mark.parametrize(
    ("events", "texts"),
    [
        # the blocks stop in another order than they stand
        ([start("a"), text(0, "x")[0], *text(1, "second"), *text(0, "first")[1:], *END], ["first", "second"]),
        # an attempt that another one supersedes doesn't count
        ([start("a"), *text(0, "old"), start("b"), *text(0, "new"), *END], ["new"]),
        ([start("a"), *text(0, "old"), start("a"), *text(0, "new"), *END], ["new"]),
        # of several answers the last
        ([start("a"), *text(0, "one"), *END, start("b"), *text(0, "two"), *END], ["two"]),
    ],
)
@virtual_time
async def test_the_whole_message_has_the_blocks_of_the_last_answer_in_order(
    events: list[Any], texts: list[str]
) -> None:
    async with serve_recordings([b"".join(frame(event) for event in events)]) as server:
        reply = await exchange(server.url, REQUEST)
    assert [block["text"] for block in reply.json["content"]] == texts
    assert (reply.json["stop_reason"], reply.json["usage"]) == ("end_turn", {"input_tokens": 5, "output_tokens": 7})


@virtual_time
async def test_of_superseded_attempts_alone_there_is_no_message() -> None:
    stream = b"".join(map(frame, [start("a"), *text(0, "old"), start("b")]))
    async with serve_recordings([stream]) as server:
        assert_error(await exchange(server.url, REQUEST), 500, "api_error")


# -- what is remembered, and what isn't --------------------------------------------------------------


@virtual_time
async def test_requests_are_remembered_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = ("x-api-key", "Authorization", "Cookie", "Proxy-Authorization", "X-My-Token", "api-key")
    async with serve_recordings([TEXT]) as server:
        await exchange(
            server.url,
            STREAM,
            path=f"/v1/messages?key={KEY}",
            headers={**dict.fromkeys(secrets, KEY), "X-Other": "seen"},
        )
        await exchange(server.url, b"{" + KEY.encode(), headers={"x-api-key": KEY})
        first, second = server.requests
    assert (first.method, first.path, first.json) == ("POST", "/v1/messages", STREAM)
    assert (first.status, first.stream, first.sent, first.ended) == (200, True, len(TEXT), "complete")
    assert (second.status, second.recording) == (400, None)
    assert first.headers["x-other"] == "seen"
    assert {first.headers[name.lower()] for name in secrets} == {"[redacted]"}
    assert KEY not in repr(first) + repr(server) + caplog.text


@virtual_time
async def test_what_cannot_be_parsed_is_in_no_log(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serve_recordings([TEXT]) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
        writer.write(b"POST /v1/messages HTTP/1.1\r\nx-api-key: \x00%s\r\n\r\n" % KEY.encode())
        assert b" 400 " in await reader.readuntil(b"\r\n")
        writer.transport.abort()
        assert (await exchange(server.url, STREAM)).body == TEXT
    assert KEY not in caplog.text + "".join(capfd.readouterr())


@virtual_time
async def test_how_each_reply_ended() -> None:
    ends: list[str | None] = []
    async with serve_recordings(
        [TEXT], fault="none;cut-after=1;close;stall;stall", on_end=lambda seen: ends.append(seen.ended), keep_requests=2
    ) as server:
        for _ in range(4):
            await exchange(server.url, STREAM, patience=5)
        await asyncio.sleep(1)
        assert ends == ["complete", "broken", "broken", "client gone"]
        asked = asyncio.ensure_future(exchange(server.url, STREAM))
        await asyncio.sleep(1)
        assert len(server.requests) == 2
    assert (await asked).ended == "closed"
    assert ends[4:] == ["server ended"]


@virtual_time
async def test_headers_of_the_servers_own() -> None:
    async with serve_recordings([TEXT], headers={"anthropic-ratelimit-requests-remaining": "7"}) as server:
        assert (await exchange(server.url, STREAM)).headers["anthropic-ratelimit-requests-remaining"] == "7"


# -- its life ----------------------------------------------------------------------------------------


@virtual_time
async def test_it_ends_at_once_and_leaves_nothing_whatever_is_open() -> None:
    before = Leftovers()
    fault = "stall-after=2;first-byte-stall;pings;slow=50;cut-after=1;none"
    async with serve_recordings([TEXT], fault=fault) as server:
        asked = [asyncio.ensure_future(exchange(server.url, STREAM)) for _ in range(6)]
        async with aiohttp.ClientSession() as session, session.get(server.url) as idle:  # a connection kept alive
            assert idle.status == 200
            await asyncio.sleep(20)
            began = asyncio.get_running_loop().time()
            await server.aclose()
            assert asyncio.get_running_loop().time() - began < 1
        replies = await asyncio.gather(*asked)
        with pytest.raises(ConnectionRefusedError):
            await exchange(server.url, STREAM)
        await server.aclose()
    assert sorted(reply.ended for reply in replies) == ["closed"] * 4 + ["eof", "reset"]
    await asyncio.sleep(0)
    assert before.since() == []


def test_cancelled_at_every_step_it_leaves_nothing() -> None:
    async def scenario() -> None:
        async with serve_recordings([TEXT], fault="stall-after=2;cut-after=1") as server:
            await exchange(server.url, STREAM, patience=5)
            await exchange(server.url, STREAM, patience=5)

    assert cancel_everywhere(scenario) > 20


@virtual_time
async def test_two_at_once_and_an_address_in_use() -> None:
    async with serve_recordings([TEXT]) as one, serve_recordings([TOOLS]) as two:
        assert (await exchange(one.url, STREAM)).body == TEXT
        assert (await exchange(two.url, STREAM)).body == TOOLS
        with pytest.raises(SourceError, match=r"can't listen on 127\.0\.0\.1:\d+: .*in use"):
            async with serve_recordings([TEXT], port=int(one.url.rpartition(":")[2])):
                raise AssertionError


@pytest.mark.parametrize(
    ("options", "word"),
    [({"fault": "x"}, "fault"), ({"pace": 0}, "pace"), ({"pace": float("inf")}, "pace"), ({"chunk": 0}, "chunk")],
)
@virtual_time
async def test_what_makes_no_sense_is_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        async with serve_recordings([TEXT], **options):
            raise AssertionError


def session(source: Any) -> SessionSource[bytes, Any]:
    return SessionSource([source], lambda _: decode() | parse_events() | accumulate())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@virtual_time
async def test_our_own_source_gets_what_a_replay_of_the_file_gets(path: Path) -> None:
    live, replayed = RecordingSink(), RecordingSink()
    async with serve_recordings([path], chunk=100) as server:
        assert (await Pipeline(session(from_request(REQUEST, base_url=server.url))).to(live).run()).ok
    assert (await Pipeline(session(from_file(path))).to(replayed).run()).ok

    def contents(sink: RecordingSink) -> list[Any]:
        return [item.message if isinstance(item, AssistantMessage) else item for item in sink.items]

    assert contents(live) == contents(replayed)
    assert len(live.items) > 10
