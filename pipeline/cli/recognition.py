"""What a FILE of ``replay`` holds: a stream's events, or messages that were recorded; its first records tell."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

from turnstream.messages.jsonvalue import MAX_RECORD_DEPTH, JSONValueError, loads
from turnstream.messages.wire_fields import WIRE_TYPES
from turnstream.operators.stage import Chain, Operator, Stage, lift
from turnstream.sources.record_items import is_outer_form

__all__ = ["EVENTS", "HEAD", "Found", "Kind", "look", "recognise", "recognising"]

Kind = Literal["events", "transcript", "stream-json", "items"]

HEAD: Final = 256 * 1024
"""Bytes that are looked at, at most."""

_BOM: Final = b"\xef\xbb\xbf"
# Keys of a transcript's lines …
_CHAINED: Final = frozenset({"sessionId", "parentUuid", "isSidechain"})
# … and of its records with a type of their own (summary, snapshots, titles …).
_BESIDE: Final = frozenset({"sessionId", "leafUuid", "leafUUID", "messageId", "snapshot", "customTitle", "targetUuid"})
# In a line that is longer than the head, or torn; inside a string the quotes would be escaped.
_CUT: Final = re.compile(rb'"(?:parentUuid|isSidechain|sessionId)"\s*:')
_CUT_OUTER: Final = re.compile(rb'"(?:session_id|parent_tool_use_id)"\s*:')

_WORDS: Final[dict[Kind, str]] = {
    "events": "a stream of events",
    "transcript": "a transcript",
    "stream-json": "a run's stream-json output",
    "items": "recorded items",
}


class Found(NamedTuple):
    """What a file holds.

    Attributes:
        kind: ``events`` is all that isn't recognised as something else: the decoder tells what it is.
        session_id: a transcript's, None where no record that was looked at names it.
    """

    kind: Kind
    session_id: str | None = None

    @property
    def words(self) -> str:
        """For people."""
        return _WORDS[self.kind]


EVENTS: Final = Found("events")


def look(name: str) -> Found | None:
    """What a file holds; None for what can't be looked at without taking it (a pipe).

    A file that can't be read counts as events: opening it for playing tells why.
    """
    try:
        if not stat.S_ISREG(os.stat(name).st_mode):
            return None
        with open(name, "rb", buffering=0) as file:
            return recognise(file.read(HEAD), final=True)
    except (OSError, ValueError):
        return EVENTS


def recognise(head: bytes, *, final: bool) -> Found | None:
    """What begins with ``head``.

    Args:
        head: the first bytes.
        final: no more will be looked at.

    Returns:
        None if it takes more bytes to tell; never with ``final``.
    """
    maybe: Found | None = None
    *lines, rest = head.removeprefix(_BOM).split(b"\n")
    for line in lines:
        if not (text := line.strip()):
            continue
        if not text.startswith(b"{"):
            return maybe or EVENTS  # also where one JSON message stands on several lines
        found, sure = _verdict(text)
        if found is not None and sure:
            return _of_session(found, maybe)
        maybe = maybe or found
    rest = rest.strip()
    if rest and not rest.startswith(b"{"):
        return maybe or EVENTS
    if not final:
        return None
    if rest:
        found, _ = _verdict(rest)
        return _of_session(found, maybe) if found is not None else maybe or _cut_off(rest)
    return maybe or EVENTS


def _of_session(found: Found, before: Found | None) -> Found:
    """What was found, with the session that a record before it named."""
    if before is None:
        return found
    if found.kind == "events":
        return before
    return found if found.session_id is not None else found._replace(session_id=before.session_id)


def _verdict(line: bytes) -> tuple[Found | None, bool]:
    """What a line says, None if it is no record, and whether that settles it."""
    try:
        value = loads(line, max_depth=MAX_RECORD_DEPTH)
    except JSONValueError:
        return None, False  # torn; the next one tells
    if not isinstance(value, dict):
        return None, False
    kind = value.get("type")
    session = value.get("sessionId")
    session = session if isinstance(session, str) and session else None
    if isinstance(kind, str) and kind in WIRE_TYPES:
        if is_outer_form(value):
            return Found("stream-json"), True
        return Found("transcript" if not _CHAINED.isdisjoint(value) else "items", session), True
    if not _BESIDE.isdisjoint(value):
        return Found("transcript", session), False
    if isinstance(kind, str) and "session_id" in value:
        return Found("stream-json"), False
    return EVENTS, True


def _cut_off(line: bytes) -> Found:
    if _CUT.search(line):
        return Found("transcript")
    return Found("stream-json") if _CUT_OUTER.search(line) else EVENTS


def recognising(make: Callable[[Found], Operator[bytes, Any]]) -> Operator[bytes, Any]:
    """The stages for what comes, made when its first bytes have told what it is: for pipes.

    Args:
        make: called once for each stream.
    """
    return lift(lambda: _Recognising(make), "recognising")


class _Recognising(Stage[bytes, Any]):
    def __init__(self, make: Callable[[Found], Operator[bytes, Any]]) -> None:
        self._make = make
        self._chain: Chain | None = None
        self._head = b""

    @property
    def plain(self) -> bool:
        """As the last stage says of its last batch."""
        return self._chain is not None and getattr(self._chain.last, "plain", False)

    def feed(self, batch: Sequence[bytes], /) -> Sequence[Any]:
        if self._chain is not None:
            return self._chain.feed(batch)
        self._head += b"".join(map(bytes, batch))
        found = recognise(self._head[:HEAD], final=len(self._head) >= HEAD)
        return self._begin(found) if found is not None else ()

    def _begin(self, found: Found) -> Sequence[Any]:
        self._chain = self._make(found).chain()
        head, self._head = self._head, b""
        return self._chain.feed((head,)) if head else ()

    def _over(self, end: Callable[[Chain], Sequence[Any]]) -> Sequence[Any]:
        begun: Sequence[Any] = ()
        if self._chain is None:
            begun = self._begin(recognise(self._head, final=True) or EVENTS)
        assert self._chain is not None
        return [*begun, *(() if self._chain.broken else end(self._chain))]

    def flush(self) -> Sequence[Any]:
        return self._over(Chain.flush)

    def fail(self, error: Exception, /) -> Sequence[Any]:
        return self._over(lambda chain: chain.fail(error))
