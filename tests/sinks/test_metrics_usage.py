"""Usage and metrics faults (FAULTS.md group C), each by its number and kind."""

from __future__ import annotations

from typing import Any

import pytest
from frames import PING, STOP, calls, fails, opens_text, says, start, text, turn
from metering import clocked, emitted, meter, read, timed

from turnstream.messages import MessageFactory, RequestStart, seeded_clock, seeded_ids
from turnstream.sinks.metrics import MetricsSink

MAKE = MessageFactory(seeded_ids(9), seeded_clock())


def only(report: dict[str, Any]) -> dict[str, Any]:
    (answer,) = report["answers"]
    assert isinstance(answer, dict)
    return answer


def test_27_final_usage_and_stop_reason_reach_the_report() -> None:
    # Three blocks; 2 output tokens at the start, 310 at the end.
    stream = [
        start("msg_a", usage={"input_tokens": 40, "output_tokens": 2}),
        says("one", 0),
        says("two", 1),
        calls(2, "{}", name="look"),
        turn("tool_use", {"output_tokens": 310}),
        STOP,
    ]
    report = meter(emitted(*stream))
    answer = only(report)
    assert (answer["input_tokens"], answer["output_tokens"], answer["stop_reason"]) == (40, 310, "tool_use")
    assert report["totals"]["output_tokens"] == 310
    assert report["totals"]["blocks"] == {"text": 2, "tool_use": 1}


def test_27_the_same_from_the_messages_alone_even_unsettled() -> None:
    stream = [
        start("msg_a", usage={"input_tokens": 40, "output_tokens": 2}),
        says("one", 0),
        says("two", 1),
        turn("end_turn", {"output_tokens": 310}),
        STOP,
    ]
    items = [item for item in emitted(*stream) if type(item).__name__ == "AssistantMessage"]
    totals = meter(items)["totals"]
    assert (totals["answers"], totals["input_tokens"], totals["output_tokens"]) == (1, 40, 310)


def test_27_messages_updated_after_they_came() -> None:
    usage = {"input_tokens": 40, "output_tokens": 2}
    items = [
        read({"id": "msg_a", "content": [{"type": "text", "text": "hi"}], "usage": usage}, uuid="u1"),
        read({"id": "msg_b", "content": [], "usage": {"output_tokens": 5}}, uuid="u2"),
    ]
    sink = MetricsSink()
    sink.on_next(items[:1])
    usage["output_tokens"] = 310  # in place, as accumulate does until the answer's end
    assert sink.report()["totals"]["output_tokens"] == 310
    usage["output_tokens"] = 320
    sink.on_next(items[1:])
    usage["output_tokens"] = 999  # after the next one began it is nobody's any more
    assert sink.report()["totals"]["output_tokens"] == 325


def test_28_the_last_line_of_a_message_id_wins() -> None:
    lines = [
        read(
            {"id": "msg_a", "content": [], "usage": {"input_tokens": 3, "output_tokens": n}},
            uuid=f"u{i}",
            request_id="r",
        )
        for i, n in enumerate((9, 9, 159))
    ]
    totals = meter(lines)["totals"]
    assert (totals["answers"], totals["output_tokens"], totals["input_tokens"]) == (1, 159, 3)


def test_28_parallel_tools_between_the_lines() -> None:
    block = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    lines: list[Any] = [
        read({"id": "msg_a", "content": [block], "usage": {"output_tokens": 9}}, uuid="u1", request_id="r"),
        MAKE.tool_result("t1", "done"),
        read(
            {
                "id": "msg_a",
                "content": [{**block, "id": "t2"}],
                "usage": {"output_tokens": 80},
                "stop_reason": "tool_use",
            },
            uuid="u2",
            request_id="r",
        ),
    ]
    report = meter(lines)
    assert only(report)["tool_uses"] == {"look": 2}
    assert only(report)["outcome"] == "complete"
    assert report["totals"]["output_tokens"] == 80


def test_29_the_message_id_alone_where_no_request_id_is() -> None:
    lines = [
        read({"id": "msg_a", "content": [], "usage": {"input_tokens": 10, "output_tokens": 25}}, uuid=f"u{i}")
        for i in range(4)
    ]
    totals = meter(lines)["totals"]
    assert (totals["answers"], totals["input_tokens"], totals["output_tokens"]) == (1, 10, 25)


@pytest.mark.parametrize("requests", [("r", None), (None, "r"), (None, "r", None, "r")])
def test_29_a_line_without_request_id_beside_one_with_it(requests: tuple[str | None, ...]) -> None:
    lines = [
        read({"id": "msg_a", "content": [], "usage": {"output_tokens": 25}}, uuid=f"u{i}", request_id=request)
        for i, request in enumerate(requests)
    ]
    report = meter(lines)
    assert only(report)["request_id"] == "r"
    assert report["totals"]["output_tokens"] == 25


