"""An answer on its way to the client: status, headers and bytes as the upstream sent them, each chunk at once."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from turnstream.messages.jsonvalue import dumps
from turnstream.serve.api import error_object

__all__ = ["PassedAnswer", "refusal"]

_ADDED: Final = ("Content-Type", "Date", "Server")


class PassedAnswer(web.StreamResponse):
    """A response to which aiohttp adds no headers but those of the connection."""

    async def _prepare_headers(self) -> None:
        absent = [name for name in _ADDED if name not in self.headers]
        await super()._prepare_headers()
        for name in absent:
            self.headers.pop(name, None)


def refusal(status: int, message: str) -> web.Response:
    """A whole response in the API's error shape."""
    body = {"type": "error", "error": error_object(status, f"turnstream record: {message}")}
    return web.Response(status=status, body=dumps(body), content_type="application/json")
