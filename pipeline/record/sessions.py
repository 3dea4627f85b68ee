"""One transcript for each session of a client."""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from turnstream.messages.errors import TurnstreamError
from turnstream.messages.ids import NAMESPACE
from turnstream.record.threads import DaemonThread
from turnstream.sinks.transcript import TranscriptSink
from turnstream.sinks.transcript.layout import is_session_id

__all__ = ["Transcripts"]

_MOST_OPEN: Final = 64


class Transcripts:
    """Gives each session's messages to its transcript, an answer at a time.

    Args:
        directory: where the files go: ``<session id>.jsonl``. The id is the client's key if that is a uuid, else
            derived from it; without a key there is one session for the run.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._run = str(uuid.uuid4())
        self._open: OrderedDict[str, TranscriptSink] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._thread = DaemonThread("turnstream-record-transcripts")
        self.errors = 0

    def path(self, key: str | None) -> Path:
        """The file of a session."""
        return self._directory / f"{self._session(key)}.jsonl"

    def _session(self, key: str | None) -> str:
        if key is None:
            return self._run
        return key.lower() if is_session_id(key.lower()) else str(uuid.uuid5(NAMESPACE, f"record session\n{key}"))

    async def take(self, key: str | None, items: Sequence[Any]) -> bool:
        """The items of one whole answer, events left out or not; False: there is no room for them.

        Raises:
            TranscriptError: the file can't be opened or written.
        """
        if self._waiting >= _MOST_OPEN:
            return False
        self._waiting += 1
        try:
            # One after the other: answers of a session keep their order.
            async with self._lock:
                sink = await self._sink(self._session(key))
        finally:
            self._waiting -= 1
        if sink.full():
            return False
        sink.on_next(items)
        return True

    async def _sink(self, session: str) -> TranscriptSink:
        sink = self._open.pop(session, None)
        if sink is None:
            path = self._directory / f"{session}.jsonl"
            # In a thread: a device that hangs must not hold the loop, on which the clients' streams are.
            loop = asyncio.get_running_loop()
            sink = await loop.run_in_executor(self._thread, _opened, path, session)
            if len(self._open) >= _MOST_OPEN:
                self._close(self._open.popitem(last=False)[1])
        self._open[session] = sink
        return sink

    def _close(self, sink: TranscriptSink) -> None:
        task = asyncio.create_task(self._closed(sink), name="turnstream.record: transcript")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _closed(self, sink: TranscriptSink) -> None:
        try:
            await sink.aclose()
        except (TurnstreamError, OSError):
            self.errors += 1

    async def aclose(self, budget: float) -> int:
        """Write what is queued, close all files.

        Args:
            budget: seconds that this may take.

        Returns:
            How many transcripts have lost something.
        """
        while self._open:
            self._close(self._open.popitem()[1])
        if self._closing:
            _, late = await asyncio.wait(self._closing, timeout=budget)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
            self.errors += len(late)
        await self._thread.aclose()
        return self.errors


def _opened(path: Path, session: str) -> TranscriptSink:
    sink = TranscriptSink(path, session_id=session, append=True)
    sink.open()
    return sink