def test_29_two_requests_with_one_message_id_are_two_answers() -> None:
    # Gateways send constant ids; the request id tells them apart.
    lines = [
        read({"id": "msg", "content": [], "usage": {"output_tokens": 25}}, uuid=f"u{i}", request_id=request)
        for i, request in enumerate(("r1", "r2", "r1"))
    ]
    totals = meter(lines)["totals"]
    assert (totals["answers"], totals["output_tokens"]) == (2, 50)


def test_29_a_copied_line_counts_once() -> None:
    block = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    line = read({"id": "msg_a", "content": [block], "usage": {"output_tokens": 9}}, uuid="u1", request_id="r")
    assert meter([line, line])["totals"]["tool_uses"] == {"look": 1}


def test_29_streamed_answer_met_again_as_a_message() -> None:
    items = emitted(start("msg_a"), says("hi"), turn(), STOP, request_id="req_1")
    message = next(item for item in items if type(item).__name__ == "AssistantMessage")
    report = meter([*items, message])
    assert report["totals"]["blocks"] == {"text": 1}
    assert only(report)["request_id"] == "req_1"


def test_29_streamed_answers_with_a_constant_id_met_again() -> None:
    first = emitted(start("msg"), says("hi"), turn(), STOP, request_id="req_1")
    second = emitted(start("msg"), calls(0, "{}"), turn("tool_use"), STOP, request_id="req_2")
    message = next(item for item in first if type(item).__name__ == "AssistantMessage")
    report = meter([*first, *second, message])
    assert [row["request_id"] for row in report["answers"]] == ["req_1", "req_2"]
    assert report["totals"]["blocks"] == {"text": 1, "tool_use": 1}


def test_30_cumulative_usage_overwrites() -> None:
    stream = [
        start(usage={"input_tokens": 26, "output_tokens": 3}),
        says("hi"),
        turn(None, {"input_tokens": 26, "output_tokens": 700}),
        turn("end_turn", {"input_tokens": 26, "output_tokens": 1956}),
        STOP,
    ]
    answer = only(meter(emitted(*stream)))
    assert (answer["input_tokens"], answer["output_tokens"]) == (26, 1956)


def test_30_an_explicit_zero_overwrites_and_null_does_not() -> None:
    stream = [
        start(usage={"input_tokens": 26, "cache_read_input_tokens": 8, "output_tokens": 3}),
        says("hi"),
        turn("end_turn", {"input_tokens": None, "cache_read_input_tokens": 0, "output_tokens": 4}),
        turn(None, {"output_tokens": None}),
        STOP,
    ]
    answer = only(meter(emitted(*stream)))
    assert (answer["input_tokens"], answer["cache_read_input_tokens"], answer["output_tokens"]) == (26, 0, 4)
    assert answer["stop_reason"] == "end_turn"


def test_30_the_same_start_again_does_not_double() -> None:
    usage = {"input_tokens": 17, "output_tokens": 1}
    report = meter(emitted(start("msg_a", usage=usage), start("msg_a", usage=usage), says("hi"), turn(), STOP))
    assert only(report)["input_tokens"] == 17
    assert report["totals"]["superseded_answers"] == 0


def test_30_the_same_start_again_with_other_numbers() -> None:
    first, again = start("msg_a", usage={"input_tokens": 17}), start("msg_a", usage={"input_tokens": 19})
    assert only(meter(emitted(first, again, says("hi"), turn(), STOP)))["input_tokens"] == 19


def test_31_input_and_cache_that_come_only_at_the_end() -> None:
    stream = [
        start(usage={"input_tokens": 0, "output_tokens": 0}),
        says("hi"),
        turn("end_turn", {"input_tokens": 900, "cache_read_input_tokens": 800, "output_tokens": 12}),
        STOP,
    ]
    answer = only(meter(emitted(*stream)))
    assert (answer["input_tokens"], answer["cache_read_input_tokens"], answer["output_tokens"]) == (900, 800, 12)


def test_32_no_event_at_all() -> None:
    report = meter(emitted())
    answer = only(report)
    assert (answer["outcome"], answer["error_type"], answer["incomplete"]) == ("empty", "empty_stream", True)
    assert report["incomplete"] is True
    assert report["totals"]["output_tokens"] is None
    assert report["totals"]["errors"] == {"empty_stream": 1}


def test_32_end_after_the_first_delta_without_usage() -> None:
    report = meter(emitted(start(usage=...), opens_text(), text(0, "Hel")))  # type: ignore[arg-type]
    answer = only(report)
    assert (answer["outcome"], answer["incomplete"], answer["error_type"]) == (
        "incomplete(0)",
        True,
        "incomplete_stream",
    )
    assert (answer["partial_blocks"], answer["blocks"]) == (1, {})
    assert (answer["input_tokens"], answer["output_tokens"], answer["usage"]) == (None, None, {})


