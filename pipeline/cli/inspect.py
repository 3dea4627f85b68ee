"""``turnstream inspect``: what a file of messages holds, in numbers."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any, Final

from turnstream.cli import EXIT_COMPLETE, EXIT_FAILED, EXIT_USAGE
from turnstream.cli.reading import open_input, read_records, shown_name
from turnstream.cli.saying import reason, say
from turnstream.cli.survey import Survey
from turnstream.sinks.ui.terminal import encodable, safe

__all__ = ["inspect", "render"]

_SHOWN: Final = 10
"""Of a list for reading; ``--json`` has all."""


def inspect(options: argparse.Namespace) -> int:
    """Run the command; see ``turnstream inspect --help``.

    Returns:
        The exit status.
    """
    name = shown_name(options.file)
    survey = Survey()
    try:
        opened = open_input(options.file)
    except (OSError, ValueError) as error:
        say(f"can't read {name}: {reason(error)}")
        return EXIT_USAGE
    with opened as stream:
        try:
            for record in read_records(stream):
                survey.add(record)
        except OSError as error:
            say(f"can't read {name}: {reason(error)}")
            return EXIT_FAILED
    report = survey.report()
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        print(encodable(render(name, report), sys.stdout.encoding))
    if not survey.found_conversation:
        say(f"{name} holds no message of a conversation")
        return EXIT_FAILED
    return EXIT_COMPLETE


def render(name: str, report: dict[str, Any]) -> str:
    """The report of :meth:`Survey.report` for reading; nothing in it can steer a terminal."""
    parts = [_head(name, report)]
    subtypes = report["subtypes"]
    rows = [(kind, _number(count), _counts(subtypes.get(kind, {}))) for kind, count in report["types"].items()]
    parts.append(_section("records", rows))
    parts.append(_section("other records", [(k, _number(n)) for k, n in report["unknown_types"].items()]))
    parts.append(
        _section(f"answers: {_number(report['answers'])}", [(k, _number(n)) for k, n in report["models"].items()])
    )
    parts.append(_section("tokens", [(key, _number(value)) for key, value in report["tokens"].items()]))
    tools = [
        (tool, _number(counts["uses"]), _counted(counts["errors"], "error", "errors") if counts["errors"] else "")
        for tool, counts in report["tools"].items()
    ]
    parts.append(_section("tools", tools))
    parts.append(
        _listed(
            "open tool calls",
            [f"line {call['line']}: {call['name']} {call['id'] or ''}" for call in report["open_tool_uses"]],
        )
    )
    parts.append(
        _listed(
            "compactions",
            [f"line {c['line']}: {c['subtype']}{_metadata(c)}" for c in report["compactions"]],
        )
    )
    parts.append(
        _listed("forks", [f"line {f['line']}: {f['branches']} ways on from {f['uuid']}" for f in report["forks"]])
    )
    parts.append(
        _listed("bad lines", [f"line {b['line']}, byte {b['offset']}: {b['problem']}" for b in report["bad_lines"]])
    )
    return "\n\n".join(part for part in parts if part)


def _head(name: str, report: dict[str, Any]) -> str:
    lines = [f"{_plain(name)}: {_counted(report['lines'], 'line', 'lines')}"]
    if report["first"] is not None:
        lines.append(f"from {_plain(report['first'])} to {_plain(report['last'])}")
    more = [
        _counted(report[key], *words)
        for key, *words in (
            ("sidechain_records", "record of a sub-agent", "records of sub-agents"),
            ("repeated_uuids", "record again", "records again"),
            ("orphan_results", "tool result without its call", "tool results without their call"),
            ("api_errors", "API error", "API errors"),
            ("aborted", "answer cut off", "answers cut off"),
        )
        if report[key]
    ]
    if more:
        lines.append(", ".join(more))
    return "\n".join(lines)


def _metadata(compaction: dict[str, Any]) -> str:
    told = [
        text
        for text in (
            str(compaction["trigger"]) if compaction["trigger"] is not None else "",
            f"{compaction['pre_tokens']} tokens before" if compaction["pre_tokens"] is not None else "",
        )
        if text
    ]
    return f" ({', '.join(told)})" if told else ""


def _section(title: str, rows: Sequence[tuple[str, ...]]) -> str:
    """A title and rows in columns: the first starts at the left, the second ends at the right."""
    if not rows:
        return ""
    cells = [tuple(map(_plain, row)) for row in rows]
    wide = [max(len(row[column]) for row in cells) for column in (0, 1)]
    lines = [f"  {row[0].ljust(wide[0])}  {row[1].rjust(wide[1])}  {' '.join(row[2:])}".rstrip() for row in cells]
    return "\n".join([title, *lines])


def _listed(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    more = [f"  … {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "\n".join([f"{title}: {len(lines)}", *(f"  {_plain(line).rstrip()}" for line in lines[:_SHOWN]), *more])


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {_number(count)}" for name, count in counts.items())


def _number(value: float) -> str:
    return f"{value:,}"


def _counted(number: int, one: str, many: str) -> str:
    return f"{_number(number)} {one if number == 1 else many}"


def _plain(text: str) -> str:
    return safe(" ".join(str(text).splitlines()))
