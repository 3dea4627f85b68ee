"""``turnstream record``: a recording proxy in front of the Messages API, until a signal comes."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from turnstream.cli import EXIT_COMPLETE, EXIT_FAILED, EXIT_USAGE
from turnstream.cli.saying import say
from turnstream.cli.stopping import until_signal
from turnstream.messages.errors import SourceError
from turnstream.record import Exchange, record_proxy

__all__ = ["record"]


async def _record(options: argparse.Namespace) -> int:
    stop = asyncio.Event()

    def told(exchange: Exchange) -> None:
        say(str(exchange))

    with until_signal(stop):
        async with record_proxy(
            options.upstream,
            options.dir,
            transcripts=not options.no_transcripts,
            bodies=options.bodies,
            session_header=options.session_header,
            own_metrics=not options.pass_metrics,
            host=options.host,
            port=options.port,
            grace=options.grace,
            on_end=None if options.quiet else told,
            on_drop=say,
        ) as proxy:
            print(proxy.url, flush=True)
            await stop.wait()
        counts = proxy.report()["proxy"]
        if counts["dropped"]:
            say("dropped: " + ", ".join(f"{what} {count}" for what, count in counts["dropped"].items()))
        if not proxy.finished:
            # A device that hangs holds threads, for which the interpreter would wait.
            sys.stdout.flush()
            os._exit(EXIT_FAILED)
    return EXIT_COMPLETE


def record(options: argparse.Namespace) -> int:
    """Run the command; see ``turnstream record --help``.

    Returns:
        The exit status.
    """
    try:
        return asyncio.run(_record(options))
    except SourceError as error:
        say(f"{error} [{type(error).__name__}]")
    except ValueError as error:
        say(f"{error}")
    return EXIT_USAGE
