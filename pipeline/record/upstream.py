"""Where requests go: the upstream's address, the way there, and what is said when it fails."""

from __future__ import annotations

import ipaddress
import os
import re
from typing import Any, Final
from urllib.parse import urlsplit

from turnstream.sources.http.proxies import Proxy, proxy_of

__all__ = ["Upstream", "failure_of", "path_of", "target_of"]

_ABSOLUTE: Final = re.compile(r"https?://[^/?#]*", re.IGNORECASE)

_LOCAL: Final = frozenset({"localhost", "127.0.0.1"})
_EVERYWHERE: Final = frozenset({"", "0.0.0.0", "::"})


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
        self._host = parts.hostname
        self._port = port or (443 if parts.scheme == "https" else 80)
        proxy = None if _is_this_machine(parts.hostname) else proxy_of(self.shown)
        self.way: dict[str, Any] = {} if proxy is None else _through(proxy, parts.scheme)

    def is_at(self, host: str, port: int) -> bool:
        """Whether it is what listens on ``host`` and ``port``: a proxy that asks itself does so for ever."""
        if port != self._port:
            return False
        names = {host, self._host}
        return len(names) == 1 or names <= _LOCAL or (host in _EVERYWHERE and _is_this_machine(self._host))

    def target(self, target: str) -> str:
        """The URL for a request's target (see :func:`target_of`)."""
        return f"{self.shown}{target_of(target)}"


def target_of(raw_path: str) -> str:
    """Path and query of a request line, escapes as they came; forward proxies get a whole URL there (RFC 9112 §3.2.2)."""
    if raw_path.startswith("/"):
        return raw_path
    raw_path = _ABSOLUTE.sub("", raw_path, count=1)
    return raw_path if raw_path.startswith("/") else f"/{raw_path}"


def path_of(target: str) -> str:
    """The path of a target."""
    return target.partition("?")[0]


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
