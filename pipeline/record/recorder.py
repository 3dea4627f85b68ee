"""The recorder of one answer: what the tee hands it becomes a recording, messages and figures.

It has a task of its own. The side of the client only appends to a bounded queue, so nothing that happens here (a
full disk, a bug in a stage, a device that hangs) can delay or break the client's stream.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from turnstream.messages.errors import AbortedError, TransportError, TurnstreamError
from turnstream.messages.events import MessageStart, MessageStop
from turnstream.messages.factories import MessageFactory
from turnstream.messages.jsonvalue import JSONValueError, loads
from turnstream.messages.types import (
    RESULT_TYPES,
    AssistantMessage,
    RequestStart,
    ResponseFailed,
    StreamNote,
    Tombstone,
    UserMessage,
)
from turnstream.operators import accumulate, decode, parse_events
from turnstream.operators.batch import Batch, StreamKey
from turnstream.operators.stage import Fault
from turnstream.record.counting import Counts
from turnstream.record.exchange import Exchange
from turnstream.record.inflating import Inflater, UnknownEncoding
from turnstream.record.secrets import Masker
from turnstream.record.sessions import Transcripts
from turnstream.record.stamping import Stamper
from turnstream.record.writing import Allowance, RecordingWriter
from turnstream.sinks.metrics import MetricsSink

__all__ = ["Recorder"]

_MEMBERS: Final = frozenset({AssistantMessage, UserMessage})
# What a transcript looks at; and how much of it an answer may hold before there is something wrong with it.
_KEPT: Final = frozenset({*RESULT_TYPES, MessageStart, MessageStop, RequestStart, ResponseFailed, Tombstone})
_MOST_KEPT: Final = 10_000


def _is_end(item: Any) -> bool:
    return item.__class__ is StreamNote and item.kind == "no_message_stop"


class Recorder:
    """Takes the answer of one exchange.

    Args:
        exchange: what it is about; notes go there.
        number: the exchange's, to tell its stream from the others'.
        start: the loop's time when the request came.
        content_type: the answer's; likewise ``encoding`` and ``request_id``.
        counts: where things are counted.
        metrics: takes the items.
        writer: the recording, None without.
        transcripts: where the messages go, None without.
        session: the client's key for its session.
        request: the request's body where it is kept: its last user message goes into the transcript.
        allowance: of bytes in the queue.
        masker: takes the request's secrets out of the answer, in case that the upstream repeats them.
    """

    def __init__(
        self,
        exchange: Exchange,
        *,
        number: int,
        start: float,
        content_type: str | None,
        encoding: str | None,
        request_id: str | None,
        counts: Counts,
        metrics: MetricsSink,
        writer: RecordingWriter | None,
        transcripts: Transcripts | None,
        session: str | None,
        request: bytes | None,
        allowance: Allowance,
        masker: Masker,
    ) -> None:
        self._exchange = exchange
        self._key = StreamKey(f"{number}")
        self._start = start
        self._encoding = encoding
        self._counts = counts
        self._metrics: MetricsSink | None = metrics
        self._writer = writer
        self._transcripts = transcripts
        self._session = session
        self._request = request
        self._allowance = allowance
        self._masker = masker
        self._chain = (decode(content_type=content_type) | parse_events() | accumulate(request_id=request_id)).chain()
        self._stamper = Stamper() if "event-stream" in (content_type or "").lower() else None
        self._kept: list[Any] = []
        self._queue: deque[tuple[float, bytes]] = deque()
        self._held = 0
        self._more = asyncio.Event()
        self._ended: str | None = None
        self._given_up = False
        self.task = asyncio.create_task(self._run(), name="turnstream.record: recorder")

    # -- the client's side -------------------------------------------------------------------------------

    def offer(self, at: float, data: bytes) -> None:
        """The same bytes that the client gets; returns at once, raises nothing."""
        if self._given_up:
            return
        if not self._allowance.take(self._held, len(data)):
            self._give_up("slow")
            return
        self._held += len(data)
        self._queue.append((at, data))
        self._more.set()

    def end(self, how: str) -> None:
        """The exchange has ended (see :class:`Exchange`)."""
        self._ended = how
        self._more.set()

    def _give_up(self, why: str, detail: str = "") -> None:
        if not self._given_up:
            self._given_up = True
            self._note("tee", why, detail)
            self._queue.clear()
            self._allowance.give(self._held)
            self._held = 0
            if self._writer is not None:
                self._writer.drop(why)
            self._more.set()

    def _note(self, what: str, why: str, detail: str = "") -> None:
        self._exchange.notes.append(self._counts.drop(what, why, detail))

    # -- the recorder's side -----------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            inflater = Inflater(self._encoding)
            self._take_items([RequestStart()], self._start, 0)
            first = True
            while True:
                await self._more.wait()
                self._more.clear()
                while self._queue:
                    at, data = self._queue.popleft()
                    if first and self._metrics is not None:
                        self._metrics.first_byte(at, self._key)
                    first = False
                    self._held -= len(data)
                    self._allowance.give(len(data))
                    for piece in inflater.feed(data):
                        self._take(at, self._masker.feed(piece))
                        await asyncio.sleep(0)  # the streams get their turn
                        if self._given_up:
                            break
                if self._ended is not None or self._given_up:
                    break
            await self._finish(self._ended or "proxy ended")
        except (UnknownEncoding, zlib.error) as error:
            self._give_up("encoding", str(error) if isinstance(error, UnknownEncoding) else "it is broken")
        except asyncio.CancelledError:
            self._give_up("unfinished")
        except Exception as error:  # noqa: BLE001 - a bug of ours costs a recording, no stream
            self._give_up("failed", type(error).__name__)

    def _take(self, at: float, piece: bytes) -> None:
        if self._writer is not None:
            stamper = self._stamper
            self._writer.take(piece if stamper is None else stamper.feed(max(0.0, at - self._start), piece))
        self._take_items(self._chain.feed((piece,)), at, len(piece))

    def _take_items(self, items: Any, at: float, weight: int) -> None:
        if items and items.__class__ is list and items[-1].__class__ is Fault:
            items = items[:-1]
        if not items:
            return
        if self._metrics is not None:
            self._guarded(self._metrics.on_next, Batch(items, at, self._key, weight))
        if self._transcripts is not None:
            self._kept += [item for item in items if item.__class__ in _KEPT or _is_end(item)]
            if len(self._kept) > _MOST_KEPT:
                self._transcripts = None
                self._kept.clear()
                self._note("transcript", "large")

    def _guarded(self, call: Callable[[Any], Any], batch: Any) -> None:
        try:
            call(batch)
        except Exception as error:  # noqa: BLE001 - likewise
            self._metrics = None
            self._note("metrics", "failed", type(error).__name__)

    async def _finish(self, how: str) -> None:
        now = asyncio.get_running_loop().time()
        if not self._given_up and (rest := self._masker.end()):
            self._take(now, rest)
        if how == "complete" and not self._given_up:
            last = self._chain.flush()
        elif how == "upstream broke":
            last = self._chain.fail(TransportError("the upstream broke off its answer"))
        else:
            last = self._chain.fail(AbortedError(how if not self._given_up else "recorder gave up"))
        self._take_items(list(last), now, 0)
        if self._writer is not None and not self._given_up:
            if self._stamper is not None:
                self._writer.take(self._stamper.end(max(0.0, now - self._start)))
            self._writer.end()
        if self._transcripts is not None and not self._given_up:
            await self._tell_transcript(self._transcripts)

    async def _tell_transcript(self, transcripts: Transcripts) -> None:
        try:
            items = [*await self._user_message(), *self._kept]
            if not any(item.__class__ in _MEMBERS for item in items):
                return  # nothing was said
            if await transcripts.take(self._session, items):
                self._counts.transcript_answers += 1
            else:
                self._note("transcript", "slow")
        except (TurnstreamError, OSError) as error:
            self._note("transcript", "failed", type(error).__name__)

    async def _user_message(self) -> list[Any]:
        if self._request is None:
            return []
        try:
            request = await asyncio.to_thread(loads, self._request)
        except JSONValueError:
            return []
        messages = request.get("messages") if isinstance(request, dict) else None
        last = messages[-1] if isinstance(messages, list) and messages else None
        if not isinstance(last, dict) or last.get("role") != "user":
            return []
        content = last.get("content")
        return [MessageFactory().user(content)] if isinstance(content, (str, list)) else []
