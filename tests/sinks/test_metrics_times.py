"""The clocks of WIRE.md §9: times are set by hand, expectations are arithmetic (FAULTS.md 33, 34)."""

from __future__ import annotations

from typing import Any

import pytest
from frames import (
    PING,
    STOP,
    args,
    closes,
    opens,
    opens_text,
    opens_thinking,
    opens_tool,
    says,
    signs,
    start,
    text,
    thinks,
    turn,
)
from metering import clocked, meter, read, timed

from turnstream.messages import MessageFactory, RequestStart, StreamNote, seeded_clock, seeded_ids
from turnstream.operators import Batch, StreamKey
from turnstream.sinks.metrics import MetricsSink

MAKE = MessageFactory(seeded_ids(9), seeded_clock())
GO = (100.0, [RequestStart()])
TIMES = ("first_byte_ms", "first_event_ms", "first_thinking_ms", "first_content_ms", "first_visible_text_ms")


def firsts(report: dict[str, Any]) -> list[float | None]:
    (answer,) = report["answers"]
    return [answer[key] for key in TIMES]


def test_33_each_clock_has_its_own_time() -> None:
    moments = timed(
        (100.5, [PING]),
        (101.0, [start()]),
        (102.0, [opens_text(0), text(0, "")]),
        (103.0, [closes(0), opens_thinking(1)]),
        (104.0, [thinks(1, "hm")]),
        (105.0, [signs(1, "s"), closes(1), opens_text(2)]),
        (107.0, [text(2, "Hi")]),
        (107.5, [text(2, " there"), closes(2), turn("end_turn", {"output_tokens": 70})]),
        (108.0, [STOP]),
    )
    report = clocked(GO, *moments)
    assert firsts(report) == [500.0, 500.0, 4000.0, 4000.0, 7000.0]
    answer = report["answers"][0]
    assert answer["duration_ms"] == 8000.0
    assert answer["stream_ms"] == 7500.0
    assert answer["tokens_per_s"] == 20.0  # 70 tokens in the 3.5 s from 104.0 to 107.5


def test_33_start_ping_and_empty_deltas_alone_are_no_content() -> None:
    moments = timed((101.0, [start(), PING, opens_text(0), text(0, "")]), (109.0, [closes(0), turn(), STOP]))
    assert firsts(clocked(GO, *moments)) == [1000.0, 1000.0, None, None, None]


def test_33_signatures_and_citations_are_no_tokens() -> None:
    cited = {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {"x": 1}}}
    moments = timed(
        (101.0, [start(), opens_text(0), cited]),
        (102.0, [text(0, "a")]),
        (104.0, [text(0, "b")]),
        (109.0, [closes(0), opens_thinking(1), signs(1, "sig"), closes(1), turn(None, {"output_tokens": 10}), STOP]),
    )
    answer = clocked(GO, *moments)["answers"][0]
    assert answer["first_content_ms"] == 2000.0
    assert answer["ttft_ms"] == 2000.0  # the name that WIRE.md §9 gives it
    # A thinking block that shows nothing: when its tokens came isn't known, so there is no rate.
    assert answer["tokens_per_s"] is None


def test_33_an_empty_input_fragment_is_no_token() -> None:
    moments = timed(
        (101.0, [start(), opens_tool(0)]),
        (104.0, [args(0, "{}")]),
        (109.0, [args(0, ""), closes(0), turn("tool_use", {"output_tokens": 30}), STOP]),
    )
    assert clocked(GO, *moments)["answers"][0]["tokens_per_s"] == 10.0  # from the name at 101 to 104


def test_33_thinking_that_only_says_how_much() -> None:
    moments = timed(
        (101.0, [start(), opens_thinking(0), thinks(0, "")]),
        (102.0, [thinks(0, "", estimated_tokens=50)]),
        (106.0, [signs(0, "s"), closes(0), *says("Hi", 1), turn("end_turn", {"output_tokens": 60}), STOP]),
    )
    answer = clocked(GO, *moments)["answers"][0]
    assert answer["first_thinking_ms"] == 2000.0
    assert answer["first_content_ms"] == 6000.0
    assert answer["tokens_per_s"] == 15.0  # 60 tokens from 102 to 106


