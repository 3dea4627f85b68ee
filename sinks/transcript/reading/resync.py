"""Finding records again on a line that holds more than one, or a piece of one (WIRE.md §3; FAULTS.md 44, 45).

Two writers without a lock, or a write that broke off and was gone on with, leave lines such as ``{…}{…}`` or
``{"type":"user","mess{…}``. What is whole is a record; the rest is kept as a piece.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

from turnstream.messages.jsonvalue import MAX_RECORD_DEPTH, JSONValueError, loads

__all__ = ["Piece", "split_line"]

# Where a record may begin inside a line: one of the keys that writers put first. Inside a string the quote would be
# escaped, so text that quotes a transcript doesn't match.
_BEGIN: Final = re.compile(
    r'\{[ \t]*"(?:parentUuid|logicalParentUuid|isSidechain|type|uuid|sessionId|session_id|summary|leafUuid|timestamp'
    r'|messageId|customTitle|userType|cwd|message|subtype|operation|agentId)"[ \t]*:'
)
_CHAIN: Final = frozenset({"user", "assistant", "system", "attachment", "progress"})
# One of these stands in every record that isn't part of the conversation, and in no content block.
_MARKS: Final = ("sessionId", "session_id", "leafUuid", "messageId", "targetUuid", "customTitle", "snapshot")
_SPACE: Final = " \t\r\0"


class Piece(NamedTuple):
    """A part of a line: a record's bytes with its value, or bytes that are none (value None)."""

    raw: bytes
    value: dict[str, Any] | None


def split_line(raw: bytes) -> list[Piece] | None:
    """The parts of a line that isn't one JSON value; joined they are the line.

    Returns:
        None if no record can be found in it.
    """
    # Surrogate escapes keep broken bytes, so that positions in the text can become positions in the line.
    text = raw.decode("utf-8", "surrogateescape")
    pieces: list[Piece] = []
    found = False
    done = 0  # what is before this position is in `pieces`
    begins = iter(_begins(text))
    # A hostile line could make every attempt run to its end: what all of them may read is bounded.
    budget = 8 * len(text) + (1 << 20)
    for begin in begins:
        if begin < done:
            continue
        end, read = _object_end(text, begin)
        budget -= read
        if budget < 0:
            break
        if end is None or not _stands_alone(text, end):
            continue
        value = _value(text[begin:end])
        if value is None or not (_is_record(value) or not text[done:begin].strip(_SPACE)):
            continue
        if begin > done:
            pieces.append(Piece(_bytes(text[done:begin]), None))
        pieces.append(Piece(_bytes(text[begin:end]), value))
        done = end
        found = True
    if not found:
        return None
    if done < len(text):
        pieces.append(Piece(_bytes(text[done:]), None))
    return pieces


def _begins(text: str) -> list[int]:
    begins = [match.start() for match in _BEGIN.finditer(text)]
    first = len(text) - len(text.lstrip(_SPACE))
    if text.startswith("{", first) and (not begins or begins[0] != first):
        begins.insert(0, first)
    return begins


_scan: Final[Any] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # as raw_decode, with plain errors


def _object_end(text: str, begin: int) -> tuple[int | None, int]:
    """Where the object that begins here ends, None if it doesn't, and how many characters were read to know."""
    try:
        end = _scan(text, begin)[1]
    except StopIteration as stop:
        at = stop.value if isinstance(stop.value, int) else len(text)
        return None, max(at - begin, 1)
    except json.JSONDecodeError as error:
        # Of a string that doesn't end the error names the beginning, and it was read to its end.
        at = len(text) if error.msg.startswith("Unterminated") else error.pos
        return None, max(at - begin, 1)
    except (ValueError, RecursionError):
        return None, len(text) - begin
    return end, end - begin


def _stands_alone(text: str, end: int) -> bool:
    """Whether an object that ends here is one of the line's own: inside another a comma or a bracket would follow."""
    while end < len(text) and text[end] in _SPACE:
        end += 1
    return end == len(text) or text[end] not in ",]}:"


def _value(text: str) -> dict[str, Any] | None:
    try:
        value = loads(_bytes(text), max_depth=MAX_RECORD_DEPTH)
    except JSONValueError:
        return None
    return value if isinstance(value, dict) else None


def _is_record(value: dict[str, Any]) -> bool:
    """Whether it is a record and not a block or a message out of one that is torn."""
    kind = value.get("type")
    if not isinstance(kind, str):
        return False
    if kind in _CHAIN:
        return isinstance(value.get("uuid"), str) and not value.keys().isdisjoint(("message", "sessionId", "timestamp"))
    return not value.keys().isdisjoint(_MARKS)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
