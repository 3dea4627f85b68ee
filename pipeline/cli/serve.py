"""``turnstream serve``: recordings behind the Messages API, until a signal comes."""

from __future__ import annotations

import argparse
import asyncio

from turnstream.cli import EXIT_COMPLETE, EXIT_USAGE
from turnstream.cli.saying import say
from turnstream.cli.stopping import until_signal
from turnstream.messages.errors import SourceError
from turnstream.serve import ServedRequest, serve_recordings

__all__ = ["serve"]

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_PATHS = frozenset({"/", "/health", "/v1/messages", "/v1/messages/count_tokens", "/v1/models"})


def _told(request: ServedRequest) -> str:
    """One line for a request. Of the client's own words only the fault is in it: others might hold a key."""
    method = request.method if request.method in _METHODS else "a request"
    path = request.path if request.path in _PATHS else "(another path)"
    parts = [f"{method} {path}: {request.status or 'no reply'}"]
    if request.recording is not None:
        parts.append(f"{request.recording}, {'stream' if request.stream else 'whole'}, {request.sent} bytes")
    if request.fault != "none":
        parts.append(f"fault {request.fault}")
    if request.ended not in (None, "complete"):
        parts.append(str(request.ended))
    return ", ".join(parts)


async def _serve(options: argparse.Namespace) -> int:
    stop = asyncio.Event()
    with until_signal(stop):
        async with serve_recordings(
            options.recordings,
            fault=options.fault or (),
            pace=options.speed,
            chunk=options.chunk,
            once=options.once,
            host=options.host,
            port=options.port,
            keep_requests=0,
            on_end=None if options.quiet else lambda request: say(_told(request)),
        ) as server:
            print(server.url, flush=True)
            waits = [asyncio.create_task(stop.wait(), name="signal")]
            if options.once:
                waits.append(asyncio.create_task(server.all_served.wait(), name="all served"))
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waits:
                    task.cancel()
                await asyncio.wait(waits)
    return EXIT_COMPLETE


def serve(options: argparse.Namespace) -> int:
    """Run the command; see ``turnstream serve --help``.

    Returns:
        The exit status.
    """
    try:
        return asyncio.run(_serve(options))
    except SourceError as error:
        say(f"{error} [{type(error).__name__}]")
    except ValueError as error:
        say(f"{error}")
    return EXIT_USAGE
