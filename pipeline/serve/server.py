"""The replay server: recordings behind ``/v1/messages``, on a real socket (docs/serve.md)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

from aiohttp import web

from turnstream.messages.errors import SourceError
from turnstream.messages.jsonvalue import dumps
from turnstream.serve.api import STATUS_OF, Refusal, count_tokens, error_object, listed, model, read_request
from turnstream.serve.choosing import Choice
from turnstream.serve.faults import FaultSchedule, FaultSpec, parse_faults
from turnstream.serve.listening import finish, listen, stop_listening
from turnstream.serve.recordings import Recording, read_recordings
from turnstream.serve.replies import JSON_TYPE, Reply
from turnstream.serve.served import ServedRequest, without_secrets
from turnstream.serve.steps import Chunking, Step, body_steps, in_chunks, stream_steps
from turnstream.serve.whole import whole_message
from turnstream.serve.writing import flushed, forever, let_go

__all__ = ["FAULT_HEADER", "RECORDING_HEADER", "ReplayServer", "ServedRequest", "serve_recordings"]

RECORDING_HEADER: Final = "x-turnstream-recording"
FAULT_HEADER: Final = "x-turnstream-fault"

_LARGEST_REQUEST: Final = 32 * 1024 * 1024  # the API's own limit
_EVENT_STREAM: Final = "text/event-stream; charset=utf-8"
_PAGE: Final = b"<html>\r\n<head><title>Bad gateway</title></head>\r\n<body><h1>Bad gateway</h1></body>\r\n</html>\r\n"

_log = logging.getLogger("turnstream.serve")
# aiohttp quotes what it can't parse, keys included. This one is nobody's child and says nothing.
_silent = logging.Logger("turnstream.serve.http", logging.CRITICAL + 1)  # noqa: LOG001


class ReplayServer:
    """Answers requests with recordings; made by :func:`serve_recordings`.

    Attributes:
        url: where it listens, without a slash at the end.
        requests: what came, in order (the newest ones, if they are limited).
        recordings: what it serves.
        all_served: set when every recording was served once and no answer is open.
    """

    def __init__(
        self,
        recordings: Iterable[Recording],
        *,
        faults: Iterable[FaultSpec] = (),
        pace: float | None = None,
        chunk: Chunking = "event",
        once: bool = False,
        headers: Mapping[str, str] | None = None,
        keep_requests: int | None = None,
        on_end: Callable[[ServedRequest], None] | None = None,
    ) -> None:
        self.recordings = tuple(recordings)
        self.requests: deque[ServedRequest] = deque(maxlen=keep_requests)
        self.all_served = asyncio.Event()
        self.url = ""
        self._once = once
        self._choice = Choice(self.recordings, once=once)
        self._faults = FaultSchedule(tuple(faults))
        self._faults_by_header: dict[str, FaultSchedule] = {}
        self._messages_of: dict[Recording, tuple[dict[str, Any] | None, dict[str, Any] | None]] = {}
        self._pace = pace
        self._chunk: Chunking = chunk
        self._headers = dict(headers or {})
        self._on_end = on_end
        self._running: set[asyncio.Task[Any]] = set()
        self._count = 0
        self._runner: web.ServerRunner | None = None
        self._listener: asyncio.Server | None = None
        self._closing: asyncio.Task[None] | None = None
        self._ending = False

    # -- its life --------------------------------------------------------------------------------------

    async def start(self, host: str, port: int) -> None:
        """Listen.

        Raises:
            OSError: the address can't be had.
        """
        loop = asyncio.get_running_loop()

        def make_request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
            return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_LARGEST_REQUEST)

        server = web.Server(
            self._handle,
            request_factory=make_request,
            handler_cancellation=True,
            access_log=None,
            logger=_silent,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=0.5)
        try:
            await self._runner.setup()
            self._listener, self.url = await listen(server, host, port)
            await self._listener.start_serving()
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """End every answer, close every connection; a cancellation waits until that is done. Idempotent."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="turnstream.serve: close")
        await finish(self._closing)

    async def _close(self) -> None:
        self._ending = True
        if self._listener is not None:
            await stop_listening(self._listener)
        server = None if self._runner is None else self._runner.server
        transports = [each.transport for each in server.connections if each.transport] if server else []
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        if self._runner is not None:
            await self._runner.cleanup()
        await let_go(transports)

    # -- requests --------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        seen = ServedRequest(method=request.method, path=request.path, headers=without_secrets(request.headers))
        self.requests.append(seen)
        self._count += 1
        reply = Reply(request, seen, f"req_turnstream_{self._count:06}", self._headers)
        self._running.add(task)
        try:
            if self._ending:
                raise asyncio.CancelledError
            response = await self._answer(reply)
            if self._once:
                # Who waits for all_served may end the process, and with it what only we still hold.
                await flushed(request)
            seen.ended = "complete"
            return response
        except asyncio.CancelledError:
            seen.ended = "server ended" if self._ending else "client gone"
            raise
        except ConnectionError:
            seen.ended = "broken" if reply.fault.end in ("cut", "close") else "client gone"
            raise
        except Exception:
            _log.exception("a request could not be answered")
            raise
        finally:
            self._running.discard(task)
            if self._on_end is not None:
                self._on_end(seen)
            if not self._choice.unserved and not self._running:
                self.all_served.set()

    async def _answer(self, reply: Reply) -> web.StreamResponse:
        request, seen = reply.request, reply.seen
        try:
            if request.headers.get("expect", "").lower() == "100-continue" and request.transport is not None:
                request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            try:
                seen.body = await request.read()
            except web.HTTPRequestEntityTooLarge:
                raise Refusal(413, "Request exceeds the maximum size") from None
            except web.RequestPayloadError:
                raise Refusal(400, "The request body isn't what its headers say") from None
            match request.path.rstrip("/").split("/"):
                case [""] | ["", "health"]:
                    _allow(request, "GET", "HEAD")
                    return await reply.json(200, {"status": "ok"})
                case ["", "v1", "messages"]:
                    _allow(request, "POST")
                    return await self._messages(reply)
                case ["", "v1", "messages", "count_tokens"]:
                    _allow(request, "POST")
                    return await reply.json(200, count_tokens(read_request(seen.body)))
                case ["", "v1", "models"]:
                    _allow(request, "GET", "HEAD")
                    return await reply.json(200, listed(self._choice.short_names))
                case ["", "v1", "models", name] if name in self._choice.short_names:
                    _allow(request, "GET", "HEAD")
                    return await reply.json(200, model(name))
                case _:
                    raise Refusal(404, "Not Found")
        except Refusal as refusal:
            return await reply.error(refusal.status, refusal.error)

    async def _messages(self, reply: Reply) -> web.StreamResponse:
        start = asyncio.get_running_loop().time()
        body = read_request(reply.seen.body)
        stream = body.get("stream", False)
        reply.seen.stream = stream
        fault, passes = self._fault_of(reply.request, stream=stream)
        reply.fault = fault
        reply.seen.fault = fault.text
        if fault.first_byte:
            await (forever() if math.isinf(fault.first_byte) else asyncio.sleep(fault.first_byte))
        if fault.status is not None:
            return await self._refused(reply, fault)
        if fault.end == "overloaded" and not stream:
            return await reply.error(529, error_object(529, error_type=fault.error_type))
        # What fails for a while leaves the recording to the retry.
        recording = self._choice.pick(
            reply.request.headers.get(RECORDING_HEADER), body["model"], keep_turn=passes and fault.breaks
        )
        reply.seen.recording = recording.name
        streams = fault.body == "sse-body" or (stream and fault.body != "json-body")
        content_type = fault.content_type or (_EVENT_STREAM if streams else JSON_TYPE)
        more = {RECORDING_HEADER: quote(recording.name)}
        if fault.body in ("empty", "html"):
            page = _PAGE if fault.body == "html" else b""
            return await reply.whole(200, page, fault.content_type or ("text/html" if page else content_type), more)
        steps: Iterable[Step]
        if streams:
            error = error_object(529, error_type=fault.error_type)
            steps = _placed(stream_steps, recording, fault, pace=self._pace, request_id=reply.request_id, error=error)
        else:
            message, failed = self._whole(recording)
            if failed is not None:
                kind = str(failed.get("type"))
                raise Refusal(STATUS_OF.get(kind, 500), str(failed.get("message")), kind)
            if message is None:
                raise Refusal(500, f"the recording {recording.name} holds no message")
            if fault.body == "no-content":
                message = {**message, "content": [], "stop_reason": None}
            if fault.end is None and not fault.slow:
                return await reply.whole(200, dumps(message), content_type, more)
            steps = body_steps(dumps(message), fault)
        return await reply.steps(in_chunks(steps, self._chunk), content_type, more, start)

    def _whole(self, recording: Recording) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        known = self._messages_of.get(recording)
        if known is None:
            known = self._messages_of[recording] = whole_message(recording)
        return known

    async def _refused(self, reply: Reply, fault: FaultSpec) -> web.StreamResponse:
        assert fault.status is not None
        more = {} if fault.retry_after is None else {"retry-after": f"{fault.retry_after:g}"}
        if fault.body is not None:
            page = _PAGE if fault.body == "html" else b""
            return await reply.whole(fault.status, page, fault.content_type or "text/html", more)
        error = error_object(fault.status, error_type=fault.error_type)
        return await reply.error(fault.status, error, more, fault.content_type)

    def _fault_of(self, request: web.BaseRequest, *, stream: bool) -> tuple[FaultSpec, bool]:
        """The fault that a request meets: its header's, else the server's."""
        text = request.headers.get(FAULT_HEADER)
        if text is None:
            return self._faults.next(stream=stream)
        schedule = self._faults_by_header.get(text)
        if schedule is None:
            try:
                schedule = FaultSchedule(parse_faults(text))
            except ValueError as error:
                raise Refusal(400, f"{FAULT_HEADER}: {error}") from None
            self._faults_by_header[text] = schedule
        return schedule.next(stream=stream)


