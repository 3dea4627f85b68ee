"""The report as others read it: schema, table, the sink's promises (WIRE.md §9)."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest
from frames import STOP, calls, fails, says, start, turn
from metering import clocked, emitted, meter, timed

from turnstream.messages import MessageFactory, RequestStart, seeded_clock, seeded_ids
from turnstream.sinks import metrics
from turnstream.sinks.base import Sink
from turnstream.sinks.metrics import METRICS_SCHEMA, MetricsSink, table
from turnstream.testing import awkward_items, check_sink, run_virtual, sample_items

MAKE = MessageFactory(seeded_ids(9), seeded_clock())
VALIDATOR = jsonschema.Draft202012Validator(METRICS_SCHEMA)


def rich() -> dict[str, Any]:
    """A report with a value in nearly every field."""
    details = {"output_tokens": 1234, "output_tokens_details": {"thinking_tokens": 40}, "cache_read_input_tokens": 5000}
    return clocked(
        (100.0, [RequestStart()]),
        *timed(
            (101.0, [start("msg_lost"), says("x")]),
            (101.5, [start("msg_good"), calls(0, "{}", ident="t1", name="look")]),
            (102.5, [*says("hi", 1), turn("tool_use", details), STOP]),
            (104.5, [MAKE.tool_result("t1", "seen")]),
            (105.0, [MAKE.system("api_error", "busy", retryInMs=20.5)]),
            (106.0, [RequestStart(attempt=1)]),
            (107.0, [start("msg_bad"), says("y"), fails()]),
        ),
    )


@pytest.mark.parametrize(
    "report",
    [
        MetricsSink().report(),
        rich(),
        meter(emitted()),
        meter(emitted(start(), says("x"))),
        meter([*sample_items(), *awkward_items()]),
        meter([*sample_items(), *awkward_items()], keep_answers=1),
    ],
    ids=["nothing", "rich", "empty", "broken", "samples", "one"],
)
def test_reports_follow_the_schema(report: dict[str, Any]) -> None:
    VALIDATOR.validate(report)
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_the_schema_is_one_and_closed() -> None:
    jsonschema.Draft202012Validator.check_schema(METRICS_SCHEMA)
    assert json.loads(json.dumps(METRICS_SCHEMA)) == METRICS_SCHEMA
    for spoil in ({"extra": 1}, {"totals": {}}, {"schema_version": 2}):
        assert not VALIDATOR.is_valid({**rich(), **spoil})
    report = rich()
    report["answers"][0]["first_content_ms"] = "soon"
    assert not VALIDATOR.is_valid(report)


def test_the_schema_requires_every_field_of_the_specification() -> None:
    answer = METRICS_SCHEMA["$defs"]["answer"]["required"]
    totals = METRICS_SCHEMA["$defs"]["totals"]["required"]
    # WIRE.md §9, sentence by sentence.
    for key in ("first_byte_ms", "first_event_ms", "first_thinking_ms", "first_content_ms", "first_visible_text_ms"):
        assert key in answer
    for key in ("batch_gaps", "tokens_per_s", "stop_reason"):
        assert key in answer
    for key in (
        "input_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
        "output_tokens",
        "thinking_tokens",
    ):
        assert key in answer
        assert key in totals
        assert f"superseded_{key}" in totals
    for key in ("stop_reasons", "retries", "fallbacks", "tombstones", "errors", "tool_durations"):
        assert key in totals
    for key in ("opaque_events", "opaque_deltas", "opaque_blocks"):
        assert key in totals


def test_keys_are_snake_case() -> None:
    report = rich()
    for part in (report, report["totals"], report["answers"][0], report["totals"]["batch_gaps"]):
        assert all(re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", key) for key in part)


def test_two_runs_give_one_report() -> None:
    assert json.dumps(rich()) == json.dumps(rich())


def test_a_report_is_a_snapshot() -> None:
    sink = MetricsSink()
    items = emitted(start(), says("x"), turn(), STOP)
    sink.on_next(items[:4])
    early = sink.report()
    copy = json.loads(json.dumps(early))
    sink.on_next(items[4:])
    assert early == copy
    assert sink.report() != early


def test_a_run_that_broke() -> None:
    sink = MetricsSink()
    sink.on_next(emitted(start(), says("x"), turn(), STOP))
    assert sink.report()["incomplete"] is False
    sink.on_error(OSError("gone"))
    report = sink.report()
    assert (report["incomplete"], report["run_error"]) == (True, "OSError")
    assert report["totals"]["output_tokens"] == 5
    assert "run broke" in table(report)


def test_conformance() -> None:
    assert isinstance(MetricsSink(), Sink)
    assert (MetricsSink().name, MetricsSink().policy) == ("metrics", "direct")
    run_virtual(check_sink(MetricsSink))


def test_conformance_of_the_report() -> None:
    def output(sink: MetricsSink) -> Any:
        report = sink.report()
        # What depends on the clock, on chunk sizes and on how the run ended isn't the stream's.
        for answer in report["answers"]:
            for key in answer:
                if key.endswith(("_ms", "_per_s")) or key == "batch_gaps":
                    answer[key] = None
        for key in ("bytes", "batch_gaps", "tool_durations"):
            report["totals"][key] = None
        del report["run_error"], report["incomplete"]
        return report

    run_virtual(check_sink(MetricsSink, output=output))


# -- the table -------------------------------------------------------------------------------------------------


def test_the_table_shows_answers_and_totals() -> None:
    lines = table(rich()).splitlines()
    assert lines[0].split() == [
        "answer",
        "model",
        "outcome",
        "stop",
        "in",
        "cache",
        "w",
        "cache",
        "r",
        "out",
        "think",
        "first",
        "ms",
        "total",
        "ms",
        "tok/s",
    ]
    cells = {line.split()[0]: line for line in lines if line.strip()}
    # msg_good: in 7, no cache write, 5,000 read, 1,234 out, 40 thinking; content at 101.5, end at 102.5.
    assert re.sub(r" +", " ", cells["msg_good"]) == (
        "msg_good claude-test-1 complete tool_use 7 - 5,000 1,234 40 1,500.0 2,500.0 1,234.0"
    )
    assert "superseded" in cells["msg_lost"]
    assert "api_error(overloaded_error)" in cells["msg_bad"]
    # Sums without the superseded attempt: 7 + 7 in, 1,234 + 1 out.
    assert re.sub(r" +", " ", cells["total"]) == "total 14 - 5,000 1,235 40"
    text = "\n".join(lines)
    assert re.search(r"^answers +2, 1 incomplete$", text, re.MULTILINE)
    assert re.search(r"^outcomes +api_error\(overloaded_error\) 1, complete 1$", text, re.MULTILINE)
    assert re.search(r"^superseded +1 attempt, 7 in, 1 out$", text, re.MULTILINE)
    assert re.search(r"^tool look +1, p50 3,000\.0 ms, p99 3,000\.0 ms, max 3,000\.0 ms$", text, re.MULTILINE)
    assert re.search(r"^incomplete +yes$", text, re.MULTILINE)
    assert re.search(r"^retries +1$", text, re.MULTILINE)


def test_the_table_is_aligned() -> None:
    lines = table(rich()).splitlines()
    ends = {line.rindex("out") + 3 if number == 0 else None for number, line in enumerate(lines[:1])}
    end = ends.pop()
    assert end is not None
    good = next(line for line in lines if line.startswith("msg_good"))
    total = next(line for line in lines if line.startswith("total"))
    assert good[:end].endswith("1,234")
    assert total[:end].endswith("1,235")
    assert all(line == line.rstrip() for line in lines)


def test_the_table_of_nothing() -> None:
    assert table(MetricsSink().report()) == "no answer\n\nanswers  0\ntraffic  0 events, 0 pings\n"


def test_the_table_says_how_many_it_hides() -> None:
    items = [item for i in range(30) for item in emitted(start(f"m{i}"), says("x"), turn(), STOP)]
    shown = table(meter(items, keep_answers=25))
    assert "… 10 earlier answers, in the totals only" in shown
    assert "m29" in shown
    assert "m9 " not in shown
    assert re.search(r"^total +210", shown, re.MULTILINE)  # 30 × 7 input tokens


def test_words_of_the_other_side_cannot_break_the_table() -> None:
    stream = [start("evil\x1b[2J\nrow", model="m" * 500), says("x"), turn("end\x07"), STOP]
    shown = table(meter(emitted(*stream)))
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "evil\ufffd[2J\ufffdrow" in shown
    assert max(map(len, shown.splitlines())) < 250


def test_all_is_exported() -> None:
    assert {"MetricsSink", "METRICS_SCHEMA", "table"} <= set(metrics.__all__)
    assert all(hasattr(metrics, name) for name in metrics.__all__)
