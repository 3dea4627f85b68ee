"""``turnstream fork``: a conversation up to a record, as a session of its own."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from turnstream.cli import EXIT_COMPLETE, EXIT_FAILED, EXIT_USAGE
from turnstream.cli.saying import say
from turnstream.cli.sessions import chosen_session
from turnstream.messages.errors import TranscriptError
from turnstream.messages.jsonvalue import scrub
from turnstream.sinks.transcript.sessions import fork_session

__all__ = ["fork"]


def fork(options: argparse.Namespace) -> int:
    """Run the command; see ``turnstream fork --help``.

    Returns:
        The exit status.
    """
    source = chosen_session(options)
    if source is None:
        return EXIT_USAGE
    try:
        path = fork_session(source, at=options.at, title=options.title)
    except TranscriptError as error:
        say(str(error))
        return EXIT_FAILED
    print(json.dumps(scrub(_report(source, path, options.at)), indent=2) if options.json else path)
    return EXIT_COMPLETE


def _report(source: Path, path: Path, at: str) -> dict[str, str]:
    return {"session_id": path.stem, "path": str(path), "forked_from": str(source), "at": at}
