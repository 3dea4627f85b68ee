"""Retention (WIRE.md §3): what is too old, too many or too large goes, and what nobody needs any more."""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from turnstream.messages.errors import TranscriptError
from turnstream.sinks.transcript.fillers import drop_fillers, sync_folder
from turnstream.sinks.transcript.sessions.info import SessionInfo
from turnstream.sinks.transcript.sessions.listing import list_sessions, project_folders
from turnstream.sinks.transcript.sessions.locked import hold, is_open, session_files
from turnstream.sinks.transcript.sessions.retention import choose
from turnstream.sinks.transcript.sessions.sidefolders import (
    beside,
    folder_size,
    half_made,
    newest,
    orphan_results,
    side_folders,
)

__all__ = ["PruneReport", "Removal", "prune"]

RemovalKind = Literal["session", "side_folder", "side_file", "fillers", "half_made"]

GRACE: Final = 3600.0
"""Seconds: a side file that was changed since then stays; its line may not be written yet."""


class Removal(msgspec.Struct, kw_only=True):
    """Something that goes.

    Attributes:
        kind: ``session`` a transcript and all that belongs to it; ``side_folder`` the folder of a session whose
            transcript isn't there; ``side_file`` a tool's result that no line names; ``fillers`` the bytes of lines
            that were taken back; ``half_made`` a copy of a transcript whose writing was broken off.
        path: of the transcript, folder or file.
        session_id: whose it is.
        bytes: what becomes free.
        why: the reason, in words.
        done: whether it is gone.
        problem: why it isn't although it should be; None in a dry run.
    """

    kind: RemovalKind
    path: Path
    session_id: str
    bytes: int
    why: str
    done: bool = False
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {**msgspec.structs.asdict(self), "path": str(self.path)}


class PruneReport(msgspec.Struct, kw_only=True):
    """What :func:`prune` did, or would do.

    Attributes:
        dry_run: whether nothing was touched.
        removals: what goes, in order.
        open: sessions that would go if nobody were writing them.
        problems: what couldn't be looked at.
    """

    dry_run: bool
    removals: list[Removal] = []
    open: list[Path] = []
    problems: list[str] = []

    @property
    def bytes(self) -> int:
        """What became free; in a dry run what would."""
        return sum(removal.bytes for removal in self.removals if self.dry_run or removal.done)

    def to_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            "dry_run": self.dry_run,
            "bytes": self.bytes,
            "removals": [removal.to_json() for removal in self.removals],
            "open": [str(path) for path in self.open],
            "problems": self.problems,
        }


def prune(
    root: str | os.PathLike[str],
    *,
    older_than: float | datetime.timedelta | None = None,
    keep: int | None = None,
    max_size: int | None = None,
    project: str | os.PathLike[str] | None = None,
    dry_run: bool = True,
    now: float | None = None,
    index: str | os.PathLike[str] | Literal[False] | None = None,
) -> PruneReport:
    """Remove sessions by age, number and size, then what nobody needs any more.

    With a session go its transcript, its old and rejected bytes, its side folder with its sub-agents, and its row in
    the cache. A session that a writer of ours has open, or that changes meanwhile, stays as it is. From sessions that
    stay, fillers of taken-back lines are removed (the file is written anew beside the old one, then takes its place),
    and tool results that no line names; then copies whose writing was broken off, and the folders of sessions whose transcript is gone: their tool results,
    with ``older_than`` all of it if it is that old.

    Args:
        root: the folder that holds ``projects``.
        older_than: the last activity is longer ago than this, seconds.
        keep: this many of the last active sessions stay, whatever their age and size.
        max_size: the least active go until all take at most this, bytes with side folders.
        project: only this working folder's sessions count, and go; what lies in other folders isn't touched.
        dry_run: only say what would go.
        now: seconds since 1970; default: the clock.
        index: the list's cache, as in :func:`list_sessions`.

    Raises:
        TranscriptError: ``projects`` can't be read or is a symlink.
        ValueError: a negative number.
    """
    at = time.time() if now is None else now
    age = older_than.total_seconds() if isinstance(older_than, datetime.timedelta) else older_than
    report = PruneReport(dry_run=dry_run)
    sessions = list_sessions(root, project=project, index=index, report=report.problems.append)
    readable = [info for info in sessions if not any(problem.line == 0 for problem in info.problems)]
    chosen = choose(readable, now=at, older_than=age, keep=keep, max_size=max_size, size_of=_whole_size)
    for info, why in chosen:
        removal = Removal(kind="session", path=info.path, session_id=info.session_id, bytes=_whole_size(info), why=why)
        _do(report, [removal], info.path, partial(_remove_session, info))
    going = {info.path for info, _ in chosen}
    staying = [info for info in sessions if info.path not in going]
    for info in staying:
        if info.filler_bytes:
            _fillers(report, info)
    if project is None:
        folders = project_folders(root)
    else:
        folders = sorted({info.path.parent for info in sessions})
    own = None if project is None else {info.path.with_suffix("") for info in sessions}
    for folder in folders:
        _half_made(report, folder, going, own, at)
        _side_folders(report, folder, going, own, at, age)
    if not dry_run:
        # The rows of what is gone go, too.
        list_sessions(root, project=project, index=index)
    return report


