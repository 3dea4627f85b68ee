"""``PlainRenderer``: what it prints, once and in order, and what it never lets through."""

from __future__ import annotations

import io
import re
from typing import Any

import frames as f
import pytest
from ui_items import Maker, events, factory, tombstones

from turnstream.messages import CollapsedReadSearch, GroupedToolUse, RequestStart, ResponseFailed, StreamNote
from turnstream.sinks.ui import PlainRenderer, UIState, safe
from turnstream.sinks.ui.terminal import encodable, shorten

MAKE = factory(4)
SGR = re.compile("\x1b\\[[0-9]+m")


def printed(*batches: Any, live: bool = False, end: bool = True, **options: Any) -> str:
    """What is on the screen after these batches, each rendered."""
    stream = io.StringIO()
    renderer = PlainRenderer(stream, live=live, **options)
    state = UIState(keep=False)
    for batch in batches:
        state.apply(batch if isinstance(batch, list) else [batch])
        renderer.render(state)
    if end:
        state.end()
        renderer.render(state)
        renderer.close()
    return stream.getvalue()


def one_by_one(items: list[Any], **options: Any) -> str:
    return printed(*([item] for item in items), **options)


def broken(kind: str = "overloaded_error", message: str = "too busy") -> ResponseFailed:
    return ResponseFailed(error={"type": kind, "message": message}, outcome=f"api_error({kind})")


# -- looks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("live", [False, True])
def test_the_kinds_of_an_answer(live: bool) -> None:
    make = Maker()
    items = [
        MAKE.user("what is\nhere?"),
        RequestStart(),
        *make.answer(
            make.thinking("let me ", "look", index=0),
            make.text("I'll ", "look:", index=1),
            make.tool({"path": "/tmp", "n": 1}, '{"path": "/tmp",', ' "n": 1}', index=2),
            stop_reason="tool_use",
        ),
        MAKE.tool_result("toolu_a", "a.txt\nb.txt"),
        MAKE.tool_result("toolu_b", "no such file", is_error=True),
    ]
    assert one_by_one(items, live=live) == (
        "> what is\n> here?\n"
        "thinking: let me look\n"
        "I'll look:\n"
        '● look({"path":"/tmp","n":1})\n'
        "  ⎿ a.txt\n    b.txt\n"
        "  ⎿ no such file\n"
    )


@pytest.mark.parametrize("live", [False, True])
def test_an_error_line_and_the_incomplete_mark(live: bool) -> None:
    make = Maker()
    items = [
        *events(f.start(), f.opens_text(), f.text(0, "It costs $1"), f.opens_tool(1), f.args(1, '{"pa'), f.fails()),
        make.aborted(
            [f.text_block("It costs $1")], unfinished_tool_inputs=[{"index": 1, "name": "look", "raw": '{"pa'}]
        ),
        broken(),
    ]
    assert one_by_one(items, live=live) == (
        'It costs $1\n● look({"pa) [incomplete]\n[incomplete]\n✗ overloaded_error: too busy\n'
    )


