"""The parts of the recording proxy that need no socket: stamps, decompression, headers, addresses, buffers, figures."""

from __future__ import annotations

import asyncio
import errno
import gzip
import itertools
import os
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from stores import Store

from turnstream.operators.lines import recorded_comment
from turnstream.record import DirectoryStore
from turnstream.record.exchange import Exchange
from turnstream.record.headers import answer_headers, request_headers
from turnstream.record.inflating import Inflater, UnknownEncoding
from turnstream.record.reporting import prometheus, wants_prometheus
from turnstream.record.secrets import Masker, secrets_of
from turnstream.record.stamping import Stamper
from turnstream.record.upstream import Upstream
from turnstream.record.writing import Allowance, RecordingWriter
from turnstream.testing import virtual_time

STAMP = re.compile(rb": turnstream at=([0-9]+\.[0-9]{6})\n")

# -- stamps ------------------------------------------------------------------------------------------


def stamped(*chunks: tuple[float, bytes]) -> bytes:
    stamper = Stamper()
    out = [stamper.feed(at, data) for at, data in chunks]
    return b"".join([*out, stamper.end(chunks[-1][0])])


def test_an_event_came_when_its_last_byte_did() -> None:
    assert stamped((1, b"data: 1\n\ndata: "), (2, b"2\n"), (3, b"\ndata: 3\n\n"), (4, b"data: 4")) == (
        recorded_comment(1) + b"data: 1\n\n" + recorded_comment(3) + b"data: 2\n\ndata: 3\n\n"
        + recorded_comment(4) + b"data: 4"
    )  # fmt: skip


def test_the_order_mark_stays_the_first_thing() -> None:
    expected = b"\xef\xbb\xbf" + recorded_comment(2) + b"data: 1\n\n"
    assert stamped((1, b"\xef"), (2, b"\xbb\xbfdata: 1\n\n")) == expected


def test_stamps_of_the_upstream_are_another_streams() -> None:
    foreign = recorded_comment(77) + b"data: 1\n\n" + b": turnstream at=78.5\r\ndata: 2\r\n\r\n"
    assert stamped((1, foreign)) == recorded_comment(1) + b"data: 1\n\ndata: 2\r\n\r\n"


@given(st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"data: x", b": c", b"event: e", "…".encode(), b"\xef\xbb\xbf"])),
       st.lists(st.integers(0, 40), max_size=8))  # fmt: skip
def test_but_for_the_stamps_the_bytes_are_the_same(parts: list[bytes], cuts: list[int]) -> None:
    body = b"".join(parts)
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    chunks = [(float(n), body[a:b]) for n, (a, b) in enumerate(itertools.pairwise(edges))]
    out = stamped(*chunks)
    assert STAMP.sub(b"", out) == body
    times = [float(at) for at in STAMP.findall(out)]
    assert times == sorted(set(times))


def test_a_block_without_end_is_let_go_of() -> None:
    stamper = Stamper()
    piece = b"x" * 100_000
    out = b"".join(stamper.feed(n, piece) for n in range(30))
    assert len(out) > 28 * len(piece)
    assert STAMP.findall(out) == [b"10.000000"]
    out += stamper.feed(31, b"\n\ndata: 1\n\n") + stamper.end(31)
    assert STAMP.sub(b"", out) == 30 * piece + b"\n\ndata: 1\n\n"


# -- decompression -----------------------------------------------------------------------------------

PLAIN = b"data: \xe2\x80\xa6\n\n" * 5000


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        (None, PLAIN),
        ("identity", PLAIN),
        ("gzip", gzip.compress(PLAIN)),
        ("X-GZIP", gzip.compress(PLAIN[:100]) + gzip.compress(PLAIN[100:])),
        ("deflate", zlib.compress(PLAIN)),
        ("deflate", raw_deflate(PLAIN)),
        ("deflate, gzip", gzip.compress(zlib.compress(PLAIN))),
    ],
)
@pytest.mark.parametrize("size", [1, 1000, 1 << 20])
def test_decompression(encoding: str | None, body: bytes, size: int) -> None:
    inflater = Inflater(encoding)
    out = [piece for at in range(0, len(body), size) for piece in inflater.feed(body[at : at + size])]
    assert b"".join(out) == PLAIN


def test_a_small_chunk_that_holds_a_lot_comes_in_pieces() -> None:
    pieces = list(Inflater("gzip").feed(gzip.compress(bytes(50_000_000))))
    assert sum(map(len, pieces)) == 50_000_000
    assert max(map(len, pieces)) <= 64 * 1024


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_brotli(size: int) -> None:
    brotli = pytest.importorskip("brotli", reason="brotli isn't installed")
    body = brotli.compress(bytes(5_000_000) + PLAIN)
    inflater = Inflater("br")
    pieces = [piece for at in range(0, len(body), size) for piece in inflater.feed(body[at : at + size])]
    assert b"".join(pieces) == bytes(5_000_000) + PLAIN


