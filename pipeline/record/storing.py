"""Where recordings go: a folder, written in a thread of its own; or a store of the caller's."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from turnstream.record.threads import DaemonThread

__all__ = ["DirectoryStore", "Store", "StoredFile"]

T = TypeVar("T")


class StoredFile(Protocol):
    """A file that is being written. A call may take long, fail or hang: that costs its recording only."""

    async def write(self, data: bytes) -> None:
        """Add ``data``."""
        ...

    async def commit(self) -> None:
        """It is complete: from now on readers see it."""
        ...

    async def discard(self) -> None:
        """Take it back."""
        ...


class Store(Protocol):
    """Makes files."""

    async def create(self, name: str) -> StoredFile:
        """A new file."""
        ...

    async def aclose(self) -> None:
        """Release everything; doesn't wait for what hangs."""
        ...


class DirectoryStore:
    """Files in a folder: ``NAME.part`` while they are written, 0600.

    Args:
        directory: the folder; made (0700) with its parents if it isn't there.

    Raises:
        OSError: it can't be made.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(os.path.abspath(directory))
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._thread = DaemonThread("turnstream-record")

    async def create(self, name: str) -> StoredFile:
        """A new file; there must be none of that name."""
        file = _File(self, self.directory / name)
        try:
            await self.run(file.create)
        except asyncio.CancelledError:
            self.submit(file.take_back)  # the thread may be at it
            raise
        return file

    async def run(self, job: Callable[..., T], *args: Any) -> T:
        """Have ``job`` done in the thread, behind those before it."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, job, *args)

    def submit(self, job: Callable[[], Any]) -> None:
        """Have ``job`` done some time."""
        self._thread.submit(job)

    async def aclose(self) -> None:
        """End the thread."""
        await self._thread.aclose()


def _part(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


class _File:
    def __init__(self, store: DirectoryStore, path: Path) -> None:
        self._store = store
        self._path = path
        self._fd = -1

    def create(self) -> None:
        if self._path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        self._fd = os.open(_part(self._path), flags, 0o600)

    async def write(self, data: bytes) -> None:
        await self._store.run(self._write, data)

    async def commit(self) -> None:
        await self._store.run(self._commit)

    async def discard(self) -> None:
        await self._store.run(self.take_back)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _commit(self) -> None:
        self._close()
        os.rename(_part(self._path), self._path)

    def take_back(self) -> None:
        """Close and remove it, if it was made."""
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):
            self._close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_part(self._path))
