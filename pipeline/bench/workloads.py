"""Workloads: byte streams made from a seed, in the shapes that agents meet.

===  ============================================================================================
A    one long answer of 250,000 small thinking and text deltas, with escapes and emoji
B    one tool input of 2 MB in fragments of 20 characters (and ½, ¼, ⅛ of it: growth must be linear)
C    2,000 short answers, each with a text and a tool call
D    deltas of 2 KB, in answers of 1 MB (memory)
===  ============================================================================================
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, Final

import msgspec

__all__ = ["WORKLOADS", "Workload", "make_workload"]

CHUNK: Final = 16 * 1024

_WORDS: Final = (
    " the", " of", " a", "stream", " river", "ing", " each", " flows", ", and", ". Then", " it", " 42", " –",
    ' "quoted"', "\n", "\n\n", "\t", " back\\slash", " café", " naïve", " 漢字", " 🛶", " 👩‍💻", " <tag>", " {json}", " %d",
)  # fmt: skip


class Workload(msgspec.Struct, frozen=True):
    """A byte stream and what it must come to.

    Attributes:
        name: the letter, with the share for fractions of B (``B/2``).
        events: the frames, one server-sent event each.
        answers: the events of each answer as (first, after last), indexes into ``events``.
        text_characters: characters of text and thinking that the deltas carry.
        tool_characters: characters of tool input that the fragments carry.
        fresh: many short answers, each for a fresh chain of stages.
    """

    name: str
    events: list[bytes]
    answers: list[tuple[int, int]]
    text_characters: int
    tool_characters: int
    fresh: bool = False

    @property
    def blocks(self) -> int:
        """How many content blocks it holds."""
        return sum(event.startswith(b"event: content_block_stop\n") for event in self.events)

    def data(self) -> bytes:
        """All bytes."""
        return b"".join(self.events)

    def chunks(self, size: int = CHUNK) -> list[bytes]:
        """The bytes in chunks of ``size``, cut anywhere; 0: one event a chunk."""
        if size == 0:
            return list(self.events)
        data = self.data()
        return [data[start : start + size] for start in range(0, len(data), size)]

    def answer_chunks(self, size: int = CHUNK) -> list[list[bytes]]:
        """The same per answer (each answer's bytes are cut on their own)."""
        out: list[list[bytes]] = []
        for first, last in self.answers:
            if size == 0:
                out.append(self.events[first:last])
            else:
                data = b"".join(self.events[first:last])
                out.append([data[start : start + size] for start in range(0, len(data), size)])
        return out


class _Maker:
    """Writes answers as frames, padded at random as real ones are."""

    def __init__(self, name: str, seed: int) -> None:
        # The seed also holds the name, so that workloads differ.
        self.random = random.Random(f"{name}/{seed}")
        self.name = name
        self.events: list[bytes] = []
        self.answers: list[tuple[int, int]] = []
        self.text = 0
        self.tool = 0
        self._first = 0

    def event(self, name: str, **fields: Any) -> None:
        data = json.dumps({"type": name, **fields}, ensure_ascii=False, separators=(",", ":"))
        if self.random.random() < 0.5:
            data = data[:-1] + " " * self.random.randrange(1, 12) + data[-1]
        self.events.append(f"event: {name}\ndata: {data}\n\n".encode())

    def start(self) -> None:
        self._first = len(self.events)
        number = len(self.answers) + 1
        self.event(
            "message_start",
            message={
                "id": f"msg_{self.name}_{number:06d}",
                "type": "message",
                "role": "assistant",
                "model": "claude-bench-1",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {
                    "input_tokens": 1200 + number,
                    "cache_creation_input_tokens": 0,
                    "cache_read_input_tokens": 800,
                    "output_tokens": 1,
                },
            },
        )

    def end(self, stop_reason: str, output_tokens: int) -> None:
        self.event(
            "message_delta",
            delta={"stop_reason": stop_reason, "stop_sequence": None},
            usage={"output_tokens": output_tokens},
        )
        self.event("message_stop")
        self.answers.append((self._first, len(self.events)))

    def words(self, count: int) -> str:
        return "".join(self.random.choice(_WORDS) for _ in range(count))

    def prose(self, index: int, kind: str, texts: Iterator[str]) -> None:
        self.event("content_block_start", index=index, content_block={"type": kind, kind: ""})
        for text in texts:
            self.text += len(text)
            self.event("content_block_delta", index=index, delta={"type": f"{kind}_delta", kind: text})
        if kind == "thinking":
            self.event("content_block_delta", index=index, delta={"type": "signature_delta", "signature": "c2VlZA=="})
        self.event("content_block_stop", index=index)

    def tool_use(self, index: int, arguments: dict[str, Any], size: int) -> None:
        number = len(self.answers) + 1
        self.event(
            "content_block_start",
            index=index,
            content_block={"type": "tool_use", "id": f"toolu_{number:06d}_{index}", "name": "Write", "input": {}},
        )
        text = json.dumps(arguments, ensure_ascii=False)
        self.tool += len(text)
        for at in range(0, len(text), size):
            self.event(
                "content_block_delta",
                index=index,
                delta={"type": "input_json_delta", "partial_json": text[at : at + size]},
            )
        self.event("content_block_stop", index=index)

    def done(self) -> Workload:
        return Workload(self.name, self.events, self.answers, self.text, self.tool)


def _a(maker: _Maker, scale: float) -> None:
    deltas = max(int(250_000 * scale), 200)
    maker.start()
    maker.prose(0, "thinking", (maker.words(2) for _ in range(deltas // 2)))
    maker.prose(1, "text", (maker.words(2) for _ in range(deltas - deltas // 2)))
    maker.end("end_turn", deltas * 2)


def _b(maker: _Maker, scale: float) -> None:
    size = max(int(2_000_000 * scale), 2_000)
    lines: list[str] = []
    length = 0
    while length < size:
        line = maker.words(12)
        lines.append(line)
        length += len(line)
    maker.start()
    maker.tool_use(0, {"file_path": "/src/generated.py", "content": "".join(lines)[:size]}, 20)
    maker.end("tool_use", size // 4)


def _c(maker: _Maker, scale: float) -> None:
    for _ in range(max(int(2_000 * scale), 10)):
        maker.start()
        maker.prose(0, "text", (maker.words(3) for _ in range(8)))
        maker.tool_use(1, {"file_path": f"/src/{maker.random.randrange(1000)}.py", "limit": 40}, 12)
        maker.end("tool_use", 60)


def _d(maker: _Maker, scale: float) -> None:
    total = max(int(50_000_000 * scale), 100_000)
    made = 0
    # One pool of texts: making 50 MB of random words costs more than measuring it.
    pool = [maker.words(400) for _ in range(16)]
    pool = [(text * (2_048 // max(len(text.encode()), 1) + 1)) for text in pool]
    pool = [text.encode()[:2_048].decode("utf-8", "ignore") for text in pool]
    while made < total:
        maker.start()
        texts = [pool[maker.random.randrange(len(pool))] for _ in range(min(1_000_000, total) // 2_048)]
        made += sum(len(text.encode()) for text in texts)
        maker.prose(0, "text", iter(texts))
        maker.end("end_turn", 250_000)


_MAKERS: Final = {"A": _a, "B": _b, "C": _c, "D": _d}
WORKLOADS: Final = tuple(_MAKERS)
"""The names :func:`make_workload` takes; ``B/2``, ``B/4`` … are fractions."""


def make_workload(name: str, *, scale: float = 1.0, seed: int = 7) -> Workload:
    """Make a workload; the same arguments always give the same bytes.

    Args:
        name: ``A``, ``B``, ``C``, ``D``, or a fraction of one such as ``B/4``.
        scale: 1 is the full size.
        seed: of everything random in it.

    Raises:
        ValueError: an unknown name.
    """
    letter, _, divisor = name.partition("/")
    if letter not in _MAKERS or ("/" in name and not (divisor.isdecimal() and int(divisor))):
        raise ValueError(f"no workload {name!r}; there are {', '.join(WORKLOADS)} and fractions such as B/2")
    maker = _Maker(letter, seed)
    _MAKERS[letter](maker, scale / (int(divisor) if divisor else 1))
    workload = maker.done()
    return msgspec.structs.replace(workload, name=name, fresh=letter == "C")
