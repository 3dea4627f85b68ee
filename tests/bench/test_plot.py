"""scripts/performance.py: the plot and the tables of docs/performance.md from one run's JSON."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import msgspec

from turnstream.bench import Growth, Report, Row

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "performance.py"
SVG = "{http://www.w3.org/2000/svg}"


def row(contender: str, chunking: str, ratio: float, workload: str = "A") -> Row:
    return Row(
        workload=workload,
        chunking=chunking,
        contender=contender,
        events=10,
        us_per_event=1.0,
        ratio=ratio,
        ratio_min=ratio,
        ratio_max=ratio,
        to_ours=1.0,
        rounds=5,
    )


def test_the_page_gets_the_tables_and_the_plot_every_ratio(tmp_path: Path) -> None:
    environment = {
        "python": "3",
        "implementation": "CPython",
        "machine": "m",
        "system": "s",
        "cpus": 1,
        "load": 0,
        "node": None,
        "packages": {},
    }
    growth = Growth(
        contender="floor", workloads=["B/8", "B/4", "B/2", "B"], milliseconds=[1, 2, 4, 8], doublings=[2, 2, 2]
    )
    rows = [
        row("floor (the plain loop)", "16 KiB", 1.0),
        row("bytes to three sinks", "16 KiB", 0.71),
        row("bytes to three sinks", "1 event", 2.5),
        row("a <b> & c", "16 KiB", 33.3),
        row("a <b> & c", "1 event", 4321.0, "A/10"),
        row("floor (the plain loop)", "1 event", 1.0, "A/10"),
    ]
    data = tmp_path / "bench.json"
    data.write_bytes(msgspec.json.encode(Report(environment, 1.0, rows, [growth], [])))
    page = tmp_path / "performance.md"
    page.write_text("before\n<!-- tables -->\nold\n<!-- end of tables -->\nafter\n")
    picture = tmp_path / "performance.svg"
    for _ in range(2):
        subprocess.run([sys.executable, str(SCRIPT), str(data), str(tmp_path)], timeout=60, check=True)
        text = page.read_text(encoding="utf-8")
        assert text.startswith("before\n<!-- tables -->\n```\nCPython 3, s m, 1 CPUs")
        assert text.endswith("```\n<!-- end of tables -->\nafter\n")
        assert text.count("bytes to three sinks") == 2
        assert "old" not in text
    root = ElementTree.parse(picture).getroot()
    words = [element.text for element in root.iter(f"{SVG}text")]
    for wanted in ("0.71", "2.5", "33.3", "4.32e+03", "a <b> & c", "turnstream: bytes to three sinks", "2 MB"):
        assert wanted in words
    width = float(root.attrib["width"])
    for bar in root.iter(f"{SVG}rect"):
        if bar.attrib["width"] != "100%":
            assert float(bar.attrib["x"]) + float(bar.attrib["width"]) <= width
    # A panel for A alone: nothing was measured on the others.
    assert not any("short answers" in str(word) for word in words)
