"""``turnstream replay``: recorded streams and transcripts through the stages into the sinks."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnstream.cli import EXIT_COMPLETE, EXIT_FAILED, EXIT_USAGE
from turnstream.cli.progress import LONG, ProgressBar
from turnstream.cli.recognition import Found, look, recognising
from turnstream.cli.recorded import adopt, watch
from turnstream.cli.work import Work, perform, say, warning_before
from turnstream.flow.clocks import Clocks
from turnstream.operators import accumulate, decode, parse_events
from turnstream.operators.stage import Operator
from turnstream.sinks.base import Sink
from turnstream.sinks.transcript.layout import is_session_id
from turnstream.sources import (
    SessionSource,
    Source,
    decode_transcript,
    from_file,
    from_stdin,
    from_transcript,
    with_clocks,
)

__all__ = ["replay"]


class _Replay:
    """All files as one session.

    Attributes:
        held_nothing: whether a transcript, or what else was recorded, held no message of a conversation.
    """

    def __init__(self, options: argparse.Namespace, found: Sequence[Found | None]) -> None:
        self._options = options
        self._found = found
        self._opened = 0
        self.held_nothing = False

    def source(self, work: Work) -> SessionSource[Any, Any]:
        options = self._options
        sources: list[Source[Any]] = list(map(self._source, options.files, self._found))
        numbers = {id(source): number for number, source in enumerate(sources)}

        def events(source: Source[Any]) -> Operator[bytes, Any]:
            strict = options.strict
            ids = work.ids(numbers[id(source)], Path(source.name).name)
            return decode(strict=strict) | parse_events(strict=strict) | accumulate(ids=ids, strict=strict)

        def recorded(source: Source[Any], found: Found) -> Operator[Any, Any]:
            work.clear()
            say(f"{source.name} is {found.words}")
            operator = watch(lambda: self._held_nothing(source.name))
            return operator | adopt(work.transcript.session_id) if work.transcript is not None else operator

        def operator(source: Source[Any]) -> Operator[Any, Any]:
            found = self._found[numbers[id(source)]]
            if found is None:
                return recognising(
                    lambda found: (
                        events(source) if found.kind == "events" else decode_transcript() | recorded(source, found)
                    )
                )
            return events(source) if found.kind == "events" else recorded(source, found)

        def started(source: Source[Any]) -> None:
            self._opened += 1
            work.started(source)
            if not requested(source):
                work.started_at = None

        def requested(source: Source[Any]) -> bool:
            """Whether what the source holds is the reply to a request, with times."""
            found = self._found[numbers[id(source)]]
            return work.timed and (found is None or found.kind == "events")

        return SessionSource(sources, operator, name="replay", announce=requested, started=started)

    def _source(self, name: str, found: Found | None) -> Source[Any]:
        if name == "-":
            return self._watched(from_stdin())
        if found is None or found.kind == "events":
            # Of files, only a named pipe lets one wait; a recorded pause is no stall.
            source = from_file(name, pace=self._options.speed)
            return self._watched(source) if found is None else source
        return from_transcript(name, gaps=self._options.speed)

    def _watched(self, source: Source[Any]) -> Source[Any]:
        idle = self._options.idle_timeout
        if idle is None:
            return source
        return with_clocks(source, Clocks(first_byte=None, idle=idle, idle_warning=warning_before(idle)))

    def _held_nothing(self, name: str) -> None:
        self.held_nothing = True
        say(f"{name} holds no message of a conversation")

    async def prepare(self, work: Work) -> None:
        pass

    def left(self) -> str:
        files = len(self._options.files)
        left = files - self._opened
        return f"{left} of {files} files were not played" if left else ""

    def unanswered(self) -> str:
        return "no answer was cut off"

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
    found = [None if name == "-" else look(name) for name in options.files]
    command = _Replay(options, found)
    session_id = _only_session(options, found)
    status = perform(
        options,
        command,
        names=names,
        # A transcript that is written back brings its own title, if it has one.
        title=None
        if session_id is not None
        else f"Replay of {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else ""),
        timed=options.speed is not None,
        session_id=session_id,
        more=command.progress,
        inputs=options.files,
    )
    return EXIT_FAILED if status == EXIT_COMPLETE and command.held_nothing else status


def _only_session(options: argparse.Namespace, found: Sequence[Found | None]) -> str | None:
    """The session of the only input, a transcript, which a new transcript then goes on to be."""
    if options.transcript is None or options.append or len(found) != 1 or found[0] is None:
        return None
    session_id = found[0].session_id
    stem = Path(options.transcript).stem
    # Readers want a file that is named like a session to hold it.
    return session_id if not is_session_id(stem) or stem == session_id else None
