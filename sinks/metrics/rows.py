"""An answer's row in the report (WIRE.md §9): null where there is no value, never a guess."""

from __future__ import annotations

from typing import Any, Final

from turnstream.sinks.metrics.answer import Answer
from turnstream.sinks.metrics.clocks import Clocks
from turnstream.sinks.metrics.usage import server_tools, token_counts

__all__ = ["row"]

_NO_TIMES: Final = Clocks()


def row(answer: Answer) -> dict[str, Any]:
    """What the report says about ``answer``, in the words of the report's schema."""
    clocks = answer.clocks if answer.clocks is not None else _NO_TIMES
    since = clocks.since_request
    tokens = token_counts(answer.usage)
    # Thinking without a time of its own would make the rest look faster than it was.
    timed = answer.output_is_final and not (answer.untimed and clocks.first_thinking is None)
    return {
        "message_id": answer.message_id,
        "request_id": answer.request_id,
        "model": answer.model,
        "streamed": answer.streamed and not answer.whole,
        "outcome": answer.word,
        "incomplete": answer.incomplete,
        "superseded": answer.superseded,
        "error_type": answer.error_type,
        "stop_reason": answer.stop_reason,
        **tokens,
        "server_tool_use": server_tools(answer.usage),
        "usage": dict(answer.usage),
        "blocks": dict(sorted(answer.blocks.items())),
        "partial_blocks": answer.partial_blocks,
        "tool_uses": dict(sorted(answer.tools.items())),
        "first_byte_ms": since(clocks.first_byte),
        "first_event_ms": None if answer.whole else since(clocks.first_event),
        "first_thinking_ms": since(clocks.first_thinking),
        "ttft_ms": since(clocks.first_content),
        "first_content_ms": since(clocks.first_content),
        "first_visible_text_ms": since(clocks.first_text),
        "duration_ms": since(clocks.end),
        "stream_ms": None if answer.whole else clocks.streamed_for(),
        "tokens_per_s": clocks.rate(tokens["output_tokens"]) if timed else None,
        "batch_gaps": clocks.gaps_report(),
    }
