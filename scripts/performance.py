"""Refresh docs/performance.md and docs/performance.svg from one run: performance.py BENCH.json [DOCS].

BENCH.json is what ``turnstream bench --peers --json`` printed; DOCS is the folder, docs/ by default. The tables are
those of the command, put between the page's two markers. The plot is written by hand, so nothing needs to be
installed for it.
"""

from __future__ import annotations

import math
import sys
from html import escape
from pathlib import Path

import msgspec

from turnstream.bench import Growth, Report, Row, render

WIDTH = 860
LEFT = 285
RIGHT = WIDTH - 60
BAR = 11
BEGIN, END = "<!-- tables -->", "<!-- end of tables -->"
COLORS = {"16 KiB": "#1f6feb", "1 event": "#d29922"}
TITLES = {
    "A": "A: one answer of 250,000 small deltas",
    "B": "B: one tool input of 2 MB",
    "C": "C: 2,000 short answers with tools",
}
HIDDEN = ("orjson alone", "split only", "split + msgspec", "three stages")
BOTTOM, TOP = 0.2, 1000.0
"""Where the logarithmic axis begins and ends, × floor."""


def text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 12, weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}">'
        f"{escape(words)}</text>"
    )


def place(ratio: float) -> float:
    """Where a ratio lies on the logarithmic axis."""
    share = math.log10(max(ratio, BOTTOM) / BOTTOM) / math.log10(TOP / BOTTOM)
    return LEFT + (RIGHT - LEFT) * min(share, 1.0)


def panel(letter: str, rows: list[Row], y: float) -> tuple[list[str], float]:
    """One workload: a pair of bars for each contender, shortest first. Returns SVG and the y below."""
    out: list[str] = []
    shown = [row for row in rows if row.workload.split("/")[0] == letter and not row.contender.startswith(HIDDEN)]
    # Those measured on a tenth bring the floor and ours along again.
    names = list(dict.fromkeys(row.contender for row in shown))
    ratios = {(row.contender, row.chunking): row.ratio for row in reversed(shown)}
    names.sort(key=lambda name: ratios.get((name, "16 KiB"), TOP))
    out.append(text(12, y, TITLES[letter], size=14, weight="bold"))
    top = y + 10
    bottom = top + len(names) * (2 * BAR + 8) + 4
    for tick in (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000):
        x = place(tick)
        strong = tick == 1
        out.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}" '
            f'stroke="{"#57606a" if strong else "#d0d7de"}" stroke-width="{1.5 if strong else 1}"/>'
        )
        out.append(text(x, bottom + 14, f"{tick:g}", anchor="middle", size=11))
    y = top + 6
    for name in names:
        ours = name == "bytes to three sinks"
        label = "turnstream: bytes to three sinks" if ours else name
        out.append(text(LEFT - 8, y + BAR + 4, label, anchor="end", weight="bold" if ours else "normal"))
        for chunking, color in COLORS.items():
            ratio = ratios.get((name, chunking))
            if ratio is not None:
                end = place(ratio)
                out.append(
                    f'<rect x="{LEFT}" y="{y:.1f}" width="{end - LEFT:.1f}" height="{BAR - 1}" fill="{color}"'
                    f' opacity="{1 if ours else 0.65}"/>'
                )
                out.append(text(end + 4, y + BAR - 2, f"{ratio:.3g}", size=10))
            y += BAR
        y += 8
    return out, bottom + 44


def growth_panel(growth: list[Growth], y: float) -> tuple[list[str], float]:
    """Time over size for workload B: straight lines are linear growth."""
    out: list[str] = []
    out.append(text(12, y, "B: time over the size of one tool input (both axes linear)", size=14, weight="bold"))
    top, bottom = y + 16, y + 206
    sizes = [0.25, 0.5, 1.0, 2.0]
    most = max(max(each.milliseconds) for each in growth) * 1.1
    out.append(f'<path d="M{LEFT} {top}V{bottom}H{RIGHT}" fill="none" stroke="#57606a"/>')
    for size in sizes:
        x = LEFT + (RIGHT - LEFT) * size / 2.2
        out.append(text(x, bottom + 15, f"{size:g} MB", anchor="middle", size=11))
    for part in (0.25, 0.5, 0.75, 1.0):
        at = bottom - (bottom - top) * part
        out.append(f'<line x1="{LEFT}" x2="{RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#d0d7de"/>')
        out.append(text(LEFT - 8, at + 4, f"{most * part:.0f} ms", anchor="end", size=11))
    for each, color in zip(growth, ("#57606a", "#1f6feb"), strict=False):
        points = [
            (LEFT + (RIGHT - LEFT) * size / 2.2, bottom - (bottom - top) * milliseconds / most)
            for size, milliseconds in zip(sizes, each.milliseconds, strict=True)
        ]
        line = " ".join(f"{x:.1f},{at:.1f}" for x, at in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        for x, at in points:
            out.append(f'<circle cx="{x:.1f}" cy="{at:.1f}" r="3.5" fill="{color}"/>')
    for number, (each, color) in enumerate(zip(growth, ("#57606a", "#1f6feb"), strict=False)):
        at = top + 14 + number * 18
        out.append(f'<rect x="{LEFT + 14}" y="{at - 9}" width="12" height="10" fill="{color}"/>')
        out.append(text(LEFT + 32, at, each.contender))
    return out, bottom + 40


def plot(report: Report) -> str:
    """The whole picture as SVG."""
    parts: list[str] = []
    y = 70.0
    letters = [letter for letter in TITLES if any(row.workload == letter for row in report.rows)]
    for letter in letters:
        svg, y = panel(letter, report.rows, y)
        parts += svg
    if report.growth:
        svg, y = growth_panel(report.growth, y)
        parts += svg
    legend = [
        text(12, 24, "Time, × the floor (the plain loop) in the same run; logarithmic; shorter is faster", size=15)
    ]
    x = 12
    for chunking, color in COLORS.items():
        legend.append(f'<rect x="{x}" y="34" width="12" height="10" fill="{color}"/>')
        legend.append(text(x + 17, 43, {"16 KiB": "16 KiB chunks", "1 event": "one event a chunk"}[chunking]))
        x += 130
    body = "\n".join([*legend, *parts])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y:.0f}" width="{WIDTH}" height="{y:.0f}" '
        f'font-family="system-ui, sans-serif" fill="#1f2328" role="img">\n<title>turnstream and others, times the '
        f'floor</title>\n<rect width="100%" height="100%" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def main() -> None:
    """Read the run, write the plot and the page's tables."""
    report = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Report)
    docs = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).resolve().parents[1] / "docs"
    (docs / "performance.svg").write_text(plot(report), encoding="utf-8")
    page = docs / "performance.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n```\n{render(report)}\n```\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
