"""``turnstream sessions``: the sessions below a root, and what of them goes."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from turnstream.cli import EXIT_COMPLETE, EXIT_FAILED, EXIT_USAGE
from turnstream.cli.saying import say
from turnstream.messages.errors import TranscriptError
from turnstream.messages.jsonvalue import scrub
from turnstream.sinks.transcript.sessions import (
    PruneReport,
    SessionInfo,
    default_root,
    find_session,
    list_sessions,
    prune,
)
from turnstream.sinks.ui.terminal import Glyphs, encodable, safe, shorten

__all__ = ["chosen_root", "chosen_session", "sessions"]

_SHORT_ID: Final = 8
_USED: Final = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_FOLDER: Final = 30
_UNITS: Final = ("bytes", "KB", "MB", "GB", "TB")


def sessions(options: argparse.Namespace) -> int:
    """Run the command; see ``turnstream sessions --help``.

    Returns:
        The exit status.
    """
    root = chosen_root(options)
    if root is None:
        return EXIT_USAGE
    try:
        return _prune(options, root) if options.action == "prune" else _list(options, root)
    except TranscriptError as error:
        say(str(error))
        return EXIT_FAILED


def chosen_root(options: argparse.Namespace) -> Path | None:
    """The root that was named, or our own; None, and that is said, if the one that was named is no folder."""
    if options.root is None:
        return default_root()
    root = Path(options.root)
    if not root.is_dir():
        say(f"{root} is no folder")
        return None
    return root


def chosen_session(options: argparse.Namespace) -> Path | None:
    """The transcript that ``options.session`` names: a file, or a session's uuid or its beginning; None, and that is
    said, if there is none.
    """
    path = Path(options.session)
    if path.is_file():
        return path
    if os.sep in options.session or path.suffix == ".jsonl":
        say(f"there is no file {path}")
        return None
    root = chosen_root(options)
    if root is None:
        return None
    try:
        return find_session(root, options.session)
    except TranscriptError as error:
        say(str(error))
        return None


def _list(options: argparse.Namespace, root: Path) -> int:
    unread: list[str] = []
    found = list_sessions(root, project=options.project, report=unread.append)
    if options.json:
        _print_json({"root": str(root), "sessions": [info.to_json() for info in found]})
    elif found:
        print(encodable(_table(found), sys.stdout.encoding))
    else:
        say(f"no sessions below {root}")
    for problem in unread:
        say(problem)
    return EXIT_FAILED if unread else EXIT_COMPLETE


def _prune(options: argparse.Namespace, root: Path) -> int:
    report = prune(
        root,
        older_than=options.older_than,
        keep=options.keep,
        max_size=options.max_size,
        project=options.project,
        dry_run=not options.yes,
    )
    if options.json:
        _print_json({"root": str(root), **report.to_json()})
    else:
        print(encodable(_pruned(report), sys.stdout.encoding))
    for path in report.open:
        say(f"{path} is open and stays")
    for problem in report.problems:
        say(problem)
    failed = [removal for removal in report.removals if removal.problem is not None]
    for removal in failed:
        say(f"{removal.path} stays: {removal.problem}")
    return EXIT_FAILED if failed or report.problems else EXIT_COMPLETE


def _print_json(value: dict[str, Any]) -> None:
    # Names of folders may be no text.
    print(json.dumps(scrub(value), indent=2))


# -- for reading ---------------------------------------------------------------------------------------


def _table(found: Sequence[SessionInfo]) -> str:
    glyphs = Glyphs(sys.stdout.encoding)
    length = _id_length([info.session_id for info in found])
    rows = [("SESSION", "LAST ACTIVE", "MESSAGES", "TOKENS", "FOLDER", "TITLE")]
    rows += [
        (
            info.session_id[:length],
            _local(info.active_at),
            f"{info.messages:,}",
            f"{sum(info.tokens.get(key, 0) for key in _USED):,}",
            _folder(info.cwd or info.project, glyphs.ellipsis),
            _title(info),
        )
        for info in found
    ]
    wide = [max(len(row[column]) for row in rows) for column in range(5)]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    lines = []
    for row in rows:
        start = "  ".join(
            cell.rjust(wide[column]) if column in (2, 3) else cell.ljust(wide[column])
            for column, cell in enumerate(row[:5])
        )
        title = row[5] if width is None else shorten(row[5], max(width - len(start) - 3, 16), glyphs.ellipsis)
        lines.append(f"{start}  {title}".rstrip())
    return "\n".join(lines)


def _local(seconds: float) -> str:
    try:
        return datetime.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return "?"


def _title(info: SessionInfo) -> str:
    if any(problem.line == 0 for problem in info.problems):
        return f"({_plain(info.problems[0].problem)})"
    return _plain(info.title) if info.title else "(no title)"


def _folder(text: str, ellipsis: str) -> str:
    """Its end tells most."""
    text = _plain(text)
    home = os.path.expanduser("~")
    if text == home or text.startswith(home + os.sep):
        text = "~" + text[len(home) :]
    return text if len(text) <= _FOLDER else ellipsis + text[len(ellipsis) - _FOLDER :]


def _id_length(ids: Sequence[str]) -> int:
    """So many characters that each id is told from the others."""
    length = _SHORT_ID
    for one, next_one in pairwise(sorted(set(ids))):
        while one[:length] == next_one[:length]:
            length += 1
    return length


def _pruned(report: PruneReport) -> str:
    verb = "would be removed" if report.dry_run else "removed"
    lines = [
        f"{_KINDS[removal.kind]}  {_size(removal.bytes)}  {_plain(str(removal.path))}  ({removal.why})"
        for removal in report.removals
        if report.dry_run or removal.done
    ]
    if not lines:
        return "nothing was removed" if report.removals else "nothing to remove"
    end = f"{_size(report.bytes)} {verb}"
    return "\n".join([*lines, f"{end}; --yes removes it" if report.dry_run else end])


_KINDS: Final = {
    "session": "session",
    "side_folder": "folder without a session",
    "side_file": "tool result",
    "fillers": "fillers",
    "half_made": "half-made copy",
}


def _size(count: int) -> str:
    value = float(count)
    for unit in _UNITS[:-1]:
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" or value >= 10 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} {_UNITS[-1]}"


def _plain(text: str) -> str:
    return safe(" ".join(text.splitlines()))
