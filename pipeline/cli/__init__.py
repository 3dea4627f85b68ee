"""The command line: ``turnstream COMMAND …``. Imports late: ``--help`` must cost nothing."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

__all__ = ["main"]

EXIT_COMPLETE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141

_REPLAY_HELP = """\
Play recorded streams through the same stages and sinks that a live stream takes.

A FILE may hold plain server-sent events, NDJSON of payloads (also in wrappers) or one JSON message;
`-` is standard input. Several files are one session, in order."""

_REPLAY_EXIT = """\
exit status: 0 every answer is complete; 1 an answer failed (all that came was delivered, standard error
says what and where); 2 usage; 130 interrupted; 141 standard output was closed early"""


def _pace(text: str) -> float | None:
    if text == "max":
        return None
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither 'max' nor a factor above zero")
    return factor


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="turnstream", description="The message system of a coding agent: streams in, messages out."
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    replay = commands.add_parser(
        "replay",
        help="play recorded streams into the sinks",
        description=_REPLAY_HELP,
        epilog=_REPLAY_EXIT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    replay.add_argument("files", nargs="+", metavar="FILE", help="a recorded stream; - is standard input")
    replay.add_argument(
        "--ui",
        choices=("auto", "plain", "none"),
        default="auto",
        help="show the conversation (auto: plain, unless standard output carries data)",
    )
    replay.add_argument("--transcript", metavar="OUT.jsonl", help="write a transcript; refused if the file exists")
    replay.add_argument("--append", action="store_true", help="go on with an existing transcript")
    replay.add_argument(
        "--fsync", action="store_true", help="make each write of the transcript durable before it counts"
    )
    replay.add_argument("--metrics", choices=("table", "json", "none"), default="table", help="default: table")
    replay.add_argument("--metrics-file", metavar="FILE", help="write the metrics there instead")
    replay.add_argument(
        "--speed",
        type=_pace,
        default=None,
        metavar="max|FACTOR",
        help="max (default), or a factor of the recorded pace (recordings that hold times)",
    )
    replay.add_argument(
        "--output",
        choices=("none", "items", "messages", "text"),
        default="none",
        help="what standard output carries: every item or the messages as NDJSON (settled), or the answers' text",
    )
    replay.add_argument(
        "--ids", choices=("random", "stable"), default="random", help="stable: the same input gives the same uuids"
    )
    replay.add_argument("--strict", action="store_true", help="end at the first event that breaks a rule")
    return parser


def _version() -> str:
    from importlib.metadata import version

    return version("turnstream")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit status.
    """
    parser = build_parser()
    options = parser.parse_args(argv)
    if options.version:
        print(f"turnstream {_version()}")
        return EXIT_COMPLETE
    if options.command is None:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    from turnstream.cli.replay import replay

    try:
        status = replay(options)
        sys.stdout.flush()
    except BrokenPipeError:
        status = EXIT_PIPE
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    if status == EXIT_PIPE:
        # Whoever read us is gone; the interpreter must not complain about it at exit.
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)
    return status
