"""What lies beside transcripts: side folders, tool results in them, what crashed writers left (WIRE.md §3)."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from turnstream.sinks.transcript.layout import is_session_id
from turnstream.sinks.transcript.sessions.locked import session_files

__all__ = ["beside", "folder_size", "half_made", "newest", "orphan_results", "side_folders", "tool_results"]

# What forks, compactions of fillers and the doctor write first, to rename it when it is whole.
_HALF_MADE: Final = re.compile(r"\.(?P<session>[^.]+)\.jsonl\.(?:doctor-\d+\.)?tmp")
_TOKEN: Final = re.compile(rb"[0-9A-Za-z_-]+(?:\.[0-9A-Za-z_-]+)*")
_BLOCK: Final = 1 << 20


def side_folders(project: Path) -> list[Path]:
    """The folders of sessions in a project's folder, whether their transcript is there or not; no symlinks.

    Raises:
        OSError: the project's folder can't be read.
    """
    with os.scandir(project) as entries:
        names = [e.name for e in entries if is_session_id(e.name) and e.is_dir(follow_symlinks=False)]
    return [project / name for name in sorted(names)]


def beside(transcript: Path) -> list[Path]:
    """The files that belong to this transcript only: its old and rejected bytes, half-made copies; not its lock."""
    name = transcript.name
    try:
        with os.scandir(transcript.parent) as entries:
            found = [
                e.name
                for e in entries
                if e.name.startswith((f"{name}.", f".{name}.")) and e.is_file(follow_symlinks=False)
            ]
    except OSError:
        return []
    return [transcript.parent / n for n in sorted(found) if n != f".{name}.lock"]


def half_made(project: Path, *, before: float) -> list[tuple[Path, int]]:
    """Copies of transcripts whose writing was broken off, and their bytes; the transcript itself is elsewhere.

    Args:
        project: a project's folder.
        before: seconds since 1970; what was changed later stays: somebody may be writing it.

    Raises:
        OSError: the folder can't be read.
    """
    found: list[tuple[Path, int]] = []
    with os.scandir(project) as entries:
        for entry in entries:
            name = _HALF_MADE.fullmatch(entry.name)
            if name is not None and is_session_id(name["session"]):
                there = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(there.st_mode) and there.st_mtime < before:
                    found.append((project / entry.name, there.st_size))
    return sorted(found)


def tool_results(folder: Path) -> dict[Path, os.stat_result]:
    """The regular files among the tool results of a session and of its sub-agents; symlinks aren't followed."""
    found = _regular(folder / "tool-results")
    agents = folder / "subagents"
    try:
        if not agents.is_symlink():
            with os.scandir(agents) as entries:
                for name in sorted(e.name for e in entries if e.is_dir(follow_symlinks=False)):
                    found |= _regular(agents / name / "tool-results")
    except OSError:
        pass
    return found


def _regular(folder: Path) -> dict[Path, os.stat_result]:
    found: dict[Path, os.stat_result] = {}
    try:
        if not folder.is_symlink():
            with os.scandir(folder) as entries:
                for entry in entries:
                    there = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(there.st_mode):
                        found[folder / entry.name] = there
    except OSError:
        pass
    return found


def orphan_results(folder: Path, *, before: float) -> list[tuple[Path, int]]:
    """Tool results that no line names any more, and their bytes.

    A file counts as named if its name stands anywhere in the session's transcript or in those of its sub-agents, also
    in a line that can't be read. A half-made copy never is.

    Args:
        folder: the side folder.
        before: seconds since 1970; what was changed later stays: its line may not be written yet.

    Raises:
        OSError: a transcript can't be read, so nobody knows.
    """
    old = {path: there.st_size for path, there in tool_results(folder).items() if there.st_mtime < before}
    names = {os.fsencode(path.name) for path in old if not _is_half_made(path.name)}
    named: set[bytes] = set()
    transcript = folder.with_name(f"{folder.name}.jsonl")
    for path in (transcript, *session_files(transcript)):
        if names == named:
            break
        try:
            named |= _named(path, names - named)
        except FileNotFoundError:
            continue
    return sorted((path, size) for path, size in old.items() if os.fsencode(path.name) not in named)


def _is_half_made(name: str) -> bool:
    return name.startswith(".") and name.endswith(".tmp")


def _named(path: Path, names: set[bytes]) -> set[bytes]:
    """Which of the names stand in a file. A name of other characters than usual counts as named."""
    found = {name for name in names if not _TOKEN.fullmatch(name)}
    behind = max(map(len, names)) + 8
    with open(path, "rb", buffering=0) as file:
        rest = b""
        while block := file.read(_BLOCK):
            data = rest + block
            for token in _TOKEN.findall(data):
                # Before it the end of an escape may stand: `\n`, `\u00e9`.
                found.update(names.intersection((token, token[1:], token[5:])))
            rest = data[-behind:]
    return found


def folder_size(folder: Path) -> int:
    """Bytes of the regular files below a folder; symlinks aren't followed."""
    return sum(there.st_size for there in _files(folder))


def newest(folder: Path) -> float:
    """When anything below a folder was changed last, seconds since 1970."""
    return max((there.st_mtime for there in _files(folder)), default=folder.lstat().st_mtime)


def _files(folder: Path) -> Iterator[os.stat_result]:
    for parent, _, names in os.walk(folder, followlinks=False):
        for name in names:
            try:
                there = os.lstat(os.path.join(parent, name))
            except OSError:
                continue
            if stat.S_ISREG(there.st_mode):
                yield there
