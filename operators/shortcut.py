"""The short cut through decode, parse and accumulate for what a live stream has most: a chunk of one event or two.

Each of the three stages costs little, and a good part of that is what it takes to be called and to hand on. Here is
the same in one step, and less for a delta to the open block; whatever isn't plain goes through the stages. Nothing is
done before that is sure, so no state is held twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from turnstream.messages.events import ContentBlockDelta, InputJsonDelta, TextDelta
from turnstream.operators.decode import Decoder
from turnstream.operators.events import EventParser, Parsed, decode_event
from turnstream.operators.frames import Frames, lf_payloads
from turnstream.operators.sse import SSEDecoder

if TYPE_CHECKING:
    from turnstream.operators.accumulate import Accumulator

__all__ = ["ShortCut", "short_cut"]

ShortCut: TypeAlias = Callable[[Any], Sequence[Any] | None]
"""Takes a chunk and returns what the stages would; None if they have to take it."""

_CR: Final = 13


def short_cut(first: Any, second: Any, accumulator: Any) -> ShortCut | None:
    """The short cut of these stages, None if the first two aren't those that it goes by.

    Args:
        first: an :class:`SSEDecoder`, or a :class:`Decoder` (while it has chosen one).
        second: an :class:`EventParser`.
        accumulator: the third.
    """
    if second.__class__ is not EventParser or first.__class__ not in (SSEDecoder, Decoder):
        return None
    sniffing: Any = first
    parser: EventParser = second
    last: Accumulator = accumulator
    chosen: SSEDecoder | None = first if isinstance(first, SSEDecoder) else None

    def take(chunk: Any) -> Sequence[Any] | None:
        nonlocal chosen
        decoder = chosen
        if decoder is None:
            decoder = chosen = sniffing.sse
            if decoder is None:
                return None
        if (
            chunk.__class__ is not bytes
            or not 0 < len(chunk) <= decoder.brief
            or decoder.rest
            or decoder.odd
            or parser.held
            or _CR in chunk
        ):
            return None
        payloads = lf_payloads(chunk)
        payload = payloads[-1]
        if not payload:
            return None
        items: list[Any]
        try:
            if len(payloads) == 1:
                event: Any = decode_event(payload)
                if event.__class__ is ContentBlockDelta and event.index == last.hot_index:
                    delta: Any = event.delta
                    cls = delta.__class__
                    if cls is last.hot_class:
                        if cls is TextDelta:
                            last.hot_append(delta.text)
                        elif cls is InputJsonDelta:
                            last.hot_append(delta.partial_json)
                        else:
                            last.hot_append(delta.thinking)
                        decoder.last_number = decoder.number = decoder.number + 1
                        decoder.last_offset = offset = decoder.offset
                        decoder.offset = offset + len(chunk)
                        last.seen += 1
                        last.last = decoder
                        last.plain = True
                        return (event,)
                items = [event]
            else:
                items = list(map(decode_event, payloads))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        number = decoder.number + 1
        offset = decoder.offset
        decoder.number += len(payloads)
        decoder.offset += len(chunk)
        return last.feed(Parsed(items, Frames(payloads, chunk, number, offset, decoder.last_id)))

    return take