def _placed(make: Callable[..., Iterable[Step]], *args: Any, **kwargs: Any) -> Iterable[Step]:
    try:
        return make(*args, **kwargs)
    except ValueError as error:
        raise Refusal(400, str(error)) from None


def _allow(request: web.BaseRequest, *methods: str) -> None:
    if request.method not in methods:
        raise Refusal(405, "Method Not Allowed")


@contextlib.asynccontextmanager
async def serve_recordings(
    sources: Iterable[str | os.PathLike[str] | bytes | Recording],
    *,
    fault: str | Iterable[str] = (),
    pace: float | None = None,
    chunk: Chunking = "event",
    once: bool = False,
    host: str = "127.0.0.1",
    port: int = 0,
    headers: Mapping[str, str] | None = None,
    keep_requests: int | None = None,
    on_end: Callable[[ServedRequest], None] | None = None,
) -> AsyncIterator[ReplayServer]:
    """A replay server in the running loop; it ends with the block, whatever is still open.

        async with serve_recordings(["answer.sse"], fault="cut-after=3,times=1") as server:
            source = from_request(request, base_url=server.url)

    Args:
        sources: files, folders, bytes, or :class:`Recording`.
        fault: what goes wrong, as on the command line; a request's ``x-turnstream-fault`` header goes before it.
        pace: None for full speed, or a factor of the recorded pace (1 as recorded, 2 twice as fast).
        chunk: what is written at a time: an ``"event"``, ``"max"`` (as much as there is), or so many bytes.
        once: whether each recording is given once in turn, then none (404).
        host: where to listen.
        port: likewise; 0 takes a free one.
        headers: more headers for every reply.
        keep_requests: how many requests are remembered, default all.
        on_end: called with each request when its reply is over.

    Yields:
        The server, listening.

    Raises:
        SourceError: a recording can't be read, or the address can't be had.
        ValueError: a fault that isn't known, no source, a pace that isn't above zero, an empty chunk.
    """
    if pace is not None and not 0 < pace < math.inf:
        raise ValueError(f"pace must be above zero, not {pace}")
    if isinstance(chunk, int) and chunk < 1:
        raise ValueError(f"a chunk has at least one byte, not {chunk}")
    server = ReplayServer(
        read_recordings(sources),
        faults=parse_faults(fault),
        pace=pace,
        chunk=chunk,
        once=once,
        headers=headers,
        keep_requests=keep_requests,
        on_end=on_end,
    )
    try:
        await server.start(host, port)
    except OSError as error:
        raise SourceError(f"can't listen on {host}:{port}: {error.strerror or error}") from error
    try:
        yield server
    finally:
        await server.aclose()