def test_33_redacted_thinking_counts_at_its_start() -> None:
    moments = timed((103.0, [start(), opens(0, "redacted_thinking", data="xx"), closes(0), turn(), STOP]))
    assert firsts(clocked(GO, *moments)) == [3000.0, 3000.0, 3000.0, 3000.0, None]


def test_33_a_tool_name_is_content_its_empty_input_is_not() -> None:
    moments = timed(
        (101.0, [start()]), (102.0, [opens_tool(0)]), (103.0, [args(0, ""), closes(0), turn("tool_use"), STOP])
    )
    assert firsts(clocked(GO, *moments)) == [1000.0, 1000.0, None, 2000.0, None]


def test_33_the_start_blocks_own_text_counts() -> None:
    moments = timed((101.0, [start()]), (102.0, [opens(0, "text", text="Hel")]), (103.0, [closes(0), turn(), STOP]))
    assert firsts(clocked(GO, *moments))[3:] == [2000.0, 2000.0]


def test_33_interleaved_blocks_in_one_batch() -> None:
    moments = timed(
        (101.0, [start(), opens_thinking(0), opens_text(1)]),
        (102.0, [thinks(0, "a"), text(1, "b")]),
        (103.0, [closes(0), closes(1), turn(), STOP]),
    )
    assert firsts(clocked(GO, *moments))[2:] == [2000.0, 2000.0, 2000.0]


def test_33_a_block_that_only_deltas_opened() -> None:
    moments = timed((101.0, [start(), text(None, "")]), (102.0, [text(None, "hi")]), (103.0, [turn(), STOP]))
    assert firsts(clocked(GO, *moments))[3:] == [2000.0, 2000.0]


def test_33_hidden_thinking_and_more_in_one_batch() -> None:
    moments = timed((101.0, [start()]), (102.0, [thinks(2, "", estimated_tokens=4), thinks(2, "h"), text(3, "hi")]))
    assert firsts(clocked(GO, *moments))[2:] == [2000.0, 2000.0, 2000.0]


def test_33_unannounced_blocks_in_one_batch() -> None:
    moments = timed((101.0, [start(), thinks(0, ""), text(1, "")]), (102.0, [thinks(0, "a"), text(1, "b")]))
    assert firsts(clocked(GO, *moments))[2:] == [2000.0, 2000.0, 2000.0]


def test_33_deltas_without_any_start() -> None:
    moments = timed((101.0, [text(0, "hi")]), (102.0, [text(0, "ho")]), end=103.0)
    report = clocked(GO, *moments)
    assert firsts(report) == [1000.0, 1000.0, None, 1000.0, 1000.0]
    assert report["answers"][0]["outcome"] == "incomplete(0)"


def test_first_byte_as_the_source_saw_it() -> None:
    sink = MetricsSink(clock_start=100.0)
    sink.first_byte(100.25)  # a chunk that held only a comment
    for at, items in timed((101.0, [start(), *says("hi"), turn(), STOP])):
        sink.on_next(Batch(items, at, None, 50))
    assert firsts(sink.report())[:2] == [250.0, 1000.0]


def test_no_bytes_no_first_byte() -> None:
    moments = timed((101.0, [start(), *says("hi"), turn(), STOP]))
    assert firsts(clocked(GO, *moments, weight=0))[:2] == [None, 1000.0]


def test_clock_start_is_that_of_the_first_request_only() -> None:
    moments = timed((101.0, [start("a"), *says("hi"), turn(), STOP]), (105.0, [start("b"), *says("hi"), turn(), STOP]))
    first, second = clocked(*moments, clock_start=100.0)["answers"]
    assert (first["first_content_ms"], first["duration_ms"]) == (1000.0, 1000.0)
    assert [second[key] for key in TIMES] == [None] * 5
    assert second["duration_ms"] is None


