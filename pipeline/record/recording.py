"""All that is recorded: makes a recorder for an answer, knows what is still open, ends it within a budget."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from turnstream.messages.jsonvalue import dumps
from turnstream.record.counting import Counts
from turnstream.record.exchange import Exchange
from turnstream.record.recorder import Recorder
from turnstream.record.secrets import HIDDEN, Masker, secrets_of, without_tokens
from turnstream.record.sessions import Transcripts
from turnstream.record.storing import DirectoryStore, Store
from turnstream.record.writing import Allowance, RecordingWriter
from turnstream.serve.served import without_secrets
from turnstream.sinks.metrics import MetricsSink

__all__ = ["Body", "Recording"]

_MB: Final = 1 << 20
_LARGEST: Final = 256 * _MB
_LARGEST_BODY: Final = 32 * _MB  # the API's own limit
# Between a client's stream and its recorder: it empties them whenever the loop has time.
_QUEUE: Final = 4 * _MB
_ALL_QUEUES: Final = 64 * _MB
_KEPT_ANSWERS: Final = 100
# Recorders and recordings that are open; over that, something has been hanging for long.
_MOST_OPEN: Final = 10_000


class Body:
    """A request's body while it passes, where bodies are kept: at most 32 MB each."""

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._parts: list[bytes] = []
        self._held = 0
        self.large = False

    def take(self, data: bytes) -> None:
        """A chunk passes."""
        if self.large:
            return
        if self._allowance.take(self._held, len(data)):
            self._held += len(data)
            self._parts.append(data)
        else:
            self.release()
            self.large = True

    def bytes(self) -> bytes:
        """What has passed."""
        return b"".join(self._parts)

    def release(self) -> None:
        """Let go of it."""
        self._allowance.give(self._held)
        self._held = 0
        self._parts.clear()


