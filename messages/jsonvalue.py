"""Untyped JSON, in and out, without losing a digit.

Reading: msgspec (keeps integers of any size), then the standard library for lone surrogates.
Refused, so that the caller keeps the text instead (WIRE.md §1, tool input): deeper than
``MAX_DEPTH`` levels, non-finite numbers, integers over 4,300 digits.
Writing: orjson, and where it can't (integers over 64 bits, lone surrogates, over 254 levels) a
fallback that needs no stack, so that whatever can be read can be written.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

import msgspec
import orjson

__all__ = [
    "MAX_DEPTH",
    "MAX_RECORD_DEPTH",
    "JSONValueError",
    "UnheldValueError",
    "depth_exceeds",
    "dumps",
    "has_surrogates",
    "loads",
    "scrub",
    "scrub_text",
]

MAX_DEPTH = 200
"""Containers may nest this deep; orjson writes only 254, others depend on the stack (WIRE.md §1)."""

MAX_RECORD_DEPTH = 240
"""A whole event or record may nest deeper: a value of ``MAX_DEPTH`` levels stands inside a block, a content
list, a message, an envelope, a tombstone. What was written must be readable again."""

_decode = msgspec.json.Decoder().decode
_SURROGATE = re.compile("[\ud800-\udfff]")
_PAIR_OR_LONE = re.compile("([\ud800-\udbff])([\udc00-\udfff])|[\ud800-\udfff]")
# A string (maybe cut off) or a bracket; possessive, so that a long string costs neither time nor memory.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)


class JSONValueError(ValueError):
    """The text is no JSON that we can hold without loss; the message says why."""


class UnheldValueError(JSONValueError):
    """The text is JSON, but no value of ours holds it without loss; keep the text."""


def loads(data: bytes | str, *, keep_surrogates: bool = False, max_depth: int = MAX_DEPTH) -> Any:
    """Read one JSON value.

    Args:
        data: UTF-8 bytes or text.
        keep_surrogates: leave lone surrogates in the strings; the default replaces each by U+FFFD.
        max_depth: how deep containers may nest.

    Returns:
        The value.

    Raises:
        UnheldValueError: too deep, a non-finite number or a huge integer.
        JSONValueError: broken.
    """
    if _is_too_deep(data, max_depth):
        raise UnheldValueError(f"nested deeper than {max_depth} levels")
    try:
        return _decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        value = _loads_slowly(data, error)
    return value if keep_surrogates else scrub(value)


def _loads_slowly(data: bytes | str, cause: Exception) -> Any:
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except JSONValueError:
        raise
    except json.JSONDecodeError as error:
        raise JSONValueError(str(error)) from None
    except (ValueError, RecursionError) as error:
        # An integer over 4,300 digits, or the stack gave out: the text may well be JSON.
        raise UnheldValueError(str(error) or str(cause)) from None


def _refuse_constant(name: str) -> NoReturn:
    raise JSONValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise UnheldValueError("a number too large for a double")
    return value


def _is_too_deep(data: bytes | str, max_depth: int) -> bool:
    if isinstance(data, str):
        if data.count("[") + data.count("{") <= max_depth:
            return False
        data = data.encode("utf-8", "surrogatepass")
    elif data.count(b"[") + data.count(b"{") <= max_depth:
        return False
    depth = 0
    for match in _TOKEN.finditer(data):
        token = data[match.start()]
        if token in b"[{":
            depth += 1
            if depth > max_depth:
                return True
        elif token in b"]}":
            depth -= 1
    return False


def depth_exceeds(value: Any, limit: int = MAX_DEPTH) -> bool:
    """Whether containers in ``value`` nest deeper than ``limit`` levels (iterative, no recursion)."""
    level: list[Any] = [value]
    depth = 0
    while level:
        deeper: list[Any] = []
        found = False
        for item in level:
            if isinstance(item, dict):
                found = True
                deeper.extend(item.values())
            elif isinstance(item, (list, tuple)):
                found = True
                deeper.extend(item)
        if found:
            depth += 1
            if depth > limit:
                return True
        level = deeper
    return False


def dumps(value: Any) -> bytes:
    """Write one JSON value: compact, non-ASCII as is, lone surrogates as U+FFFD, non-finite numbers as null.

    Raises:
        TypeError: the value holds something that isn't JSON.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        pass
    try:
        return msgspec.json.encode(value)
    except (UnicodeError, TypeError, RecursionError):
        return _dumps_slowly(value)


class _Piece(str):
    """Text of the output, among values that are still to be written."""


def _dumps_slowly(value: Any) -> bytes:
    """The same for any depth and any string, without recursion."""
    out: list[str] = []
    todo: list[Any] = [value]
    while todo:
        item = todo.pop()
        if item.__class__ is _Piece:
            out.append(item)
        elif isinstance(item, str):
            out.append(json.dumps(scrub_text(item), ensure_ascii=False))
        elif isinstance(item, dict):
            out.append("{")
            pieces: list[Any] = []
            for key, inner in item.items():
                name = scrub_text(key) if isinstance(key, str) else json.dumps(key)
                pieces += (_Piece(f"{',' if pieces else ''}{json.dumps(name, ensure_ascii=False)}:"), inner)
            todo.append(_Piece("}"))
            todo += reversed(pieces)
        elif isinstance(item, (list, tuple)):
            out.append("[")
            pieces = []
            for inner in item:
                if pieces:
                    pieces.append(_Piece(","))
                pieces.append(inner)
            todo.append(_Piece("]"))
            todo += reversed(pieces)
        elif isinstance(item, float) and not math.isfinite(item):
            out.append("null")
        else:
            out.append(json.dumps(item))
    return "".join(out).encode()


def has_surrogates(text: str) -> bool:
    """Whether ``text`` holds a surrogate code point, paired or not."""
    return _SURROGATE.search(text) is not None


def scrub_text(text: str) -> str:
    """Join surrogate pairs, replace lone surrogates by U+FFFD."""
    if _SURROGATE.search(text) is None:
        return text
    return _PAIR_OR_LONE.sub(_join, text)


def _join(match: re.Match[str]) -> str:
    high, low = match.group(1), match.group(2)
    if high is None or low is None:
        return "\ufffd"
    return chr(0x10000 + ((ord(high) - 0xD800) << 10) + (ord(low) - 0xDC00))


def scrub(value: Any) -> Any:
    """``value`` without surrogates in any string (keys too): a copy, or itself if it has none.

    Recursive: for values that :func:`loads` returned, whose depth is limited.
    """
    if isinstance(value, str):
        return scrub_text(value)
    if isinstance(value, dict):
        changed = False
        copy: dict[Any, Any] = {}
        for key, item in value.items():
            clean_key = scrub_text(key) if isinstance(key, str) else key
            clean = scrub(item)
            changed = changed or clean is not item or clean_key is not key
            copy[clean_key] = clean
        return copy if changed else value
    if isinstance(value, (list, tuple)):
        changed = False
        items: list[Any] = []
        for item in value:
            clean = scrub(item)
            changed = changed or clean is not item
            items.append(clean)
        return items if changed else value
    return value
