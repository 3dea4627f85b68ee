"""Reading messages from a file: a transcript, NDJSON of messages, or a run's ``stream-json`` output.

Line by line, so that the size of a file doesn't matter. What a line is, is found out line by line, too.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from turnstream.messages.codec import decode_line
from turnstream.messages.jsonvalue import MAX_RECORD_DEPTH, JSONValueError, loads
from turnstream.messages.sdk import from_sdk
from turnstream.messages.types import RESULT_TYPES, Message, OpaqueRecord

__all__ = [
    "BadLine",
    "Record",
    "conversation",
    "is_sidechain",
    "open_input",
    "read_records",
    "shown_name",
]

MAX_LINE: Final = 256 * 1024 * 1024
"""Bytes: a longer line is reported and passed over (a device without line ends must not fill the memory)."""

_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Record:
    """A message, where it stood, and how long its line is.

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
    """The lines of a file; empty ones are passed over.

    A line ends at LF only. Lines of ``stream-json`` (they name a ``session_id``) are translated.

    Raises:
        OSError: reading failed.
    """
    offset = 0
    number = 0
    while line := stream.readline(MAX_LINE + 1):
        number += 1
        start = offset
        offset += len(line)
        if len(line) > MAX_LINE and not line.endswith(b"\n"):
            while (rest := stream.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                offset += len(rest)
            offset += len(rest)
            yield BadLine(number, start, f"longer than {MAX_LINE // 1024 // 1024} MiB")
            continue
        if number == 1:
            line = line.removeprefix(_BOM)
        line = line.removesuffix(b"\n")
        if not line.strip():
            continue
        for message in _messages(line):
            if isinstance(message, OpaqueRecord) and message.problem is not None:
                yield BadLine(number, start, message.problem)
            else:
                yield Record(number, start, message)


def _messages(line: bytes) -> Iterable[Message]:
    # The cheap question first: few lines hold the word at all, and in some of them it is somebody's text.
    if b'"session_id"' in line:
        with contextlib.suppress(JSONValueError):
            value = loads(line, max_depth=MAX_RECORD_DEPTH)
            if isinstance(value, dict) and "session_id" in value and "sessionId" not in value:
                return from_sdk([value])
    return (decode_line(line),)


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