def test_a_boundary_is_a_divider_that_names_the_way_to_the_full_history() -> None:
    mark = MAKE.system("compact_boundary", "Conversation compacted")
    assert printed(mark, width=60) == "── Conversation compacted - full history: above ".ljust(60, "─") + "\n"
    assert "full history: s.jsonl " in printed(mark, history="s.jsonl")


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (MAKE.system("informational", "Model switched"), "Model switched\n"),
        (MAKE.system("away_summary"), "[away_summary]\n"),
        (MAKE.system("turn_duration", durationMs=12_340), "[turn: 12.3 s]\n"),
        (MAKE.system("x", "bad", level="error"), "✗ bad\n"),
        (MAKE.system("x", "for the model", is_meta=True), ""),
        (
            MAKE.system(
                "api_error",
                error={"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
                retryInMs=1500.0,
                retryAttempt=2,
                maxRetries=10,
            ),
            "✗ overloaded_error: busy - retry in 1.5 s (2/10)\n",
        ),
        (MAKE.system("local_command", "<local-command-stdout>done\n</local-command-stdout>"), "done\n"),
        (MAKE.attachment({"type": "memory"}), "[attachment: memory]\n"),
        (MAKE.progress("a", "b", {"type": "hook_progress", "hookName": "PreToolUse:Bash"}), "  hook_progress: PreToolUse:Bash\n"),
        (
            GroupedToolUse(
                tool_name="Read",
                messages=[
                    MAKE.assistant([{"type": "tool_use", "id": name, "name": "Read", "input": {"path": name}}])
                    for name in ("a.py", "b.py")
                ],
                results=[],
                uuid="g",
            ),
            "● Read x 2(a.py; b.py)\n",
        ),
        (
            CollapsedReadSearch(read_count=2, search_count=1, files=["a.py", "b.py"], messages=[], uuid="c"),
            "  read 2 files, searched 1 time: a.py, b.py\n",
        ),
        (MAKE.api_error("API Error: 400"), "✗ API Error: 400\n"),
        (MAKE.user("secret reminder", is_meta=True), ""),
        (MAKE.compact_summary("a summary"), ""),
        (MAKE.user("shown, never sent", is_virtual=True), "> shown, never sent\n"),
        (MAKE.interruption(), "[Request interrupted by user]\n"),
        (MAKE.user([{"type": "image", "source": {}}, {"type": "text", "text": "this"}]), "> [image]\n> this\n"),
        (StreamNote(kind="index_missing", message="m"), ""),
        (MAKE.tool_result("t", [{"type": "text", "text": "a"}, {"type": "image", "source": {}}]), "  ⎿ a\n    [image]\n"),
        (MAKE.tool_result("t", ""), "  ⎿ (no output)\n"),
    ],
)  # fmt: skip
def test_everything_else(message: Any, line: str) -> None:
    assert printed(message) == line


@pytest.mark.parametrize(
    ("block", "line"),
    [
        ({"type": "redacted_thinking", "data": "x"}, "thinking: [redacted]\n"),
        ({"type": "server_tool_use", "name": "advisor", "input": {}}, "● advisor()\n"),
        ({"type": "advisor_tool_result", "content": {"type": "advisor_result", "text": "ship it"}}, "  ⎿ ship it\n"),
        (
            {"type": "bash_code_execution_tool_result", "content": {"type": "x", "stdout": "out", "stderr": "err"}},
            "  ⎿ out\n    err\n",
        ),
        ({"type": "web_fetch_tool_result", "content": {"type": "e", "error_code": "too_old"}}, "  ⎿ too_old\n"),
        (
            {"type": "web_search_tool_result", "content": [{"type": "web_search_result", "title": "T", "url": "u"}]},
            "  ⎿ [T]\n",
        ),
        ({"type": "compaction", "content": "long"}, "[compaction]\n"),
        ({"type": "text", "text": ""}, ""),
        ({"type": "thinking", "thinking": "", "signature": "s"}, ""),
        ("no object", "[None]\n"),
    ],
)
def test_blocks(block: Any, line: str) -> None:
    message = Maker().finished(f.text_block("x"))
    message.message["content"] = [block]
    assert printed(message) == line


def test_an_invalid_input_is_marked() -> None:
    message = Maker().finished(f.tool_block('{"a":'), invalid_tool_input=True)
    assert printed(message) == '● look({"a":) [invalid input]\n'


def test_inputs_and_results_are_cut_sensibly() -> None:
    make = Maker()
    line = printed(make.finished(f.tool_block({"content": "x" * 100_000})), width=40)
    assert len(line.rstrip("\n")) <= 40
    assert line.endswith("…)\n")
    out = printed(MAKE.tool_result("t", "\n".join(str(n) for n in range(1000))), width=40)
    assert out.splitlines()[:2] == ["  ⎿ 0", "    1"]
    assert out.endswith("    … +992 lines\n")
    wide = printed(MAKE.tool_result("t", "y" * 10_000), width=40)
    assert len(wide) <= 41


@pytest.mark.parametrize(
    ("text", "width", "out"),
    [
        ("short", 20, "short"),
        ("a\n  b", 20, "a b"),
        ("a" * 30, 10, "a" * 9 + "…"),
        ("世" * 10, 10, "世世世世…"),
        ("世" * 5, 10, "世" * 5),
        ("e\u0301" * 10, 10, "e\u0301" * 10),
        ("", 10, ""),
        ("x" + " " * 1000 + "y", 10, "x…"),
    ],
)
def test_shorten_counts_columns(text: str, width: int, out: str) -> None:
    assert shorten(text, width, "…") == out


def test_a_sub_agents_items_are_indented() -> None:
    stream = io.StringIO()
    renderer = PlainRenderer(stream)
    state = UIState(keep=False)
    state.apply([Maker().finished(f.text_block("a\nb\n"))])
    renderer.render(state, "toolu_1")
    assert stream.getvalue() == "    a\n    b\n"


