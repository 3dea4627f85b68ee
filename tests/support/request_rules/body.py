"""The body around the messages."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from request_rules.facts import Facts
from request_rules.models import Model
from request_rules.rules import Violation
from request_rules.thinking import Mode

FIELDS = frozenset(
    [
        "model",
        "messages",
        "max_tokens",
        "system",
        "metadata",
        "stop_sequences",
        "stream",
        "temperature",
        "top_p",
        "top_k",
        "tools",
        "tool_choice",
        "thinking",
        "service_tier",
        "cache_control",
        "container",
        "context_management",
        "mcp_servers",
        "output_config",
        "output_format",
        "inference_geo",
        "speed",
        "betas",
        "anthropic_version",
        "anthropic_beta",
        "diagnostics",
        "fallbacks",
        "compaction",
        "user_profile_id",
    ]
)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_fields(body: dict[str, Any], model: Model, out: list[Violation]) -> None:
    """Fields, sizes, sampling."""
    for name in sorted(map(str, body.keys() - FIELDS)):
        out.append(Violation("field-unknown", name, "Extra inputs are not permitted"))
    for name in ("model", "max_tokens", "messages"):
        if name not in body:
            out.append(Violation("field-missing", name, "Field required"))
    if "max_tokens" in body:
        tokens = body["max_tokens"]
        if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
            out.append(Violation("max-tokens", "max_tokens", "Input should be greater than or equal to 1"))
        elif model.max_output is not None and tokens > model.max_output:
            out.append(Violation("max-tokens", "max_tokens", f"{tokens} > {model.max_output}"))
    stops = body.get("stop_sequences")
    if stops is not None and not (isinstance(stops, list) and all(isinstance(s, str) and s.strip() for s in stops)):
        out.append(Violation("stop-sequences", "stop_sequences", "each must contain non-whitespace"))
    for name in ("temperature", "top_p"):
        value = body.get(name)
        if value is not None and not (is_number(value) and 0 <= value <= 1):
            out.append(Violation("sampling-range", name, "range: 0..1"))
    if body.get("temperature") is not None and body.get("top_p") is not None and model.one_sampling_parameter:
        out.append(Violation("sampling-both", "temperature", "`temperature` and `top_p` cannot both be specified"))
    container = body.get("container")
    if container is not None and not (
        isinstance(container, str) or (isinstance(container, dict) and container.get("skills"))
    ):
        out.append(Violation("container", "container", "Input should be a valid string"))


def check_system(system: Any, facts: Facts, out: list[Violation]) -> None:
    """The system prompt; its cache marks go to ``facts``."""
    from request_rules.cache_marks import note_mark

    if isinstance(system, str):
        return
    if not isinstance(system, list):
        out.append(Violation("system-prompt", "system", "Input should be a valid list"))
        return
    for index, block in enumerate(system):
        path = f"system.{index}"
        if not (isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)):
            out.append(Violation("system-prompt", path, "Input should be a text block"))
            continue
        if not block["text"].strip():
            rule = "text-whitespace" if block["text"] else "text-empty"
            out.append(Violation(rule, f"{path}.text", "system: text content blocks must be non-empty"))
        for name in sorted(map(str, block.keys() - {"type", "text", "cache_control", "citations"})):
            out.append(Violation("block-field-unknown", f"{path}.{name}", "Extra inputs are not permitted"))
        note_mark(facts, block, f"{path}.")


def thinking_mode(thinking: Any, model: Model) -> Mode:
    """What a ``thinking`` parameter means; absent, newer models think adaptively."""
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind == "enabled":
        return "enabled"
    if kind in ("adaptive", "between_tools") or (thinking is None and model.thinks_unasked):
        return "adaptive"
    return "off"


def check_thinking_config(body: dict[str, Any], model: Model, betas: Collection[str], out: list[Violation]) -> None:
    """The thinking parameter and what it forbids."""
    thinking = body.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if (
        kind not in ("enabled", "adaptive", "disabled", "between_tools")
        or (kind == "enabled" and not model.manual_thinking)
        or (kind == "adaptive" and not model.adaptive_thinking)
    ):
        out.append(Violation("thinking-config", "thinking.type", f"{kind} is not supported for this model"))
        return
    if kind != "enabled":
        return
    budget, limit = thinking.get("budget_tokens"), body.get("max_tokens")
    if not isinstance(budget, int) or budget < 1024:
        out.append(Violation("thinking-budget", "thinking.budget_tokens", "should be at least 1024"))
    elif isinstance(limit, int) and budget >= limit and not any(b.startswith("interleaved-thinking") for b in betas):
        out.append(Violation("thinking-budget", "max_tokens", "must be greater than `thinking.budget_tokens`"))
    if body.get("temperature") not in (None, 1):
        out.append(Violation("thinking-sampling", "temperature", "may only be set to 1 when thinking is enabled"))
    if body.get("top_k") is not None:
        out.append(Violation("thinking-sampling", "top_k", "must be unset when thinking is enabled"))
    if is_number(body.get("top_p")) and body["top_p"] < 0.95:
        out.append(Violation("thinking-sampling", "top_p", "must be at least 0.95 when thinking is enabled"))
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") in ("any", "tool"):
        out.append(Violation("thinking-forced-tool", "tool_choice", "Thinking may not be enabled with a forced tool."))