def test_every_request_has_its_own_start() -> None:
    answer = [*says("hi"), turn(), STOP]
    moments = timed(
        (100.0, [RequestStart()]),
        (101.0, [start("a"), *answer]),
        (110.0, [RequestStart()]),
        (112.0, [start("b"), *answer]),
    )
    rows = clocked(*moments)["answers"]
    assert [row["first_content_ms"] for row in rows] == [1000.0, 2000.0]


def test_without_a_request_only_the_stream_has_times() -> None:
    moments = timed(
        (101.0, [start(), opens_text()]),
        (102.0, [text(0, "a")]),
        (104.0, [text(0, "b"), closes(0), turn("end_turn", {"output_tokens": 8})]),
        (105.0, [STOP]),
    )
    answer = clocked(*moments)["answers"][0]
    assert [answer[key] for key in TIMES] == [None] * 5
    assert (answer["duration_ms"], answer["stream_ms"], answer["tokens_per_s"]) == (None, 4000.0, 4.0)


def test_unpaced_is_null_throughout() -> None:
    items = [item for _, batch in timed((None, [start(), *says("hi"), turn(), STOP])) for item in batch]
    report = meter([RequestStart(), *items], clock_start=100.0)
    answer = report["answers"][0]
    assert all(value is None for key, value in answer.items() if key.endswith(("_ms", "_per_s")))
    assert answer["batch_gaps"] is None
    assert report["totals"]["batch_gaps"] is None
    assert report["totals"]["tool_durations"] is None


def test_no_rate_without_a_final_count() -> None:
    # The stream dies: the start's count of 1 isn't what was written.
    moments = timed((101.0, [start(), opens_text()]), (102.0, [text(0, "a")]), (104.0, [text(0, "b")]))
    answer = clocked(GO, *moments)["answers"][0]
    assert (answer["output_tokens"], answer["tokens_per_s"], answer["duration_ms"]) == (1, None, None)


def test_no_rate_when_all_tokens_came_at_once() -> None:
    moments = timed((101.0, [start(), *says("hi"), turn(), STOP]))
    assert clocked(GO, *moments)["answers"][0]["tokens_per_s"] is None


def test_a_clock_that_contradicts_is_null() -> None:
    moments = timed((99.0, [start(), *says("hi"), turn(), STOP]))
    assert firsts(clocked(GO, *moments)) == [None] * 5


def test_gaps_are_those_within_answers() -> None:
    answer = [*says("hi"), turn(), STOP]
    moments = timed(
        (101.0, [start("a"), opens_text()]),
        (101.5, [text(0, "x")]),
        (103.0, [closes(0), turn(), STOP]),
        (150.0, [start("b"), opens_text()]),  # 47 s between answers are no gap
        (150.25, [closes(0), *answer[-2:]]),
    )
    report = clocked(GO, *moments)
    first, second = (row["batch_gaps"] for row in report["answers"])
    assert (first["count"], first["max_ms"], first["mean_ms"]) == (2, 1500.0, 1000.0)
    assert first["p50_ms"] == pytest.approx(500, rel=0.045)
    assert (second["count"], second["max_ms"]) == (1, 250.0)
    assert (report["totals"]["batch_gaps"]["count"], report["totals"]["batch_gaps"]["max_ms"]) == (3, 1500.0)


