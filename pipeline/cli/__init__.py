"""The command line: ``turnstream COMMAND …``. Imports late: ``--help`` must cost nothing."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence

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

_EXIT = """\
says what and where); 2 usage; 130 interrupted and 143 terminated (what is open is kept and marked, standard
error says what was lost; a second signal ends at once); 141 standard output was closed early"""

_REPLAY_EXIT = f"""\
exit status: 0 every answer is complete; 1 an answer failed (all that came was delivered, standard error
{_EXIT}"""

_SEND_HELP = """\
Send one request and stream its answer through the same stages and sinks as a replay.

The request always streams. The key is taken from the environment's ANTHROPIC_API_KEY. With --transcript,
the last user message is in the file before the request goes out."""

_SEND_EXIT = f"""\
exit status: 0 the answer is complete; 1 it failed (all that came was delivered, standard error
{_EXIT}"""


_BENCH_HELP = """\
Measure turnstream, the floors it is compared with and, with --peers, what others use for the same job: in turn,
round by round, on byte streams made from a seed. Workloads: A many small deltas, B one tool input of 2 MB, C many
short answers, D deltas of 2 KB. Progress goes to standard error."""

_BENCH_EXIT = """\
exit status: 0 measured (whatever the figures are); 1 a contender left something out; 2 usage; 130 interrupted

peers: pip install 'turnstream[bench]'; under Node: npm install eventsource-parser rxjs @anthropic-ai/sdk in a folder
that the environment variable TURNSTREAM_BENCH_NODE names"""


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


def _add_sinks(parser: argparse.ArgumentParser) -> None:
    """The options that say where a stream goes."""
    parser.add_argument(
        "--ui",
        choices=("auto", "plain", "none"),
        default="auto",
        help="show the conversation (auto: plain, unless standard output carries data)",
    )
    parser.add_argument("--transcript", metavar="OUT.jsonl", help="write a transcript; refused if the file exists")
    parser.add_argument("--append", action="store_true", help="go on with an existing transcript")
    parser.add_argument(
        "--fsync", action="store_true", help="make each write of the transcript durable before it counts"
    )
    parser.add_argument("--metrics", choices=("table", "json", "none"), default="table", help="default: table")
    parser.add_argument("--metrics-file", metavar="FILE", help="write the metrics there instead")
    parser.add_argument(
        "--output",
        choices=("none", "items", "messages", "text"),
        default="none",
        help="what standard output carries: every item or the messages as NDJSON (settled), or the answers' text",
    )
    parser.add_argument(
        "--ids", choices=("random", "stable"), default="random", help="stable: the same input gives the same uuids"
    )
    parser.add_argument("--strict", action="store_true", help="end at the first event that breaks a rule")


def _rounds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} isn't a number of rounds: 1 or more")
    return int(text)


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
        "--speed",
        type=_pace,
        default=None,
        metavar="max|FACTOR",
        help="max (default), or a factor of the recorded pace (recordings that hold times)",
    )
    _add_sinks(replay)
    send = commands.add_parser(
        "send",
        help="send one request and stream its answer into the sinks",
        description=_SEND_HELP,
        epilog=_SEND_EXIT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    send.add_argument(
        "--request", required=True, metavar="FILE.json", help="the body of a Messages API request; - is standard input"
    )
    send.add_argument(
        "--base-url",
        default="https://api.anthropic.com",
        metavar="URL",
        help="the API, or a gateway (default: %(default)s)",
    )
    _add_sinks(send)
    bench = commands.add_parser(
        "bench",
        help="measure how fast it is here, as ratios to a floor",
        description=_BENCH_HELP,
        epilog=_BENCH_EXIT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    bench.add_argument(
        "--workload",
        default="A,B,C",
        metavar="A,B,C",
        help="which, of A, B, C, D and fractions such as B/4 (default: %(default)s)",
    )
    bench.add_argument("--peers", action="store_true", help="also what others use, as far as it is installed")
    bench.add_argument(
        "--rounds", type=_rounds, default=None, metavar="N", help="of each measurement (default: 5; --quick: 3)"
    )
    bench.add_argument("--quick", action="store_true", help="a tenth of the size, to see that it works")
    bench.add_argument("--json", action="store_true", help="JSON instead of tables")
    return parser


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
        print(f"turnstream: can't write standard output: {error.strerror}", file=sys.stderr)
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
