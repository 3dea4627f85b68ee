"""``PlainRenderer``: lines on a terminal or in a pipe, each written once (FAULTS 78)."""

from __future__ import annotations

from turnstream.messages.events import TextDelta, ThinkingDelta
from turnstream.messages.types import AssistantMessage, Tombstone
from turnstream.sinks.ui.looks import THINKING, Looks
from turnstream.sinks.ui.state import UIState
from turnstream.sinks.ui.supersede import content_of
from turnstream.sinks.ui.terminal import TextStream, encodable, safe
from turnstream.sinks.ui.views import DisplayItem, OpenBlock, uuid_of

__all__ = ["PlainRenderer"]

_RETRACTED = "(retracted)"
_INCOMPLETE = "[incomplete]"


class PlainRenderer:
    """Prints finished blocks once and in order; live, also what the open block brought since last time.

    It never goes back: what is retracted after it was printed gets a line that says so. One open block is
    streamed at a time, what finishes meanwhile is printed after it. Bytes written are those of the text
    and a small constant a rendering. Control characters in what is shown are written out, so nothing the
    model says can steer the terminal.

    Args:
        stream: text; written in one call a rendering and flushed. Its ``encoding`` decides which
            characters it can take, the rest becomes ``?``.
        live: stream the open text or thinking block (for a terminal).
        color: use SGR sequences (the caller honours NO_COLOR).
        width: columns, for what is cut to one line (tool inputs, results); text is never cut.
        history: where the full history is, for the divider of a compaction; here nothing printed goes
            away, so by default it is above.

    Raises:
        OSError: from ``render`` and ``close``, what the stream raises (BrokenPipeError …).
    """

    def __init__(
        self, stream: TextStream, *, live: bool = False, color: bool = False, width: int = 80, history: str = "above"
    ) -> None:
        self.live = live
        encoding = getattr(stream, "encoding", None)
        self._encoding = encoding if isinstance(encoding, str) else None
        self._stream = stream
        self._looks = Looks(encoding=self._encoding, color=color, width=width, history=history)
        self._out: list[str] = []
        self._at_line_start = True
        self._block: OpenBlock | None = None  # the one that is streamed
        self._seen = 0  # parts of it that were written
        self._carry = ""  # a CR at its end so far: half of a CRLF, perhaps
        # By serial: streamed to its stop with this text, its message isn't printed (that is: skipped) yet.
        self._whole: dict[int, tuple[OpenBlock, str]] = {}
        self._held: list[tuple[str | None, DisplayItem]] = []

    def render(self, state: UIState, parent: str | None = None) -> None:
        """Write what is new. ``parent``: it is a sub-agent's, indented and never streamed."""
        new = state.take_finished()
        for item in new:
            self._hold(parent, item)
        streams = self.live and parent is None
        if streams:
            self._stream_on(new)
        if self._block is None:
            self._say_lost()
            self._print_held()
            if streams:
                self._start_next(state)
        self._emit()

    def close(self) -> None:
        """End the line. Idempotent."""
        if self._block is not None:
            self._end_block(self._block)
        self._print_held()
        self._end_line()
        self._emit()

    # -- finished items ------------------------------------------------------------------------------

    def _hold(self, parent: str | None, item: DisplayItem) -> None:
        """Queue an item; a tombstone takes back what is still queued (if it was streamed, that is said later)."""
        if isinstance(item.message, Tombstone):
            uuid = uuid_of(item.message.message)
            for at, (_, held) in enumerate(self._held):
                if uuid_of(held.message) == uuid:
                    del self._held[at]
                    return
        self._held.append((parent, item))

    def _print_held(self) -> None:
        held, self._held = self._held, []
        retracted = 0
        for parent, item in held:
            if isinstance(item.message, Tombstone):
                retracted += 1
                continue
            self._say_retracted(retracted)
            retracted = 0
            if not item.update:
                self._print(parent, item)
        self._say_retracted(retracted)

    def _say_retracted(self, count: int) -> None:
        if count:
            self._piece(self._looks.style.dim(_RETRACTED if count == 1 else f"(retracted: {count} blocks)"))

    def _print(self, parent: str | None, item: DisplayItem) -> None:
        message = item.message
        looks = self._looks
        if not isinstance(message, AssistantMessage):
            pieces = looks.message(message)
        elif message.is_api_error_message:
            pieces = looks.api_error(message)
        else:
            pieces = []
            for position, block in enumerate(content_of(message)):
                _, written = self._whole.pop(_serial(item, position), (None, None))
                if written is not None and written == _text(block):
                    continue
                if written is not None:
                    # A normalized block differs from its stream: it is the message that counts.
                    pieces.append(looks.style.dim(_RETRACTED))
                pieces.append(looks.block(block, invalid=message.invalid_tool_input is True))
            pieces += looks.after(message)
        for piece in pieces:
            self._piece(piece if parent is None else _indented(piece))

    # -- the open block ------------------------------------------------------------------------------

    def _stream_on(self, new: list[DisplayItem]) -> None:
        """Bring the streamed block up to date with what became of it."""
        block = self._block
        if block is None:
            return
        for item in new:
            if block.serial in item.streams and isinstance(item.message, AssistantMessage):
                self._finish(block, _text(content_of(item.message)[item.streams.index(block.serial)]))
                return
        self._write_parts(block)
        if block.fate is not None:
            self._end_block(block)
        elif block.closed:
            self._set_whole(block)

    def _say_lost(self) -> None:
        """What was streamed to its stop, but its message never came or was taken back at once."""
        if self._whole:
            coming = {serial for _, item in self._held for serial in item.streams}
            for serial, (block, _) in list(self._whole.items()):
                if block.fate is not None and serial not in coming:
                    del self._whole[serial]
                    self._say_fate(block)

    def _start_next(self, state: UIState) -> None:
        """Stream the first open block that has something to show (and those that stopped meanwhile)."""
        for block in state.open_blocks:
            if block.takes not in (TextDelta, ThinkingDelta) or block.serial in self._whole or not any(block.parts):
                continue
            self._end_line()
            self._block = block
            self._seen = 0
            if block.takes is ThinkingDelta:
                self._write(self._looks.style.dim(THINKING))
            self._write_parts(block)
            if not block.closed:
                return
            self._set_whole(block)

    def _write_parts(self, block: OpenBlock) -> None:
        parts = block.parts
        new = "".join(parts[self._seen :])
        self._seen = len(parts)
        self._write_text(block, new)

    def _write_text(self, block: OpenBlock, text: str, *, last: bool = False) -> None:
        text = self._carry + text
        self._carry = ""
        if text.endswith("\r") and not last:
            self._carry = "\r"
            text = text[:-1]
        if text:
            text = safe(text)
            self._write(self._looks.style.dim(text) if block.takes is ThinkingDelta else text)

    def _finish(self, block: OpenBlock, text: str) -> None:
        """Its message came: write what is missing. What was streamed isn't printed again."""
        written = "".join(block.parts[: self._seen])
        if text.startswith(written):
            self._write_text(block, text[len(written) :], last=True)
            written = text
        else:
            self._write_text(block, "", last=True)
        self._end_line()
        self._whole[block.serial] = (block, written)
        self._block = None

    def _set_whole(self, block: OpenBlock) -> None:
        """It stopped: its message is still to come, other blocks may be streamed meanwhile."""
        self._write_text(block, "", last=True)
        self._end_line()
        self._whole[block.serial] = (block, block.text)
        self._block = None

    def _end_block(self, block: OpenBlock) -> None:
        """No message took its place: say so, start and end stay balanced (FAULTS 81)."""
        self._write_text(block, "", last=True)
        self._block = None
        self._say_fate(block)

    def _say_fate(self, block: OpenBlock) -> None:
        # Superseded by a message that never came here: it was tombstoned before anybody took it.
        style = self._looks.style
        cut_off = block.fate is None or block.fate == "incomplete"
        self._piece(style.red(_INCOMPLETE) if cut_off else style.dim(_RETRACTED))

    # -- writing -------------------------------------------------------------------------------------

    def _write(self, text: str) -> None:
        if text:
            self._out.append(text)
            self._at_line_start = text.endswith("\n")

    def _end_line(self) -> None:
        if not self._at_line_start:
            self._write("\n")

    def _piece(self, piece: str) -> None:
        if piece:
            self._end_line()
            self._write(piece)
            self._end_line()

    def _emit(self) -> None:
        if self._out:
            text = "".join(self._out)
            self._out = []
            self._stream.write(encodable(text, self._encoding))
            self._stream.flush()


def _serial(item: DisplayItem, position: int) -> int:
    return item.streams[position] if position < len(item.streams) else 0


def _text(block: object) -> str:
    """Text or thinking of a content block."""
    if not isinstance(block, dict):
        return ""
    value = block.get("thinking" if block.get("type") == "thinking" else "text")
    return value if isinstance(value, str) else ""


def _indented(piece: str) -> str:
    body = piece.rstrip("\n")
    return "    " + body.replace("\n", "\n    ") if body else ""
