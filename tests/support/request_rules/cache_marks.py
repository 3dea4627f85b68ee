"""cache_control: its shape where it stands, its number and order over the whole request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from request_rules.facts import Facts
from request_rules.rules import Violation


def note_mark(facts: Facts, holder: dict[str, Any], path: str) -> None:
    """Note the mark of a block, a tool or the body."""
    mark = holder.get("cache_control")
    if mark is None:
        return
    where = f"{path}cache_control"
    ttl = "5m"
    if not isinstance(mark, dict):
        facts.add("cache-shape", where, "Input should be an object")
    else:
        if mark.get("type") != "ephemeral":
            facts.add("cache-shape", f"{where}.type", "the expected tag is 'ephemeral'")
        ttl = mark.get("ttl", "5m")
        if ttl not in ("5m", "1h"):
            facts.add("cache-shape", f"{where}.ttl", "Input should be '5m' or '1h'")
            ttl = "5m"
        for name in sorted(map(str, mark.keys() - {"type", "ttl"})):
            facts.add("cache-shape", f"{where}.{name}", "Extra inputs are not permitted")
    facts.marks.append((ttl, where))


def check_marks(marks: Sequence[tuple[str, str]], limit: int, reserved: int = 0) -> list[Violation]:
    """Number and order of all marks, in the order of the prompt: tools, system, messages, the body's own."""
    out: list[Violation] = []
    if len(marks) + reserved > limit:
        out.append(
            Violation(
                "cache-too-many",
                marks[-1][1] if marks else "",
                f"A maximum of {limit} blocks with cache_control may be provided. Found {len(marks) + reserved}.",
            )
        )
    short = False
    for ttl, path in marks:
        if ttl == "1h" and short:
            out.append(Violation("cache-ttl-order", path, "a ttl='1h' mark must not come after a ttl='5m' mark"))
        short = short or ttl == "5m"
    return out
