"""The block types: which role may hold them, which fields they have.

From the public SDK's parameter types (anthropic 2.14, ``types/beta/*_param.py``) and recorded requests.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Shape(NamedTuple):
    """Required fields, optional ones, and the roles whose content may hold the block."""

    required: frozenset[str]
    optional: frozenset[str]
    roles: frozenset[str]


def _shape(roles: str, required: str, optional: str = "") -> Shape:
    return Shape(frozenset(required.split()), frozenset(optional.split()), frozenset(roles.split()))


_BOTH, _SAID, _ASKED, _SYSTEM = "user assistant", "assistant", "user", "system"

BLOCKS: Final[dict[str, Shape]] = {
    "text": _shape("user assistant system", "text", "cache_control citations"),
    "image": _shape(_ASKED, "source", "cache_control transformations"),
    "document": _shape(_ASKED, "source", "cache_control citations context title"),
    "search_result": _shape(_ASKED, "content source title", "cache_control citations"),
    "tool_result": _shape(_ASKED, "tool_use_id", "cache_control content is_error toolset_name"),
    "container_upload": _shape(_BOTH, "file_id", "cache_control"),
    "thinking": _shape(_SAID, "thinking signature"),
    "redacted_thinking": _shape(_SAID, "data"),
    "tool_use": _shape(_SAID, "id name input", "cache_control caller toolset_name"),
    "server_tool_use": _shape(_SAID, "id name input", "cache_control caller"),
    "web_search_tool_result": _shape(_SAID, "tool_use_id content", "cache_control caller"),
    "web_fetch_tool_result": _shape(_SAID, "tool_use_id content", "cache_control caller"),
    "code_execution_tool_result": _shape(_SAID, "tool_use_id content", "cache_control"),
    "bash_code_execution_tool_result": _shape(_SAID, "tool_use_id content", "cache_control"),
    "text_editor_code_execution_tool_result": _shape(_SAID, "tool_use_id content", "cache_control"),
    "tool_search_tool_result": _shape(_SAID, "tool_use_id content", "cache_control"),
    "advisor_tool_result": _shape(_SAID, "tool_use_id content", "cache_control"),
    "mcp_tool_use": _shape(_SAID, "id name input server_name", "cache_control"),
    "mcp_tool_result": _shape(_SAID, "tool_use_id", "cache_control content is_error"),
    "mcp_tool_listing": _shape(_SAID, "mcp_server_name tools"),
    "compaction": _shape(_SAID, "", "cache_control content encrypted_content signature tool_changes"),
    "fallback": _shape(_SAID, "from to", "trigger"),
    "tool_addition": _shape(_SYSTEM, "tool", "cache_control"),
    "tool_removal": _shape(_SYSTEM, "tool", "cache_control"),
}

RESULT_BLOCKS: Final[dict[str, Shape]] = {
    **{name: BLOCKS[name] for name in ("text", "image", "document", "search_result")},
    "tool_reference": _shape("", "tool_name", "cache_control"),
    "browser_state": _shape("", "", "cache_control state_changes tabs"),
}
"""What a tool_result's content may hold."""

CITATIONS: Final[dict[str, frozenset[str]]] = {
    "char_location": frozenset({"cited_text", "document_index", "start_char_index", "end_char_index"}),
    "page_location": frozenset({"cited_text", "document_index", "start_page_number", "end_page_number"}),
    "content_block_location": frozenset({"cited_text", "document_index", "start_block_index", "end_block_index"}),
    "web_search_result_location": frozenset({"cited_text", "encrypted_index", "url"}),
    "search_result_location": frozenset({"cited_text", "search_result_index", "start_block_index", "end_block_index"}),
}
"""A citation's type: the fields it can't lack."""

SERVER_RESULTS: Final[dict[str, frozenset[str]]] = {
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
"""A server tool's name: the types of its results."""

SERVER_USES: Final = frozenset({"server_tool_use", "mcp_tool_use"})
ANSWERS: Final = frozenset().union(*SERVER_RESULTS.values(), {"mcp_tool_result"})
THINKING: Final = frozenset({"thinking", "redacted_thinking"})
SERVER_SIDE: Final = SERVER_USES | ANSWERS
SIDE_OF_CALLS: Final = SERVER_SIDE | {"tool_use"}
"""An assistant's whitespace-only text got 200 beside these."""
