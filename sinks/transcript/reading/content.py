"""The content of members: their lines are read again, in large pieces, and made messages (WIRE.md §3)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, Final

import msgspec

from turnstream.messages.codec import decode_line, from_wire
from turnstream.messages.jsonvalue import JSONValueError
from turnstream.messages.names import to_wire_name
from turnstream.messages.types import (
    AssistantMessage,
    AttachmentMessage,
    Message,
    OpaqueRecord,
    UserMessage,
)
from turnstream.operators.normalize.thinking import THINKING
from turnstream.sinks.transcript.reading.heads import Member
from turnstream.sinks.transcript.reading.records import decode_record

__all__ = ["Content", "Lines", "answered_ids", "asked_ids", "fast_message", "message_of"]

_WINDOW: Final = 1 << 18
# As :data:`turnstream.operators.normalize.thinking.THINKING`; a tuple, for a type may be anything.
_THINKING: Final = tuple(THINKING)


class Lines:
    """Reads the lines of members by their place in the file.

    Positions are read without moving the file's own (``pread``), so the file may be gone on with.

    Args:
        file: a regular file.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._fd = file.fileno()

    def one(self, member: Member) -> bytes:
        """The line of one member."""
        return os.pread(self._fd, member.size, member.offset)

    def many(self, members: Iterable[Member]) -> Iterator[tuple[Member, bytes]]:
        """The lines of members that are in the order of the file. Memory: a window of 256 KiB, or one line."""
        fd, read = self._fd, os.pread
        start, window, end = 0, b"", 0
        for member in members:
            at, size = member.offset, member.size
            if at < start or at + size > end:
                start = at
                window = read(fd, max(size, _WINDOW), start)
                end = start + len(window)
            at -= start
            yield member, window[at : at + size]


class Content:
    """The messages of members, and which tool calls they hold or answer.

    Attributes:
        messages: index → message.
        asked: index → the ids of its tool calls; only of those that have any.
        answered: index → the ids of the tool calls it holds results of; only of those that have any.
        thinking: indexes of those that hold thinking.
    """

    def __init__(self) -> None:
        self.messages: dict[int, Message] = {}
        self.asked: dict[int, list[str]] = {}
        self.answered: dict[int, list[str]] = {}
        self.thinking: set[int] = set()

    def read(self, lines: Lines, members: Iterable[Member], unread: Callable[[Member, Message], None]) -> None:
        """Read members in the order of the file.

        Args:
            lines: of the file.
            members: to read.
            unread: is told of a member whose line can't be read, or isn't its line any more.
        """
        messages, asked, answered, thinking = self.messages, self.asked, self.answered, self.thinking
        for member, line in lines.many(members):
            message: Any = message_of(line)
            kind = message.__class__
            if kind is OpaqueRecord or (member.uuid and message.uuid != member.uuid):
                unread(member, message)
                continue
            at = member.index
            messages[at] = message
            if kind is UserMessage:
                content, calls = message.message.get("content"), answered
            elif kind is AssistantMessage:
                content, calls = message.message.get("content"), asked
            else:
                continue
            if content.__class__ is not list:
                continue
            for block in content:
                if block.__class__ is not dict:
                    continue
                what = block.get("type")
                if what == "text":
                    continue
                if calls is answered:
                    ident = block.get("tool_use_id") if what == "tool_result" else None
                elif what == "tool_use":
                    ident = block.get("id")
                else:
                    if what in _THINKING:
                        thinking.add(at)
                    continue
                if isinstance(ident, str):
                    if at in calls:
                        calls[at].append(ident)
                    else:
                        calls[at] = [ident]


def asked_ids(message: Any) -> list[str]:
    """The ids of the client's tool calls in a message."""
    return _ids(message, "tool_use", "id") if message.__class__ is AssistantMessage else []


def answered_ids(message: Any) -> list[str]:
    """The ids of the tool calls that a message holds results of."""
    return _ids(message, "tool_result", "tool_use_id") if message.__class__ is UserMessage else []


def _ids(message: AssistantMessage | UserMessage, kind: str, key: str) -> list[str]:
    content: Any = message.message.get("content")
    if content.__class__ is not list:
        return []
    return [
        ident
        for block in content
        if block.__class__ is dict and block.get("type") == kind and isinstance(ident := block.get(key), str)
    ]


def message_of(line: bytes) -> Message:
    """:func:`turnstream.messages.decode_line`, with a shorter way for the lines that most lines are like."""
    try:
        value = decode_record(line)
    except JSONValueError:
        return decode_line(line)
    message: Any = fast_message(value)
    if message is None:
        message = from_wire(value) if value.__class__ is dict else decode_line(line)
    message.raw = line  # put into its __dict__
    return message  # type: ignore[no-any-return]


# A line with one of these keys is read by the general way, which knows what each may hold.
def _optional(cls: type[msgspec.Struct], *common: str) -> frozenset[str]:
    names = {to_wire_name(name) for name in cls.__struct_fields__}
    return frozenset(names - {"extra", *common})


_COMMON: Final = ("message", "uuid", "timestamp")
_USER: Final = _optional(UserMessage, *_COMMON, "toolUseResult", "sourceToolAssistantUUID")
_ASSISTANT: Final = _optional(AssistantMessage, *_COMMON, "requestId")
_ATTACHMENT: Final = _optional(AttachmentMessage, "attachment", "uuid", "timestamp")
_UNSET: Final = msgspec.UNSET


def fast_message(value: Any) -> Message | None:
    """The message of a record whose keys are the usual ones; it takes ``value`` over. None for all others."""
    if value.__class__ is not dict:
        return None
    kind = value.get("type")
    if kind == "assistant":
        if not _ASSISTANT.isdisjoint(value):
            return None
        message, uuid, timestamp = value.get("message"), value.get("uuid"), value.get("timestamp")
        request = value.get("requestId", "")
        if (
            message.__class__ is dict
            and uuid.__class__ is str
            and timestamp.__class__ is str
            and request.__class__ is str
        ):
            del value["type"], value["message"], value["uuid"], value["timestamp"]
            return AssistantMessage(
                message=message,
                uuid=uuid,
                timestamp=timestamp,
                request_id=value.pop("requestId", None),
                extra=value or None,
            )
    elif kind == "user":
        if not _USER.isdisjoint(value):
            return None
        message, uuid, timestamp = value.get("message"), value.get("uuid"), value.get("timestamp")
        source = value.get("sourceToolAssistantUUID", "")
        if (
            message.__class__ is dict
            and uuid.__class__ is str
            and timestamp.__class__ is str
            and source.__class__ is str
        ):
            del value["type"], value["message"], value["uuid"], value["timestamp"]
            return UserMessage(
                message=message,
                uuid=uuid,
                timestamp=timestamp,
                tool_use_result=value.pop("toolUseResult", _UNSET),
                source_tool_assistant_uuid=value.pop("sourceToolAssistantUUID", None),
                extra=value or None,
            )
    elif kind == "attachment":
        if not _ATTACHMENT.isdisjoint(value):
            return None
        payload, uuid, timestamp = value.get("attachment"), value.get("uuid"), value.get("timestamp")
        if payload.__class__ is dict and uuid.__class__ is str and timestamp.__class__ is str:
            del value["type"], value["attachment"], value["uuid"], value["timestamp"]
            return AttachmentMessage(attachment=payload, uuid=uuid, timestamp=timestamp, extra=value or None)
    return None
