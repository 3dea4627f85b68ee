"""Where the recordings are, and their tables. They aren't part of the repository: tests skip without them."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "TURNSTREAM_RECORDINGS"

# What a whole set holds (recordings' EXPECTED.md); used to say how much was skipped.
FILES_WITH_EXPECTATION = 317

skipped: set[str] = set()
"""What wasn't tested for want of recordings; the terminal summary prints it."""


def folder() -> Path | None:
    """The recordings' folder, None if it isn't there."""
    path = Path(os.environ.get(VARIABLE) or ROOT.parent / "shared" / "recordings")
    return path if (path / "EXPECTED.tsv").is_file() else None


def need(what: str) -> Path:
    """The folder, or skip the running test and note ``what`` it would have read."""
    path = folder()
    if path is None:
        skipped.add(what)
        pytest.skip(f"no recordings: set {VARIABLE} (default ../shared/recordings) to test {what}")
    return path


def _table(name: str) -> list[dict[str, str]]:
    path = folder()
    if path is None:
        return []
    lines = (path / name).read_text(encoding="utf-8").splitlines()
    header = lines[0].split("\t")
    return [dict(zip(header, line.split("\t"), strict=True)) for line in lines[1:]]


@cache
def expected() -> dict[str, list[dict[str, str]]]:
    """EXPECTED.tsv: file → its rows; empty without recordings."""
    out: dict[str, list[dict[str, str]]] = {}
    for row in _table("EXPECTED.tsv"):
        out.setdefault(row["file"], []).append(row)
    return out


@cache
def index() -> list[dict[str, str]]:
    """INDEX.tsv's rows; empty without recordings."""
    return _table("INDEX.tsv")


def facts(row: dict[str, str]) -> dict[str, list[str]]:
    """The ``special`` column taken apart: key → its comma-separated values; a bare word has none."""
    out: dict[str, list[str]] = {}
    for part in row["special"].split(";"):
        key, _, value = part.strip().partition("=")
        if key:
            out.setdefault(key, []).extend(v.strip() for v in value.split(",") if v.strip())
    return out


@cache
def read(name: str) -> bytes:
    """A recording's bytes."""
    path = folder()
    assert path is not None
    return (path / name).read_bytes()


def names(suffixes: tuple[str, ...] = (".sse", ".ndjson")) -> list[Any]:
    """The files of EXPECTED.tsv with one of ``suffixes``, to parametrize with; without recordings one skipped case."""
    if folder() is None:
        reason = f"no recordings: set {VARIABLE} (default ../shared/recordings)"
        return [pytest.param("no recordings", marks=pytest.mark.skip(reason=reason))]
    return [name for name in expected() if name.endswith(suffixes)]
