"""Strings that the API takes: no surrogates, no blank text (WIRE.md §4, repair; FAULTS.md 20, 65, 66, 76)."""

from __future__ import annotations

from typing import Any, Final

import orjson

from turnstream.messages.jsonvalue import dumps, scrub
from turnstream.messages.texts import NO_CONTENT

__all__ = ["NO_CONTENT", "as_text", "inner_text", "is_blank", "scrubbed", "stand_in", "text_block"]

_DEPTH: Final = 3


def is_blank(text: str) -> bool:
    """Whether a text says nothing: empty, or white space alone."""
    return not text or text.isspace()


def text_block(text: str) -> dict[str, Any]:
    """A text as a block."""
    return {"type": "text", "text": text}


def scrubbed(value: Any) -> Any:
    """``value`` with every surrogate in its strings and keys replaced by U+FFFD; itself if it has none.

    orjson refuses surrogates, so most values cost one encoding and no walk.
    """
    try:
        orjson.dumps(value)
    except TypeError:
        try:
            return scrub(value)
        except RecursionError:
            return as_text(value)
    return value


def as_text(value: Any) -> str:
    """A JSON value as text, for a place that takes text only: a string as it is, else its JSON."""
    if isinstance(value, str):
        return value
    try:
        return dumps(value).decode()
    except TypeError:
        return str(value)


def inner_text(value: Any, depth: int = _DEPTH) -> str:
    """What a block of an unknown kind says: the strings under ``text`` and ``content``, and in lists, joined by LF."""
    if isinstance(value, str):
        return "" if is_blank(value) else value
    if depth == 0:
        return ""
    if isinstance(value, list):
        parts = [inner_text(item, depth - 1) for item in value]
    elif isinstance(value, dict):
        parts = [inner_text(value[key], depth - 1) for key in ("text", "content", "resource") if key in value]
    else:
        return ""
    return "\n".join(part for part in parts if part)


def stand_in(kind: str, why: str, title: Any = None) -> str:
    """The text in place of an image or a document that can't be sent."""
    name = f'{kind} "{title}"' if isinstance(title, str) and not is_blank(title) else kind
    return f"[{name} left out: {why}]"
