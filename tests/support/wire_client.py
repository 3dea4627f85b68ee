"""An HTTP/1.1 client that hides nothing: which bytes came when, in which chunks, and how the connection ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

REQUEST: dict[str, Any] = {"model": "any", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
STREAM: dict[str, Any] = {**REQUEST, "stream": True}


class Reply:
    """What came.

    Attributes:
        status: None if not even the headers came.
        headers: names in lower case.
        chunks: of the body, each with the loop's time of its arrival.
        ended: ``eof`` (the body ended as HTTP says), ``closed`` (the connection did), ``reset`` or ``silent``
            (nothing came for the client's patience).
        at: the loop's time then.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.reason = ""
        self.headers: dict[str, str] = {}
        self.chunks: list[tuple[float, bytes]] = []
        self.ended = ""
        self.at = 0.0

    @property
    def body(self) -> bytes:
        return b"".join(chunk for _, chunk in self.chunks)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.chunks]


async def exchange(
    url: str,
    body: Any = None,
    *,
    method: str = "POST",
    path: str = "/v1/messages",
    headers: Mapping[str, str] | None = None,
    patience: float = 3600.0,
) -> Reply:
    """One request on a connection of its own, and everything that comes back.

    Args:
        url: the server.
        body: bytes as they are, anything else as JSON, None for none.
        method: the HTTP method.
        path: the target, a query included.
        headers: beside the necessary ones.
        patience: seconds of the loop's time without a byte until it counts as silent.
    """
    content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    lines = [f"{method} {path} HTTP/1.1", "host: test", f"content-length: {len(content)}"]
    lines += [f"{key}: {value}" for key, value in (headers or {}).items()]
    reply = Reply()
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        await _read(reader, reply, patience, bodiless=method == "HEAD")
    except ConnectionResetError:
        reply.ended = "reset"
    except asyncio.IncompleteReadError:
        reply.ended = "closed"
    except TimeoutError:
        reply.ended = "silent"
    finally:
        reply.at = asyncio.get_running_loop().time()
        writer.transport.abort()
    return reply


async def _read(reader: asyncio.StreamReader, reply: Reply, patience: float, *, bodiless: bool) -> None:
    now = asyncio.get_running_loop().time

    async def line() -> bytes:
        async with asyncio.timeout(patience):
            return (await reader.readuntil(b"\r\n"))[:-2]

    async def take(size: int) -> None:
        async with asyncio.timeout(patience):
            data = await reader.readexactly(size)
        reply.chunks.append((now(), data))

    version, status, reply.reason = (await line()).decode().split(" ", 2)
    assert version == "HTTP/1.1"
    reply.status = int(status)
    while header := await line():
        name, _, value = header.decode().partition(":")
        reply.headers[name.lower()] = value.strip()
    if bodiless:
        pass
    elif reply.headers.get("transfer-encoding") == "chunked":
        while size := int(await line(), 16):
            await take(size)
            assert await line() == b""
        assert await line() == b""
    elif size := int(reply.headers["content-length"]):
        await take(size)
    reply.ended = "eof"
