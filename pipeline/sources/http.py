"""A live answer over HTTP: one request, its bytes as they come (DESIGN.md §4, WIRE.md §7).

Thin on purpose: no retries and no clocks but the one for connecting. Who reads slowly slows down the
server: nothing is read ahead but 64 KiB here and what the kernel buffers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from turnstream.messages.errors import APIError, TransportError, TurnstreamError
from turnstream.messages.jsonvalue import JSONValueError, dumps, loads
from turnstream.operators.batch import Batch
from turnstream.operators.failures import is_retryable
from turnstream.operators.stage import Chain, Operator, lift
from turnstream.sources.base import Source, cut

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

__all__ = ["HTTPSource", "from_request", "when_answered"]

A = TypeVar("A")
B = TypeVar("B")

_API_VERSION: Final = "2023-06-01"
_READ_SIZE: Final = 32 * 1024  # aiohttp's own default hands out 256 KiB at a time
_CONNECT_SECONDS: Final = 10.0
_ERROR_BYTES: Final = 64 * 1024
_ERROR_SECONDS: Final = 10.0
_EXCERPT: Final = 200
# The status decides where there is one: a 400 stays a 400, whatever its body says.
_RETRYABLE_STATUS: Final = frozenset({408, 409, 429})
_SECRET_HEADERS: Final = frozenset({"x-api-key", "authorization", "proxy-authorization", "cookie", "api-key"})
_KEEP_QUIET_FROM: Final = 4  # characters: shorter ones would black out half of every text


class HTTPSource(Source[bytes]):
    """One streaming request; made by :func:`from_request`. Each iteration sends it once.

    Attributes:
        status: HTTP status of the response, None before it is there; ``content_type`` and ``request_id``
            (the API's word for the request) likewise.
    """

    status: int | None = None
    content_type: str | None = None
    request_id: str | None = None

    def __init__(
        self,
        url: str,
        body: bytes,
        headers: dict[str, str],
        *,
        secrets: Sequence[str],
        session: ClientSession | None,
        name: str,
    ) -> None:
        self.name = name
        self._url = url
        self._body = body
        self._headers = headers
        self._secrets = sorted({s for s in secrets if len(s) >= _KEEP_QUIET_FROM}, key=len, reverse=True)
        self._session = session

    def __repr__(self) -> str:
        return f"<HTTPSource {self.name}>"

    async def batches(self) -> AsyncIterator[Batch[bytes]]:
        """Send the request, give the bytes of its answer; the response is closed however that ends.

        Raises:
            APIError: the status isn't 200; with the error of the JSON body, if it has one.
            TransportError: the connection can't be made, or it breaks.
        """
        import aiohttp

        now = asyncio.get_running_loop().time
        self.status = self.content_type = self.request_id = None
        session = self._session if self._session is not None else aiohttp.ClientSession()
        response: ClientResponse | None = None
        failure: TurnstreamError | None = None
        received = 0
        try:
            response = await session.post(
                self._url,
                data=self._body,
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
                read_bufsize=_READ_SIZE,
                allow_redirects=False,  # the key goes nowhere else
                raise_for_status=False,
            )
            self._look_at(response)
            if response.status == HTTPStatus.OK:
                async for chunk in response.content.iter_any():
                    at = now()
                    received += len(chunk)
                    for piece in cut(chunk):
                        yield Batch((piece,), at, None, len(piece))
            else:
                failure = await self._refusal(response)
        except (aiohttp.ClientError, OSError) as error:
            failure = self._broken(error, response is not None, received)
        finally:
            if response is not None:
                response.close()
            if session is not self._session:
                await session.close()
        # Raised out here, so that it has no context: aiohttp's errors hold the request's headers.
        if failure is not None:
            raise failure

    def _look_at(self, response: ClientResponse) -> None:
        headers = response.headers
        self.status = response.status
        self.content_type = headers.get("content-type")
        request_id = headers.get("request-id") or headers.get("x-request-id")
        self.request_id = None if request_id is None else self._quiet(request_id)

    async def _refusal(self, response: ClientResponse) -> APIError:
        """What a response other than 200 says."""
        body = bytearray()
        with contextlib.suppress(Exception):  # what doesn't come: the status says enough
            async with asyncio.timeout(_ERROR_SECONDS):
                async for chunk in response.content.iter_any():
                    body += chunk
                    if len(body) > _ERROR_BYTES:
                        break
        status = response.status
        error_type, message, request_id = _told(bytes(body[:_ERROR_BYTES]))
        if message is None:
            message = f"HTTP {status} {response.reason or ''}".rstrip()
            if 300 <= status < 400:
                message += ": redirects aren't followed, the key would go along"
            elif body and (excerpt := _excerpt(bytes(body))):
                message += f": {excerpt}"
        if request_id is not None:
            self.request_id = self._quiet(request_id)
        return APIError(
            self._quiet(message),
            error_type=self._quiet(error_type or "unknown"),
            status=status,
            request_id=self.request_id,
            retryable=status in _RETRYABLE_STATUS
            or status >= HTTPStatus.INTERNAL_SERVER_ERROR
            or (status < HTTPStatus.BAD_REQUEST and is_retryable(error_type or "")),
        )

    def _broken(self, error: Exception, answered: bool, received: int) -> TransportError:
        from aiohttp import ClientConnectorCertificateError, ClientConnectorError, ClientSSLError, InvalidURL

        if isinstance(error, InvalidURL):
            return TransportError("the URL can't be used", retryable=False, hint="check the base URL")
        detail = self._quiet(str(error).strip() or type(error).__name__)
        if answered:
            return TransportError(f"the connection broke after {received} bytes of the answer: {detail}")
        if isinstance(error, (ClientConnectorCertificateError, ClientSSLError)):
            return TransportError(f"no secure connection: {detail}", retryable=False)
        if isinstance(error, ClientConnectorError):
            return TransportError(f"no connection: {detail}", hint="check the base URL and the network")
        return TransportError(f"the connection broke before the answer came: {detail}")

    def _quiet(self, text: str) -> str:
        """``text`` without the secrets: servers and gateways quote what they refuse."""
        for secret in self._secrets:
            text = text.replace(secret, "[redacted]")
        return text


def _told(body: bytes) -> tuple[str | None, str | None, str | None]:
    """Error type, message and request id of a JSON error body; also of gateways' own shapes."""
    try:
        value = loads(body)
    except JSONValueError:
        return None, None, None
    if not isinstance(value, dict):
        return None, None, None
    error = value.get("error")
    inner: dict[str, Any] = error if isinstance(error, dict) else {}
    kind = _text(inner.get("type"))
    message = _text(inner.get("message")) or _text(error) or _text(value.get("message")) or _text(value.get("detail"))
    return kind, message, _text(value.get("request_id"))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _excerpt(body: bytes) -> str:
    words = body[: 4 * _EXCERPT].decode("utf-8", "replace").split()
    text = "".join(c if c.isprintable() else "\ufffd" for c in " ".join(words))
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"


def from_request(
    request: Mapping[str, Any],
    *,
    base_url: str = "https://api.anthropic.com",
    path: str = "/v1/messages",
    headers: Mapping[str, str] | None = None,
    api_key: str | None = None,
    session: ClientSession | None = None,
    name: str | None = None,
) -> HTTPSource:
    """A live source: the request goes out when the run starts, its answer's bytes come as they arrive.

    Args:
        request: the body of a Messages API request; ``stream`` is set to true.
        base_url: where the API is; a query isn't possible.
        path: the endpoint.
        headers: beside ours (``content-type``, ``accept``, ``anthropic-version``, ``x-api-key``), or
            instead of them.
        api_key: sent as ``x-api-key``. Default: the environment's ``ANTHROPIC_API_KEY``, unless ``headers``
            authorize. None at all: the server decides. It is in no log, error or repr.
        session: an aiohttp session to use; it stays open. Default: one for this request.
        name: what reports call it; default the URL without what is secret in it.

    Raises:
        ValueError: the URL isn't http(s) or has a query, a header has a line break, or the request is no JSON.
    """
    url, shown, url_secrets = _address(base_url, path)
    all_headers = {
        "content-type": "application/json",
        "accept": "text/event-stream",
        "anthropic-version": _API_VERSION,
    }
    given = {key.lower(): value for key, value in (headers or {}).items()}
    if api_key is None and not given.keys() & _SECRET_HEADERS:
        api_key = os.environ.get("ANTHROPIC_API_KEY")
    if api_key and (api_key := api_key.strip()):
        all_headers["x-api-key"] = api_key
    all_headers |= given
    for key, value in all_headers.items():
        if not value.isprintable() or not key.isprintable():
            raise ValueError(f"header {key!r} holds characters that no header may")
    secrets = [*url_secrets]
    for key in all_headers.keys() & _SECRET_HEADERS:
        secrets += [all_headers[key], *all_headers[key].split()[1:]]
    try:
        body = dumps({**request, "stream": True})
    except (TypeError, RecursionError) as error:
        raise ValueError(f"the request can't be written as JSON: {error}") from error
    return HTTPSource(url, body, all_headers, secrets=secrets, session=session, name=name or shown)


def _address(base_url: str, path: str) -> tuple[str, str, list[str]]:
    """The URL, what may be shown of it, and what must not."""
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError:
        raise ValueError("base_url is no URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("base_url must be an http or https URL with a host")
    if parts.query or parts.fragment:
        raise ValueError("base_url must not have a query or a fragment")
    folder = f"{parts.path.rstrip('/')}/{path.lstrip('/')}"
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    shown = f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{folder.partition('?')[0]}"
    return f"{parts.scheme}://{parts.netloc}{folder}", shown, [parts.password] if parts.password else []


class _WhenAnswered:
    """A stage that is made when the first item comes."""

    def __init__(self, make: Callable[[], Operator[Any, Any]]) -> None:
        self._make = make
        self._chain: Chain | None = None

    def _stages(self) -> Chain:
        if self._chain is None:
            self._chain = self._make().chain()
        return self._chain

    def feed(self, batch: Sequence[Any], /) -> Sequence[Any]:
        return self._stages().feed(batch)

    def flush(self) -> Sequence[Any]:
        return self._stages().flush()

    def fail(self, error: Exception, /) -> Sequence[Any]:
        return self._stages().fail(error)


def when_answered(make: Callable[[], Operator[A, B]]) -> Operator[A, B]:
    """An operator that is made when the first item comes: for stages that need what the response says.

    ``when_answered(lambda: decode(content_type=source.content_type) | …)``
    """
    return lift(lambda: _WhenAnswered(make), "when_answered")
