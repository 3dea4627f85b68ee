"""The small parts that :mod:`turnstream.messages.schema` is put together from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = [
    "ANYTHING",
    "BOOLEAN",
    "COUNT",
    "ENVELOPE",
    "INTEGER",
    "NUMBER",
    "OBJECT",
    "STRING",
    "booleans",
    "items_of",
    "record",
    "ref",
]

Schema = dict[str, Any]

ANYTHING: Final[Schema] = {}
STRING: Final[Schema] = {"type": "string"}
BOOLEAN: Final[Schema] = {"type": "boolean"}
INTEGER: Final[Schema] = {"type": "integer"}
NUMBER: Final[Schema] = {"type": "number"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
OBJECT: Final[Schema] = {"type": "object"}
_OR_NULL: Final[Schema] = {"type": ["string", "null"]}

ENVELOPE: Final[Schema] = {
    "uuid": STRING,
    "timestamp": {"type": "string", "description": "ISO 8601, milliseconds, Z."},
    "parentUuid": _OR_NULL,
    "logicalParentUuid": _OR_NULL,
    "isSidechain": BOOLEAN,
    "userType": STRING,
    "cwd": STRING,
    "sessionId": STRING,
    "version": STRING,
    "gitBranch": STRING,
    "agentId": STRING,
    "teamName": STRING,
    "slug": STRING,
    "entrypoint": STRING,
    "promptId": STRING,
    "thinkingMetadata": ANYTHING,
    "todos": ANYTHING,
}
"""Keys that any record of a transcript may have (WIRE.md §3)."""


def booleans(*names: str) -> Schema:
    """Properties that are true or false."""
    return dict.fromkeys(names, BOOLEAN)


def items_of(schema: Schema) -> Schema:
    """A list of such values."""
    return {"type": "array", "items": schema}


def ref(name: str) -> Schema:
    """A reference to a definition."""
    return {"$ref": f"#/$defs/{name}"}


def record(description: str, properties: Mapping[str, Schema], *, required: Sequence[str] = ()) -> Schema:
    """One type's definition: its own keys upon the envelope's."""
    return {
        "description": description,
        "type": "object",
        "required": ["type", *required],
        "allOf": [ref("envelope")],
        "properties": {"type": STRING, **properties},
    }
