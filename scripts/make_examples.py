"""Make the example recordings in examples/: our own text, plain SSE, with receive times in comments.

Run it from the repository's root; the result is committed, so nobody needs to.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "examples"


class Recording:
    """Collects events, each after the time (seconds since the request) at which it arrived."""

    def __init__(self, message_id: str, input_tokens: int) -> None:
        self.lines: list[str] = []
        self.at = 0.412
        self.event(
            "message_start",
            message={
                "id": message_id,
                "type": "message",
                "role": "assistant",
                "model": "claude-example-1",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {"input_tokens": input_tokens, "output_tokens": 1},
            },
        )

    def event(self, name: str, **fields: Any) -> None:
        data = json.dumps({"type": name, **fields}, ensure_ascii=False, separators=(",", ":"))
        self.lines.append(f": turnstream at={self.at:.6f}\nevent: {name}\ndata: {data}\n\n")
        self.at += 0.031

    def block(self, index: int, start: dict[str, Any], kind: str, key: str, text: str, size: int) -> None:
        self.event("content_block_start", index=index, content_block=start)
        self.deltas(index, kind, key, text, size)
        if start["type"] == "thinking":
            self.event(
                "content_block_delta", index=index, delta={"type": "signature_delta", "signature": "RXhhbXBsZQ=="}
            )
        self.event("content_block_stop", index=index)

    def deltas(self, index: int, kind: str, key: str, text: str, size: int) -> None:
        for start in range(0, len(text), size):
            self.event("content_block_delta", index=index, delta={"type": kind, key: text[start : start + size]})

    def end(self, stop_reason: str, output_tokens: int) -> None:
        self.event(
            "message_delta",
            delta={"stop_reason": stop_reason, "stop_sequence": None},
            usage={"output_tokens": output_tokens},
        )
        self.event("message_stop")

    def write(self, name: str) -> None:
        (FOLDER / name).write_text("".join(self.lines), encoding="utf-8")


def text(recording: Recording, index: int, words: str) -> None:
    recording.block(index, {"type": "text", "text": ""}, "text_delta", "text", words, 7)


def tool(recording: Recording, index: int, tool_id: str, name: str, arguments: dict[str, Any]) -> None:
    start = {"type": "tool_use", "id": tool_id, "name": name, "input": {}}
    recording.block(index, start, "input_json_delta", "partial_json", json.dumps(arguments), 9)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)

    answer = Recording("msg_example_text", 21)
    text(answer, 0, "A stream is a river you can only step into once – unless you record it. 🛶\n")
    answer.end("end_turn", 24)
    answer.write("1-text.sse")

    answer = Recording("msg_example_thinking", 58)
    answer.block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        "thinking_delta",
        "thinking",
        "17 × 23: 17 × 20 is 340, 17 × 3 is 51, together 391.",
        8,
    )
    answer.event("ping")
    text(answer, 1, "17 × 23 = **391**.\n")
    answer.end("end_turn", 47)
    answer.write("2-thinking.sse")

    answer = Recording("msg_example_tools", 310)
    text(answer, 0, "I'll look at both files at once.")
    tool(answer, 1, "toolu_example_1", "Read", {"file_path": "src/river.py", "limit": 40})
    tool(answer, 2, "toolu_example_2", "Grep", {"pattern": "def flow", "path": "src"})
    answer.end("tool_use", 96)
    answer.write("3-two-tools.sse")

    answer = Recording("msg_example_error", 40)
    answer.event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    answer.deltas(0, "text_delta", "text", "The first half of a sentence that the server", 9)
    answer.event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    answer.write("4-error.sse")

    answer = Recording("msg_example_truncated", 33)
    text(answer, 0, "Writing the file now.")
    answer.event(
        "content_block_start",
        index=1,
        content_block={"type": "tool_use", "id": "toolu_example_3", "name": "Write", "input": {}},
    )
    answer.deltas(1, "input_json_delta", "partial_json", '{"file_path": "src/delta.py", "content": "def del', 9)
    answer.write("5-truncated.sse")


if __name__ == "__main__":
    main()
