"""Changing one value in a JSON line and leaving every other byte as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from turnstream.messages.jsonvalue import MAX_RECORD_DEPTH, JSONValueError, dumps, loads

__all__ = ["nearly_json", "set_key", "without_invalid_utf8", "without_lone_surrogates"]

# A string, or what structures; possessive, so that a long string costs neither time nor memory.
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]:,]', re.DOTALL)
_ESCAPE: Final = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
# What JSON doesn't know: in strings an escape or a raw control character, outside of them a number.
_WRONG: Final = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|(\\)|([\x01-\x1f])')
_NO_NUMBER: Final = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+")|-?\b(?:NaN|Infinity)\b', re.DOTALL)
_REPLACEMENT: Final = rb"\ufffd"


class _Member(NamedTuple):
    """A member of the outermost object: where its key begins, and its value from where to where."""

    key: bytes
    begin: int
    value: int
    end: int


def _members(raw: bytes) -> Iterator[_Member]:
    depth = 0
    begin = key_end = value = -1
    expecting = False
    for match in _TOKEN.finditer(raw):
        token = raw[match.start()]
        if token in b"{[":
            depth += 1
            expecting = depth == 1
            continue
        if token in b"}]":
            depth -= 1
            if depth == 0 and value >= 0:
                yield _Member(raw[begin:key_end], begin, value, _rstrip(raw, value, match.start()))
            if depth == 0:
                return
            continue
        if depth != 1:
            continue
        if token == 0x22 and expecting:
            begin, key_end, expecting = match.start(), match.end(), False
        elif token == 0x3A and value < 0:  # a colon
            value = match.end()
            while raw[value : value + 1].isspace():
                value += 1
        elif token == 0x2C:  # a comma
            yield _Member(raw[begin:key_end], begin, value, _rstrip(raw, value, match.start()))
            value, expecting = -1, True


def _rstrip(raw: bytes, start: int, end: int) -> int:
    while end > start and raw[end - 1 : end].isspace():
        end -= 1
    return end


def _named(raw: bytes, key: str) -> list[_Member]:
    plain = b'"' + key.encode() + b'"'
    return [m for m in _members(raw) if m.key == plain or (b"\\" in m.key and loads(m.key) == key)]


def set_key(raw: bytes, key: str, value: Any) -> bytes:
    """The line with ``key`` of its object set to ``value``; a new key stands first.

    Args:
        raw: a JSON object.
        key: plain ASCII.
        value: JSON.
    """
    new = dumps(value)
    line = raw
    found = _named(raw, key)
    if found:
        for member in reversed(found):
            line = line[: member.value] + new + line[member.end :]
    else:
        at = raw.index(b"{") + 1
        comma = b"" if raw[at:].lstrip().startswith(b"}") else b","
        line = raw[:at] + dumps(key) + b":" + new + comma + raw[at:]
    if not _says(line, key, value):
        # No known line gets here; a line that says something else must not be written.
        whole = loads(raw, max_depth=MAX_RECORD_DEPTH)
        line = dumps({**whole, key: value})
    return line


def _says(line: bytes, key: str, value: Any) -> bool:
    try:
        now = loads(line, max_depth=MAX_RECORD_DEPTH)
    except JSONValueError:
        return False
    return isinstance(now, dict) and bool(now.get(key) == value)


def without_lone_surrogates(raw: bytes) -> bytes:
    r"""The line with U+FFFD for each ``\uD800`` … that isn't half of a pair; the same object if there is none."""
    if b"\\ud" not in raw and b"\\uD" not in raw:
        return raw
    lone: list[tuple[int, int]] = []
    high: tuple[int, int] | None = None
    for match in _ESCAPE.finditer(raw):
        code = int(match[1], 16) if match[1] is not None else 0
        if high is not None:
            if 0xDC00 <= code <= 0xDFFF and match.start() == high[1]:
                high = None
                continue
            lone.append(high)
            high = None
        if 0xD800 <= code <= 0xDBFF:
            high = match.span()
        elif 0xDC00 <= code <= 0xDFFF:
            lone.append(match.span())
    if high is not None:
        lone.append(high)
    if not lone:
        return raw
    out: list[bytes] = []
    done = 0
    for start, end in lone:
        out += (raw[done:start], _REPLACEMENT)
        done = end
    out.append(raw[done:])
    return b"".join(out)


def without_invalid_utf8(raw: bytes) -> bytes:
    """The line with U+FFFD for what is no UTF-8; the same object if there is nothing."""
    if raw.isascii():
        return raw
    try:
        raw.decode()
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace").encode()
    return raw


def nearly_json(raw: bytes) -> bytes | None:
    r"""The line with its small offences mended, None if that doesn't make it a JSON object.

    A backslash that begins no escape becomes one that is text (a redaction that cut ``\u2705`` in the middle), a raw
    control character is escaped (NUL isn't: nobody wrote that), ``NaN`` and ``Infinity`` become null.
    """
    line = _NO_NUMBER.sub(_proper, raw)
    try:
        value = loads(line, max_depth=MAX_RECORD_DEPTH)
    except JSONValueError:
        return None
    return line if isinstance(value, dict) else None


def _proper(match: re.Match[bytes]) -> bytes:
    return _WRONG.sub(_escaped, match[1]) if match[1] is not None else b"null"


def _escaped(match: re.Match[bytes]) -> bytes:
    if match[1] is not None:
        return b"\\\\"
    if match[2] is not None:
        return b"\\u%04x" % match[2][0]
    return match[0]
