"""The content blocks that the API takes: whose they may be and which fields they may have (WIRE.md §4, repair).

From the parameter types of the public SDK (anthropic 2.14, ``types/beta/*_param.py``). The API refuses a field that
isn't in its list ("Extra inputs are not permitted") and a type that it doesn't know ("Input tag … does not match any
of the expected tags"), so both go. The table is replaceable: pass a copy with more entries where a back end takes more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["BLOCKS", "CITATIONS", "INNER", "SERVER_TOOLS", "BlockShape", "only", "shape"]


@dataclass(frozen=True)
class BlockShape:
    """One type of block.

    Attributes:
        fields: the names it may have, ``type`` included.
        roles: whose content may hold it: ``user``, ``assistant``, ``system``.
    """

    fields: frozenset[str]
    roles: frozenset[str]


def shape(roles: str, fields: str) -> BlockShape:
    """A shape from names separated by spaces; ``type`` is added."""
    return BlockShape(frozenset(fields.split()) | {"type"}, frozenset(roles.split()))


_SERVER_RESULT: Final = "tool_use_id content cache_control"

BLOCKS: Final[Mapping[str, BlockShape]] = {
    "text": shape("user assistant system", "text citations cache_control"),
    "image": shape("user", "source transformations cache_control"),
    "document": shape("user", "source title context citations cache_control"),
    "search_result": shape("user", "source title content citations cache_control"),
    "tool_result": shape("user", "tool_use_id content is_error toolset_name cache_control"),
    "container_upload": shape("user", "file_id cache_control"),
    "thinking": shape("assistant", "thinking signature"),
    "redacted_thinking": shape("assistant", "data"),
    "tool_use": shape("assistant", "id name input caller toolset_name cache_control"),
    "server_tool_use": shape("assistant", "id name input caller cache_control"),
    "mcp_tool_use": shape("assistant", "id name input server_name cache_control"),
    "mcp_tool_result": shape("assistant", "tool_use_id content is_error cache_control"),
    "web_search_tool_result": shape("assistant", _SERVER_RESULT + " caller"),
    "web_fetch_tool_result": shape("assistant", _SERVER_RESULT + " caller"),
    "code_execution_tool_result": shape("assistant", _SERVER_RESULT),
    "bash_code_execution_tool_result": shape("assistant", _SERVER_RESULT),
    "text_editor_code_execution_tool_result": shape("assistant", _SERVER_RESULT),
    "tool_search_tool_result": shape("assistant", _SERVER_RESULT),
    "advisor_tool_result": shape("assistant", _SERVER_RESULT),
    "compaction": shape("assistant", "content encrypted_content signature tool_changes cache_control"),
    "fallback": shape("assistant", "from to trigger"),
    "mcp_tool_listing": shape("assistant", "mcp_server_name tools"),
    "tool_addition": shape("system", "tool cache_control"),
    "tool_removal": shape("system", "tool cache_control"),
}
"""What stands directly in a message."""

INNER: Final[Mapping[str, BlockShape]] = {
    # No cache mark: the API wants it on the tool_result itself.
    "text": shape("", "text citations"),
    "image": shape("", "source transformations"),
    "document": shape("", "source title context citations"),
    "search_result": shape("", "source title content citations"),
    "tool_reference": shape("", "tool_name"),
    "browser_state": shape("", "tabs state_changes"),
}
"""What stands in a tool result, or (texts and images) in a document or a search result."""

SERVER_TOOLS: Final[Mapping[str, frozenset[str]]] = {
    "web_search": frozenset({"web_search_tool_result"}),
    "web_fetch": frozenset({"web_fetch_tool_result"}),
    "code_execution": frozenset(
        {
            "code_execution_tool_result",
            "bash_code_execution_tool_result",
            "text_editor_code_execution_tool_result",
        }
    ),
    "bash_code_execution": frozenset({"bash_code_execution_tool_result"}),
    "text_editor_code_execution": frozenset({"text_editor_code_execution_tool_result"}),
    "tool_search_tool_regex": frozenset({"tool_search_tool_result"}),
    "tool_search_tool_bm25": frozenset({"tool_search_tool_result"}),
    "advisor": frozenset({"advisor_tool_result"}),
}
"""The tools that run on the server, by name, with the types of their results."""

CITATIONS: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    kind: (frozenset(needed.split()) | {"type"}, frozenset(more.split()))
    for kind, needed, more in (
        ("char_location", "cited_text document_index start_char_index end_char_index", "document_title"),
        ("page_location", "cited_text document_index start_page_number end_page_number", "document_title"),
        ("content_block_location", "cited_text document_index start_block_index end_block_index", "document_title"),
        ("web_search_result_location", "cited_text encrypted_index url", "title"),
        (
            "search_result_location",
            "cited_text search_result_index start_block_index end_block_index source",
            "title",
        ),
    )
}
"""A citation's type: the fields it needs and those it may have besides (answers carry more, as ``file_id``)."""


def only(block: dict[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    """The block with these fields alone; itself if it has no others."""
    if block.keys() <= fields:
        return block
    return {key: value for key, value in block.items() if key in fields}
