"""Our sessions behind the session-store interface of claude-agent-sdk (``SessionStore``), which this doesn't import.

The SDK mirrors a session's lines to such a store, resumes from it and lists what it holds. Here that is our layout
(WIRE.md §3): ``<root>/projects/<project key>/<session id>.jsonl``, sub-agents in ``<session id>/<subpath>.jsonl``. So
the SDK also lists and resumes what a :class:`TranscriptSink` wrote below the same root.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote

import msgspec

from turnstream.messages.errors import TranscriptError
from turnstream.messages.jsonvalue import dumps
from turnstream.sinks.transcript.lockfile import SessionLock
from turnstream.sinks.transcript.reading.records import read_records

__all__ = ["SessionStoreAdapter"]

T = TypeVar("T")

_SUFFIX: Final = ".jsonl"
_SAFE: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
# File systems allow 255 bytes a name; the suffix, and the lock file's dot and suffix, come to it.
_LONGEST: Final = 240
# Sessions of which is remembered what they hold.
_REMEMBERED: Final = 256

# The one place where bytes leave; tests put a faulty device here.
_write = os.write


class _Held(msgspec.Struct):
    """What is known of a file: ``size`` bytes of it were read."""

    inode: int
    size: int = 0
    uuids: set[str] = msgspec.field(default_factory=set)
    summary: Any = None
    summed: int = 0


class SessionStoreAdapter:
    """A store of sessions for ``ClaudeAgentOptions(session_store=…)`` and the SDK's ``…_from_store`` functions.

    Ids that aren't fit for a file name are percent-encoded, so any id works and none leaves the root. Entries are
    kept as they come; one whose ``uuid`` the file holds is not written again. Calls for one session are carried out in
    the order they were made in; several processes may share a root (each append takes the session's lock).

    Args:
        root: the folder that holds ``projects``; it is made when needed (folders 0700, files 0600).
        patience: seconds to wait for another writer's lock.
    """

    def __init__(self, root: str | os.PathLike[str], *, patience: float = 5.0) -> None:
        self._projects = Path(os.path.abspath(root)) / "projects"
        self._patience = patience
        self._held: dict[Path, _Held] = {}
        self._turns: dict[Path, asyncio.Lock] = {}

    # -- the interface -----------------------------------------------------------------------------------

    async def append(self, key: Mapping[str, object], entries: Sequence[Mapping[str, object]]) -> None:
        """Write entries behind what the session holds, in order, all or none.

        Args:
            key: ``project_key``, ``session_id`` and for a sub-agent ``subpath``.
            entries: JSON objects.

        Raises:
            TranscriptError: an id that can't be a name, another writer has the session, a symlink, or the device
                failed (nothing of it is in the file then).
        """
        path = self._path(key)
        if entries:
            await self._in_turn(path, lambda: self._append(path, entries))

    async def load(self, key: Mapping[str, object]) -> list[Any] | None:
        """All entries of a session in order; None if there is no such session.

        Lines that can't be read, fillers and what a tombstone took back are left out.

        Raises:
            TranscriptError: it can't be read.
        """
        path = self._path(key)
        return await self._in_turn(path, lambda: _load(path))

    async def list_sessions(self, project_key: str) -> list[Any]:
        """``{"session_id", "mtime"}`` of a project's sessions; ``mtime`` in milliseconds since 1970."""
        folder = self._projects / _name(project_key, "project key")
        return await asyncio.to_thread(
            lambda: [{"session_id": ident, "mtime": _milliseconds(there)} for ident, _, there in _sessions(folder)]
        )

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        """What the SDK's ``fold_session_summary`` makes of each session; only what was added is read again.

        Raises:
            ImportError: claude-agent-sdk isn't installed.
        """
        fold = importlib.import_module("claude_agent_sdk").fold_session_summary
        folder = self._projects / _name(project_key, "project key")
        found = await asyncio.to_thread(lambda: list(_sessions(folder)))
        out = []
        for ident, path, _ in found:
            key = {"project_key": project_key, "session_id": ident}
            summary = await self._in_turn(path, lambda p=path, k=key: self._summary(p, k, fold))  # type: ignore[misc]
            if summary is not None:
                out.append(summary)
        return out

    async def delete(self, key: Mapping[str, object]) -> None:
        """Delete a session with its sub-agents and side files, or with a ``subpath`` that sub-agent only."""
        path = self._path(key)
        folder = None if key.get("subpath") is not None else path.with_suffix("")
        await self._in_turn(path, lambda: self._delete(path, folder))

    async def list_subkeys(self, key: Mapping[str, object]) -> list[str]:
        """The ``subpath`` of each sub-agent of a session."""
        folder = self._path({**key, "subpath": None}).with_suffix("")
        return await asyncio.to_thread(lambda: sorted(_subkeys(folder)))

    # -- in a thread -------------------------------------------------------------------------------------

    def _append(self, path: Path, entries: Sequence[Mapping[str, object]]) -> None:
        try:
            self._make_folders(path)
            with self._locked(path):
                fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | _SAFE, 0o600)
                try:
                    held = self._catch_up(path, fd)
                    new: list[Mapping[str, object]] = []
                    fresh: set[str] = set()
                    for entry in entries:
                        uuid = entry.get("uuid")
                        if isinstance(uuid, str) and uuid:
                            if uuid in held.uuids or uuid in fresh:
                                continue
                            fresh.add(uuid)
                        new.append(entry)
                    if new:
                        held.size = _add(fd, b"".join(dumps(dict(entry)) + b"\n" for entry in new))
                        held.uuids |= fresh
                finally:
                    os.close(fd)
        except OSError as error:
            raise _error(path, "can't be written", error) from error

    def _catch_up(self, path: Path, fd: int) -> _Held:
        """What the file holds now; only what was added since is read."""
        there = os.fstat(fd)
        if not stat.S_ISREG(there.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        held = self._remembered(path, there)
        if held.size < there.st_size:
            with open(os.dup(fd), "rb") as file:
                file.seek(held.size)
                held.uuids.update(r.uuid for r in read_records(file, start=held.size) if r.uuid is not None)
            held.size = there.st_size
        return held

    def _remembered(self, path: Path, there: os.stat_result) -> _Held:
        held = self._held.pop(path, None)
        if held is None or held.inode != there.st_ino or max(held.size, held.summed) > there.st_size:
            held = _Held(there.st_ino)
        self._held[path] = held
        while len(self._held) > _REMEMBERED:
            del self._held[next(iter(self._held))]
        return held

    def _summary(self, path: Path, key: Mapping[str, object], fold: Callable[..., Any]) -> Any:
        try:
            with _opened(path) as file:
                there = os.fstat(file.fileno())
                held = self._remembered(path, there)
                if held.summed < there.st_size or held.summary is None:
                    file.seek(held.summed)
                    entries = [r.value for r in read_records(file, start=held.summed) if r.value and not r.is_filler]
                    held.summary = fold(held.summary, key, entries)
                    held.summed = there.st_size
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _error(path, "can't be read", error) from error
        held.summary["mtime"] = _milliseconds(there)
        return {**held.summary, "data": dict(held.summary["data"])}

    def _delete(self, path: Path, folder: Path | None) -> None:
        try:
            if path.exists() or path.is_symlink():
                with self._locked(path):
                    path.unlink(missing_ok=True)
            if folder is not None and folder.is_dir() and not folder.is_symlink():
                shutil.rmtree(folder)
        except OSError as error:
            raise _error(path, "can't be deleted", error) from error
        self._held.pop(path, None)

    @contextlib.contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        lock = SessionLock(path)
        until = time.monotonic() + self._patience
        while True:
            try:
                lock.acquire()
                break
            except TranscriptError:
                if time.monotonic() >= until:
                    raise
                time.sleep(0.01)
        try:
            yield
        finally:
            lock.release()

    def _make_folders(self, path: Path) -> None:
        folders = [path.parent, *path.parent.parents]
        for folder in reversed(folders):
            # pathlib's own `parents` wouldn't be private.
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)

    def _check(self, path: Path) -> Path:
        """A link below the root leads out of it."""
        for folder in path.parents:
            if folder == self._projects.parent:
                break
            if folder.is_symlink():
                raise TranscriptError("the session's folder is a symlink, which is never followed", file=str(folder))
        return path

    # -- names and turns ---------------------------------------------------------------------------------

    def _path(self, key: Mapping[str, object]) -> Path:
        session = self._projects / _name(key["project_key"], "project key") / _name(key["session_id"], "session id")
        subpath = key.get("subpath")
        if subpath is not None:
            for part in str(subpath).split("/"):
                session /= _name(part, "subpath")
        return self._check(session.with_name(session.name + _SUFFIX))

    async def _in_turn(self, path: Path, work: Callable[[], T]) -> T:
        turn = self._turns.setdefault(path, asyncio.Lock())
        try:
            async with turn:
                # A cancelled caller must not let the next one start while this one still writes.
                task = asyncio.ensure_future(asyncio.to_thread(work))
                try:
                    return await asyncio.shield(task)
                except asyncio.CancelledError:
                    await asyncio.wait([task])
                    raise
        finally:
            if not turn.locked():
                self._turns.pop(path, None)


