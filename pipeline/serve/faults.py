"""What a replay server can do wrong, and how that is written: ``cut-after=3,slow=0.5,times=2`` (docs/serve.md).

A text holds faults in turn, parted by ``;``; each is some words, parted by ``,``. Each fault lasts for ``times=K``
requests, without it for one; the last one without it lasts for ever. After the last, everything is well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

__all__ = ["ERROR_TYPES", "FaultSchedule", "FaultSpec", "Place", "parse_faults"]

Place: TypeAlias = int | str
"""How many events are sent before: a number, or the word for a place in the answer (:data:`PLACES`)."""

PLACES: Final = ("start", "thinking", "text", "tool", "blocks", "stop-reason")
"""Behind ``message_start``; the first delta of thinking, of text, of a tool's input; the last block; the last
``message_delta``."""

ERROR_TYPES: Final[dict[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    502: "api_error",
    503: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""The error types that the API names with a status."""

End: TypeAlias = Literal["stall", "pings", "cut", "close", "eof", "garbage", "overloaded", "half-utf8"]
Body: TypeAlias = Literal["json-body", "sse-body", "no-content", "empty", "html"]

_ENDS: Final[tuple[End, ...]] = ("stall", "pings", "cut", "close", "eof", "garbage", "overloaded", "half-utf8")
_BODIES: Final[tuple[Body, ...]] = ("json-body", "sse-body", "no-content", "empty", "html")
_PING_SECONDS: Final = 10.0


class FaultSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One fault, or some at once; nothing set: none.

    Attributes:
        end: how the stream ends before its end, ``at`` which place.
        bad_json: before the event behind this place stands one whose payload is half an object.
        status: the request is refused with it; ``retry_after`` is the header's seconds.
        error_type: the type in the error, instead of the usual one.
        body: what comes instead of the stream (or, for ``sse-body``, instead of the JSON).
        content_type: a wrong header.
        slow: seconds before each event.
        first_byte: seconds before the headers; infinite: they never come.
        keepalive: seconds between pings while nothing else comes; ``comments`` likewise for comment lines.
        crlf: line ends are CRLF; ``no_event_names``: there are no ``event:`` lines.
        only: requests it is for: all, those that stream, those that don't.
        times: requests it lasts for, None for the rule of the schedule.
        text: as it was written.
    """

    end: End | None = None
    at: Place = 0
    bad_json: Place | None = None
    status: int | None = None
    retry_after: float | None = None
    error_type: str | None = None
    body: Body | None = None
    content_type: str | None = None
    slow: float = 0.0
    first_byte: float = 0.0
    keepalive: float | None = None
    comments: float | None = None
    crlf: bool = False
    no_event_names: bool = False
    only: Literal["stream", "json"] | None = None
    times: int | None = None
    text: str = "none"

    @property
    def breaks(self) -> bool:
        """Whether the client doesn't get its answer."""
        return (
            self.end is not None
            or self.status is not None
            or self.body in ("no-content", "empty", "html")
            or math.isinf(self.first_byte)
        )


def _seconds(word: str, value: str, *, positive: bool = False) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf or (positive and seconds == 0):
        raise ValueError(f"{word}={value}: seconds {'above zero' if positive else 'from zero on'} are needed")
    return seconds


def _place(word: str, value: str) -> Place:
    if value.isascii() and value.isdecimal():
        return int(value)
    if value not in PLACES:
        raise ValueError(f"{word}={value}: a number of events is needed, or one of {', '.join(PLACES)}")
    return value


def _times(word: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal()) or int(value) < 1:
        raise ValueError(f"{word}={value}: a number of requests is needed, 1 or more")
    return int(value)


def _only(word: str, value: str) -> str:
    if value not in ("stream", "json"):
        raise ValueError(f"{word}={value}: `stream` or `json` is needed")
    return value


def _header(word: str, value: str) -> str:
    if not value or not value.isascii() or not value.isprintable():
        raise ValueError(f"{word}={value!r} isn't what a header or a type may hold")
    return value


_VALUES: Final[dict[str, tuple[str, Callable[[str, str], Any]]]] = {
    "slow": ("slow", _seconds),
    "keepalive": ("keepalive", lambda word, value: _seconds(word, value, positive=True)),
    "comments": ("comments", lambda word, value: _seconds(word, value, positive=True)),
    "error-type": ("error_type", _header),
    "only": ("only", _only),
    "times": ("times", _times),
}
_DEFAULTS: Final[dict[str, tuple[str, Callable[[str, str], Any], Any]]] = {
    "first-byte-stall": ("first_byte", _seconds, math.inf),
    "content-type": ("content_type", _header, "text/plain"),
}
_FLAGS: Final = {"crlf": "crlf", "no-event-names": "no_event_names"}