def _whole_size(info: SessionInfo) -> int:
    folder = info.path.with_suffix("")
    more = folder_size(folder) if not folder.is_symlink() else 0
    return info.size + more + sum(path.lstat().st_size for path in beside(info.path))


def _do(
    report: PruneReport, removals: list[Removal], transcript: Path, action: Callable[[], dict[Path, int] | None]
) -> None:
    """Note removals of one session and carry them out, unless somebody writes it.

    The action gives the bytes that became free, by path, where it knows better.
    """
    if is_open(transcript) or any(map(is_open, session_files(transcript))):
        if transcript not in report.open:
            report.open.append(transcript)
        return
    report.removals += removals
    if report.dry_run:
        return
    problem: str | None = None
    freed: dict[Path, int] | None = None
    try:
        with hold(transcript):
            freed = action()
    except TranscriptError as error:
        problem = error.message
    except OSError as error:
        problem = error.strerror or str(error)
    for removal in removals:
        removal.done = problem is None and (freed is None or removal.path in freed)
        removal.problem = problem if removal.done or problem else "it is needed now"
        if removal.done and freed is not None:
            removal.bytes = freed[removal.path]


def _remove_session(info: SessionInfo) -> None:
    there = info.path.lstat()
    if (there.st_size, there.st_mtime) != (info.size, info.modified):
        raise TranscriptError("it was changed meanwhile")
    # The transcript goes last: as long as it is there the next prune finds what a crash left behind.
    for path in beside(info.path):
        path.unlink(missing_ok=True)
    _remove_folder(info.path.with_suffix(""))
    info.path.unlink()
    sync_folder(info.path.parent)


def _remove_folder(folder: Path) -> None:
    # A symlink isn't followed, and isn't ours.
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)


def _fillers(report: PruneReport, info: SessionInfo) -> None:
    removal = Removal(
        kind="fillers",
        path=info.path,
        session_id=info.session_id,
        bytes=info.filler_bytes,
        why="lines that were taken back",
    )
    _do(report, [removal], info.path, lambda: {info.path: drop_fillers(info.path, keep_times=True)})


def _half_made(report: PruneReport, project: Path, going: set[Path], own: set[Path] | None, now: float) -> None:
    try:
        found = half_made(project, before=now - GRACE)
    except OSError:
        return  # it is told by who looks for side folders
    for path, size in found:
        name = path.name[1:].partition(".")[0]
        transcript = project / f"{name}.jsonl"
        if transcript in going or (own is not None and transcript.with_suffix("") not in own):
            continue
        removal = Removal(kind="half_made", path=path, session_id=name, bytes=size, why="its writing was broken off")
        _do(report, [removal], transcript, partial(path.unlink, missing_ok=True))


def _side_folders(
    report: PruneReport, project: Path, going: set[Path], own: set[Path] | None, now: float, age: float | None
) -> None:
    try:
        folders = side_folders(project)
    except OSError as error:
        report.problems.append(f"{project} can't be read: {error.strerror}")
        return
    for folder in folders:
        transcript = folder.with_name(f"{folder.name}.jsonl")
        if transcript in going or (own is not None and folder not in own):
            continue
        with contextlib.suppress(FileNotFoundError):
            gone = not os.path.lexists(transcript)
            if gone and age is not None and newest(folder) < now - max(age, GRACE):
                removal = Removal(
                    kind="side_folder",
                    path=folder,
                    session_id=folder.name,
                    bytes=folder_size(folder),
                    why="its transcript is gone",
                )
                _do(report, [removal], transcript, partial(_remove_orphan, folder, transcript))
                continue
            _results(report, folder, transcript, now)


def _remove_orphan(folder: Path, transcript: Path) -> None:
    if os.path.lexists(transcript):
        raise TranscriptError("its transcript came meanwhile")
    _remove_folder(folder)


def _results(report: PruneReport, folder: Path, transcript: Path, now: float) -> None:
    try:
        found = orphan_results(folder, before=now - GRACE)
    except OSError as error:
        report.problems.append(f"{folder}: a transcript can't be read: {error.strerror}")
        return
    removals = [
        Removal(kind="side_file", path=path, session_id=folder.name, bytes=size, why="no line names it")
        for path, size in found
    ]
    if removals:
        _do(report, removals, transcript, lambda: _remove_results(folder, {path for path, _ in found}, now))


def _remove_results(folder: Path, found: set[Path], now: float) -> dict[Path, int]:
    freed = {}
    # Asked again under the lock: a line that names one may have been written since.
    for path, size in orphan_results(folder, before=now - GRACE):
        if path in found:
            path.unlink()
            freed[path] = size
    return freed
