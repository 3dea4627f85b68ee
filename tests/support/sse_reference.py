"""A second event-stream decoder, written from the WHATWG's text, a character at a time: slow, whole files only.

HTML standard, "Parsing an event stream" and "Interpreting an event stream". Beside them it knows only what
WIRE.md §1 adds: numbers, offsets and the size of an event.
"""

from __future__ import annotations

from typing import NamedTuple


class Dispatched(NamedTuple):
    event: str
    data: str
    id: str
    retry: int | None
    number: int
    offset: int


class TooLarge(NamedTuple):
    size: int
    number: int
    offset: int


class _Line(NamedTuple):
    start: int
    text: str
    end: int  # after its line end


def _lines(stream: bytes) -> tuple[list[_Line], bytes]:
    """The terminated lines, and what follows the last line end."""
    lines = []
    at = start = 3 if stream[:3] == b"\xef\xbb\xbf" else 0
    while at < len(stream):
        if stream[at] == 0x0D and at + 1 < len(stream) and stream[at + 1] == 0x0A:
            width = 2
        elif stream[at] in (0x0D, 0x0A):
            width = 1
        else:
            at += 1
            continue
        lines.append(_Line(start, stream[start:at].decode("utf-8", "replace"), at + width))
        at = start = at + width
    return lines, stream[start:]


def decode(stream: bytes, limit: int | None = None) -> list[Dispatched | TooLarge]:
    """What a browser would dispatch; ``limit`` is the size at which an event counts as too large."""
    out: list[Dispatched | TooLarge] = []
    lines, tail = _lines(stream)
    last_id = ""
    number = 0
    retry: int | None = None
    block: list[_Line] = []
    for line in lines:
        if line.text != "":
            block.append(line)
            continue
        if not block:
            continue
        size = line.start - block[0].start
        if limit is not None and size > limit:
            number += 1
            out.append(TooLarge(size, number, block[0].start))
            block, retry = [], None
            continue
        data_buffer = event_buffer = ""
        for _, text, _ in block:
            if text[0] == ":":
                continue
            field, value = text, ""
            if ":" in text:
                field, value = text[: text.index(":")], text[text.index(":") + 1 :]
                if value != "" and value[0] == " ":
                    value = value[1:]
            if field == "event":
                event_buffer = value
            elif field == "data":
                data_buffer += value + "\n"
            elif field == "id" and "\0" not in value:
                last_id = value
            elif field == "retry" and value and all(c in "0123456789" for c in value):
                retry = int(value)
        offset = block[0].start
        block = []
        if data_buffer == "":
            continue
        number += 1
        out.append(Dispatched(event_buffer, data_buffer[:-1], last_id, retry, number, offset))
        retry = None
    open_size = len(stream) - block[0].start if block else len(tail)
    if limit is not None and open_size > limit:
        out.append(TooLarge(open_size, number + 1, block[0].start if block else len(stream) - len(tail)))
    return out
