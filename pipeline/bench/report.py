"""A benchmark run for reading: tables of plain text."""

from __future__ import annotations

from collections.abc import Sequence

from turnstream.bench.bars import Check
from turnstream.bench.rows import Decades, Growth, Live, Row, SessionTime, Transcripts
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


def _decades(decades: Sequence[Decades]) -> str:
    head = ("µs a message, in", *(f"{size:,}" for size in decades[0].messages), "ratios")
    lines = [
        (
            each.operation,
            *(f"{microseconds:.2f}" for microseconds in each.us_per_message),
            ", ".join(f"{ratio:.2f}" for ratio in each.ratios),
        )
        for each in decades
    ]
    return "\n".join(_columns(head, lines, 1))


def _session(session: SessionTime) -> str:
    return (
        f"a session of {session.messages:,} messages to {session.items:,} items of a display: "
        f"{session.milliseconds:.1f} ms"
    )


def _transcripts(found: Transcripts) -> list[str]:
    head: tuple[str, ...] = ("transcript", "MB", "records", "ms", "bare loop, ms", "share of its speed", "spread")
    lines: list[tuple[str, ...]] = [
        (
            each.operation,
            f"{each.bytes / 1e6:.1f}",
            f"{each.records:,}",
            f"{each.milliseconds:.1f}",
            f"{each.floor_milliseconds:.1f}",
            f"{each.speed:.2f}",
            f"{each.speed_min:.2f}–{each.speed_max:.2f}",
        )
        for each in found.against
    ]
    parts = ["\n".join(_columns(head, lines, 1))]
    if found.growth:
        head = (
            "MB a CPU second, files of",
            *(f"{size:,.0f} MB" for size in found.growth[0].megabytes),
            "cost of a byte",
        )
        lines = [
            (
                each.operation,
                *(f"{speed:.0f}" for speed in each.megabytes_per_cpu_second),
                ", ".join(f"{ratio:.2f}" for ratio in each.ratios),
            )
            for each in found.growth
        ]
        parts.append("\n".join(_columns(head, lines, 1)))
    if found.touched:
        head = ("change", "of MB", "ms", "bytes read", "bytes written")
        lines = [
            (
                each.operation,
                f"{each.file_bytes / 1e6:,.0f}",
                f"{each.milliseconds:.1f}",
                f"{each.read:,}",
                f"{each.written:,}",
            )
            for each in found.touched
        ]
        parts.append("\n".join(_columns(head, lines, 1)))
    listing = found.listing
    again = (
        ""
        if listing.second_read is None
        else f", {listing.second_read:,} bytes read (its cache: {listing.index_bytes:,})"
    )
    parts.append(
        f"{listing.sessions:,} sessions of {listing.transcript_bytes / 1e6:.1f} MB listed: "
        f"{listing.first_milliseconds:.0f} ms; again: {listing.second_milliseconds:.0f} ms{again}"
    )
    return parts


def _live(found: Live) -> list[str]:
    head: tuple[str, ...] = (
        "live, an event alone",
        "loop",
        "CPU µs/event",
        "× bare",
        "spread",
        "events/read",
        "events",
    )
    lines: list[tuple[str, ...]] = [
        (
            each.client,
            each.loop,
            f"{each.us_per_event:.1f}",
            f"{each.ratio:.2f}",
            f"{each.ratio_min:.2f}–{each.ratio_max:.2f}",
            f"{each.events_per_read:.2f}",
            f"{each.events:,}",
        )
        for each in found.costs
    ]
    parts = ["\n".join(_columns(head, lines, 2))]
    head = ("streams at 50 events/s", "keeps up with", "p99", "not with", "p99", "server late", "ours ×")
    lines = [
        (
            each.client,
            f"{each.streams:,}",
            _milliseconds(each.p99_ms),
            "" if each.failed is None else f"{each.failed:,}",
            _milliseconds(each.failed_p99_ms),
            _milliseconds(each.server_late_ms),
            "" if each.ours is None else f"{each.ours:.2f}",
        )
        for each in found.streams
    ]
    parts.append("\n".join(_columns(head, lines, 1)))
    head = ("KB an idle stream", "Python's", "resident", "streams")
    lines = [
        (
            each.client,
            f"{each.heap_bytes / 1000:.1f}",
            "" if each.resident_bytes is None else f"{each.resident_bytes / 1000:.1f}",
            f"{each.streams:,}",
        )
        for each in found.idle
    ]
    parts.append("\n".join(_columns(head, lines, 1)))
    return parts


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f} ms"


def _checks(checks: Sequence[Check]) -> str:
    lines = [
        (
            each.what,
            f"{each.value:,.0f}" if each.value >= 1000 else f"{each.value:.2f}",
            f"≤ {each.at_most:,.10g}" if each.at_most is not None else f"≥ {each.at_least:g}",
            "" if each.aim is None else f"{each.aim:g}",
            "met" if each.met else "NOT MET",
        )
        for each in checks
    ]
    return "\n".join(_columns(("figure", "measured", "bar", "aim", ""), lines, 1))


def _way(report: Report) -> str:
    """How the figures were come by."""
    ways = []
    if report.rows:
        ways.append(f"medians of {report.rows[0].rounds} interleaved rounds, ratios within a round")
    if report.decades:
        ways.append("of messages the best of all rounds")
    if report.transcripts is not None:
        rounds = report.transcripts.against[0].rounds
        ways.append(f"of transcripts medians of {rounds} rounds beside a bare loop, of growth the best")
    if report.live is not None:
        ways.append(f"of live streams medians of {report.live.costs[0].rounds} rounds of CPU time beside a bare loop")
    return "; ".join(ways)


def render(report: Report) -> str:
    """All of a report: where, the rows, the growth, the bars."""
    where = report.environment
    packages = ", ".join(f"{name} {number}" for name, number in where["packages"].items())
    size = "full size" if report.scale == 1 else f"{report.scale:g} of the full size: the bars are for the full size"
    machine = f"{where['implementation']} {where['python']}, {where['system']} {where['machine']}, {where['cpus']} CPUs"
    parts = [
        "\n".join(
            (
                f"{machine}, load {where['load']} at the end; node {where['node'] or 'none'}",
                packages,
                f"{size}; {_way(report)}",
            )
        )
    ]
    if report.rows:
        parts.append(table(report.rows))
    if report.growth:
        parts.append(_growth(report.growth))
    if report.decades:
        parts.append(_decades(report.decades))
    if report.session is not None:
        parts.append(_session(report.session))
    if report.transcripts is not None:
        parts += _transcripts(report.transcripts)
    if report.live is not None:
        parts += _live(report.live)
    if report.checks:
        parts.append(_checks(report.checks))
    return "\n\n".join(parts)
