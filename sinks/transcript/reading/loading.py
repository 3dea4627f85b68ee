"""The messages of a transcript in the order of the file, for replay and inspection."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

from turnstream.messages.codec import from_wire
from turnstream.messages.types import Message, OpaqueRecord, Tombstone
from turnstream.sinks.transcript.reading.content import fast_message
from turnstream.sinks.transcript.reading.records import RecordReport, read_records

__all__ = ["load_messages"]


def load_messages(
    source: str | os.PathLike[str] | BinaryIO, *, start: int = 0, report: RecordReport | None = None
) -> Iterator[Message]:
    """Every record of a transcript as a message, one after the other, each with its line in ``raw``.

    Nothing is linked, bridged or mended. Records of other types and pieces that are none come as
    :class:`~turnstream.messages.OpaqueRecord`, what only fills a place doesn't come. A tombstone record names what it
    takes back as ``message={"uuid": …}``. Memory: one line.

    Args:
        source: a path, or a file open for binary reading.
        start: the offset of a line to begin at.
        report: is called for each record that has a problem, just before its message.

    Raises:
        OSError: it can't be opened or read.
    """
    for record in read_records(source, start=start, report=report):
        if record.is_filler:
            continue
        message: Message
        if record.value is None:
            message = OpaqueRecord(type=None, problem=record.problem)
        else:
            message = fast_message(record.value) or from_wire(record.value)
            if isinstance(message, Tombstone):
                _name_target(message)
        message.__dict__["raw"] = record.raw  # pyright: ignore[reportIndexIssue]
        yield message


def _name_target(message: Tombstone) -> None:
    """A tombstone on disk holds only the uuid of what it takes back."""
    target = (message.extra or {}).get("targetUuid")
    if message.message is None and isinstance(target, str):
        message.message = {"uuid": target}
