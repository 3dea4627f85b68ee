"""``accumulate``: deltas and tool inputs where a corpus of finished streams can't see (WIRE.md §1, deltas, tool input).

Rows of FAULTS.md are named in the tests that hold them.
"""

from __future__ import annotations

import json
from typing import Any

import frames as f
import pytest
from accumulating import events, kinds, messages, run, stage

from turnstream.messages import (
    encode,
)
from turnstream.operators import accumulate, decode_sse, parse_events, run_stages

# -- deltas --------------------------------------------------------------------------------------------


def test_fault_11_a_tool_input_is_parsed_once_however_many_fragments(monkeypatch: pytest.MonkeyPatch) -> None:
    from turnstream.operators import blocks, whole

    parsed: list[str] = []
    loads = blocks.loads

    def counting(text: Any, **options: Any) -> Any:
        parsed.append(text)
        return loads(text, **options)

    monkeypatch.setattr(blocks, "loads", counting)
    monkeypatch.setattr(whole, "loads", counting)
    value = {"content": "x" * 3_000}
    text = json.dumps(value)
    (message,) = messages(run(f.start(), f.calls(0, *text), f.turn("tool_use"), f.STOP))
    assert message.message["content"][0]["input"] == value
    assert parsed == [text]


def test_fault_12_fragments_are_joined_before_they_are_read() -> None:
    for cut in range(1, 7):
        text = '{"a":1}'
        (message,) = messages(run(f.start(), f.calls(0, text[:cut], "", text[cut:]), f.turn("tool_use"), f.STOP))
        assert message.message["content"][0]["input"] == {"a": 1}


def test_nothing_is_parsed_before_the_stop() -> None:
    accumulator = stage()
    out = [*accumulator.feed(events(f.start(), f.opens_tool(0), f.args(0, '{"a":1}')))]
    assert messages(out) == []
    (failed_with,) = messages(accumulator.flush())
    assert failed_with.unfinished_tool_inputs == [{"index": 0, "id": "toolu_a", "name": "look", "raw": '{"a":1}'}]


def test_an_unfinished_tool_keeps_the_whole_input_its_start_brought() -> None:
    items = run(f.start(), f.opens_tool(0, input={"path": "/a"}))
    (message,) = messages(items)
    assert json.loads(message.unfinished_tool_inputs[0]["raw"]) == {"path": "/a"}  # type: ignore[index]
    items = run(f.start(), f.opens_tool(0, input={"old": 1}), f.args(0, '{"new'))
    assert messages(items)[0].unfinished_tool_inputs[0]["raw"] == '{"new'  # type: ignore[index]


@pytest.mark.parametrize("depth", [200, 201])
def test_an_input_nests_as_deep_from_a_start_as_from_deltas(depth: int) -> None:
    deep = "[" * depth + "]" * depth
    by_delta = messages(run(f.start(), f.calls(0, deep), f.turn("tool_use"), f.STOP))[0]
    by_start = messages(
        run(f.start(), f.opens_tool(0, input=json.loads(deep)), f.closes(0), f.turn("tool_use"), f.STOP)
    )[0]
    assert by_delta.message["content"] == by_start.message["content"]
    assert by_delta.invalid_tool_input == by_start.invalid_tool_input == (True if depth > 200 else None)
    assert by_delta.message["content"][0]["input"] == (deep if depth > 200 else json.loads(deep))


@pytest.mark.parametrize("depth", [255, 600])
def test_a_start_deeper_than_any_encoder_writes_does_not_stop_the_stream(depth: int) -> None:
    payload = b'{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"n","input":'
    payload += b"[" * depth + b"]" * depth + b"}}"
    data = f.sse(f.start(), f.frame(payload), f.closes(0), f.turn("tool_use"), f.STOP)
    items = run_stages([data], decode_sse(), parse_events(), accumulate())
    (message,) = messages(items)
    assert message.message["content"][0]["input"] == "[" * depth + "]" * depth
    assert message.invalid_tool_input
    for item in items:
        encode(item)


def test_fault_24_a_signature_without_text_survives_a_missing_stop() -> None:
    items = run(f.start(), f.opens_thinking(0), f.signs(0, "sig"), f.turn(), f.STOP)
    assert [m.message["content"] for m in messages(items)] == [[f.thinking_block("", "sig")]]
    items = run(f.start(), f.opens_thinking(0), f.signs(0, "sig"))
    assert [m.message["content"] for m in messages(items)] == [[f.thinking_block("", "sig")]]


