"""What is true of one block whatever surrounds it: its problems, marks, images, references, size.

Everything costly (JSON, base64, the walk through nested content) happens here, once a block; the rules that
look at whole conversations only read facts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class Facts:
    """One block's facts; ``problems`` are (rule, path below the block, message)."""

    __slots__ = ("block", "citing", "images", "marks", "problems", "references", "size", "text", "type")

    def __init__(self, block: Any) -> None:
        self.block = block
        kind = block.get("type") if isinstance(block, dict) else None
        self.type: str | None = kind if isinstance(kind, str) else None
        self.text: str | None = None
        self.problems: list[tuple[str, str, str]] = []
        self.marks: list[tuple[str, str]] = []
        """(ttl, path) of each cache mark."""
        self.images: list[tuple[str, int, int]] = []
        """(path, width, height); 0 by 0 where the bytes aren't in the request."""
        self.references: list[tuple[str, str]] = []
        """(path, tool name)."""
        self.citing: list[bool] = []
        """Of each document: whether citations are on."""
        self.size = 0

    def add(self, rule: str, path: str, message: str) -> None:
        self.problems.append((rule, path, message))

    def measure(self) -> None:
        """Its size as JSON, and whether it is JSON at all."""
        self.size = json_size(self.block, self)


def json_size(value: Any, facts: Facts) -> int:
    """Bytes of the compact JSON; notes a lone surrogate or a value that is none."""
    try:
        text = _ENCODE(value)
    except (TypeError, ValueError, RecursionError) as error:
        facts.add("not-json", "", str(error))
        return 0
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        path = next((path for path, string in strings(value) if _is_lone(string)), "")
        facts.add("lone-surrogate", path, "no low surrogate in string")
        return len(text.encode("utf-8", "surrogatepass"))


def _is_lone(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def strings(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every string in a value, keys too, with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            below = f"{path}.{key}" if path else str(key)
            yield below, str(key)
            yield from strings(item, below)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from strings(item, f"{path}.{index}" if path else str(index))
