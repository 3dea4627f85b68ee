"""``parse_events``: payloads of server-sent events become typed stream events (WIRE.md §1, events)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from turnstream.messages.errors import EventError
from turnstream.messages.events import (
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
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
from turnstream.messages.jsonvalue import JSONValueError, UnheldValueError, loads, scrub, scrub_text
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
_DECODER: Final = msgspec.json.Decoder(_TypedEvent)

# The string that a delta appends to its block, by class: what may end in half a surrogate pair.
_APPENDED: Final[dict[type, str]] = {TextDelta: "text", ThinkingDelta: "thinking", InputJsonDelta: "partial_json"}
_ENDS_ALL: Final = frozenset({MessageStart, MessageDelta, MessageStop, ErrorEvent})

if TYPE_CHECKING:
    _Base = list[StreamEvent | StreamNote]
else:
    _Base = list


class Parsed(_Base):
    """The events of one batch, which can still say where each came from.

    Attributes:
        places: the source of :meth:`locate`: the frames, one per item, or a list of positions.
    """

    __slots__ = ("places",)

    places: Frames | list[tuple[int, int]]

    def locate(self, position: int) -> tuple[int, int]:
        """Event number (1-based) and byte offset of the item at ``position``."""
        places = self.places
        if isinstance(places, Frames):
            return places.number(position), places.offset(position)
        return places[position]


class EventParser:
    """The stage: one typed decode a payload; surprises go down an exact, untyped path.

    A high surrogate at the end of a delta is held back and put before the next delta of its block, so
    no item ever holds half a pair; what stays alone becomes U+FFFD.

    Args:
        strict: broken payloads are a fault instead of a note.
    """

    def __init__(self, strict: bool = False) -> None:
        self._strict = strict
        self._held: dict[tuple[int | None, type], str] = {}

    def feed(self, batch: Sequence[ServerSentEvent | StreamNote], /) -> Sequence[StreamEvent | StreamNote | Fault]:
        """Decode the payloads of one batch."""
        if batch.__class__ is Frames and not self._held:
            decode = _DECODER.decode
            try:
                events = Parsed([decode(payload) for payload in batch.payloads])  # type: ignore[attr-defined]
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                pass
            else:
                events.places = batch  # type: ignore[assignment]
                return events
        return self._exactly(batch)

    def flush(self) -> Sequence[StreamEvent | StreamNote | Fault]:
        """Give out what is held back."""
        return self._release(None)

    def fail(self, error: Exception, /) -> Sequence[StreamEvent | StreamNote | Fault]:
        """Give out what is held back."""
        return self._release(None)

    def _exactly(self, batch: Sequence[ServerSentEvent | StreamNote]) -> Sequence[StreamEvent | StreamNote | Fault]:
        out = Parsed()
        places: list[tuple[int, int]] = []
        out.places = places
        decode = _DECODER.decode
        frames = batch if isinstance(batch, Frames) else None
        payloads: Sequence[Any] = frames.payloads if frames is not None else batch
        for position, item in enumerate(payloads):
            if frames is not None:
                payload, place = item, (frames.number(position), frames.offset(position))
            elif isinstance(item, ServerSentEvent):
                payload, place = item.data, (item.number, item.offset)
                if item.replaced:
                    out.append(self._note("invalid_utf8", _replaced(item.replaced), place))
                    places.append(place)
            else:
                out.append(item)
                places.append((item.event_number or 0, item.byte_offset or 0))
                continue
            if not self._held:
                try:
                    out.append(decode(payload))
                    places.append(place)
                    continue
                except (msgspec.MsgspecError, UnicodeError, RecursionError):
                    pass
            if payload.strip() == b"[DONE]":
                continue
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
        return out

    def _one(self, payload: bytes, name: str, place: tuple[int, int]) -> list[StreamEvent | StreamNote]:
        """One payload, untyped: unknown keys, missing type, surrogates, invalid UTF-8."""
        out: list[StreamEvent | StreamNote] = []
        payload, replaced = valid_utf8(payload)
        if replaced:
            out.append(self._note("invalid_utf8", _replaced(replaced), place))
        try:
            value = loads(payload, keep_surrogates=True)
        except UnheldValueError as error:
            # Valid JSON that can't be held without loss: the text passes, marked.
            out.append(self._note("unheld_payload", f"the payload is kept as text: {error}", place))
            out.append(UnknownEvent(name or None, payload.decode()))
            return out
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
        out.extend(self._whole(event))
        return out

    def _note(self, kind: str, message: str, place: tuple[int, int]) -> StreamNote:
        return StreamNote(kind=kind, message=message, event_number=place[0], byte_offset=place[1])

    def _whole(self, event: StreamEvent) -> list[StreamEvent | StreamNote]:
        """The event without surrogates, after what it releases."""
        if isinstance(event, ContentBlockDelta):
            return self._whole_delta(event)
        released: list[StreamEvent | StreamNote] = []
        if self._held:
            if event.__class__ in _ENDS_ALL:
                released = self._release(None)
            elif isinstance(event, ContentBlockStop):
                released = self._release(event)
        for field in event.__struct_fields__:
            value = getattr(event, field)
            if isinstance(value, (dict, str)):
                clean = scrub(value)
                if clean != value:
                    # The event was built just now and nobody else has it.
                    setattr(event, field, clean)
        return [*released, event]

    def _whole_delta(self, event: ContentBlockDelta) -> list[StreamEvent | StreamNote]:
        delta = event.delta
        field = _APPENDED.get(delta.__class__)
        if field is None:
            for name in delta.__struct_fields__:
                setattr(delta, name, scrub(getattr(delta, name)))
            return [event]
        key = (event.index, delta.__class__)
        text = self._held.pop(key, "") + getattr(delta, field)
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._held[key] = text[-1]
            text = text[:-1]
        setattr(delta, field, scrub_text(text))
        if event.extra:
            event.extra = scrub(event.extra)
        if getattr(delta, "extra", None):
            delta.extra = scrub(delta.extra)  # type: ignore[union-attr]
        return [event]

    def _release(self, stop: ContentBlockStop | None) -> list[StreamEvent | StreamNote]:
        """A held high surrogate whose other half can't come any more: a delta with U+FFFD."""
        out: list[StreamEvent | StreamNote] = []
        for index, cls in list(self._held):
            if stop is None or stop.index is None or index is None or stop.index == index:
                del self._held[index, cls]
                out.append(ContentBlockDelta(delta=cls("\ufffd"), index=index))
        return out


def _replaced(count: int) -> str:
    return f"{count} invalid UTF-8 sequence{'s' * (count > 1)} replaced by U+FFFD"


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return {str: "string", list: "array"}.get(type(value), "number")


def parse_events(*, strict: bool = False) -> Operator[ServerSentEvent | StreamNote, StreamEvent | StreamNote]:
    """Payloads become typed events; ``[DONE]`` is ignored, unknown types pass as :class:`UnknownEvent`.

    Args:
        strict: broken JSON, a payload that is no object, a start without its block end the stream with
            an :class:`EventError`; the default emits a ``stream_note`` of kind ``event_error``.
    """
    return lift(lambda: EventParser(strict), "parse_events")
