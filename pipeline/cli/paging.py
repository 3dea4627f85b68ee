"""Long output in a terminal goes through the user's pager."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import IO

__all__ = ["paged"]


@contextlib.contextmanager
def paged(*, wanted: bool = True) -> Iterator[IO[str]]:
    """Standard output, in a terminal behind a pager: ``$PAGER``, else ``less`` with colours, else none.

    Whoever leaves the pager before the end has seen enough: that is no error. Ctrl-C belongs to the pager.
    """
    command = _command() if wanted and sys.stdout.isatty() else None
    process = _start(command) if command else None
    if process is None or process.stdin is None:
        yield sys.stdout
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with contextlib.suppress(BrokenPipeError):
            yield process.stdin
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()
        signal.signal(signal.SIGINT, before)


def _command() -> list[str] | None:
    chosen = os.environ.get("PAGER")
    if chosen is not None:
        try:
            words = shlex.split(chosen)
        except ValueError:
            return None
        return words if words and words != ["cat"] else None
    return ["less", "-R"] if shutil.which("less") else None


def _start(command: list[str]) -> subprocess.Popen[str] | None:
    # As others do it: colours, no screen of its own for what fits on one.
    environment = {"LESS": "FRX", "LV": "-c", **os.environ}
    try:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, text=True, encoding=sys.stdout.encoding, errors="replace", env=environment
        )
    except OSError:
        return None
