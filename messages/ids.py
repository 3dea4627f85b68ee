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


def random_ids() -> IdSource:
    """Version 4 uuids from a pool of random bytes: one system call for 256 ids."""
    pool = b""
    at = 0

    def make(*scope: object) -> str:
        nonlocal pool, at
        if at >= len(pool):
            pool = os.urandom(4096)
            at = 0
        h = pool[at : at + 16].hex()
        at += 16
        # version 4, variant 10xx
        return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-{'89ab'[int(h[16], 16) & 3]}{h[17:20]}-{h[20:]}"

    return make


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
        return str(uuid.uuid5(NAMESPACE, "/".join(f"{len(part)}:{part}" for part in parts)))

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


def format_timestamp(seconds: float) -> str:
    """ISO 8601 in UTC with milliseconds and ``Z`` (WIRE.md §2)."""
    # Whole milliseconds first: 0.001 steps are inexact doubles, and cutting them would lose some. The
    # text of the second is kept: messages come in bursts, and it costs ten times the rest.
    global _second, _second_text
    whole, milliseconds = divmod(round(seconds * 1000), 1000)
    if whole != _second:
        _second_text = f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}."
        _second = whole
    return f"{_second_text}{milliseconds:03d}Z"


def derive_uuid(parent: str, index: int) -> str:
    """The id of part ``index`` of the message ``parent`` (WIRE.md §2).

    The first 24 characters of the parent and the index as 12 hex digits, so the same split always
    gives the same ids. A parent that is no uuid, or an index beyond 12 hex digits, gets a version 5
    uuid in a fixed namespace.
    """
    if 0 <= index < 1 << 48 and _IS_UUID(parent):
        return f"{parent[:24]}{index:012x}"
    return str(uuid.uuid5(NAMESPACE, f"{parent}/{index}"))