def test_ticks_are_printed_once() -> None:
    ticks = [MAKE.progress("p", "t", {"type": "bash_progress", "n": n}) for n in range(100)]
    assert one_by_one(ticks) == "  bash_progress\n"


# -- live ------------------------------------------------------------------------------------------------


def test_live_writes_only_what_is_new() -> None:
    stream = io.StringIO()
    renderer = PlainRenderer(stream, live=True)
    state = UIState(keep=False)
    state.apply(events(f.start(), f.opens_text()))
    sizes = []
    for n in range(1000):
        state.apply(events(f.text(0, f"{n} ")))
        before = stream.tell()
        renderer.render(state)
        sizes.append(stream.tell() - before)
    assert sizes == [len(f"{n} ") for n in range(1000)]


def test_bytes_are_those_of_the_text_and_a_constant_a_rendering() -> None:
    """FAULTS 78, with colour: no redraw however long the text is."""
    stream = io.StringIO()
    renderer = PlainRenderer(stream, live=True, color=True)
    state = UIState(keep=False)
    state.apply(events(f.start(), f.opens_thinking()))
    words = [f"word{n} \n" for n in range(2000)]
    for word in words:
        state.apply(events(f.thinks(0, word)))
        renderer.render(state)
    assert len(stream.getvalue()) <= len("".join(words)) + 2000 * 12 + 40
    assert "\x1b[2J" not in stream.getvalue()
    assert set(SGR.findall(stream.getvalue())) <= {"\x1b[2m", "\x1b[0m"}
    assert SGR.sub("", stream.getvalue()) == "thinking: " + "".join(words)


def test_not_live_prints_finished_blocks_only() -> None:
    assert printed(events(f.start(), f.opens_text(), f.text(0, "half")), end=False) == ""


def test_a_rendering_is_one_write() -> None:
    class Counting(io.StringIO):
        writes = 0

        def write(self, text: str) -> int:
            self.writes += 1
            return super().write(text)

    stream = Counting()
    renderer = PlainRenderer(stream)
    state = UIState(keep=False)
    make = Maker()
    state.apply(make.answer(make.thinking("a"), make.text("b", index=1), make.tool({}, index=2)))
    renderer.render(state)
    renderer.render(state)
    assert stream.writes == 1


@pytest.mark.parametrize("live", [False, True])
def test_overlapping_blocks_are_streamed_one_at_a_time(live: bool) -> None:
    make = Maker()
    items = [
        *events(f.start(), f.opens_text(0), f.opens_text(1)),
        *events([[f.text(0, f"a{n} "), f.text(1, f"b{n} ")] for n in range(3)]),
        make.finished(f.text_block("b0 b1 b2 "), 1),
        *events(f.closes(1), f.text(0, "a3")),
        make.finished(f.text_block("a0 a1 a2 a3"), 0),
        *events(f.closes(0), f.STOP),
    ]
    order = ["a0 a1 a2 a3\n", "b0 b1 b2 \n"]
    assert one_by_one(items, live=live) == "".join(order if live else reversed(order))


def test_what_finishes_meanwhile_waits_for_the_streamed_block() -> None:
    make = Maker()
    out = one_by_one(
        [
            *events(f.start(), f.opens_text(), f.text(0, "Let me ")),
            MAKE.tool_result("t", "result"),
            *events(f.text(0, "explain")),
            make.finished(f.text_block("Let me explain")),
            *events(f.closes(), f.STOP),
        ],
        live=True,
    )
    assert out == "Let me explain\n  ⎿ result\n"


@pytest.mark.parametrize("live", [False, True])
def test_with_settle_stopped_blocks_are_printed_once(live: bool) -> None:
    make = Maker()
    out = one_by_one(
        [
            *events(f.start(), f.opens_text(0), f.text(0, "one"), f.closes(0)),
            *events(f.opens_text(1), f.text(1, "two"), f.closes(1)),
            make.finished(f.text_block("one"), 0),
            make.finished(f.text_block("two"), 1),
            *events(f.STOP),
        ],
        live=live,
    )
    assert out == "one\ntwo\n"


