"""Reading messages from a file: a transcript, NDJSON of messages, or a run's ``stream-json`` output.

Record by record, so that the size of a file doesn't matter. What a record is, is found out one by one, too.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from turnstream.messages.codec import decode_line
from turnstream.messages.sdk import from_sdk
from turnstream.messages.types import RESULT_TYPES, Message, OpaqueRecord
from turnstream.sinks.transcript.reading import records
from turnstream.sinks.transcript.reading.content import fast_message

__all__ = [
    "BadLine",
    "Record",
    "conversation",
    "is_sidechain",
    "open_input",
    "read_records",
    "shown_name",
]


@dataclass(frozen=True, slots=True)
class Record:
    """A message, and where it stood.

    Attributes:
        line: from 1.
        offset: of the line's first byte.
        message: what the line holds.
    """

    line: int
    offset: int
    message: Message


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that holds no record, or one that can't be read.

    Attributes:
        line: from 1.
        offset: of the line's first byte.
        problem: why, in words.
    """

    line: int
    offset: int
    problem: str


def shown_name(name: str) -> str:
    """How an input is called in what people read."""
    return "standard input" if name == "-" else name


def open_input(name: str) -> contextlib.AbstractContextManager[BinaryIO]:
    """The file's bytes; ``-`` is standard input, which stays open.

    Raises:
        OSError: it can't be opened.
    """
    if name != "-":
        return open(name, "rb")
    if sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed")
    return contextlib.nullcontext(sys.stdin.buffer)


def read_records(stream: BinaryIO) -> Iterator[Record | BadLine]:
    """The records of a file, as a transcript's reader finds them; what was taken back (fillers) is passed over.

    Records of ``stream-json`` (they name a ``session_id``) are translated.

    Raises:
        OSError: reading failed.
    """
    for record in records.read_records(stream):
        if record.is_filler:
            continue
        if record.value is None:
            yield BadLine(record.line, record.offset, record.problem or "not a JSON object")
            continue
        for message in _messages(record.value, record.raw):
            if isinstance(message, OpaqueRecord) and message.problem is not None:
                yield BadLine(record.line, record.offset, message.problem)
            else:
                yield Record(record.line, record.offset, message)


def _messages(value: dict[str, Any], raw: bytes) -> Iterable[Message]:
    if "session_id" in value and "sessionId" not in value:
        return from_sdk([value])
    return (fast_message(value) or decode_line(raw),)


def is_sidechain(message: Any) -> bool:
    """Whether the message is a sub-agent's: its line says so, or names the tool call that it works for."""
    extra = getattr(message, "extra", None)
    if not extra:
        return False
    return extra.get("isSidechain") is True or isinstance(extra.get("parentToolUseID"), str)


def conversation(messages: Iterable[Message]) -> list[Message]:
    """The messages of one conversation, in the order of the file.

    A sub-agent's messages are left out, unless there are no others (its own file). Of records with the same
    uuid the last one counts, in the place of the first.
    """
    everything = list(messages)
    main = [message for message in everything if not is_sidechain(message)]
    if not any(isinstance(message, RESULT_TYPES) for message in main):
        main = everything
    places: dict[str, int] = {}
    out: list[Message] = []
    for message in main:
        uuid = getattr(message, "uuid", None)
        if not isinstance(uuid, str) or not uuid:
            out.append(message)
        elif (place := places.get(uuid)) is not None and isinstance(message, type(out[place])):
            out[place] = message
        else:
            places[uuid] = len(out)
            out.append(message)
    return out
