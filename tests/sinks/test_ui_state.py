"""The reducer against WIRE.md §5 (router) and the faults of the display (FAULTS 25, 80-82)."""

from __future__ import annotations

from typing import Any

import frames as f
import pytest
from ui_items import Maker, events, factory, messages_of, texts_of, tombstones

from turnstream.messages import (
    AssistantMessage,
    OpaqueRecord,
    RequestStart,
    ResponseFailed,
    Resync,
    StreamEventMessage,
    StreamNote,
    ToolUseSummary,
    event_from_wire,
)
from turnstream.sinks.ui import UIState


def failed(kind: str = "incomplete_stream", outcome: str = "incomplete(0)") -> ResponseFailed:
    return ResponseFailed(error={"type": kind, "message": "it broke"}, outcome=outcome)


def after(*items: object, state: UIState | None = None) -> UIState:
    state = state or UIState()
    state.apply(list(items))
    return state


# -- router: modes ---------------------------------------------------------------------------------------


def test_idle_at_first() -> None:
    assert UIState().snapshot().mode is None


def test_request_start_means_requesting() -> None:
    assert after(RequestStart()).mode == "requesting"


@pytest.mark.parametrize(
    ("start", "mode"),
    [
        (f.opens_thinking(), "thinking"),
        (f.opens(0, "redacted_thinking", data="x"), "thinking"),
        (f.opens_text(), "responding"),
        (f.opens_tool(), "tool-input"),
        (f.opens(0, "server_tool_use", id="s", name="web_search", input={}), "tool-input"),
        (f.opens(0, "mcp_tool_use", id="s", name="m", input={}), "tool-input"),
        (f.opens(0, "web_search_tool_result", tool_use_id="s", content=[]), "requesting"),
        (f.opens(0, "brand_new_block", any=1), "requesting"),
    ],
)
def test_block_start_sets_the_mode_but_results_and_unknown_leave_it(start: dict[str, object], mode: str) -> None:
    assert after(RequestStart(), *events(f.start(), start)).mode == mode


def test_message_stop_means_tool_use_and_clears_entries() -> None:
    state = after(*events(f.start(), f.opens_tool(), f.args(0, '{"a":')))
    assert [e.unparsed_tool_input for e in state.snapshot().tools] == ['{"a":']
    state.apply(events(f.STOP))
    assert state.mode == "tool-use"
    assert state.snapshot().tools == ()


def test_tool_entry_has_index_block_and_unparsed_input() -> None:
    state = after(*events(f.start(), f.opens_tool(3), f.args(3, '{"pa'), f.args(3, ""), f.args(3, 'th": "')))
    (entry,) = state.snapshot().tools
    assert entry.index == 3
    assert entry.content_block["name"] == "look"
    assert entry.unparsed_tool_input == '{"path": "'


def test_a_stray_message_stop_changes_nothing() -> None:
    state = after(*events(f.start()), failed())
    state.apply(events(f.STOP))
    assert state.mode is None
    assert state.incomplete


def test_failure_means_idle_and_end_means_idle() -> None:
    assert after(*events(f.start(), f.opens_text()), failed()).mode is None
    state = after(*Maker().answer(Maker().text("hi")))
    state.end()
    assert state.mode is None
    assert state.outcome == "complete"


# -- router: deltas --------------------------------------------------------------------------------------


def test_deltas_add_to_streamed_length_but_signatures_and_seeds_do_not() -> None:
    state = after(
        *events(
            f.start(),
            f.opens(0, "thinking", thinking="seed", signature=""),
            f.thinks(0, "abc"),
            f.signs(0, "s" * 500),
            f.closes(0),
            f.opens_text(1),
            f.text(1, "défg"),
            f.opens_tool(2),
            f.args(2, "{}"),
        )
    )
    assert state.streamed_length == 3 + 4 + 2
    assert state.snapshot().streamed_length == 9
    state.apply(events(f.STOP))
    assert state.streamed_length == 9, "the length stays when the blocks go"


def test_text_is_a_list_of_parts_with_the_seed_first() -> None:
    state = after(*events(f.start(), f.opens(0, "text", text="A"), f.text(0, "B"), f.text(0, "C")))
    (block,) = state.open_blocks
    assert block.parts == ["A", "B", "C"]
    assert state.snapshot().blocks[0].text == "ABC"


