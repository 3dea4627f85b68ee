"""One request on its way to the upstream, and its answer on the way back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, NoReturn

import aiohttp
from aiohttp import web
from yarl import URL

from turnstream.record.exchange import Exchange
from turnstream.record.hangup import HangupWatch
from turnstream.record.headers import answer_headers, request_headers
from turnstream.record.passing import PassedAnswer, refusal
from turnstream.record.recorder import Recorder
from turnstream.record.recording import Body, Recording
from turnstream.record.upstream import Upstream, failure_of, path_of
from turnstream.sources.http.sessions import drop_unsent, watch_transport

__all__ = ["LARGEST_FIELD", "Passage"]

LARGEST_FIELD: Final = 64 * 1024
"""Bytes of a request line, or of a header, in either direction."""

_READ_SIZE: Final = 32 * 1024  # what is read ahead of a slow client, twice; aiohttp's default is 256 KiB
_CONNECT_SECONDS: Final = 10.0
_AUTOMATIC: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


class Passage:
    """One request and its answer.

    Args:
        request: the client's.
        target: its path and query, as they came.
        exchange: where what becomes of it is noted.
        client: sends it on (a :func:`~turnstream.sources.http.shared_session`).
        upstream: where to.
        recording: the recorder's side.
        session_header: the header that says which session it belongs to.
        ending: whether the proxy is about to end.
    """

    def __init__(
        self,
        request: web.BaseRequest,
        target: str,
        exchange: Exchange,
        *,
        client: aiohttp.ClientSession,
        upstream: Upstream,
        recording: Recording,
        session_header: str | None,
        ending: Callable[[], bool],
    ) -> None:
        self._request = request
        self._target = target
        self._exchange = exchange
        self._client = client
        self._upstream = upstream
        self._recording = recording
        self._session_header = session_header
        self._ending = ending
        self._counts = recording.counts
        self._records = request.method == "POST" and path_of(target).rstrip("/") == "/v1/messages"
        self._body: Body | None = recording.body() if self._records else None
        self._now = asyncio.get_running_loop().time
        self._start = self._now()
        self._transport: list[Any] = []
        self._hangup: HangupWatch | None = None

    async def passed(self) -> web.StreamResponse:
        """Send the request, give its answer to the client; the upstream's connection is closed however that ends."""
        request, exchange, upstream = self._request, self._exchange, self._upstream
        if request.headers.get("expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        response: aiohttp.ClientResponse | None = None
        headers = request_headers(request.headers)
        way = {**upstream.way}
        headers.update(way.pop("headers", {}))
        try:
            try:
                with watch_transport(self._transport):
                    response = await self._client.request(
                        request.method,
                        URL(upstream.target(self._target), encoded=True),
                        headers=headers,
                        data=self._upload() if request.body_exists else None,
                        **way,
                        allow_redirects=False,
                        raise_for_status=False,
                        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
                        auto_decompress=False,
                        skip_auto_headers=_AUTOMATIC,
                        read_bufsize=_READ_SIZE,
                        max_line_size=LARGEST_FIELD,
                        max_field_size=LARGEST_FIELD,
                    )
            except (aiohttp.ClientError, OSError, ValueError) as error:
                exchange.ended = "upstream failed"
                return await self._failed(failure_of(error))
            exchange.status = response.status
            return await self._answer(response)
        finally:
            self._let_go(response)
            if self._hangup is not None:
                self._hangup.close()
            if self._body is not None:
                self._body.release()

    def _let_go(self, response: aiohttp.ClientResponse | None) -> None:
        """Close the upstream's connection; what it hasn't read of the request by now isn't waited for."""
        transport = self._transport
        if response is not None and response.connection is None:
            # It was given back and may be another request's by now; not so if it is being closed.
            transport = [each for each in transport if each is not None and each.is_closing()]
        drop_unsent(transport)
        if response is not None:
            response.close()

    async def _upload(self) -> AsyncIterator[bytes]:
        exchange, body, counts, content = self._exchange, self._body, self._counts, self._request.content
        async for chunk in content.iter_any():
            if body is not None:
                body.take(chunk)
            exchange.received += len(chunk)
            counts.request_bytes += len(chunk)
            if self._hangup is None and not content.is_eof():
                self._watch_client()
            yield chunk

    def _watch_client(self) -> None:
        """While the upstream doesn't take the rest of a body, nothing is read from the client."""
        client = self._request.transport
        if client is not None:
            self._hangup = HangupWatch(client, client.abort)

    async def _failed(self, why: str) -> web.StreamResponse:
        self._exchange.status = 502
        self._exchange.why = why
        self._counts.notes.append(why)
        answer = refusal(502, why)
        await answer.prepare(self._request)
        await answer.write_eof()
        return answer

    async def _answer(self, response: aiohttp.ClientResponse) -> web.StreamResponse:
        exchange, counts, now = self._exchange, self._counts, self._now
        recorder = self._recorder(response) if self._records else None
        answer = PassedAnswer(
            status=response.status, reason=response.reason or "", headers=answer_headers(response.headers)
        )
        if self._ending():
            answer.force_close()
        try:
            await answer.prepare(self._request)
            chunks = response.content.iter_any()
            while True:
                try:
                    chunk = await anext(chunks, b"")
                except (aiohttp.ClientError, OSError) as error:
                    exchange.ended = "upstream broke"
                    self._break_off(error)
                if not chunk:
                    break
                if recorder is not None:
                    recorder.offer(now(), chunk)
                # Waits while the client reads slowly; meanwhile nothing is read from the upstream.
                await answer.write(chunk)
                exchange.sent += len(chunk)
                counts.answer_bytes += len(chunk)
            exchange.ended = "complete"
            await answer.write_eof()
            return answer
        except asyncio.CancelledError:
            exchange.ended = "proxy ended" if self._ending() else "client gone"
            raise
        except ConnectionError:
            if exchange.ended != "upstream broke":
                exchange.ended = "client gone"
            raise
        finally:
            if recorder is not None:
                recorder.end(exchange.ended or "upstream broke")

    def _break_off(self, error: Exception) -> NoReturn:
        """The client's body must not look complete: its connection ends inside of it."""
        if self._request.transport is not None:
            self._request.transport.close()  # what was written goes out first
        raise ConnectionResetError(f"the upstream broke off: {type(error).__name__}") from None

    def _recorder(self, response: aiohttp.ClientResponse) -> Recorder | None:
        headers = self._request.headers
        session = headers.get(self._session_header) if self._session_header else None
        try:
            return self._recording.recorder(
                self._exchange,
                start=self._start,
                status=response.status,
                headers=response.headers,
                session=session,
                request_headers=headers,
                target=self._target,
                body=self._body,
            )
        except Exception as error:  # noqa: BLE001 - no recorder, but the stream goes on
            self._exchange.notes.append(self._counts.drop("tee", "failed", type(error).__name__))
            return None
