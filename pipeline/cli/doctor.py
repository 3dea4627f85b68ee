"""``turnstream doctor``: what is wrong with transcripts, and mending them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from turnstream.cli import EXIT_COMPLETE, EXIT_FAILED, EXIT_USAGE
from turnstream.cli.saying import say
from turnstream.messages.errors import TranscriptError
from turnstream.messages.jsonvalue import scrub
from turnstream.sinks.transcript.doctor import KINDS, Finding, Report, diagnose, repair
from turnstream.sinks.ui.terminal import encodable, safe

__all__ = ["doctor", "render"]

_SHOWN: Final = 5
"""Places of one kind for reading; ``--json`` has all."""


def doctor(options: argparse.Namespace) -> int:
    """Run the command; see ``turnstream doctor --help``.

    Returns:
        The exit status.
    """
    status = EXIT_COMPLETE
    seen: set[str] = set()
    for name in options.files:
        there = False
        for path in _transcripts(Path(name)):
            there = True
            key = os.path.realpath(path)
            if key not in seen:
                seen.add(key)
                status = max(status, _one(path, fix=options.fix, as_json=options.json))
        if not there:
            say(f"no transcript (*.jsonl) below {name}")
    return status


def _transcripts(path: Path) -> Iterator[Path]:
    """The file itself, or the transcripts below a folder, in order; links are not followed there."""
    if not path.is_dir():
        yield path
        return
    for folder, folders, files in os.walk(path):
        folders.sort()
        for name in sorted(files):
            if name.endswith(".jsonl") and not os.path.islink(os.path.join(folder, name)):
                yield Path(folder, name)


def _one(path: Path, *, fix: bool, as_json: bool) -> int:
    try:
        report = diagnose(path)
    except TranscriptError as error:
        say(str(error))
        return EXIT_USAGE
    failed = None
    if fix and report.findings:
        try:
            report = repair(path)
        except TranscriptError as error:
            failed = error
    if as_json:
        print(json.dumps(scrub(report.as_dict())))
    else:
        print(encodable(render(report), sys.stdout.encoding))
    if failed is not None:
        say(str(failed) + (f": {failed.hint}" if failed.hint and failed.hint not in str(failed) else ""))
        return EXIT_FAILED
    return EXIT_FAILED if report.findings and not report.repaired else EXIT_COMPLETE


def render(report: Report) -> str:
    """The report of one file for reading; nothing in it can steer a terminal."""
    if not report.findings:
        return safe(f"{report.path}: nothing found ({report.lines:,} lines)")
    by_kind: dict[str, list[Finding]] = {}
    for found in report.findings:
        by_kind.setdefault(found.kind, []).append(found)
    order = ("error", "warning", "info")
    lines = [f"{report.path}: {', '.join(_totals(report))} ({report.lines:,} lines)"]
    for kind, findings in sorted(by_kind.items(), key=lambda item: (order.index(KINDS[item[0]].severity), item[0])):
        known = KINDS[kind]
        count = report.counts[kind]
        times = f" ×{count:,}" if count > 1 else ""
        lines.append(f"  {known.severity:<7} {kind}{times}: {known.meaning}")
        lines += [
            f"          line {found.line:,}, byte {found.offset:,}{_detail(found)}" for found in findings[:_SHOWN]
        ]
        if len(findings) > _SHOWN:
            lines.append(f"          … {len(findings) - _SHOWN:,} more")
        if not report.repaired:
            lines.append(f"          --fix: {known.mends}")
    if report.repaired:
        lines.append("  mended")
        lines += [
            f"  {what}: {path}"
            for what, path in (("the original", report.backup), ("what was rejected", report.rejected))
            if path is not None
        ]
        if report.side_files:
            lines.append(f"  side files: {len(report.side_files):,} in {report.side_files[0].parent}")
    return "\n".join(safe(" ".join(line.splitlines())) for line in lines)


def _totals(report: Report) -> Iterator[str]:
    for severity, one, many in (
        ("error", "error", "errors"),
        ("warning", "warning", "warnings"),
        ("info", "note", "notes"),
    ):
        count = sum(found.count for found in report.findings if found.severity == severity)
        if count:
            yield f"{count:,} {one if count == 1 else many}"


def _detail(found: Finding) -> str:
    return f": {found.message}" if found.message != KINDS[found.kind].meaning else ""