class Recording:
    """The recorder's side of a proxy.

    Args:
        directory: for recordings, and transcripts below it; None with ``store`` and without transcripts.
        store: where recordings go instead.
        bodies: whether requests are kept, too.
        transcripts: whether transcripts are written.
        buffer: bytes that one recording may have in memory; four times as much all together.

    Raises:
        OSError: the directory can't be made.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None,
        store: Store | None,
        *,
        bodies: bool,
        transcripts: bool,
        buffer: int,
    ) -> None:
        self.counts = Counts()
        self.metrics = MetricsSink(keep_answers=_KEPT_ANSWERS)
        self.bodies = bodies
        self._store: Store | None = store
        if store is None and directory is not None:
            self._store = DirectoryStore(directory)
        self._transcripts: Transcripts | None = None
        if transcripts and directory is not None:
            self._transcripts = Transcripts(Path(directory) / "transcripts")
        self._queues = Allowance(_ALL_QUEUES, _QUEUE)
        self._buffers = Allowance(4 * buffer, buffer)
        self._request_buffers = Allowance(4 * _LARGEST_BODY, _LARGEST_BODY)
        self._written_bodies = Allowance(4 * _LARGEST_BODY, _LARGEST_BODY)
        self._run = uuid.uuid4().hex[:8]
        self._number = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[RecordingWriter] = set()
        self._start = time.monotonic()

    def body(self) -> Body | None:
        """Where a request's body goes; None if bodies aren't kept."""
        return Body(self._request_buffers) if self.bodies else None

    def recorder(
        self,
        exchange: Exchange,
        *,
        start: float,
        status: int,
        headers: Mapping[str, str],
        session: str | None,
        request_headers: Mapping[str, str],
        target: str,
        body: Body | None,
    ) -> Recorder | None:
        """The recorder of an answer that has begun; None if there are too many. Others than 200 go to the metrics."""
        if len(self._tasks) >= _MOST_OPEN:
            exchange.notes.append(self.counts.drop("tee", "slow"))
            return None
        self._number += 1
        content_type = headers.get("content-type")
        keep = status == 200
        secrets = secrets_of(request_headers, target)
        request = without_tokens(body.bytes(), secrets) if keep and body is not None and not body.large else None
        request_id = headers.get("request-id") or headers.get("x-request-id")
        writer = None
        if keep and self._store is not None:
            name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{self._run}-{self._number:06}"
            if body is not None:
                self._write_request(exchange, name, request, _shown(request_headers, secrets))
            exchange.recording = f"{name}{_suffix(content_type)}"
            writer = self._writer(exchange, exchange.recording, "recording", self._buffers, _LARGEST)
        recorder = Recorder(
            exchange,
            number=self._number,
            start=start,
            content_type=content_type,
            encoding=headers.get("content-encoding"),
            request_id=request_id if not request_id or not _holds(request_id, secrets) else None,
            counts=self.counts,
            metrics=self.metrics,
            writer=writer,
            transcripts=self._transcripts if keep else None,
            session=session,
            request=request,
            allowance=self._queues,
            masker=Masker(secrets),
        )
        self._own(recorder.task)
        return recorder

    def _write_request(self, exchange: Exchange, name: str, request: bytes | None, headers: Mapping[str, str]) -> None:
        if request is None:
            exchange.notes.append(self.counts.drop("body", "large"))
            return
        plain = headers.get("content-encoding", "identity") == "identity"
        for suffix, data in (
            ("request.json" if plain else "request.bin", request),
            ("headers.json", dumps(headers)),
        ):
            writer = self._writer(exchange, f"{name}.{suffix}", "body", self._written_bodies, _LARGEST_BODY)
            writer.take(data)
            writer.end()

    def _writer(self, exchange: Exchange, name: str, what: str, allowance: Allowance, largest: int) -> RecordingWriter:
        assert self._store is not None

        def ended(why: str | None, error: BaseException | None) -> None:
            self._writers.discard(writer)
            if why is not None:
                detail = "" if error is None else _said(error)
                exchange.notes.append(self.counts.drop(what, why, detail))
                if what == "recording":
                    exchange.recording = None
            elif what == "recording":
                self.counts.recordings += 1
                self.counts.recording_bytes += writer.written

        writer = RecordingWriter(self._store, name, allowance=allowance, largest=largest, on_end=ended)
        self._writers.add(writer)
        self._own(writer.task)
        return writer

    def _own(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def report(self) -> dict[str, Any]:
        """What is known so far: JSON-able, snake_case."""
        return {
            "schema_version": 1,
            "uptime_s": round(time.monotonic() - self._start, 3),
            "proxy": self.counts.report(),
            "model": self.metrics.report(),
        }

    async def drained(self) -> None:
        """Return once nothing is being recorded any more."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def aclose(self, budget: float) -> bool:
        """Finish what can be finished.

        Args:
            budget: seconds that recordings may take, and then transcripts.

        Returns:
            Whether all was finished; what wasn't is counted.
        """
        finished = True
        end = asyncio.get_running_loop().time() + budget
        while self._tasks and (left := end - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._tasks, timeout=left)
        for writer in list(self._writers):
            writer.drop("unfinished")
            finished = False
        for task in self._tasks:
            task.cancel()
            finished = False
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=budget)
            for task in self._tasks:  # a hanging store's discard()
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=budget)
        if self._transcripts is not None:
            lost = await self._transcripts.aclose(budget)
            if lost:
                finished = False
                self.counts.drop("transcript", "unfinished", f"{lost} of them")
        if self._store is not None:
            await self._store.aclose()
        return finished


def _holds(text: str, secrets: Iterable[bytes]) -> bool:
    data = text.encode("utf-8", "surrogateescape")
    return any(secret in data for secret in secrets)


def _shown(headers: Mapping[str, str], secrets: Iterable[bytes]) -> dict[str, str]:
    """The headers as they are written: a secret is none under another name, either."""
    hidden = HIDDEN.decode()
    return {name: hidden if _holds(value, secrets) else value for name, value in without_secrets(headers).items()}


def _suffix(content_type: str | None) -> str:
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return ".sse"
    return ".json" if kind.endswith("json") else ".bin"


def _said(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
