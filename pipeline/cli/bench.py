"""``turnstream bench``: how fast it is here, as ratios to a floor in the same run."""

from __future__ import annotations

import argparse
import sys

import msgspec

from turnstream.bench import GROWTH, LIVE, TRANSCRIPT, make_workload, render, run
from turnstream.cli import EXIT_COMPLETE, EXIT_FAILED, EXIT_USAGE

__all__ = ["bench"]

_QUICK_SCALE = 0.1
_QUICK_ROUNDS = 3
_ROUNDS = 5


def bench(options: argparse.Namespace) -> int:
    """Run the command; see ``turnstream bench --help``.

    Returns:
        The exit status: 0 measured (whatever the figures are), 1 a contender left something out, 2 usage.
    """
    names = [name.strip() for name in options.workload.split(",") if name.strip()]
    try:
        if not names:
            raise ValueError("--workload names none")
        for name in names:
            if name not in (GROWTH, LIVE, TRANSCRIPT):
                make_workload(name, scale=0)
    except ValueError as error:
        _say(str(error))
        return EXIT_USAGE
    rounds = options.rounds if options.rounds is not None else _QUICK_ROUNDS if options.quick else _ROUNDS
    try:
        report = run(names, scale=_QUICK_SCALE if options.quick else 1.0, peers=options.peers, rounds=rounds, tell=_say)
    except RuntimeError as error:
        _say(str(error))
        return EXIT_FAILED
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        print(render(report))
    return EXIT_COMPLETE


def _say(text: str) -> None:
    """One line on standard error."""
    print(f"turnstream: {text}", file=sys.stderr, flush=True)
