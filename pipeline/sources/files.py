"""Sources that read files and standard input, at full speed or at the recorded pace."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import stat
import sys
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from turnstream.messages.errors import SourceError
from turnstream.operators.batch import Batch
from turnstream.sources.base import CHUNK_SIZE, Source

__all__ = ["from_file", "from_stdin"]

# Our recordings keep the time since the request in a comment before the event it belongs to.
_STAMP: Final = re.compile(rb"(?:\A|(?<=[\r\n])): ?turnstream at=([0-9]+(?:\.[0-9]+)?)(?=[\r\n])")
_LONGEST_STAMP: Final = 64
_GZIP: Final = b"\x1f\x8b"


class _FileSource(Source[bytes]):
    def __init__(self, path: Path, pace: float | None) -> None:
        self._path = path
        self._pace = pace
        self.name = str(path)

    def _open(self) -> BinaryIO:
        try:
            return open(self._path, "rb", buffering=0)
        except OSError as error:
            raise self._cannot_open(error) from error

    def _cannot_open(self, error: OSError) -> SourceError:
        return SourceError(
            f"can't open the recording: {error.strerror}", file=self.name, hint="check the path and its permissions"
        )

    def _chunks(self) -> Iterator[bytes]:
        with self._open() as file:
            chunk = self._read(file)
            if chunk.startswith(_GZIP):
                # By what it begins with: no recording does otherwise, whatever it is called.
                file.seek(0)
                yield from self._unpacked(file)
                return
            while chunk:
                yield chunk
                chunk = self._read(file)

    def _read(self, file: BinaryIO) -> bytes:
        try:
            return file.read(CHUNK_SIZE)
        except OSError as error:
            raise SourceError(f"can't read the recording: {error.strerror}", file=self.name) from error

    def _unpacked(self, file: BinaryIO) -> Iterator[bytes]:
        """What comes before a fault in the gzip data is given all the same."""
        with gzip.GzipFile(fileobj=file) as packed:
            while True:
                try:
                    # A piece at a time, so that a fault takes nothing with it that was read before.
                    chunk = packed.read1(CHUNK_SIZE)
                except EOFError:
                    raise SourceError("the recording's gzip data is cut off", file=self.name) from None
                except (gzip.BadGzipFile, zlib.error) as error:
                    raise SourceError(f"the recording's gzip data is broken: {error}", file=self.name) from error
                except OSError as error:
                    raise SourceError(f"can't read the recording: {error.strerror}", file=self.name) from error
                if not chunk:
                    return
                yield chunk

    def batches(self) -> Iterator[Batch[bytes]] | AsyncIterator[Batch[bytes]]:
        if self._is_pipe():
            return self._live()
        if self._pace is None:
            return (Batch((chunk,), None, None, len(chunk)) for chunk in self._chunks())
        return self._paced(self._pace)

    def _is_pipe(self) -> bool:
        """Whether it is a named pipe (a shell's ``<(command)``): live, so its times are its own."""
        try:
            return stat.S_ISFIFO(os.stat(self._path).st_mode)
        except OSError:
            return False  # opening says why

    async def _live(self) -> AsyncIterator[Batch[bytes]]:
        # Opened without waiting for a writer: that is waited for on the loop, which an abort can end.
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            raise self._cannot_open(error) from error
        stream = _read_live(fd, self.name, "the recording")
        try:
            async for batch in stream:
                yield batch
        finally:
            await stream.aclose()
            os.close(fd)

    async def _paced(self, factor: float) -> AsyncIterator[Batch[bytes]]:
        loop = asyncio.get_running_loop()
        start = loop.time()
        for due, piece in _timed(self._chunks()):
            if due is not None:
                delay = start + due / factor - loop.time()
                if delay > 0:
                    await asyncio.sleep(delay)
            yield Batch((piece,), loop.time(), None, len(piece))


def _timed(chunks: Iterator[bytes]) -> Iterator[tuple[float | None, bytes]]:
    """The bytes cut before each time stamp, with the stamp's seconds (None before the first)."""
    rest = b""
    due: float | None = None
    line_starts = True  # whether what is left of the data begins a line
    for chunk in chunks:
        data = rest + chunk
        start = 0
        for match in _STAMP.finditer(data):
            at = match.start()
            if at == 0 and not line_starts:
                continue
            if at > start:
                yield due, data[start:at]
            start = at
            due = float(match.group(1))
        # A stamp may be cut by the chunk's end; what precedes the tail can go.
        keep = max(start, len(data) - _LONGEST_STAMP)
        if keep > start:
            yield due, data[start:keep]
        if keep:
            line_starts = data[keep - 1] in b"\r\n"
        rest = data[keep:]
    # All stamps in it were seen: one that the chunk's end cuts off isn't one.
    if rest:
        yield due, rest


def from_file(path: str | os.PathLike[str], *, pace: float | None = None) -> Source[bytes]:
    """A recording on disk: plain SSE, NDJSON of payloads (also in wrappers), one JSON message, AWS frames; also gzipped.

    A named pipe is a live source, like standard input, at whatever pace.

    Args:
        path: the file; opened when the run starts.
        pace: None reads at full speed and leaves arrival times unknown; a factor plays the recorded
            times (1 as recorded, 2 twice as fast), for recordings that hold them.

    Raises:
        ValueError: a pace that isn't above zero.
    """
    if pace is not None and not pace > 0:
        raise ValueError(f"pace must be above zero, not {pace}")
    return _FileSource(Path(path), pace)


class _StdinSource(Source[bytes]):
    name = "stdin"

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    async def batches(self) -> AsyncIterator[Batch[bytes]]:
        try:
            fd = sys.stdin.fileno() if self._fd is None else self._fd
            os.fstat(fd)
        except (OSError, ValueError, AttributeError) as error:  # closed, replaced by an object, None
            why = getattr(error, "strerror", None) or "it is closed"
            raise SourceError(f"can't read standard input: {why}", file=self.name) from error
        stream = _read_live(fd, self.name, "standard input")
        try:
            async for batch in stream:
                yield batch
        finally:
            await stream.aclose()


async def _read_live(fd: int, name: str, what: str) -> AsyncGenerator[Batch[bytes], None]:
    """What comes from a descriptor, read when it is there, so that the loop never waits for it."""
    loop = asyncio.get_running_loop()
    pollable = not stat.S_ISREG(os.fstat(fd).st_mode)
    while True:
        if pollable:
            try:
                await _readable(loop, fd)
            except OSError:
                # /dev/null and the like never make one wait, so no selector takes them; if it is
                # something worse, reading says so.
                pollable = False
        else:
            await asyncio.sleep(0)  # the loop gets its turn, whatever the bytes cause
        try:
            chunk = os.read(fd, CHUNK_SIZE)
        except BlockingIOError:
            continue  # somebody else who shares the pipe was faster
        except OSError as error:
            raise SourceError(f"can't read {what}: {error.strerror}", file=name) from error
        if not chunk:
            return
        # A redirected file has no arrival times; a pipe is live.
        yield Batch((chunk,), loop.time() if pollable else None, None, len(chunk))


async def _readable(loop: asyncio.AbstractEventLoop, fd: int) -> None:
    """Wait until ``fd`` can be read without blocking (it stays in blocking mode: others may share it)."""
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(fd, wake)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


def from_stdin(fd: int | None = None) -> Source[bytes]:
    """Standard input: a pipe is a live source with arrival times, a redirected file is not."""
    return _StdinSource(fd)
