"""AWS event streams (Bedrock): real recordings, and frames written here by the format's own description."""

from __future__ import annotations

import base64
import binascii
import builtins
import json
import struct
from collections.abc import Iterable
from typing import Any

import pytest
import recordings
from harness import run
from summaries import columns, summarize

from turnstream.messages import ResponseFailed, SSEError, StreamNote, TurnstreamError
from turnstream.operators import Fault, ServerSentEvent, decode

pytest.importorskip("botocore", reason="needs turnstream[bedrock]")

from turnstream.operators.aws import decode_aws

NAMES = recordings.names((".eventstream",))
# Columns that only the bytes show, or that tell of the table itself.
OTHERS = {"file", "answer", "answers", "done_frames", "notes", "remark", "sdk", "file_outcome", "file_events"}


def frame(payload: bytes, headers: dict[str, str]) -> bytes:
    """One frame: lengths, their CRC, string headers (type 7), the payload, the CRC of all of it."""
    head = b"".join(
        struct.pack(">B", len(k)) + k.encode() + struct.pack(">BH", 7, len(v.encode())) + v.encode()
        for k, v in headers.items()
    )
    prelude = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    whole = prelude + struct.pack(">I", binascii.crc32(prelude)) + head + payload
    return whole + struct.pack(">I", binascii.crc32(whole))


