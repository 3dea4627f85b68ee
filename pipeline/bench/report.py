"""A benchmark run for reading: tables of plain text."""

from __future__ import annotations

from collections.abc import Sequence

from turnstream.bench.bars import Check
from turnstream.bench.rows import Growth, Row
from turnstream.bench.runner import Report

__all__ = ["render", "table"]


def _columns(head: Sequence[str], lines: Sequence[Sequence[str]], left: int) -> list[str]:
    """Lines in columns; the first ``left`` ones start at the left, the others end at the right."""
    widths = [max(len(line[column]) for line in (head, *lines)) for column in range(len(head))]
    return [
        "  ".join(
            text.ljust(width) if column < left else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in (head, *lines)
    ]


def table(rows: Sequence[Row]) -> str:
    """The rows, an empty line between measurements."""
    head = ("workload", "chunks", "contender", "µs/event", "× floor", "spread", "× ours", "events")
    lines = [
        (
            row.workload,
            row.chunking,
            row.contender,
            f"{row.us_per_event:.3f}",
            f"{row.ratio:.2f}",
            f"{row.ratio_min:.2f}–{row.ratio_max:.2f}",
            "" if row.to_ours is None else f"{row.to_ours:.2f}",
            f"{row.events:,}",
        )
        for row in rows
    ]
    out = _columns(head, lines, 3)
    spaced = out[:1]
    last = None
    for row, line in zip(rows, out[1:], strict=True):
        if (row.workload, row.chunking) != last:
            spaced.append("")
        last = (row.workload, row.chunking)
        spaced.append(line)
    return "\n".join(spaced)


def _growth(growth: Sequence[Growth]) -> str:
    head = ("growth", *growth[0].workloads, "doublings")
    lines = [
        (
            each.contender,
            *(f"{milliseconds:.1f} ms" for milliseconds in each.milliseconds),
            ", ".join(f"{doubling:.2f}" for doubling in each.doublings),
        )
        for each in growth
    ]
    return "\n".join(_columns(head, lines, 1))


def _checks(checks: Sequence[Check]) -> str:
    lines = [
        (
            each.what,
            f"{each.value:.2f}",
            f"≤ {each.at_most:g}" if each.at_most is not None else f"≥ {each.at_least:g}",
            "" if each.aim is None else f"{each.aim:g}",
            "met" if each.met else "NOT MET",
        )
        for each in checks
    ]
    return "\n".join(_columns(("figure", "measured", "bar", "aim", ""), lines, 1))


def render(report: Report) -> str:
    """All of a report: where, the rows, the growth, the bars."""
    where = report.environment
    packages = ", ".join(f"{name} {number}" for name, number in where["packages"].items())
    rounds = report.rows[0].rounds if report.rows else 0
    size = "full size" if report.scale == 1 else f"{report.scale:g} of the full size: the bars are for the full size"
    machine = f"{where['implementation']} {where['python']}, {where['system']} {where['machine']}, {where['cpus']} CPUs"
    parts = [
        "\n".join(
            (
                f"{machine}, load {where['load']} at the end; node {where['node'] or 'none'}",
                packages,
                f"{size}; medians of {rounds} interleaved rounds, ratios within a round",
            )
        ),
        table(report.rows),
    ]
    if report.growth:
        parts.append(_growth(report.growth))
    if report.checks:
        parts.append(_checks(report.checks))
    return "\n\n".join(parts)
