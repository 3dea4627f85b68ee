"""A transcript as a source of items, so that every operator and sink works on a session that was (WIRE.md §3)."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from turnstream.messages.errors import SourceError
from turnstream.messages.types import QueryItem, StreamNote
from turnstream.operators.batch import Batch, StreamKey
from turnstream.operators.stage import Operator, Stage, lift
from turnstream.sources.base import CHUNK_SIZE, Source

# What reads records comes with the transcript's sink: it is loaded when a transcript is.

__all__ = ["decode_transcript", "from_transcript"]

_AT_ONCE: Final = 100
"""Items a batch at most."""

# An item, the bytes it took, and whose it is.
_Told = tuple[Any, int, StreamKey | None]


def from_transcript(
    path: str | os.PathLike[str],
    *,
    gaps: float | None = None,
    chain: Literal["file", "resume"] = "file",
    leaf: str | None = None,
    name: str | None = None,
) -> Source[QueryItem]:
    """The items of a transcript, of recorded items (``replay --output items``) or of ``stream-json`` output.

    A message that was read keeps its line. A sub-agent's messages come in batches with a key of their own.

    Args:
        path: a regular file, opened when the run starts; for a pipe there is :func:`decode_transcript`.
        gaps: None gives everything at once and leaves arrival times unknown; a factor waits between items as long as
            their ``timestamp`` says (1 as recorded, 60 a minute in a second). What has none, or an earlier one
            than an item before it, comes with that.
        chain: ``file`` gives every record in the order of the file, one line in memory at a time: abandoned branches
            too, other records as :class:`OpaqueRecord`, bad lines as a note and their bytes. ``resume`` gives the
            conversation as :func:`resume` would go on with it, mended, all of it in memory, behind a note for each
            finding; a large file holds the loop while it is read.
        leaf: with ``resume``: the uuid of the message that the conversation ends with, default the newest.
        name: what reports call the source; default the path.

    Raises:
        ValueError: gaps that aren't above zero, a leaf without ``resume``.

    The run breaks with a ``SourceError`` where the file can't be read, with a ``TranscriptError`` where it doesn't hold
    ``leaf``.
    """
    if gaps is not None and not 0 < gaps < float("inf"):
        raise ValueError(f"gaps must be a factor above zero, not {gaps}")
    if chain not in ("file", "resume"):
        raise ValueError(f"chain is 'file' or 'resume', not {chain!r}")
    if leaf is not None and chain != "resume":
        raise ValueError("a leaf goes with chain='resume'")
    return _TranscriptSource(Path(path), gaps, chain, leaf, name)


def decode_transcript() -> Operator[bytes, Any]:
    """The bytes of a transcript (or of recorded items, or of ``stream-json`` output) become items.

    For what is no file: standard input, a pipe, a download. It needs no look ahead, so a live ``stream-json`` is
    shown as it comes. Sub-agents have no key of their own here.
    """

    def stage() -> Stage[bytes, Any]:
        from turnstream.sources.record_items import LineItems

        return LineItems()

    return lift(stage, "decode_transcript")


class _TranscriptSource(Source[Any]):
    def __init__(self, path: Path, gaps: float | None, chain: str, leaf: str | None, name: str | None) -> None:
        self._path = path
        self._gaps = gaps
        self._chain = chain
        self._leaf = leaf
        self.name = name if name is not None else str(path)

    def batches(self) -> Iterator[Batch[Any]] | AsyncIterator[Batch[Any]]:
        return self._ready() if self._gaps is None else self._paced(self._gaps)

    def _ready(self) -> Iterator[Batch[Any]]:
        with closing(self._told()) as told:
            for items, key, weight in _grouped(told):
                yield Batch(items, None, key, weight)

    async def _paced(self, factor: float) -> AsyncIterator[Batch[Any]]:
        from turnstream.sources.record_items import seconds_of

        loop = asyncio.get_running_loop()
        start = loop.time()
        first: float | None = None
        due = 0.0  # seconds after the start
        waiting: list[_Told] = []
        weight = 0
        with closing(self._told()) as told:
            for one in told:
                recorded = seconds_of(one[0])
                then = due
                if recorded is not None:
                    first = recorded if first is None else first
                    then = max(due, (recorded - first) / factor)
                if then > due or len(waiting) >= _AT_ONCE or weight > CHUNK_SIZE:
                    for batch in _stamped(waiting, loop.time()):
                        yield batch
                    waiting, weight, due = [], 0, then
                    await asyncio.sleep(max(0.0, start + due - loop.time()))
                waiting.append(one)
                weight += one[1]
            for batch in _stamped(waiting, loop.time()):
                yield batch

    def _told(self) -> Generator[_Told, None, None]:
        """All there is to tell."""
        return self._resumed() if self._chain == "resume" else self._records()

    def _records(self) -> Generator[_Told, None, None]:
        from turnstream.sinks.transcript.reading.records import read_records
        from turnstream.sources.record_items import items_of, key_of

        with _failing(self.name):
            for record in read_records(self._regular()):
                weight = record.size + record.ended
                for item in items_of(record):
                    yield item, weight, key_of(item)
                    weight = 0

    def _resumed(self) -> Generator[_Told, None, None]:
        from turnstream.sinks.transcript.reading.resume import resume
        from turnstream.sources.record_items import key_of

        with _failing(self.name):
            path = self._regular()
        resumed = resume(path, leaf=self._leaf)
        for finding in resumed.report.findings:
            yield StreamNote(kind=finding.kind, message=str(finding), byte_offset=finding.offset), 0, None
        for message in resumed.messages:
            yield message, 0, key_of(message)

    def _regular(self) -> Path:
        if not stat.S_ISREG(os.stat(self._path).st_mode):
            raise SourceError(
                "the transcript is no regular file",
                file=self.name,
                hint="read a pipe with from_file or from_stdin, and decode_transcript()",
            )
        return self._path


@contextmanager
def _failing(name: str) -> Iterator[None]:
    """An error of the system inside is a :class:`SourceError`."""
    try:
        yield
    except OSError as error:
        raise SourceError(
            f"can't read the transcript: {error.strerror}", file=name, hint="check the path and its permissions"
        ) from error


def _grouped(told: Iterable[_Told]) -> Iterator[tuple[Sequence[Any], StreamKey | None, int]]:
    """Neighbours of one key, at most :data:`CHUNK_SIZE` bytes of them unless a single one is larger."""
    items: list[Any] = []
    of: StreamKey | None = None
    total = 0
    for item, weight, key in told:
        if items and (key != of or total + weight > CHUNK_SIZE or len(items) >= _AT_ONCE):
            yield tuple(items), of, total
            items, total = [], 0
        items.append(item)
        of = key
        total += weight
    if items:
        yield tuple(items), of, total


def _stamped(told: list[_Told], at: float) -> Iterator[Batch[Any]]:
    return (Batch(items, at, key, weight) for items, key, weight in _grouped(told))
