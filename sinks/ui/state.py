"""``UIState``: one reducer from what ``accumulate`` emits to what a display shows (WIRE.md §5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from turnstream.messages.events import (
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    InputJsonDelta,
    MessageStart,
    MessageStop,
    TextDelta,
)
from turnstream.messages.types import (
    AssistantMessage,
    AttachmentMessage,
    CollapsedReadSearch,
    GroupedToolUse,
    OpaqueRecord,
    ProgressMessage,
    RequestStart,
    ResponseFailed,
    StreamEventMessage,
    StreamNote,
    SystemMessage,
    Tombstone,
    UserMessage,
)
from turnstream.operators.failures import error_object
from turnstream.operators.whole import WholeAnswer
from turnstream.sinks.ui.displayed import DisplayedList
from turnstream.sinks.ui.stream import StreamState, take_run
from turnstream.sinks.ui.supersede import content_of, pair
from turnstream.sinks.ui.views import DisplayItem, OpenBlock, Snapshot, ThinkingView, ToolEntry, uuid_of

__all__ = ["UIState"]

# Shorter batches aren't worth a second look (a live stream has one to three items a batch).
_RUN: Final = 4


class UIState(StreamState):
    """The display's state, changed in place: deterministic, no I/O, O(1) amortised an item.

    It expects what ``accumulate`` emits, of one key (a sub-agent has a state of its own). How items are
    cut into batches never matters. A finished message supersedes the stream under (message id, index),
    so nothing is ever in ``blocks`` and ``items`` of a snapshot at once; text is never compared.

    Args:
        keep: keep finished items after :meth:`take_finished`; without it they are let go, which the
            memory bound needs. A front end that only takes snapshots wants True.
        full_screen: a compact boundary keeps one interval before it (WIRE.md §5, list).

    Attributes:
        conversation: uuid of the compact boundary that the displayed list starts with, None before any.
        notes: lenient steps seen.
    """

    def __init__(self, *, keep: bool = True, full_screen: bool = False) -> None:
        super().__init__()
        self.conversation: str | None = None
        self.notes = 0
        self._list = DisplayedList(keep=keep, full_screen=full_screen)

    # -- reading -------------------------------------------------------------------------------------

    @property
    def has_finished(self) -> bool:
        """Whether :meth:`take_finished` would return anything."""
        return self._list.fresh

    @property
    def retracted(self) -> int:
        """Displayed messages that tombstones took back."""
        return self._list.retracted

    @property
    def duplicates(self) -> int:
        """Messages that came a second time and weren't shown again."""
        return self._list.duplicates

    @property
    def finished(self) -> int:
        """Finished items so far, over the state's life."""
        return self._list.number

    def take_finished(self) -> list[DisplayItem]:
        """What was finished since the last take, in order.

        Without ``keep`` the state lets go of it. A ``retraction`` among them takes back an item that an
        earlier take handed out (the last :data:`HANDED_OUT_LIMIT` are known); an item with ``update``
        stands for the earlier one of the same number.
        """
        return self._list.take()

    def discard_finished(self) -> None:
        """Let go of what was finished: for a state that nobody shows. Only without ``keep``."""
        self._list.discard()

    def snapshot(self) -> Snapshot:
        """An immutable view; texts are joined here: O(open text + displayed items)."""
        blocks = self.open_blocks
        views = tuple(block.view() for block in blocks)
        return Snapshot(
            mode=self.mode,
            message_id=self.message_id,
            answering=self.answering,
            blocks=views,
            tools=tuple(
                ToolEntry(view.index, view.content_block, view.text)
                for block, view in zip(blocks, views, strict=True)
                if block.is_tool
            ),
            thinking=self.thinking,
            streamed_length=self._length + sum(view.streamed for view in views),
            items=self._list.items(),
            outcome=self.outcome,
            conversation=self.conversation,
            used=frozenset(self._used),
            finished=self._finished,
            awaiting=self._awaiting,
            serial=self._serial,
            number=self._list.number,
        )

    @classmethod
    def restore(cls, snapshot: Snapshot, *, keep: bool = True, full_screen: bool = False) -> UIState:
        """A state that goes on from ``snapshot``: for late joiners and after a ``resync``."""
        state = cls(keep=keep, full_screen=full_screen)
        state.mode = snapshot.mode
        state.message_id = snapshot.message_id
        state.answering = snapshot.answering
        state.outcome = snapshot.outcome
        state.conversation = snapshot.conversation
        state._used = set(snapshot.used)
        state._finished = snapshot.finished
        state._awaiting = snapshot.awaiting
        state._serial = snapshot.serial
        state._length = snapshot.streamed_length - sum(view.streamed for view in snapshot.blocks)
        state._list.load(snapshot.items, snapshot.number)
        for view in snapshot.blocks:
            block = OpenBlock.from_view(view)
            state._open[block.index] = block
            state.blocks_opened += 1
            state.blocks_closed += block.closed
        thinking = snapshot.thinking
        if thinking is not None and thinking.streaming:
            of = [block for block in state._open.values() if block.is_thinking and not block.closed]
            state._thinking_block = max(of, key=lambda b: b.serial, default=None)
        else:
            state._thinking = thinking
        return state

    # -- reducing ------------------------------------------------------------------------------------

    def apply(self, items: Sequence[Any], at: float | None = None) -> None:
        """Take the items of one batch; unknown ones are skipped.

        Args:
            items: what ``accumulate`` emitted, in order.
            at: when their bytes arrived, monotonic seconds; None where nobody knows.
        """
        hot = self._hot
        if hot is not None and len(items) >= _RUN:
            last = items[-1]
            if last.__class__ is ContentBlockDelta and last.index == hot.index and take_run(hot, items):
                return
        index, takes, append = self._index, self._takes, self._append
        for item in items:
            cls = item.__class__
            if cls is ContentBlockDelta:
                delta = item.delta
                if delta.__class__ is takes and item.index == index:
                    if takes is TextDelta:
                        append(delta.text)
                    elif takes is InputJsonDelta:
                        append(delta.partial_json)
                    else:
                        append(delta.thinking)
                    continue
            handle = _HANDLERS.get(cls)
            if handle is not None:
                handle(self, item, at)
                index, takes, append = self._index, self._takes, self._append

    def takes_one(self, items: Sequence[Any]) -> bool:
        """One delta to the open block, which came alone; False, and nothing is done, for anything else."""
        if len(items) != 1:
            return False
        item = items[0]
        delta = item.delta
        cls = delta.__class__
        if cls is not self._takes or item.index != self._index:
            return False
        if cls is TextDelta:
            self._append(delta.text)
        elif cls is InputJsonDelta:
            self._append(delta.partial_json)
        else:
            self._append(delta.thinking)
        return True

    def take_whole(self, whole: WholeAnswer, at: float | None = None, *, shown: bool = True) -> None:
        """The same for a batch that is just this answer (:class:`AnswerItems`), while none is open.

        Args:
            whole: the answer.
            at: when its bytes arrived.
            shown: False where :meth:`discard_finished` is called next.
        """
        count = len(whole.blocks)
        if shown:
            append = self._list.append
            for serial, message in enumerate(whole.messages, self._serial + 1):
                append(message, message.uuid, (serial,))
        else:
            self._list.pass_by(count)
        self._serial += count
        self.blocks_opened += count
        self.blocks_closed += count
        self._finished = count
        self._used = set(range(count))
        self._length += whole.streamed
        for block in reversed(whole.blocks):
            if block["type"] == "thinking":
                text = block.get("thinking")
                text = text if isinstance(text, str) else None
                self._thinking = ThinkingView(text=text, streaming=False, started_at=at, ended_at=at)
                break
        self._awaiting = True
        self.outcome = "complete"
        self.mode = "tool-use"

    def end(self) -> None:
        """The run is complete: idle from now on; an answer still open is incomplete."""
        self._break_off()
        self.mode = None

    def fail(self, error: Exception) -> None:
        """The run broke: as :meth:`end`, and the error is shown unless an answer's failure just was."""
        told = self.incomplete and not self.answering
        self.end()
        if not told:
            failed = ResponseFailed(error=error_object(error), outcome=self.outcome or f"incomplete({self._finished})")
            self.outcome = failed.outcome
            self._list.append(failed)

    # -- one item ------------------------------------------------------------------------------------

    def _on_failed(self, item: ResponseFailed, at: float | None) -> None:
        self._end_answer(item.outcome, at)
        self.mode = None
        self._list.append(item)

    def _on_note(self, item: StreamNote, at: float | None) -> None:
        self.notes += 1
        if item.kind == "no_message_stop" and self.answering:
            self._end_answer("complete", at)
            self.mode = "tool-use"

    def _on_request_start(self, item: RequestStart, at: float | None) -> None:
        self._break_off(at)
        self._awaiting = False
        self._used = set()  # what comes now is another answer's, also without a start
        self.mode = "requesting"

    def _on_assistant(self, item: AssistantMessage, at: float | None) -> None:
        streams: tuple[int, ...] = ()
        message_id = self.message_id
        if self.answering and (
            item.message.get("id") == message_id if message_id is not None else item.synthesized_envelope
        ):
            index = item.index
            block = self._open.get(index) if index is not None else None
            if block is not None:
                streams = (block.serial,)
                self._drop(block, at, "superseded")
            elif index is not None:
                self._used.add(index)
            else:
                streams, blocks = pair(item, self.open_blocks)
                for block in blocks:
                    self._drop(block, at, "superseded")
                block = next((block for block in reversed(blocks) if block.mode == "thinking"), None)
            if not item.is_aborted_mid_stream:
                self._finished += 1
            if block is None or block.mode == "thinking":
                self._finish_thinking(item, block, at)
        self._list.append(item, item.uuid, streams)

    def _finish_thinking(self, item: AssistantMessage, streamed: OpenBlock | None, at: float | None) -> None:
        """The message's thinking becomes the finished one; the times are those of its stream."""
        since, until = (None, at) if streamed is None else (streamed.since, streamed.until)
        for value in reversed(content_of(item)):
            text = value.get("thinking") if isinstance(value, dict) and value.get("type") == "thinking" else None
            if isinstance(text, str):
                self._thinking = ThinkingView(text=text, streaming=False, started_at=since, ended_at=until)
                return
        if streamed is not None:
            self._thinking = ThinkingView(text=None, streaming=False, started_at=since, ended_at=until)

    def _on_tombstone(self, item: Tombstone, at: float | None) -> None:
        uuid = uuid_of(item.message)
        if uuid:
            self._list.remove(uuid, item)

    def _on_system(self, item: SystemMessage, at: float | None) -> None:
        if item.subtype == "compact_boundary":
            self._list.boundary(item)
            self.conversation = item.uuid or f"compacted-{self._list.number}"
            return
        if self.answering and (item.subtype == "api_error" or item.fields.get("fallback")):
            # The attempt is given up: what it had open isn't shown while the next one is waited for.
            self._break_off(at)
            self.mode = "requesting"
        self._list.append(item, item.uuid)

    def _on_progress(self, item: ProgressMessage, at: float | None) -> None:
        self._list.progress(item)

    def _on_envelope(self, item: StreamEventMessage, at: float | None) -> None:
        # A sub-agent's events have a state of their own.
        if item.parent_tool_use_id is None:
            self.apply((item.event,), at)

    def _on_result(
        self, item: UserMessage | AttachmentMessage | GroupedToolUse | CollapsedReadSearch, at: float | None
    ) -> None:
        self._list.append(item, item.uuid)

    def _on_opaque(self, item: OpaqueRecord, at: float | None) -> None:
        self._list.append(item)


# What isn't here leaves the display alone: pings, message_delta, error events (their failure follows),
# unknown events, summaries (WIRE.md §5), resync (a direct reducer never needs one).
_HANDLERS: Final[dict[type, Callable[[UIState, Any, float | None], None]]] = {
    ContentBlockDelta: UIState._on_delta,
    ContentBlockStart: UIState._on_block_start,
    ContentBlockStop: UIState._on_block_stop,
    MessageStart: UIState._on_message_start,
    MessageStop: UIState._on_message_stop,
    AssistantMessage: UIState._on_assistant,
    UserMessage: UIState._on_result,
    AttachmentMessage: UIState._on_result,
    GroupedToolUse: UIState._on_result,
    CollapsedReadSearch: UIState._on_result,
    OpaqueRecord: UIState._on_opaque,
    SystemMessage: UIState._on_system,
    ProgressMessage: UIState._on_progress,
    Tombstone: UIState._on_tombstone,
    ResponseFailed: UIState._on_failed,
    RequestStart: UIState._on_request_start,
    StreamNote: UIState._on_note,
    StreamEventMessage: UIState._on_envelope,
}