def test_a_delta_after_the_stop_is_kept_on_the_message_that_is_out_already() -> None:
    accumulator = stage()
    (message,) = messages(accumulator.feed(events(f.start(), f.says("a"))))
    assert message.unapplied_deltas is None
    out = accumulator.feed(events(f.text(0, "late"), f.cites(0, {"n": 1})))
    assert message.unapplied_deltas == [f.text(0, "late")["delta"], f.cites(0, {"n": 1})["delta"]]
    assert message.message["content"] == [f.text_block("a")]
    assert kinds(out) == ["delta_after_stop", "delta_after_stop"]


def test_the_short_way_for_runs_of_deltas_ends_with_its_block() -> None:
    # The block that deltas go to is cached: stops, other kinds, other blocks and new answers must end that.
    items = run(
        f.start("a"),
        f.opens_text(0),
        f.text(0, "1"),
        f.text(0, "2"),
        f.opens_thinking(1),
        f.thinks(1, "x"),
        f.text(0, "3"),
        f.thinks(1, "y"),
        f.closes(0),
        f.thinks(1, "z"),
        f.text(0, "late"),
        f.closes(1),
        f.turn(),
        f.STOP,
        f.start("b"),
        f.opens_text(0),
        f.text(0, "new"),
        f.closes(0),
        f.turn(),
        f.STOP,
    )
    assert [m.message["content"][0] for m in messages(items)] == [
        f.text_block("123"),
        f.thinking_block("xyz"),
        f.text_block("new"),
    ]


def test_a_made_up_block_never_takes_the_place_of_one_that_got_its_index() -> None:
    # Index 0 was used twice, so the second block got 1; then a delta names 1, which the wire never opened.
    items = run(
        f.start(), f.says("a", 0), f.opens_text(0), f.text(0, "b"), f.closes(0), f.text(1, "c"), f.turn(), f.STOP
    )
    assert sorted((m.index, m.message["content"][0]["text"]) for m in messages(items)) == [(0, "a"), (1, "b"), (2, "c")]


@pytest.mark.parametrize("held", [1, True, 1.5, "abc", {"a": 1}, None])
def test_citations_that_are_no_list_are_replaced_not_splatted(held: Any) -> None:
    from turnstream.messages import AssistantMessage
    from turnstream.operators import accumulate, decode, parse_events, run_stages

    payloads = [
        {"type": "message_start", "message": {"id": "m", "usage": {}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "", "citations": held}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {"n": 1}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {"n": 2}}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_stop"},
    ]
    data = b"".join(b"data: " + json.dumps(p).encode() + b"\n\n" for p in payloads)
    items = run_stages([data], decode(), parse_events(), accumulate())
    (message,) = [item for item in items if isinstance(item, AssistantMessage)]
    assert message.message["content"][0]["citations"] == [{"n": 1}, {"n": 2}]


def _items(*payloads: dict[str, Any]) -> list[Any]:
    from turnstream.operators import decode

    data = b"".join(b"data: " + json.dumps(p).encode() + b"\n\n" for p in payloads)
    return run_stages([data], decode(), parse_events(), accumulate())


_START: dict[str, Any] = {"type": "message_start", "message": {"id": "m", "usage": {}}}
_TOOL: dict[str, Any] = {"type": "tool_use", "id": "t", "name": "Read", "input": {}}
_STRAY: dict[str, Any] = {"type": "input_json_delta", "partial_json": '"stray"'}


def test_a_fragment_for_an_unopened_index_never_lands_in_another_tool() -> None:
    """WIRE.md §1: only text and thinking may go to another open block."""
    from turnstream.messages import AssistantMessage

    items = _items(
        _START,
        {"type": "content_block_start", "index": 0, "content_block": _TOOL},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"a":1}'}},
        {"type": "content_block_delta", "index": 9, "delta": _STRAY},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    )
    tool, rest = (item for item in items if isinstance(item, AssistantMessage))
    assert tool.message["content"][0]["input"] == {"a": 1}
    assert tool.unapplied_deltas is None
    assert rest.unapplied_deltas == [_STRAY]


def test_a_delta_that_no_block_took_is_kept_without_message_stop_too() -> None:
    from turnstream.messages import AssistantMessage

    items = _items(
        _START,
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "x"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_delta", "index": 9, "delta": _STRAY},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
    )
    kept = [item.unapplied_deltas for item in items if isinstance(item, AssistantMessage)]
    assert kept == [None, [_STRAY]]
