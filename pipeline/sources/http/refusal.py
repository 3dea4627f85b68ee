"""What a response says that isn't an answer."""

from __future__ import annotations

import asyncio
import contextlib
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from turnstream.messages.errors import APIError, TransportError
from turnstream.messages.jsonvalue import JSONValueError, loads
from turnstream.operators.failures import is_retryable
from turnstream.sources.http.quiet import Quiet

if TYPE_CHECKING:
    from aiohttp import ClientResponse

__all__ = ["broken", "refusal"]

_ERROR_BYTES: Final = 64 * 1024
_ERROR_SECONDS: Final = 10.0
_EXCERPT: Final = 200
# The status decides where there is one: a 400 stays a 400, whatever its body says.
_RETRYABLE_STATUS: Final = frozenset({408, 409, 429})

# What the API documents for its statuses (docs, Errors): a proxy's page says no type. A bare 500 may be anybody's.
_TYPE_OF_STATUS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


async def refusal(response: ClientResponse, request_id: str | None, quiet: Quiet) -> APIError:
    """The error of a response other than 200, with what its body says of it."""
    body = bytearray()
    with contextlib.suppress(Exception):  # what doesn't come: the status says enough
        async with asyncio.timeout(_ERROR_SECONDS):
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > _ERROR_BYTES:
                    break
    status = response.status
    error_type, message, told_id = _told(bytes(body[:_ERROR_BYTES]))
    if message is None:
        message = f"HTTP {status} {response.reason or ''}".rstrip()
        if 300 <= status < 400:
            message += ": redirects aren't followed, the key would go along"
        elif body and (excerpt := _excerpt(bytes(body))):
            message += f": {excerpt}"
    return APIError(
        quiet(message),
        error_type=quiet(error_type or _TYPE_OF_STATUS.get(status, "unknown")),
        status=status,
        request_id=request_id if told_id is None else quiet(told_id),
        retryable=status in _RETRYABLE_STATUS
        or status >= HTTPStatus.INTERNAL_SERVER_ERROR
        or (status < HTTPStatus.BAD_REQUEST and is_retryable(error_type or "")),
    )


def broken(
    error: Exception,
    *,
    answered: bool,
    received: int,
    connect: float | None,
    request_id: str | None,
    quiet: Quiet,
) -> TransportError:
    """The error of a connection that can't be made or that broke."""
    from aiohttp import (
        ClientConnectorCertificateError,
        ClientConnectorError,
        ClientHttpProxyError,
        ClientSSLError,
        InvalidURL,
        ServerDisconnectedError,
        ServerTimeoutError,
    )

    if isinstance(error, (InvalidURL, UnicodeError)):  # a label of the host that is empty or too long
        return TransportError("the URL can't be used", retryable=False, hint="check the base URL")
    if isinstance(error, ServerDisconnectedError):
        detail = "the server closed it"  # its text may be the half head of a response, as aiohttp has it in memory
    else:
        detail = quiet(str(error).strip() or type(error).__name__)
    if answered:
        return TransportError(
            f"the connection broke after {received} bytes of the answer: {detail}",
            hint=f"the request was {request_id}" if request_id else None,
        )
    if isinstance(error, ServerTimeoutError) and connect is not None:
        return TransportError(f"no connection within {connect:g} s", hint="check the base URL and the network")
    if isinstance(error, ClientHttpProxyError):
        # Its text quotes the whole request.
        status = error.status
        return TransportError(
            f"the proxy refused: HTTP {status}",
            retryable=status in _RETRYABLE_STATUS or status >= HTTPStatus.INTERNAL_SERVER_ERROR,
            hint="see HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY",
        )
    if isinstance(error, (ClientConnectorCertificateError, ClientSSLError)):
        return TransportError(f"no secure connection: {detail}", retryable=False)
    if isinstance(error, ClientConnectorError):
        return TransportError(f"no connection: {detail}", hint="check the base URL and the network")
    return TransportError(f"the connection broke before the answer came: {detail}")


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