def test_32_usage_that_is_no_usage() -> None:
    broken: Any = {"input_tokens": "12", "output_tokens": True, "server_tool_use": 3, "output_tokens_details": []}
    answer = only(meter(emitted(start(usage=broken), says("hi"), turn(usage={}), STOP)))
    assert (answer["input_tokens"], answer["output_tokens"], answer["thinking_tokens"]) == (None, None, None)
    assert answer["server_tool_use"] is None
    assert answer["usage"] == broken


def test_34_a_whole_answer_has_no_first_content() -> None:
    # A non-streaming reply, decoded into a start that holds everything.
    whole = start("msg_w", content=[{"type": "text", "text": "hi"}], stop_reason="end_turn", usage={"output_tokens": 9})
    report = clocked((10.0, [RequestStart()]), *timed((13.0, [whole, STOP])))
    answer = only(report)
    assert (answer["streamed"], answer["outcome"], answer["output_tokens"]) == (False, "complete", 9)
    for clock in ("first_event_ms", "first_thinking_ms", "first_content_ms", "first_visible_text_ms"):
        assert answer[clock] is None
    assert answer["tokens_per_s"] is None
    assert answer["duration_ms"] == 3000.0


def test_34_a_whole_answer_without_id() -> None:
    whole = start(None, content=[{"type": "text", "text": "hi"}], stop_reason="end_turn", usage={"output_tokens": 9})
    answer = only(meter(emitted(whole, STOP)))
    assert (answer["message_id"], answer["outcome"], answer["blocks"]) == (None, "complete", {"text": 1})


def test_34_a_fallback_message_without_events_has_no_times() -> None:
    message = read(
        {
            "id": "msg_f",
            "content": [{"type": "text", "text": "hi"}],
            "usage": {"output_tokens": 4},
            "stop_reason": "end_turn",
        },
        uuid="u",
    )
    report = clocked((1.0, [RequestStart()]), (9.0, [message]))
    answer = only(report)
    assert (answer["streamed"], answer["outcome"]) == (False, "complete")
    assert all(value is None for key, value in answer.items() if key.endswith(("_ms", "_per_s")))


def test_35_details_are_carried_through() -> None:
    usage = {
        "output_tokens": 500,
        "output_tokens_details": {"thinking_tokens": 420},
        "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 0},
        "iterations": [{"input_tokens": 5, "output_tokens": 500}],
        "speed": "fast",
    }
    report = meter(
        emitted(
            start(), says("hi"), turn("end_turn", usage), STOP, start("msg_b"), says("x"), turn("end_turn", usage), STOP
        )
    )
    answer = report["answers"][0]
    assert answer["thinking_tokens"] == 420
    assert answer["server_tool_use"] == {"web_search_requests": 2, "web_fetch_requests": 0}
    assert answer["usage"] == {"input_tokens": 7, **usage}
    assert report["totals"]["thinking_tokens"] == 840
    assert report["totals"]["server_tool_use"] == {"web_search_requests": 4, "web_fetch_requests": 0}


def test_35_no_word_of_thinking_is_null_not_zero() -> None:
    report = meter(emitted(start(), says("hi"), turn(), STOP))
    assert only(report)["thinking_tokens"] is None
    assert report["totals"]["thinking_tokens"] is None


def test_36_synthetic_messages_do_not_count() -> None:
    items = [
        *emitted(start(), says("hi"), turn(), STOP),
        MAKE.assistant("[Request interrupted by user]"),
        MAKE.assistant("Something else", usage={"input_tokens": 99, "output_tokens": 99}),
        MAKE.api_error("Prompt is too long", api_error="prompt_too_long"),
        read(
            {
                "id": "msg_x",
                "content": [{"type": "text", "text": "No response requested."}],
                "usage": {"output_tokens": 50},
            },
            uuid="x",
        ),
        read({"id": "msg_y", "content": [], "usage": {"output_tokens": 50}}, uuid="y", is_virtual=True),
    ]
    report = meter(items)
    assert report["totals"]["answers"] == 1
    assert report["totals"]["output_tokens"] == 5
    assert report["totals"]["blocks"] == {"text": 1}
    assert report["incomplete"] is False


def test_36_in_the_middle_of_an_answer() -> None:
    stream = [
        start(),
        opens_text(),
        text(0, "hi"),
        MAKE.assistant("x"),
        PING,
        {"type": "content_block_stop", "index": 0},
    ]
    report = meter(emitted(*stream, turn(), STOP))
    assert only(report)["blocks"] == {"text": 1}
    assert report["totals"]["events"] == 7
    assert report["totals"]["pings"] == 1


def test_93_errors_by_type() -> None:
    report = meter(emitted(start(), says("hi"), fails("overloaded_error")))
    answer = only(report)
    assert (answer["outcome"], answer["error_type"]) == ("api_error(overloaded_error)", "overloaded_error")
    assert report["totals"]["errors"] == {"overloaded_error": 1}
