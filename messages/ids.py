"""Identifiers and time, always parameters: real ones by default, seeded ones for tests and replays."""

from __future__ import annotations

import os
import random
import re
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Protocol

__all__ = [
    "Clock",
    "IdSource",
    "derive_uuid",
    "format_timestamp",
    "random_ids",
    "seeded_clock",
    "seeded_ids",
    "stable_ids",
    "system_clock",
]

# A fixed namespace of our own, uuid5(NAMESPACE_DNS, "turnstream"); never change it: derived ids depend on it.
NAMESPACE: Final = uuid.UUID("d6269dc5-df9e-568a-9731-63fbce0ebbdb")

_IS_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE).fullmatch

Clock = Callable[[], float]
"""Returns wall-clock seconds since the epoch."""


class IdSource(Protocol):
    """Makes one uuid (36 characters) a call.

    ``scope`` says what the id is for (message id, kind, block number …). Random and seeded sources
    ignore it; :func:`stable_ids` derives the id from it.
    """

    def __call__(self, *scope: object) -> str:
        """One new id."""
        ...


# Ready-made version 4 uuids, for the whole process: one system call and one mask for 256 of them. Their digits are
# laid between the dashes a column at a time, which costs a quarter of formatting them one by one.
_POOL_SIZE: Final = 256
_CLEAR: Final = int.from_bytes(bytes.fromhex("ffffffffffff0fff3fffffffffffffff") * _POOL_SIZE)
_SET: Final = int.from_bytes(bytes.fromhex("00000000000040008000000000000000") * _POOL_SIZE)
_LAYOUT: Final = b"xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx\n"
_COLUMNS: Final = tuple(enumerate(at for at, char in enumerate(_LAYOUT) if char == ord("x")))
_pool: list[str] = []


def _random_id(*scope: object) -> str:
    try:
        return _pool.pop()
    except IndexError:
        bits = int.from_bytes(os.urandom(16 * _POOL_SIZE)) & _CLEAR | _SET
        digits = bits.to_bytes(16 * _POOL_SIZE).hex().encode()
        lines = bytearray(_LAYOUT * _POOL_SIZE)
        for digit, at in _COLUMNS:
            lines[at :: len(_LAYOUT)] = digits[digit::32]
        _pool.extend(lines.decode().split())
        return _pool.pop()


# A child process must not make its parent's ids again.
os.register_at_fork(after_in_child=_pool.clear)


def random_ids() -> IdSource:
    """Version 4 uuids from the system's random source."""
    return _random_id


def seeded_ids(seed: int = 0) -> IdSource:
    """The same sequence of version 4 uuids for the same seed."""
    source = random.Random(seed)

    def make(*scope: object) -> str:
        return str(uuid.UUID(int=source.getrandbits(128), version=4))

    return make


def stable_ids(*base: object) -> IdSource:
    """Uuids that depend only on ``base`` and the scope of each call (version 5).

    The same scope asked twice gets a counter, so ids never repeat within one source.
    """
    seen: dict[tuple[object, ...], int] = {}

    def make(*scope: object) -> str:
        count = seen.get(scope, 0)
        seen[scope] = count + 1
        # Each part with its length, so that ("a/b", "c") isn't ("a", "b/c"), nor the second ("a",) an ("a", 1).
        parts = [str(part) for part in (count, *base, *scope)]
        name = "/".join(f"{len(part)}:{part}" for part in parts)
        # A file's name may be no Unicode: its surrogates, and only these, are written out.
        return str(uuid.uuid5(NAMESPACE, name.encode("utf-8", "backslashreplace").decode()))

    return make


def system_clock() -> float:
    """Wall-clock seconds since the epoch."""
    return time.time()


def seeded_clock(start: float = 1_750_000_000.0, step: float = 0.001) -> Clock:
    """A clock that starts at ``start`` (seconds since the epoch) and moves ``step`` seconds a reading."""
    ticks = 0

    def read() -> float:
        nonlocal ticks
        ticks += 1
        return start + (ticks - 1) * step

    return read


_second = 0
_second_text = "1970-01-01T00:00:00."
_millisecond = 0
_millisecond_text = "1970-01-01T00:00:00.000Z"


def format_timestamp(seconds: float) -> str:
    """ISO 8601 in UTC with milliseconds and ``Z`` (WIRE.md §2)."""
    # Whole milliseconds first: 0.001 steps are inexact doubles, and cutting them would lose some. The last
    # text is kept, and that of its second: messages come in bursts, and they cost ten times the rest.
    global _second, _second_text, _millisecond, _millisecond_text
    at = round(seconds * 1000)
    if at != _millisecond:
        whole, milliseconds = divmod(at, 1000)
        if whole != _second:
            _second_text = f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}."
            _second = whole
        _millisecond_text = f"{_second_text}{milliseconds:03d}Z"
        _millisecond = at
    return _millisecond_text


def derive_uuid(parent: str, index: int) -> str:
    """The id of part ``index`` of the message ``parent`` (WIRE.md §2).

    The first 24 characters of the parent and the index as 12 hex digits, so the same split always
    gives the same ids. A parent that is no uuid, or an index beyond 12 hex digits, gets a version 5
    uuid in a fixed namespace.
    """
    if 0 <= index < 1 << 48 and _IS_UUID(parent):
        return f"{parent[:24]}{index:012x}"
    return str(uuid.uuid5(NAMESPACE, f"{parent}/{index}".encode("utf-8", "backslashreplace").decode()))