def test_an_encoding_that_nobody_knows() -> None:
    with pytest.raises(UnknownEncoding):
        Inflater("gzip, rot13")


# -- headers, addresses ------------------------------------------------------------------------------


def test_headers_of_one_connection_stay_there() -> None:
    came = CIMultiDict([
        ("Host", "here"), ("Connection", "keep-alive, X-Only"), ("Keep-Alive", "9"), ("X-Only", "1"), ("TE", "trailers"),
        ("Proxy-Authorization", "Basic x"), ("Upgrade", "h2c"), ("Authorization", "Bearer k"), ("X-A", "1"), ("x-a", "2"),
        ("Content-Length", "3"),
    ])  # fmt: skip
    kept = [("Authorization", "Bearer k"), ("X-A", "1"), ("x-a", "2"), ("Content-Length", "3")]
    assert list(request_headers(came).items()) == kept
    assert list(answer_headers(came).items()) == [("Host", "here"), *kept]
    # RFC 9112 §6.3: the transfer coding goes before; nobody can drop the length by naming it.
    chunked = CIMultiDict([("Transfer-Encoding", "chunked"), ("Content-Length", "3")])
    assert not request_headers(chunked)
    assert list(request_headers(CIMultiDict([("Connection", "content-length"), ("Content-Length", "3")]))) == [
        "Content-Length"
    ]


def test_a_header_that_is_no_utf8_is_latin1() -> None:
    came = CIMultiDict([("X-City", b"M\xfcnchen".decode("utf-8", "surrogateescape"))])
    assert request_headers(came)["x-city"] == "München"


@pytest.mark.parametrize(
    ("base", "target", "url"),
    [
        ("http://h:1", "/v1/messages?beta=true", "http://h:1/v1/messages?beta=true"),
        ("https://h/base/", "/a%2Fb//c/../d?x=%20", "https://h/base/a%2Fb//c/../d?x=%20"),
        ("http://[::1]:9", "http://other.example/v1?x", "http://[::1]:9/v1?x"),
        ("http://h", "*", "http://h/*"),
    ],
)
def test_targets(base: str, target: str, url: str) -> None:
    assert Upstream(base).target(target) == url


@pytest.mark.parametrize(
    "url", ["", "h", "ftp://h", "http://", "http://h:x", "http://u:secret@h", "http://h?x", "http://h#x"]
)
def test_what_is_no_upstream(url: str) -> None:
    with pytest.raises(ValueError, match="upstream") as refused:
        Upstream(url)
    assert "secret" not in str(refused.value)


def test_a_proxy_on_the_way_but_not_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://gate:3128")
    monkeypatch.setenv("http_proxy", "http://gate:3128")
    monkeypatch.setenv("no_proxy", "inside.example")
    assert Upstream("https://api.example").way["proxy"] == "http://gate:3128"
    for url in ("https://inside.example", "http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1"):
        assert not Upstream(url).way


def test_an_exchange_repeats_no_word_of_the_client() -> None:
    assert str(Exchange.of("SK-SECRET", "/sk-secret")) == "other other: no answer, 0 bytes"


# -- recordings on their way -------------------------------------------------------------------------


def writer_of(store: Any, ends: list[Any], allowance: Allowance, largest: int = 1000) -> RecordingWriter:
    return RecordingWriter(store, "r", allowance=allowance, largest=largest, on_end=lambda why, _: ends.append(why))


@pytest.mark.parametrize("step", ["create", "write", "commit"])
@pytest.mark.parametrize("fault", ["raise", "hang"])
@virtual_time
async def test_a_store_that_fails_costs_its_recording_and_gives_the_memory_back(step: str, fault: str) -> None:
    async def at(name: str) -> None:
        if name == step:
            if fault == "raise":
                raise OSError(errno.ENOSPC, "full")
            await asyncio.Event().wait()

    ends: list[Any] = []
    store = Store(at)
    allowance = Allowance(100, 100)
    writer = writer_of(store, ends, allowance)
    writer.take(b"12345")
    writer.end()
    await asyncio.wait([writer.task], timeout=1)
    writer.drop("unfinished")
    await asyncio.wait([writer.task], timeout=1)
    assert ends == ["failed" if fault == "raise" else "unfinished"]
    assert (store.files, store.committed) == ({}, set())
    assert allowance.take(0, 100)


@virtual_time
async def test_no_room_is_a_dropped_recording() -> None:
    async def never(_: str) -> None:
        await asyncio.Event().wait()

    ends: list[Any] = []
    allowance = Allowance(10, 6)
    first, second = (writer_of(Store(never), ends, allowance) for _ in range(2))
    first.take(b"123456")
    second.take(b"1234")
    second.take(b"5")  # all together
    assert ends == ["slow"]
    first.take(b"7")  # one alone
    assert ends == ["slow", "slow"]
    first.take(b"8")
    assert allowance.take(0, 6)
    await asyncio.wait([first.task, second.task])


