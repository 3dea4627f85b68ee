"""The source: the request goes out, bytes come in, each phase has its clock (WIRE.md §7)."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from turnstream.flow.beside import LISTENER, Listener
from turnstream.flow.clocks import Clocks, WaitClock, timed_out, warn_of_idle
from turnstream.operators.batch import Batch
from turnstream.sources.base import Hand, LiveBatches, Source, cut
from turnstream.sources.http.limits import limits_note, rate_limits, retry_after
from turnstream.sources.http.proxies import proxy_of
from turnstream.sources.http.quiet import Quiet
from turnstream.sources.http.refusal import broken, refusal
from turnstream.sources.http.sessions import drop_unsent, shared_session, watch_transport
from turnstream.sources.http.tap import Tap

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

__all__ = ["HTTPSource"]

_log = logging.getLogger("turnstream.http")

_READ_SIZE: Final = 32 * 1024  # aiohttp's own default hands out 256 KiB at a time
_REQUEST_IDS: Final = ("request-id", "x-request-id", "x-amzn-requestid")


class HTTPSource(Source[bytes]):
    """One request; made by :func:`from_request`. Each iteration sends it once.

    Its clocks run while it waits for bytes, in any run, session or loop that iterates it.

    Attributes:
        status: HTTP status of the response, None before it is there; ``content_type`` and ``request_id``
            (the API's word for the request) likewise.
        retry_after: seconds after which the server wants to be asked again, None if it didn't say.
        rate_limits: what the response said of limits, by what is limited; see :func:`rate_limits`.
        clocks: how long its phases may take.
        quiet: takes the request's secrets out of a text.
    """

    status: int | None = None
    content_type: str | None = None
    request_id: str | None = None
    retry_after: float | None = None
    rate_limits: dict[str, dict[str, Any]]

    def __init__(
        self,
        url: str,
        body: bytes,
        headers: dict[str, str],
        *,
        secrets: Sequence[str],
        session: ClientSession | None,
        name: str,
        clocks: Clocks,
        trust_env: bool,
    ) -> None:
        self.name = name
        self.clocks = clocks
        self.rate_limits = {}
        self._url = url
        self._body = body
        self._headers = headers
        self.quiet = Quiet(secrets)
        self._session = session
        self._trust_env = trust_env

    def __repr__(self) -> str:
        return f"<HTTPSource {self.name}>"

    def batches(self) -> LiveBatches[bytes]:
        """Send the request, give the bytes of its answer; the response is closed however that ends.

        Raises:
            APIError: the status isn't 200; with the error of the JSON body, if it has one.
            StreamIdleTimeout: no byte came in time.
            TransportError: the connection can't be made, or it breaks.
        """
        return LiveBatches(self._receive)

    async def _receive(self, hand: Hand) -> AsyncGenerator[Batch[bytes], None]:
        import aiohttp

        self.status = self.content_type = self.request_id = self.retry_after = None
        self.rate_limits = {}
        clocks = self.clocks
        listener = LISTENER.get()
        quiet = self.quiet
        headers = self._headers
        through: dict[str, Any] = {}
        if self._session is None and self._trust_env and (proxy := proxy_of(self._url)) is not None:
            through["proxy"] = proxy.url
            quiet = quiet.also(*proxy.secrets())
            if (authorization := proxy.authorization) is not None:
                # A tunnel is asked for with headers of its own; without one the proxy reads the request's.
                if self._url.startswith("https:"):
                    through["proxy_headers"] = {"proxy-authorization": authorization}
                else:
                    headers = {**headers, "proxy-authorization": authorization}
        now = asyncio.get_running_loop().time
        asked = now()
        # The clocks for the first byte: whichever runs out first.
        first, which = min(
            ((limit, name) for name in ("first_byte", "total") if (limit := getattr(clocks, name)) is not None),
            default=(None, "first_byte"),
        )
        deadline = None if first is None else asked + first
        session = self._session if self._session is not None else shared_session()
        response: ClientResponse | None = None
        transport: list[Any] = []

        def let_go() -> None:
            if response is None or response.connection is not None:  # it is nobody else's yet
                drop_unsent(transport)
            if response is not None:
                response.close()

        def give_up() -> None:
            let_go()
            if tap is not None:
                tap.end()

        waits: WaitClock | None = None
        tap: Tap | None = None
        failure: Exception | None = None
        received = 0
        waiting = asyncio.timeout_at(deadline)
        try:
            async with waiting:
                with watch_transport(transport):
                    response = await session.post(
                        self._url,
                        # aiohttp writes bytes in one go, and warns of large ones; a file goes in pieces.
                        data=self._body if len(self._body) <= _READ_SIZE else io.BytesIO(self._body),
                        headers=headers,
                        timeout=aiohttp.ClientTimeout(
                            total=None,
                            # In a session of somebody else it would run while a place in the pool is waited for.
                            connect=clocks.connect if self._session is None else None,
                            sock_connect=clocks.connect,
                        ),
                        read_bufsize=_READ_SIZE,
                        allow_redirects=False,  # the key goes nowhere else
                        raise_for_status=False,
                        **through,
                    )
                self._look_at(response, listener)
            if response.status == HTTPStatus.OK:
                read = response.content.readany
                waiting = asyncio.timeout_at(deadline)
                async with waiting:
                    chunk = await read()
                at = now()
                if chunk and listener is not None:
                    listener.tell_first_byte(at)
                waits = self._watch(give_up, listener, at - asked)
                while chunk:
                    received += len(chunk)
                    for piece in cut(chunk):
                        yield Batch((piece,), at, None, len(piece))
                    if hand.taker is not None and (tap := Tap.on(response, waits, received)) is not None:
                        while not await tap.pass_on(hand.taker, hand.context):
                            yield Batch((), now())
                    waits.begin()
                    try:
                        chunk = await read()
                    except RuntimeError as error:  # what aiohttp says of a connection that its owner closed
                        raise ConnectionAbortedError(str(error)) from None
                    at = waits.end()
            else:
                failure = await refusal(response, self.request_id, quiet)
        except (aiohttp.ClientError, OSError, UnicodeError) as error:
            if tap is not None:
                received = tap.received
            failure = self._late(waiting, which, first, waits, received) or broken(
                error,
                answered=response is not None,
                received=received,
                connect=clocks.connect,
                request_id=self.request_id,
                quiet=quiet,
            )
            # For a response that was closed aiohttp raises one and the same object; it would keep each frame it came by.
            error.__traceback__ = None
        finally:
            if tap is not None:
                tap.remove()
            if waits is not None:
                waits.stop()
            let_go()
            if session is not self._session:
                await session.close()
        # Raised out here, so that it has no context: aiohttp's errors hold the request's headers.
        if failure is not None:
            self.request_id = getattr(failure, "request_id", None) or self.request_id
            raise failure

    def _look_at(self, response: ClientResponse, listener: Listener | None) -> None:
        headers = response.headers
        self.status = response.status
        content_type = headers.get("content-type")
        self.content_type = None if content_type is None else self.quiet(content_type)
        request_id = next((found for name in _REQUEST_IDS if (found := headers.get(name))), None)
        self.request_id = None if request_id is None else self.quiet(request_id)
        self.retry_after = retry_after(headers)
        self.rate_limits = {
            what: {key: self.quiet(value) if isinstance(value, str) else value for key, value in each.items()}
            for what, each in rate_limits(headers).items()
        }
        if listener is not None and (self.rate_limits or self.retry_after is not None):
            listener.tell(limits_note(self.rate_limits, self.retry_after, self.request_id))

    def _watch(self, let_go: Callable[[], None], listener: Listener | None, waited: float) -> WaitClock:
        """The clock for what comes after the first byte: letting go of the response ends the wait for it, at once."""
        clock = WaitClock(self.clocks, warn_of_idle(self.name, self.clocks, _log, listener), let_go, waited=waited)
        clock.start()
        return clock

    def _late(
        self, first: asyncio.Timeout, which: Any, limit: float | None, waits: WaitClock | None, received: int
    ) -> Exception | None:
        """The error of the clock that ended it, None if none did."""
        if first.expired() and limit is not None:
            return timed_out(which, limit, request_id=self.request_id)
        if waits is not None and waits.expired is not None:
            passed: float = getattr(self.clocks, waits.expired)
            return timed_out(waits.expired, passed, received=received, request_id=self.request_id)
        return None