def test_with_settle_a_stopped_block_of_an_abandoned_attempt_is_retracted() -> None:
    """settle drops the messages together with their tombstones: only the stream was ever seen."""
    make = Maker()
    out = one_by_one(
        [
            *events(f.start("msg_a"), f.opens_text(0), f.text(0, "one"), f.closes(0)),
            *events(f.opens_text(1), f.text(1, "two"), f.start("msg_b")),
            *make.text("new", ident="msg_b"),
            *events(f.STOP),
        ],
        live=True,
    )
    assert out == "one\ntwo\n(retracted)\n(retracted)\nnew\n"


@pytest.mark.parametrize("final", ["Hello, world", "Hel", "other"])
def test_a_normalized_block_counts_more_than_its_stream(final: str) -> None:
    make = Maker()
    out = one_by_one(
        [*events(f.start(), f.opens_text(), f.text(0, "Hello")), make.finished(f.text_block(final)), *events(f.STOP)],
        live=True,
    )
    assert out == ("Hello, world\n" if final == "Hello, world" else f"Hello\n(retracted)\n{final}\n")


def test_the_run_ends_in_the_middle_of_a_block() -> None:
    assert printed(events(f.start(), f.opens_text(), f.text(0, "half")), live=True) == "half\n[incomplete]\n"


def test_closing_without_an_end_ends_the_line() -> None:
    stream = io.StringIO()
    renderer = PlainRenderer(stream, live=True)
    state = UIState(keep=False)
    state.apply(events(f.start(), f.opens_text(), f.text(0, "half")))
    renderer.render(state)
    renderer.close()
    renderer.close()
    assert stream.getvalue() == "half\n[incomplete]\n"


# -- retractions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("live", [False, True])
def test_a_retracted_block_gets_a_line(live: bool) -> None:
    make = Maker()
    old = make.text("old")
    items = [
        *events(f.start("msg_a")),
        *old,
        *tombstones(old),
        *events(f.start("msg_b")),
        *make.text("new", ident="msg_b"),
        *events(f.STOP),
    ]
    assert one_by_one(items, live=live) == "old\n(retracted)\nnew\n"


def test_what_was_not_printed_yet_is_never_printed() -> None:
    make = Maker()
    old = make.text("old")
    items = [*events(f.start("msg_a")), *old, *tombstones(old), *events(f.start("msg_b"), f.STOP)]
    assert printed(items) == ""
    assert printed(items, live=True) == ""


def test_a_half_streamed_block_of_an_abandoned_attempt_is_retracted() -> None:
    make = Maker()
    items = [
        *events(f.start("msg_a"), f.opens_text(), f.text(0, "hal"), f.start("msg_b")),
        *make.text("new", ident="msg_b"),
        *events(f.STOP),
    ]
    assert one_by_one(items, live=True) == "hal\n(retracted)\nnew\n"
    assert one_by_one(items, live=False) == "new\n"


def test_a_streamed_block_finished_and_retracted_in_one_batch() -> None:
    make = Maker()
    message = make.finished(f.text_block("half"))
    out = printed(
        events(f.start("msg_a"), f.opens_text(), f.text(0, "hal")),
        [*events(f.text(0, "f")), message, *events(f.closes()), *tombstones([message]), *events(f.start("msg_b"))],
        live=True,
    )
    assert out == "half\n(retracted)\n"


def test_several_retractions_are_one_line() -> None:
    make = Maker()
    old = [*make.text("one", index=0), *make.text("two", index=1)]
    out = printed([*events(f.start("msg_a")), *old], [*tombstones(old), *events(f.start("msg_b"))])
    assert out == "one\ntwo\n(retracted: 2 blocks)\n"


def test_what_waits_behind_the_streamed_block_can_be_retracted_silently() -> None:
    make = Maker()
    other = make.finished(f.text_block("b"), 1)
    out = printed(
        events(f.start("msg_a"), f.opens_text(0), f.text(0, "a"), f.opens_text(1), f.text(1, "b")),
        [other],
        [*tombstones([other]), *events(f.start("msg_b"))],
        live=True,
    )
    assert out == "a\n(retracted)\n"


# -- safety ----------------------------------------------------------------------------------------------

ATTACKS = [
    "\x1b[2J\x1b[H",
    "\x1b]0;title\x07",
    "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\",
    "\x9b31m",
    "\x90q\x9c",
    "a\rb",
    "a\x08b",
    "\x00\x7f\x85",
    "\x0e\x0f\x0b\x0c",
]


def only_harmless(text: str) -> bool:
    return all(c in "\n\t" or (c >= " " and not "\x7f" <= c <= "\x9f") for c in text)


