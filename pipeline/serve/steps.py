"""What the server does for one answer, step by step, without sockets: send, wait, end.

:func:`stream_steps` and :func:`body_steps` say what an answer comes to, faults included; :func:`in_chunks` cuts
its bytes as the client shall get them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, TypeAlias

import msgspec

from turnstream.messages.jsonvalue import dumps
from turnstream.serve.faults import FaultSpec, Place
from turnstream.serve.recordings import Piece, Recording

__all__ = ["Chunking", "End", "Send", "Step", "Wait", "body_steps", "frame", "in_chunks", "place_of", "stream_steps"]

Chunking: TypeAlias = int | Literal["event", "max"]
"""What one chunk holds: an event, as much as there is (up to 64 KiB), or so many bytes."""

_LARGEST: Final = 64 * 1024
_GARBAGE: Final = random.Random(0).randbytes(1000).replace(b"data", b"DATA")
_HALF_A_CHARACTER: Final = "…".encode()[:2]


class Send(msgspec.Struct, frozen=True):
    """Send these bytes now."""

    data: bytes


class Wait(msgspec.Struct, frozen=True):
    """Wait, with signs of life in between if there are any.

    Attributes:
        seconds: how long, None for ever; with ``until`` instead: until so many seconds after the request.
        every: seconds between signs of life, None without.
        sign: their bytes.
    """

    seconds: float | None = None
    until: float | None = None
    every: float | None = None
    sign: bytes = b""


class End(msgspec.Struct, frozen=True):
    """The last step: ``eof`` ends the body properly, ``close`` the connection without it, ``reset`` likewise, hard."""

    how: Literal["eof", "close", "reset"] = "eof"


Step: TypeAlias = Send | Wait | End


def frame(event: str, payload: Any) -> bytes:
    """An event as the API frames it."""
    return b"event: %s\ndata: %s\n\n" % (event.encode(), dumps(payload))


_BAD_JSON: Final = b'event: content_block_delta\ndata: {"type":"content_block_delta","ind\n\n'
_PING: Final = frame("ping", {"type": "ping"})
_COMMENT: Final = b": keepalive\n\n"


def place_of(recording: Recording, place: Place) -> int:
    """How many events stand before a place.

    Raises:
        ValueError: the recording has no such place.
    """
    if isinstance(place, int):
        return place
    found = 0
    for number, event in enumerate(recording.events, 1):
        payload = event.payload
        delta = payload.get("delta")
        kind = _kind(payload.get("type"), delta if isinstance(delta, dict) else {})
        if kind == place:
            found = number
            if place not in ("blocks", "stop-reason"):
                break
    if not found:
        raise ValueError(f"the recording {recording.name} has no place called {place!r}")
    return found


def _kind(event: Any, delta: dict[str, Any]) -> str | None:
    """The place that is behind such an event."""
    if event == "content_block_delta":
        if delta.get("type") == "input_json_delta":
            return "tool" if delta.get("partial_json") else None
        return {"text_delta": "text", "thinking_delta": "thinking"}.get(str(delta.get("type")))
    if event == "message_start":
        return "start"
    return {"content_block_stop": "blocks", "message_delta": "stop-reason"}.get(str(event))


class _Rewriter:
    """The same events as other servers write them."""

    def __init__(self, fault: FaultSpec) -> None:
        self._crlf = fault.crlf
        self._no_names = fault.no_event_names

    def __call__(self, raw: bytes) -> bytes:
        if self._no_names:
            raw = re.sub(rb"(?:\A|(?<=[\r\n]))event:[^\r\n]*(?:\r\n|\r|\n)", b"", raw)
        if self._crlf:
            raw = re.sub(rb"\r\n|\r|\n", b"\r\n", raw)
        return raw


def stream_steps(
    recording: Recording, fault: FaultSpec, *, pace: float | None = None, request_id: str = "", error: Any = None
) -> Iterator[Step]:
    """The steps of a streamed answer.

    Args:
        recording: what is streamed, verbatim as far as the fault lets it be.
        fault: what goes wrong.
        pace: None for full speed, or a factor of the recorded pace.
        request_id: stands in the error that a fault makes.
        error: the error object of the ``overloaded`` fault.

    Raises:
        ValueError: the fault names a place that the recording doesn't have; before the first step.
    """
    pieces = _without_content(recording) if fault.body == "no-content" else recording.pieces
    end = None if fault.end is None else place_of(recording, fault.at)
    if end is not None and fault.end == "half-utf8":
        events = [piece for piece in pieces if piece.data is not None]
        end = next((n for n, event in enumerate(events) if n >= end and _half(event.raw) is not None), end)
    bad = None if fault.bad_json is None else place_of(recording, fault.bad_json)
    return _stream_steps(pieces, fault, end, bad, pace, {"type": "error", "error": error, "request_id": request_id})


def _stream_steps(
    pieces: Iterable[Piece], fault: FaultSpec, end: int | None, bad: int | None, pace: float | None, error: Any
) -> Iterator[Step]:
    rewrite = _Rewriter(fault)
    every = fault.keepalive or fault.comments
    sign = rewrite(_COMMENT if fault.comments else _PING)
    sent = 0
    instead: Piece | None = None
    for piece in pieces:
        if end == sent:
            instead = piece
            break
        if pace is not None and piece.due is not None:
            yield Wait(until=piece.due / pace, every=every, sign=sign)
        if piece.data is not None and fault.slow:
            yield Wait(fault.slow, every=every, sign=sign)
        if bad == sent:
            bad = None
            yield Send(rewrite(_BAD_JSON))
        yield Send(rewrite(piece.raw))
        if piece.data is not None:
            sent += 1
    if bad is not None and bad >= sent and instead is None:
        yield Send(rewrite(_BAD_JSON))
    if fault.end == "half-utf8":
        yield Send(_half_of(b"data: {}" if instead is None else rewrite(instead.raw)))
    elif fault.end == "pings":
        yield Send(sign)
    elif fault.end == "garbage":
        yield Send(_GARBAGE)
    elif fault.end == "overloaded":
        yield Send(rewrite(frame("error", error)))
    yield from _last(fault, every, sign)


def _last(fault: FaultSpec, every: float | None = None, sign: bytes = b"") -> Iterator[Step]:
    if fault.end in ("stall", "pings"):
        yield Wait(every=every, sign=sign)
    yield End("reset" if fault.end == "cut" else "close" if fault.end == "close" else "eof")


def _half(raw: bytes) -> bytes | None:
    """The bytes up to the middle of the first character of more than one byte, None without one."""
    for at, byte in enumerate(raw):
        if byte >= 0xC2:
            return raw[: at + 1] if byte < 0xF0 else raw[: at + 2]
    return None


def _half_of(raw: bytes) -> bytes:
    """The bytes up to the middle of a character, which is put in where there is none."""
    return _half(raw) or raw[: max(raw.rfind(b'"'), raw.find(b"{") + 1)] + _HALF_A_CHARACTER


def _without_content(recording: Recording) -> tuple[Piece, ...]:
    """The recording's start and end and nothing between."""
    return tuple(event for event in recording.events if event.payload.get("type") in ("message_start", "message_stop"))


def body_steps(body: bytes, fault: FaultSpec) -> Iterator[Step]:
    """The steps of a body that is no stream; it counts as one event, and what breaks, breaks in its middle."""
    if fault.slow:
        yield Wait(fault.slow)
    if fault.end is None:
        yield Send(body)
        yield End()
        return
    half = b"" if fault.at == 0 else body[: len(body) // 2]
    if fault.end == "half-utf8":
        half = _half_of(body)
    elif fault.end == "garbage":
        half += _GARBAGE
    if half:
        yield Send(half)
    yield from _last(fault)


def in_chunks(steps: Iterable[Step], chunking: Chunking) -> Iterator[Step]:
    """The same bytes in other chunks; what waits to become one goes out before each other step."""
    if chunking == "event":
        yield from steps
        return
    size = _LARGEST if chunking == "max" else chunking
    held = bytearray()
    for step in steps:
        if isinstance(step, Send):
            held += step.data
            at = 0
            while len(held) - at >= size:
                yield Send(bytes(held[at : at + size]))
                at += size
            del held[:at]
            continue
        if held:
            yield Send(bytes(held))
            held.clear()
        yield step
    if held:
        yield Send(bytes(held))
