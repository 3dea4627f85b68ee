"""The live display on a real terminal (a pty): what stands on the screen at the end, and how much was written."""

from __future__ import annotations

import asyncio
import io
import os
import re
import sys
import threading
from typing import Any

import frames as f
import pytest
from ui_items import Maker, events

from turnstream.sinks.ui import PlainRenderer, UISink

pytestmark = pytest.mark.skipif(not hasattr(os, "openpty"), reason="no pty here")

SGR = re.compile(r"\x1b\[[0-9]+m")


class Terminal:
    """A pty whose other end is read as a terminal would read it."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._master, slave = os.openpty()
        self.stream = open(slave, "w", encoding=encoding)  # noqa: SIM115
        self._read = bytearray()
        self._thread = threading.Thread(target=self._pump)
        self._thread.start()

    def _pump(self) -> None:
        while True:
            try:
                chunk = os.read(self._master, 65536)
            except OSError:  # Linux says EIO when the last writer is gone
                return
            if not chunk:
                return
            self._read += chunk

    def finish(self) -> bytes:
        """All that was written, line ends as the program wrote them."""
        self.stream.close()
        self._thread.join(30)
        os.close(self._master)
        return bytes(self._read).replace(b"\r\n", b"\n")


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


def session(make: Maker, words: int = 400) -> list[Any]:
    return [
        make.make.user("go on"),
        *make.answer(
            make.thinking(*(f"step {n}. " for n in range(words)), index=0),
            make.text(*(f"wörd{n}\n" if n % 9 == 0 else f"word{n} " for n in range(words)), index=1),
            make.tool({"path": "a.txt"}, '{"path": ', '"a.txt"}', index=2),
            stop_reason="tool_use",
        ),
        make.make.tool_result("toolu_a", "one\ntwo"),
        *events(f.start("msg_b"), f.opens_text(), [f.text(0, f"{n} ") for n in range(50)]),
        make.aborted([f.text_block("".join(f"{n} " for n in range(50)))], "msg_b"),
    ]


def not_live(items: list[Any]) -> str:
    stream = io.StringIO()
    sink = UISink(PlainRenderer(stream))
    sink.on_next(items)
    sink.on_completed()
    return stream.getvalue()


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("size", [1, 7, 100])
def test_the_screen_shows_the_same_as_a_pipe(terminal: Terminal, color: bool, size: int) -> None:
    assert terminal.stream.isatty()
    items = session(Maker())

    async def run() -> UISink:
        sink = UISink(PlainRenderer(terminal.stream, live=True, color=color))
        for at in range(0, len(items), size):
            sink.on_next(items[at : at + size])
            await asyncio.sleep(0)
        sink.on_completed()
        await sink.aclose()
        return sink

    sink = asyncio.run(run())
    written = terminal.finish().decode()
    expected = not_live(items)
    assert SGR.sub("", written) == expected
    # FAULTS 78: the text, and for each rendering at most a dimmed piece's two sequences and a line's few.
    assert len(written) <= len(expected) + color * 9 * (sink.renders + expected.count("\n"))
    assert "\x1b" not in written or color


def test_every_batch_rendered_on_a_terminal_costs_its_own_text_only(terminal: Terminal) -> None:
    """No throttle at all: 10,000 renderings write no more than the text."""
    sink = UISink(PlainRenderer(terminal.stream, live=True), interval=0.0)

    async def run() -> None:
        sink.on_next(events(f.start(), f.opens_text()))
        for n in range(10_000):
            sink.on_next(events(f.text(0, f"{n} ")))
        await sink.aclose()

    asyncio.run(run())
    text = "".join(f"{n} " for n in range(10_000))
    written = terminal.finish().decode()
    assert written.startswith(text)
    assert written[len(text) :] == "\n[incomplete]\n", "the run was closed in the middle of an answer"


def test_a_terminal_of_an_ascii_locale() -> None:
    terminal = Terminal("ascii")
    make = Maker()
    sink = UISink(PlainRenderer(terminal.stream, live=True))
    sink.on_next(make.answer(make.text("héllo ✅ \x1b[2J"), make.tool({}, index=1)))
    sink.on_completed()
    assert terminal.finish() == b"h?llo ? \\x1b[2J\n* look()\n"


@pytest.mark.skipif(sys.platform == "win32", reason="pipes differ")
def test_a_reader_that_went_away_is_told_to_the_caller() -> None:
    read, write = os.pipe()
    os.close(read)
    stream = open(write, "w", encoding="utf-8")  # noqa: SIM115
    make = Maker()
    sink = UISink(PlainRenderer(stream))
    try:
        with pytest.raises(BrokenPipeError):
            sink.on_next(make.answer(make.text("x" * 10)))
    finally:
        # The buffered rest can't be written either.
        with pytest.raises(BrokenPipeError):
            stream.close()
