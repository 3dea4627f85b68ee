"""``turnstream.serve``: each fault, as bytes on the wire of a real socket (issue 6)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from typing import Any

import aiohttp
import pytest
from serving import TEXT, TOOLS
from wire_client import REQUEST, STREAM, Reply, exchange

from turnstream.serve import serve_recordings
from turnstream.testing import virtual_time

# The examples are plain: an event is what stands before an empty line.
EVENTS = [block + b"\n\n" for block in TEXT.split(b"\n\n")[:-1]]
DUE = [float(at) for at in re.findall(rb"turnstream at=([\d.]+)", TEXT)]
ASCII = TEXT.decode().encode("ascii", "replace")
EVENT_STREAM = "text/event-stream; charset=utf-8"
PING = b'event: ping\ndata: {"type":"ping"}\n\n'


def first(number: int) -> bytes:
    return b"".join(EVENTS[:number])


async def ask(fault: str = "none", body: Any = STREAM, recording: bytes = TEXT, **options: Any) -> Reply:
    async with serve_recordings([recording], fault=fault, **options) as server:
        return await exchange(server.url, body)


def test_the_example_is_what_these_tests_take_it_for() -> None:
    assert b"".join(EVENTS) == TEXT
    assert len(EVENTS) > 8
    assert len(DUE) == len(EVENTS)
    assert b"\r" not in TEXT


# -- without a fault ---------------------------------------------------------------------------------


@virtual_time
async def test_a_stream_is_the_recording_verbatim_an_event_a_chunk() -> None:
    reply = await ask()
    assert (reply.status, reply.reason, reply.ended) == (200, "OK", "eof")
    assert reply.headers["content-type"] == EVENT_STREAM
    assert re.fullmatch(r"req_\w+", reply.headers["request-id"])
    assert reply.headers["x-turnstream-recording"] == "recording-1"
    assert [chunk for _, chunk in reply.chunks] == EVENTS


@virtual_time
async def test_a_chunk_may_hold_so_many_bytes_or_as_much_as_there_is() -> None:
    seven = await ask(chunk=7)
    assert seven.body == TEXT
    assert {len(chunk) for _, chunk in seven.chunks[:-1]} == {7}
    assert [chunk for _, chunk in (await ask(chunk="max")).chunks] == [TEXT]
    large = await ask(recording=TEXT * 100, chunk="max")
    assert large.body == TEXT * 100
    assert {len(chunk) for _, chunk in large.chunks[:-1]} == {65536}


@pytest.mark.parametrize("factor", [1.0, 2.0, 0.125])
@virtual_time
async def test_events_come_at_the_recorded_pace(factor: float) -> None:
    reply = await ask(pace=factor)
    assert reply.times == pytest.approx([due / factor for due in DUE], abs=1e-9)
    assert reply.body == TEXT


@virtual_time
async def test_a_recording_without_times_has_no_pace() -> None:
    reply = await ask(recording=re.sub(rb"(?m)^: .*\n", b"", TEXT), pace=1.0)
    assert set(reply.times) == {0.0}


@virtual_time
async def test_without_stream_the_message_comes_as_json() -> None:
    reply = await ask(body=REQUEST)
    assert (reply.status, reply.ended, reply.headers["content-type"]) == (200, "eof", "application/json")
    payloads = [json.loads(line[6:]) for line in TEXT.splitlines() if line.startswith(b"data: ")]
    texts = [p["delta"]["text"] for p in payloads if p["type"] == "content_block_delta"]
    (delta,) = [p for p in payloads if p["type"] == "message_delta"]
    message = payloads[0]["message"]
    assert reply.json == {
        **message,
        "content": [{"type": "text", "text": "".join(texts)}],
        **delta["delta"],
        "usage": {**message["usage"], **delta["usage"]},
    }


# -- how a stream ends -------------------------------------------------------------------------------

COUNTS = [0, 1, 3, len(EVENTS), 999]


@pytest.mark.parametrize("count", COUNTS)
@virtual_time
async def test_stall_sends_so_many_events_and_keeps_the_socket_open(count: int) -> None:
    reply = await ask(f"stall-after={count}")
    assert (reply.status, reply.ended) == (200, "silent")
    assert reply.body == first(count)
    assert reply.at - max(reply.times, default=0.0) == 3600.0


@pytest.mark.parametrize("count", COUNTS)
@virtual_time
async def test_cut_resets_the_connection_once_the_events_are_there(count: int) -> None:
    reply = await ask(f"cut-after={count}")
    assert (reply.status, reply.ended) == (200, "reset")
    assert reply.body == first(count)


@virtual_time
async def test_cut_takes_nothing_away_from_a_client_that_reads_late() -> None:
    body = TEXT * 300
    async with serve_recordings([body], fault="cut-after=999999", chunk="max") as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]), limit=2**14)
        data = json.dumps(STREAM).encode()
        writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: t\r\ncontent-length: %d\r\n\r\n" % len(data) + data)
        await asyncio.sleep(4)
        got = bytearray()
        with contextlib.suppress(ConnectionResetError):
            while chunk := await reader.read(2**14):
                got += chunk
        writer.transport.abort()
    assert len(got) > len(body)  # with the chunks' sizes


@pytest.mark.parametrize("fault", ["slow=1,cut-after=3", "slow=1,close-after=3"])
@virtual_time
async def test_what_was_sent_reaches_a_client_that_does_something_between_two_reads(fault: str) -> None:
    # aiohttp lets go of what it has when the connection breaks: so it isn't broken at once.
    async with serve_recordings([TEXT], fault=fault) as server, aiohttp.ClientSession() as client:
        got = bytearray()
        async with client.post(f"{server.url}/v1/messages", json=STREAM) as response:
            with contextlib.suppress(aiohttp.ClientError):
                async for chunk in response.content.iter_any():
                    got += chunk
                    await asyncio.sleep(1.04)
    assert bytes(got) == first(3)


@pytest.mark.parametrize("count", COUNTS)
@virtual_time
async def test_close_ends_the_connection_inside_of_the_body(count: int) -> None:
    reply = await ask(f"close-after={count}")
    assert (reply.status, reply.ended, reply.body) == (200, "closed", first(count))


@pytest.mark.parametrize("count", COUNTS)
@virtual_time
async def test_eof_ends_the_body_as_if_that_were_all(count: int) -> None:
    reply = await ask(f"eof-after={count}")
    assert (reply.status, reply.ended, reply.body) == (200, "eof", first(count))


@pytest.mark.parametrize("count", COUNTS)
@virtual_time
async def test_overloaded_is_an_error_event_in_a_good_response(count: int) -> None:
    reply = await ask(f"overloaded-after={count}")
    assert (reply.status, reply.ended, reply.headers["content-type"]) == (200, "eof", EVENT_STREAM)
    assert reply.body.startswith(first(count))
    name, data, *rest = reply.body[len(first(count)) :].split(b"\n")
    assert (name, rest) == (b"event: error", [b"", b""])
    assert json.loads(data.removeprefix(b"data: ")) == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "Overloaded"},
        "request_id": reply.headers["request-id"],
    }


@virtual_time
async def test_the_error_may_be_of_another_type() -> None:
    reply = await ask("overloaded-after=2,error-type=invalid_request_error")
    assert b'"type":"invalid_request_error"' in reply.body
    reply = await ask("500,error-type=billing_error")
    assert (reply.status, reply.json["error"]["type"]) == (500, "billing_error")


@pytest.mark.parametrize("count", COUNTS)
@virtual_time
async def test_pings_for_ever(count: int) -> None:
    async with serve_recordings([TEXT], fault=f"pings-after={count},keepalive=30") as server:
        with pytest.raises(TimeoutError):
            # Pings come, so that the client's patience never ends.
            await asyncio.wait_for(exchange(server.url, STREAM), 301)
        (seen,) = server.requests
    assert seen.sent == len(first(count)) + 11 * len(PING)


@virtual_time
async def test_pings_are_what_the_api_sends_and_come_every_ten_seconds() -> None:
    async with serve_recordings([TEXT], fault="pings") as server:
        reply = await exchange(server.url, STREAM, patience=9)
    assert [chunk for _, chunk in reply.chunks] == [PING]
    async with serve_recordings([TEXT], fault="pings") as server:
        pinged = asyncio.ensure_future(exchange(server.url, STREAM))
        await asyncio.sleep(35)
    assert [chunk for _, chunk in (await pinged).chunks] == [PING] * 4
    assert [at - pinged.result().times[0] for at in pinged.result().times] == [0.0, 10.0, 20.0, 30.0]


@pytest.mark.parametrize("count", COUNTS)
@virtual_time
async def test_garbage_comes_in_place_of_the_rest(count: int) -> None:
    reply = await ask(f"garbage-after={count}")
    assert (reply.status, reply.ended) == (200, "eof")
    garbage = reply.body.removeprefix(first(count))
    assert len(garbage) == 1000
    assert b"data:" not in garbage
    with pytest.raises(UnicodeDecodeError):
        garbage.decode()


@pytest.mark.parametrize(("character", "kept"), [("é", 1), ("…", 1), ("🦦", 2)])
@virtual_time
async def test_half_utf8_ends_inside_the_first_character_of_many_bytes(character: str, kept: int) -> None:
    recording = ASCII.replace(b'"text":"', b'"text":"' + character.encode())
    reply = await ask("half-utf8", recording=recording)
    at = recording.index(character.encode())
    assert (reply.ended, reply.body) == ("eof", recording[: at + kept])
    with pytest.raises(UnicodeDecodeError, match="unexpected end of data"):
        reply.body.decode()


@virtual_time
async def test_half_utf8_waits_for_its_place() -> None:
    recording = ASCII.replace(b'"text":"', '"text":"é'.encode())
    blocks = recording.split(b"\n\n")
    later = next(n for n in range(6, len(blocks)) if not blocks[n].isascii())
    reply = await ask("half-utf8-after=6", recording=recording)
    whole = b"".join(block + b"\n\n" for block in blocks[:later])
    assert reply.body.startswith(whole)
    assert blocks[later].startswith(reply.body[len(whole) :])
    with pytest.raises(UnicodeDecodeError, match="unexpected end of data"):
        reply.body.decode()


@pytest.mark.parametrize("count", COUNTS)
@virtual_time
async def test_half_utf8_puts_one_in_where_there_is_none(count: int) -> None:
    reply = await ask(f"half-utf8-after={count}", recording=ASCII)
    whole = b"".join(block + b"\n\n" for block in ASCII.split(b"\n\n")[:-1][:count])
    assert reply.body.startswith(whole)
    with pytest.raises(UnicodeDecodeError, match="unexpected end of data") as broken:
        reply.body.decode()
    # Inside of the payload of the next event.
    assert reply.body.rindex(b"\ndata: " if count < len(EVENTS) else b"data: ") > len(whole) - 1
    assert broken.value.start > reply.body.rindex(b"data: ") + 6 - 1


@virtual_time
async def test_a_place_may_be_a_word() -> None:
    blocks = [block + b"\n\n" for block in TOOLS.split(b"\n\n")[:-1]]
    payloads = [json.loads(block[block.index(b"data: ") + 6 :]) for block in blocks]
    kinds = [(p["type"], p.get("delta", {}).get("type"), p.get("delta", {}).get("partial_json")) for p in payloads]
    last_stop = max(n for n, kind in enumerate(kinds, 1) if kind[0] == "content_block_stop")
    expected = {
        "start": 1,
        "text": next(n for n, kind in enumerate(kinds, 1) if kind[1] == "text_delta"),
        "tool": next(n for n, kind in enumerate(kinds, 1) if kind[1] == "input_json_delta" and kind[2]),
        "blocks": last_stop,
        "stop-reason": last_stop + 1,
    }
    for place, count in expected.items():
        reply = await ask(f"eof-after={place}", recording=TOOLS)
        assert reply.body == b"".join(blocks[:count]), place
    reply = await ask("eof-after=thinking", recording=TOOLS)
    assert (reply.status, reply.json["error"]["type"]) == (400, "invalid_request_error")


# -- refusals and other bodies -----------------------------------------------------------------------

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


@pytest.mark.parametrize(("status", "kind"), TYPES.items())
@pytest.mark.parametrize("body", [STREAM, REQUEST], ids=["stream", "json"])
@virtual_time
async def test_a_status_refuses_in_the_shape_of_the_api(status: int, kind: str, body: Any) -> None:
    reply = await ask(str(status), body)
    assert (reply.status, reply.ended, reply.headers["content-type"]) == (status, "eof", "application/json")
    assert (reply.json["type"], reply.json["error"]["type"]) == ("error", kind)
    assert reply.json["error"]["message"]
    assert reply.json["request_id"] == reply.headers["request-id"]
    assert reply.headers.get("retry-after") == ("1" if status == 429 else None)


@virtual_time
async def test_a_refusal_says_when_to_come_again() -> None:
    assert (await ask("429=90")).headers["retry-after"] == "90"
    assert (await ask("503=2.5")).headers["retry-after"] == "2.5"


@pytest.mark.parametrize("body", [STREAM, REQUEST], ids=["stream", "json"])
@virtual_time
async def test_empty_is_a_good_response_without_a_byte(body: Any) -> None:
    reply = await ask("empty", body)
    assert (reply.status, reply.body, reply.ended) == (200, b"", "eof")
    assert reply.headers["content-type"] == (EVENT_STREAM if body is STREAM else "application/json")


@virtual_time
async def test_html_is_what_gateways_say() -> None:
    for fault, status in (("html", 200), ("503,html", 503)):
        reply = await ask(fault)
        assert (reply.status, reply.headers["content-type"]) == (status, "text/html")
        assert reply.body.startswith(b"<html>")


@virtual_time
async def test_json_body_is_one_message_in_reply_to_a_stream() -> None:
    reply = await ask("json-body")
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert reply.json == (await ask(body=REQUEST)).json


@virtual_time
async def test_sse_body_is_a_stream_in_reply_to_a_request_for_none() -> None:
    reply = await ask("sse-body", REQUEST)
    assert (reply.status, reply.headers["content-type"], reply.body) == (200, EVENT_STREAM, TEXT)


@virtual_time
async def test_no_content_is_an_answer_that_says_nothing() -> None:
    reply = await ask("no-content", REQUEST)
    assert (reply.json["content"], reply.json["stop_reason"]) == ([], None)
    assert (await ask("no-content")).body == EVENTS[0] + EVENTS[-1]


@pytest.mark.parametrize("body", [STREAM, REQUEST], ids=["stream", "json"])
@virtual_time
async def test_a_wrong_content_type(body: Any) -> None:
    good = await ask(body=body)
    for fault, kind in (("content-type", "text/plain"), ("content-type=application/octet-stream", None)):
        reply = await ask(fault, body)
        assert reply.headers["content-type"] == (kind or "application/octet-stream")
        assert reply.body == good.body


# -- bytes written otherwise -------------------------------------------------------------------------


@virtual_time
async def test_crlf_line_ends() -> None:
    assert (await ask("crlf")).body == TEXT.replace(b"\n", b"\r\n")
    mixed = b"event: a\rdata: 1\r\r\ndata: 2\n\r\n"
    assert (await ask("crlf", recording=mixed)).body == b"event: a\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n"


@virtual_time
async def test_no_event_names() -> None:
    expected = b"\n".join(line for line in TEXT.split(b"\n") if not line.startswith(b"event:"))
    assert (await ask("no-event-names")).body == expected
    both = await ask("no-event-names,crlf,overloaded-after=2")
    assert both.body.startswith(b"\r\n\r\n".join(expected.replace(b"\n", b"\r\n").split(b"\r\n\r\n")[:2]))
    assert b"event:" not in both.body
    assert re.search(rb'\r\ndata: \{"type":"error".*\}\r\n\r\n\Z', both.body)


@virtual_time
async def test_a_piece_of_which_nothing_is_left_does_not_end_the_body() -> None:
    reply = await ask("no-event-names,overloaded-after=999", recording=b"data: 1\n\nevent: x\n")
    assert reply.body.startswith(b"data: 1\n\ndata: {")


@pytest.mark.parametrize("count", COUNTS)
@virtual_time
async def test_bad_json_is_one_more_event_and_the_stream_goes_on(count: int) -> None:
    reply = await ask(f"bad-json-after={count}")
    head, rest = first(count), TEXT[len(first(count)) :]
    assert reply.body.startswith(head)
    assert reply.body.endswith(rest)
    made_up = reply.body[len(head) : len(reply.body) - len(rest)]
    name, data, *end = made_up.split(b"\n")
    assert (name, end) == (b"event: content_block_delta", [b"", b""])
    with pytest.raises(json.JSONDecodeError):
        json.loads(data.removeprefix(b"data: "))


# -- time --------------------------------------------------------------------------------------------


@virtual_time
async def test_slow_waits_before_each_event() -> None:
    reply = await ask("slow=540")
    assert reply.times == [540.0 * n for n in range(1, len(EVENTS) + 1)]
    assert reply.body == TEXT


@pytest.mark.parametrize(("fault", "sign"), [("keepalive=200", PING), ("comments=200", b": keepalive\n\n")])
@virtual_time
async def test_signs_of_life_while_nothing_comes(fault: str, sign: bytes) -> None:
    reply = await ask(f"slow=540,{fault}")
    assert [chunk for _, chunk in reply.chunks] == [part for event in EVENTS for part in (sign, sign, event)]
    assert reply.times[:4] == [200.0, 400.0, 540.0, 740.0]
    async with serve_recordings([TEXT], fault=f"stall-after=1,{fault}") as server:
        silent = await exchange(server.url, STREAM, patience=199)
    assert silent.body == EVENTS[0]


@virtual_time
async def test_the_first_byte_may_be_late_or_never_come() -> None:
    now = asyncio.get_running_loop().time
    late = await ask("first-byte-stall=200")
    assert (late.status, late.times[0], late.body) == (200, 200.0, TEXT)
    began = now()
    never = await ask("first-byte-stall")
    assert (never.status, never.ended, now() - began) == (None, "silent", 3600.0)
    began = now()
    refused = await ask("first-byte-stall=5,529")
    assert (refused.status, now() - began) == (529, 5.0)


# -- answers that aren't streamed --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "ended"),
    [("stall", "silent"), ("cut", "reset"), ("close", "closed"), ("eof", "eof"), ("pings", "silent")],
)
@virtual_time
async def test_a_whole_answer_breaks_before_its_body_or_in_the_middle(fault: str, ended: str) -> None:
    whole = (await ask(body=REQUEST)).body
    for place, half in (("", b""), ("-after=3", whole[: len(whole) // 2]), ("-after=text", whole[: len(whole) // 2])):
        reply = await ask(fault + place, REQUEST)
        assert (reply.status, reply.ended, reply.body) == (200, ended, half)


@virtual_time
async def test_a_whole_answer_with_the_other_faults() -> None:
    whole = (await ask(body=REQUEST)).body
    garbage = await ask("garbage", REQUEST)
    assert (garbage.status, len(garbage.body)) == (200, 1000)
    half = await ask("half-utf8-after=1", REQUEST)
    with pytest.raises(UnicodeDecodeError, match="unexpected end of data"):
        half.body.decode()
    overloaded = await ask("overloaded-after=3", REQUEST)
    assert (overloaded.status, overloaded.json["error"]["type"]) == (529, "overloaded_error")
    slow = await ask("slow=7", REQUEST)
    assert (slow.body, slow.times) == (whole, [7.0])


# -- combinations, and which requests ----------------------------------------------------------------


@virtual_time
async def test_faults_go_together() -> None:
    reply = await ask("slow=10,crlf,cut-after=2,content-type=text/plain")
    assert (reply.ended, reply.headers["content-type"]) == ("reset", "text/plain")
    assert reply.body == first(2).replace(b"\n", b"\r\n")
    assert reply.times == [10.0, 20.0]


@virtual_time
async def test_times_ends_the_fault_so_that_a_retry_succeeds() -> None:
    async with serve_recordings([TEXT], fault="529,times=2") as server:
        assert [(await exchange(server.url, STREAM)).status for _ in range(4)] == [529, 529, 200, 200]
        assert [seen.fault for seen in server.requests] == ["529,times=2"] * 2 + ["none"] * 2


@virtual_time
async def test_faults_in_turn_and_a_fault_that_lasts() -> None:
    async with serve_recordings([TEXT], fault="429;500,times=2;503") as server:
        statuses = [(await exchange(server.url, STREAM)).status for _ in range(6)]
    assert statuses == [429, 500, 500, 503, 503, 503]
    async with serve_recordings([TEXT], fault=["429", "none"]) as server:
        assert [(await exchange(server.url, STREAM)).status for _ in range(3)] == [429, 200, 200]


@virtual_time
async def test_a_fault_for_streams_only_is_not_used_up_by_others() -> None:
    async with serve_recordings([TEXT], fault="503,only=stream,times=1") as server:
        statuses = [(await exchange(server.url, body)).status for body in (REQUEST, STREAM, STREAM)]
    assert statuses == [200, 503, 200]
    async with serve_recordings([TEXT], fault="503,only=json") as server:
        assert [(await exchange(server.url, body)).status for body in (REQUEST, STREAM)] == [503, 200]


@virtual_time
async def test_a_header_brings_a_fault_of_its_own() -> None:
    async with serve_recordings([TEXT], fault="503") as server:

        async def status(fault: str) -> int | None:
            return (await exchange(server.url, STREAM, headers={"x-turnstream-fault": fault})).status

        assert [await status("none"), await status("429"), await status("429")] == [200, 429, 429]
        assert [await status("529,times=1"), await status("529,times=1")] == [529, 200]
        refused = await exchange(server.url, STREAM, headers={"x-turnstream-fault": "explode"})
        assert (refused.status, refused.json["error"]["type"]) == (400, "invalid_request_error")
        assert "explode" in refused.json["error"]["message"]
        assert (await exchange(server.url, STREAM)).status == 503
