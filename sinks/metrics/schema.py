"""The report's JSON Schema (2020-12): what readers of a metrics file may rely on.

Objects whose keys we name are closed: a new field is a new ``schema_version``. Objects whose keys are
words of the other side (types, names, outcomes, usage keys) are open.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["METRICS_SCHEMA"]

_COUNT: Final = {"type": "integer", "minimum": 0}
_TOKENS: Final = {"type": ["integer", "null"], "minimum": 0}
_MS: Final = {"type": ["number", "null"], "minimum": 0}
_WORD: Final = {"type": ["string", "null"]}
_TALLY: Final = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}}
_SERVER_TOOLS: Final = {"type": ["object", "null"], "additionalProperties": _COUNT}


def _closed(properties: dict[str, Any], description: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"description": description, **out} if description else out


_TOKEN_FIELDS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "thinking_tokens",
)

_DISTRIBUTION: Final = _closed(
    {
        "count": {"type": "integer", "minimum": 1},
        "mean_ms": {"type": "number", "minimum": 0},
        "p50_ms": {"type": "number", "minimum": 0},
        "p99_ms": {"type": "number", "minimum": 0},
        "max_ms": {"type": "number", "minimum": 0},
    },
    "Durations; percentiles are within 4.5 %, the rest is exact.",
)
_MAYBE_DISTRIBUTION: Final = {"oneOf": [{"$ref": "#/$defs/distribution"}, {"type": "null"}]}

_ANSWER: Final = _closed(
    {
        "message_id": _WORD,
        "request_id": _WORD,
        "model": _WORD,
        "streamed": {
            "type": "boolean",
            "description": "False: it came whole or from a transcript, so it has no first content and no rate.",
        },
        "outcome": {
            "description": "complete, incomplete(n), api_error(type), protocol_error(kind), not_a_stream, empty, "
            "aborted(reason); null while open, for a superseded attempt, and where nobody can tell.",
            **_WORD,
        },
        "incomplete": {"type": "boolean"},
        "superseded": {"type": "boolean"},
        "error_type": _WORD,
        "stop_reason": _WORD,
        **dict.fromkeys(_TOKEN_FIELDS, _TOKENS),
        "server_tool_use": _SERVER_TOOLS,
        "usage": {"type": "object", "description": "As the API sent it, cumulative, unknown keys included."},
        "blocks": _TALLY,
        "partial_blocks": _COUNT,
        "tool_uses": _TALLY,
        "first_byte_ms": _MS,
        "first_event_ms": _MS,
        "first_thinking_ms": _MS,
        "ttft_ms": {"description": "Time to the first token of content: first_content_ms by its usual name.", **_MS},
        "first_content_ms": _MS,
        "first_visible_text_ms": _MS,
        "duration_ms": {"description": "From the request to the answer's end.", **_MS},
        "stream_ms": {"description": "From the first event to the answer's end.", **_MS},
        "tokens_per_s": {"description": "Output tokens, from the first to the last token.", **_MS},
        "batch_gaps": _MAYBE_DISTRIBUTION,
    },
    "An answer, or an attempt that was superseded. Times count from the request.",
)

_TOTALS: Final = _closed(
    {
        "answers": _COUNT,
        "incomplete_answers": _COUNT,
        "unknown_outcomes": {"description": "Answers whose outcome is null.", **_COUNT},
        "outcomes": _TALLY,
        "stop_reasons": _TALLY,
        **dict.fromkeys(_TOKEN_FIELDS, _TOKENS),
        "server_tool_use": _SERVER_TOOLS,
        "blocks": _TALLY,
        "partial_blocks": _COUNT,
        "tool_uses": _TALLY,
        "invalid_tool_inputs": _COUNT,
        "unfinished_tool_inputs": _COUNT,
        "unapplied_deltas": _TALLY,
        "superseded_answers": _COUNT,
        **{f"superseded_{field}": _TOKENS for field in _TOKEN_FIELDS},
        "superseded_blocks": _COUNT,
        "retries": _COUNT,
        "retry_wait_ms": {"description": "The announced waits; null without a retry.", **_MS},
        "fallbacks": _COUNT,
        "tombstones": _COUNT,
        "errors": _TALLY,
        "opaque_events": _TALLY,
        "opaque_deltas": _TALLY,
        "opaque_blocks": _TALLY,
        "notes": _TALLY,
        "events": _COUNT,
        "pings": _COUNT,
        "bytes": {"description": "Null where batches say no weight.", **_TOKENS},
        "tool_results": _TALLY,
        "tool_errors": _TALLY,
        "tool_durations": {
            "type": ["object", "null"],
            "additionalProperties": {"$ref": "#/$defs/distribution"},
            "description": "By tool name, from the finished tool_use block to its result.",
        },
        "batch_gaps": _MAYBE_DISTRIBUTION,
    },
    "Exact sums over all answers, listed or not. Superseded attempts only in superseded_*; a token sum is "
    "null if no answer said a number.",
)

METRICS_SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "turnstream metrics report",
    **_closed(
        {
            "schema_version": {"const": 1},
            "incomplete": {
                "type": "boolean",
                "description": "Some answer is open or ended other than well, or the run itself broke.",
            },
            "run_error": {"description": "The class of the error that broke the run.", **_WORD},
            "answers": {"type": "array", "items": {"$ref": "#/$defs/answer"}},
            "answers_left_out": {"description": "Older answers that are in the totals only.", **_COUNT},
            "totals": {"$ref": "#/$defs/totals"},
        }
    ),
    "$defs": {"distribution": _DISTRIBUTION, "answer": _ANSWER, "totals": _TOTALS},
}
"""A JSON Schema 2020-12 document for :meth:`MetricsSink.report`."""
