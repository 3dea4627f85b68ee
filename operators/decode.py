"""``decode``: whatever a recording or a response holds becomes server-sent events (WIRE.md §1).

If the response isn't an event stream, what came is decoded by content type and first byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from turnstream.messages.errors import TurnstreamError
from turnstream.messages.types import StreamNote
from turnstream.operators.aws import AWSDecoder, looks_like_aws
from turnstream.operators.frames import ServerSentEvent
from turnstream.operators.ndjson import NDJSONDecoder
from turnstream.operators.sse import MAX_EVENT_BYTES, SSEDecoder
from turnstream.operators.stage import Fault, Operator, Stage, lift

__all__ = ["Decoder", "decode"]

_JSON_TYPES: Final = ("application/json", "application/x-ndjson", "application/jsonl", "application/ndjson")
_OTHER_JSON: Final = (b"[", b'"')
_BOM: Final = b"\xef\xbb\xbf"
# So much white space before the first other byte is no JSON message: a flood must not fill the memory.
_LONGEST_WAIT: Final = 64 * 1024


class Decoder:
    """The stage: waits for the first byte that tells, then hands all bytes to the right decoder.

    A JSON body starts with ``{``, an AWS event stream with a length, whose first byte is zero; everything
    else is read as an event stream (which says so, with a note of kind ``not_sse``, when it holds none).
    """

    def __init__(
        self,
        *,
        content_type: str | None = None,
        final: Literal["discard", "if_json"] = "if_json",
        max_event_bytes: int = MAX_EVENT_BYTES,
        strict: bool = False,
    ) -> None:
        self._final: Literal["discard", "if_json"] = final
        self._limit = max_event_bytes
        self._strict = strict
        self._kept: list[bytes] = []
        self._inner: Stage[bytes, Any] | None = None
        # Servers lie, the first byte doesn't: the type decides only where that is JSON but no object.
        self._json_said = (content_type or "").split(";")[0].strip().lower() in _JSON_TYPES

    def feed(self, batch: Sequence[bytes], /) -> Sequence[ServerSentEvent | StreamNote | Fault]:
        """Take chunks of bytes."""
        inner = self._inner
        if inner is not None:
            return inner.feed(batch)
        self._kept.extend(batch)
        head = b"".join(self._kept)
        if head[:1] == b"\0" and (is_aws := looks_like_aws(head)) is not False:
            if is_aws is None:
                self._kept = [head]
                return ()
            return self._choose_aws().feed((head,))
        rest = head.removeprefix(_BOM).lstrip()
        if (not rest or _BOM.startswith(head)) and len(head) <= _LONGEST_WAIT:
            # Nothing but white space (or half a BOM) yet.
            self._kept = [head]
            return ()
        first = rest[:1]
        return self._choose(head, first == b"{" or (self._json_said and first in _OTHER_JSON)).feed((head,))

    @property
    def sse(self) -> SSEDecoder | None:
        """The decoder, if it is an event stream."""
        inner = self._inner
        return inner if isinstance(inner, SSEDecoder) else None

    def _choose(self, head: bytes, is_json: bool) -> Stage[bytes, Any]:
        self._kept = []
        if is_json:
            self._inner = _AfterBOM(NDJSONDecoder(max_event_bytes=self._limit, strict=self._strict), head)
        else:
            self._inner = SSEDecoder(final=self._final, max_event_bytes=self._limit, strict=self._strict)
        return self._inner

    def _choose_aws(self) -> Stage[bytes, Any]:
        self._kept = []
        try:
            self._inner = AWSDecoder(strict=self._strict)
        except TurnstreamError as error:
            self._inner = _Unreadable(error)
        return self._inner

    def flush(self) -> Sequence[ServerSentEvent | StreamNote | Fault]:
        """The source completed."""
        return self._end(None)

    def fail(self, error: Exception, /) -> Sequence[ServerSentEvent | StreamNote | Fault]:
        """The source broke."""
        return self._end(error)

    def _end(self, error: Exception | None) -> Sequence[ServerSentEvent | StreamNote | Fault]:
        inner = self._inner
        before: Sequence[Any] = ()
        if inner is None:
            head = b"".join(self._kept)
            if not head.removeprefix(_BOM).strip():
                return ()
            inner = self._choose(head, False)
            before = inner.feed((head,))
        return [*before, *(inner.flush() if error is None else inner.fail(error))]


class _Unreadable:
    """Says once why nothing can be read."""

    def __init__(self, error: TurnstreamError) -> None:
        self._said: tuple[Fault, ...] = (Fault(error),)

    def feed(self, batch: Sequence[bytes], /) -> Sequence[Any]:
        said, self._said = self._said, ()
        return said

    def flush(self) -> Sequence[Any]:
        return ()

    def fail(self, error: Exception, /) -> Sequence[Any]:
        return ()


class _AfterBOM:
    """Drops a BOM before the first line of JSON; positions still count it."""

    def __init__(self, inner: NDJSONDecoder, head: bytes) -> None:
        self._inner = inner
        self._skip = head.startswith(_BOM)

    def feed(self, batch: Sequence[bytes], /) -> Sequence[Any]:
        if self._skip:
            self._skip = False
            self._inner.skip(len(_BOM))
            batch = [bytes(batch[0])[len(_BOM) :], *batch[1:]]
        return self._inner.feed(batch)

    def flush(self) -> Sequence[Any]:
        return self._inner.flush()

    def fail(self, error: Exception, /) -> Sequence[Any]:
        return self._inner.fail(error)


def decode(
    *,
    content_type: str | None = None,
    final: Literal["discard", "if_json"] = "if_json",
    max_event_bytes: int = MAX_EVENT_BYTES,
    strict: bool = False,
) -> Operator[bytes, ServerSentEvent | StreamNote]:
    """Bytes of any container become server-sent events: SSE, NDJSON, wrapped NDJSON, one JSON message, AWS frames.

    Args:
        content_type: the response's, where known; the first byte decides where it says more.
        final: what becomes of an unterminated last event, as in :func:`decode_sse`.
        max_event_bytes: the size cap per event; bytes.
        strict: framing problems end the stream with a typed error.
    """
    return lift(
        lambda: Decoder(content_type=content_type, final=final, max_event_bytes=max_event_bytes, strict=strict),
        "decode",
    )
