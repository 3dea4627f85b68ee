"""The proxy that the environment names for a URL, by the rules that curl and the standard library share."""

from __future__ import annotations

import urllib.request
from base64 import b64encode
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from turnstream.messages.errors import TransportError

__all__ = ["Proxy", "proxy_of"]


class Proxy(NamedTuple):
    """A proxy and what it wants to hear.

    Attributes:
        url: where it is, without user and password.
        user: for basic authentication, None without.
        password: likewise.
    """

    url: str
    user: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"Proxy({self.url!r})"

    @property
    def authorization(self) -> str | None:
        """The value of ``proxy-authorization``, None without a user."""
        if self.user is None:
            return None
        return "Basic " + b64encode(f"{self.user}:{self.password or ''}".encode()).decode()

    def secrets(self) -> list[str]:
        """What must not be shown."""
        return [self.password or "", (self.authorization or "").removeprefix("Basic ")]


def proxy_of(url: str) -> Proxy | None:
    """The proxy for ``url``, None if there is none.

    Only the environment is asked, and no ``.netrc``: that would add credentials of its own to the request.

    Raises:
        TransportError: the proxy is of a kind that can't be used (SOCKS), or no URL; not retryable.
    """
    parts = urlsplit(url)
    proxies = urllib.request.getproxies_environment()
    found = proxies.get(parts.scheme) or proxies.get("all")
    # typeshed hides it, the standard library's documentation doesn't.
    bypass: Callable[[str, dict[str, str]], bool] = getattr(urllib.request, "proxy_bypass_environment")  # noqa: B009
    if not found or bypass(parts.netloc.rpartition("@")[2], proxies):
        return None
    if "://" not in found:
        found = f"http://{found}"
    try:
        proxy = urlsplit(found)
        port = proxy.port
    except ValueError:
        raise _unusable("is no URL") from None
    if proxy.scheme not in ("http", "https"):
        raise _unusable(f"is a {proxy.scheme} proxy; only HTTP proxies can be used")
    if not proxy.hostname:
        raise _unusable("has no host")
    host = f"[{proxy.hostname}]" if ":" in proxy.hostname else proxy.hostname
    where = f"{proxy.scheme}://{host}{'' if port is None else f':{port}'}"
    if proxy.username is None:
        return Proxy(where)
    return Proxy(where, unquote(proxy.username), unquote(proxy.password or ""))


def _unusable(why: str) -> TransportError:
    return TransportError(
        f"the proxy that the environment names {why}",
        retryable=False,
        hint="see HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, or pass trust_env=False",
    )
