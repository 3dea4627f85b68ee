"""``turnstream show``: a session's conversation for reading."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Final

from turnstream.cli import EXIT_COMPLETE, EXIT_FAILED, EXIT_USAGE
from turnstream.cli.paging import paged
from turnstream.cli.saying import say
from turnstream.cli.sessions import chosen_session
from turnstream.messages.codec import replace
from turnstream.messages.errors import TranscriptError
from turnstream.messages.types import UserMessage
from turnstream.operators.display import reorder_tool_groups, split_blocks
from turnstream.operators.stage import run_stages
from turnstream.sinks.transcript.reading.resume import Resumed, resume
from turnstream.sinks.ui import PlainRenderer, UIState
from turnstream.sinks.ui.terminal import Glyphs, Style, TextStream, encodable, safe, shorten

__all__ = ["show"]

_NARROWEST: Final = 40
_BATCH: Final = 256
"""So many messages are rendered at once."""
_SHOWN: Final = 3
"""Of the branches that aren't shown; all are counted."""


def show(options: argparse.Namespace) -> int:
    """Run the command; see ``turnstream show --help``.

    Returns:
        The exit status.
    """
    path = chosen_session(options)
    if path is None:
        return EXIT_USAGE
    try:
        found = resume(path, leaf=options.at, history=options.full, mend=False, side_files=False)
    except TranscriptError as error:
        say(str(error))
        return EXIT_USAGE
    if not found.messages:
        say(f"{path} holds no message of a conversation, but {found.report.holds()}")
        return EXIT_FAILED
    tty = sys.stdout.isatty()
    with paged(wanted=options.pager) as stream:
        _render(found, stream, full=options.full, tty=tty)
    _tell(found, path)
    return EXIT_COMPLETE


def _render(found: Resumed, stream: TextStream, *, full: bool, tty: bool) -> None:
    color = tty and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = max(shutil.get_terminal_size().columns, _NARROWEST) if tty else 80
    encoding = getattr(stream, "encoding", None)
    stream.write(encodable(_head(found, Style(color), Glyphs(encoding).ellipsis, width), encoding))
    history = "above" if full else "turnstream show --full"
    renderer = PlainRenderer(stream, color=color, width=width, history=history)
    state = UIState(keep=False)
    # Results stand behind their calls; nothing is grouped: whoever looks things up wants each of them.
    messages: list[Any] = run_stages(found.messages, split_blocks() | reorder_tool_groups())
    for start in range(0, len(messages), _BATCH):
        batch = messages[start : start + _BATCH]
        state.apply([_unhidden(message) for message in batch] if full else batch)
        renderer.render(state)
    renderer.close()


def _unhidden(message: Any) -> Any:
    """What is for the full history only is shown there (WIRE.md §2)."""
    if isinstance(message, UserMessage) and message.is_visible_in_transcript_only:
        return replace(message, is_visible_in_transcript_only=None)
    return message


def _head(found: Resumed, style: Style, ellipsis: str, width: int) -> str:
    """Which session it is, in one or two lines."""
    title = shorten(safe(found.title), width, ellipsis) if found.title else ""
    facts = [found.session_id or found.path.stem, found.cwd or "", _first_time(found)]
    lines = [style.bold(title), style.dim(safe("  ".join(" ".join(fact.split()) for fact in facts if fact)))]
    return "".join(f"{line}\n" for line in lines if line) + "\n"


def _first_time(found: Resumed) -> str:
    return next((m.timestamp for m in found.messages if getattr(m, "timestamp", "")), "")  # type: ignore[union-attr]


def _tell(found: Resumed, path: Path) -> None:
    """What wasn't shown, on standard error."""
    bad = found.report.of("bad_line", "bad_tail")
    if bad:
        first = f"the first is line {bad[0].line}, byte {bad[0].offset}: {bad[0].why}"
        say(
            f"{len(bad)} line{'s' if len(bad) > 1 else ''} of {path} can't be read; {first} (`turnstream doctor` says more)"
        )
    if found.forks:
        more = "; …" if len(found.forks) > _SHOWN else ""
        ways = "; ".join(f"--at {fork.leaf}" for fork in found.forks[:_SHOWN])
        say(f"{len(found.forks)} other branch{'es' if len(found.forks) > 1 else ''}: {ways}{more}")
