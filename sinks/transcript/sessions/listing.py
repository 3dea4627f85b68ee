"""The sessions below a root (WIRE.md §3): which there are, and one by its name."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, Literal, NamedTuple

import msgspec

from turnstream.messages.errors import TranscriptError
from turnstream.sinks.transcript.layout import is_session_id, project_slug
from turnstream.sinks.transcript.lockfile import SessionLock
from turnstream.sinks.transcript.sessions.cache import Cache, Stamp
from turnstream.sinks.transcript.sessions.digest import digest
from turnstream.sinks.transcript.sessions.info import Digest, Problem, SessionInfo
from turnstream.sinks.transcript.sessions.places import default_index

__all__ = ["find_session", "list_sessions", "open_transcript", "project_folders"]

_SUFFIX: Final = ".jsonl"
_READ: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
# An open session's file may change within one tick of the clock that stamps it, and keep its size.
_SETTLED_NS: Final = 2_000_000_000
_CUT: Final = 200

_Report = Callable[[str], None]


class _File(NamedTuple):
    """A session's file as the folder has it."""

    path: Path
    project: str
    key: str
    there: os.stat_result
    has_folder: bool


def list_sessions(
    root: str | os.PathLike[str],
    *,
    project: str | os.PathLike[str] | None = None,
    index: str | os.PathLike[str] | Literal[False] | None = None,
    report: Callable[[str], None] | None = None,
) -> list[SessionInfo]:
    """The sessions below ``root``, the last active first; nothing below it is changed.

    A session is a regular file ``projects/<folder>/<uuid>.jsonl`` that holds a record of a conversation which isn't
    only a sub-agent's. Symlinks aren't followed. A file that is as it was at the last listing (size, time of change,
    inode) isn't opened again. One that can't be read is listed with its problem.

    Args:
        root: the folder that holds ``projects``; there may be none.
        project: only the sessions of this working folder, by the ``cwd`` in their lines.
        index: the cache's file; None is its usual place (:func:`default_index`), False does without.
        report: is told of each folder that can't be read.

    Raises:
        TranscriptError: ``projects`` can't be read or is a symlink.
    """
    base = Path(root)
    cache = Cache(None if index is False else Path(index) if index is not None else default_index(base), base)
    wanted = None if project is None else _spellings(project)
    folders = project_folders(base, report=report)
    if wanted is not None:
        folders = [folder for folder in folders if any(_may_be_of(folder.name, cwd) for cwd in wanted)]
    found: list[SessionInfo] = []
    seen: set[str] = set()
    for folder in folders:
        files = list(_session_files(folder, report or _nobody))
        paths = {file.key for file in files}
        seen |= paths
        if wanted is not None:
            cache.keep_only(folder.name, paths)
        for file in files:
            info = _info(file, cache)
            if info is not None and (wanted is None or info.cwd is None or info.cwd in wanted):
                found.append(info)
    if wanted is None:
        cache.keep_only("", seen)
    cache.save()
    found.sort(key=lambda info: (-info.active_at, info.project, info.session_id))
    return found


def find_session(root: str | os.PathLike[str], name: str) -> Path:
    """The file of the session whose uuid is, or begins with, ``name``; no file is opened.

    Raises:
        TranscriptError: there is none, or more than one.
    """
    wanted = name.lower()
    found = [
        file.path
        for folder in project_folders(root)
        for file in _session_files(folder, _nobody)
        if file.path.name.lower().startswith(wanted)
    ]
    found = [path for path in found if path.stem.lower() == wanted] or found
    if not wanted or wanted.strip("0123456789abcdef-"):
        found = []
    if len(found) == 1:
        return found[0]
    if not found:
        raise TranscriptError(
            f"no session {name!r} below {os.fspath(root)}", hint="`turnstream sessions` lists what there is"
        )
    raise TranscriptError(
        f"{name!r} is the beginning of {len(found)} sessions",
        hint="; ".join(str(path) for path in sorted(found)[:3]) + ("; …" if len(found) > 3 else ""),
    )


def project_folders(root: str | os.PathLike[str], *, report: Callable[[str], None] | None = None) -> list[Path]:
    """The folders of projects below ``root``, in order; empty if there is no ``projects``.

    Raises:
        TranscriptError: ``projects`` can't be read or is a symlink.
    """
    projects = Path(root) / "projects"
    try:
        if projects.is_symlink():
            raise TranscriptError("it is a symlink, which is never followed", file=str(projects))
        with os.scandir(projects) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise TranscriptError(f"it can't be read: {error.strerror}", file=str(projects)) from error
    return [projects / name for name in names]


def open_transcript(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a transcript for reading; a symlink isn't followed, what is no regular file isn't opened.

    Raises:
        OSError: it can't be opened.
    """
    fd = os.open(path, _READ)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(0, "it is no regular file")
    return open(fd, "rb", buffering=1 << 18)


def _session_files(folder: Path, report: _Report) -> Iterator[_File]:
    names: list[str] = []
    folders: set[str] = set()
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.add(entry.name)
                elif entry.name.endswith(_SUFFIX) and is_session_id(entry.name.removesuffix(_SUFFIX)):
                    names.append(entry.name)
    except OSError as error:
        report(f"{folder} can't be read: {error.strerror}")
        return
    for name in sorted(names):
        path = folder / name
        try:
            there = path.lstat()
        except OSError:
            continue  # it went away meanwhile
        if stat.S_ISREG(there.st_mode):
            has_folder = name.removesuffix(_SUFFIX) in folders
            yield _File(path, folder.name, f"{folder.name}/{name}", there, has_folder)


def _info(file: _File, cache: Cache) -> SessionInfo | None:
    there = file.there
    known, found = cache.get(file.key, Stamp.of(there))
    if not known:
        try:
            there, found = _read(file, cache)
        except OSError as error:
            cache.forget(file.key)
            found = Digest(problems=[Problem(0, 0, f"it can't be read: {error.strerror or error}")])
    if found is None:
        return None
    return SessionInfo(
        session_id=file.path.stem,
        path=file.path,
        project=file.project,
        subagents=_subagents(file.path.with_suffix("")) if file.has_folder else 0,
        size=there.st_size,
        modified=there.st_mtime,
        **{name: getattr(found, name) for name in _DIGEST},
    )


_DIGEST: Final = tuple(field.name for field in msgspec.structs.fields(Digest))


def _read(file: _File, cache: Cache) -> tuple[os.stat_result, Digest | None]:
    now = time.time_ns()
    with open_transcript(file.path) as stream:
        there = os.fstat(stream.fileno())
        found = digest(stream, project=file.project)
    if there.st_mtime_ns > now - _SETTLED_NS and SessionLock(file.path).path.exists():
        cache.forget(file.key)
    else:
        cache.put(file.key, Stamp.of(there), found)
    return there, found


def _subagents(folder: Path) -> int:
    try:
        with os.scandir(folder / "subagents") as entries:
            return sum(
                entry.name.startswith("agent-")
                and entry.name.endswith(_SUFFIX)
                and entry.is_file(follow_symlinks=False)
                for entry in entries
            )
    except OSError:
        return 0


def _spellings(project: str | os.PathLike[str]) -> set[str]:
    """How the working folder may be called in the lines."""
    text = os.fspath(project)
    return {text, os.path.abspath(text), os.path.realpath(text)}


def _may_be_of(folder: str, cwd: str) -> bool:
    """Whether a project's folder is that of a working folder: of long names the end is a hash, which writers differ in."""
    slug = project_slug(cwd)
    return folder == slug or (len(slug) > _CUT and folder.startswith(slug[: _CUT + 1]))


def _nobody(problem: str) -> None:
    pass
