"""``turnstream send``: one request to the API, its answer streamed into the same sinks as a replay."""

from __future__ import annotations

import argparse
import errno
import sys
from pathlib import Path
from typing import Any

from turnstream.cli import EXIT_USAGE
from turnstream.cli.work import Work, perform, say
from turnstream.messages.factories import MessageFactory
from turnstream.messages.jsonvalue import JSONValueError, loads
from turnstream.operators import accumulate, decode, parse_events
from turnstream.operators.stage import Operator
from turnstream.sources import HTTPSource, SessionSource, Source, from_request, when_answered

__all__ = ["send"]


class _Send:
    """One request as a session of one answer."""

    def __init__(self, options: argparse.Namespace, request: dict[str, Any], source: HTTPSource, name: str) -> None:
        self._options = options
        self._request = request
        self._http = source
        self._name = name

    def source(self, work: Work) -> SessionSource[bytes, Any]:
        http = self._http
        strict = self._options.strict

        def stages() -> Operator[bytes, Any]:
            return (
                decode(content_type=http.content_type, strict=strict)
                | parse_events(strict=strict)
                | accumulate(ids=work.ids(0, self._name), strict=strict, request_id=http.request_id)
            )

        def operator(source: Source[bytes]) -> Operator[bytes, Any]:
            return when_answered(stages)

        return SessionSource([http], operator, name="send", announce=True, started=work.started)

    async def prepare(self, work: Work) -> None:
        """The user's message is in the transcript before the request goes out."""
        content = _last_words(self._request)
        if work.transcript is not None and content:
            message = MessageFactory(work.ids("user", self._name)).user(content)
            await work.transcript.record([message])

    def left(self) -> str:
        return ""


def _last_words(request: dict[str, Any]) -> Any:
    """The content of the last user message, None if there is none."""
    messages = request.get("messages")
    for message in reversed(messages) if isinstance(messages, list) else ():
        if isinstance(message, dict) and message.get("role") == "user":
            content = message.get("content")
            return content if isinstance(content, (str, list)) else None
    return None


def _read(path: str) -> bytes:
    if path == "-":
        if sys.stdin is None:
            raise OSError(errno.EBADF, "it is closed")
        return sys.stdin.buffer.read()
    return Path(path).read_bytes()


def send(options: argparse.Namespace) -> int:
    """Run the command; see ``turnstream send --help``.

    Returns:
        The exit status.
    """
    shown = "standard input" if options.request == "-" else options.request
    try:
        request = loads(_read(options.request))
    except OSError as error:
        say(f"can't read the request from {shown}: {error.strerror}")
        return EXIT_USAGE
    except JSONValueError as error:
        say(f"{shown} holds no JSON: {error}")
        return EXIT_USAGE
    if not isinstance(request, dict):
        say(f"{shown} holds no JSON object")
        return EXIT_USAGE
    try:
        source = from_request(request, base_url=options.base_url)
    except ValueError as error:
        say(f"{error}")
        return EXIT_USAGE
    name = Path(shown).name
    return perform(
        options,
        _Send(options, request, source, name),
        names=[name],
        title=f"Answer to {name}",
        timed=True,
        inputs=[options.request],
    )