def _name(text: object, what: str) -> str:
    """``text`` as the name of a file or folder, from which :func:`_ident` makes it again."""
    if not isinstance(text, str) or not text:
        raise TranscriptError(f"{what} {text!r} can't name a file")
    name = quote(text, safe="-_.~@+= ", errors="surrogatepass")
    if name.startswith("."):  # the folder itself, the one above, hidden files, locks
        name = "%2E" + name[1:]
    if len(name) > _LONGEST:
        raise TranscriptError(f"{what} {text[:40]!r}… is too long to name a file")
    return name


def _ident(name: str) -> str:
    return unquote(name, errors="surrogatepass")


def _sessions(folder: Path) -> Iterator[tuple[str, Path, os.stat_result]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(_SUFFIX) and entry.name[0] != "." and entry.is_file(follow_symlinks=False):
                    with contextlib.suppress(FileNotFoundError):
                        there = entry.stat(follow_symlinks=False)
                        if there.st_size:
                            yield _ident(entry.name.removesuffix(_SUFFIX)), folder / entry.name, there
    except (FileNotFoundError, NotADirectoryError):
        return


def _subkeys(folder: Path, above: str = "") -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name[0] == ".":
                    continue
                if entry.is_dir(follow_symlinks=False):
                    yield from _subkeys(folder / entry.name, f"{above}{_ident(entry.name)}/")
                elif entry.name.endswith(_SUFFIX) and entry.is_file(follow_symlinks=False):
                    yield above + _ident(entry.name.removesuffix(_SUFFIX))
    except (FileNotFoundError, NotADirectoryError):
        return


def _milliseconds(there: os.stat_result) -> int:
    return there.st_mtime_ns // 1_000_000


def _opened(path: Path) -> Any:
    fd = os.open(path, os.O_RDONLY | _SAFE)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no regular file")
    return open(fd, "rb")


def _load(path: Path) -> list[Any] | None:
    try:
        with _opened(path) as file:
            values = [r.value for r in read_records(file) if r.value is not None and not r.is_filler]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _error(path, "can't be read", error) from error
    gone = {value.get("targetUuid") for value in values if value.get("type") == "tombstone"}
    if gone:
        values = [
            v for v in values if v.get("type") != "tombstone" and (v.get("uuid") is None or v["uuid"] not in gone)
        ]
    return values or None


def _add(fd: int, data: bytes) -> int:
    """Append whole lines, all or none; returns the file's size then."""
    start = os.fstat(fd).st_size
    if start and os.pread(fd, 1, start - 1) != b"\n":
        data = b"\n" + data  # a line that a crash tore stays a line of its own
    done = 0
    try:
        while done < len(data):
            count = _write(fd, memoryview(data)[done:])
            if count == 0:
                raise OSError(errno.EIO, "the device takes nothing")
            done += count
    except OSError:
        if done:
            os.ftruncate(fd, start)
        raise
    return start + len(data)


def _error(path: Path, what: str, error: OSError) -> TranscriptError:
    return TranscriptError(f"the session {what}: {error.strerror or error}", file=str(path))
