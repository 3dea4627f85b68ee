"""Where requests go: the upstream's address, the way there, and what is said when it fails."""

from __future__ import annotations

import ipaddress
import os
import re
from typing import Any, Final
from urllib.parse import urlsplit

from turnstream.sources.http.proxies import Proxy, proxy_of

__all__ = ["Upstream", "failure_of"]

_ABSOLUTE: Final = re.compile(r"https?://[^/?#]*", re.IGNORECASE)


class Upstream:
    """The base URL of an API.

    Attributes:
        shown: the URL, for people.
        way: aiohttp's arguments for the HTTP proxy that the environment names, if there is one; never for an
            address of this machine.

    Raises:
        ValueError: it isn't an http or https URL with a host, or has a user, a query or a fragment.
        TransportError: the environment names a proxy that can't be used.
    """

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise ValueError("the upstream is no URL") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the upstream must be an http or https URL with a host")
        if parts.username is not None or parts.password is not None:
            raise ValueError("the upstream must not hold a user or a password: clients authorize themselves")
        if parts.query or parts.fragment:
            raise ValueError("the upstream must not have a query or a fragment")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.shown = f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"
        proxy = None if _is_this_machine(parts.hostname) else proxy_of(self.shown)
        self.way: dict[str, Any] = {} if proxy is None else _through(proxy, parts.scheme)

    def target(self, raw_path: str) -> str:
        """The URL for a request target, its escapes as they came."""
        if not raw_path.startswith("/"):
            raw_path = _ABSOLUTE.sub("", raw_path, count=1)
            if not raw_path.startswith("/"):
                raw_path = f"/{raw_path}"
        return f"{self.shown}{raw_path}"


def _is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name


def _through(proxy: Proxy, scheme: str) -> dict[str, Any]:
    way: dict[str, Any] = {"proxy": proxy.url}
    if proxy.authorization is not None:
        # aiohttp reads this one as its request to the proxy; a plain http request has it among its own headers.
        name = "proxy_headers" if scheme == "https" else "headers"
        way[name] = {"Proxy-Authorization": proxy.authorization}
    return way


def failure_of(error: BaseException) -> str:
    """Why no answer came, in words that quote nobody: neither headers nor what the upstream said."""
    from aiohttp import ClientConnectorCertificateError, ClientConnectorDNSError, ClientConnectorError, ClientSSLError

    if isinstance(error, (ClientConnectorCertificateError, ClientSSLError)):
        return "no secure connection to the upstream"
    if isinstance(error, ClientConnectorDNSError):
        return "the upstream's name can't be resolved"
    if isinstance(error, ClientConnectorError):
        number = error.os_error.errno
        return f"no connection to the upstream ({'unreachable' if number is None else os.strerror(number)})"
    if isinstance(error, TimeoutError):
        return "no connection to the upstream in time"
    return f"the upstream gave no answer ({type(error).__name__})"