def test_gaps_of_an_open_answer_and_after_its_end_agree() -> None:
    moments = timed(*((100.0 + i / 8, [start(), opens_text()] if i == 0 else [text(0, "x")]) for i in range(2000)))[:-1]
    sink = MetricsSink()
    for at, items in moments:
        sink.on_next(Batch(items, at))
    open_gaps = sink.report()["totals"]["batch_gaps"]
    assert open_gaps["count"] == 1999
    assert (open_gaps["mean_ms"], open_gaps["max_ms"]) == (125.0, 125.0)
    assert open_gaps["p99_ms"] == pytest.approx(125, rel=0.045)
    sink.on_next([StreamNote(kind="no_message_stop", message="")])
    assert sink.report()["totals"]["batch_gaps"] == open_gaps
    assert sink.report()["answers"][0]["batch_gaps"] == open_gaps


def test_tool_durations() -> None:
    moments = timed(
        (101.0, [start(), opens_tool(0, "t1", "look"), closes(0), opens_tool(1, "t2", "look"), closes(1)]),
        (102.0, [opens_tool(2, "t3", "run"), closes(2), turn("tool_use"), STOP]),
        (104.0, [MAKE.tool_result("t2", "b")]),
        (105.0, [MAKE.tool_result("t1", "a", is_error=True)]),
        (105.5, [MAKE.tool_result("t9", "orphan")]),
    )
    totals = clocked(GO, *moments)["totals"]
    assert totals["tool_uses"] == {"look": 2, "run": 1}
    assert totals["tool_results"] == {"look": 2}
    assert totals["tool_errors"] == {"look": 1}
    durations = totals["tool_durations"]
    assert set(durations) == {"look"}
    assert (durations["look"]["count"], durations["look"]["mean_ms"], durations["look"]["max_ms"]) == (
        2,
        3500.0,
        4000.0,
    )


def test_server_tool_durations() -> None:
    search = opens(0, "server_tool_use", id="s1", name="web_search", input={"query": "x"})
    failed = {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    found = opens(1, "web_search_tool_result", tool_use_id="s1", content=failed)
    moments = timed((101.0, [start(), search, closes(0)]), (103.0, [found, closes(1), turn(), STOP]))
    totals = clocked(GO, *moments)["totals"]
    assert totals["tool_durations"]["web_search"]["max_ms"] == 2000.0
    assert totals["tool_errors"] == {"web_search": 1}


def test_clock_start_is_not_that_of_other_streams() -> None:
    sink = MetricsSink(clock_start=100.0)
    for number, agent in enumerate((None, StreamKey("s", "agent"))):
        for at, items in timed((101.0, [start(f"m{number}"), *says("y"), turn(), STOP])):
            sink.on_next(Batch(items, at, agent, 10))
    assert [row["first_content_ms"] for row in sink.report()["answers"]] == [1000.0, None]


def test_streams_with_one_id_do_not_mix() -> None:
    # Gateways send constant ids: an open answer takes no message of another stream.
    sink = MetricsSink()
    sink.on_next(Batch([item for _, items in timed((None, [start("msg"), *says("y")])) for item in items][:3]))
    other = read({"id": "msg", "content": [{"type": "text", "text": "z"}], "usage": {}}, uuid="u")
    sink.on_next(Batch([other], None, StreamKey("s", "agent")))
    assert len(sink.report()["answers"]) == 2


def test_streams_of_several_keys_do_not_mix() -> None:
    main, agent = StreamKey("s"), StreamKey("s", "toolu_1")
    sink = MetricsSink(clock_start=100.0)
    streams = {
        main: timed((101.0, [start("a"), opens_text()]), (104.0, [text(0, "x"), closes(0), turn(), STOP])),
        agent: timed((102.0, [RequestStart()]), (103.0, [start("b"), *says("y"), turn(), STOP])),
    }
    for key, number in ((main, 0), (agent, 0), (agent, 1), (main, 1)):
        at, items = streams[key][number]
        sink.on_next(Batch(items, at, key, 10))
    report = sink.report()
    assert [(row["message_id"], row["outcome"], row["first_content_ms"]) for row in report["answers"]] == [
        ("a", "complete", 4000.0),
        ("b", "complete", 1000.0),
    ]
    assert report["totals"]["superseded_answers"] == 0