def event(value: Any) -> bytes:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    payload = json.dumps({"bytes": base64.b64encode(data).decode(), "p": "abc"}).encode()
    return frame(payload, {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"})


def exception(kind: str, message: str = "told") -> bytes:
    return frame(json.dumps({"message": message}).encode(), {":exception-type": kind, ":message-type": "exception"})


def read(*chunks: bytes, strict: bool = False, operator: Any = None) -> list[Any]:
    chain = (operator or decode_aws(strict=strict)).chain()
    out: list[Any] = []
    for chunk in chunks:
        if not chain.broken:
            out += chain.feed([chunk])
    return out if chain.broken else [*out, *chain.flush()]


def whole(data: Iterable[Any]) -> list[tuple[bytes, str, int, int]]:
    return [(item.data, item.event, item.number, item.offset) for item in data]


PING, START = {"type": "ping"}, {"type": "message_start", "message": {"id": "m", "usage": {}}}
STREAM = event(START) + event(PING)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [None, 1, 7, 4096])
def test_recordings_are_what_the_table_says(name: str, size: int | None) -> None:
    data = recordings.read(name)
    chunks = [data] if size is None else [data[at : at + size] for at in range(0, len(data), size)]
    (row,) = summarize(run(chunks))
    (wanted,) = recordings.expected()[name]
    got = columns(row)
    assert {k: v for k, v in got.items() if k in wanted and k not in OTHERS} == {
        k: wanted[k] for k in got if k in wanted and k not in OTHERS
    }
    assert row.events == int(wanted["file_events"])


@pytest.mark.parametrize("name", NAMES)
def test_recordings_through_decode_aws_itself(name: str) -> None:
    data = recordings.read(name)
    assert list(map(repr, run([data], decoder=decode_aws()))) == list(map(repr, run([data])))


def test_events_in_any_chunks() -> None:
    want = [(json.dumps(START).encode(), "", 1, 0), (json.dumps(PING).encode(), "", 2, len(event(START)))]
    for size in range(1, len(STREAM) + 1):
        assert whole(read(*(STREAM[at : at + size] for at in range(0, len(STREAM), size)))) == want


def test_decode_knows_it_by_its_first_bytes() -> None:
    for size in (1, 3, 8, len(STREAM)):
        chunks = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
        got = read(*chunks, operator=decode())
        assert [item.data for item in got] == [json.dumps(START).encode(), json.dumps(PING).encode()]


@pytest.mark.parametrize("data", [b"\0", b"\0\0\0", b"\0\0\0\0\0\0\0\0data: {}\n\n"])
def test_what_begins_with_zero_and_is_no_frame_is_read_as_an_event_stream(data: bytes) -> None:
    got = read(data, operator=decode())
    assert not any(isinstance(item, ServerSentEvent) for item in got) or b"data" in data
    assert not any(isinstance(item, StreamNote) and item.kind == "bad_frame" for item in got)


@pytest.mark.parametrize(
    ("kind", "api", "retryable"),
    [
        ("throttlingException", "rate_limit_error", True),
        ("ThrottlingException", "rate_limit_error", True),
        ("serviceUnavailableException", "overloaded_error", True),
        ("modelTimeoutException", "timeout_error", True),
        ("modelStreamErrorException", "api_error", True),
        ("internalServerException", "api_error", True),
        ("validationException", "invalid_request_error", False),
        ("somethingNewException", "somethingNewException", False),
    ],
)
def test_exceptions_are_error_events_in_the_apis_words(kind: str, api: str, retryable: bool) -> None:
    (failed,) = [item for item in run(event(START) + exception(kind)) if isinstance(item, ResponseFailed)]
    assert failed.outcome == f"api_error({api})"
    assert failed.error == {"type": api, "message": "told", "retryable": retryable}


def test_an_error_frame_tells_itself_in_its_headers() -> None:
    data = frame(b"", {":message-type": "error", ":error-code": "InternalError", ":error-message": "broke"})
    (item,) = read(data)
    assert json.loads(item.data) == {"type": "error", "error": {"type": "InternalError", "message": "broke"}}


@pytest.mark.parametrize("place", [4, 9, 30, -1])
def test_a_wrong_checksum_ends_what_can_be_read(place: int) -> None:
    bad = bytearray(event(PING))
    bad[place] ^= 1
    items = read(event(START) + bytes(bad) + event(PING))
    assert [type(item) for item in items] == [ServerSentEvent, StreamNote]
    assert items[1].kind == "bad_frame"
    assert items[1].byte_offset == len(event(START))
    fault = read(event(START) + bytes(bad), strict=True)[-1]
    assert isinstance(fault, Fault)
    assert isinstance(fault.error, SSEError)
    (failed,) = [item for item in run(event(START) + bytes(bad)) if isinstance(item, ResponseFailed)]
    assert failed.outcome == "incomplete(0)"


@pytest.mark.parametrize("payload", [b"", b"{}", b"no json", b'{"bytes": 7}', b'{"bytes": "%"}', b"[]"])
def test_a_frame_without_an_event_is_dropped_alone(payload: bytes) -> None:
    odd = frame(payload, {":event-type": "chunk", ":message-type": "event"})
    items = read(event(START) + odd + event(PING))
    assert [getattr(item, "kind", None) for item in items] == [None, "bad_frame", None]
    assert isinstance(read(odd, strict=True)[-1], Fault)


def test_an_end_inside_of_a_frame() -> None:
    for cut in range(1, len(event(PING))):
        items = read(event(START) + event(PING)[:cut])
        assert [getattr(item, "kind", None) for item in items] == [None, "unterminated_event"]
    assert read(STREAM)[-1].number == 2
    assert read() == []


def test_no_bytes_make_it_raise() -> None:
    prelude = struct.pack(">II", 0, 0)
    for data in (
        prelude + struct.pack(">I", binascii.crc32(prelude)) + b"x" * 64,
        frame(b"x", {"a": "b"})[:12] + b"\xff" * 400,
        b"\0" * 1000,
        b"\xff" * 1000,
    ):
        assert [item.kind for item in read(data)][-1:] in (["bad_frame"], ["unterminated_event"])


def test_without_botocore_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("botocore"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(TurnstreamError, match=r"turnstream\[bedrock\]"):
        decode_aws()
    (fault,) = read(STREAM, STREAM, operator=decode())
    assert isinstance(fault, Fault)
    assert "botocore" in str(fault.error)
