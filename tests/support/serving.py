"""A real server on 127.0.0.1, in the test's own loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from aiohttp import web

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TEXT = (EXAMPLES / "1-text.sse").read_bytes()
TOOLS = (EXAMPLES / "3-two-tools.sse").read_bytes()
TRUNCATED = (EXAMPLES / "5-truncated.sse").read_bytes()
KEY = "sk-test-0123456789-never-show-me"


@contextlib.asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """The base URL of a server whose requests ``handler`` answers; a client that goes cancels it."""
    server = web.Server(handler, handler_cancellation=True)
    runner = web.ServerRunner(server, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


class Streamer:
    """Answers each request with one event stream.

    Args:
        body: what is streamed, whole or in pieces.
        ending: ``end`` closes the body properly, ``abort`` resets the connection, ``hang`` waits for ever.
        gzip: whether it is compressed.

    Attributes:
        requests: path, headers (lower case) and body of each.
        written: bytes that the handler handed out so far.
        drained: whether the last write is over (False while the connection takes no more).
        buffered: bytes that wait in the server for the connection.
        sent: set when all of the body was written.
        gone: set when the client closed the connection.
    """

    def __init__(self, *body: bytes, ending: str = "end", gzip: bool = False) -> None:
        self.body = body
        self.ending = ending
        self.gzip = gzip
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.written = 0
        self.drained = True
        self.sent = asyncio.Event()
        self.gone = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    @property
    def buffered(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = {key.lower(): value for key, value in request.headers.items()}
        self.requests.append((request.path, headers, await request.read()))
        response = web.StreamResponse(headers={"content-type": "text/event-stream", "request-id": "req_served"})
        if self.gzip:
            response.enable_compression(web.ContentCoding.gzip)
        self._transport = request.transport
        try:
            await response.prepare(request)
            for piece in self.body:
                self.drained = False
                self.written += len(piece)
                await response.write(piece)
                self.drained = True
            self.sent.set()
            if self.ending == "hang":
                await asyncio.Event().wait()
            elif self.ending == "abort":
                assert request.transport is not None
                # What was written goes out first: the reset must break the body, not take it away.
                await asyncio.sleep(1)
                request.transport.abort()  # type: ignore[attr-defined]
            else:
                await response.write_eof()
        except (asyncio.CancelledError, ConnectionError):
            self.gone.set()
            raise
        return response


def refusing(status: int, body: bytes, *, content_type: str = "application/json", **headers: str) -> Handler:
    """Answers each request with this status and body."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return web.Response(status=status, body=body, headers={"content-type": content_type, **named})

    return handle
