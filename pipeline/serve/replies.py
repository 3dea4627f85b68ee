"""One reply of the replay server: whole, or step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from turnstream.messages.jsonvalue import dumps
from turnstream.serve.faults import FaultSpec
from turnstream.serve.served import ServedRequest
from turnstream.serve.steps import Step
from turnstream.serve.writing import Writer

__all__ = ["JSON_TYPE", "Reply"]

JSON_TYPE: Final = "application/json"


class Reply:
    """Writes one reply and keeps account of it.

    Args:
        request: whose it is.
        seen: where status and bytes are noted.
        request_id: what the API calls the request.
        headers: more headers for it.

    Attributes:
        fault: what goes wrong with it.
    """

    def __init__(
        self, request: web.BaseRequest, seen: ServedRequest, request_id: str, headers: Mapping[str, str]
    ) -> None:
        self.request = request
        self.seen = seen
        self.request_id = request_id
        self.fault = FaultSpec()
        self._headers = headers

    def _all(self, content_type: str, more: Mapping[str, str]) -> dict[str, str]:
        return {"content-type": content_type, "request-id": self.request_id, **self._headers, **more}

    async def whole(
        self, status: int, body: bytes, content_type: str, more: Mapping[str, str] | None = None
    ) -> web.StreamResponse:
        """A reply whose length is known."""
        self.seen.status = status
        response = web.Response(status=status, reason=_reason(status), body=body)
        response.headers.update(self._all(content_type, more or {}))
        await response.prepare(self.request)
        await response.write_eof()
        self.seen.sent = 0 if self.request.method == "HEAD" else len(body)
        return response

    async def json(
        self, status: int, value: Any, more: Mapping[str, str] | None = None, content_type: str | None = None
    ) -> web.StreamResponse:
        """A reply in JSON."""
        return await self.whole(status, dumps(value), content_type or JSON_TYPE, more)

    async def error(
        self,
        status: int,
        error: dict[str, Any],
        more: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> web.StreamResponse:
        """A reply in the API's error shape."""
        return await self.json(
            status, {"type": "error", "error": error, "request_id": self.request_id}, more, content_type
        )

    async def steps(
        self, steps: Iterable[Step], content_type: str, more: Mapping[str, str], start: float
    ) -> web.StreamResponse:
        """A reply step by step."""
        self.seen.status = 200
        response = web.StreamResponse(headers=self._all(content_type, {"cache-control": "no-cache", **more}))
        await response.prepare(self.request)
        await Writer(self.request, response, start, self.seen).perform(steps)
        return response


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Overloaded" if status == 529 else "Unknown"