@pytest.mark.parametrize("attack", ATTACKS, ids=ascii)
@pytest.mark.parametrize("live", [False, True])
def test_nothing_in_what_is_shown_steers_the_terminal(attack: str, live: bool) -> None:
    make = Maker()
    tool = make.finished(f.tool_block({attack: attack}, name=attack), 2)
    invalid = make.finished(f.tool_block(attack), 3, invalid_tool_input=True)
    aborted = make.aborted([], unfinished_tool_inputs=[{"index": 4, "name": attack, "raw": attack}])
    items = [
        MAKE.user(attack),
        *events(f.start()),
        *make.thinking(*attack, index=0),
        *make.text(*attack, index=1),
        tool,
        invalid,
        make.finished({"type": attack}, 5),
        make.finished({"type": "web_fetch_tool_result", "content": {"error_code": attack}}, 6),
        aborted,
        broken(attack, attack),
        MAKE.tool_result("t", attack),
        MAKE.tool_result("t", [{"type": attack}, {"type": "x", "title": attack}], is_error=True),
        MAKE.user([{"type": attack}]),
        MAKE.attachment({"type": attack}),
        MAKE.progress("a", "b", {"type": attack, "message": attack}),
        MAKE.api_error(attack),
        MAKE.system(attack),
        MAKE.system("informational", attack, level="error"),
        MAKE.system("informational", attack),
        MAKE.system("local_command", attack),
        MAKE.system("compact_boundary", attack),
        MAKE.system("api_error", error={"type": attack, "message": attack}, retryInMs=1.0, retryAttempt=attack),
    ]
    assert only_harmless(one_by_one(items, live=live, history=attack))
    colored = one_by_one(items, live=live, color=True)
    assert only_harmless(SGR.sub("", colored))
    assert set(SGR.findall(colored)) <= {f"\x1b[{code}m" for code in (0, 1, 2, 31)}


def test_control_characters_are_written_out() -> None:
    assert safe("a\x1b[1mb\x9b\x00") == "a\\x1b[1mb\\x9b\\x00"
    assert safe("a\r\nb\tc\n") == "a\nb\tc\n"
    assert safe("U+2028 \u2028 and é stay") == "U+2028 \u2028 and é stay"


@pytest.mark.parametrize("live", [False, True])
def test_a_crlf_across_deltas_is_one_line_end(live: bool) -> None:
    make = Maker()
    items = make.answer(make.text("a\r", "\nb\r", "c\r"))
    assert one_by_one(items, live=live) == "a\nb\\x0dc\\x0d\n"


@pytest.mark.parametrize("live", [False, True])
def test_lone_surrogates_do_not_crash(live: bool) -> None:
    make = Maker()
    items = make.answer(make.text("a\ud99c", "b"), make.tool({"x": "\udc8f"}, index=1))
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="utf-8")
    renderer = PlainRenderer(stream, live=live)
    state = UIState(keep=False)
    for item in items:
        state.apply([item])
        renderer.render(state)
    assert raw.getvalue().decode() == 'a\ufffdb\n● look({"x":"\ufffd"})\n'


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "shift_jis"])
def test_any_encoding_of_the_terminal(encoding: str) -> None:
    """LANG=C: what the terminal can't show becomes a question mark, never an exception."""
    make = Maker()
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="strict")
    renderer = PlainRenderer(stream, live=True)
    state = UIState(keep=False)
    for item in [
        *make.answer(make.text("héllo 世界 ✅"), make.tool({}, index=1)),
        broken(),
        MAKE.tool_result("t", "x"),
    ]:
        state.apply([item])
        renderer.render(state)
    out = raw.getvalue().decode(encoding)
    assert out.startswith("h")
    if encoding == "ascii":
        assert out == "h?llo ?? ?\n* look()\nx overloaded_error: too busy\n  |_ x\n"


def test_encodable_leaves_alone_what_fits() -> None:
    text = "é" * 10
    assert encodable(text, "utf-8") is text
    assert encodable(text, None) is text
    assert encodable("é✅", "latin-1") == "é?"


def test_no_colour_no_sequences() -> None:
    make = Maker()
    items = [MAKE.user("x"), *make.answer(make.thinking("a"), make.tool({}, index=1)), broken()]
    assert "\x1b" not in one_by_one(items, live=True)
    assert "\x1b[2mthinking: \x1b[0m" in one_by_one(items, live=True, color=True)
