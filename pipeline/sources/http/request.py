"""``from_request``: what is sent, and where to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from turnstream.flow.clocks import Clocks
from turnstream.messages.jsonvalue import dumps
from turnstream.sources.http.quiet import SECRET_HEADERS
from turnstream.sources.http.source import HTTPSource

if TYPE_CHECKING:
    from aiohttp import ClientSession

__all__ = ["from_request"]

_API_VERSION: Final = "2023-06-01"


def from_request(
    request: Mapping[str, Any],
    *,
    base_url: str = "https://api.anthropic.com",
    path: str = "/v1/messages",
    headers: Mapping[str, str] | None = None,
    api_key: str | None = None,
    session: ClientSession | None = None,
    name: str | None = None,
    stream: bool = True,
    clocks: Clocks | None = None,
    trust_env: bool = True,
) -> HTTPSource:
    """A live source: the request goes out when the run starts, its answer's bytes come as they arrive.

    Args:
        request: the body of a Messages API request; its ``stream`` is set to what ``stream`` says here.
        base_url: where the API is; a query isn't possible.
        path: the endpoint.
        headers: beside ours (``content-type``, ``accept``, ``anthropic-version``, ``x-api-key``), or
            instead of them.
        api_key: sent as ``x-api-key``. Default: the environment's ``ANTHROPIC_API_KEY``, unless ``headers``
            authorize. None at all: the server decides. It is in no log, error or repr.
        session: an aiohttp session to use (:func:`shared_session` makes one); it stays open, and its proxy
            settings are its own. Default: one for this request.
        name: what reports call it; default the URL without what is secret in it.
        stream: whether a stream is asked for. Either way ``stream`` is in the request, and either way a stream, or
            one JSON message, may be the answer: :func:`decode_answer` reads both.
        clocks: how long it may take to connect, until the first byte and between two (WIRE.md §7); default
            :class:`Clocks`. ``progress`` isn't looked at here: bytes have none.
        trust_env: go through the proxy that the environment names (``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY``;
            not for ``NO_PROXY``).

    Raises:
        ValueError: the URL isn't http(s) or has a query, a header has a line break, or the request is no JSON.
    """
    url, shown, url_secrets = _address(base_url, path)
    all_headers = {
        "content-type": "application/json",
        "accept": "text/event-stream" if stream else "application/json",
        "anthropic-version": _API_VERSION,
    }
    given = {key.lower(): value for key, value in (headers or {}).items()}
    if api_key is None and not given.keys() & SECRET_HEADERS:
        api_key = os.environ.get("ANTHROPIC_API_KEY")
    if api_key and (api_key := api_key.strip()):
        all_headers["x-api-key"] = api_key
    all_headers |= given
    for key, value in all_headers.items():
        if not value.isprintable() or not key.isprintable():
            raise ValueError(f"header {key!r} holds characters that no header may")
    secrets = [*url_secrets]
    for key in all_headers.keys() & SECRET_HEADERS:
        secrets += [all_headers[key], *all_headers[key].split()[1:]]
    try:
        # A copy: what orjson gives keeps 4 KB behind it, and this is held as long as the answer comes.
        body = b"%b" % dumps({**request, "stream": stream})
    except (TypeError, RecursionError) as error:
        raise ValueError(f"the request can't be written as JSON: {error}") from error
    return HTTPSource(
        url,
        body,
        all_headers,
        secrets=secrets,
        session=session,
        name=name or shown,
        clocks=clocks if clocks is not None else Clocks(),
        trust_env=trust_env,
    )


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
    secrets = [parts.password, unquote(parts.password)] if parts.password else []
    return f"{parts.scheme}://{parts.netloc}{folder}", shown, secrets
