"""The command line: ``turnstream COMMAND …``. Imports late: ``--help`` must cost nothing."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence

from turnstream.cli.parser import build_parser

__all__ = ["main"]

EXIT_COMPLETE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141


def _version() -> str:
    from importlib.metadata import version

    return version("turnstream")


def _command(name: str) -> Callable[[argparse.Namespace], int]:
    # An interrupt waits until the imports are done: an extension module that it hits while it sets itself up may
    # crash the interpreter.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return _imported(name)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _imported(name: str) -> Callable[[argparse.Namespace], int]:
    if name == "bench":
        from turnstream.cli.bench import bench

        return bench
    if name == "send":
        from turnstream.cli.send import send

        return send
    if name == "serve":
        from turnstream.cli.serve import serve

        return serve
    if name == "record":
        from turnstream.cli.record import record

        return record
    if name == "normalize":
        from turnstream.cli.normalize import normalize

        return normalize
    if name == "inspect":
        from turnstream.cli.inspect import inspect

        return inspect
    if name == "schema":
        from turnstream.cli.schema import schema

        return schema
    if name == "sessions":
        from turnstream.cli.sessions import sessions

        return sessions
    if name == "show":
        from turnstream.cli.show import show

        return show
    if name == "fork":
        from turnstream.cli.fork import fork

        return fork
    if name == "doctor":
        from turnstream.cli.doctor import doctor

        return doctor
    from turnstream.cli.replay import replay

    return replay


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit status.
    """
    _fill_closed_streams()
    silent = False
    try:
        parser = build_parser()
        options = parser.parse_args(argv)
        if options.version:
            print(f"turnstream {_version()}")
            status = EXIT_COMPLETE
        elif options.command is None:
            parser.print_help(sys.stderr)
            status = EXIT_USAGE
        else:
            status = _command(options.command)(options)
        sys.stdout.flush()
    except BrokenPipeError:
        status = EXIT_PIPE
    except OSError as error:
        # The device of standard output is full or gone.
        print(f"turnstream: can't write standard output: {error.strerror or repr(error)}", file=sys.stderr)
        status = EXIT_FAILED
        silent = True
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
        silent = True
    if silent or status == EXIT_PIPE:
        # Whoever read us is gone, or we shall end at once: at exit, the interpreter must neither complain
        # nor wait for somebody to read the rest.
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)
    return status


def _fill_closed_streams() -> None:
    """Standard streams that our parent closed are the null device: no file of ours may get their number.

    ``sys.__stdout__`` stays None, so that it can be told from one that was redirected there.
    """
    fd = 0
    while fd <= 2:
        fd = os.open(os.devnull, os.O_RDWR)
    os.close(fd)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
