"""Recorded streams as the replay server holds them: their own bytes, cut where an event ends.

An event stream is kept verbatim, comments, blank lines and all: the pieces of :class:`Recording` joined are the
file. What is recorded without frames (NDJSON, one JSON message) gets the frames that the API would have sent.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from turnstream.messages.errors import SourceError
from turnstream.messages.jsonvalue import JSONValueError, loads
from turnstream.operators.decode import decode
from turnstream.operators.frames import ServerSentEvent
from turnstream.operators.lines import find_border, read_block, skip_blank_lines
from turnstream.operators.stage import run_stages

__all__ = ["Piece", "Recording", "read_recordings"]

_BOM: Final = b"\xef\xbb\xbf"
_GZIP: Final = b"\x1f\x8b"
_SUFFIXES: Final = (".sse", ".ndjson", ".sse.gz", ".ndjson.gz")


class Piece(msgspec.Struct, frozen=True, gc=False):
    """The bytes of one event, with the comments and blank lines before it.

    Attributes:
        raw: the bytes, verbatim.
        data: the event's payload; None for what is left behind the last event (comments, blank lines).
        due: seconds since the request when it came, None where the recording doesn't say.
    """

    raw: bytes
    data: bytes | None = None
    due: float | None = None

    @property
    def payload(self) -> dict[str, Any]:
        """The payload as an object; empty if it is none."""
        try:
            value = loads(self.data or b"")
        except JSONValueError:
            return {}
        return value if isinstance(value, dict) else {}


class Recording:
    """One recorded stream in memory.

    Args:
        data: an event stream, NDJSON of payloads (also in wrappers) or one JSON message; also gzipped.
        name: what requests ask for and logs say.

    Attributes:
        name: as given; requests may leave its suffixes away.
        raw: the event stream that is served.

    Raises:
        SourceError: the bytes are no such recording (broken gzip, AWS frames).
    """

    def __init__(self, data: bytes, name: str = "recording") -> None:
        self.name = name
        if data.startswith(_GZIP):
            try:
                data = gzip.decompress(data)
            except (OSError, EOFError, zlib.error) as error:
                raise SourceError(f"broken gzip: {error}", file=name) from error
        if data.startswith(b"\0"):
            raise SourceError(
                "AWS frames can't be served", file=name, hint="`turnstream serve` speaks the API's event stream"
            )
        self.raw = data if not data.removeprefix(_BOM).lstrip().startswith(b"{") else _framed(data)

    def __repr__(self) -> str:
        return f"<Recording {self.name}, {len(self.raw)} bytes>"

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The stream cut behind each event; joined they are :attr:`raw`."""
        return tuple(_pieces(self.raw))

    @cached_property
    def events(self) -> tuple[Piece, ...]:
        """The pieces that are events, in order."""
        return tuple(piece for piece in self.pieces if piece.data is not None)

    @property
    def names(self) -> Iterator[str]:
        """What it may be called: its name, that without folders, and without suffixes."""
        yield self.name
        base = re.split(r"[/\\]", self.name)[-1]
        yield base
        bare = base.removesuffix(".gz")
        yield bare
        yield bare.rpartition(".")[0] or bare


def _framed(data: bytes) -> bytes:
    """The events of a recording that has no frames, as the API would have sent them."""
    out: list[bytes] = []
    for event in run_stages([data], decode()):
        if isinstance(event, ServerSentEvent):
            kind = event.event or Piece(b"", event.data).payload.get("type")
            if isinstance(kind, str) and kind.isprintable():
                out.append(b"event: %s\n" % kind.encode("utf-8", "replace"))
            out.append(b"".join(b"data: %s\n" % line for line in re.split(rb"\r\n|\r|\n", event.data)) + b"\n")
    return b"".join(out)


def _pieces(data: bytes) -> Iterator[Piece]:
    """Cut behind the blank line that ends each event; what has no payload goes with the next one."""
    has_cr = b"\r" in data
    start = 0  # of the piece
    at = len(_BOM) if data.startswith(_BOM) else 0  # where the search goes on
    due: float | None = None
    while at < len(data):
        begin = skip_blank_lines(data, at)
        border = find_border(data, begin, has_cr) if begin < len(data) else None
        end = border[1] if border else len(data)
        block = read_block(data[begin:end])
        if block.recorded_at is not None:
            due = block.recorded_at
        if block.data is not None:
            yield Piece(data[start:end], block.data, due)
            start, due = end, None
        at = end
    if start < len(data):
        yield Piece(data[start:], None, due)


def _files(path: Path) -> Iterable[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(each for each in path.iterdir() if each.name.endswith(_SUFFIXES) and each.is_file())
    if not found:
        raise SourceError(f"holds no recording ({', '.join(_SUFFIXES)})", file=str(path))
    return found


def read_recordings(sources: Iterable[str | os.PathLike[str] | bytes | Recording]) -> Sequence[Recording]:
    """Read what shall be served, at once and whole.

    Args:
        sources: files, folders (their ``.sse`` and ``.ndjson`` files, also ``.gz``, by name), bytes, or recordings.

    Raises:
        SourceError: a file can't be read, or holds nothing that can be served.
        ValueError: there is no source at all.
    """
    out: list[Recording] = []
    for source in sources:
        if isinstance(source, Recording):
            out.append(source)
        elif isinstance(source, bytes):
            out.append(Recording(source, f"recording-{len(out) + 1}"))
        else:
            try:
                out.extend(Recording(file.read_bytes(), str(file)) for file in _files(Path(source)))
            except OSError as error:
                raise SourceError(f"can't read the recording: {error.strerror}", file=str(source)) from error
    if not out:
        raise ValueError("there is no recording to serve")
    return out
