"""Structured output: the schema's keywords and the effort."""

from __future__ import annotations

from typing import Any

from request_rules.models import Model
from request_rules.rules import Violation

_NUMBER = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_UNSUPPORTED = {
    "integer": _NUMBER,
    "number": _NUMBER,
    "string": ("minLength", "maxLength"),
    "array": ("maxItems", "uniqueItems", "contains"),
    "object": ("minProperties", "maxProperties", "patternProperties"),
}


def output_format(body: dict[str, Any]) -> dict[str, Any] | None:
    """The structured-output format a body asks for."""
    config = body.get("output_config")
    found = config.get("format") if isinstance(config, dict) else None
    found = body.get("output_format") if found is None else found
    return found if isinstance(found, dict) else None


def check_output(body: dict[str, Any], model: Model, out: list[Violation]) -> None:
    """output_config and the older output_format."""
    config = body.get("output_config")
    effort = config.get("effort") if isinstance(config, dict) else None
    if effort is not None and not (
        effort in ("low", "medium", "high", "xhigh", "max") and model.takes_effort(str(effort))
    ):
        out.append(Violation("effort", "output_config.effort", f"does not support effort level {effort!r}"))
    wanted = output_format(body)
    if wanted is not None:
        if wanted.get("type") != "json_schema" or not isinstance(wanted.get("schema"), dict):
            out.append(Violation("output-schema", "output_config.format", "Input should be a json_schema"))
        else:
            _schema(wanted["schema"], "output_config.format.schema", out)


def _schema(schema: Any, path: str, out: list[Violation]) -> None:
    if isinstance(schema, list):
        for index, item in enumerate(schema):
            _schema(item, f"{path}.{index}", out)
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    for keyword in _UNSUPPORTED.get(kind, ()) if isinstance(kind, str) else ():
        if keyword in schema:
            out.append(Violation("output-schema", f"{path}.{keyword}", f"property {keyword!r} is not supported"))
    if kind == "object" and schema.get("additionalProperties") is not False:
        out.append(Violation("output-schema", path, "'additionalProperties' must be false"))
    for name in ("items", "anyOf", "allOf"):
        _schema(schema.get(name), f"{path}.{name}", out)
    for name in ("properties", "$defs", "definitions"):
        below = schema.get(name)
        for key, item in below.items() if isinstance(below, dict) else ():
            _schema(item, f"{path}.{name}.{key}", out)
