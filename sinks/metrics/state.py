"""The streams and the answers of each: what opens, ends and supersedes them (WIRE.md §1, attempts and ends)."""

from __future__ import annotations

from typing import Any, Final

from turnstream.messages.events import InputJsonDelta, TextDelta, ThinkingDelta
from turnstream.messages.types import AssistantMessage
from turnstream.operators.batch import Batch, StreamKey
from turnstream.operators.whole import WholeAnswer
from turnstream.sinks.metrics.answer import Answer
from turnstream.sinks.metrics.clocks import FOLD_AT, Clocks
from turnstream.sinks.metrics.histogram import Histogram
from turnstream.sinks.metrics.stream import Stream
from turnstream.sinks.metrics.tools import ToolTimes
from turnstream.sinks.metrics.totals import Totals
from turnstream.sinks.metrics.traffic import Traffic, is_opaque_block
from turnstream.sinks.metrics.window import Window

__all__ = ["State"]

_STREAM_LIMIT: Final = 256
_LAST_TICK: Final = FOLD_AT - 2  # arrivals, with which there is room for one without folding
_NO_KEY: Final = StreamKey("\uffff no batch yet")


class State:
    """All that the sink holds.

    Attributes:
        key: whose batch is worked on.
        stream: that key's state.
        traffic: counts that belong to no answer.
        tools: results and durations of tools.
        window: the answers that may still change.
        folded: sums of the answers that the window let go.
        gaps: gaps between the batches of ended answers.
    """

    def __init__(self, clock_start: float | None, keep_answers: int) -> None:
        self.key: StreamKey | None = _NO_KEY  # so that the first batch switches
        self.stream = Stream()
        self.traffic = Traffic()
        self.tools = ToolTimes()
        self.folded = Totals()
        self.window = Window(keep_answers, self.folded.add)
        self.gaps = Histogram()
        self._streams: dict[StreamKey | None, Stream] = {}
        self._clock_start = clock_start
        self._chunk: float | None = None

    # -- streams -----------------------------------------------------------------------------------------

    @property
    def streams_held(self) -> int:
        """How many streams have a state."""
        return len(self._streams)

    def switch(self, key: StreamKey | None) -> Stream:
        """The state of ``key`` becomes the current one."""
        streams = self._streams
        stream = streams.pop(key, None)
        if stream is None:
            stream = Stream(self._clock_start)
            self._clock_start = None  # it says when the first request went out, no other
            if len(streams) >= _STREAM_LIMIT:
                self._drop_idle_stream()
        streams[key] = stream  # last in order: the oldest is the one unused for longest
        self.key = key
        self.stream = stream
        return stream

    def _drop_idle_stream(self) -> None:
        for key, stream in self._streams.items():
            if stream.answer is None:
                self.settle(stream)
                stream.forget_last()
                stream.set_loose(None)
                del self._streams[key]
                return

    def arrived(self, at: float, weight: int) -> None:
        """A batch with a time came for the current stream; ``weight``: the bytes that caused it."""
        stream = self.stream
        if stream.answer is not None:
            clocks = stream.answer.clocks or stream.answer.timing
            clocks.arrivals.append(at)
            if len(clocks.arrivals) >= FOLD_AT:
                clocks.fold()
        if weight:
            self._chunk = at
            if stream.first_byte is None:
                stream.first_byte = at
        else:
            self._chunk = None

    def ticks(self, batch: Batch[Any], at: float) -> bool:
        """A plain batch of one delta, at its time; False, and nothing is done, if it changes more than sums and last times.

        It is what a live stream has most, so it does in one go what :meth:`arrived` and ``on_delta`` do.
        """
        stream = self.stream
        answer = stream.answer
        items = batch.items
        if answer is None or batch.key is not self.key or len(items) != 1:
            return False
        clocks = answer.clocks or answer.timing
        delta = items[0].delta
        cls = delta.__class__
        if cls is TextDelta:
            if clocks.first_text is None or not delta.text:
                return False
        elif cls is InputJsonDelta:
            if clocks.first_content is None or not delta.partial_json:
                return False
        elif (
            cls is not ThinkingDelta
            or clocks.first_thinking is None
            or clocks.first_content is None
            or not delta.thinking
        ):
            return False
        weight = batch.weight
        arrivals = clocks.arrivals
        if not weight or stream.first_byte is None or len(arrivals) > _LAST_TICK:
            return False
        arrivals.append(at)
        clocks.last_token = self._chunk = at
        traffic = self.traffic
        traffic.events += 1
        traffic.bytes += weight
        return True

    def take_whole(self, whole: WholeAnswer) -> bool:
        """A batch that is just this answer (:class:`AnswerItems`) and has no time; False if it needs a closer look."""
        stream = self.stream
        if stream.answer is not None or stream.waiting or stream.loose is not None:
            return False
        template = whole.template
        answer = self.open(Answer(template["id"], True, self.clocks(None)))
        answer.started = answer.block_opened = True
        answer.output_is_final = whole.output_is_final
        answer.read(template)
        request_id = whole.messages[0].request_id
        if request_id is not None:
            self.window.name_request(answer, request_id)
        answer.take_whole(whole, self.tools)
        self.traffic.pings += whole.pings
        self.close("complete", None)
        return True

    # -- live messages -----------------------------------------------------------------------------------

    def claim(self, stream: Stream, answer: Answer, *, whole: bool = False) -> None:
        """The messages that waited are ``answer``'s; ``whole``: no event tells of their blocks."""
        waiting, stream.waiting = stream.waiting, []
        for item, at in waiting:
            if answer.request_id is None and item.request_id is not None:
                self.window.name_request(answer, item.request_id)
            blocks = answer.take(item, at, self.tools)
            if whole:
                self.count_opaque(blocks)

    def settle(self, stream: Stream) -> None:
        """No start follows the messages that waited: they are the open answer's, or came without events."""
        if stream.answer is not None:
            self.claim(stream, stream.answer)
            return
        waiting, stream.waiting = stream.waiting, []
        for item, at in waiting:
            self.without_events(stream, item, at)

    def settle_all(self) -> None:
        """:meth:`settle` for all streams."""
        for stream in self._streams.values():
            if stream.waiting:
                self.settle(stream)

    def count_opaque(self, blocks: list[Any]) -> None:
        """Count those of ``blocks`` whose type nobody knows."""
        for block in blocks:
            if isinstance(block, dict) and is_opaque_block(block.get("type")):
                self.traffic.opaque_blocks.add(block.get("type"))

    def without_events(self, stream: Stream, item: AssistantMessage, at: float | None) -> None:
        """A message that isn't part of the open answer."""
        raise NotImplementedError

    # -- answers -----------------------------------------------------------------------------------------

    def open(self, answer: Answer, *, known: bool = False) -> Answer:
        """``answer`` begins in the current stream; it is new, or ``known`` because its messages came before."""
        stream = self.stream
        answer.held = True
        stream.answer = answer
        stream.ended = stream.error_counted = False
        if not known:
            self.window.add(answer)
        return answer

    def clocks(self, at: float | None) -> Clocks | None:
        """The clocks of an answer that begins at ``at``; None without any time."""
        stream = self.stream
        first_byte = stream.first_byte
        first_event = stream.first_event
        if at is not None:
            if first_byte is None:
                first_byte = self._chunk
            if first_event is None:
                first_event = at
        elif stream.request is None and first_byte is None and first_event is None:
            return None
        return Clocks(stream.request, first_byte, first_event, at)

    def current(self, at: float | None) -> Answer | None:
        """The open answer; one without a start if there was none yet; None for what is stray after an end."""
        stream = self.stream
        if stream.answer is None and not stream.ended:
            return self.open(Answer(None, streamed=True, clocks=self.clocks(at)))
        return stream.answer

    def close(self, outcome: str | None, at: float | None, *, superseded: bool = False) -> None:
        """The open answer, if there is one, ends with ``outcome``."""
        stream = self.stream
        answer = stream.answer
        if answer is None:
            return
        if stream.waiting:
            self.claim(stream, answer)
        gaps = answer.close(outcome, at)
        if gaps is not None:
            self.gaps.merge(gaps)
        if stream.last is not None:
            stream.last.held = False
        stream.last = answer
        stream.answer = None
        stream.ended = True
        if superseded:
            answer.superseded = True  # another attempt of the same request follows
        else:
            stream.request = stream.first_byte = stream.first_event = None

    def supersede_last(self, at: float | None) -> None:
        """Another attempt is coming: the one that is open, or that failed, was replaced."""
        stream = self.stream
        if stream.answer is not None:
            self.close(None, at, superseded=True)
        elif stream.last is not None and stream.last.word != "complete":
            stream.last.superseded = True
