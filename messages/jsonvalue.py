"""Untyped JSON, in and out, without losing a digit.

Reading: msgspec (keeps integers of any size), then the standard library for lone surrogates.
Refused, so that the caller keeps the text instead (WIRE.md §1, tool input): deeper than
``MAX_DEPTH`` levels, non-finite numbers, integers over 4,300 digits.
Writing: orjson, and where it can't (integers over 64 bits, lone surrogates, over 254 levels) a
fallback, so that whatever can be read can be written.
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

_decode = msgspec.json.Decoder().decode
_SURROGATE = re.compile("[\ud800-\udfff]")
_PAIR_OR_LONE = re.compile("([\ud800-\udbff])([\udc00-\udfff])|[\ud800-\udfff]")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.S)


class JSONValueError(ValueError):
    """The text is no JSON that we can hold without loss; the message says why."""


class UnheldValueError(JSONValueError):
    """The text is JSON, but no value of ours holds it without loss; keep the text."""


def loads(data: bytes | str, *, keep_surrogates: bool = False) -> Any:
    """Read one JSON value.

    Args:
        data: UTF-8 bytes or text.
        keep_surrogates: leave lone surrogates in the strings; the default replaces each by U+FFFD.

    Returns:
        The value.

    Raises:
        JSONValueError: broken, too deep, a non-finite number or a huge integer.
    """
    if _may_be_too_deep(data):
        raise UnheldValueError(f"nested deeper than {MAX_DEPTH} levels")
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


def _may_be_too_deep(data: bytes | str) -> bool:
    if isinstance(data, str):
        if data.count("[") + data.count("{") <= MAX_DEPTH:
            return False
        text = data
    else:
        if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
            return False
        text = data.decode("utf-8", "replace")
    depth = 0
    for token in _TOKEN.finditer(text):
        first = token.group()[0]
        if first in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif first != '"':
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
    """Write one JSON value: compact, non-ASCII as is, lone surrogates as U+FFFD."""
    try:
        return orjson.dumps(value)
    except TypeError:
        pass
    try:
        return msgspec.json.encode(value)
    except (UnicodeError, TypeError, RecursionError):
        value = scrub(value)
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


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
    """A copy of ``value`` in which no string (keys too) holds a surrogate; ``value`` itself if it has none."""
    if isinstance(value, str):
        return scrub_text(value)
    if isinstance(value, dict):
        return {scrub_text(k) if isinstance(k, str) else k: scrub(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [scrub(v) for v in value]
    return value
