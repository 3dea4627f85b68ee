"""Errors inside of an answer without secrets: a gateway that refuses a key in its stream may quote it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from turnstream.messages.events import ErrorEvent
from turnstream.messages.types import ResponseFailed

__all__ = ["hush", "quiet_of"]

_ERRORS: Final = frozenset({ErrorEvent, ResponseFailed})


def quiet_of(source: Any) -> Callable[[str], str] | None:
    """What takes a source's secrets out of a text (``quiet``), None if it has none."""
    quiet: Callable[[str], str] | None = getattr(source, "quiet", None)
    return quiet


def hush(items: Sequence[Any], quiet: Callable[[str], str] | None) -> Sequence[Any]:
    """``items`` with secrets taken out of what errors say.

    Nothing else is touched: what the model writes may be the key itself, on its way into a file.
    """
    if quiet is None or _ERRORS.isdisjoint(map(type, items)):
        return items
    return [
        msgspec.structs.replace(item, error=_without(item.error, quiet)) if item.__class__ in _ERRORS else item
        for item in items
    ]


def _without(value: Any, quiet: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return quiet(value)
    if isinstance(value, dict):
        return {key: _without(inner, quiet) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without(inner, quiet) for inner in value]
    return value
