"""The declared tools and the choice among them."""

from __future__ import annotations

import re
from typing import Any

from request_rules.cache_marks import note_mark
from request_rules.facts import Facts
from request_rules.limits import Limits
from request_rules.rules import Violation

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_DATED = re.compile(
    r"(bash|code_execution|computer|computer_toolset|browser_toolset|memory|text_editor|web_search|web_fetch|advisor"
    r"|tool_search_tool_bm25|tool_search_tool_regex)_\d{8}"
)
_UNDATED = frozenset({"mcp_toolset", "tool_search_tool_bm25", "tool_search_tool_regex"})
_CUSTOM = frozenset(
    [
        "allowed_callers",
        "cache_control",
        "defer_loading",
        "description",
        "eager_input_streaming",
        "input_examples",
        "input_schema",
        "name",
        "strict",
        "type",
    ]
)


def tool_names(tools: Any) -> frozenset[str] | None:
    """The names of declared tools; None where there is no list."""
    if not isinstance(tools, list):
        return None
    names = [tool.get("name") for tool in tools if isinstance(tool, dict)]
    return frozenset(name for name in names if isinstance(name, str))


def check_tools(tools: Any, limits: Limits, facts: Facts, out: list[Violation]) -> None:
    """The tools; their cache marks go to ``facts``."""
    if not isinstance(tools, list):
        out.append(Violation("tool-type", "tools", "Input should be a valid list"))
        return
    seen: set[str] = set()
    strict = 0
    for index, tool in enumerate(tools):
        path = f"tools.{index}"
        if not isinstance(tool, dict):
            out.append(Violation("tool-type", path, "Input should be an object"))
            continue
        note_mark(facts, tool, f"{path}.")
        strict += tool.get("strict") is True
        if tool.get("defer_loading") is True and tool.get("cache_control") is not None:
            out.append(Violation("cache-deferred-tool", path, "cannot use prompt caching with defer_loading"))
        kind = tool.get("type")
        if kind in (None, "custom"):
            _custom(tool, path, out)
        elif not (isinstance(kind, str) and (kind in _UNDATED or _DATED.fullmatch(kind))):
            out.append(Violation("tool-type", path, f"Input tag {kind!r} does not match any of the expected tags"))
            continue
        name = tool.get("name")
        if isinstance(name, str):
            if name in seen:
                out.append(Violation("tool-names-unique", f"{path}.name", "Tool names must be unique."))
            seen.add(name)
    if strict > limits.strict_tools:
        out.append(Violation("strict-tools", "tools", f"Too many strict tools ({strict})."))
    if tools and all(isinstance(tool, dict) and tool.get("defer_loading") is True for tool in tools):
        out.append(Violation("tools-all-deferred", "tools", "at least one tool must not have defer_loading"))


def _custom(tool: dict[str, Any], path: str, out: list[Violation]) -> None:
    name = tool.get("name")
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        out.append(Violation("tool-name", f"{path}.name", f"String should match pattern '^{_NAME.pattern}$'"))
    for extra in sorted(map(str, tool.keys() - _CUSTOM)):
        out.append(Violation("tool-type", f"{path}.{extra}", "Extra inputs are not permitted"))
    schema = tool.get("input_schema")
    where = f"{path}.input_schema"
    if not isinstance(schema, dict):
        out.append(Violation("tool-schema", where, "Input does not match the expected shape."))
    elif schema.get("type") != "object":
        out.append(Violation("tool-schema", f"{where}.type", "Input should be 'object'"))


def check_choice(choice: Any, tools: Any, out: list[Violation]) -> None:
    """tool_choice."""
    if not isinstance(choice, dict):
        out.append(Violation("tool-choice", "tool_choice", "Input should be a valid dictionary"))
        return
    kind = choice.get("type")
    if kind not in ("auto", "any", "tool", "none"):
        out.append(Violation("tool-choice", "tool_choice.type", f"unknown type {kind!r}"))
    if not tools:
        out.append(Violation("tool-choice", "tool_choice", "may only be specified while providing tools"))
    elif kind == "tool" and choice.get("name") not in list(tool_names(tools) or ()):
        out.append(Violation("tool-choice", "tool_choice.name", "Tool not found in provided tools"))
