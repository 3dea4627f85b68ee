"""The quirk tokens that the recordings' tables name: the list the corpus has to cover, also without recordings."""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# INDEX.tsv, `quirks=` of the streams (sse/ and odd/).
STREAM_QUIRKS = words(
    """
    [DONE] after-message_stop:content_block_delta after-message_stop:content_block_start
    after-message_stop:content_block_stop after-message_stop:message_delta after-message_stop:message_start
    after-message_stop:message_stop bedrock-metrics block-before-message_start block-never-stopped
    block-restarted-while-open block_start.citations=list block_start.citations=null delta-after-block-stop
    delta-for-unopened-block delta-no-usage duplicate-message_start empty-partial_json empty-thinking_delta
    error-midstream error-only event-without-data field:id foreign-tool-id full-input-in-block_start index-gap
    index-missing index-reused input_json_delta-on-text last-frame-unterminated message_delta-with-open-block
    multiple-message_delta no-content-blocks no-event-line no-input-key-in-block_start no-message_delta
    no-message_start no-message_stop no-space-after-colon non-claude-model overlapping-blocks signature_delta-on-text
    sse-comment start-input_tokens-0 start-no-usage stop_reason-null-in-delta thinking-start-no-signature-key
    tool-input-empty-all-deltas tool-json-incomplete tool-without-json-delta type-not-first-key unknown-event:pong
    unparsable-data
    """
)
# Its bare words that say something of the stream itself.
STREAM_WORDS = frozenset({"no-ping", "padded-json"})

# What the streams hold, by key of the `special` column.
BLOCK_TYPES = words(
    """
    text thinking redacted_thinking tool_use server_tool_use mcp_tool_use mcp_tool_result compaction reasoning
    advisor_tool_result bash_code_execution_tool_result code_execution_tool_result
    text_editor_code_execution_tool_result tool_search_tool_result web_fetch_tool_result web_search_tool_result
    """
)
DELTA_TYPES = words(
    """
    text_delta input_json_delta thinking_delta signature_delta citations_delta compaction_delta reasoning_delta None
    """
)
STOP_REASONS = words("end_turn tool_use max_tokens stop_sequence refusal pause_turn None")
CITATIONS = words("page_location char_location web_search_result_location")
ERRORS = words("overloaded_error invalid_request error timeout_error None")

# EXPECTED.tsv, the words of `notes`.
NOTES = words(
    """
    no_message_stop index_missing duplicate_message_start message_start_without_message delta_after_stop
    synthesized_block finished_by_message_stop open_block_at_message_delta empty_open_block_dropped no_input_at_all
    """
)
# EXPECTED.tsv, the kinds of outcome.
OUTCOMES = words("complete incomplete api_error empty superseded not_a_stream protocol_error")

# A word of ours for what another program calls otherwise: which token shows the noted step.
SHOWN_BY = {
    "no_message_stop": "no-message_stop",
    "index_missing": "index-missing",
    "duplicate_message_start": "duplicate-message_start",
    "message_start_without_message": "start-no-usage",
    "delta_after_stop": "delta-after-block-stop",
    "synthesized_block": "delta-for-unopened-block",
    "finished_by_message_stop": "block-never-stopped",
    "open_block_at_message_delta": "message_delta-with-open-block",
    "empty_open_block_dropped": "block-never-stopped",
    "no_input_at_all": "no-input-key-in-block_start",
}
