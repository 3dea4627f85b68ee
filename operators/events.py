"""``parse_events``: payloads of server-sent events become typed stream events (WIRE.md §1, events)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, overload

import msgspec

from turnstream.messages.errors import EventError
from turnstream.messages.events import (
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Delta,
    ErrorEvent,
    InputJsonDelta,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    UnknownEvent,
    event_from_wire,
)
from turnstream.messages.jsonvalue import MAX_RECORD_DEPTH, JSONValueError, UnheldValueError, loads, scrub
from turnstream.messages.types import StreamNote
from turnstream.operators.sse import Frames, ServerSentEvent, valid_utf8
from turnstream.operators.stage import Fault, Operator, lift

__all__ = ["EventParser", "Parsed", "parse_events"]

_TypedEvent = (
    MessageStart
    | ContentBlockStart
    | ContentBlockDelta
    | ContentBlockStop
    | MessageDelta
    | MessageStop
    | Ping
    | ErrorEvent
)
decode_event: Final = msgspec.json.Decoder(_TypedEvent).decode

# The string that a delta appends to its block, by class: what may end in half a surrogate pair.
_APPENDED: Final[dict[type, str]] = {TextDelta: "text", ThinkingDelta: "thinking", InputJsonDelta: "partial_json"}
_ENDS_ALL: Final = frozenset({MessageStart, MessageStop, ErrorEvent})

# Event number (1-based) and byte offset, as far as they are known.
_Place = tuple[int | None, int | None]

if TYPE_CHECKING:

    class Parsed(Sequence[StreamEvent | StreamNote]):
        """The events of one batch, which can still say where each came from.

        Attributes:
            items: the events and notes.
            places: the source of :meth:`locate`: the frames, one an item, or a list of positions.
        """

        items: list[StreamEvent | StreamNote]
        places: Frames | list[_Place]

        def __init__(self, items: list[StreamEvent | StreamNote], places: Frames | list[_Place]) -> None: ...
        def __len__(self) -> int: ...
        @overload
        def __getitem__(self, index: int) -> StreamEvent | StreamNote: ...
        @overload
        def __getitem__(self, index: slice) -> Sequence[StreamEvent | StreamNote]: ...
        def __getitem__(self, index: int | slice) -> Any: ...
        def locate(self, position: int) -> _Place:
            """Event number (1-based) and byte offset of the item at ``position``."""
            ...

        def last_place(self) -> _Place | None:
            """The same of the last item, None without one."""
            ...

else:
    # A Struct because one is made per chunk (see Batch).
    class Parsed(msgspec.Struct, gc=False, eq=False):  # noqa: D101 - above
        items: list
        places: Any

        def __len__(self):
            return len(self.items)

        def __iter__(self):
            return iter(self.items)

        def __getitem__(self, index):
            return self.items[index]

        def index(self, value, *bounds):  # noqa: D102 - Sequence's
            return self.items.index(value, *bounds)

        def count(self, value):  # noqa: D102 - Sequence's
            return self.items.count(value)

        def locate(self, position):  # noqa: D102 - above
            places = self.places
            if places.__class__ is Frames:
                return places.number(position), places.offset(position)
            return places[position]

        def last_place(self):  # noqa: D102 - above
            return self.locate(len(self.items) - 1) if self.items else None

    Sequence.register(Parsed)


class EventParser:
    """The stage: one typed decode a payload; surprises go down an exact, untyped path.

    A high surrogate at the end of a delta is held back and put before the next delta of its block, so
    no item ever holds half a pair; what stays alone becomes U+FFFD.

    Args:
        strict: payloads that are broken or can't be held are a fault instead of a note.
    """

    def __init__(self, strict: bool = False) -> None:
        self._strict = strict
        self.held: dict[tuple[int | None, type], str] = {}

    def feed(self, batch: Sequence[ServerSentEvent | StreamNote], /) -> Sequence[StreamEvent | StreamNote | Fault]:
        """Decode the payloads of one batch."""
        if batch.__class__ is Frames and not self.held:
            payloads: list[bytes] = batch.payloads  # pyright: ignore[reportAttributeAccessIssue]
            items: list[Any]
            try:
                # One event a chunk is what a live stream has; a comprehension costs as much as its decode.
                items = [decode_event(payloads[0])] if len(payloads) == 1 else list(map(decode_event, payloads))
                return Parsed(items, batch)  # pyright: ignore[reportArgumentType]
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                pass
        return self._exactly(batch)

    def flush(self) -> Sequence[StreamEvent | StreamNote | Fault]:
        """Give out what is held back."""
        return self._release(None) if self.held else ()

    def fail(self, error: Exception, /) -> Sequence[StreamEvent | StreamNote | Fault]:
        """Give out what is held back."""
        return self._release(None)

    def _exactly(self, batch: Sequence[ServerSentEvent | StreamNote]) -> Sequence[StreamEvent | StreamNote | Fault]:
        out: list[StreamEvent | StreamNote] = []
        places: list[_Place] = []
        frames = batch if isinstance(batch, Frames) else None
        payloads: Sequence[Any] = frames.payloads if frames is not None else batch
        item: Any
        payload: Any
        for position, item in enumerate(payloads):
            if frames is not None:
                payload, place, replaced = item, (frames.number(position), frames.offset(position)), 0
            elif isinstance(item, ServerSentEvent):
                payload, place, replaced = item.data, (item.number, item.offset), item.replaced
            else:
                out.append(item)
                places.append((item.event_number, item.byte_offset))
                continue
            if not replaced and not self.held:
                try:
                    out.append(decode_event(payload))
                    places.append(place)
                    continue
                except (msgspec.MsgspecError, UnicodeError, RecursionError):
                    pass
            if payload.strip() == b"[DONE]":
                continue
            if frames is not None:
                payload, replaced = valid_utf8(payload)
            if replaced:
                if self._strict:
                    return [*out, Fault(EventError(_replaced(replaced), event_number=place[0], byte_offset=place[1]))]
                out.append(self._note("invalid_utf8", _replaced(replaced), place))
                places.append(place)
            name = frames.name(position) if frames is not None else item.event
            try:
                events = self._one(payload, name, place)
            except EventError as error:
                if self._strict:
                    return [*out, Fault(error)]
                events = [
                    StreamNote(
                        kind="event_error",
                        message=error.message,
                        event_number=place[0],
                        byte_offset=place[1],
                    )
                ]
            out.extend(events)
            places.extend([place] * len(events))
        return Parsed(out, places)

    def _one(self, payload: bytes, name: str, place: _Place) -> list[StreamEvent | StreamNote]:
        """One payload, untyped: unknown keys, missing type, surrogates."""
        try:
            value = loads(payload, keep_surrogates=True, max_depth=MAX_RECORD_DEPTH)
        except UnheldValueError as error:
            # Valid JSON that can't be held without loss: the text passes, marked.
            message = f"the payload is kept as text: {error}"
            if self._strict:
                raise EventError(message, event_number=place[0], byte_offset=place[1]) from None
            note = self._note("unheld_payload", message, place)
            return [note, UnknownEvent(name or None, payload.decode())]
        except JSONValueError as error:
            raise EventError(f"the payload isn't JSON: {error}", event_number=place[0], byte_offset=place[1]) from None
        if not isinstance(value, dict):
            raise EventError(
                f"the payload is a JSON {_json_type(value)}, not an object", event_number=place[0], byte_offset=place[1]
            )
        try:
            event = event_from_wire(value, name or None)
        except ValueError as error:
            raise EventError(f"{error}", event_number=place[0], byte_offset=place[1]) from None
        return self._whole(event)

    def _note(self, kind: str, message: str, place: _Place) -> StreamNote:
        return StreamNote(kind=kind, message=message, event_number=place[0], byte_offset=place[1])

    def _whole(self, event: StreamEvent) -> list[StreamEvent | StreamNote]:
        """The event without surrogates, after what it releases."""
        if isinstance(event, ContentBlockDelta):
            return self._whole_delta(event)
        released: list[StreamEvent | StreamNote] = []
        if self.held:
            if event.__class__ in _ENDS_ALL:
                released = self._release(None)
            elif isinstance(event, (ContentBlockStop, ContentBlockStart)):
                released = self._release(event)
        _scrub_fields(event)
        return [*released, event]

    def _whole_delta(self, event: ContentBlockDelta) -> list[StreamEvent | StreamNote]:
        delta = event.delta
        cls: type = delta.__class__
        field = _APPENDED.get(cls)
        if event.extra:
            event.extra = scrub(event.extra)
        if field is None:
            _scrub_fields(delta)
            return [event]
        key = (event.index, cls)
        text = self.held.pop(key, "") + getattr(delta, field)
        if text and "\ud800" <= text[-1] <= "\udbff":
            self.held[key] = text[-1]
            text = text[:-1]
        setattr(delta, field, text)
        _scrub_fields(delta)
        return [event]

    def _release(self, border: ContentBlockStop | ContentBlockStart | None) -> list[StreamEvent | StreamNote]:
        """A held high surrogate whose other half can't come any more: a delta with U+FFFD."""
        out: list[StreamEvent | StreamNote] = []
        for index, cls in list(self.held):
            if border is None or border.index is None or index is None or border.index == index:
                del self.held[index, cls]
                out.append(ContentBlockDelta(delta=cls("\ufffd"), index=index))
        return out


def _scrub_fields(item: StreamEvent | Delta) -> None:
    """Take the surrogates out of an event or delta that was built just now, so that nobody else has it."""
    for field in item.__struct_fields__:
        value = getattr(item, field)
        if isinstance(value, (str, dict, list)):
            clean = scrub(value)
            if clean is not value:
                setattr(item, field, clean)


def _replaced(count: int) -> str:
    return f"{count} invalid UTF-8 sequence{'s' * (count > 1)} replaced by U+FFFD"


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "number"


def parse_events(*, strict: bool = False) -> Operator[ServerSentEvent | StreamNote, StreamEvent | StreamNote]:
    """Payloads become typed events; ``[DONE]`` is ignored, unknown types pass as :class:`UnknownEvent`.

    Args:
        strict: broken JSON, invalid UTF-8, a payload that is no object or that no value holds, a start
            without its block end the stream with an :class:`EventError`; the default emits a
            ``stream_note`` of kind ``event_error``, ``invalid_utf8`` or ``unheld_payload``.
    """
    return lift((lambda: EventParser(strict)) if strict else EventParser, "parse_events")