@virtual_time
async def test_a_recording_that_is_too_large() -> None:
    async def at_once(_: str) -> None: ...

    ends: list[Any] = []
    store = Store(at_once)
    writer = writer_of(store, ends, Allowance(100, 100), largest=8)
    writer.take(b"12345")
    await asyncio.sleep(1)
    assert writer.written == 5
    writer.take(b"6789")
    await asyncio.wait([writer.task])
    assert ends == ["large"]
    assert store.files == {}


@virtual_time
async def test_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    store = DirectoryStore(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    kept = await store.create("kept.sse")
    await kept.write(b"1")
    assert os.listdir(folder) == ["kept.sse.part"]
    taken = await store.create("taken.sse")
    await taken.write(b"2")
    await taken.discard()
    await kept.commit()
    with pytest.raises(FileExistsError):
        await store.create("kept.sse")
    late = asyncio.create_task(store.create("late.sse"))
    await asyncio.sleep(0)
    late.cancel()
    await asyncio.wait([late])
    await store.aclose()
    assert os.listdir(folder) == ["kept.sse"]
    assert (folder / "kept.sse").read_bytes() == b"1"
    assert (folder / "kept.sse").stat().st_mode & 0o777 == 0o600


# -- figures -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "accept", "expected"),
    [
        (None, "", False),
        (None, "*/*", False),
        (None, "text/html,application/xhtml+xml,*/*;q=0.8", False),
        (None, "application/json, text/plain, */*", False),  # axios
        (None, "text/plain", True),
        # what Prometheus 2 sends
        (None, "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1", True),
        ("json", "text/plain", False),
        ("prometheus", "", True),
    ],
)
def test_which_format(asked: str | None, accept: str, expected: bool) -> None:
    assert wants_prometheus(asked, accept) is expected


def test_labels_are_escaped_and_numbers_exact() -> None:
    totals = {"answers": 2**53, "outcomes": {'a"b\\c\nd': 1}, "tool_uses": {}, "events": 0, "input_tokens": None}
    proxy: dict[str, Any] = dict.fromkeys(
        ("requests", "in_flight", "request_bytes", "answer_bytes", "recordings", "recording_bytes"), 0
    )
    proxy |= {"statuses": {}, "ends": {}, "dropped": {}}
    lines = prometheus({"uptime_s": 0.25, "proxy": proxy, "model": {"totals": totals}}).split("\n")
    assert "turnstream_record_model_answers_total 9007199254740992" in lines
    assert r'turnstream_record_model_outcomes_total{outcome="a\"b\\c\nd"} 1' in lines
    assert "turnstream_record_uptime_seconds 0.25" in lines
    assert not any("tool_uses" in line or "model_tokens" in line for line in lines)
    assert lines[-1] == ""


@given(st.lists(st.sampled_from([b"abcabd", b"abc", b"ab", b"a", b"d", b"xyxz", b"xyx", b"xy"])), st.integers(1, 9))
def test_a_secret_is_found_wherever_the_stream_is_cut(parts: list[bytes], size: int) -> None:
    body = b"".join(parts)
    masker = Masker([b"abcabd", b"xyxz"])
    out = b"".join(masker.feed(body[at : at + size]) for at in range(0, len(body), size)) + masker.end()
    assert out == body.replace(b"abcabd", b"[redacted]").replace(b"xyxz", b"[redacted]")


def test_what_counts_as_a_secret_of_a_request() -> None:
    key, token, other = "k" * 16, "t" * 40, "o" * 17
    headers = {"x-api-key": key, "Authorization": f"Bearer {token}", "x-key-id": "k" * 15, "x-request": other}
    assert secrets_of(headers, f"/v1/messages?a=1&Access_Token={other}%21") == tuple(
        secret.encode() for secret in (token, f"{other}!", key)
    )


@pytest.mark.parametrize(
    ("url", "host", "port", "itself"),
    [
        ("http://127.0.0.1:81", "127.0.0.1", 81, True), ("http://localhost:81/x", "127.0.0.1", 81, True),
        ("http://127.0.0.1:81", "0.0.0.0", 81, True), ("http://[::1]:81", "::", 81, True),
        ("http://127.0.0.1", "localhost", 80, True), ("http://127.0.0.1:81", "127.0.0.1", 82, False),
        ("http://127.0.0.2:81", "127.0.0.1", 81, False), ("http://api.test:81", "0.0.0.0", 81, False),
        ("https://127.0.0.1", "127.0.0.1", 80, False),
    ],
)  # fmt: skip
def test_a_proxy_does_not_ask_itself(url: str, host: str, port: int, itself: bool) -> None:
    assert Upstream(url).is_at(host, port) == itself
