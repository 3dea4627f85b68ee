"""Usage and late news: what message_delta overwrites, and what it leaves (WIRE.md §1, usage)."""

from __future__ import annotations

from typing import Any

from entry import Answer, Entry
from frames import STOP, Payload, fails, says, sse, start, text_block, turn

SAYS = says("a")
CUMULATIVE = "§1 usage: cumulative; a key in message_delta.usage that is present and not null overwrites"


def counted(
    name: str,
    first: Payload | None,
    deltas: list[Payload],
    usage: dict[str, Any],
    rule: str,
    *covers: str,
    **message: Any,
) -> Entry:
    """One text block between a start with usage ``first`` and these message_deltas."""
    answer = Answer(content=[text_block("a")], usage=usage, message=message)
    opening = start() if first is None else start(usage=first)
    return Entry(name=name, data=sse(opening, SAYS, *deltas, STOP), answers=(answer,), rule=rule, covers=covers)


def only(delta: Payload | None = None, usage: Payload | None = None, **more: Any) -> Payload:
    """A message_delta with exactly these parts."""
    out: Payload = {"type": "message_delta"}
    if delta is not None:
        out["delta"] = delta
    if usage is not None:
        out["usage"] = usage
    return {**out, **more}


ENTRIES = (
    counted(
        "usage-overwrites",
        {"input_tokens": 26, "output_tokens": 3},
        [turn(usage={"input_tokens": 26, "output_tokens": 1956})],
        {"input_tokens": 26, "output_tokens": 1956},
        CUMULATIVE + " (FAULTS 30: never added)",
    ),
    counted(
        "input-comes-last",
        {"input_tokens": 0, "output_tokens": 0},
        [turn(usage={"input_tokens": 900, "cache_read_input_tokens": 800, "output_tokens": 12})],
        {"input_tokens": 900, "output_tokens": 12, "cache_read_input_tokens": 800},
        CUMULATIVE + " (FAULTS 31)",
        "start-input_tokens-0",
    ),
    counted(
        "usage-falls",
        {"input_tokens": 34000, "output_tokens": 9},
        [turn(usage={"input_tokens": 3800, "output_tokens": 4})],
        {"input_tokens": 3800, "output_tokens": 4},
        CUMULATIVE + ": no maximum",
    ),
    counted(
        "zero-overwrites",
        {"input_tokens": 5, "cache_read_input_tokens": 9, "output_tokens": 2},
        [turn(usage={"cache_read_input_tokens": 0, "output_tokens": 0})],
        {"input_tokens": 5, "cache_read_input_tokens": 0, "output_tokens": 0},
        "§1 usage: an explicit 0 overwrites",
    ),
    counted(
        "null-does-not-overwrite",
        {"input_tokens": 5, "cache_creation_input_tokens": 3, "output_tokens": 2},
        [turn(usage={"input_tokens": None, "cache_creation_input_tokens": None, "output_tokens": 8})],
        {"input_tokens": 5, "cache_creation_input_tokens": 3, "output_tokens": 8},
        "§1 usage: a key that is present and NOT NULL overwrites",
    ),
    counted(
        "missing-keys-stay",
        {"input_tokens": 5, "service_tier": "standard", "output_tokens": 2},
        [turn(usage={"output_tokens": 8})],
        {"input_tokens": 5, "service_tier": "standard", "output_tokens": 8},
        "§1 usage: missing keys stay",
    ),
    counted(
        "unknown-usage-keys",
        {"input_tokens": 5, "output_tokens": 2, "prompt_tokens": 5},
        [turn(usage={"output_tokens": 8, "details": {"cached": 3}, "note": "x"})],
        {"input_tokens": 5, "output_tokens": 8, "prompt_tokens": 5, "details": {"cached": 3}, "note": "x"},
        "§1 usage: unknown keys are kept (§0)",
    ),
    counted(
        "nested-usage-is-replaced-whole",
        {
            "input_tokens": 5,
            "output_tokens": 2,
            "cache_creation": {"ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 1},
        },
        [
            turn(
                usage={
                    "output_tokens": 8,
                    "cache_creation": {"ephemeral_5m_input_tokens": 6},
                    "output_tokens_details": {"thinking_tokens": 3},
                    "server_tool_use": {"web_search_requests": 2},
                }
            )
        ],
        {
            "input_tokens": 5,
            "output_tokens": 8,
            "cache_creation": {"ephemeral_5m_input_tokens": 6},
            "output_tokens_details": {"thinking_tokens": 3},
            "server_tool_use": {"web_search_requests": 2},
        },
        "§1 usage: a KEY that is present overwrites (FAULTS 35: details carried through)",
    ),
    counted(
        "several-message-deltas",
        None,
        [
            turn(None, usage={"output_tokens": 3}),
            turn("end_turn", usage={"output_tokens": 5, "iterations": [1]}),
            turn(None, usage={"output_tokens": 6}),
        ],
        {"input_tokens": 7, "output_tokens": 6, "iterations": [1]},
        "§1 order: one or more message_delta; null never overwrites",
        "multiple-message_delta",
        "stop_reason-null-in-delta",
    ),
    counted(
        "sparse-second-delta",
        None,
        [
            turn(
                "end_turn",
                usage={"output_tokens": 3},
                container={"id": "c1", "expires_at": "x"},
                stop_details={"why": 1},
            ),
            only(
                {"stop_reason": None, "stop_sequence": None, "container": None, "stop_details": None},
                {"output_tokens": 4},
                context_management=None,
            ),
        ],
        {"input_tokens": 7, "output_tokens": 4},
        "§1 usage: stop_reason, stop_sequence, stop_details, container, context_management: null or absence never overwrites "
        "(FAULTS 26)",
        "multiple-message_delta",
        "stop_reason-null-in-delta",
        container={"id": "c1", "expires_at": "x"},
        stop_details={"why": 1},
    ),
    counted(
        "context-management-survives",
        None,
        [
            {**turn(), "context_management": {"applied_edits": [{"type": "clear_tool_uses_20250919"}]}},
            only({}, {"output_tokens": 5}),
        ],
        {"input_tokens": 7, "output_tokens": 5},
        "§1 usage: absence never overwrites (FAULTS 26)",
        "multiple-message_delta",
        context_management={"applied_edits": [{"type": "clear_tool_uses_20250919"}]},
    ),
    counted(
        "delta-without-usage",
        None,
        [only({"stop_reason": "end_turn"})],
        {"input_tokens": 7, "output_tokens": 1},
        "FAULTS 32: usage optional",
        "delta-no-usage",
    ),
    counted(
        "delta-with-null-usage",
        None,
        [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": None}],
        {"input_tokens": 7, "output_tokens": 1},
        "§1 usage: null never overwrites",
    ),
    counted(
        "usage-only-delta",
        None,
        [turn(usage={"output_tokens": 2}), only(usage={"output_tokens": 9})],
        {"input_tokens": 7, "output_tokens": 9},
        "§1 usage: absence never overwrites",
        "multiple-message_delta",
    ),
    Entry(
        name="start-without-usage",
        data=sse(start(usage=...), SAYS, turn(usage={"output_tokens": 5}), STOP),  # type: ignore[arg-type]
        answers=(Answer(content=[text_block("a")], usage={"output_tokens": 5}),),
        rule="FAULTS 32: usage optional; §9: null, never a guess",
        covers=("start-no-usage",),
    ),
    Entry(
        name="usage-of-a-failed-answer",
        data=sse(start(), SAYS, turn(None, usage={"output_tokens": 4}), fails()),
        answers=(
            Answer(
                outcome="api_error(overloaded_error)",
                content=[text_block("a")],
                stop_reason=None,
                usage={"input_tokens": 7, "output_tokens": 4},
            ),
        ),
        rule="§1: finished blocks are kept, with the usage that came",
        covers=("error-midstream", "no-message_stop", "stop_reason-null-in-delta"),
    ),
    Entry(
        name="stop-sequence",
        data=sse(start(), SAYS, turn("stop_sequence", stop_sequence="END"), STOP),
        answers=(Answer(content=[text_block("a")], stop_reason="stop_sequence", message={"stop_sequence": "END"}),),
        rule="§1: message_delta carries stop_reason, stop_sequence",
    ),
    Entry(
        name="foreign-model",
        data=sse(start("chatcmpl-1", model="other-9b"), SAYS, turn(), STOP),
        answers=(
            Answer(content=[text_block("a")], message={"id": "chatcmpl-1", "model": "other-9b", "role": "assistant"}),
        ),
        rule="§1 accumulation: with the API message's id, model and role",
        covers=("non-claude-model",),
    ),
)
