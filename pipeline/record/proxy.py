"""The reverse proxy: every request goes to the upstream, its answer comes back as it is (docs/record.md)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import aiohttp
from aiohttp import web

from turnstream.messages.errors import SourceError
from turnstream.messages.jsonvalue import dumps
from turnstream.record.exchange import Exchange
from turnstream.record.passage import LARGEST_FIELD, Passage
from turnstream.record.passing import refusal
from turnstream.record.recording import Recording
from turnstream.record.reporting import PROMETHEUS_TYPE, prometheus, wants_prometheus
from turnstream.record.storing import Store
from turnstream.record.upstream import Upstream, path_of, target_of
from turnstream.serve.listening import finish, listen, stop_listening
from turnstream.serve.writing import let_go
from turnstream.sources.http.sessions import shared_session

__all__ = ["RecordProxy", "record_proxy"]

_ADMIN: Final = "/-/"
_METRICS: Final = "/metrics"
_SECRET_NAMES: Final = re.compile(r"key|auth|cookie|token|secret|credential|password|signature", re.IGNORECASE)

_log = logging.getLogger("turnstream.record")
# aiohttp quotes what it can't parse, keys included. This one is nobody's child and says nothing.
_silent = logging.Logger("turnstream.record.http", logging.CRITICAL + 1)  # noqa: LOG001


class RecordProxy:
    """A running proxy; made by :func:`record_proxy`.

    Attributes:
        url: where it listens, without a slash at the end.
        upstream: where requests go.
        finished: after the end, whether all that was recorded is written; None before.
    """

    def __init__(
        self,
        upstream: Upstream,
        recording: Recording,
        *,
        session_header: str | None = None,
        own_metrics: bool = True,
        grace: float = 10.0,
        flush: float = 5.0,
        on_end: Callable[[Exchange], None] | None = None,
    ) -> None:
        self.url = ""
        self.upstream = upstream.shown
        self.finished: bool | None = None
        self._upstream = upstream
        self._recording = recording
        self._counts = recording.counts
        self._session_header = session_header
        self._own_metrics = own_metrics
        self._grace = grace
        self._flush = flush
        self._on_end = on_end
        self._client: aiohttp.ClientSession | None = None
        self._running: set[asyncio.Task[Any]] = set()
        self._runner: web.ServerRunner | None = None
        self._listener: asyncio.Server | None = None
        self._closing: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._ending = False

    # -- its life --------------------------------------------------------------------------------------

    async def start(self, host: str, port: int) -> None:
        """Listen.

        Raises:
            OSError: the address can't be had.
        """
        loop = asyncio.get_running_loop()

        def make_request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
            return web.BaseRequest(message, payload, protocol, writer, task, loop)

        server = web.Server(
            self._handle,
            request_factory=make_request,
            handler_cancellation=True,
            access_log=None,
            logger=_silent,
            auto_decompress=False,
            max_line_size=LARGEST_FIELD,
            max_field_size=LARGEST_FIELD,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=0.5)
        try:
            self._client = shared_session()
            await self._runner.setup()
            self._listener, self.url = await listen(server, host, port)
            await self._listener.start_serving()
        except BaseException:
            self._hurry.set()
            await self.aclose()
            raise

    def hurry(self) -> None:
        """From now on no open stream is waited for when the proxy ends."""
        self._hurry.set()

    async def drained(self) -> None:
        """Return once all that has ended is recorded (or dropped)."""
        await self._recording.drained()

    def report(self) -> dict[str, Any]:
        """What ``/-/metrics`` says: JSON-able, snake_case."""
        return self._recording.report()

    async def aclose(self) -> None:
        """Finish open streams within the grace, then what is recorded within its budget; close everything.

        New requests get a 503. A cancellation ends the grace, and waits until all is closed. Idempotent.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="turnstream.record: close")
        await finish(self._closing, self._hurry.set)

    async def _close(self) -> None:
        self._ending = True
        if self._listener is not None:
            await stop_listening(self._listener)
        server = None if self._runner is None else self._runner.server
        transports = [each.transport for each in server.connections if each.transport] if server else []
        await self._open_streams()
        if self._runner is not None:
            await self._runner.cleanup()
        await let_go(transports)
        if self._client is not None:
            await self._client.close()
        self.finished = await self._recording.aclose(self._flush)

    async def _open_streams(self) -> None:
        if self._running and not self._hurry.is_set():
            hurry = asyncio.create_task(self._hurry.wait(), name="turnstream.record: hurry")
            streams = asyncio.create_task(_all(self._running), name="turnstream.record: open streams")
            await asyncio.wait([hurry, streams], timeout=self._grace, return_when=asyncio.FIRST_COMPLETED)
            for task in (hurry, streams):
                task.cancel()
            await asyncio.wait([hurry, streams])
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)

    # -- requests --------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        target = target_of(request.raw_path)
        path = path_of(target)
        if path.startswith(_ADMIN) or (self._own_metrics and path == _METRICS and request.method in ("GET", "HEAD")):
            return self._admin(request, path)
        if request.method == "CONNECT":  # what would come through a tunnel is none of HTTP's
            answer = refusal(405, "this is no tunnel; the client's base URL must name it")
            answer.force_close()
            return answer
        if self._ending:
            answer = refusal(503, "the proxy is ending")
            answer.force_close()
            return answer
        task = asyncio.current_task()
        assert task is not None
        assert self._client is not None
        exchange = Exchange.of(request.method, path)
        counts = self._counts
        counts.requests += 1
        counts.in_flight += 1
        self._running.add(task)
        try:
            passage = Passage(
                request,
                target,
                exchange,
                client=self._client,
                upstream=self._upstream,
                recording=self._recording,
                session_header=self._session_header,
                ending=lambda: self._ending,
            )
            return await passage.passed()
        except asyncio.CancelledError:
            exchange.ended = "proxy ended" if self._ending else "client gone"
            raise
        except ConnectionError:
            exchange.ended = exchange.ended or "client gone"
            raise
        except Exception as error:  # noqa: BLE001 - aiohttp would print it, and its text may quote headers
            _log.error("a request could not be passed on: %s", type(error).__name__)
            exchange.ended = exchange.ended or "upstream failed"
            raise ConnectionResetError("the request could not be passed on") from None
        finally:
            self._running.discard(task)
            counts.in_flight -= 1
            counts.ends[exchange.ended or "complete"] += 1
            if exchange.status is not None:
                counts.statuses[exchange.status] += 1
            if self._on_end is not None:
                self._on_end(exchange)

    def _admin(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        """What is the proxy's own: never passed on, so that no client of it reaches the upstream by mistake."""
        if path not in ("/-/health", "/-/metrics", _METRICS):
            return refusal(404, "Not Found")
        if request.method not in ("GET", "HEAD"):
            return refusal(405, "Method Not Allowed")
        if path == "/-/health":
            status = "ending" if self._ending else "ok"
            return web.Response(body=dumps({"status": status}), content_type="application/json")
        try:
            as_text = wants_prometheus(request.query.get("format"), request.headers.get("accept", ""))
        except ValueError as error:
            return refusal(400, str(error))
        headers = {"content-type": PROMETHEUS_TYPE if as_text else "application/json", "cache-control": "no-store"}
        report = self.report()
        return web.Response(body=prometheus(report).encode() if as_text else dumps(report), headers=headers)


async def _all(tasks: set[asyncio.Task[Any]]) -> None:
    while tasks:
        await asyncio.wait(tasks)


@contextlib.asynccontextmanager
async def record_proxy(
    upstream: str,
    directory: str | os.PathLike[str] | None = None,
    *,
    store: Store | None = None,
    transcripts: bool = True,
    bodies: bool = False,
    session_header: str | None = None,
    own_metrics: bool = True,
    host: str = "127.0.0.1",
    port: int = 0,
    buffer: int = 16 * 1024 * 1024,
    grace: float = 10.0,
    flush: float = 5.0,
    on_end: Callable[[Exchange], None] | None = None,
    on_drop: Callable[[str], None] | None = None,
) -> AsyncIterator[RecordProxy]:
    """A recording reverse proxy in the running loop; it ends with the block, finishing what is open.

        async with record_proxy("https://api.anthropic.com", "recorded") as proxy:
            client = anthropic.AsyncAnthropic(base_url=proxy.url)

    Args:
        upstream: the base URL of the API.
        directory: for recordings (``.sse`` with arrival times, ``.json``), and ``transcripts/`` below it. None
            without ``store``: nothing is written, figures are kept.
        store: where recordings go instead.
        transcripts: whether ``directory`` gets transcripts.
        bodies: whether requests are kept too, without their keys, and user messages get into transcripts. What
            else is secret in a body is recorded.
        session_header: the request header that says which session, so which transcript, an answer belongs to.
            Default: one for the run.
        own_metrics: whether ``GET /metrics`` is the proxy's; if not, it passes (``/-/metrics`` never does).
        host: where to listen.
        port: likewise; 0 takes a free one.
        buffer: bytes that one recording may have in memory before it is dropped; all together four times that.
        grace: seconds that open streams get when the block ends; an exception in the block ends them at once.
        flush: seconds that recordings get then.
        on_end: called with each exchange when it is over (its recording may still be written).
        on_drop: called with a line whenever the recorder drops something.

    Yields:
        The proxy, listening.

    Raises:
        SourceError: the directory can't be made, or the address can't be had.
        ValueError: an upstream that is no base URL, or the proxy's own, a header name that isn't one or that holds secrets, a buffer
            below a byte.
    """
    if session_header is not None:
        if not session_header.replace("-", "").replace("_", "").isalnum() or not session_header.isascii():
            raise ValueError("the session header is no header name")
        if _SECRET_NAMES.search(session_header):
            raise ValueError("the session header must not be one that holds secrets")
    if buffer < 1:
        raise ValueError(f"the buffer has at least one byte, not {buffer}")
    there = Upstream(upstream)
    if there.is_at(host, port):
        raise ValueError("the upstream is the proxy itself")
    try:
        recording = Recording(directory, store, bodies=bodies, transcripts=transcripts, buffer=buffer)
        recording.counts.on_drop = on_drop
    except OSError as error:
        raise SourceError(f"can't make the folder for recordings: {error.strerror}", file=str(directory)) from error
    proxy = RecordProxy(
        there,
        recording,
        session_header=session_header,
        own_metrics=own_metrics,
        grace=grace,
        flush=flush,
        on_end=on_end,
    )
    try:
        await proxy.start(host, port)
    except OSError as error:
        raise SourceError(f"can't listen on {host}:{port}: {error.strerror or error}") from error
    try:
        yield proxy
    except BaseException:
        proxy.hurry()
        raise
    finally:
        await proxy.aclose()