def _known() -> str:
    placed = [f"{name}[-after=N]" for name in (*_ENDS, "bad-json")]
    valued = [f"{name}=…" for name in _VALUES] + [f"{name}[=…]" for name in _DEFAULTS]
    statuses = [f"{status}[=SECONDS]" for status in ERROR_TYPES]
    return ", ".join([*placed, *_BODIES, *_FLAGS, *valued, *statuses, "none"])


def _parse_one(text: str) -> FaultSpec:
    """One fault, of words parted by commas."""
    fields: dict[str, Any] = {}

    def put(field: str, value: Any) -> None:
        if field in fields:
            raise ValueError(f"the fault {text!r} says twice what can be said once ({field.replace('_', '-')})")
        fields[field] = value

    for word in [word.strip() for word in text.split(",")]:
        name, equals, value = word.partition("=")
        base = name.removesuffix("-after")
        if name == "none" and not equals:
            continue
        if (base in _ENDS or base == "bad-json") and (base != name) == bool(equals):
            place = _place(name, value) if equals else 0
            if base == "bad-json":
                put("bad_json", place)
            else:
                put("end", base)
                fields["at"] = place
        elif name in _BODIES and not equals:
            put("body", name)
        elif name in _FLAGS and not equals:
            put(_FLAGS[name], True)
        elif name.isdecimal() and name.isascii() and int(name) in ERROR_TYPES:
            put("status", int(name))
            if equals or name == "429":
                fields["retry_after"] = _seconds(name, value if equals else "1")
        elif name in _VALUES and equals:
            field, read = _VALUES[name]
            put(field, read(name, value))
        elif name in _DEFAULTS:
            field, read, default = _DEFAULTS[name]
            put(field, read(name, value) if equals else default)
        else:
            raise ValueError(f"unknown fault {word!r}; known are {_known()}")
    if fields.get("end") == "pings":
        fields.setdefault("keepalive", _PING_SECONDS)
    _check(text, fields)
    return FaultSpec(**fields, text=text)


def _check(text: str, fields: dict[str, Any]) -> None:
    """Refuse what contradicts itself.

    Raises:
        ValueError: it does.
    """
    stream = "end" in fields or "bad_json" in fields
    if fields.get("body") in ("empty", "html") and stream:
        raise ValueError(f"the fault {text!r} has no stream that could break")
    if "status" in fields and (stream or fields.get("body") not in (None, "html", "empty")):
        raise ValueError(f"the fault {text!r} refuses the request and answers it")
    if "keepalive" in fields and "comments" in fields:
        raise ValueError(f"the fault {text!r} has two kinds of signs of life")


def parse_faults(text: str | Iterable[str]) -> tuple[FaultSpec, ...]:
    """Read faults that are taken in turn.

    Args:
        text: as on the command line; several texts are one after the other.

    Raises:
        ValueError: a word is unknown, or words contradict each other.
    """
    texts = [text] if isinstance(text, str) else list(text)
    return tuple(_parse_one(part.strip()) for each in texts for part in each.split(";"))


class FaultSchedule:
    """Which request meets which fault.

    Args:
        faults: in turn; see :func:`parse_faults`.
    """

    def __init__(self, faults: Sequence[FaultSpec] = ()) -> None:
        last = len(faults) - 1
        self._left: list[tuple[FaultSpec, float]] = []
        for number, fault in enumerate(faults):
            lasts = fault.times if fault.times is not None else math.inf if number == last else 1
            self._left.append((fault, lasts))

    def next(self, *, stream: bool) -> tuple[FaultSpec, bool]:
        """The fault of the next request, and whether it will be over some time.

        Args:
            stream: whether the request asks for a stream; a fault that isn't for it isn't used up.
        """
        if not self._left:
            return _NONE, False
        fault, left = self._left[0]
        if fault.only is not None and (fault.only == "stream") != stream:
            return _NONE, False
        if left > 1:
            self._left[0] = (fault, left - 1)
        else:
            del self._left[0]
        return fault, not math.isinf(left)


_NONE: Final = FaultSpec()
