"""The server of the live benchmark, in a process of its own: it writes each event alone, at its time.

Plain sockets in one thread, so that it takes a fraction of what any client takes: what is measured is the client.
A request's ``x-bench`` header says what comes back (:class:`Asked`); ``GET /late`` how late it wrote since last
asked, the 99th percentile in seconds.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import random
import selectors
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Final, Literal

import msgspec

from turnstream.bench.workloads import make_workload

__all__ = ["HEADER", "Asked", "LiveServer", "main", "many_files", "percentile", "stamped"]

HEADER: Final = "x-bench"

_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"request-id: req_bench\r\ntransfer-encoding: chunked\r\n\r\n"
)
_LAST: Final = b"0\r\n\r\n"
_LOOK: Final = 0.001
"""Seconds for which nobody looks for new requests while events are due."""
_KEPT: Final = 200_000


class Asked(msgspec.Struct, frozen=True):
    """What a request wants.

    Attributes:
        mode: ``answer`` (the workload, then the end), ``stamps`` (deltas that say when they were written, for
            ever) or ``idle`` (the beginning of an answer, then nothing).
        interval: seconds between two events.
    """

    mode: Literal["answer", "stamps", "idle"]
    interval: float = 0.0

    def header(self) -> dict[str, str]:
        """As headers of a request."""
        return {HEADER: msgspec.json.encode(self).decode()}


def many_files() -> None:
    """Let this process open as many files as it may."""
    try:
        import resource
    except ImportError:  # pragma: no cover - Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def percentile(values: Sequence[float]) -> float:
    """The 99th; 0 of none."""
    return sorted(values)[int(len(values) * 0.99)] if values else 0.0


def _event(name: str, **fields: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields}, separators=(',', ':'))}\n\n".encode()


_BEGINNING: Final = (
    _event(
        "message_start",
        message={
            "id": "msg_live",
            "type": "message",
            "role": "assistant",
            "model": "claude-bench-1",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 12, "output_tokens": 1},
        },
    ),
    _event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
)


def _delta(text: str) -> bytes:
    return _event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})


def stamped(text: str) -> float | None:
    """The time in a delta of ``stamps``: that of ``time.monotonic()``, which all processes share; None elsewhere."""
    return float(text) if text[:1].isdigit() else None


_STAMP_BEFORE, _STAMP_AFTER = _delta("@").split(b"@")


def _stamps() -> Iterator[bytes]:
    yield from _BEGINNING
    while True:
        yield b"%s%.6f %s" % (_STAMP_BEFORE, time.monotonic(), _STAMP_AFTER)


class _Connection:
    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.received = b""
        self.events: Iterator[bytes] | None = None
        self.interval = 0.0
        self.rest = b""
        self.open = True


class LiveServer:
    """Listens from the start; :meth:`run` serves until standard input ends.

    Args:
        scale: of workload A, which ``answer`` gives.
    """

    def __init__(self, scale: float) -> None:
        self.events = make_workload("A", scale=scale).events
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self.listening.setblocking(False)
        self.port: int = self.listening.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.listening, selectors.EVENT_READ)
        self._due: list[tuple[float, int, _Connection]] = []
        self._order = count()
        self._late: list[float] = []
        self._phases = random.Random(7)

    def run(self) -> None:
        """Serve."""
        self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        looked = 0.0
        while True:
            now = time.monotonic()
            wait = self._due[0][0] - now if self._due else 1.0
            if wait <= 0:
                self._write_due(now)
                wait = 0.0
            if wait > 2 * _LOOK:
                # The selector counts in milliseconds, and rounds up.
                timeout = wait - _LOOK
            elif now - looked < _LOOK:
                time.sleep(wait)
                continue
            else:
                timeout = 0.0
            for key, _ in self._selector.select(timeout):
                if key.fileobj is self.listening:
                    self._accept()
                elif key.data is None:
                    return
                else:
                    self._read(key.data)
            looked = time.monotonic()

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                link, _ = self.listening.accept()
                link.setblocking(False)
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._selector.register(link, selectors.EVENT_READ, _Connection(link))

    def _close(self, connection: _Connection) -> None:
        if connection.open:
            connection.open = False
            self._selector.unregister(connection.link)
            connection.link.close()

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.link.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(connection)
            return
        connection.received += data
        head, found, body = connection.received.partition(b"\r\n\r\n")
        if not found:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if len(body) < int(headers.get("content-length", "0")):
            return
        connection.received = b""
        if first.startswith("GET /late "):
            late = b"%.6f" % percentile(self._late)
            self._late.clear()
            self._send(connection, b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(late), late))
            return
        asked = msgspec.json.decode(headers[HEADER], type=Asked)
        connection.interval = asked.interval
        if asked.mode == "answer":
            connection.events = iter(self.events)
        elif asked.mode == "stamps":
            connection.events = _stamps()
        else:
            connection.events = iter((*_BEGINNING, _delta("the beginning")))
        self._send(connection, _HEAD)
        if asked.mode == "idle":
            for event in connection.events:
                self._send(connection, b"%x\r\n%s\r\n" % (len(event), event))
            return
        # Streams that began together don't beat together.
        self._plan(time.monotonic() + asked.interval * (1 + self._phases.random()), connection)

    def _plan(self, at: float, connection: _Connection) -> None:
        heapq.heappush(self._due, (at, next(self._order), connection))

    def _write_due(self, now: float) -> None:
        due = self._due
        until = now + _LOOK
        while due and due[0][0] <= now < until:
            planned, _, connection = heapq.heappop(due)
            if not connection.open or connection.events is None:
                continue
            if len(self._late) < _KEPT:
                self._late.append(now - planned)
            if connection.rest:
                # Its reader doesn't read; the next event waits.
                self._send(connection, b"")
                self._plan(now + connection.interval, connection)
            elif (event := next(connection.events, None)) is None:
                connection.events = None
                self._send(connection, _LAST)
            else:
                self._send(connection, b"%x\r\n%s\r\n" % (len(event), event))
                # Not from when it was written: what is late is made up for (but not two at once on a fast stream).
                self._plan(max(planned + connection.interval, now + connection.interval / 2), connection)
            now = time.monotonic()

    def _send(self, connection: _Connection, data: bytes) -> None:
        data = connection.rest + data
        connection.rest = b""
        try:
            sent = connection.link.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(connection)
            return
        connection.rest = data[sent:]


def main() -> None:
    """Serve workload A at the scale that the first argument says; print the port; end with standard input."""
    many_files()
    server = LiveServer(float(sys.argv[1]))
    print(server.port, flush=True)
    server.run()