@pytest.mark.parametrize("filler", [0, 1, 100])
def test_interleaved_blocks_get_their_own_deltas(filler: int) -> None:
    state = after(
        *events(
            f.start(),
            f.opens_text(0),
            f.opens_tool(2),
            [f.text(0, "a"), f.args(2, "1")] * 3,
            [f.text(0, ".")] * filler,
            f.args(2, "2"),
        )
    )
    assert [(b.index, b.text) for b in state.snapshot().blocks] == [(0, "aaa" + "." * filler), (2, "1112")]


@pytest.mark.parametrize("size", [1, 3, 200])
@pytest.mark.parametrize(
    "stranger",
    [
        f.PING,
        f.text(5, "x"),  # synthesizes a block of its own
        f.args(0, "x"),  # can't be applied to text
        f.signs(0, "s"),
        f.delta(0, "new_delta", text="x"),
        f.delta(0, "citations_delta", citation={"text": "x"}),
        f.turn(),
        f.text(None, "x"),  # accumulate left it unapplied
    ],
    ids=lambda payload: payload.get("delta", payload).get("type", payload["type"]),
)
def test_a_run_of_deltas_with_something_else_in_it(size: int, stranger: dict[str, object]) -> None:
    """The whole-batch way must see what isn't its own, wherever it stands."""
    for position in (0, size // 2, size):
        run = [f.text(0, f"<{i}>") for i in range(size)]
        run.insert(position, stranger)
        state = after(*events(f.start(), f.opens_text()))
        state.apply(events(run))
        assert state.snapshot().blocks[0].text == "".join(f"<{i}>" for i in range(size))
        lost = [(block.index, block.text) for block in state.snapshot().blocks[1:]]
        assert lost == ([(5, "x")] if stranger.get("index") == 5 else [])


def test_deltas_to_a_stopped_block_and_after_the_end_are_not_shown() -> None:
    state = after(*events(f.start(), f.opens_text(), f.text(0, "a"), f.closes(0), f.text(0, "late")))
    assert state.snapshot().blocks[0].text == "a"
    state.apply([Maker().finished(f.text_block("a")), *events(f.text(0, "later"))])
    assert state.snapshot().blocks == (), "a delta to a block that was finished opens no other"
    state.apply(events(f.STOP, f.text(7, "stray"), f.opens_text(8)))
    assert state.snapshot().blocks == ()


def test_a_text_delta_to_an_index_never_opened_synthesizes_a_block() -> None:
    state = after(*events(f.start(), f.text(4, "lost "), f.text(4, "and found"), f.args(6, "{}")))
    assert [(b.index, b.type, b.text) for b in state.snapshot().blocks] == [(4, "text", "lost and found")]


def test_an_answer_without_message_start_is_shown() -> None:
    make = Maker()
    state = after(*events(f.opens_text(), f.text(0, "hi")))
    assert texts_of(state.snapshot()) == ["hi"]
    message = make.finished(f.text_block("hi"), 0, "msg_made_up", synthesized_envelope=True)
    state.apply([message, *events(f.closes(0))])
    assert texts_of(state.snapshot()) == ["hi"]


def test_the_raw_start_event_is_not_changed() -> None:
    start = f.opens_tool()
    items = events(f.start(), start, f.args(0, '{"a":1}'))
    state = after(*items)
    state.snapshot()
    assert start["content_block"] == {"type": "tool_use", "id": "toolu_a", "name": "look", "input": {}}


# -- superseding -----------------------------------------------------------------------------------------


def test_fault_82_a_finished_message_supersedes_its_stream() -> None:
    make = Maker()
    state = after(*events(f.start(), f.opens_text(), f.text(0, "Hel"), f.text(0, "lo")))
    assert texts_of(state.snapshot()) == ["Hello"]
    assert messages_of(state.snapshot()) == []
    message = make.finished(f.text_block("Hello"))
    state.apply([message])
    assert state.snapshot().blocks == ()
    assert messages_of(state.snapshot()) == [message]


def test_identity_is_message_id_and_index_never_text() -> None:
    """FAULTS 25: "A B C" must not become "A B B C", and two blocks with equal ends stay two."""
    make = Maker()
    state = after(
        *events(f.start()),
        *make.text("one **", index=0),
        *make.text("** two", index=1),
        *events(f.opens_text(2), f.text(2, "** two")),
    )
    assert texts_of(state.snapshot()) == ["one **", "** two", "** two"]


def test_a_message_of_another_answer_supersedes_nothing() -> None:
    make = Maker()
    other = make.finished(f.text_block("Hi"), 0, "msg_other")
    state = after(*events(f.start("msg_a"), f.opens_text(), f.text(0, "Hi")), other)
    assert texts_of(state.snapshot()) == ["Hi", "Hi"]
    note = factory(7).api_error("API Error: no")
    state.apply([note])
    assert len(state.snapshot().blocks) == 1


def test_a_message_without_index_supersedes_the_first_block_of_its_type() -> None:
    make = Maker()
    state = after(
        *events(f.start(), f.opens_thinking(0), f.thinks(0, "t"), f.opens_text(1), f.text(1, "a")),
        make.finished(f.text_block("a"), None),
    )
    assert [b.type for b in state.snapshot().blocks] == ["thinking"]


def test_with_settle_messages_come_after_their_stops() -> None:
    """settle holds messages until message_stop: the stopped block stays shown until then, once."""
    make = Maker()
    one, two = make.finished(f.text_block("one"), 0), make.finished(f.text_block("two"), 1)
    state = after(
        *events(f.start(), f.opens_text(0), f.text(0, "one"), f.closes(0), f.opens_text(1), f.text(1, "two")),
        *events(f.closes(1)),
    )
    assert texts_of(state.snapshot()) == ["one", "two"]
    assert [b.closed for b in state.snapshot().blocks] == [True, True]
    state.apply([one, two, *events(f.STOP)])
    assert texts_of(state.snapshot()) == ["one", "two"]
    assert messages_of(state.snapshot()) == [one, two]


def test_the_streams_of_a_finished_item_name_the_blocks_it_replaced() -> None:
    make = Maker()
    state = after(*events(f.start(), f.opens_thinking(0), f.thinks(0, "t"), f.opens_text(1), f.text(1, "a")))
    serials = [block.serial for block in state.open_blocks]
    state.apply([make.aborted([f.thinking_block("t"), f.text_block("a")]), failed()])
    item = state.snapshot().items[0]
    assert list(item.streams) == serials
    assert len(set(serials)) == 2


def test_an_aborted_message_without_one_of_the_blocks_pairs_by_type_and_order() -> None:
    make = Maker()
    state = after(*events(f.start(), f.opens_text(0), f.opens_tool(1), f.args(1, "{"), f.opens_text(2), f.text(2, "x")))
    third = state.open_blocks[2].serial
    partial = make.aborted([f.text_block("x")], unfinished_tool_inputs=[{"index": 1, "id": "t", "raw": "{"}])
    state.apply([partial])
    assert state.snapshot().items[0].streams == (third,), "block 0 was empty and makes no message"
    assert state.snapshot().blocks == ()


def test_two_blocks_of_one_type_are_paired_in_index_order() -> None:
    state = after(*events(f.start(), f.opens_text(0), f.text(0, "x"), f.opens_text(1), f.text(1, "y")))
    serials = tuple(block.serial for block in state.open_blocks)
    state.apply([Maker().aborted([f.text_block("x"), f.text_block("y")])])
    assert state.snapshot().items[0].streams == serials


def test_a_carrier_of_unfinished_tools_takes_their_entries() -> None:
    make = Maker()
    state = after(*events(f.start(), f.opens_tool(0), f.args(0, '{"a')))
    carrier = make.finished(None, None, unfinished_tool_inputs=[{"index": 0, "id": "toolu_a", "raw": '{"a'}])
    state.apply([carrier])
    assert state.snapshot().tools == ()


def test_the_same_message_again_is_not_shown_twice() -> None:
    make = Maker()
    items = make.answer(make.text("hi"))
    state = after(*items)
    state.apply([item for item in items if isinstance(item, AssistantMessage)])
    assert texts_of(state.snapshot()) == ["hi"]
    assert state.duplicates == 1


# -- thinking --------------------------------------------------------------------------------------------


def test_thinking_streams_then_is_finished_with_its_end_time() -> None:
    make = Maker()
    state = UIState()
    state.apply(events(f.start(), f.opens_thinking()), 10.0)
    state.apply(events(f.thinks(0, "hm")), 11.0)
    thinking = state.snapshot().thinking
    assert thinking is not None
    assert (thinking.text, thinking.streaming, thinking.started_at, thinking.ended_at) == ("hm", True, 10.0, None)
    state.apply([make.finished(f.thinking_block("hm")), *events(f.closes(0))], 12.5)
    state.apply(make.text("answer", index=1), 20.0)
    thinking = state.snapshot().thinking
    assert thinking is not None
    assert (thinking.text, thinking.streaming, thinking.started_at, thinking.ended_at) == ("hm", False, 10.0, 12.5)


def test_without_a_clock_times_are_null() -> None:
    make = Maker()
    state = after(*events(f.start()), *make.thinking("x"))
    thinking = state.snapshot().thinking
    assert thinking is not None
    assert (thinking.started_at, thinking.ended_at) == (None, None)


def test_redacted_thinking_has_no_text() -> None:
    state = after(*events(f.start(), f.opens(0, "redacted_thinking", data="x")))
    thinking = state.snapshot().thinking
    assert thinking is not None
    assert (thinking.text, thinking.streaming) == (None, True)
    state.apply(events(f.closes(0)))
    assert state.snapshot().thinking is not None
    assert not state.snapshot().thinking.streaming  # type: ignore[union-attr]


def test_thinking_ends_when_its_answer_breaks_off() -> None:
    state = UIState()
    state.apply(events(f.start(), f.opens_thinking(), f.thinks(0, "hm")), 1.0)
    state.apply([failed()], 2.0)
    thinking = state.snapshot().thinking
    assert thinking is not None
    assert (thinking.streaming, thinking.ended_at) == (False, 2.0)


# -- ends and attempts -----------------------------------------------------------------------------------


def test_only_message_stop_completes() -> None:
    """FAULTS 80: a cut-off answer is never shown as complete."""
    make = Maker()
    state = after(*events(f.start(), f.opens_text(), f.text(0, "It costs $1,00")))
    assert state.outcome is None
    partial = make.aborted([f.text_block("It costs $1,00")])
    state.apply([partial, failed(outcome="incomplete(0)")])
    snapshot = state.snapshot()
    assert snapshot.incomplete
    assert snapshot.outcome == "incomplete(0)"
    assert [item.kind for item in snapshot.items] == ["assistant", "error"]


def test_no_message_stop_note_completes_too() -> None:
    make = Maker()
    state = after(*events(f.start()), *make.text("x"), StreamNote(kind="no_message_stop", message=""))
    assert (state.outcome, state.mode) == ("complete", "tool-use")


def test_a_failure_right_behind_message_stop_takes_complete_back() -> None:
    state = after(*events(f.start(), f.STOP), failed("tool_use_without_block", "protocol_error(x)"))
    assert state.outcome == "protocol_error(x)"
    assert state.incomplete


def test_an_error_event_alone_is_not_shown_its_failure_is() -> None:
    state = after(*events(f.start(), f.fails()))
    assert state.snapshot().items == ()
    state.apply([failed("overloaded_error", "api_error(overloaded_error)")])
    assert [item.kind for item in state.snapshot().items] == ["error"]


def test_request_start_closes_an_open_answer_as_incomplete() -> None:
    make = Maker()
    state = after(*events(f.start()), *make.text("done"), *events(f.opens_text(1), f.text(1, "cut")), RequestStart())
    assert state.outcome == "incomplete(1)"
    assert state.snapshot().blocks == ()


@pytest.mark.parametrize("fields", [{}, {"fallback": "another model"}])
def test_what_an_attempt_had_open_goes_when_the_next_one_is_announced(fields: dict[str, Any]) -> None:
    """Not only when it begins: the wait may take half a minute (FAULTS.md 94)."""
    make = Maker()
    announced = (
        factory().system("informational", "going on", level="warning", **fields)
        if fields
        else factory().api_retry(
            {"type": "overloaded_error", "message": "x"}, retry_in_ms=30_000.0, retry_attempt=1, max_retries=9
        )
    )
    state = after(*events(f.start()), *make.text("done"), *events(f.opens_text(1), f.text(1, "cut")), announced)
    snapshot = state.snapshot()
    assert list(snapshot.blocks) == []
    assert snapshot.mode == "requesting"
    assert state.outcome == "incomplete(1)"
    # one that isn't about the answer leaves it alone
    state = after(*events(f.start(), f.opens_text(0), f.text(0, "on")), factory().system("informational", "by the way"))
    assert [block.text for block in state.snapshot().blocks] == ["on"]


def test_a_new_attempt_drops_the_old_stream_and_tombstones_its_messages() -> None:
    make = Maker()
    old = [*make.text("old", index=0), *events(f.opens_text(1), f.text(1, "half"))]
    state = after(*events(f.start("msg_a")), *old)
    assert texts_of(state.snapshot()) == ["old", "half"]
    state.apply([*tombstones(old), *events(f.start("msg_b"))])
    assert texts_of(state.snapshot()) == []
    state.apply([*make.text("new", ident="msg_b"), *events(f.STOP)])
    assert texts_of(state.snapshot()) == ["new"]
    assert state.outcome == "complete"


def test_the_same_start_again_before_any_block_goes_on() -> None:
    make = Maker()
    state = after(*events(f.start("msg_a"), f.start("msg_a")), *make.text("x"), *events(f.start("msg_a")))
    assert state.answering
    assert state.snapshot().used == frozenset(), "after a block the same start is a new attempt"


@pytest.mark.parametrize(
    "end",
    [
        [failed()],
        events(f.STOP),
        [RequestStart()],
        events(f.start("msg_new"), f.STOP),
        [StreamNote(kind="no_message_stop", message="")],
        [Maker(9).aborted([f.text_block("a")]), failed()],
        [],
    ],
    ids=["failed", "stop", "request", "attempt", "no_message_stop", "aborted", "end of the run"],
)
def test_block_starts_and_ends_are_balanced_however_an_answer_ends(end: list[object]) -> None:
    """FAULTS 81: text, tool, text, abort."""
    make = Maker()
    state = after(
        *events(f.start()),
        *make.text("a", index=0),
        *make.tool({}, index=1),
        *events(f.opens_text(2), f.text(2, "b"), f.opens_thinking(3), f.opens_tool(4), f.closes(4)),
        *end,
    )
    state.end()
    assert state.blocks_opened == 5
    assert state.blocks_closed == 5
    assert state.snapshot().blocks == ()
    assert not state.answering


def test_the_run_ends_in_the_middle_of_an_answer() -> None:
    state = after(*events(f.start(), f.opens_text(), f.text(0, "x")))
    state.end()
    assert state.outcome == "incomplete(0)"


def test_a_broken_run_shows_its_error_once() -> None:
    state = after(*events(f.start(), f.opens_text(), f.text(0, "x")))
    state.fail(ConnectionResetError("gone"))
    (item,) = state.snapshot().items
    assert isinstance(item.message, ResponseFailed)
    assert item.message.error["message"] == "gone"
    told = after(*events(f.start()), failed())
    told.fail(ValueError("the same again"))
    assert len(told.snapshot().items) == 1


# -- the rest --------------------------------------------------------------------------------------------


def test_what_is_not_shown_leaves_the_display_alone() -> None:
    make = factory()
    state = after(
        *events(f.PING, {"type": "future_event", "x": 1}),
        Resync(),
        ToolUseSummary(summary="s", uuid=make.ids("s"), timestamp=make.timestamp()),
        StreamNote(kind="index_missing", message="m"),
        object(),
    )
    assert state.snapshot() == UIState().snapshot()
    assert state.notes == 1


def test_an_opaque_record_is_an_item() -> None:
    state = after(OpaqueRecord(type="mode", data={}))
    assert [item.kind for item in state.snapshot().items] == ["opaque"]


def test_an_envelope_counts_as_its_event_unless_it_is_a_sub_agents() -> None:
    state = after(
        *(StreamEventMessage(event=event_from_wire(p)) for p in (f.start(), f.opens_text(), f.text(0, "x"))),
        StreamEventMessage(event=event_from_wire(f.text(0, "y")), parent_tool_use_id="toolu_1"),
    )
    assert texts_of(state.snapshot()) == ["x"]


def test_snapshot_is_immutable_and_does_not_follow() -> None:
    state = after(*events(f.start(), f.opens_text(), f.text(0, "a")))
    before = state.snapshot()
    state.apply(events(f.text(0, "b")))
    assert before.blocks[0].text == "a"
    with pytest.raises(AttributeError):
        before.mode = None  # type: ignore[misc]
