"""``turnstream replay``: recorded streams through the stages into the sinks."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnstream.cli import EXIT_USAGE
from turnstream.cli.progress import LONG, ProgressBar
from turnstream.cli.work import Work, perform, say
from turnstream.operators import accumulate, decode, parse_events
from turnstream.operators.stage import Operator
from turnstream.sinks.base import Sink
from turnstream.sources import SessionSource, Source, from_file, from_stdin

__all__ = ["replay"]


class _Replay:
    """All files as one session."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._opened = 0

    def source(self, work: Work) -> SessionSource[bytes, Any]:
        options = self._options
        sources: list[Source[bytes]] = [
            from_stdin() if name == "-" else from_file(name, pace=options.speed) for name in options.files
        ]
        numbers = {id(source): number for number, source in enumerate(sources)}

        def operator(source: Source[bytes]) -> Operator[bytes, Any]:
            strict = options.strict
            ids = work.ids(numbers[id(source)], Path(source.name).name)
            return decode(strict=strict) | parse_events(strict=strict) | accumulate(ids=ids, strict=strict)

        def started(source: Source[bytes]) -> None:
            self._opened += 1
            work.started(source)

        return SessionSource(sources, operator, name="replay", announce=work.timed, started=started)

    async def prepare(self, work: Work) -> None:
        pass

    def left(self) -> str:
        files = len(self._options.files)
        left = files - self._opened
        return f"{left} of {files} files were not played" if left else ""

    def progress(self, work: Work) -> Sequence[Sink]:
        """A bar for long files, where it doesn't disturb."""
        total = _size(self._options.files)
        disturbs = work.shows and work.human().isatty()
        if total >= LONG and sys.stderr.isatty() and not disturbs and self._options.speed is None:
            bar = ProgressBar(sys.stderr, total)
            work.clear = bar.clear
            return [bar]
        return []


def _size(files: Sequence[str]) -> int:
    total = 0
    for name in files:
        try:
            total += os.stat(name).st_size
        except OSError:
            return 0
    return total


def replay(options: argparse.Namespace) -> int:
    """Run the command; see ``turnstream replay --help``.

    Returns:
        The exit status.
    """
    if options.files.count("-") > 1:
        say("standard input can be read only once")
        return EXIT_USAGE
    names = [Path(name).name for name in options.files]
    command = _Replay(options)
    return perform(
        options,
        command,
        names=names,
        title=f"Replay of {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else ""),
        timed=options.speed is not None,
        more=command.progress,
        inputs=options.files,
    )
