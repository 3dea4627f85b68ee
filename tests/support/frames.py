"""Payloads and frames of self-made streams, so that a corpus entry reads like the stream it is."""

from __future__ import annotations

import json
from typing import Any

Payload = dict[str, Any]

STOP: Payload = {"type": "message_stop"}
PING: Payload = {"type": "ping"}
DONE = b"data: [DONE]\n\n"


def _event(kind: str, index: int | None, **fields: Any) -> Payload:
    return {"type": kind, **({} if index is None else {"index": index}), **fields}


def start(ident: str | None = "msg_a", *, usage: Payload | None = None, **more: Any) -> Payload:
    """A message_start; keys given as ``...`` (Ellipsis) are left out of the envelope."""
    message: Payload = {
        "id": ident,
        "type": "message",
        "role": "assistant",
        "model": "claude-test-1",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 7, "output_tokens": 1} if usage is None else usage,
        **more,
    }
    if ident is None:
        del message["id"]
    return {"type": "message_start", "message": {k: v for k, v in message.items() if v is not ...}}


def opens(index: int | None, kind: str, **block: Any) -> Payload:
    """A content_block_start; ``index=None`` leaves the index out."""
    return _event("content_block_start", index, content_block={"type": kind, **block})


def opens_text(index: int | None = 0) -> Payload:
    return opens(index, "text", text="")


def opens_thinking(index: int | None = 0) -> Payload:
    return opens(index, "thinking", thinking="", signature="")


def opens_tool(index: int | None = 0, ident: str = "toolu_a", name: str = "look", **more: Any) -> Payload:
    """A tool_use start with the usual placeholder; ``input=...`` leaves the key out."""
    block: Payload = {"id": ident, "name": name, "input": {}, **more}
    return opens(index, "tool_use", **{k: v for k, v in block.items() if v is not ...})


def delta(index: int | None, kind: str | None, **fields: Any) -> Payload:
    """A content_block_delta; ``kind=None`` leaves its type out."""
    return _event("content_block_delta", index, delta={**({} if kind is None else {"type": kind}), **fields})


def text(index: int | None, words: str) -> Payload:
    return delta(index, "text_delta", text=words)


def thinks(index: int | None, words: str, **more: Any) -> Payload:
    return delta(index, "thinking_delta", thinking=words, **more)


def signs(index: int | None, signature: str) -> Payload:
    return delta(index, "signature_delta", signature=signature)


def args(index: int | None, fragment: str) -> Payload:
    return delta(index, "input_json_delta", partial_json=fragment)


def cites(index: int | None, citation: Payload) -> Payload:
    return delta(index, "citations_delta", citation=citation)


def closes(index: int | None = 0) -> Payload:
    return _event("content_block_stop", index)


def turn(stop_reason: str | None = "end_turn", usage: Payload | None = None, **more: Any) -> Payload:
    """A message_delta; further keys go into its delta."""
    return {
        "type": "message_delta",
        "delta": {"stop_reason": stop_reason, "stop_sequence": None, **more},
        "usage": {"output_tokens": 5} if usage is None else usage,
    }


def fails(kind: str = "overloaded_error", message: str = "too busy") -> Payload:
    return {"type": "error", "error": {"type": kind, "message": message}}


def says(words: str, index: int = 0) -> list[Payload]:
    """A whole text block."""
    return [opens_text(index), text(index, words), closes(index)]


def calls(index: int, *fragments: str, ident: str = "toolu_a", name: str = "look", **more: Any) -> list[Payload]:
    """A whole tool_use block whose input comes in ``fragments``."""
    return [opens_tool(index, ident, name, **more), *(args(index, f) for f in fragments), closes(index)]


def tool_block(value: Any, ident: str = "toolu_a", name: str = "look", **more: Any) -> Payload:
    """The finished block of :func:`calls`."""
    return {"type": "tool_use", "id": ident, "name": name, "input": value, **more}


def text_block(words: str, **more: Any) -> Payload:
    return {"type": "text", "text": words, **more}


def thinking_block(words: str, signature: str = "", **more: Any) -> Payload:
    return {"type": "thinking", "thinking": words, "signature": signature, **more}


def dump(payload: Any) -> bytes:
    """Compact JSON; non-ASCII as it is."""
    return json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode()


def frame(payload: Payload | bytes, *, name: str | None = "", end: str = "\n") -> bytes:
    """One server-sent event. ``name=""`` takes the payload's type, None writes no event line."""
    raw = payload if isinstance(payload, bytes) else dump(payload)
    if name == "":
        name = payload.get("type") if isinstance(payload, dict) else None
    head = f"event: {name}{end}".encode() if name else b""
    return head + b"data: " + raw + (end * 2).encode()


Part = Payload | bytes | list[Any]


def flat(parts: tuple[Part, ...]) -> list[Payload | bytes]:
    out: list[Payload | bytes] = []
    for part in parts:
        if isinstance(part, list):
            out.extend(flat(tuple(part)))
        else:
            out.append(part)
    return out


def sse(*parts: Part, names: bool = True, end: str = "\n") -> bytes:
    """Frames of payloads; bytes among them are taken as raw wire bytes, lists are flattened."""
    return b"".join(
        part if isinstance(part, bytes) else frame(part, name="" if names else None, end=end) for part in flat(parts)
    )


def ndjson(*parts: Part) -> bytes:
    return b"".join(dump(part) + b"\n" for part in flat(parts))


def wrapped(*parts: Part) -> bytes:
    """NDJSON in wrappers: the payload is a string under ``Data`` (WIRE.md §1, events)."""
    return b"".join(
        dump({"LastEventID": "", "Type": part["type"], "Data": dump(part).decode()}) + b"\n"
        for part in flat(parts)
        if isinstance(part, dict)
    )
