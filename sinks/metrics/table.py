"""The report as a small plain-text table, for ``replay --metrics table``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["table"]

_SHOWN: Final = 20
_COLUMNS: Final = (
    ("answer", "message_id"),
    ("model", "model"),
    ("outcome", "outcome"),
    ("stop", "stop_reason"),
    ("in", "input_tokens"),
    ("cache w", "cache_creation_input_tokens"),
    ("cache r", "cache_read_input_tokens"),
    ("out", "output_tokens"),
    ("think", "thinking_tokens"),
    ("first ms", "first_content_ms"),
    ("total ms", "duration_ms"),
    ("tok/s", "tokens_per_s"),
)
_LEFT: Final = frozenset({"answer", "model", "outcome", "stop"})
_WIDEST: Final = 32
_TALLIES: Final = (
    ("outcomes", "outcomes"),
    ("stop reasons", "stop_reasons"),
    ("blocks", "blocks"),
    ("tool uses", "tool_uses"),
    ("tool errors", "tool_errors"),
    ("server tools", "server_tool_use"),
    ("errors", "errors"),
    ("notes", "notes"),
    ("unapplied deltas", "unapplied_deltas"),
    ("opaque events", "opaque_events"),
    ("opaque deltas", "opaque_deltas"),
    ("opaque blocks", "opaque_blocks"),
)
_COUNTS: Final = (
    "retries",
    "fallbacks",
    "tombstones",
    "partial_blocks",
    "invalid_tool_inputs",
    "unfinished_tool_inputs",
)


def table(report: Mapping[str, Any]) -> str:
    """A report of :class:`MetricsSink` for human eyes: the last 20 answers, then the totals.

    What has no value is ``-``; counts that are zero aren't shown. Ends with a line feed.
    """
    totals = report["totals"]
    answers = report["answers"]
    lines = _grid(_rows(answers[-_SHOWN:], totals)) if answers else ["no answer"]
    hidden = max(0, len(answers) - _SHOWN) + report["answers_left_out"]
    if hidden:
        lines.insert(1, f"… {hidden} earlier answer{'s' * (hidden != 1)}, in the totals only")
    lines.append("")
    facts = [("answers", _answers(totals)), ("traffic", _traffic(totals))]
    facts += [(label, _tally(totals[key])) for label, key in _TALLIES if totals[key]]
    facts += [(key.replace("_", " "), str(totals[key])) for key in _COUNTS if totals[key]]
    if totals["superseded_answers"]:
        facts.append(("superseded", _superseded(totals)))
    if totals["batch_gaps"]:
        facts.append(("batch gaps", _distribution(totals["batch_gaps"])))
    for name, durations in (totals["tool_durations"] or {}).items():
        facts.append((f"tool {_printable(name)}", _distribution(durations)))
    if report["run_error"]:
        facts.append(("run broke", report["run_error"]))
    if report["incomplete"]:
        facts.append(("incomplete", "yes"))
    width = max(len(label) for label, _ in facts)
    lines += [f"{label:<{width}}  {text}" for label, text in facts]
    return "\n".join(lines) + "\n"


def _rows(answers: Sequence[Mapping[str, Any]], totals: Mapping[str, Any]) -> list[list[str]]:
    rows = [[label for label, _ in _COLUMNS]]
    rows += [[_cell(answer, key) for _, key in _COLUMNS] for answer in answers]
    # Every token column has a sum; an answer's own values have none.
    rows.append(["total", *(_number(totals.get(key)) if key.endswith("_tokens") else "" for _, key in _COLUMNS[1:])])
    return rows


def _cell(answer: Mapping[str, Any], key: str) -> str:
    if key == "outcome" and answer["outcome"] is None:
        return "superseded" if answer["superseded"] else "open" if answer["incomplete"] else "-"
    return _number(answer[key])


def _number(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else _printable(value)


def _printable(value: Any) -> str:
    """Words of the other side can't break the table or the terminal."""
    text = "".join(char if char.isprintable() else "\ufffd" for char in str(value))
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _grid(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if label in _LEFT else cell.rjust(width)
            for (label, _), cell, width in zip(_COLUMNS, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _tally(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    shown = ", ".join(f"{_printable(word)} {count:,}" for word, count in ordered[:8])
    return shown if len(ordered) <= 8 else f"{shown}, … {len(ordered) - 8} more"


def _answers(totals: Mapping[str, Any]) -> str:
    text = f"{totals['answers']:,}"
    return f"{text}, {totals['incomplete_answers']:,} incomplete" if totals["incomplete_answers"] else text


def _traffic(totals: Mapping[str, Any]) -> str:
    parts = [f"{totals['events']:,} events", f"{totals['pings']:,} pings"]
    if totals["bytes"] is not None:
        parts.append(f"{totals['bytes']:,} bytes")
    return ", ".join(parts)


def _superseded(totals: Mapping[str, Any]) -> str:
    count = totals["superseded_answers"]
    return (
        f"{count:,} attempt{'s' * (count != 1)}, {_number(totals['superseded_input_tokens'])} in, "
        f"{_number(totals['superseded_output_tokens'])} out"
    )


def _distribution(values: Mapping[str, Any]) -> str:
    return (
        f"{values['count']:,}, p50 {values['p50_ms']:,.1f} ms, p99 {values['p99_ms']:,.1f} ms, "
        f"max {values['max_ms']:,.1f} ms"
    )
